use std::net::Ipv4Addr;
use std::time::Duration;

use rdma_core::{Cause, Error, Status, Verb};
use serde::{Deserialize, Serialize};

use crate::version::VERSION;

/// The reason for which a calibration ended before its end
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum CalibrateError {
    /// The device cannot be opened, or its port is down
    #[error("the device cannot be used: {0} ({remedy})", remedy = .0.remedy())]
    Device(#[source] rdma_core::Error),
    /// A verb failed that has to work
    #[error("{0} ({remedy})", remedy = .0.remedy())]
    Verb(#[from] Error),
    /// A request failed that has to work
    #[error("a request completed with {0}")]
    Status(Status),
    /// Nothing completed within this time
    #[error("nothing completed within {0:?}: pull the cable and plug it in again, then start anew")]
    Silent(Duration),
    /// Experiments that have to work failed on the device
    #[error("{stage}: {error}")]
    Stage {
        /// Their name
        stage: &'static str,
        /// Why they failed
        #[source]
        error: Box<Self>,
    },
    /// A transition to RTR from a link-local address found no peer: the first one of all
    #[error(
        "{error}; its source is {source_address}, and some Macs were reported to refuse addresses of 169.254.0.0/16 as the source: give the port of \
         both Macs an address such as 192.168.30.1, and start both sides again (if they connect then, rules.link_local_source is false)"
    )]
    LinkLocalSource {
        /// The address of the side that failed
        source_address: Ipv4Addr,
        /// How it failed
        #[source]
        error: Box<Self>,
    },
    /// The other side ended, or the connection to it
    #[error("the other side has ended, or the connection to it: start both sides again")]
    PeerGone,
    /// The other side does not answer
    #[error("the other side has not answered for {0:?}: a verb may hang there; look at its output")]
    PeerSilent(Duration),
    /// Too many transitions have failed on this side
    #[error(
        "{0} transitions to RTR have failed here, and more may wedge the port: look for the cause with tb5 doctor before another calibration"
    )]
    FailedTransitions(u32),
    /// The other side asks for a cable that is not here
    #[error("there is no cable {number}: --device names {count} here; name as many on both machines")]
    NoCable {
        /// Its number, from 1 on
        number: usize,
        /// The number of cables of this side
        count: usize,
    },
    /// The other side failed
    #[error("the other side failed: {0}")]
    PeerFailed(PeerFailure),
    /// The other side speaks another version
    #[error("the other side calibrates by version {0}, this one by {VERSION}: use the same tb5 on both")]
    Version(u64),
    /// The other side is no calibration
    #[error(
        "the other side does not answer as tb5 calibrate: start tb5 calibrate --listen there, unless it serves another side now"
    )]
    NotCalibrate,
    /// The other side, which connected to this one, asks nothing that a calibration does
    #[error(
        "the other side does not ask as tb5 calibrate: on the machine that should calibrate with this one, run tb5 calibrate HOST: with the name of \
         this machine"
    )]
    NotAsking,
}

impl CalibrateError {
    /// This error at the side that answers
    pub(crate) fn of_answering_side(self) -> Self {
        match self {
            Self::NotCalibrate => Self::NotAsking,
            error => error,
        }
    }

    /// True if the device of a side is gone, or its port is down
    pub(crate) fn is_gone(&self) -> bool {
        match self {
            Self::Verb(error) | Self::PeerFailed(PeerFailure::Verb(error)) => {
                matches!(error.cause, Cause::DeviceGone | Cause::PortDown)
            }
            _ => false,
        }
    }

    /// This error, with the name of the experiments if they failed on the device
    pub(crate) fn during(self, stage: &'static str) -> Self {
        match self {
            Self::Verb(_) | Self::Status(_) | Self::Silent(_) => Self::Stage { stage, error: Box::new(self) },
            _ => self,
        }
    }

    /// True if the experiments of other stages may go on after it
    pub(crate) fn is_of_stage(&self) -> bool {
        match self {
            Self::Verb(error) | Self::PeerFailed(PeerFailure::Verb(error)) => {
                // What fails to connect once does so again, and some ports were reported to wedge after a few failures.
                let is_connecting = error.verb == Verb::ModifyQp && !matches!(error.cause, Cause::Invalid(_));
                !self.is_gone() && !is_connecting
            }
            Self::Device(_) | Self::PeerFailed(PeerFailure::Device(_)) => false,
            Self::Status(_) | Self::Silent(_) | Self::NoCable { .. } | Self::PeerFailed(_) => true,
            Self::Stage { .. }
            | Self::LinkLocalSource { .. }
            | Self::FailedTransitions(_)
            | Self::PeerGone
            | Self::PeerSilent(_)
            | Self::Version(_)
            | Self::NotCalibrate
            | Self::NotAsking => false,
        }
    }
}

/// The reason for which the other side did not carry out a request
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize, thiserror::Error)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum PeerFailure {
    /// The device there cannot be opened, or its port is down
    #[error("the device there cannot be used: {0} ({remedy})", remedy = .0.remedy())]
    Device(Error),
    /// Nothing completed there in time
    #[error("nothing completed")]
    Silent,
    /// A request completed there with this status
    #[error("a request completed with {0}")]
    Status(Status),
    /// A verb failed there
    #[error("{0} ({remedy})", remedy = .0.remedy())]
    Verb(Error),
    /// Anything else, in words
    #[error("{0}")]
    Other(String),
}

impl From<&CalibrateError> for PeerFailure {
    fn from(error: &CalibrateError) -> Self {
        match error {
            CalibrateError::Device(error) => Self::Device(*error),
            CalibrateError::Silent(_) => Self::Silent,
            CalibrateError::Status(status) => Self::Status(*status),
            CalibrateError::Verb(error) => Self::Verb(*error),
            other => Self::Other(other.to_string()),
        }
    }
}

impl PeerFailure {
    /// True if a message did not arrive there as it should, and nothing else went wrong
    pub(crate) fn is_loss(&self) -> bool {
        matches!(self, Self::Silent | Self::Status(_))
    }
}
