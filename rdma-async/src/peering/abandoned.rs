//! Sessions that the application has dropped and that still have messages to send

use std::time::Duration;

use rdma_core::Time;
use rdma_core::session::SessionId;

/// Such sessions, and when the peer took the latest message of each
#[derive(Debug)]
pub(super) struct Abandoned {
    timeout: Duration,
    sessions: Vec<Entry>,
}

#[derive(Debug)]
struct Entry {
    id: SessionId,
    since: Time,
    progress: u64,
}

impl Abandoned {
    pub(super) fn new(timeout: Duration) -> Self {
        Self { timeout, sessions: Vec::new() }
    }

    pub(super) fn push(&mut self, id: SessionId, now: Time) {
        self.sessions.push(Entry { id, since: now, progress: 0 });
    }

    /// Whether there are none
    pub(super) fn is_empty(&self) -> bool {
        self.sessions.is_empty()
    }

    /// A peer that could not be reached before is given all of its time again
    pub(super) fn restart(&mut self, now: Time) {
        self.sessions.iter_mut().for_each(|entry| entry.since = now);
    }

    pub(super) fn timeout(&self) -> Duration {
        self.timeout
    }

    /// Takes the sessions of which the peer took nothing for the timeout, and says when to look again
    ///
    /// `progress` says how far a session is, `None` if it is over.
    pub(super) fn take_stalled(
        &mut self,
        now: Time,
        progress: impl Fn(SessionId) -> Option<u64>,
    ) -> (Vec<SessionId>, Time) {
        let (mut stalled, mut next) = (Vec::new(), Time::MAX);
        let timeout = self.timeout;
        self.sessions.retain_mut(|entry| {
            let Some(progress) = progress(entry.id) else { return false };
            if progress != entry.progress {
                (entry.progress, entry.since) = (progress, now);
            }
            let until = entry.since + timeout;
            if now >= until {
                stalled.push(entry.id);
                return false;
            }
            next = next.min(until);
            true
        });
        (stalled, next)
    }
}
