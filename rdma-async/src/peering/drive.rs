//! What the reactor does with a peering: completions, time and memory

use std::ops::Range;
use std::task::{Context, Poll};

use rdma_core::probe::{self, ProtocolState};
use rdma_core::session::{PathId, PathLoss, Placement};
use rdma_core::{Completion, Device, FRAME, Status, Time, frames};

use super::body::{Body, Effects};
use super::incoming::IncomingBuffers;
use super::memory_line::MemoryLine;
use super::posted::BulkReceive;
use super::request::Request;
use super::session_state::SessionState;
use super::state::{Announced, REFUSED, State, find_stream};
use super::stream_state::StreamKey;
use crate::error::SessionError;
use crate::pool::{Lease, Zone};

impl<D: Device> State<D> {
    /// Handles one completion of a path; ignores it if its key is of an earlier incarnation of the path
    ///
    /// Returns whether the reactor should [drive](Self::drive) the peering.
    pub(super) fn on_completion(
        &mut self,
        path: PathId,
        completion: &Completion,
        now: Time,
        effects: &mut Effects,
    ) -> bool {
        let (key, request) = Request::parse(completion.id);
        let lanes = self.lanes.get_mut(path.0 as usize).and_then(Option::as_mut);
        let Some(lanes) = lanes.filter(|lanes| lanes.key() == key) else { return false };
        if completion.status != Status::Success {
            self.lose_path(path, PathLoss::Device, now, effects);
            return true;
        }
        match request.map_or(Ok(0), |request| lanes.make_room(request)) {
            Ok(0) => (),
            Ok(count) => match request {
                Some(Request::Receive(_)) => (0..count).for_each(|_| self.core.packet_receive_posted(path)),
                Some(Request::BulkReceive) if !lanes.has_waiting_receives() => {
                    self.core.bulk_receive_posted(path);
                }
                _ => (),
            },
            Err(_) => {
                self.lose_path(path, PathLoss::Device, now, effects);
                return true;
            }
        }
        let len = completion.byte_len as usize;
        let is_known = match request {
            Some(Request::Packet(frame)) => {
                let is_awaited = self.frames.free() == 0 || self.core.wants_to_send();
                self.core.packet_sent(path);
                if self.frames.completed(frame, key) {
                    return is_awaited;
                }
                false
            }
            Some(Request::Receive(index)) => match lanes.take_receive(index) {
                Some(lease) => {
                    self.on_packet(path, index, lease, len, now, effects);
                    true
                }
                None => false,
            },
            Some(Request::BulkReceive) => match lanes.take_bulk_receive() {
                Some(receive) => {
                    self.on_bulk(path, receive, len, now, effects);
                    true
                }
                None => false,
            },
            Some(Request::BulkPayload(message)) => {
                let had_staging = lanes.has_staging();
                let is_first = lanes.take_bulk_send(message);
                if lanes.has_staging() && !had_staging {
                    self.core.resume_answers(path);
                }
                if is_first {
                    self.on_bulk_sent(message, effects);
                }
                is_first
            }
            Some(Request::BulkTrailer) => {
                let is_posted = lanes.take_trailer_send();
                if is_posted {
                    self.core.bulk_sent(path);
                }
                is_posted
            }
            None => false,
        };
        if !is_known {
            self.fail(&SessionError::UnknownCompletion(completion.id), effects);
        }
        self.handle_events(now, effects);
        true
    }

    fn on_packet(
        &mut self,
        path: PathId,
        index: u16,
        mut lease: Lease,
        len: usize,
        now: Time,
        effects: &mut Effects,
    ) {
        if len > FRAME {
            self.fail(&SessionError::Overlong { found: len as u32, max: FRAME as u32 }, effects);
            return effects.drop([Body::Lease(lease)]);
        }
        lease.set_received(len);
        let placement = match self.core.on_packet(now, path, &lease) {
            Ok(placement) => placement,
            Err(violation) => {
                self.fail(&violation.into(), effects);
                return effects.drop([Body::Lease(lease)]);
            }
        };
        if let Some(Placement { id, offset, len, total, is_first }) = placement {
            if len == total {
                lease.truncate(len as usize);
                // Instead of this frame, which the application gets, another one is posted, if there is one.
                self.incoming.insert(
                    id,
                    match self.pool.try_lease_short(1) {
                        Some(replacement) => Body::Lease(std::mem::replace(&mut lease, replacement)),
                        None => Body::Heap(Box::<[u8]>::from(&*lease).into()),
                    },
                );
            } else {
                if is_first {
                    self.incoming.insert(id, IncomingBuffers::assembly(&self.pool, total as usize));
                }
                self.incoming.write(id, offset as usize, &lease[..len as usize]);
            }
        }
        let lanes = self.lanes.get_mut(path.0 as usize).and_then(Option::as_mut);
        let Some(lanes) = lanes else { return effects.drop([Body::Lease(lease)]) };
        match lanes.post_receive(index, lease) {
            Ok(true) => self.core.packet_receive_posted(path),
            Ok(false) => (),
            Err(_) => self.lose_path(path, PathLoss::Device, now, effects),
        }
    }

    fn on_bulk(&mut self, path: PathId, receive: BulkReceive, len: usize, now: Time, effects: &mut Effects) {
        let Some(lanes) = self.lanes[path.0 as usize].as_mut() else { return };
        match receive {
            BulkReceive::Payload { buffer, offset, len: expected } => {
                if len != expected as usize {
                    effects.drop(self.incoming.completed(buffer));
                    return self.lose_path(path, PathLoss::BulkLost, now, effects);
                }
                lanes.payload = Some((buffer, offset, expected));
            }
            BulkReceive::Trailer { place } => {
                let payload = lanes.payload.take();
                let part = payload.map_or(&[][..], |(buffer, offset, len)| {
                    self.incoming.part(buffer, offset as usize, len as usize)
                });
                let result = self.core.on_bulk(now, path, part, lanes.trailer(place, len));
                let orphan = payload.and_then(|(buffer, ..)| self.incoming.completed(buffer));
                effects.drop(orphan);
                if let Err(violation) = result {
                    self.fail(&violation.into(), effects);
                }
            }
        }
    }

    /// Bytes of a message have left on a bulk lane
    pub(super) fn on_bulk_sent(&mut self, token: u32, effects: &mut Effects) {
        if let Some(message) = self.outgoing.get_mut(token as usize) {
            message.unfinished -= 1;
            if let Some(session) = self.sessions.get_mut(&message.stream.session) {
                session.counts.progress += 1;
            }
            self.finish_message(token, effects);
        }
    }

    /// Ends the operation of a message and removes the message, once its outcome is decided and nothing of it is unfinished
    pub(super) fn finish_message(&mut self, token: u32, effects: &mut Effects) {
        let Some(message) = self.outgoing.get_mut(token as usize) else { return };
        let outcome = message.outcome.clone().filter(|_| message.unfinished == 0);
        let Some(outcome) = outcome else { return };
        message.release(&mut self.frames);
        let (key, slot) = (message.stream, message.slot.take());
        self.outgoing.remove(token as usize);
        let stream = find_stream(&mut self.sessions, key);
        let is_held = stream.is_some_and(|stream| {
            if let Some(slot) = slot {
                stream.complete(slot, outcome, effects);
            }
            stream.is_held
        });
        if !is_held {
            self.remove_stream_if_unused(key, effects);
        }
    }

    /// Does what time and memory allow; returns when to call again, or `None` if the peering is over
    ///
    /// Everything that completed by `reported` was reported; `cx` is the reactor's.
    pub(super) fn drive(
        &mut self,
        reported: Time,
        now: Time,
        cx: &mut Context<'_>,
        effects: &mut Effects,
    ) -> Option<Time> {
        if let Some(at) = self.rest(now) {
            return Some(at);
        }
        self.core.tick(reported);
        self.handle_events(now, effects);
        let give_up = self.give_up_abandoned(now, effects);
        self.find_memory(cx, effects);
        self.armed = self.transmit(now, effects).min(give_up);
        if self.end.is_some() { None } else { Some(self.armed) }
    }

    /// When time makes something due for [`drive`](Self::drive), if there is nothing that it would do now
    #[inline]
    pub(super) fn rest(&mut self, now: Time) -> Option<Time> {
        let waits_for_time_alone = self.end.is_none()
            && self.frames.free() > 0
            && self.announced.is_empty()
            && self.memory.is_at_rest()
            && self.abandoned.is_empty();
        let at = if waits_for_time_alone { self.core.rests_until(now) } else { None }?;
        self.armed = at;
        Some(at)
    }

    /// Whether there was more than the upkeep of paths since the last call, or a message is on its way
    #[inline]
    pub(super) fn take_activity(&mut self) -> bool {
        self.core.take_activity() || !self.outgoing.is_empty()
    }

    /// Gives up sessions without a handle of which the peer takes nothing, although there is a path; returns when to look again
    fn give_up_abandoned(&mut self, now: Time, effects: &mut Effects) -> Time {
        if !self.lanes.iter().any(Option::is_some) {
            return Time::MAX;
        }
        let sessions = &self.sessions;
        let progress = |id| {
            let session = sessions.get(&id).filter(|session: &&SessionState| !session.is_over)?;
            Some(session.counts.progress)
        };
        let (stalled, next) = self.abandoned.take_stalled(now, progress);
        let error = SessionError::Abandoned(self.abandoned.timeout());
        for id in stalled {
            probe::reached(ProtocolState::SessionAbandoned);
            if let Some(session) = self.sessions.get_mut(&id) {
                session.fail(&error, effects);
            }
            self.core.reset(id, REFUSED);
            self.handle_events(now, effects);
            self.remove_if_unused(id, effects);
        }
        next
    }

    /// Finds memory for announced messages, in turn
    ///
    /// Those for which the application waits have precedence: for them, as much as the longest message takes is kept free, and as much again
    /// in which messages do not stay. Of a session that would then hold more than what stays free, messages wait beside the line, in the
    /// way of no other.
    fn find_memory(&mut self, cx: &mut Context<'_>, effects: &mut Effects) {
        if self.announced.is_empty() && !self.memory.waits() {
            self.memory.end_shortage();
            return self.memory.is_starved = false;
        }
        loop {
            let passed_over = self.try_find_memory(cx, effects);
            let is_starved = !self.announced.is_empty();
            if is_starved && !self.memory.is_starved {
                probe::reached(ProtocolState::MemoryStarved);
            }
            self.memory.is_starved = is_starved;
            let MemoryLine { freed, seen, .. } = &mut self.memory;
            if passed_over == PassedOver::None {
                self.pool.leave_freed(freed, effects);
                return self.memory.end_shortage();
            }
            match self.pool.poll_freed(*seen, freed, cx, effects) {
                Poll::Ready(count) => *seen = count,
                Poll::Pending if passed_over == PassedOver::Awaited => {
                    return self.memory.begin_shortage(&self.pool);
                }
                Poll::Pending => return self.memory.end_shortage(),
            }
        }
    }

    /// As [`find_memory`](Self::find_memory), once
    fn try_find_memory(&mut self, cx: &mut Context<'_>, effects: &mut Effects) -> PassedOver {
        let (mut passed_over, mut found) = (Vec::new(), PassedOver::None);
        let mut stands_in_line = false;
        let reserve = frames(self.longest_received()) as u32;
        let mut index = 0;
        while let Some(&Announced { id, stream: key, len }) = self.announced.get(index) {
            index += 1;
            // The application reads the earlier ones first.
            if passed_over.contains(&key) {
                continue;
            }
            let span = frames(len as usize) as u32;
            let mut stream = find_stream(&mut self.sessions, key);
            let (core, lanes) = (&self.core, &self.lanes);
            let offered = stream.as_mut().and_then(|stream| {
                stream.take_offer(len as usize, |lease| {
                    core.is_next(id) && lanes.iter().flatten().all(|lanes| lanes.receives_into(lease))
                })
            });
            let is_awaited = stream.as_ref().is_none_or(|stream| stream.is_awaited());
            let [unread, in_hand] = stream.as_ref().map_or([0; 2], |stream| stream.long_frames());
            let free = self.pool.free_long();
            let is_fair = |held| is_fair(held, span, free);
            // A peer that announces messages and does not send them must not hold the memory of others.
            let held = self.incoming.announced_frames();
            let leaves_shares = free >= span.saturating_add(self.other_shares);
            let is_peer_fair = held + span <= reserve || (leaves_shares && is_fair(held));
            let is_offered = offered.is_some();
            let lease = if is_offered {
                offered
            } else if stands_in_line {
                None
            } else if is_awaited && is_peer_fair && is_fair(in_hand) {
                let leased = self.pool.poll_lease(Zone::Bulk, span, &mut self.memory.frames, cx, effects);
                stands_in_line = leased.is_pending();
                match leased {
                    Poll::Ready(lease) => Some(lease),
                    Poll::Pending => None,
                }
            } else if is_peer_fair && is_fair(unread + in_hand) {
                self.pool.try_lease_long(span, reserve)
            } else {
                None
            };
            let Some(mut lease) = lease else {
                if let Some(stream) = stream {
                    stream.is_passed_over = true;
                }
                passed_over.push(key);
                found = found.max(if is_awaited { PassedOver::Awaited } else { PassedOver::Unawaited });
                continue;
            };
            index -= 1;
            self.announced.remove(index);
            lease.set_received(len as usize);
            if let Some(stream) = stream {
                stream.receives();
                if !is_offered {
                    lease.charge_to(stream.unread());
                }
            }
            if is_offered {
                self.incoming.insert(id, Body::Lease(lease));
            } else {
                self.incoming.insert_announced(id, lease);
            }
            self.core.accept_bulk(id);
        }
        if !stands_in_line {
            // Others stand behind in line.
            self.pool.leave(Zone::Bulk, &mut self.memory.frames, effects);
        }
        found
    }

    /// Gives the memory for expected messages back; returns whether the reactor should drive the peering
    pub(super) fn expect_nothing(&mut self, now: Time, effects: &mut Effects) -> bool {
        let expects = self.incoming.expected_frames() > 0;
        if expects {
            self.core.expect_nothing_at_all();
            self.handle_events(now, effects);
        }
        expects
    }

    /// Finds memory for long messages of a stream that are not announced, at `places` among those that are read next; for how many it has
    ///
    /// It takes none that is kept free for messages that are asked for, none when announced messages of the peering wait, none during a
    /// shortage, and for more than as much as the longest message takes none of the shares of other peers.
    pub(crate) fn expect(
        &mut self,
        key: StreamKey,
        len: usize,
        places: Range<usize>,
        now: Time,
        effects: &mut Effects,
    ) -> usize {
        let (reserve, span) = (frames(self.longest_received()) as u32, frames(len) as u32);
        let mut expected = 0;
        self.core.expect_again(key.session, key.stream);
        while self.end.is_none() && self.announced.is_empty() && !self.pool.is_short() {
            let Some(stream) = find_stream(&mut self.sessions, key) else { break };
            let unread = stream.inbox.len();
            let place = |end: usize| u32::try_from(end.saturating_sub(unread)).unwrap_or(u32::MAX);
            let places = place(places.start)..place(places.end);
            if !self.core.can_expect(key.session, key.stream, len as u64, places.clone()) {
                break;
            }
            let free = self.pool.free_long();
            let leaves_shares = free >= span.saturating_add(self.other_shares);
            let of_peer = self.incoming.announced_frames() + self.incoming.expected_frames();
            let is_peer_fair = of_peer + span <= reserve || leaves_shares;
            let of_session = stream.long_frames().into_iter().sum();
            if !is_peer_fair || !is_fair(of_session, span, free) {
                break;
            }
            let Some(mut lease) = self.pool.try_lease_long(span, reserve) else { break };
            lease.set_received(len);
            lease.charge_to(stream.unread());
            let id = self.core.expect(key.session, key.stream, len as u64, places);
            let id = id.expect("the protocol can expect the message");
            // It does not count as announced: the peer gets memory for what it announces whether or not it sends this.
            self.incoming.insert_expected(id, lease);
            expected += 1;
        }
        if self.core.wants_to_send() {
            self.pump(now, effects);
        }
        expected
    }
}

/// Which announced messages found no memory
#[derive(Clone, Copy, Eq, Ord, PartialEq, PartialOrd)]
enum PassedOver {
    None,
    /// Some for which no task waits
    Unawaited,
    /// Some for which a task waits
    Awaited,
}

/// Whether a session may hold `span` frames more beside those that it has, when so many are free
fn is_fair(held: u32, span: u32, free: u32) -> bool {
    held == 0 || held + 2 * span <= free
}
