//! Deadlines of the task that keeps the bootstrap stream

use rdma_core::session::Side;
use rdma_core::{Device, Time};

use super::{Control, PORT_INTERVAL, PathState};

impl<D: Device> Control<D> {
    /// Whether there are paths that carry data, and their devices report when that may end; other paths have times of their own
    fn needs_no_look(&self) -> bool {
        let needs_no_look = |path: &PathState<D>| match path {
            PathState::Up { port, .. } => self.node.ports[*port].needs_no_look(),
            _ => true,
        };
        !self.has_changed && !self.asks_again && self.has_path() && self.paths.iter().all(needs_no_look)
    }

    pub(super) fn next_tick(&mut self) -> Time {
        if self.needs_no_look() {
            self.port_at = Time::MAX;
        } else if self.port_at == Time::MAX {
            self.port_at = self.now() + PORT_INTERVAL;
        }
        let mut at = self.port_at.min(self.silent_at());
        for path in &self.paths {
            match path {
                PathState::Offered { since, .. } => at = at.min(self.answer_until(*since)),
                PathState::Down { from } if self.side == Side::Connecting => at = at.min(*from),
                PathState::Waiting { from, .. } if *from > self.now() => at = at.min(*from),
                _ => (),
            }
        }
        if self.stream.takes_messages() { at.min(self.alive_at) } else { at }
    }

    /// When the peer is given up, if it is not heard until then
    pub(super) fn silent_at(&self) -> Time {
        let (up, heard) = self.peering.update(|state, _| (state.paths_up(), state.last_heard()));
        if up > 0 || self.first.is_some() { Time::MAX } else { heard.max(self.heard) + self.peer_timeout }
    }

    /// Until when the peer may answer an offer: its device may take as long as one of this side, if the peer is heard meanwhile
    pub(super) fn answer_until(&self, since: Time) -> Time {
        let silent_at = since.max(self.heard) + self.peer_timeout;
        silent_at.min(since + self.peer_timeout + self.node.options.device_timeout)
    }
}
