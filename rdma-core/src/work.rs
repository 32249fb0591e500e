use crate::Qpn;

/// The caller's identifier of a work request, returned by its completion
///
/// ```
/// let completion = rdma_core::Completion { id: rdma_core::WrId(42), ..Default::default() };
/// assert_eq!(completion.id, rdma_core::WrId(42));
/// ```
#[derive(Clone, Copy, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct WrId(pub u64);

/// The local key of a memory region, by which requests name it
///
/// ```
/// use rdma_core::{Lkey, Sge};
///
/// let element = Sge { addr: 0x1000, len: 64, lkey: Lkey(7) };
/// assert_eq!(element.lkey, Lkey(7));
/// ```
#[derive(Clone, Copy, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Lkey(pub u32);

/// The remote key of a memory region, by which peers name it
///
/// ```
/// use rdma_core::{Rkey, SendOp};
///
/// let op = SendOp::Write { remote_addr: 0x1000, rkey: Rkey(7) };
/// assert!(matches!(op, SendOp::Write { rkey: Rkey(7), .. }));
/// ```
#[derive(Clone, Copy, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Rkey(pub u32);

/// A scatter-gather element: a range of registered memory
///
/// ```
/// use rdma_core::{Lkey, RecvRequest, Sge, WrId};
///
/// let sgl = [Sge { addr: 0x1000, len: 4096, lkey: Lkey(7) }];
/// let request = RecvRequest { id: WrId(1), sgl: &sgl };
/// assert_eq!(request.sgl.len(), 1);
/// ```
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Sge {
    /// Address of the first byte, as [`MemoryRegion::base`](crate::MemoryRegion::base) counts it
    pub addr: u64,
    /// Length in bytes
    pub len: u32,
    /// Key of the region that holds the range
    pub lkey: Lkey,
}

/// Operation of a send request
///
/// All but [`Send`](Self::Send) need [`Caps::one_sided`](crate::Caps::one_sided) and produce no completion at the peer.
///
/// ```
/// assert_eq!(rdma_core::SendOp::default(), rdma_core::SendOp::Send);
/// ```
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub enum SendOp {
    /// Sends the bytes into the next receive that the peer has posted
    #[default]
    Send,
    /// Writes the bytes into the memory of the peer
    Write {
        /// Where, as the peer's region counts it
        remote_addr: u64,
        /// The peer's key of that memory
        rkey: Rkey,
    },
    /// Reads from the memory of the peer
    Read {
        /// Where, as the peer's region counts it
        remote_addr: u64,
        /// The peer's key of that memory
        rkey: Rkey,
    },
    /// Adds to eight bytes in the memory of the peer and returns their previous value
    FetchAdd {
        /// Where, as the peer's region counts it
        remote_addr: u64,
        /// The peer's key of that memory
        rkey: Rkey,
        /// The number to add
        add: u64,
    },
    /// Replaces eight bytes in the memory of the peer if they equal `compare`, and returns their previous value
    CompareSwap {
        /// Where, as the peer's region counts it
        remote_addr: u64,
        /// The peer's key of that memory
        rkey: Rkey,
        /// The expected value
        compare: u64,
        /// The new value
        swap: u64,
    },
}

/// A request for the send queue
///
/// ```
/// use rdma_core::{Lkey, SendOp, SendRequest, Sge, WrId};
///
/// let sgl = [Sge { addr: 0x1000, len: 64, lkey: Lkey(7) }];
/// let request = SendRequest { id: WrId(1), op: SendOp::Send, sgl: &sgl, signaled: true };
/// assert!(request.signaled);
/// ```
#[derive(Clone, Copy, Debug)]
pub struct SendRequest<'a> {
    /// Identifier that the completion will carry
    pub id: WrId,
    /// The operation
    pub op: SendOp,
    /// The bytes to send, at most [`Caps::max_sge`](crate::Caps::max_sge) ranges
    pub sgl: &'a [Sge],
    /// Whether success produces a completion; failure always does
    pub signaled: bool,
}

/// A request for the receive queue
///
/// ```
/// use rdma_core::{RecvRequest, WrId};
///
/// let without_memory = RecvRequest { id: WrId(1), sgl: &[] };
/// assert!(without_memory.sgl.is_empty());
/// ```
#[derive(Clone, Copy, Debug)]
pub struct RecvRequest<'a> {
    /// Identifier that the completion will carry
    pub id: WrId,
    /// Ranges for the bytes to receive, at most [`Caps::max_sge`](crate::Caps::max_sge) ranges
    pub sgl: &'a [Sge],
}

/// Operation of a completed request
///
/// Not meaningful in a completion whose [`Status`] is an error: the verbs leave it undefined there.
///
/// ```
/// assert_eq!(rdma_core::Completion::default().opcode, rdma_core::Opcode::Send);
/// ```
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[repr(u32)]
#[non_exhaustive]
pub enum Opcode {
    /// An operation on eight bytes of the peer
    Atomic,
    /// A read from the peer's memory
    Read,
    /// A receive
    Recv,
    /// A send
    #[default]
    Send,
    /// A write into the peer's memory
    Write,
}

/// Outcome of a request, with the numbers of `ibv_wc_status`
///
/// ```
/// use rdma_core::Status;
///
/// assert_eq!(Status::from_code(12), Status::RetryExceeded);
/// assert_eq!(Status::from_code(99).code(), 99);
/// assert_eq!(Status::Flushed.to_string(), "work request flushed");
/// ```
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq, thiserror::Error)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub enum Status {
    /// The request was carried out
    #[default]
    #[error("success")]
    Success,
    /// The message and the receive do not span the same frames
    #[error("local length error")]
    LocalLength,
    /// The request named memory that it may not use
    #[error("local protection error")]
    LocalProtection,
    /// A frame arrived damaged
    #[error("response error")]
    BadResponse,
    /// The peer's memory region does not exist, is too short, or does not grant the right
    #[error("remote access error")]
    RemoteAccess,
    /// The peer's device acknowledged none of the transmissions
    #[error("transport retry counter exceeded")]
    RetryExceeded,
    /// The queue pair entered the error state before the request was carried out
    #[error("work request flushed")]
    Flushed,
    /// A status that has no name here
    #[error("status {0}")]
    Other(u32),
}

impl Status {
    /// The `ibv_wc_status` number
    pub const fn code(self) -> u32 {
        match self {
            Self::Success => 0,
            Self::LocalLength => 1,
            Self::LocalProtection => 4,
            Self::Flushed => 5,
            Self::BadResponse => 7,
            Self::RemoteAccess => 10,
            Self::RetryExceeded => 12,
            Self::Other(code) => code,
        }
    }

    /// The status with that `ibv_wc_status` number
    pub const fn from_code(code: u32) -> Self {
        match code {
            0 => Self::Success,
            1 => Self::LocalLength,
            4 => Self::LocalProtection,
            5 => Self::Flushed,
            7 => Self::BadResponse,
            10 => Self::RemoteAccess,
            12 => Self::RetryExceeded,
            other => Self::Other(other),
        }
    }
}

/// A finished work request
///
/// ```
/// use rdma_core::{Completion, Status};
///
/// let received = |completion: &Completion| match completion.status {
///     Status::Success => Some(completion.byte_len),
///     _ => None,
/// };
/// assert_eq!(received(&Completion { byte_len: 64, ..Completion::default() }), Some(64));
/// assert_eq!(received(&Completion { status: Status::Flushed, ..Completion::default() }), None);
/// ```
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Completion {
    /// The identifier that the request was posted with
    pub id: WrId,
    /// The outcome; **the data of a receive is valid only on success**
    pub status: Status,
    /// The operation of the request, on success: devices need not name that of a request that has failed
    pub opcode: Opcode,
    /// Bytes received, for a successful receive
    pub byte_len: u32,
    /// The queue pair on which the request was posted
    pub qpn: Qpn,
}
