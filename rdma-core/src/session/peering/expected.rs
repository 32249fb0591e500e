//! Messages that this side expects: their parts are granted before they are announced

use super::super::{Address, Event, IncomingId, MAX_EAGER, SessionId, StreamId};
use super::Peering;
use super::message::{Incoming, Parts, Progress};
use super::session::Stream;
use crate::probe::{self, ProtocolState};

/// The most messages of a stream that are expected at once
const MAX_EXPECTED: u32 = 4;
/// Long messages of a stream after which messages are expected again, once parts were granted that the peer did not send
const BACKOFF: u32 = 16;

impl Peering {
    /// Whether [`expect`](Self::expect) would expect a message
    pub fn can_expect(&self, session: SessionId, stream: StreamId, len: u64, within: u32) -> bool {
        let session = self.sessions[session.0 as usize & 1].peek(session);
        let stream = session.and_then(|session| session.streams.get(&stream));
        stream.is_some_and(|stream| self.next_to_expect(stream, len, within).is_some())
    }

    /// Expects `len` bytes as the first message of a stream of which nothing is known, if it is one of the `within` that are handed on next
    ///
    /// There is memory for it, as after [`accept_bulk`](Self::accept_bulk), so its parts are granted before it is announced. If another
    /// message comes in its place, or the end of the stream, [`Event::Unexpected`] gives the memory back.
    ///
    /// `None` if there is no such stream, if messages of this length do not use the bulk lane, or are too long, if four are expected,
    /// or if the peer has not sent one that was expected lately.
    pub fn expect(
        &mut self,
        session: SessionId,
        stream: StreamId,
        len: u64,
        within: u32,
    ) -> Option<IncomingId> {
        let found = self.sessions[session.0 as usize & 1].peek(session)?.streams.get(&stream)?;
        let index = self.next_to_expect(found, len, within)?;
        let Self { sessions, incoming, .. } = self;
        let found = sessions[session.0 as usize & 1].get(session)?.streams.get_mut(&stream)?;
        let id = found.incoming.expect(index, |message| {
            let address = Address { session: session.0, stream: stream.0, message };
            let progress = Progress::Bulk(Parts::expected());
            IncomingId(incoming.insert(Incoming { address, len, progress }) as u32)
        });
        self.expected.push_back(id);
        probe::reached(ProtocolState::MessageExpected);
        Some(id)
    }

    fn next_to_expect(&self, stream: &Stream, len: u64, within: u32) -> Option<usize> {
        let limits = &self.config.local;
        let is_long = len > MAX_EAGER as u64 && len <= limits.max_message;
        let is_possible = is_long && stream.backoff == 0;
        stream.incoming.next_to_expect(within.min(limits.stream_share), MAX_EXPECTED).filter(|_| is_possible)
    }

    /// Expects no more of a stream what was not announced: [`Event::Unexpected`] gives the memory of each message back
    pub fn expect_nothing(&mut self, session: SessionId, stream: StreamId) {
        while let Some(found) = self.session(session).and_then(|session| session.streams.get_mut(&stream))
            && let Some(id) = found.incoming.take_any_expected()
        {
            self.give_up_expected(id);
        }
    }

    /// Gives an expected message up: another message has come in its place, or the end of its stream, or the caller expects it no more
    pub(super) fn give_up_expected(&mut self, id: IncomingId) {
        let Some(message) = self.incoming.get_mut(id.0 as usize) else { return };
        let progress = std::mem::replace(&mut message.progress, Progress::Withdrawn);
        let was_granted = matches!(progress, Progress::Bulk(parts) if parts.has_begun());
        let Address { session, stream, .. } = message.address;
        self.expected.retain(|other| *other != id);
        self.paths.iter_mut().flatten().for_each(|path| path.receiver.forget(id));
        self.stopping.retain(|(_, slot)| slot.id != Some(id));
        if was_granted {
            self.back_off(SessionId(session), StreamId(stream));
        }
        self.events.push_back(Event::Unexpected(id));
        probe::reached(ProtocolState::MessageUnexpected);
    }

    /// An expected message was announced: what was not granted yet is granted as that of others
    pub(super) fn on_expected_announced(&mut self, id: IncomingId) {
        self.expected.retain(|other| *other != id);
        let Some(message) = self.incoming.get_mut(id.0 as usize) else { return };
        let Progress::Bulk(parts) = &mut message.progress else { return };
        parts.is_announced = true;
        if self.next_part(id).is_some() {
            self.ungranted.push_back(id);
        }
        self.complete_if_whole(id);
    }

    /// The peer has not sent a part of a message that was expected, because it had nothing to send, and others waited behind it
    ///
    /// The part is granted again once the message is announced, as are the messages behind it, so that they are in the way of others at most
    /// once.
    pub(super) fn on_void(&mut self, id: IncomingId, part: (u64, u32)) {
        let Some(message) = self.incoming.get_mut(id.0 as usize) else { return };
        let Progress::Bulk(parts) = &mut message.progress else { return };
        parts.lose(part);
        let Address { session, stream, .. } = message.address;
        if parts.is_announced && !self.ungranted.contains(&id) {
            self.ungranted.push_back(id);
        }
        let incoming = &self.incoming;
        let is_of_stream = |id: &IncomingId| {
            let address = incoming.get(id.0 as usize).map(|message| message.address);
            address.is_some_and(|address| (address.session, address.stream) == (session, stream))
        };
        self.expected.retain(|id| !is_of_stream(id));
        self.back_off(SessionId(session), StreamId(stream));
    }

    /// Expects nothing of a stream for a while: the lane carries bytes in vain
    fn back_off(&mut self, session: SessionId, stream: StreamId) {
        let found = self.session(session).and_then(|session| session.streams.get_mut(&stream));
        if let Some(found) = found {
            found.backoff = BACKOFF;
        }
    }
}
