//! Transitions to RTR that fail: a port may be wedged after some

use crate::error::CalibrateError;

/// The most transitions to RTR of a side that may fail: a port may be wedged after more.
const MAX_FAILED: u32 = 3;

/// Counts the transitions to RTR of one side that have failed
#[derive(Debug, Default)]
pub(crate) struct Transitions {
    failed: u32,
}

impl Transitions {
    /// Makes `transition` and counts it if it fails
    ///
    /// # Errors
    ///
    /// That of the transition, or [`CalibrateError::FailedTransitions`] if as many have failed as may: then it is not made.
    pub(crate) fn attempt<T, E: From<CalibrateError>>(
        &mut self,
        transition: impl FnOnce() -> Result<T, E>,
    ) -> Result<T, E> {
        self.require()?;
        transition().inspect_err(|_| self.failed += 1)
    }

    /// Counts a transition that has failed beside [`attempt`](Self::attempt)
    pub(crate) fn count_failed(&mut self) {
        self.failed += 1;
    }

    /// How many have failed
    pub(crate) fn failed(&self) -> u32 {
        self.failed
    }

    /// Fails if no more transitions may be made
    pub(crate) fn require(&self) -> Result<(), CalibrateError> {
        match self.failed {
            failed if failed < MAX_FAILED => Ok(()),
            failed => Err(CalibrateError::FailedTransitions(failed)),
        }
    }
}
