//! Sessions that the application has dropped and that still have messages to send

use std::time::Duration;

use rdma_core::session::SessionId;
use rdma_core::{Device, Time};

use super::body::Effects;
use super::error::SessionError;
use super::state::{REFUSED, State};

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
    delivered: u64,
}

impl Abandoned {
    pub(super) fn new(timeout: Duration) -> Self {
        Self { timeout, sessions: Vec::new() }
    }

    pub(super) fn push(&mut self, id: SessionId, now: Time) {
        self.sessions.push(Entry { id, since: now, delivered: 0 });
    }

    /// A peer that could not be reached before is given all of its time again
    pub(super) fn restart(&mut self, now: Time) {
        self.sessions.iter_mut().for_each(|entry| entry.since = now);
    }
}

impl<D: Device> State<D> {
    /// Gives up sessions of which the peer takes nothing, although there is a path; returns when to look again
    pub(super) fn give_up_abandoned(&mut self, now: Time, effects: &mut Effects) -> Time {
        let has_path = self.lanes.iter().any(Option::is_some);
        let Abandoned { timeout, sessions } = &mut self.abandoned;
        let (mut next, mut given_up) = (Time::MAX, Vec::new());
        sessions.retain_mut(|entry| {
            let Some(session) = self.sessions.get(&entry.id).filter(|session| !session.is_over) else {
                return false;
            };
            if session.counts.delivered != entry.delivered {
                (entry.delivered, entry.since) = (session.counts.delivered, now);
            }
            let until = entry.since + *timeout;
            let is_given_up = has_path && now >= until;
            if is_given_up {
                given_up.push(entry.id);
            } else if has_path {
                next = next.min(until);
            }
            !is_given_up
        });
        let error = SessionError::Abandoned(*timeout);
        for id in given_up {
            if let Some(session) = self.sessions.get_mut(&id) {
                session.fail(&error, effects);
            }
            self.core.reset(id, REFUSED);
            self.handle_events(now, effects);
            self.remove_if_unused(id, effects);
        }
        next
    }
}
