//! Messages that this side expects: their parts are granted before they are announced

use std::ops::Range;

use super::super::{Address, Event, IncomingId, MAX_EAGER, SessionId, StreamId};
use super::Peering;
use super::message::{Incoming, Parts, Progress};
use super::session::Stream;
use crate::probe::{self, ProtocolState};

/// The most messages of a stream that are expected at once
const MAX_EXPECTED: u32 = 4;
/// Bytes of a stream, for each proven path, that are granted before their message is announced, on the paths that bring them first
///
/// Two ways over a cable of 40 or 80 Gb/s take less time than these bytes: the grants for the rest arrive while they are sent. What is
/// expected wrongly costs no more than this.
const AHEAD: u64 = 1 << 18;
/// Long messages of a stream after which messages are expected again, once parts were granted that the peer did not send
const BACKOFF: u32 = 16;

impl Peering {
    /// Whether [`expect`](Self::expect) would expect a message
    pub fn can_expect(&self, session: SessionId, stream: StreamId, len: u64, places: Range<u32>) -> bool {
        let session = self.sessions[session.0 as usize & 1].peek(session);
        let stream = session.and_then(|session| session.streams.get(&stream));
        stream.is_some_and(|stream| self.next_to_expect(stream, len, places).is_some())
    }

    /// Expects `len` bytes as the first message of a stream of which nothing is known among those at `places`
    ///
    /// Places are counted from the message that is handed on next. Nothing needs to be known of the messages before.
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
        places: Range<u32>,
    ) -> Option<IncomingId> {
        let found = self.sessions[session.0 as usize & 1].peek(session)?.streams.get(&stream)?;
        let index = self.next_to_expect(found, len, places)?;
        let Self { sessions, incoming, .. } = self;
        let found = sessions[session.0 as usize & 1].get(session)?.streams.get_mut(&stream)?;
        let id = found.incoming.expect(index, |message| {
            let address = Address { session: session.0, stream: stream.0, message };
            let progress = Progress::Bulk(Parts::expected());
            IncomingId(incoming.insert(Incoming { address, len, progress }) as u32)
        });
        self.await_grants(session, stream);
        probe::reached(ProtocolState::MessageExpected);
        Some(id)
    }

    /// Puts a stream that expects messages in line for grants
    pub(super) fn await_grants(&mut self, session: SessionId, stream: StreamId) {
        let key = (session, stream);
        let found = self.session(session).and_then(|session| session.streams.get(&stream));
        if found.is_some_and(|found| found.incoming.is_expecting() && found.backoff == 0)
            && !self.expected.contains(&key)
        {
            self.expected.push_back(key);
        }
    }

    /// The next part that is granted of what a stream expects: of its next message first, and only so much as hides the way of the grants
    pub(super) fn next_expected_part(
        &self,
        (session, stream): (SessionId, StreamId),
    ) -> Option<(IncomingId, (u64, u32))> {
        let session = self.sessions[session.0 as usize & 1].peek(session)?;
        let mut left = AHEAD * self.proven_paths().max(1);
        for id in session.streams.get(&stream)?.incoming.expected() {
            let Incoming { len, progress: Progress::Bulk(parts), .. } = self.incoming.get(id.0 as usize)?
            else {
                return None;
            };
            left = left.saturating_sub(parts.ahead());
            if let Some(part) = parts.next(*len, self.longest_part(*len).min(AHEAD as u32)) {
                return Some((id, part)).filter(|_| u64::from(part.1) <= left);
            }
        }
        None
    }

    fn next_to_expect(&self, stream: &Stream, len: u64, places: Range<u32>) -> Option<usize> {
        let limits = &self.config.local;
        let is_long = len > MAX_EAGER as u64 && len <= limits.max_message;
        let is_possible = is_long && stream.backoff == 0;
        let places = places.start..places.end.min(limits.stream_share);
        stream.incoming.next_to_expect(places, MAX_EXPECTED).filter(|_| is_possible)
    }

    /// Expects no more of a stream what was not announced: [`Event::Unexpected`] gives the memory of each message back
    pub fn expect_nothing(&mut self, session: SessionId, stream: StreamId) {
        let Self { sessions, incoming, paths, stopping, events, .. } = self;
        let session_found = sessions[session.0 as usize & 1].get(session);
        let Some(found) = session_found.and_then(|session| session.streams.get_mut(&stream)) else { return };
        let mut was_granted = false;
        while let Some(id) = found.incoming.take_expected() {
            let Some(message) = incoming.get_mut(id.0 as usize) else { continue };
            let progress = std::mem::replace(&mut message.progress, Progress::Withdrawn);
            was_granted |= matches!(progress, Progress::Bulk(parts) if parts.has_begun());
            paths.iter_mut().flatten().for_each(|path| path.receiver.forget(id));
            stopping.retain(|(_, slot)| slot.id != Some(id));
            events.push_back(Event::Unexpected(id));
            probe::reached(ProtocolState::MessageUnexpected);
        }
        if was_granted {
            found.backoff = BACKOFF;
        }
        self.expected.retain(|other| *other != (session, stream));
    }

    /// An expected message was announced: what was not granted yet is granted as that of others
    pub(super) fn on_expected_announced(&mut self, id: IncomingId) {
        let Some(message) = self.incoming.get_mut(id.0 as usize) else { return };
        let Address { session, stream, .. } = message.address;
        let Progress::Bulk(parts) = &mut message.progress else { return };
        parts.is_announced = true;
        if self.next_part(id).is_some() {
            self.ungranted.push_back(id);
        }
        self.complete_if_whole(id);
        self.await_grants(SessionId(session), StreamId(stream));
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
        let (session, stream) = (SessionId(session), StreamId(stream));
        self.expected.retain(|other| *other != (session, stream));
        self.back_off(session, stream);
    }

    /// Expects nothing of a stream for a while: the lane carries bytes in vain
    fn back_off(&mut self, session: SessionId, stream: StreamId) {
        let found = self.session(session).and_then(|session| session.streams.get_mut(&stream));
        if let Some(found) = found {
            found.backoff = BACKOFF;
        }
    }
}
