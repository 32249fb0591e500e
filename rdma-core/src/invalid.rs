use crate::{AttrMask, Lkey, QpState};

/// Whether memory of `len` bytes from the address `addr` on lies across a 4 GiB boundary, as [`Invalid::CrossesBoundary`] says
///
/// ```
/// use rdma_core::crosses_boundary;
///
/// assert!(!crosses_boundary(0xffff_c000, 16_384));
/// assert!(crosses_boundary(0xffff_c000, 16_385));
/// ```
pub const fn crosses_boundary(addr: u64, len: u64) -> bool {
    addr >> 32 != addr.saturating_add(len.saturating_sub(1)) >> 32
}

/// An argument that a device does not accept, with its value
///
/// The [`errno`](crate::Error::errno) of each is `EINVAL`.
///
/// ```
/// use rdma_core::{Cause, Error, Invalid, Verb};
///
/// let refused = Error::new(Verb::CreateCq, Invalid::CqDepth { depth: 5000, max: 4096 }.into());
/// assert_eq!(refused.errno(), 22);
/// assert_eq!(
///     refused.to_string(),
///     "create_cq: a completion queue of 5000 entries is impossible; ask for 1 to 4096"
/// );
/// assert!(matches!(refused.cause, Cause::Invalid(Invalid::CqDepth { max: 4096, .. })));
/// ```
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub enum Invalid {
    /// The attribute mask lacks bits that the transition needs
    #[error("attribute mask {:#x} lacks bits of {:#x}, which this transition needs", mask.0, needed.0)]
    AttrMask {
        /// The mask that was given
        mask: AttrMask,
        /// The bits that must be set
        needed: AttrMask,
    },
    /// The device has no completion queue of that depth
    #[error("a completion queue of {depth} entries is impossible; ask for 1 to {max}")]
    CqDepth {
        /// Entries that were asked for
        depth: u32,
        /// The most that the device offers
        max: u32,
    },
    /// The memory lies across a 4 GiB boundary of its addresses, beyond which Apple's device misplaces data (field report)
    #[error("{len} bytes at {addr:#x} lie across a 4 GiB boundary, where the device misplaces data")]
    CrossesBoundary {
        /// Address of the first byte
        addr: u64,
        /// Length in bytes
        len: u64,
    },
    /// The queue pair was destroyed
    #[error("the queue pair is destroyed; create a new one")]
    Destroyed,
    /// A memory region of no bytes
    #[error("a memory region needs at least one byte")]
    EmptyRegion,
    /// No memory region of the device has that key
    #[error("no memory region of this device has lkey {:#x}", lkey.0)]
    Lkey {
        /// The key
        lkey: Lkey,
    },
    /// The device refuses regions with no other right than [`Access::LOCAL_WRITE`](crate::Access::LOCAL_WRITE)
    #[error("the device refuses memory with local write access only; register it for remote access, too")]
    LocalWriteOnly,
    /// The memory does not begin at a multiple of the device's page
    #[error("memory at {addr:#x} does not begin at a multiple of {align} bytes")]
    Misaligned {
        /// Address of the first byte
        addr: u64,
        /// The alignment that the device needs, in bytes
        align: u64,
    },
    /// There is no device of that name on that host
    #[error("there is no such host or device")]
    NoSuchDevice,
    /// The range is not inside the memory region of its key
    #[error("{len} bytes at {addr:#x} are not inside their memory region")]
    OutsideRegion {
        /// Address of the first byte, as the region counts it
        addr: u64,
        /// Length in bytes
        len: u32,
    },
    /// The device has no such port or partition key
    #[error("port {port} with partition key index {pkey_index} is not there; use port 1, index 0")]
    Port {
        /// The port, from 1
        port: u8,
        /// Index of the partition key
        pkey_index: u16,
    },
    /// A queue pair cannot have a queue that long
    #[error("a queue of {frames} frames is impossible; ask for at most {max}")]
    QueueFrames {
        /// Frames that were asked for
        frames: u32,
        /// The most that the device offers
        max: u32,
    },
    /// The provider answered `EINVAL`, which does not say which argument is wrong
    #[error("the provider refuses an argument")]
    Refused,
    /// The request has a number of scatter-gather elements that the device does not take
    #[error("{count} scatter-gather elements; the device takes exactly {max}")]
    SgeCount {
        /// Elements of the request
        count: usize,
        /// Elements that the device takes
        max: usize,
    },
    /// The device granted queues on which a path cannot work
    #[error("the device granted a receive queue of {recv_frames} frames, too short for a path")]
    ShortQueue {
        /// Frames of receives that were granted
        recv_frames: u32,
    },
    /// The queue pair takes no such request in its state
    #[error("a queue pair in state {state:?} does not take this request")]
    State {
        /// The state
        state: QpState,
    },
    /// The state machine of queue pairs has no such transition
    #[error("a queue pair cannot go from state {from:?} to {to:?}")]
    Transition {
        /// The state of the queue pair
        from: QpState,
        /// The state that was asked for
        to: QpState,
    },
}
