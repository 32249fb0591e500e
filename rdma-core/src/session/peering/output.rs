//! What is sent next

use std::collections::VecDeque;

use super::super::bulk::Slot;
use super::super::lane::Due;
use super::super::outgoing::Next;
use super::super::rate::Rate;
use super::super::{
    Address, FRAGMENT, IncomingId, Inline, MAX_GRANTS, PacketKind, PacketTrailer, PathId, Payload, Priority,
    SessionId, StreamId, Transmit, packets,
};
use super::message::{Incoming, Progress};
use super::path::Path;
use super::unannounced::is_granted_whole;
use super::{Content, Part, Peering};
use crate::probe::{self, ProtocolState};
use crate::{FRAME, Time};

/// Packets that the device has to send, up to which those of [`Priority::Low`] join them
///
/// What comes later waits for them: 3.6 µs at 9.2 GB/s.
const LOW_QUEUE: u32 = 8;

/// No message is divided among paths into parts that are shorter, in bytes.
const SHORTEST_SHARE: u64 = 1 << 15;

const NONE: SessionId = SessionId(0);

impl Peering {
    /// What the caller must post next, if there is anything
    ///
    /// It counts as posted. A caller that cannot post it gives the path up. `memory` is of how many packets more the caller can keep
    /// the payload until their message is [delivered](super::super::Event::Delivered): a message begins when there is memory for all
    /// of it, so that those that have begun always end. Without memory, only packets are sent again that were sent before.
    pub fn poll_transmit(&mut self, now: Time, memory: u32) -> Option<Transmit> {
        if !self.wants_to_send() && now < self.next_timeout() {
            return None;
        }
        self.has_arrival_waited |= now >= self.arrival_due();
        self.next_bulk_receive(now)
            .or_else(|| self.next_control(now))
            .or_else(|| self.next_answer(now))
            .or_else(|| self.next_data(now, memory))
            .or_else(|| self.next_room(now))
            .or_else(|| self.next_due(now))
    }

    /// When time changes something, if nothing waits to be sent, nothing is due at `now`, and every event was handled: until then, neither
    /// [`tick`](Self::tick) nor [`poll_transmit`](Self::poll_transmit) does anything
    #[inline]
    pub fn rests_until(&self, now: Time) -> Option<Time> {
        let is_done = self.events.is_empty() && !self.wants_to_send();
        if is_done { Some(self.next_timeout()).filter(|next| now < *next) } else { None }
    }

    /// Whether something waits to be sent, which no time alone makes due
    #[inline]
    pub fn wants_to_send(&self) -> bool {
        let has_grants =
            |path: &Path| path.receiver.grants() > 0 || path.receiver.hurries() || path.sender.has_grants();
        self.ready.iter().any(|ready| !ready.is_empty())
            || self.has_arrival_waited
            || self.control_messages.is_due()
            || !self.resets.is_empty()
            || !self.stops.is_empty()
            || !self.rooms.is_empty()
            || !self.ungranted.is_empty()
            || (!self.expected.is_empty() && self.has_room_for_expected())
            || self.paths.iter().flatten().any(has_grants)
    }

    fn has_room_for_expected(&self) -> bool {
        self.paths.iter().flatten().any(|path| path.receiver.has_room_for_expected())
    }

    /// Looks at grants that wait for messages: a message begins, or there will be none
    pub(super) fn look_at_grants_again(&mut self) {
        self.paths.iter_mut().flatten().for_each(|path| path.sender.look_again());
    }

    /// The path on which something of that length arrives first, among those that are not full
    ///
    /// `bytes` is what arrives until then on a path. What was measured counts if one path is as fast as reported: if none is, the hosts are
    /// what is slow, and the paths have the proportions that their ports report.
    fn fastest(
        &self,
        now: Time,
        is_free: impl Fn(&Path) -> bool,
        rate: impl Fn(&Path) -> &Rate,
        bytes: impl Fn(&Path) -> u64,
    ) -> Option<usize> {
        let proven = || {
            let paths = self.paths.iter().enumerate();
            paths.filter_map(|(index, path)| Some((index, path.as_ref().filter(|path| path.is_proven)?)))
        };
        let counts_measured = proven().any(|(_, path)| rate(path).is_as_reported(now));
        let time = |path: &Path| rate(path).nanoseconds(now, bytes(path), counts_measured);
        proven().filter(|(_, path)| is_free(path)).min_by_key(|(_, path)| time(path)).map(|(index, _)| index)
    }

    fn fastest_lane(&self, now: Time, is_free: impl Fn(&Path) -> bool) -> Option<usize> {
        let bytes = |path: &Path| (u64::from(path.lane.unreported_sent()) + 1) * FRAME as u64;
        self.fastest(now, is_free, |path| &path.rate, bytes)
    }

    /// Packets of the protocol, which go before everything else
    fn next_control(&mut self, now: Time) -> Option<Transmit> {
        for index in 0..self.paths.len() {
            let Some(path) = &mut self.paths[index] else { continue };
            if path.receiver.grants() > 0 && path.lane.control_room() > 0 {
                let (mut payload, mut slots, mut count) = (Inline::new(), [0; MAX_GRANTS], 0);
                while count < slots.len()
                    && let Some(grant) = path.receiver.next_grant()
                {
                    payload.push(grant.to_bytes());
                    slots[count] = grant.slot;
                    count += 1;
                }
                if count > 0 {
                    return Some(self.bulk(now, index, payload, slots, count as u8));
                }
            }
        }
        let is_empty = !self.has_arrival_waited && self.resets.is_empty() && self.stops.is_empty();
        if is_empty && self.rooms.is_empty() && !self.control_messages.is_due() {
            return None;
        }
        let index = self.fastest_lane(now, |path| path.lane.control_room() > 0)?;
        if self.has_arrival_waited {
            return Some(self.bulk(now, index, Inline::new(), [0; MAX_GRANTS], 0));
        }
        if let Some((number, message)) = self.control_messages.next_to_send() {
            let mut payload = Inline::new();
            payload.push(message.to_bytes());
            let address = Address { message: number, ..Address::default() };
            probe::reached(ProtocolState::ControlOnPath);
            return Some(self.control(
                now,
                index,
                PacketKind::Control,
                payload,
                address,
                Part::Control { number },
            ));
        }
        if let Some((session, code)) = self.resets.pop_front() {
            let mut payload = Inline::new();
            payload.push(code.to_le_bytes());
            let address = Address { session: session.0, ..Address::default() };
            let part = Part::Reset { session, code };
            return Some(self.control(now, index, PacketKind::Reset, payload, address, part));
        }
        while let Some((session, stream)) = self.stops.pop_front() {
            if self.session(session).is_some_and(|session| session.streams.contains_key(&stream)) {
                let address = Address { session: session.0, stream: stream.0, message: 0 };
                let part = Part::Stop { session, stream };
                return Some(self.control(now, index, PacketKind::Stop, Inline::new(), address, part));
            }
        }
        // A packet of data that is next anyway carries the room of its stream.
        let next = self.ready.iter().find_map(VecDeque::front);
        if next.is_some() && next == self.rooms.front() { None } else { self.next_room(now) }
    }

    /// The room of a stream, by itself
    fn next_room(&mut self, now: Time) -> Option<Transmit> {
        while let Some(&(id, stream)) = self.rooms.front() {
            let found = self.stream(id, stream);
            if found.is_some_and(|found| found.room.is_queued) {
                let index = self.fastest_lane(now, |path| path.lane.control_room() > 0)?;
                let address = Address { session: id.0, stream: stream.0, message: 0 };
                return Some(self.control(
                    now,
                    index,
                    PacketKind::Room,
                    Inline::new(),
                    address,
                    Part::Nothing,
                ));
            }
            // The stream is over, or a packet of data has carried its room.
            self.rooms.pop_front();
        }
        None
    }

    fn control(
        &mut self,
        now: Time,
        path: usize,
        kind: PacketKind,
        payload: Inline,
        address: Address,
        part: Part,
    ) -> Transmit {
        let trailer = PacketTrailer { kind, address, ..PacketTrailer::default() };
        self.packet(now, path, Payload::Inline(payload), trailer, part)
    }

    /// Completes the trailer of a packet
    #[inline]
    pub(super) fn packet(
        &mut self,
        now: Time,
        index: usize,
        payload: Payload,
        mut trailer: PacketTrailer,
        part: Part,
    ) -> Transmit {
        let (id, stream) = (SessionId(trailer.address.session), StreamId(trailer.address.stream));
        let mut room_of = None;
        if id != NONE
            && let Some(found) = self.stream(id, stream)
        {
            let (room, is_news) = found.room.report();
            // Other packets do not open a stream that the peer does not know.
            let opens = trailer.kind.opens_streams();
            let was_queued = opens && std::mem::take(&mut found.room.is_queued);
            trailer.room = room;
            room_of = (is_news || trailer.kind == PacketKind::Room).then_some((id, stream));
            if was_queued && self.rooms.front() == Some(&(id, stream)) {
                self.rooms.pop_front();
            }
        }
        let path = self.paths[index].as_mut().expect("a path that was just chosen is there");
        trailer.epoch = path.epoch;
        self.counts[index].eager.sent += 1;
        self.is_active |= trailer.kind != PacketKind::Report;
        path.unsent += 1;
        path.lane.send(now, Content { part, room_of }, &mut trailer);
        Transmit::Packet { path: PathId(index as u32), payload, trailer }
    }

    /// The next receive for a part of a message, unless a packet of grants is full: they share it
    fn next_bulk_receive(&mut self, now: Time) -> Option<Transmit> {
        let is_full = |path: &Path| path.receiver.grants() >= MAX_GRANTS && path.lane.control_room() > 0;
        if self.paths.iter().flatten().any(is_full) {
            return None;
        }
        self.next_keep_alive(now)
            .or_else(|| self.next_receive(now))
            .or_else(|| self.next_expected_receive(now))
    }

    /// A receive for a trailer alone: on a bulk lane that has rested for long, or on one where the peer should answer its grants soon
    fn next_keep_alive(&mut self, now: Time) -> Option<Transmit> {
        let paths = self.paths.iter_mut().enumerate();
        let mut paths = paths.filter_map(|(index, path)| Some((index, path.as_mut()?)));
        let is_due = |path: &Path| now >= path.keep_alive_at() || path.receiver.hurries();
        let (index, path) = paths.find(|(_, path)| is_due(path))?;
        if path.receiver.is_empty() {
            probe::reached(ProtocolState::BulkKeptAlive);
        }
        let (path_id, address) = (PathId(index as u32), Address::default());
        path.receiver
            .push(now, Slot { id: None, address, offset: 0, len: 0, is_expected: false, since: now });
        Some(Transmit::BulkReceive { path: path_id, id: None, offset: 0, len: 0 })
    }

    /// A receive for the next part of an announced message
    fn next_receive(&mut self, now: Time) -> Option<Transmit> {
        loop {
            let id = *self.ungranted.front()?;
            if let Some(part) = self.next_part(id) {
                return self.grant_part(now, id, part, false);
            }
            self.ungranted.pop_front();
        }
    }

    /// A receive for the next part of an expected message
    fn next_expected_receive(&mut self, now: Time) -> Option<Transmit> {
        loop {
            let key = *self.expected.front()?;
            if let Some((id, part)) = self.next_expected_part(key) {
                return self.grant_part(now, id, part, true);
            }
            self.expected.pop_front();
        }
    }

    /// The offset and the length of the part of a message that is granted next
    pub(super) fn next_part(&self, id: IncomingId) -> Option<(u64, u32)> {
        match self.incoming.get(id.0 as usize)? {
            Incoming { progress: Progress::Bulk(parts), len, .. } => {
                parts.next(*len, self.longest_part(*len))
            }
            _ => None,
        }
    }

    /// The most bytes in a part of a message of `len` bytes: as many as one of the proven paths gets if each has the same share
    pub(super) fn longest_part(&self, len: u64) -> u32 {
        let share = len.div_ceil(self.proven_paths().max(1)).max(SHORTEST_SHARE);
        share.min(self.config.bulk_fragment.into()).next_multiple_of(FRAME as u64) as u32
    }

    pub(super) fn proven_paths(&self) -> u64 {
        self.paths.iter().flatten().filter(|path| path.is_proven).count() as u64
    }

    /// A receive for the next part of a message, on the path that brings it first
    fn grant_part(
        &mut self,
        now: Time,
        id: IncomingId,
        (offset, len): (u64, u32),
        is_expected: bool,
    ) -> Option<Transmit> {
        // If the fastest path has no room now, waiting for it is better than a slower one.
        let bytes = |path: &Path| path.receiver.outstanding(now) + u64::from(len);
        let index = self.fastest(now, |_| true, |path| path.receiver.rate(), bytes)?;
        let has_room = |path: &&mut Path| match is_expected {
            true => path.receiver.has_room_for_expected(),
            false => path.receiver.has_room(),
        };
        let path = self.paths[index].as_mut().filter(has_room)?;
        let Incoming { address, progress: Progress::Bulk(parts), .. } =
            self.incoming.get_mut(id.0 as usize)?
        else {
            return None;
        };
        let counts = &mut self.counts[index];
        counts.bulk_bytes_granted += u64::from(len);
        if parts.granted(len) {
            counts.bulk.retransmitted += 1;
            counts.bulk.retransmitted_bytes += u64::from(len);
        }
        let slot = Slot { id: Some(id), address: *address, offset, len, is_expected, since: now };
        path.receiver.push(now, slot);
        probe::reached(ProtocolState::BulkGranted);
        Some(Transmit::BulkReceive { path: PathId(index as u32), id: Some(id), offset, len })
    }

    /// Notes that the receive of the bulk lane which [`poll_transmit`](Self::poll_transmit) has just returned waits for room in its queue,
    /// because the device takes less than it reports
    ///
    /// The peer learns of the receive when it [was posted](Self::bulk_receive_posted). From now on the lane has fewer of them.
    pub fn bulk_receive_waits(&mut self, path: PathId) {
        if let Some(Some(path)) = self.paths.get_mut(path.0 as usize) {
            path.receiver.wait();
        }
    }

    /// Notes that the receive of the bulk lane that has [waited](Self::bulk_receive_waits) is posted
    pub fn bulk_receive_posted(&mut self, path: PathId) {
        if let Some(Some(path)) = self.paths.get_mut(path.0 as usize) {
            path.receiver.posted();
        }
    }

    /// The next packet of a message
    #[inline]
    fn next_data(&mut self, now: Time, memory: u32) -> Option<Transmit> {
        for priority in 0..self.ready.len() {
            let mut position = 0;
            while let Some(&(id, stream_id)) = self.ready[priority].get(position) {
                let is_free = |path: &Path| {
                    let may_queue = priority < Priority::Low as usize || path.unsent < LOW_QUEUE;
                    path.lane.data_room() > 0 && may_queue
                };
                let index = self.fastest_lane(now, is_free)?;
                let unreserved = memory.saturating_sub(self.begun);
                // Not by `stream`, which borrows the paths as well.
                let session = self.sessions[id.0 as usize & 1].get(id);
                let stream = session.and_then(|session| session.streams.get_mut(&stream_id));
                let Some(stream) = stream else {
                    self.ready[priority].remove(position);
                    continue;
                };
                let left = stream.room.left();
                if let Some((message, len)) = stream.outgoing.next_bulk(left) {
                    let address = Address { session: id.0, stream: stream_id.0, message };
                    if is_granted_whole(&self.paths, address, len) {
                        stream.outgoing.begin_unannounced();
                        stream.room.spend(packets(len));
                        probe::reached(ProtocolState::BulkUnannounced);
                        self.look_at_grants_again();
                        if let Some(answer) = self.next_answer(now) {
                            return Some(answer);
                        }
                        continue;
                    }
                    if stream.outgoing.waits_for_grants() {
                        stream.is_queued = false;
                        self.ready[priority].remove(position);
                        continue;
                    }
                }
                let next = stream.outgoing.next((memory > 0).then_some(left.min(unreserved)));
                if next.is_none() && stream.outgoing.has_next(Some(left)) {
                    // It stays in line until there is memory.
                    position += 1;
                    continue;
                }
                stream.is_queued = false;
                if let Some(next) = next {
                    stream.room.spend(next.charge);
                }
                self.ready[priority].remove(position);
                let Some(next) = next else {
                    // It waits for room.
                    self.enqueue(id, stream_id);
                    continue;
                };
                if !next.is_repeat {
                    // The rest of a message that begins is reserved, and used up by the packets that follow.
                    self.begun = (self.begun + next.charge).saturating_sub(1);
                }
                self.enqueue(id, stream_id);
                let address = Address { session: id.0, stream: stream_id.0, message: next.message };
                return Some(self.data(now, index, address, next));
            }
        }
        None
    }

    #[inline]
    fn data(&mut self, now: Time, index: usize, address: Address, next: Next) -> Transmit {
        let Next { fragment, kind, token, len, is_repeat, .. } = next;
        if fragment == 0 && !is_repeat {
            self.look_at_grants_again();
        }
        let mut trailer = PacketTrailer { kind, fragment, address, ..PacketTrailer::default() };
        let counts = &mut self.counts[index].eager;
        counts.retransmitted += u64::from(is_repeat);
        let payload = match kind {
            PacketKind::Fragment => {
                trailer.len = len as u32;
                let offset = u32::from(fragment) * FRAGMENT as u32;
                let len = (len as u32 - offset).min(FRAGMENT as u32);
                counts.bytes_sent += u64::from(len);
                if is_repeat {
                    counts.retransmitted_bytes += u64::from(len);
                }
                Payload::Fragment { token, offset, len }
            }
            PacketKind::Announce => {
                let mut payload = Inline::new();
                payload.push(len.to_le_bytes());
                probe::reached(ProtocolState::BulkAnnounced);
                Payload::Inline(payload)
            }
            _ => Payload::Inline(Inline::new()),
        };
        self.packet(now, index, payload, trailer, Part::Message { address, fragment })
    }

    /// A report or a question
    fn next_due(&mut self, now: Time) -> Option<Transmit> {
        for index in 0..self.paths.len() {
            let Some(path) = &mut self.paths[index] else { continue };
            let Some(due) = path.due(now) else { continue };
            let wants_report = due == Due::Question;
            if wants_report {
                path.lane.asked(now);
                path.receiver.asked(now);
            }
            let trailer = PacketTrailer { wants_report, ..PacketTrailer::default() };
            return Some(self.packet(now, index, Payload::Inline(Inline::new()), trailer, Part::Nothing));
        }
        None
    }
}
