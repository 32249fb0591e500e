//! Why no path could be made, as long as a peering has had none

use crate::error::ConnectError;

/// The attempts that have failed
#[derive(Default)]
pub(super) struct FirstFailures {
    /// Why the first one did.
    first: Option<ConnectError>,
    count: usize,
}

impl FirstFailures {
    /// Notes a failed attempt
    pub(super) fn note(&mut self, error: ConnectError) {
        self.count += 1;
        self.first.get_or_insert(error);
    }

    /// How many attempts have failed
    pub(super) fn count(&self) -> usize {
        self.count
    }

    /// Why the first attempt has failed
    pub(super) fn take(&mut self) -> Option<ConnectError> {
        self.first.take()
    }
}
