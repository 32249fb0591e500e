//! The status of a peering

use super::super::{
    Address, IncomingId, PathCounts, PathId, PathStatus, SessionId, SessionWaits, Side, StreamId,
};
use super::Peering;
use super::message::{Incoming, Progress};
use super::session::{Session, Table};
use crate::{Histogram, Time};

impl Peering {
    /// How many sessions there are, open or closing
    pub fn session_count(&self) -> usize {
        self.sessions.iter().map(Table::len).sum()
    }

    /// The longest message that the peer takes, in bytes
    pub fn max_message(&self) -> u64 {
        self.config.peer.max_message
    }

    /// The most bytes in one bulk fragment
    pub fn bulk_fragment(&self) -> u32 {
        self.config.bulk_fragment
    }

    /// How many streams this side may have open in each session, beside the main one
    pub fn max_streams(&self) -> u32 {
        self.config.peer.max_streams
    }

    /// Whether there is no session, and the peer knows of every end
    pub fn is_quiet(&self) -> bool {
        self.session_count() == 0 && self.pending_resets == 0
    }

    /// Whether both sides have everything, and may lack no more than the report of that
    pub fn lacks_one_report(&self) -> bool {
        self.pending_resets == 0 && self.sessions.iter().flat_map(Table::iter).all(Session::is_nearly_over)
    }

    /// When the latest packet of the peer arrived
    pub fn last_heard(&self) -> Time {
        self.last_heard
    }

    /// What a path has done
    pub fn path_counts(&self, path: PathId) -> PathCounts {
        let mut counts = self.counts.get(path.0 as usize).copied().unwrap_or_default();
        if let Some(Some(path)) = self.paths.get(path.0 as usize) {
            let credits = if path.is_proven { path.lane.data_room() } else { 0 };
            (counts.eager.in_flight, counts.eager.credits) = (path.lane.unreported_sent(), credits);
            (counts.bulk.in_flight, counts.bulk.credits) = (path.sender.in_flight(), path.sender.unserved());
        }
        counts
    }

    /// How long it took from sending a packet on a path until the peer's report on it was here
    pub fn round_trips(&self, path: PathId) -> Histogram {
        self.round_trips.get(path.0 as usize).cloned().unwrap_or_default()
    }

    /// How long parts of long messages took on a path from the post of their receive until they were here
    ///
    /// Without those of messages that were expected: they wait for the application of the peer.
    pub fn part_times(&self, path: PathId) -> Histogram {
        self.part_times.get(path.0 as usize).cloned().unwrap_or_default()
    }

    /// How fast the eager and the bulk lane of a path were measured at most, in bytes per second, where that is less
    /// than half of what the ports report
    pub fn measured_rates(&self, path: PathId, now: Time) -> [Option<u64>; 2] {
        let path = self.paths.get(path.0 as usize).and_then(Option::as_ref);
        path.map_or([None; 2], |path| [&path.rate, path.receiver.rate()].map(|rate| rate.measured(now)))
    }

    /// How a path is
    pub fn path_status(&self, path: PathId) -> PathStatus {
        match self.paths.get(path.0 as usize) {
            Some(Some(path)) if path.is_proven => PathStatus::Up,
            Some(Some(_)) => PathStatus::Unproven,
            _ => PathStatus::Down,
        }
    }

    /// Whether packets have passed in both directions on a path, also one that was lost since: the peer has reported one of this side there
    pub fn has_confirmed_path(&self) -> bool {
        self.is_confirmed
    }

    /// Whether all messages of its stream before this one were handed on
    pub fn is_next(&self, id: IncomingId) -> bool {
        let Some(message) = self.incoming.get(id.0 as usize) else { return false };
        let Address { session, stream, message } = message.address;
        let session = self.sessions[session as usize & 1].peek(SessionId(session));
        let stream = session.and_then(|session| session.streams.get(&StreamId(stream)));
        stream.is_some_and(|stream| stream.incoming.is_next(message))
    }

    /// Whether there was more than the upkeep of paths since the last call: a new path, or a packet that is no report or question
    #[inline]
    pub fn take_activity(&mut self) -> bool {
        std::mem::take(&mut self.is_active)
    }

    /// Which side this is
    pub fn side(&self) -> Side {
        self.config.side
    }

    /// What a session waits for; nothing if it is over
    pub fn session_waits(&self, id: SessionId) -> SessionWaits {
        let Some(session) = self.sessions[id.0 as usize & 1].peek(id) else { return SessionWaits::default() };
        let of_session = |message: &&Incoming| {
            let Progress::Bulk(parts) = &message.progress else { return false };
            let is_awaited = parts.is_announced && parts.received < message.len;
            is_awaited && message.address.session == id.0
        };
        let streams = session.streams.iter().filter(|(stream, _)| **stream != StreamId::CONTROL);
        SessionWaits {
            unconfirmed: streams.map(|(_, stream)| stream.outgoing.unconfirmed()).sum(),
            needs_room: session.streams.values().any(|stream| stream.is_blocked),
            announced: self.incoming.iter().map(|(_, message)| message).filter(of_session).count(),
        }
    }
}
