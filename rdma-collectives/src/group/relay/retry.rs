//! When messages are sent again

use std::time::Duration;

use rdma_async::Time;

/// After so long without a confirmation, what neighbours may not have is sent again, and later after twice as long each time: a rank on the way may
/// have dropped it, because it did not know of a way then.
const FIRST_RETRY: Duration = Duration::from_millis(20);
pub(super) const LAST_RETRY: Duration = Duration::from_secs(1);

/// When to send again what was not confirmed
#[derive(Clone, Copy, Debug)]
pub(super) struct Retry {
    pub(super) at: Option<Time>,
    after: Duration,
}

impl Retry {
    pub(super) const NEW: Self = Self { at: None, after: FIRST_RETRY };

    /// Whether to send again now, if anything is not confirmed
    pub(super) fn is_late(&mut self, is_awaited: bool, now: Time) -> bool {
        let at = is_awaited.then(|| self.at.unwrap_or(now + self.after));
        let is_late = at.is_some_and(|at| at <= now);
        self.at = at.filter(|_| !is_late);
        if is_late {
            self.after = (2 * self.after).min(LAST_RETRY);
        }
        is_late
    }
}
