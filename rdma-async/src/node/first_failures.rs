//! Why no path could be made, as long as a peering has had none

use crate::error::ConnectError;
use crate::port_refusal::PortRefusal;

/// The attempts that have failed
#[derive(Default)]
pub(super) struct FirstFailures {
    /// Why the first one did, or the first on a port that may be wedged: those on other ports only show that their cables lead elsewhere.
    first: Option<ConnectError>,
    count: usize,
    /// Which ports could not be joined.
    refusals: Vec<PortRefusal>,
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

    /// Notes that two ports could not be joined; the first reason for two ports counts
    pub(super) fn note_refusal(&mut self, refusal: PortRefusal) {
        let is_of =
            |other: &PortRefusal| (&other.port, &other.peer_port) == (&refusal.port, &refusal.peer_port);
        if !self.refusals.iter().any(is_of) {
            self.refusals.push(refusal);
        }
    }

    /// Which ports could not be joined
    pub(super) fn refusals(&self) -> &[PortRefusal] {
        &self.refusals
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
