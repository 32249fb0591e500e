//! What a device answers where a rule expects a refusal or a message

use rdma_core::{Cause, Error, Status};

use crate::error::CalibrateError;
use crate::lab::Lab;
use crate::message::{Reply, Request};

/// The experiments on rules without a field
pub(super) const STAGE: &str = "rules without a field";

pub(super) fn fail(error: Error) -> CalibrateError {
    CalibrateError::Verb { stage: STAGE, error }
}

/// What happened instead of a refusal as invalid
pub(super) fn unless_invalid<T>(answer: Result<T, Error>, what: &str) -> Option<String> {
    match answer {
        Err(Error { cause: Cause::Invalid(_), .. }) => None,
        Ok(_) => Some(format!("{what} was accepted")),
        Err(error) => Some(format!("{what} failed otherwise: {error}")),
    }
}

/// Why a message did not arrive for which the peer has posted a receive
pub(super) async fn lost(lab: &mut Lab<'_>) -> Result<Option<String>, CalibrateError> {
    match lab.ask(Request::Received { count: 1 }).await {
        Ok(Reply::Received { statuses }) if statuses == [Status::Success] => Ok(None),
        Ok(Reply::Received { statuses }) => Ok(Some(format!("the next message ended with {statuses:?}"))),
        Ok(_) => Err(CalibrateError::NotCalibrate),
        Err(CalibrateError::PeerFailed(why)) => Ok(Some(format!("the next message did not arrive: {why}"))),
        Err(error) => Err(error),
    }
}
