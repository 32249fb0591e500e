//! The verdict on a behaviour

use std::borrow::Cow;

use rdma_core::Error;

use crate::error::CalibrateError;

/// A behaviour with its verdict
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct Behaviour {
    /// Its name
    pub name: &'static str,
    /// The rule of the simulator's catalogue that it shows, if one has no field in a profile
    pub rule: Option<&'static str>,
    /// Its verdict
    pub verdict: Verdict,
}

/// The verdicts on all behaviours
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Conformance {
    /// Every behaviour, in the order in which they are tried
    pub behaviours: Vec<Behaviour>,
    /// Why no behaviour could be tried any more, if that is so
    pub ended: Option<CalibrateError>,
}

/// The verdict on a behaviour
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Verdict {
    /// The device has it
    Passed,
    /// It was not tried, for this reason
    Skipped(Cow<'static, str>),
    /// The device does something else, or fails
    Failed(String),
}

/// The reason for which a behaviour ended early
pub(super) enum Stop {
    Skipped(Cow<'static, str>),
    /// A verb failed
    Verb(Error),
    /// The device did something else
    Unexpected(String),
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
            CalibrateError::Verb(error) => Self::Verb(error),
            CalibrateError::Status(_) | CalibrateError::Silent(_) | CalibrateError::PeerFailed(_) => {
                Self::Unexpected(error.to_string())
            }
            CalibrateError::FailedTransitions(_) => Self::Skipped(error.to_string().into()),
            error => Self::End(error),
        }
    }
}

/// Leaves a behaviour out for a reason
pub(super) fn skip<T>(why: impl Into<Cow<'static, str>>) -> Result<T, Stop> {
    Err(Stop::Skipped(why.into()))
}

/// The error of what has to be refused
pub(super) fn refused<T>(answer: Result<T, impl Into<Stop>>, what: &str) -> Result<Error, Stop> {
    match answer.map_err(Into::into) {
        Ok(_) => Err(Stop::Unexpected(format!("{what} was accepted"))),
        Err(Stop::Verb(error)) => Ok(error),
        Err(stop) => Err(stop),
    }
}
