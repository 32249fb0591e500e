//! Everything that two processes have with each other

mod answer;
mod arrivals;
mod backoff;
mod bulk_input;
mod control;
mod control_messages;
mod expected;
mod input;
mod message;
mod output;
mod path;
mod progress;
mod room;
mod session;
mod state;
mod status;
mod unannounced;

use std::collections::VecDeque;

use slab::Slab;

use self::control_messages::ControlMessages;
use self::message::{Incoming, Progress};
use self::path::{Content, Part, Path};
use self::session::{Session, Stream, Table};
use super::bulk::Slot;
use super::packets::Fate;
use super::{
    Address, Event, IncomingId, LaneConfig, MAX_FRAGMENTS, PathCounts, PathId, PathLoss, PeeringConfig,
    Priority, RefusedSend, SessionId, StreamId, Token,
};
use crate::probe::{self, ProtocolState};
use crate::{Histogram, Time};

/// The state of one side: its paths, its sessions, and what is under way
///
/// The caller posts what [`poll_transmit`](Self::poll_transmit) returns, reports what completes, and handles
/// [events](Self::poll_event) before it reports the next completion. A path that fails is given up; what it carried goes by the
/// others, or waits for the next one.
///
/// ```
/// use std::time::Duration;
/// use rdma_core::Time;
/// use rdma_core::session::*;
///
/// let limits = Limits { max_message: 1 << 30, max_sessions: 8, max_streams: 8, stream_share: 64 };
/// let config = |side| PeeringConfig {
///     side, integrity: Integrity::Crc32, bulk_fragment: 1 << 18, local: limits, peer: limits,
/// };
/// let lane = LaneConfig {
///     window: 64,
///     peer_window: 64,
///     bulk_slots: 8,
///     report_delay: Duration::from_micros(25),
///     heartbeat: Duration::from_millis(10),
///     timeout: Duration::from_millis(100),
///     proof_timeout: Duration::from_secs(1),
/// };
/// let now = Time::ZERO;
/// let mut a = Peering::new(config(Side::Connecting));
/// let mut b = Peering::new(config(Side::Accepting));
/// let path = PathId(0);
/// for (side, probes) in [(&mut a, true), (&mut b, false)] {
///     side.add_path(now, path, 1, 10_000_000_000, lane, probes);
///     (0..64).for_each(|_| side.packet_receive_posted(path));
/// }
///
/// let session = a.open().unwrap();
/// a.send(session, StreamId::MAIN, Token(7), 5).unwrap();
/// // The caller posts payloads and trailers; here, they arrive at once.
/// let mut carry = |from: &mut Peering, to: &mut Peering| {
///     while let Some(Transmit::Packet { payload, trailer, .. }) = from.poll_transmit(now, 64) {
///         let payload = if let Payload::Fragment { .. } = payload { b"hello".as_slice() } else { b"" };
///         let packet = [payload, &trailer.to_bytes(payload, Integrity::Crc32)].concat();
///         if let Some(placed) = to.on_packet(now, path, &packet).unwrap() {
///             assert_eq!((placed.len, placed.total, placed.is_first), (5, 5, true));
///         }
///         to.packet_receive_posted(path);
///     }
/// };
/// carry(&mut a, &mut b); // a question
/// carry(&mut b, &mut a); // its answer
/// carry(&mut a, &mut b); // the session and its message
/// assert_eq!(a.poll_event(), Some(Event::PathProven(path)));
/// assert_eq!(b.poll_event(), Some(Event::PathProven(path)));
/// assert_eq!(b.poll_event(), Some(Event::Opened(session)));
/// assert!(matches!(b.poll_event(), Some(Event::Message { .. })));
/// ```
#[derive(Debug)]
pub struct Peering {
    config: PeeringConfig,
    paths: Vec<Option<Path>>,
    /// By number of the path.
    counts: Vec<PathCounts>,
    /// How long it took until the peer's report on a packet was here, by number of the path.
    round_trips: Vec<Histogram>,
    /// How long a part of a long message took from its receive until it was here, by number of the path.
    part_times: Vec<Histogram>,
    /// Receives of paths that failed and may still be written to.
    stopping: Vec<(PathId, Slot)>,
    /// Paths that were lost and have not stopped.
    stopping_paths: Vec<PathId>,
    /// The sessions that connecting sides have opened, and those that accepting sides have.
    sessions: [Table; 2],
    incoming: Slab<Incoming>,
    /// Messages of the bulk lane that have memory, and parts that are not granted.
    ungranted: VecDeque<IncomingId>,
    /// Streams that expect messages of which parts may be granted.
    expected: VecDeque<(SessionId, StreamId)>,
    /// Streams with something to send, by priority.
    ready: [VecDeque<(SessionId, StreamId)>; 3],
    /// Messages of the bulk lane that have arrived, and of which the peer was sent no notice; each with the time of its arrival.
    arrivals: VecDeque<(Time, Address)>,
    /// Whether the first of them does not wait for grants any more.
    has_arrival_waited: bool,
    control_messages: ControlMessages,
    resets: VecDeque<(SessionId, u64)>,
    /// Streams of which this side reads no more.
    stops: VecDeque<(SessionId, StreamId)>,
    /// Resets of which the peer may not know.
    pending_resets: usize,
    /// Packets of messages that have begun, and that were not sent yet.
    begun: u32,
    /// Streams whose room is to be sent.
    rooms: VecDeque<(SessionId, StreamId)>,
    events: VecDeque<Event>,
    last_heard: Time,
    /// Whether the peer has reported a packet of this side.
    is_confirmed: bool,
    /// Whether a path was added or proven, or more than a report or a question was sent or has arrived, since it was asked.
    is_active: bool,
}

impl Peering {
    /// A peering without paths and sessions
    ///
    /// # Panics
    ///
    /// If the configuration is not usable.
    pub fn new(config: PeeringConfig) -> Self {
        assert!(config.is_usable(), "unusable peering: {config:?}");
        const { assert!(MAX_FRAGMENTS <= u32::BITS as usize) };
        Self {
            config,
            paths: Vec::new(),
            counts: Vec::new(),
            round_trips: Vec::new(),
            part_times: Vec::new(),
            stopping: Vec::new(),
            stopping_paths: Vec::new(),
            sessions: [Table::new(0), Table::new(1)],
            incoming: Slab::new(),
            ungranted: VecDeque::new(),
            expected: VecDeque::new(),
            ready: Default::default(),
            arrivals: VecDeque::new(),
            has_arrival_waited: false,
            control_messages: ControlMessages::default(),
            resets: VecDeque::new(),
            stops: VecDeque::new(),
            pending_resets: 0,
            begun: 0,
            rooms: VecDeque::new(),
            events: VecDeque::new(),
            last_heard: Time::ZERO,
            is_confirmed: false,
            is_active: false,
        }
    }

    /// Adds a path, both of whose lanes are connected
    ///
    /// One side `probes`: the peer has posted the receives of the eager lane already, and is asked for a report at once. No side
    /// sends anything else before a packet of the peer has arrived.
    ///
    /// `rate` is what it carries in bytes per second, to compare it with others.
    ///
    /// # Panics
    ///
    /// If there is a path of this number, or one that was lost and has not [stopped](Self::path_stopped), or if its configuration
    /// is not usable.
    pub fn add_path(
        &mut self,
        now: Time,
        path: PathId,
        epoch: u16,
        rate: u64,
        config: LaneConfig,
        probes: bool,
    ) {
        self.is_active = true;
        let index = path.0 as usize;
        if index >= self.paths.len() {
            self.paths.resize_with(index + 1, || None);
            self.counts.resize(index + 1, PathCounts::default());
            self.round_trips.resize(index + 1, Histogram::default());
            self.part_times.resize(index + 1, Histogram::default());
        }
        let place = &mut self.paths[index];
        let is_stopped = !self.stopping_paths.contains(&path);
        assert!(place.is_none() && is_stopped, "{path:?} is in use");
        *place = Some(Path::new(epoch, rate, config, now, probes));
        self.counts[index].made += 1;
        probe::reached(ProtocolState::PathAdded);
    }

    /// Gives up a path, because the device or the peer says that it failed; nothing if there is none
    ///
    /// Packets that it carried go by other paths at once. Parts of messages that were granted on its bulk lane do so after
    /// [`path_stopped`](Self::path_stopped): a lane that has lost a message may still write to wrong places.
    pub fn lose_path(&mut self, path: PathId, reason: PathLoss) {
        let Some(mut lost) = self.paths.get_mut(path.0 as usize).and_then(Option::take) else { return };
        self.counts[path.0 as usize].last_loss = Some(reason);
        probe::reached(match reason {
            PathLoss::BulkLost => ProtocolState::PathLostBulkLost,
            PathLoss::BulkStalled => ProtocolState::PathLostBulkStalled,
            PathLoss::Broken | PathLoss::Device => ProtocolState::PathLostDevice,
            PathLoss::Silent => ProtocolState::PathLostSilent,
        });
        self.stopping_paths.push(path);
        self.stopping.extend(lost.receiver.drain().map(|slot| (path, slot)));
        let lost_parts = self.stopping.iter().filter(|(other, slot)| *other == path && slot.len > 0);
        self.counts[path.0 as usize].bulk.lost += lost_parts.count() as u64;
        for content in lost.lane.drain().collect::<Vec<_>>() {
            self.on_fate(path, content, Fate::Lost);
        }
        if lost.is_proven {
            self.announce_all();
        }
        if self.proven_paths() == 0 {
            self.control_messages.give_up();
        }
        self.events.push_back(Event::PathLost { path, reason, was_proven: lost.is_proven });
    }

    /// Tells that the device does not work on a path any more that was lost
    pub fn path_stopped(&mut self, path: PathId) {
        self.stopping_paths.retain(|other| *other != path);
        let lost = self.stopping.extract_if(.., |(other, _)| *other == path).collect::<Vec<_>>();
        // Each goes to the front of its line, so the last one first.
        for (_, slot) in lost.into_iter().rev() {
            if let Some(id) = slot.id {
                self.grant_again(id, slot.offset, slot.len);
            }
        }
    }

    /// Opens a session; `None` if the peer takes no more
    ///
    /// The peer learns of it at once.
    pub fn open(&mut self) -> Option<SessionId> {
        let limits = [&self.config.local, &self.config.peer];
        let id = self.sessions[self.config.side.bit() as usize].open(limits)?;
        self.enqueue_room(id, StreamId::MAIN);
        probe::reached(ProtocolState::SessionOpened);
        Some(id)
    }

    /// Opens a stream of a session; `None` if the session is closed, or the peer takes no more streams
    ///
    /// The peer learns of it at once.
    pub fn open_stream(&mut self, session: SessionId, priority: Priority) -> Option<StreamId> {
        let (bit, limits) = (self.config.side.bit(), self.config.peer);
        let found = self.session(session).filter(|session| !session.is_closing)?;
        let stream = found.open_own_stream(bit, priority, &limits)?;
        self.enqueue_room(session, stream);
        probe::reached(ProtocolState::StreamOpened);
        Some(stream)
    }

    /// Lets a stream take turns with others of `priority` from its next packet on
    pub fn set_priority(&mut self, session: SessionId, stream: StreamId, priority: Priority) {
        let found = self.stream(session, stream);
        if let Some(found) = found {
            found.priority = priority;
        }
    }

    /// Queues a message of `len` bytes
    ///
    /// # Errors
    ///
    /// [`RefusedSend::Closed`] if the stream is over or finished, [`RefusedSend::TooLong`] beyond what the peer accepts.
    #[inline]
    pub fn send(
        &mut self,
        session: SessionId,
        stream: StreamId,
        token: Token,
        len: u64,
    ) -> Result<(), RefusedSend> {
        let max = self.config.peer.max_message;
        let found = self.session(session).filter(|session| !session.is_closing);
        let found = found.and_then(|session| session.streams.get_mut(&stream));
        let found = found.filter(|found| !found.outgoing.is_finished() && stream != StreamId::CONTROL);
        let found = found.ok_or(RefusedSend::Closed)?;
        if len > max {
            return Err(RefusedSend::TooLong { len, max });
        }
        found.outgoing.push(token, len);
        self.enqueue(session, stream);
        Ok(())
    }

    /// Ends what this side sends on a stream, behind the messages that are queued
    pub fn finish(&mut self, session: SessionId, stream: StreamId) {
        if stream != StreamId::CONTROL {
            self.finish_stream(session, stream);
        }
    }

    /// Tells the peer that this side reads no more of a stream, unless the peer has finished it
    ///
    /// What arrives nevertheless is handed on as before.
    pub fn stop(&mut self, session: SessionId, stream: StreamId) {
        let found = self.stream(session, stream);
        if found.is_some_and(|found| !found.incoming.is_finished()) {
            self.stops.push_back((session, stream));
        }
    }

    fn finish_stream(&mut self, session: SessionId, stream: StreamId) {
        let found = self.stream(session, stream);
        if let Some(found) = found {
            found.outgoing.finish();
            self.enqueue(session, stream);
        }
    }

    /// Ends everything that this side sends in a session, in good order
    ///
    /// [`Event::Closed`] follows when the peer has everything, and has closed, too.
    pub fn close(&mut self, session: SessionId) {
        let Some(found) = self.session(session) else { return };
        if !std::mem::replace(&mut found.is_closing, true) {
            probe::reached(ProtocolState::SessionClosing);
        }
        let streams = found.streams.keys().copied().filter(|id| *id != StreamId::CONTROL);
        for stream in streams.collect::<Vec<_>>() {
            self.finish(session, stream);
        }
        self.on_progress(session);
    }

    /// Ends a session at once; the peer learns `code`
    pub fn reset(&mut self, session: SessionId, code: u64) {
        if self.remove(session) {
            probe::reached(ProtocolState::SessionReset);
            self.pending_resets += 1;
            self.resets.push_back((session, code));
        }
    }

    /// Tells that memory for an announced message is there
    ///
    /// The message may have been [withdrawn](Event::Withdrawn) meanwhile.
    pub fn accept_bulk(&mut self, id: IncomingId) {
        self.ungranted.push_back(id);
    }

    /// Gives room for `packets` more packets of a stream to the peer, because the application is done with a [message](super::packets), or
    /// because there is memory
    ///
    /// Returns whether the peer should learn of it soon, by a packet of its own or with the next one of the stream.
    pub fn consume(&mut self, session: SessionId, stream: StreamId, packets: u32) -> bool {
        let found = self.stream(session, stream);
        let Some(found) = found else { return false };
        found.room.give(packets);
        let is_due = found.room.is_due() && !found.incoming.is_finished();
        if is_due {
            self.enqueue_room(session, stream);
        }
        is_due
    }

    /// The next thing that happened
    #[inline]
    pub fn poll_event(&mut self) -> Option<Event> {
        let event = self.events.pop_front()?;
        if let Event::Message { id, .. } | Event::Withdrawn(id) | Event::Unexpected(id) = event {
            self.incoming.try_remove(id.0 as usize);
        }
        Some(event)
    }

    /// Gives up paths that are silent, or whose bulk lane stands still, at `now`
    ///
    /// The caller has reported everything that completed until `now`.
    pub fn tick(&mut self, now: Time) {
        for index in 0..self.paths.len() {
            let Some(path) = &mut self.paths[index] else { continue };
            let reason = if now >= path.silent_at() {
                PathLoss::Silent
            } else if now >= path.bulk_deadline() {
                PathLoss::BulkStalled
            } else {
                continue;
            };
            self.lose_path(PathId(index as u32), reason);
        }
    }

    /// When to call [`tick`](Self::tick) and [`poll_transmit`](Self::poll_transmit) next, if nothing happens before
    pub fn next_timeout(&self) -> Time {
        let paths = self.paths.iter().flatten().map(Path::next_timeout).min();
        paths.unwrap_or(Time::MAX).min(self.arrival_due())
    }

    /// As [`next_timeout`](Self::next_timeout), while nothing can be sent
    pub fn next_loss(&self) -> Time {
        self.paths.iter().flatten().map(Path::lost_at).min().unwrap_or(Time::MAX)
    }

    #[inline]
    fn session(&mut self, id: SessionId) -> Option<&mut Session> {
        self.sessions[id.0 as usize & 1].get(id)
    }

    #[inline]
    fn stream(&mut self, session: SessionId, stream: StreamId) -> Option<&mut Stream> {
        self.session(session)?.streams.get_mut(&stream)
    }

    /// Notes that the send of a packet has completed
    #[inline]
    pub fn packet_sent(&mut self, path: PathId) {
        if let Some(Some(path)) = self.paths.get_mut(path.0 as usize) {
            path.unsent = path.unsent.saturating_sub(1);
        }
    }

    /// Notes that the send of an answer to a grant has completed, with its trailer
    pub fn bulk_sent(&mut self, path: PathId) {
        if let Some(Some(path)) = self.paths.get_mut(path.0 as usize) {
            path.sender.completed();
        }
    }

    /// Puts a stream in line, if it has something to send and is not in line
    #[inline]
    fn enqueue(&mut self, id: SessionId, stream: StreamId) {
        let found = self.stream(id, stream);
        let Some(found) = found.filter(|found| !found.is_queued) else { return };
        if !found.outgoing.has_next(Some(found.room.left())) {
            let is_blocked = found.outgoing.has_next(Some(u32::MAX));
            if is_blocked && !std::mem::replace(&mut found.is_blocked, true) {
                probe::reached(ProtocolState::RoomStarved);
            }
        } else {
            found.is_queued = true;
            let priority = found.priority;
            self.ready[priority as usize].push_back((id, stream));
        }
    }

    /// Sends the room of a stream by itself
    fn enqueue_room(&mut self, id: SessionId, stream: StreamId) {
        let found = self.stream(id, stream);
        if let Some(found) = found
            && !std::mem::replace(&mut found.room.is_queued, true)
        {
            self.rooms.push_back((id, stream));
        }
    }

    /// Notes that a part of a message must be granted again
    fn grant_again(&mut self, id: IncomingId, offset: u64, len: u32) {
        let Some(Incoming { address, progress: Progress::Bulk(parts), .. }) =
            self.incoming.get_mut(id.0 as usize)
        else {
            return;
        };
        parts.lose((offset, len));
        probe::reached(ProtocolState::BulkGrantedAgain);
        if !parts.is_announced {
            let Address { session, stream, .. } = *address;
            self.await_grants(SessionId(session), StreamId(stream));
        } else if !self.ungranted.contains(&id) {
            self.ungranted.push_front(id);
        }
    }
}

#[cfg(test)]
mod tests;
