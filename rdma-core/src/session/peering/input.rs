//! What arrives on the eager lane

use super::super::incoming::Entry;
use super::super::packets::Fate;
use super::super::{
    Address, Event, FRAGMENT, Grant, IncomingId, MAX_ARRIVALS, MAX_EAGER, MAX_GRANTS, PacketError,
    PacketKind, PacketTrailer, PathId, Placement, SessionId, StreamId, Violation, packets,
};
use super::Peering;
use super::message::{Incoming, Parts, Progress};
use crate::Time;
use crate::probe::{self, ProtocolState};

impl Peering {
    /// Notes that a receive of the eager lane was posted
    #[inline]
    pub fn packet_receive_posted(&mut self, path: PathId) {
        if let Some(Some(path)) = self.paths.get_mut(path.0 as usize) {
            path.lane.receive_posted();
        }
    }

    /// Takes in a packet of the eager lane; returns where its payload belongs, if the caller must keep it
    ///
    /// The payload is at the beginning of the packet. A packet that is damaged, or of an earlier path, counts as lost.
    ///
    /// # Errors
    ///
    /// A [`Violation`] if a correct peer does not send this: the caller ends the peering.
    #[inline]
    pub fn on_packet(
        &mut self,
        now: Time,
        id: PathId,
        packet: &[u8],
    ) -> Result<Option<Placement>, Violation> {
        let Some(Some(path)) = self.paths.get_mut(id.0 as usize) else { return Ok(None) };
        path.lane.receive_completed();
        let (payload, trailer) = match PacketTrailer::split(packet, self.config.integrity) {
            Err(PacketError::Checksum) => {
                self.counts[id.0 as usize].eager.damaged += 1;
                probe::reached(ProtocolState::PacketDamaged);
                return Ok(None);
            }
            split => split?,
        };
        if trailer.epoch != path.epoch {
            self.counts[id.0 as usize].eager.refused += 1;
            probe::reached(ProtocolState::PacketOfEarlierPath);
            return Ok(None);
        }
        let is_new = path.lane.receive(now, &trailer)?;
        if !std::mem::replace(&mut path.is_proven, true) {
            probe::reached(ProtocolState::PathProven);
            self.is_active = true;
            self.events.push_back(Event::PathProven(id));
            self.await_grants_of_all();
        }
        self.is_confirmed |= trailer.report.next > 0;
        self.last_heard = now;
        while let Some(Some(path)) = self.paths.get_mut(id.0 as usize)
            && let Some((content, fate, took, ahead)) = path.lane.pop(now, trailer.report)
        {
            if fate == Fate::Received {
                path.note_report(now, took, ahead);
                self.round_trips[id.0 as usize].record(took);
            }
            self.on_fate(id, content, fate);
        }
        if !is_new {
            self.counts[id.0 as usize].eager.refused += 1;
            probe::reached(ProtocolState::PacketRepeated);
            return Ok(None);
        }
        self.counts[id.0 as usize].eager.received += 1;
        self.is_active |= trailer.kind != PacketKind::Report;
        let (session, stream) = (SessionId(trailer.address.session), StreamId(trailer.address.stream));
        match trailer.kind {
            PacketKind::Fragment | PacketKind::Announce | PacketKind::Finish => {
                if !self.accept(session)? {
                    return Ok(None);
                }
                self.accept_streams(session, stream)?;
                self.on_room(session, stream, trailer.room);
                let placement = self.on_message(now, payload, &trailer)?;
                let len = placement.map_or(0, |placement| placement.len);
                self.counts[id.0 as usize].eager.bytes_received += u64::from(len);
                Ok(placement)
            }
            kind => {
                if kind.opens_streams() && self.accept(session)? {
                    self.accept_streams(session, stream)?;
                }
                self.on_room(session, stream, trailer.room);
                self.on_control(now, id, payload, &trailer)?;
                Ok(None)
            }
        }
    }

    pub(super) fn on_control(
        &mut self,
        now: Time,
        path: PathId,
        payload: &[u8],
        trailer: &PacketTrailer,
    ) -> Result<(), Violation> {
        let Address { session, stream, .. } = trailer.address;
        let violation = Violation::Payload(payload.len());
        match trailer.kind {
            PacketKind::Bulk => {
                let grants = usize::from(trailer.fragment) * Grant::LEN;
                let (grants, addresses) = payload.split_at_checked(grants).ok_or(violation)?;
                let (addresses, rest) = addresses.as_chunks();
                let has_too_many =
                    usize::from(trailer.fragment) > MAX_GRANTS || addresses.len() > MAX_ARRIVALS;
                if has_too_many || !rest.is_empty() {
                    return Err(violation);
                }
                addresses.iter().for_each(|address| self.on_arrived(Address::from_bytes(address)));
                return self.on_grants(now, path, grants.as_chunks().0);
            }
            PacketKind::Control => return self.on_control_message(trailer.address.message, payload),
            PacketKind::Reset => {
                let code = <[u8; 8]>::try_from(payload).map_err(|_| violation)?;
                return self.on_reset(SessionId(session), u64::from_le_bytes(code));
            }
            _ if !payload.is_empty() => return Err(violation),
            PacketKind::Stop => self.on_stop(SessionId(session), StreamId(stream)),
            _ => (),
        }
        Ok(())
    }

    /// Takes in grants of the bulk lane of a path
    fn on_grants(&mut self, now: Time, path: PathId, grants: &[[u8; Grant::LEN]]) -> Result<(), Violation> {
        for grant in grants.iter().map(Grant::from_bytes) {
            let Some(Some(path)) = self.paths.get_mut(path.0 as usize) else { return Ok(()) };
            if grant.len > self.config.bulk_fragment {
                return Err(Violation::Grant { len: grant.len, offset: grant.offset });
            }
            path.sender.push(now, grant)?;
            // Its message may have waited for it.
            self.enqueue(SessionId(grant.address.session), StreamId(grant.address.stream));
        }
        Ok(())
    }

    /// Sees to it that a session is there that a packet belongs to; false if it is over
    #[inline]
    fn accept(&mut self, id: SessionId) -> Result<bool, Violation> {
        if self.session(id).is_some() {
            return Ok(true);
        }
        if id.0 & 1 == self.config.side.bit() {
            // Of this side, and over.
            return Ok(false);
        }
        let is_new = self.open_by_peer(id)?;
        if is_new {
            self.events.push_back(Event::Opened(id));
            probe::reached(ProtocolState::SessionAccepted);
        }
        Ok(is_new)
    }

    /// Opens a session of the peer; false if it is over
    fn open_by_peer(&mut self, id: SessionId) -> Result<bool, Violation> {
        let table = &mut self.sessions[id.0 as usize & 1];
        // The peer knows of the end of the session before, whose report another path still carries.
        if let Some(before) = table.predecessor(id)
            && table.is_nearly_over(before)
        {
            self.conclude(before);
        }
        let table = &mut self.sessions[id.0 as usize & 1];
        let is_new = table.accept(id, [&self.config.local, &self.config.peer])?;
        if is_new && !self.resets.is_empty() {
            // Nor does the peer need to learn that the one before was reset.
            let before = self.resets.len();
            self.resets.retain(|(other, _)| !other.shares_place(id));
            self.pending_resets -= before - self.resets.len();
        }
        Ok(is_new)
    }

    /// Sees to it that the stream is there that a packet belongs to, unless it is over
    #[inline]
    fn accept_streams(&mut self, session: SessionId, stream: StreamId) -> Result<(), Violation> {
        let Self { config, sessions, events, .. } = self;
        let Some(found) = sessions[session.0 as usize & 1].get(session) else { return Ok(()) };
        found.accept_streams(stream, 1 - config.side.bit(), &config.local, |stream| {
            events.push_back(Event::StreamOpened { session, stream });
            probe::reached(ProtocolState::StreamAccepted);
        })
    }

    /// Takes in how much the peer takes of a stream
    #[inline]
    fn on_room(&mut self, id: SessionId, stream: StreamId, room: u32) {
        let found = self.stream(id, stream);
        if let Some(found) = found
            && found.room.learn(room)
            && std::mem::take(&mut found.is_blocked)
        {
            self.enqueue(id, stream);
        }
    }

    pub(super) fn on_message(
        &mut self,
        now: Time,
        payload: &[u8],
        trailer: &PacketTrailer,
    ) -> Result<Option<Placement>, Violation> {
        let announced = match trailer.kind {
            PacketKind::Announce => Some(self.announced_len(payload)?),
            _ => None,
        };
        let Self { config, sessions, incoming, .. } = self;
        let (id, stream_id) = (SessionId(trailer.address.session), StreamId(trailer.address.stream));
        let Some(session) = sessions[id.0 as usize & 1].get(id) else { return Ok(None) };
        let Some(stream) = session.streams.get_mut(&stream_id) else { return Ok(None) };
        if stream.incoming.is_expecting() {
            let len_of = |id: IncomingId| incoming.get(id.0 as usize).map(|message| message.len);
            let number = trailer.address.message;
            let is_unexpected = match trailer.kind {
                PacketKind::Finish => stream.incoming.expects_behind(number),
                _ => stream
                    .incoming
                    .expected_as(number)
                    .is_some_and(|id| announced.is_none() || announced != len_of(id)),
            };
            if is_unexpected {
                self.end_expectations(id, stream_id, Some(number));
                return self.on_message(now, payload, trailer);
            }
        }
        let entry = stream.incoming.entry(trailer.address.message, config.local.stream_share);
        let Some(entry) = entry.map_err(|()| Violation::Room(id.0))? else { return Ok(None) };
        match *entry {
            Entry::Complete(_) | Entry::Finish => return Ok(None),
            Entry::Partial(_) if trailer.kind != PacketKind::Fragment => return Ok(None),
            Entry::Expected(_) | Entry::Partial(_) | Entry::Unknown => (),
        }
        let (mut placement, mut charge, mut expected) = (None, 1, None);
        match trailer.kind {
            _ if stream_id == StreamId::CONTROL && trailer.kind != PacketKind::Finish => {
                return Err(Violation::Stream(stream_id.0));
            }
            PacketKind::Finish => {
                if !stream.incoming.set_end(trailer.address.message) {
                    return Err(Violation::Stream(stream_id.0));
                }
            }
            PacketKind::Announce => {
                let found = match *entry {
                    Entry::Expected(found) => {
                        let parts = incoming.get(found.0 as usize).and_then(Incoming::parts);
                        if parts.is_some_and(|parts| parts.ahead() > 0) {
                            stream.backoff.was_right();
                        }
                        *expected.insert(found)
                    }
                    _ => {
                        let progress = Progress::Bulk(Parts::announced());
                        let (address, len) = (trailer.address, announced.unwrap_or_default());
                        IncomingId(incoming.insert(Incoming { address, len, progress }) as u32)
                    }
                };
                *entry = Entry::Partial(found);
                stream.backoff.announced();
            }
            _ => {
                let Some(placed) = place(entry, incoming, payload, trailer, config.local.max_message)? else {
                    return Ok(None);
                };
                charge = if placed.is_first { packets(placed.total.into()) } else { 0 };
                placement = Some(placed);
            }
        }
        if expected.is_some() {
            stream.incoming.was_announced();
        }
        if !stream.room.charge(charge) {
            return Err(Violation::Room(id.0));
        }
        while let Some(known) = stream.incoming.newly_known() {
            if let Some(Incoming { len, progress: Progress::Bulk(parts), .. }) =
                self.incoming.get(known.0 as usize)
                && !parts.was_expected
            {
                let announced = Event::Announced { id: known, session: id, stream: stream_id, len: *len };
                self.events.push_back(announced);
            }
        }
        if stream.room.is_due() {
            self.enqueue_room(id, stream_id);
        }
        if let Some(expected) = expected {
            self.on_expected_announced(now, expected);
        }
        if announced.is_some() {
            self.await_grants(id, stream_id);
        }
        self.hand_on(id, stream_id);
        Ok(placement)
    }

    /// The length of a message that is announced
    fn announced_len(&self, payload: &[u8]) -> Result<u64, Violation> {
        let len = <[u8; 8]>::try_from(payload).map_err(|_| Violation::Payload(payload.len()))?;
        let len = u64::from_le_bytes(len);
        if len <= MAX_EAGER as u64 || len > self.config.local.max_message {
            return Err(Violation::AnnouncedLength(len));
        }
        Ok(len)
    }

    /// Hands on the messages of a stream that are complete, in order
    #[inline]
    pub(super) fn hand_on(&mut self, id: SessionId, stream_id: StreamId) {
        let Some(session) = self.sessions[id.0 as usize & 1].get(id) else { return };
        let Some(stream) = session.streams.get_mut(&stream_id) else { return };
        let mut is_finished = false;
        while let Some(entry) = stream.incoming.pop() {
            match entry {
                Entry::Complete(message) => {
                    self.events.push_back(Event::Message { session: id, stream: stream_id, id: message });
                }
                _ => is_finished = true,
            }
        }
        if is_finished {
            self.events.push_back(if stream_id == StreamId::CONTROL {
                probe::reached(ProtocolState::SessionClosedByPeer);
                Event::PeerClosed(id)
            } else {
                Event::Finished { session: id, stream: stream_id }
            });
            self.remove_stream_if_over(id, stream_id);
            self.on_progress(id);
        }
    }

    /// The peer has all of a message of the bulk lane
    fn on_arrived(&mut self, address: Address) {
        let (id, stream) = (SessionId(address.session), StreamId(address.stream));
        let found = self.stream(id, stream);
        if let Some(found) = found {
            let token = found.outgoing.arrived(address.message);
            // The next message may have waited for grants.
            self.enqueue(id, stream);
            self.on_delivered(id, stream, token);
        }
    }

    /// The peer reads no more of a stream
    fn on_stop(&mut self, session: SessionId, stream: StreamId) {
        let found = self.stream(session, stream);
        if found.is_some_and(|found| !found.outgoing.is_finished()) {
            self.events.push_back(Event::Stopped { session, stream });
            probe::reached(ProtocolState::StreamStopped);
        }
    }

    /// The peer has ended a session at once
    fn on_reset(&mut self, id: SessionId, code: u64) -> Result<(), Violation> {
        let is_known = self.session(id).is_some();
        if !is_known && id.0 & 1 != self.config.side.bit() {
            // Packets that other paths still carry must not open it.
            self.open_by_peer(id)?;
        }
        if is_known {
            // Before the ends of its messages, which it explains.
            self.events.push_back(Event::Reset { session: id, code });
            probe::reached(ProtocolState::SessionResetByPeer);
        }
        if self.remove(id) {
            self.release(id);
        }
        Ok(())
    }
}

/// Finds the place of a fragment in its message; `None` if it is there already
#[inline]
fn place(
    entry: &mut Entry,
    incoming: &mut slab::Slab<Incoming>,
    payload: &[u8],
    trailer: &PacketTrailer,
    max_message: u64,
) -> Result<Option<Placement>, Violation> {
    let PacketTrailer { fragment, len, address, .. } = *trailer;
    let violation = Violation::Fragment { fragment, len, found: payload.len() };
    let is_first = *entry == Entry::Unknown;
    let id = match *entry {
        Entry::Partial(id) => id,
        _ => {
            if len as usize > MAX_EAGER || u64::from(len) > max_message {
                return Err(violation);
            }
            let message = Incoming { address, len: len.into(), progress: Progress::Eager { received: 0 } };
            let id = IncomingId(incoming.insert(message) as u32);
            *entry = Entry::Partial(id);
            id
        }
    };
    let message = incoming.get_mut(id.0 as usize).expect("a message is known until it was handed on");
    let Progress::Eager { received } = &mut message.progress else { return Err(violation) };
    let offset = u32::from(fragment) * FRAGMENT as u32;
    let expected = (message.len as usize).saturating_sub(offset as usize).min(FRAGMENT);
    let count = packets(message.len);
    if message.len != u64::from(len) || u32::from(fragment) >= count || payload.len() != expected {
        return Err(violation);
    }
    if *received >> fragment & 1 == 1 {
        return Ok(None);
    }
    *received |= 1 << fragment;
    if received.count_ones() == count {
        *entry = Entry::Complete(id);
    }
    Ok(Some(Placement { id, offset, len: payload.len() as u32, total: len, is_first }))
}
