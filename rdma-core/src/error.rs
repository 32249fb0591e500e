use std::fmt;
use std::io;

use crate::Invalid;

/// A verb that failed, with the cause
///
/// ```
/// use rdma_core::{Cause, Error, Resource, Verb};
///
/// let cause = Cause::Exhausted { resource: Resource::QueuePairs, limit: 10 };
/// let error = Error::new(Verb::CreateQp, cause);
/// assert_eq!(error.to_string(), "create_qp: all 10 queue pairs of the device are in use");
/// assert_eq!(error.remedy(), "share what is open, or end the processes that hold the others");
/// ```
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[error("{verb}: {cause}")]
pub struct Error {
    /// The operation that failed
    pub verb: Verb,
    /// The cause
    pub cause: Cause,
}

impl Error {
    /// `verb` failed because of `cause`
    pub const fn new(verb: Verb, cause: Cause) -> Self {
        Self { verb, cause }
    }

    /// The error number that Apple's provider reports for this failure (Darwin numbering)
    pub const fn errno(&self) -> i32 {
        self.cause.errno()
    }

    /// What to do about it, in one sentence
    pub const fn remedy(&self) -> &'static str {
        self.cause.remedy()
    }
}

impl From<Error> for io::Error {
    /// An error of the kind that fits best, with the whole error inside
    fn from(error: Error) -> Self {
        let kind = match error.cause {
            Cause::Busy | Cause::QueueFull => io::ErrorKind::ResourceBusy,
            Cause::DeviceGone => io::ErrorKind::ConnectionAborted,
            Cause::Exhausted { .. } => io::ErrorKind::QuotaExceeded,
            Cause::GidTableEmpty | Cause::NoUsableGid | Cause::PortDown => io::ErrorKind::NetworkDown,
            Cause::Invalid(_) | Cause::MessageTooLong { .. } => io::ErrorKind::InvalidInput,
            Cause::LockedMemory { .. } => io::ErrorKind::OutOfMemory,
            Cause::NoRoute => io::ErrorKind::NetworkUnreachable,
            Cause::Os(errno) => Self::from_raw_os_error(errno).kind(),
            Cause::NoNeighbour | Cause::PeerUnreachable => io::ErrorKind::HostUnreachable,
            Cause::NotImplemented | Cause::Unsupported => io::ErrorKind::Unsupported,
        };
        Self::new(kind, error)
    }
}

/// Declares public enums, each variant with the text that `Display` writes for it
macro_rules! named {
    ($($(#[$attribute:meta])* pub enum $enum:ident { $($(#[$doc:meta])* $variant:ident = $name:literal,)+ })+) => {$(
        $(#[$attribute])*
        #[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
        #[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
        #[non_exhaustive]
        pub enum $enum {
            $($(#[$doc])* $variant,)+
        }

        impl fmt::Display for $enum {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(match self {
                    $(Self::$variant => $name,)+
                })
            }
        }
    )+};
}

named! {
    /// A verb, as errors name it
    ///
    /// ```
    /// assert_eq!(rdma_core::Verb::PostSend.to_string(), "post_send");
    /// ```
    pub enum Verb {
        /// `ibv_alloc_pd`
        AllocPd = "alloc_pd",
        /// `ibv_close_device`
        CloseDevice = "close_device",
        /// `ibv_create_cq`
        CreateCq = "create_cq",
        /// `ibv_create_qp`
        CreateQp = "create_qp",
        /// `ibv_dealloc_pd`
        DeallocPd = "dealloc_pd",
        /// `ibv_dereg_mr`
        DeregMr = "dereg_mr",
        /// `ibv_destroy_cq`
        DestroyCq = "destroy_cq",
        /// `ibv_destroy_qp`
        DestroyQp = "destroy_qp",
        /// `ibv_modify_qp`
        ModifyQp = "modify_qp",
        /// `ibv_open_device`
        OpenDevice = "open_device",
        /// `ibv_poll_cq`
        PollCq = "poll_cq",
        /// `ibv_post_recv`
        PostRecv = "post_recv",
        /// `ibv_post_send`
        PostSend = "post_send",
        /// `ibv_query_gid`
        QueryGid = "query_gid",
        /// `ibv_query_port`
        QueryPort = "query_port",
        /// `ibv_reg_mr`
        RegMr = "reg_mr",
    }

    /// A kind of object that a device has in limited number
    ///
    /// ```
    /// assert_eq!(rdma_core::Resource::MemoryRegions.to_string(), "memory regions");
    /// ```
    pub enum Resource {
        /// Completion queues
        CompletionQueues = "completion queues",
        /// Memory regions
        MemoryRegions = "memory regions",
        /// Protection domains
        ProtectionDomains = "protection domains",
        /// Queue pairs
        QueuePairs = "queue pairs",
    }
}

/// Cause of a failed verb
///
/// ```
/// use rdma_core::{Cause, CompletionQueue as _, Device as _};
///
/// rdma_sim::Sim::new().run(async |net| {
///     let device = net.open("a", "rdma_en2")?;
///     let mut queues = Vec::new();
///     let refused = loop {
///         match device.create_cq(16) {
///             Ok(cq) => queues.push(cq),
///             Err(error) => break error.cause,
///         }
///     };
///     assert!(matches!(refused, Cause::Exhausted { limit: 11, .. }));
///     Ok::<_, rdma_core::Error>(())
/// })
/// .value
/// .unwrap();
/// ```
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub enum Cause {
    /// The receive queue of the port is unavailable, often because a crashed process still holds it
    #[error("the device is busy")]
    Busy,
    /// The device vanished: its cable was pulled or its host went away
    #[error("the device is gone")]
    DeviceGone,
    /// All objects of a kind are in use; the limit holds for all processes together
    #[error("all {limit} {resource} of the device are in use")]
    Exhausted {
        /// The kind of object that ran out
        resource: Resource,
        /// How many the device has
        limit: u32,
    },
    /// The port has no GID at all
    #[error("the GID table of the port is empty")]
    GidTableEmpty,
    /// The device does not accept an argument
    #[error(transparent)]
    Invalid(#[from] Invalid),
    /// The process may lock no more memory (on Linux, where registered memory is locked memory)
    #[error("registered memory is locked, and this process may lock at most {limit} bytes (RLIMIT_MEMLOCK)")]
    LockedMemory {
        /// The limit of the process in bytes
        limit: u64,
    },
    /// The message spans more frames than the queue holds
    #[error("a message of {len} bytes exceeds the limit of {max}")]
    MessageTooLong {
        /// Length of the message in bytes
        len: u64,
        /// The longest that fits
        max: u64,
    },
    /// The system has no entry for the peer's address among the neighbours of the port (`EPERM`)
    #[error("the peer is not among the neighbours of this port")]
    NoNeighbour,
    /// No route leads from the port to the peer's address (`ENETUNREACH`, `EHOSTUNREACH`)
    #[error("no route leads from this port to the peer")]
    NoRoute,
    /// The verbs provider has no such function for the device (`ENOSYS`)
    #[error("the verbs provider of the device does not have this function")]
    NotImplemented,
    /// The source GID cannot be used
    #[error("the port has no usable GID at that index")]
    NoUsableGid,
    /// An error number that has no name here
    #[error("error number {0}")]
    Os(i32),
    /// The peer's GID cannot be resolved to a neighbour
    #[error("the peer does not answer on this cable")]
    PeerUnreachable,
    /// The port is not active
    #[error("the port is down")]
    PortDown,
    /// The queue has no space for the frames of the request
    #[error("the queue is full")]
    QueueFull,
    /// The device cannot do this
    #[error("the device does not support this")]
    Unsupported,
}

impl Cause {
    /// The error number that Apple's provider reports for this cause (Darwin numbering)
    pub const fn errno(&self) -> i32 {
        match self {
            Self::Busy => 16,
            Self::DeviceGone => 6,
            Self::Exhausted { resource: Resource::QueuePairs, .. } => 16,
            Self::Exhausted { .. } | Self::LockedMemory { .. } | Self::QueueFull => 12,
            Self::GidTableEmpty => 96,
            Self::Invalid(_) | Self::MessageTooLong { .. } | Self::NoUsableGid | Self::PortDown => 22,
            Self::NoNeighbour => 1,
            Self::NoRoute => 51,
            Self::NotImplemented => 78,
            Self::Os(errno) => *errno,
            Self::PeerUnreachable => 60,
            Self::Unsupported => 102,
        }
    }

    /// What to do about it, in one sentence
    pub const fn remedy(&self) -> &'static str {
        match self {
            Self::Busy => "end the process that used the port before, or restart the machine",
            Self::DeviceGone => "plug the cable back in and open the device again",
            Self::Exhausted { .. } => "share what is open, or end the processes that hold the others",
            Self::GidTableEmpty => {
                "take the port out of the Thunderbolt Bridge and give it an address of its own"
            }
            Self::Invalid(_) => "correct the argument",
            Self::LockedMemory { .. } => {
                "raise the limit (`ulimit -l`, or memlock in /etc/security/limits.conf), or register less memory"
            }
            Self::MessageTooLong { .. } => "send less at once",
            Self::NoNeighbour => {
                "ping the peer's address from this port, and reset the interface if that does not help"
            }
            Self::NoRoute => "give the port an address in the subnet of the peer's",
            Self::NotImplemented => {
                "install the current provider of the device (on Linux ibverbs-providers), or name another in RDMA_PROVIDER"
            }
            Self::NoUsableGid => "give the port an IPv4 address and use the index of its entry",
            Self::Os(_) => "look the number up in the system's errno list",
            Self::PeerUnreachable => "check that both ends have an address and that routes are fresh",
            Self::PortDown => "connect a Mac that has RDMA enabled to this port",
            Self::QueueFull => "poll completions before posting more",
            Self::Unsupported => "use SEND on an unreliable-connected queue pair",
        }
    }
}
