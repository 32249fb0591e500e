//! The state of a peering, of those that tests of faults distinguish

use super::super::StreamId;
use super::Peering;
use super::message::Incoming;
use super::path::Path;
use super::session::{Session, Stream, Table};
use crate::probe::PeeringState;

impl Peering {
    /// The state of this side, from what it holds; for tests: it looks at everything
    pub fn state(&self) -> PeeringState {
        if self.proven_paths() == 0 {
            self.state_without_path()
        } else if self.session_count() == 0 {
            PeeringState::NoSession
        } else if self.is_path_missing() {
            PeeringState::PathMissing
        } else {
            self.state_of_closing().unwrap_or_else(|| self.state_of_messages())
        }
    }

    fn state_without_path(&self) -> PeeringState {
        let was_proven = self.counts.iter().any(|counts| counts.eager.received > 0);
        if self.paths.iter().any(Option::is_some) {
            if was_proven { PeeringState::RemadeUnproven } else { PeeringState::FirstUnproven }
        } else if !self.stopping_paths.is_empty() {
            PeeringState::Stopping
        } else if self.counts.iter().any(|counts| counts.made > 0) {
            PeeringState::NoPath
        } else {
            PeeringState::NoPathYet
        }
    }

    /// Whether a path does not carry data now that did before
    fn is_path_missing(&self) -> bool {
        let is_up = |path: &Option<Path>| path.as_ref().is_some_and(|path| path.is_proven);
        let mut paths = self.paths.iter().zip(&self.counts);
        paths.any(|(path, counts)| counts.eager.received > 0 && !is_up(path))
    }

    fn state_of_closing(&self) -> Option<PeeringState> {
        let mut closing = self.every_session().filter(|session| session.is_closing).peekable();
        closing.peek()?;
        let is_flushed = closing.all(|session| session.is_flushed);
        Some(if is_flushed { PeeringState::Flushed } else { PeeringState::Draining })
    }

    fn state_of_messages(&self) -> PeeringState {
        let mut paths = self.paths.iter().flatten().filter(|path| path.is_proven);
        let has_credits = paths.clone().any(|path| path.lane.data_room() > 0);
        let is_any = |holds: fn(&Stream) -> bool| {
            let streams = self.every_session().flat_map(|session| &session.streams);
            streams.filter(|(id, _)| **id != StreamId::CONTROL).any(|(_, stream)| holds(stream))
        };
        let is_announced = |(_, message): (usize, &Incoming)| {
            message.parts().is_some_and(|parts| parts.is_announced && parts.received < message.len)
        };
        if is_any(|stream| stream.is_blocked) {
            PeeringState::WaitsForRoom
        } else if !has_credits && self.ready.iter().any(|ready| !ready.is_empty()) {
            PeeringState::WaitsForCredits
        } else if paths.clone().any(|path| path.sender.is_serving()) {
            PeeringState::ServesGrants
        } else if paths.any(|path| !path.receiver.is_empty()) {
            PeeringState::AwaitsParts
        } else if self.incoming.iter().any(is_announced) {
            PeeringState::AwaitsMemory
        } else if is_any(|stream| stream.outgoing.awaits_arrival()) {
            PeeringState::AwaitsGrants
        } else if is_any(|stream| stream.outgoing.unconfirmed() > 0) {
            PeeringState::AwaitsReports
        } else {
            PeeringState::AtRest
        }
    }

    fn every_session(&self) -> impl Iterator<Item = &Session> {
        self.sessions.iter().flat_map(Table::iter)
    }
}
