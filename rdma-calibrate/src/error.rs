use std::time::Duration;

use crate::message::VERSION;

/// Why a calibration ended without a result
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum CalibrateError {
    /// The device cannot be opened, or its port is down
    #[error("the device cannot be used: {0} ({remedy})", remedy = .0.remedy())]
    Device(rdma_core::Error),
    /// A verb failed that has to work
    #[error("{stage}: {error} ({remedy})", remedy = error.remedy())]
    Verb {
        /// What was being found out
        stage: &'static str,
        /// The verb, and why it failed
        error: rdma_core::Error,
    },
    /// A request failed that has to work
    #[error("{stage}: a request completed with {status}")]
    Status {
        /// What was being found out
        stage: &'static str,
        /// The status of its completion
        status: rdma_core::Status,
    },
    /// Nothing completed
    #[error(
        "{stage}: nothing completed within {patience:?}: pull the cable and plug it in again, then start anew"
    )]
    Silent {
        /// What was being found out
        stage: &'static str,
        /// How long it was waited
        patience: Duration,
    },
    /// The other side ended, or the connection to it
    #[error("the other side has ended, or the connection to it: start both sides again")]
    PeerGone,
    /// The other side does not answer
    #[error("the other side has not answered for {0:?}: a verb may hang there; look at its output")]
    PeerSilent(Duration),
    /// The other side failed
    #[error("the other side failed: {0}")]
    PeerFailed(String),
    /// The other side speaks another version
    #[error("the other side calibrates by version {0}, this one by {VERSION}: use the same tb5 on both")]
    Version(u64),
    /// The other side is no calibration
    #[error("the other side does not calibrate: start tb5 calibrate --listen there")]
    NotCalibrate,
}
