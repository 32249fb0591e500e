use crate::FRAME;

/// Abilities and limits of a device
///
/// Limits on objects hold for all processes of the machine together.
///
/// ```
/// use rdma_core::{Caps, FRAME};
///
/// let caps = Caps::tb5();
/// assert_eq!(caps.max_message as usize, 4095 * FRAME);
/// assert!(!caps.one_sided && caps.send_waits_for_receive);
/// ```
#[derive(Clone, Debug, Eq, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub struct Caps {
    /// Whether a queue pair in the error state completes its posted requests as [`Flushed`](crate::Status::Flushed)
    ///
    /// If not, they never complete: destroy the queue pair to get their memory back.
    pub flush_on_error: bool,
    /// Bytes in a frame, the unit of queue space and flow control
    pub frame: u32,
    /// Completion queues per device
    pub max_cq: u32,
    /// Entries in a completion queue
    pub max_cqe: u32,
    /// Bytes in the longest message
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
    /// Whether a SEND waits in hardware until the peer posts a receive; if not, the peer's device drops it
    pub send_waits_for_receive: bool,
    /// What carries the messages
    pub transport: Transport,
}

/// What carries the messages of a device; queue pairs of different transports cannot be connected
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
#[repr(u8)]
pub enum Transport {
    /// A network adapter or a Thunderbolt port with RDMA
    Rdma = 1,
    /// TCP, in software
    Tcp = 2,
}

impl Transport {
    /// The transport with this number in messages, if there is one
    pub(crate) fn from_number(number: u8) -> Option<Self> {
        [Self::Rdma, Self::Tcp].into_iter().find(|transport| *transport as u8 == number)
    }
}

impl Caps {
    /// The limits of Apple's RDMA over Thunderbolt 5
    ///
    /// Sources: Apple TN3205 (queue pairs, message length, 4095 requests in flight); `ibv_devinfo -v` of
    /// published field notes (protection domains, completion queues, memory regions, elements).
    pub const fn tb5() -> Self {
        Self {
            flush_on_error: false,
            frame: FRAME as u32,
            max_cq: 11,
            max_cqe: 4096,
            max_message: 4095 * FRAME as u32,
            max_mr: 100,
            max_pd: 11,
            max_qp: 10,
            max_queue_frames: 4095,
            max_sge: 1,
            one_sided: false,
            send_waits_for_receive: true,
            transport: Transport::Rdma,
        }
    }

    /// The limits of a network adapter that speaks RoCE: reliable queue pairs, one-sided operations, no waiting for receives
    ///
    /// Round numbers, within the range of common adapters.
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
