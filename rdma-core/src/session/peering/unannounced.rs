//! Messages that are granted whole before they begin: their last part announces them

use super::super::{Address, SessionId, StreamId};
use super::Peering;
use super::session::Table;
use crate::probe::{self, ProtocolState};

impl Peering {
    /// Begins the next message of a stream without announcing it, if the peer has granted all of it: its last part announces it
    pub(super) fn begin_if_granted(&mut self, id: SessionId, stream: StreamId, room: u32) -> bool {
        let Some(found) = self.sessions[id.0 as usize & 1].peek(id) else { return false };
        let Some((message, len)) =
            found.streams.get(&stream).and_then(|found| found.outgoing.next_bulk(room))
        else {
            return false;
        };
        let address = Address { session: id.0, stream: stream.0, message };
        let (mut granted, mut has_end) = (0, false);
        for grant in self.paths.iter().flatten().flat_map(|path| path.sender.granted(address)) {
            let part = u64::from(grant.len);
            granted += part;
            // What was expected before may have been longer, or granted before: nothing but this part announces the message.
            has_end |= grant.offset.checked_add(part) == Some(len);
        }
        let is_whole = granted == len && has_end;
        let Some(found) = self.stream(id, stream).filter(|_| is_whole) else { return false };
        let charge = found.outgoing.begin_unannounced();
        found.room.spend(charge);
        probe::reached(ProtocolState::BulkUnannounced);
        self.look_at_grants_again();
        true
    }

    /// Announces messages that only their last part has announced, which a path may have lost
    pub(super) fn announce_all(&mut self) {
        let streams = self.sessions.iter_mut().flat_map(Table::iter_mut).flat_map(|session| {
            let id = session.id;
            session.streams.iter_mut().map(move |(stream, found)| (id, *stream, found))
        });
        let lost =
            streams.filter_map(|(id, stream, found)| found.outgoing.announce().then_some((id, stream)));
        for (id, stream) in lost.collect::<Vec<_>>() {
            self.enqueue(id, stream);
        }
    }
}
