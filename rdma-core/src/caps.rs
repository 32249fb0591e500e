use crate::QpAddress;

/// What a device can do, and how much of it
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct Caps {
    /// Whether a failed queue pair flushes its requests when set to the error state
    pub flush_on_error: bool,
    /// Bytes in a frame, the unit of queue space and flow control
    pub frame: u32,
    /// Completion queues per device
    pub max_cq: u32,
    /// Entries in a completion queue
    pub max_cqe: u32,
    /// Bytes in a message
    pub max_message: u32,
    /// Memory regions per device
    pub max_mr: u32,
    /// Protection domains per device
    pub max_pd: u32,
    /// Queue pairs per device
    pub max_qp: u32,
    /// Frames that one direction of a queue pair can hold
    pub max_queue_frames: u32,
    /// Scatter-gather elements per request
    pub max_sge: u32,
    /// Whether peers can read and write memory without a receive, and reliable queue pairs exist
    pub one_sided: bool,
    /// Whether a SEND waits for its receive in hardware; if not, it is dropped
    pub send_waits_for_receive: bool,
}

impl Caps {
    /// The limits of Apple's RDMA over Thunderbolt 5
    ///
    /// Sources: Apple TN3205 (queue pairs, message length, 4095 requests in flight); `ibv_devinfo -v` of
    /// published field notes (protection domains, completion queues, memory regions, elements).
    pub const fn tb5() -> Self {
        Self {
            flush_on_error: false,
            frame: crate::FRAME as u32,
            max_cq: 11,
            max_cqe: 4096,
            max_message: 4095 * crate::FRAME as u32,
            max_mr: 100,
            max_pd: 11,
            max_qp: 10,
            max_queue_frames: 4095,
            max_sge: 1,
            one_sided: false,
            send_waits_for_receive: true,
        }
    }
}

impl Caps {
    /// A network adapter that speaks RoCE: reliable queue pairs, one-sided operations, and no waiting for receives
    ///
    /// Round numbers, within what common adapters offer.
    pub const fn roce() -> Self {
        Self {
            flush_on_error: true,
            max_cq: 256,
            max_cqe: 65_536,
            max_message: 1 << 30,
            max_mr: 4096,
            max_pd: 256,
            max_qp: 256,
            max_queue_frames: 16_384,
            one_sided: true,
            send_waits_for_receive: false,
            ..Self::tb5()
        }
    }
}

/// Rights of a memory region, as `ibv_access_flags`
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct Access(u32);

impl Access {
    /// The device may read from the region, and nothing else
    pub const NONE: Self = Self(0);
    /// The device may write into the region: needed for receives
    pub const LOCAL_WRITE: Self = Self(1);
    /// A peer may write into the region
    pub const REMOTE_WRITE: Self = Self(2);
    /// A peer may read from the region
    pub const REMOTE_READ: Self = Self(4);
    /// A peer may operate on eight bytes of the region at once
    pub const REMOTE_ATOMIC: Self = Self(8);

    /// The flags as the verbs count them
    pub const fn bits(self) -> u32 {
        self.0
    }

    /// Whether all of `other` is granted
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Both rights
    #[must_use]
    pub const fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// State of a port
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum PortState {
    /// A Mac with RDMA enabled is at the other end of the cable
    Active,
    /// No cable, or nobody who speaks RDMA at its other end
    Down,
}

/// What `ibv_query_port` tells
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct PortStatus {
    /// Raw line rate of the link in bits per second, each way
    pub bits_per_second: u64,
    /// Whether the port can carry traffic
    pub state: PortState,
}

impl PortStatus {
    /// A port in `state` on a link of `bits_per_second`
    pub const fn new(state: PortState, bits_per_second: u64) -> Self {
        Self { bits_per_second, state }
    }
}

/// Transport type of a queue pair
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum QpType {
    /// Reliable connected
    Rc,
    /// Unreliable connected: what Thunderbolt 5 has
    #[default]
    Uc,
    /// Unreliable datagram
    Ud,
}

/// How many frames each direction of a queue pair may hold
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct QpCapacity {
    /// Frames of posted and not yet completed receives
    pub recv_frames: u32,
    /// Frames of posted and not yet completed sends
    pub send_frames: u32,
}

/// What a new queue pair should be
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct QpInit {
    /// Space to ask for; [`QueuePair::capacity`](crate::QueuePair::capacity) tells what was granted
    pub capacity: QpCapacity,
    /// Transport
    pub qp_type: QpType,
}

/// State of a queue pair
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum QpState {
    /// Created
    #[default]
    Reset,
    /// Bound to its port
    Init,
    /// Ready to receive
    ReadyToReceive,
    /// Ready to send
    ReadyToSend,
    /// Failed
    Error,
}

/// A step of the state machine of a queue pair, with what the step needs
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum Transition {
    /// To [`QpState::Reset`]
    Reset,
    /// To [`QpState::Init`]
    Init,
    /// To [`QpState::ReadyToReceive`]: from now on the controller processes receives
    ReadyToReceive {
        /// The queue pair at the other end
        peer: QpAddress,
    },
    /// To [`QpState::ReadyToSend`]
    ReadyToSend,
    /// To [`QpState::Error`]
    Error,
}
