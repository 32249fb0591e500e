//! A session of a peering, and where all of them are found

use std::collections::BTreeMap;

use super::super::config::MAX_SESSIONS;
use super::super::incoming::IncomingStream;
use super::super::outgoing::OutgoingStream;
use super::super::{Limits, Priority, SessionId, StreamId, Violation};
use super::backoff::Backoff;
use super::room::Room;

/// The streams of a session
#[derive(Debug)]
pub(super) struct Session {
    pub(super) id: SessionId,
    pub(super) streams: BTreeMap<StreamId, Stream>,
    /// The packets that each stream can always have, at this side and at the peer.
    shares: [u32; 2],
    /// Number of the next stream that this side, or the peer, opens.
    next_stream: [u32; 2],
    /// This side sends nothing more.
    pub(super) is_closing: bool,
    /// The peer has everything that this side has sent.
    pub(super) is_flushed: bool,
}

/// No stream has this number or a higher one, but for [`StreamId::CONTROL`].
const LAST_STREAM: u32 = u32::MAX - 3;

/// Both directions of a stream
#[derive(Debug)]
pub(super) struct Stream {
    pub(super) priority: Priority,
    /// Whether it is in line to send.
    pub(super) is_queued: bool,
    /// A message waits for room.
    pub(super) is_blocked: bool,
    pub(super) room: Room,
    pub(super) outgoing: OutgoingStream,
    pub(super) incoming: IncomingStream,
    pub(super) backoff: Backoff,
}

impl Session {
    fn new(id: SessionId, limits: [&Limits; 2]) -> Self {
        let shares = limits.map(|limits| limits.stream_share);
        let [main, control] = [(); 2].map(|()| Stream::new(Priority::Normal, shares));
        Self {
            id,
            streams: BTreeMap::from([(StreamId::MAIN, main), (StreamId::CONTROL, control)]),
            shares,
            // `MAIN` is number 0.
            next_stream: [2, 1],
            is_closing: false,
            is_flushed: false,
        }
    }

    /// How many streams of a side are open, but for those of which only a report is missing
    fn open_streams(&self, bit: u32) -> u32 {
        let is_open = |(id, stream): &(&StreamId, &Stream)| {
            let is_finished = stream.outgoing.is_finished() && stream.incoming.is_finished();
            id.0 & 1 == bit && **id != StreamId::MAIN && **id != StreamId::CONTROL && !is_finished
        };
        self.streams.iter().filter(is_open).count() as u32
    }

    /// Opens a stream of this side, if the peer takes one more
    pub(super) fn open_own_stream(
        &mut self,
        bit: u32,
        priority: Priority,
        limits: &Limits,
    ) -> Option<StreamId> {
        let own = |id: &StreamId| id.0 & 1 == bit && *id != StreamId::MAIN && *id != StreamId::CONTROL;
        let open = self.streams.keys().filter(|id| own(id)).count() as u32;
        let is_possible = open < limits.max_streams && self.next_stream[bit as usize] < LAST_STREAM;
        is_possible.then(|| self.open_stream(bit, priority))
    }

    /// Opens a stream of the side whose numbers have the low bit `bit`
    fn open_stream(&mut self, bit: u32, priority: Priority) -> StreamId {
        let next = &mut self.next_stream[bit as usize];
        let id = StreamId(*next);
        *next += 2;
        self.streams.insert(id, Stream::new(priority, self.shares));
        id
    }

    /// Opens the stream that a packet of the peer belongs to, if it is new, and those that the peer has opened before it
    pub(super) fn accept_streams(
        &mut self,
        id: StreamId,
        peer_bit: u32,
        limits: &Limits,
        mut opened: impl FnMut(StreamId),
    ) -> Result<(), Violation> {
        let next = self.next_stream[id.0 as usize & 1];
        if id == StreamId::CONTROL || id.0 < next {
            return Ok(());
        }
        let open = ((id.0 - next) / 2).saturating_add(self.open_streams(peer_bit));
        if id.0 & 1 != peer_bit || open >= limits.max_streams || id.0 >= LAST_STREAM {
            return Err(Violation::Stream(id.0));
        }
        loop {
            let new = self.open_stream(peer_bit, Priority::Normal);
            opened(new);
            if new == id {
                return Ok(());
            }
        }
    }

    /// Whether the peer has opened a stream of which no packet has arrived
    pub(super) fn may_be_opened(&self, id: StreamId, peer_bit: u32) -> bool {
        id != StreamId::CONTROL && id.0 & 1 == peer_bit && id.0 >= self.next_stream[peer_bit as usize]
    }

    /// Forgets a stream whose both directions are over; whether it did
    pub(super) fn remove_if_over(&mut self, id: StreamId) -> bool {
        let is_over = self.streams.get(&id).is_some_and(Stream::is_over);
        is_over && id != StreamId::MAIN && id != StreamId::CONTROL && self.streams.remove(&id).is_some()
    }

    /// Whether the peer has everything but the end of the session
    pub(super) fn is_drained(&self) -> bool {
        let mut streams = self.streams.iter().filter(|(id, _)| **id != StreamId::CONTROL);
        streams.all(|(_, stream)| stream.outgoing.is_acknowledged())
    }

    /// Whether only the peer's report is missing that it knows of the end of what this side sent
    pub(super) fn is_nearly_over(&self) -> bool {
        let control = self.streams.get(&StreamId::CONTROL);
        control.is_some_and(|control| control.outgoing.is_finished() && control.incoming.is_finished())
    }

    /// Whether both sides have everything
    pub(super) fn is_over(&self) -> bool {
        self.streams.get(&StreamId::CONTROL).is_some_and(Stream::is_over)
    }
}

impl Stream {
    fn new(priority: Priority, shares: [u32; 2]) -> Self {
        Self {
            priority,
            is_queued: false,
            is_blocked: false,
            room: Room::new(shares[0], shares[1]),
            outgoing: OutgoingStream::default(),
            incoming: IncomingStream::default(),
            backoff: Backoff::default(),
        }
    }

    fn is_over(&self) -> bool {
        self.outgoing.is_finished() && self.outgoing.is_acknowledged() && self.incoming.is_finished()
    }
}

/// The sessions that one side has opened
#[derive(Debug)]
pub(super) struct Table {
    /// The low bit of their numbers.
    bit: u32,
    slots: Vec<Slot>,
    /// How many of them have a session.
    len: usize,
    /// Slots for new sessions of this side.
    free: Vec<u32>,
}

#[derive(Debug, Default)]
struct Slot {
    /// How many sessions have been in this slot, modulo 2^13; zero before the first.
    generation: u32,
    session: Option<Box<Session>>,
}

const INDEX_BITS: u32 = MAX_SESSIONS.ilog2();
const GENERATIONS: u32 = 1 << (31 - INDEX_BITS);

impl Table {
    pub(super) fn new(bit: u32) -> Self {
        Self { bit, slots: Vec::new(), len: 0, free: Vec::new() }
    }

    /// Opens a session of this side, if the peer takes one more
    pub(super) fn open(&mut self, limits: [&Limits; 2]) -> Option<SessionId> {
        let [local, peer] = limits;
        let index = match self.free.pop() {
            Some(index) => index,
            None if self.slots.len() < peer.max_sessions.min(local.max_sessions) as usize => {
                self.slots.push(Slot::default());
                self.slots.len() as u32 - 1
            }
            None => return None,
        };
        let slot = &mut self.slots[index as usize];
        // Zero stays free for "no session".
        slot.generation = (slot.generation + 1) % GENERATIONS;
        slot.generation = slot.generation.max(1);
        let id = SessionId(slot.generation << (INDEX_BITS + 1) | index << 1 | self.bit);
        slot.session = Some(Box::new(Session::new(id, limits)));
        self.len += 1;
        Some(id)
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// The session that the peer must count as over to have opened session `id`, if there is one
    pub(super) fn predecessor(&self, id: SessionId) -> Option<SessionId> {
        let (index, generation) = split(id);
        let slot = self.slots.get(index).filter(|slot| is_newer(generation, slot.generation))?;
        slot.session.as_ref().map(|session| session.id)
    }

    /// Whether the peer may have opened session `id`, of which no packet has arrived
    pub(super) fn may_be_opened(&self, id: SessionId) -> bool {
        let (index, generation) = split(id);
        generation != 0 && self.slots.get(index).is_none_or(|slot| is_newer(generation, slot.generation))
    }

    /// Whether session `id` is over as far as the peer can know
    pub(super) fn is_nearly_over(&mut self, id: SessionId) -> bool {
        self.get(id).is_some_and(|session| session.is_nearly_over())
    }

    /// Opens the session that the peer has opened by a packet; false if it is over already
    pub(super) fn accept(&mut self, id: SessionId, limits: [&Limits; 2]) -> Result<bool, Violation> {
        let (index, generation) = split(id);
        if index >= limits[0].max_sessions as usize || generation == 0 {
            return Err(Violation::Session(id.0));
        }
        if index >= self.slots.len() {
            self.slots.resize_with(index + 1, Slot::default);
        }
        let slot = &mut self.slots[index];
        let is_newer = is_newer(generation, slot.generation);
        if is_newer {
            if slot.session.is_some() {
                // The peer opens no session in a place before the one there is over for both.
                return Err(Violation::Session(id.0));
            }
            slot.generation = generation;
            self.len += 1;
            slot.session = Some(Box::new(Session::new(id, limits)));
        }
        Ok(is_newer)
    }

    pub(super) fn get(&mut self, id: SessionId) -> Option<&mut Session> {
        let session = self.slots.get_mut(split(id).0)?.session.as_deref_mut()?;
        (session.id == id).then_some(session)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Session> {
        self.slots.iter().filter_map(|slot| slot.session.as_deref())
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Session> {
        self.slots.iter_mut().filter_map(|slot| slot.session.as_deref_mut())
    }

    pub(super) fn peek(&self, id: SessionId) -> Option<&Session> {
        let session = self.slots.get(split(id).0)?.session.as_deref()?;
        (session.id == id).then_some(session)
    }

    pub(super) fn remove(&mut self, id: SessionId) -> Option<Box<Session>> {
        self.get(id)?;
        self.len -= 1;
        self.slots[split(id).0].session.take()
    }

    /// Lets the place of a session of this side be used again, once the peer knows that it is over
    pub(super) fn release(&mut self, id: SessionId) {
        self.free.push(split(id).0 as u32);
    }
}

/// Whether a session of generation `one` came after those of `other`, zero for none
fn is_newer(one: u32, other: u32) -> bool {
    let ahead = one.wrapping_sub(other) % GENERATIONS;
    other == 0 || (ahead > 0 && ahead <= GENERATIONS / 2)
}

/// The place and the generation of a session
fn split(id: SessionId) -> (usize, u32) {
    ((id.0 >> 1) as usize & (MAX_SESSIONS as usize - 1), id.0 >> (INDEX_BITS + 1))
}
