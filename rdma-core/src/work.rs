use crate::Qpn;

/// The caller's name for a work request, returned by its completion
#[derive(Clone, Copy, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct WrId(pub u64);

/// The local key of a memory region
#[derive(Clone, Copy, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Lkey(pub u32);

/// The remote key of a memory region
#[derive(Clone, Copy, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Rkey(pub u32);

/// A scatter-gather element: a range of registered memory
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Sge {
    /// Address of the first byte, as [`MemoryRegion::base`](crate::MemoryRegion::base) counts it
    pub addr: u64,
    /// Length in bytes
    pub len: u32,
    /// Key of the region that holds the range
    pub lkey: Lkey,
}

/// What a send request does
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub enum SendOp {
    /// Into the next receive that the peer has posted
    #[default]
    Send,
    /// Into the memory of the peer, which notices nothing
    Write {
        /// Where, as the peer's region counts it
        remote_addr: u64,
        /// The peer's key of that memory
        rkey: Rkey,
    },
    /// From the memory of the peer, which notices nothing
    Read {
        /// Where, as the peer's region counts it
        remote_addr: u64,
        /// The peer's key of that memory
        rkey: Rkey,
    },
    /// Adds to eight bytes in the memory of the peer; what was there arrives here
    FetchAdd {
        /// Where, as the peer's region counts it
        remote_addr: u64,
        /// The peer's key of that memory
        rkey: Rkey,
        /// How much to add
        add: u64,
    },
    /// Replaces eight bytes in the memory of the peer if they are as expected; what was there arrives here
    CompareSwap {
        /// Where, as the peer's region counts it
        remote_addr: u64,
        /// The peer's key of that memory
        rkey: Rkey,
        /// What is expected
        compare: u64,
        /// What replaces it
        swap: u64,
    },
}

/// A request for the send queue
#[derive(Clone, Copy, Debug)]
pub struct SendRequest<'a> {
    /// Name that the completion will carry
    pub id: WrId,
    /// What to do
    pub op: SendOp,
    /// The bytes to send, at most [`Caps::max_sge`](crate::Caps::max_sge) ranges
    pub sgl: &'a [Sge],
    /// Whether success produces a completion; failure always does
    pub signaled: bool,
}

/// A request for the receive queue
#[derive(Clone, Copy, Debug)]
pub struct RecvRequest<'a> {
    /// Name that the completion will carry
    pub id: WrId,
    /// Where the bytes go, at most [`Caps::max_sge`](crate::Caps::max_sge) ranges
    pub sgl: &'a [Sge],
}

/// What a completed request was
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
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

/// How a request ended
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Status {
    /// As asked
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
    /// The peer's memory is not there, or not for this
    #[error("remote access error")]
    RemoteAccess,
    /// The peer did not answer, however often it was asked
    #[error("transport retry counter exceeded")]
    RetryExceeded,
    /// The queue pair failed or was torn down first
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
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Completion {
    /// The name given when the request was posted
    pub id: WrId,
    /// How it ended; **data of a receive is valid only on success**
    pub status: Status,
    /// What the request was
    pub opcode: Opcode,
    /// Bytes received, for a successful receive
    pub byte_len: u32,
    /// The queue pair on which the request was posted
    pub qpn: Qpn,
}
