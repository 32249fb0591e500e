//! A session of a peering, and where all of them are found

use std::collections::BTreeMap;

use super::super::config::MAX_SESSIONS;
use super::super::incoming::IncomingStream;
use super::super::outgoing::OutgoingStream;
use super::super::{IncomingId, Limits, MAX_FRAGMENTS, Priority, SessionId, StreamId, Violation};

/// The streams of a session, and how many packets it may still bring
#[derive(Debug)]
pub(super) struct Session {
    pub(super) id: SessionId,
    pub(super) streams: BTreeMap<StreamId, Stream>,
    /// New packets that the peer takes in total.
    pub(super) peer_room: u32,
    /// New packets that were sent in total, all of a message once it has begun.
    pub(super) sent: u32,
    /// New packets that this side takes in total.
    pub(super) room: u32,
    /// New packets that have arrived in total, all of a message once it has begun.
    pub(super) arrived: u32,
    /// The room that the peer knows of, unless that packet is lost.
    pub(super) reported: u32,
    /// Whether the room is in line to be sent.
    pub(super) is_room_queued: bool,
    /// Number of the next stream that this side, or the peer, opens.
    next_stream: [u32; 2],
    /// This side sends nothing more.
    pub(super) is_closing: bool,
    /// A message waits for room.
    pub(super) is_blocked: bool,
    /// The peer has everything that this side has sent.
    pub(super) is_flushed: bool,
}

/// No stream has this number or a higher one, but for [`StreamId::CONTROL`].
const LAST_STREAM: u32 = u32::MAX - 3;

/// Both directions of a stream
#[derive(Debug, Default)]
pub(super) struct Stream {
    pub(super) priority: Priority,
    /// Whether it is in line to send.
    pub(super) is_queued: bool,
    pub(super) outgoing: OutgoingStream,
    pub(super) incoming: IncomingStream,
}

impl Session {
    fn new(id: SessionId, share: u32, peer_share: u32) -> Self {
        let main = (StreamId::MAIN, Stream::default());
        let control = (StreamId::CONTROL, Stream::default());
        Self {
            id,
            streams: BTreeMap::from([main, control]),
            peer_room: peer_share,
            sent: 0,
            room: share,
            arrived: 0,
            reported: share,
            is_room_queued: false,
            // `MAIN` is number 0.
            next_stream: [2, 1],
            is_closing: false,
            is_blocked: false,
            is_flushed: false,
        }
    }

    /// The next message of a stream before which nothing is unknown; each once
    pub(super) fn newly_known(&mut self, stream: StreamId) -> Option<IncomingId> {
        self.streams.get_mut(&stream)?.incoming.newly_known()
    }

    /// New packets that the peer takes
    pub(super) fn left(&self) -> u32 {
        let left = self.peer_room.wrapping_sub(self.sent);
        if left > u32::MAX / 2 { 0 } else { left }
    }

    /// Counts new packets in, all of a message at once
    pub(super) fn charge(&mut self, packets: u32) -> Result<(), Violation> {
        if self.room.wrapping_sub(self.arrived) < packets {
            return Err(Violation::Room(self.id.0));
        }
        self.arrived = self.arrived.wrapping_add(packets);
        Ok(())
    }

    /// Whether the peer should learn of the room now: it has used half of what it knows of
    pub(super) fn is_room_due(&self) -> bool {
        let unreported = self.room.wrapping_sub(self.reported);
        let left = self.reported.wrapping_sub(self.arrived);
        // With less than for the longest message, the peer may wait.
        unreported > 0 && (unreported >= left || left < MAX_FRAGMENTS as u32)
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
        self.streams.insert(id, Stream { priority, ..Stream::default() });
        id
    }

    /// The stream of a packet; `None` if it is over
    pub(super) fn peer_stream(
        &mut self,
        id: StreamId,
        peer_bit: u32,
        limits: &Limits,
    ) -> Result<Option<&mut Stream>, Violation> {
        let is_new = id != StreamId::CONTROL && id.0 >= self.next_stream[id.0 as usize & 1];
        if is_new {
            let ahead = (id.0 - self.next_stream[id.0 as usize & 1]) / 2;
            let open = ahead.saturating_add(self.open_streams(peer_bit));
            if id.0 & 1 != peer_bit || open >= limits.max_streams || id.0 >= LAST_STREAM {
                return Err(Violation::Stream(id.0));
            }
            // As a later stream was opened, the earlier ones were.
            while self.open_stream(peer_bit, Priority::Normal) != id {}
        }
        Ok(self.streams.get_mut(&id))
    }

    /// Forgets a stream whose both directions are over
    pub(super) fn remove_if_over(&mut self, id: StreamId) {
        let is_over = self.streams.get(&id).is_some_and(Stream::is_over);
        if is_over && id != StreamId::MAIN && id != StreamId::CONTROL {
            self.streams.remove(&id);
        }
    }

    /// Whether the peer has everything but the end of the session
    pub(super) fn is_drained(&self) -> bool {
        let mut streams = self.streams.iter().filter(|(id, _)| **id != StreamId::CONTROL);
        streams.all(|(_, stream)| stream.outgoing.is_acknowledged())
    }

    /// Whether only the peer's report is missing that it knows of the end of what this side sent
    fn is_nearly_over(&self) -> bool {
        let control = self.streams.get(&StreamId::CONTROL);
        control.is_some_and(|control| control.outgoing.is_finished() && control.incoming.is_finished())
    }

    /// Whether both sides have everything
    pub(super) fn is_over(&self) -> bool {
        self.streams.get(&StreamId::CONTROL).is_some_and(Stream::is_over)
    }
}

impl Stream {
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
        slot.session = Some(Box::new(Session::new(id, local.session_share, peer.session_share)));
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

    /// Whether session `id` is over as far as the peer can know
    pub(super) fn is_nearly_over(&mut self, id: SessionId) -> bool {
        self.get(id).is_some_and(|session| session.is_nearly_over())
    }

    /// Opens the session that the peer has opened by a packet; false if it is over already
    pub(super) fn accept(&mut self, id: SessionId, limits: [&Limits; 2]) -> Result<bool, Violation> {
        let [local, peer] = limits;
        let (index, generation) = split(id);
        if index >= local.max_sessions as usize || generation == 0 {
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
            slot.session = Some(Box::new(Session::new(id, local.session_share, peer.session_share)));
        }
        Ok(is_newer)
    }

    pub(super) fn get(&mut self, id: SessionId) -> Option<&mut Session> {
        let session = self.slots.get_mut(split(id).0)?.session.as_deref_mut()?;
        (session.id == id).then_some(session)
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
