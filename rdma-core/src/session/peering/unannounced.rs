//! Messages that are granted whole before they begin: their last part announces them

use super::super::Address;
use super::Peering;
use super::path::Path;
use super::session::Table;

/// Whether the peer has granted all of a message of `len` bytes
pub(super) fn is_granted_whole(paths: &[Option<Path>], address: Address, len: u64) -> bool {
    let (mut granted, mut has_end) = (0, false);
    for grant in paths.iter().flatten().flat_map(|path| path.sender.granted(address)) {
        let part = u64::from(grant.len);
        granted += part;
        // What was expected before may have been longer, or granted before: nothing but this part announces the message.
        has_end |= grant.offset.checked_add(part) == Some(len);
    }
    granted == len && has_end
}

impl Peering {
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
