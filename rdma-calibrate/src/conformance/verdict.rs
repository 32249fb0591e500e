//! What comes of a behaviour

use rdma_core::Error;

use crate::error::CalibrateError;

/// Whether the device has a behaviour
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct Behaviour {
    /// Its name
    pub name: &'static str,
    /// What came of it
    pub verdict: Verdict,
}

/// What came of a behaviour
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Verdict {
    /// The device has it
    Passed,
    /// It was not tried, for this reason
    Skipped(&'static str),
    /// The device does something else, or fails
    Failed(String),
}

/// Why a behaviour ended early
pub(super) enum Stop {
    Skipped(&'static str),
    /// A verb failed
    Verb(Error),
    /// The device did something else
    Otherwise(String),
    /// The calibration cannot go on
    End(CalibrateError),
}

pub(super) type Outcome = Result<(), Stop>;

impl From<Error> for Stop {
    fn from(error: Error) -> Self {
        Self::Verb(error)
    }
}

impl From<CalibrateError> for Stop {
    fn from(error: CalibrateError) -> Self {
        match error {
            CalibrateError::Verb { error, .. } => Self::Verb(error),
            CalibrateError::Status { .. } | CalibrateError::Silent { .. } | CalibrateError::PeerFailed(_) => {
                Self::Otherwise(error.to_string())
            }
            error => Self::End(error),
        }
    }
}

/// The error of what has to be refused
pub(super) fn refused<T>(answer: Result<T, impl Into<Stop>>, what: &str) -> Result<Error, Stop> {
    match answer.map_err(Into::into) {
        Ok(_) => Err(Stop::Otherwise(format!("{what} was accepted"))),
        Err(Stop::Verb(error)) => Ok(error),
        Err(stop) => Err(stop),
    }
}
