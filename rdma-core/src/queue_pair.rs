use crate::QpAddress;

/// Transport type of a queue pair
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub enum QpType {
    /// Reliable connected
    Rc,
    /// Unreliable connected: the only type of Thunderbolt 5
    #[default]
    Uc,
    /// Unreliable datagram
    Ud,
}

/// Frames that each direction of a queue pair can hold
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct QpCapacity {
    /// Frames of receives that are posted and not completed
    pub recv_frames: u32,
    /// Frames of sends that are posted and not completed
    pub send_frames: u32,
}

/// Attributes of a new queue pair
///
/// ```
/// use rdma_core::{QpCapacity, QpInit, QpType};
///
/// let init = QpInit { qp_type: QpType::Rc, ..QpInit::with_frames(63) };
/// assert_eq!(init.capacity, QpCapacity { recv_frames: 63, send_frames: 63 });
/// ```
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct QpInit {
    /// Space to ask for; [`QueuePair::capacity`](crate::QueuePair::capacity) returns the space that was granted
    pub capacity: QpCapacity,
    /// Transport
    pub qp_type: QpType,
}

impl QpInit {
    /// An unreliable connected queue pair with space for `frames` frames in each direction
    pub const fn with_frames(frames: u32) -> Self {
        Self { capacity: QpCapacity { recv_frames: frames, send_frames: frames }, qp_type: QpType::Uc }
    }
}

/// State of a queue pair
///
/// ```
/// use rdma_core::{QpInit, QpState, QueuePair as _, CompletionQueue as _, Device as _};
///
/// rdma_sim::Sim::new().run(async |net| {
///     let cq = net.open("a", "rdma_en2")?.create_cq(16)?;
///     assert_eq!(cq.create_qp(&QpInit::default())?.state(), QpState::Init);
///     Ok::<_, rdma_core::Error>(())
/// })
/// .value
/// .unwrap();
/// ```
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
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

/// A transition of the state machine of a queue pair, with its arguments
///
/// ```
/// use rdma_core::{Cause, CompletionQueue as _, Device as _, Invalid, QpInit, QueuePair as _, Transition};
///
/// rdma_sim::Sim::new().run(async |net| {
///     let cq = net.open("a", "rdma_en2")?.create_cq(16)?;
///     let qp = cq.create_qp(&QpInit::default())?;
///     let refused = qp.modify(Transition::ReadyToSend).unwrap_err();
///     assert!(matches!(refused.cause, Cause::Invalid(Invalid::Transition { .. })));
///     Ok::<_, rdma_core::Error>(())
/// })
/// .value
/// .unwrap();
/// ```
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
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
