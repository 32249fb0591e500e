//! Why no path could be made, as long as a peering has had none

use crate::error::ConnectError;

/// The attempts that have failed
#[derive(Default)]
pub(super) struct FirstFailures {
    /// Why the first one did, or the first on a port that may be wedged: those on other ports only show that their cables lead elsewhere.
    first: Option<ConnectError>,
    count: usize,
}

impl FirstFailures {
    /// Notes a failed attempt
    pub(super) fn note(&mut self, error: ConnectError) {
        self.count += 1;
        let is_wedged = |error: &ConnectError| matches!(error, ConnectError::PortBusy { .. });
        if self.first.as_ref().is_none_or(|first| is_wedged(&error) && !is_wedged(first)) {
            self.first = Some(error);
        }
    }

    /// How many attempts have failed
    pub(super) fn count(&self) -> usize {
        self.count
    }

    /// Why the first attempt has failed, or the first on a port that may be wedged
    pub(super) fn take(&mut self) -> Option<ConnectError> {
        self.first.take()
    }
}
