//! Messages that this side expects: their parts are granted before they are announced

use std::ops::Range;

use super::super::{Address, Event, IncomingId, MAX_EAGER, PathId, SessionId, StreamId};
use super::Peering;
use super::message::{Incoming, Parts, Progress};
use super::session::{Stream, Table};
use crate::Time;
use crate::probe::{self, ProtocolState};

/// The most messages of a stream that are expected at once
const MAX_EXPECTED: u32 = 4;
/// Bytes of a stream, for each proven path, that are granted before their message is announced, on the paths that bring them first
///
/// Two ways over a cable of 40 or 80 Gb/s take less time than these bytes: the grants for the rest arrive while they are sent. What is
/// expected wrongly costs no more than this.
const AHEAD: u64 = 1 << 19;

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
    /// or while the stream backs off.
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

    /// Grants parts of expected messages ahead again, if the stream rests because the peer had nothing to send
    pub fn expect_again(&mut self, session: SessionId, stream: StreamId) {
        if let Some(found) = self.stream(session, stream) {
            found.backoff.go_on();
            self.await_grants(session, stream);
        }
    }

    /// Puts a stream that expects messages in line for grants
    pub(super) fn await_grants(&mut self, session: SessionId, stream: StreamId) {
        let key = (session, stream);
        let found = self.stream(session, stream);
        if found.is_some_and(|found| found.incoming.is_expecting() && found.backoff.may_grant())
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
        let mut next = None;
        for id in session.streams.get(&stream)?.incoming.expected() {
            let Incoming { len, progress: Progress::Bulk(parts), .. } = self.incoming.get(id.0 as usize)?
            else {
                return None;
            };
            left = left.saturating_sub(parts.ahead());
            let part = || parts.next(*len, self.longest_part(*len).min(AHEAD as u32));
            next = next.or_else(|| Some((id, part()?)));
        }
        // A later message may have been granted before an earlier one was expected.
        next.filter(|(_, (_, len))| u64::from(*len) <= left)
    }

    fn next_to_expect(&self, stream: &Stream, len: u64, places: Range<u32>) -> Option<usize> {
        let limits = &self.config.local;
        let is_long = len > MAX_EAGER as u64 && len <= limits.max_message;
        let is_possible = is_long && stream.backoff.is_over();
        let places = places.start..places.end.min(limits.stream_share);
        stream.incoming.next_to_expect(places, MAX_EXPECTED).filter(|_| is_possible)
    }

    /// Ends the expectations of a stream, because the caller needs their memory: [`Event::Unexpected`] gives that of each message back
    ///
    /// The peer is asked to answer at once what was granted; a device may write to the memory until then. Messages that were announced are
    /// still received.
    pub fn expect_nothing(&mut self, session: SessionId, stream: StreamId) {
        if self.end_expectations(session, stream, None) {
            self.paths.iter_mut().flatten().for_each(|path| path.receiver.hurry());
        }
    }

    /// As [`expect_nothing`](Self::expect_nothing), of all streams
    pub fn expect_nothing_at_all(&mut self) {
        for (session, stream) in self.expecting() {
            self.expect_nothing(session, stream);
        }
    }

    /// The streams that expect messages
    fn expecting(&self) -> Vec<(SessionId, StreamId)> {
        let sessions = self.sessions.iter().flat_map(Table::iter);
        let streams = sessions.flat_map(|session| session.streams.iter().map(|found| (session.id, found)));
        let expecting = streams.filter(|(_, (_, found))| found.incoming.is_expecting());
        expecting.map(|(session, (stream, _))| (session, *stream)).collect()
    }

    /// Puts all streams that expect messages in line for grants, because there is a path more
    #[cold]
    pub(super) fn await_grants_of_all(&mut self) {
        for (session, stream) in self.expecting() {
            self.await_grants(session, stream);
        }
    }

    /// Ends the expectations of a stream, from message `first` on if there is one; returns whether parts were granted that are not here: the
    /// stream then backs off
    pub(super) fn end_expectations(
        &mut self,
        session: SessionId,
        stream: StreamId,
        first: Option<u32>,
    ) -> bool {
        let Self { sessions, incoming, paths, stopping, events, .. } = self;
        let session_found = sessions[session.0 as usize & 1].get(session);
        let found = session_found.and_then(|session| session.streams.get_mut(&stream));
        let Some(found) = found else { return false };
        let mut was_granted = false;
        while let Some(id) = found.incoming.take_expected(first) {
            let Some(message) = incoming.get_mut(id.0 as usize) else { continue };
            let progress = std::mem::replace(&mut message.progress, Progress::Withdrawn);
            was_granted |= matches!(progress, Progress::Bulk(parts) if parts.ahead() > 0);
            paths.iter_mut().flatten().for_each(|path| path.receiver.forget(id));
            stopping.retain(|(_, slot)| slot.id != Some(id));
            events.push_back(Event::Unexpected(id));
            probe::reached(ProtocolState::MessageUnexpected);
        }
        if was_granted {
            found.backoff.was_wrong();
        }
        self.expected.retain(|other| *other != (session, stream));
        self.await_grants(session, stream);
        was_granted
    }

    /// An expected message was announced: what was not granted yet is granted as that of others
    pub(super) fn on_expected_announced(&mut self, now: Time, id: IncomingId) {
        let Some(message) = self.incoming.get_mut(id.0 as usize) else { return };
        let Progress::Bulk(parts) = &mut message.progress else { return };
        parts.is_announced = true;
        if self.next_part(id).is_some() {
            self.ungranted.push_back(id);
        }
        self.complete_if_whole(now, id);
    }

    /// The peer has not sent a part of a message that was expected: it had nothing to send for long, or messages waited behind the part on
    /// `path`, for which the stream backs off
    ///
    /// The part is granted again once the message is announced, or ahead once the stream is granted anything ahead again.
    pub(super) fn on_void(&mut self, path: PathId, id: IncomingId, part: (u64, u32)) {
        let was_in_the_way = self.others_wait(path, id);
        let Some(message) = self.incoming.get_mut(id.0 as usize) else { return };
        let Progress::Bulk(parts) = &mut message.progress else { return };
        parts.lose(part);
        let (Address { session, stream, .. }, is_announced) = (message.address, parts.is_announced);
        if is_announced && !self.ungranted.contains(&id) {
            self.ungranted.push_back(id);
        }
        let (session, stream) = (SessionId(session), StreamId(stream));
        self.expected.retain(|other| *other != (session, stream));
        let found = self.stream(session, stream);
        let Some(found) = found else { return };
        if !is_announced {
            found.backoff.rest();
        }
        if was_in_the_way {
            found.backoff.was_wrong();
        }
    }

    /// Whether announced messages beside message `id` wait for parts on a path
    fn others_wait(&self, path: PathId, id: IncomingId) -> bool {
        let is_announced = |id: IncomingId| {
            let parts = self.incoming.get(id.0 as usize).and_then(Incoming::parts);
            parts.is_some_and(|parts| parts.is_announced)
        };
        let path = self.paths.get(path.0 as usize).and_then(Option::as_ref);
        let mut slots = path.into_iter().flat_map(|path| path.receiver.slots());
        slots.any(|slot| {
            slot.id.is_some_and(|other| other != id && (!slot.is_expected || is_announced(other)))
        })
    }
}
