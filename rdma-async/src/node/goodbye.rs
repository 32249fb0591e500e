//! Reasons that a side sends when it ends a peering, or refuses one

use rdma_core::session::{ByeReason, HelloError, LostReason};
use rdma_core::{Cause, Error};

use crate::connect_stage::ConnectStage;
use crate::error::{ConnectError, SessionError};

/// The reason to send for the end of a peering
pub(super) fn bye_reason(error: &SessionError) -> ByeReason {
    match error {
        SessionError::PeerLost(_) => ByeReason::Silence,
        SessionError::Protocol(_) => ByeReason::Violation,
        SessionError::RuntimeGone => ByeReason::RuntimeGone,
        SessionError::Blocked(_)
        | SessionError::Overlong { .. }
        | SessionError::UnknownCompletion(_)
        | SessionError::Unstopped => ByeReason::Device,
        SessionError::Abandoned(_)
        | SessionError::Aborted
        | SessionError::PeerGone(_)
        | SessionError::Reset(_) => ByeReason::Done,
    }
}

/// The reason to send when an introduction has failed; `None` if the peer sees for itself, or does not speak the protocol
pub(super) fn refusal(error: &ConnectError) -> Option<ByeReason> {
    match error {
        ConnectError::Closed => Some(ByeReason::Closed),
        ConnectError::Crowded { .. } => Some(ByeReason::Crowded),
        ConnectError::Memory => Some(ByeReason::NoMemory),
        ConnectError::Peer(HelloError::Replayed | HelloError::Unexpected | HelloError::Unusable) => {
            Some(ByeReason::Violation)
        }
        ConnectError::Timeout { stage: ConnectStage::Path, .. } => Some(ByeReason::NoPath),
        ConnectError::Timeout { .. } => Some(ByeReason::Late),
        _ => None,
    }
}

/// The reason to send when the path that the peer has offered cannot be made
pub(super) fn lost_reason(error: &ConnectError) -> LostReason {
    match error {
        ConnectError::NoPath { .. } => LostReason::Unreachable,
        ConnectError::Device(Error { cause: Cause::NoNeighbour | Cause::PeerUnreachable, .. }) => {
            LostReason::Unreachable
        }
        ConnectError::Device(Error { cause: Cause::Exhausted { .. }, .. })
        | ConnectError::Memory
        | ConnectError::Pool(_) => LostReason::NoMemory,
        ConnectError::Peer(HelloError::Unexpected) => LostReason::PortUsed,
        ConnectError::PortBusy { .. } | ConnectError::Blocked(_) => LostReason::Busy,
        _ => LostReason::Device,
    }
}
