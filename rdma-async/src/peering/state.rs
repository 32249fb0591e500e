//! The state of a peering and its steps; the caller holds its lock and passes the time

use std::collections::{HashMap, VecDeque};
use std::task::{Context, Poll, Waker};

use rdma_core::session::{
    BulkTrailer, Event, FRAGMENT, Grant, IncomingId, Integrity, LaneConfig, MAX_EAGER, PacketTrailer, PathId,
    PathLoss, Payload, Peering, Placement, RefusedSend, SessionId, StreamId, Token, Transmit, packets,
};
use rdma_core::{Completion, Device, FRAME, Status, Time, frames};
use slab::Slab;

use super::frames::TransmitFrames;
use super::incoming::IncomingBuffers;
use super::lanes::{BulkReceive, Lanes, MAX_TOKENS, Request};
use super::outgoing::OutgoingMessage;
use super::session_state::SessionState;
use crate::pool::{Lease, Pool, Zone};
use crate::session::{Body, Effects, SendError, SendFailed, SessionError};
use crate::wait_queue::Waiter;

/// The protocol, its paths and its tables
///
/// Not synchronized: [`PeeringShared`](super::shared::PeeringShared) holds the lock, and runs the effects after unlocking.
pub(crate) struct State<D: Device> {
    pool: Pool,
    core: Peering,
    integrity: Integrity,
    lanes: Vec<Option<Lanes<D>>>,
    /// The incarnation of each path.
    epochs: Vec<u16>,
    frames: TransmitFrames,
    outgoing: Slab<OutgoingMessage>,
    incoming: IncomingBuffers,
    /// Announced messages that wait for memory.
    announced: VecDeque<(IncomingId, u64)>,
    memory: Waiter,
    /// Sent from where a message is no longer needed.
    scratch: Lease,
    sessions: HashMap<SessionId, SessionState>,
    had_session: bool,
    max_in_flight: u32,
    /// Sessions that the peer has opened, for the listener.
    opened: Vec<SessionId>,
    /// Paths that failed and were stopped, for the task that makes new ones.
    lost_paths: Vec<LostPath>,
    /// When the reactor looks at this peering at the latest.
    armed: Time,
    end: Option<SessionError>,
}

/// A path that failed
pub(crate) struct LostPath {
    pub(crate) path: PathId,
    pub(crate) epoch: u16,
    /// Its name in requests.
    pub(crate) key: u32,
    pub(crate) reason: PathLoss,
}

/// What a peering is made of
pub(crate) struct Parts {
    pub(crate) pool: Pool,
    pub(crate) core: Peering,
    pub(crate) integrity: Integrity,
    pub(crate) scratch: Lease,
    pub(crate) transmit: Vec<Lease>,
    pub(crate) max_in_flight: u32,
}

/// Frames that are kept free for packets of the protocol.
const PROTOCOL_FRAMES: usize = 16;

impl<D: Device> State<D> {
    pub(crate) fn new(parts: Parts) -> Self {
        Self {
            pool: parts.pool,
            core: parts.core,
            integrity: parts.integrity,
            lanes: Vec::new(),
            epochs: Vec::new(),
            frames: TransmitFrames::new(parts.transmit.into_iter()),
            outgoing: Slab::new(),
            incoming: IncomingBuffers::default(),
            announced: VecDeque::new(),
            memory: Waiter::default(),
            scratch: parts.scratch,
            sessions: HashMap::new(),
            had_session: false,
            max_in_flight: parts.max_in_flight,
            opened: Vec::new(),
            lost_paths: Vec::new(),
            armed: Time::ZERO,
            end: None,
        }
    }

    pub(crate) fn session(&mut self, id: SessionId) -> Option<&mut SessionState> {
        self.sessions.get_mut(&id)
    }

    /// Whether there is something for the task that accepts sessions and makes paths
    pub(super) fn has_news(&self) -> bool {
        !self.opened.is_empty() || !self.lost_paths.is_empty() || self.end.is_some()
    }

    /// Sessions that the peer opened and paths that failed since the last call
    pub(crate) fn take_news(&mut self) -> (Vec<SessionId>, Vec<LostPath>) {
        (std::mem::take(&mut self.opened), std::mem::take(&mut self.lost_paths))
    }

    /// Whether the last session is over, and none will be opened
    pub(crate) fn is_idle(&self, is_closed: bool) -> bool {
        (self.had_session || is_closed) && self.sessions.is_empty() && self.core.session_count() == 0
    }

    /// When the latest packet arrived
    pub(crate) fn last_heard(&self) -> Time {
        self.core.last_heard()
    }

    /// Ends a session that the peer opened and that no task accepts any more
    pub(crate) fn refuse(&mut self, id: SessionId, now: Time, effects: &mut Effects) {
        if let Some(session) = self.sessions.get_mut(&id) {
            session.is_held = false;
        }
        self.reset(id, 0, now, effects);
        self.remove_if_unused(id);
    }

    pub(crate) fn error(&self) -> Option<&SessionError> {
        self.end.as_ref()
    }
}

// What the application does.
impl<D: Device> State<D> {
    /// Opens a session; `None` if the peer takes no more, or the peering is over
    pub(crate) fn open(&mut self, now: Time, effects: &mut Effects) -> Option<SessionId> {
        let id = self.core.open().filter(|_| self.end.is_none())?;
        self.had_session = true;
        self.sessions.insert(id, SessionState::new(self.max_in_flight));
        self.pump(now, effects);
        Some(id)
    }

    /// Queues a message, when there is a slot for it and this task is first in line; returns its slot
    pub(super) fn poll_send(
        &mut self,
        id: SessionId,
        message: &mut Option<Lease>,
        awaits_delivery: bool,
        waiter: &mut Waiter,
        cx: &Context<'_>,
        now: Time,
        effects: &mut Effects,
    ) -> Poll<Result<u32, SendFailed>> {
        let session = self.sessions.get_mut(&id).expect("a session with a handle is there");
        session.ops.poll_claim(waiter, cx, effects).map(|claimed| {
            let message = message.take().expect("a send that waits has its lease");
            self.enqueue(id, claimed, message, awaits_delivery, Some(cx.waker()), now, effects)
        })
    }

    /// Queues a message whose outcome no future will collect, if there is a slot for it and no task waits
    pub(super) fn try_send(
        &mut self,
        id: SessionId,
        message: Lease,
        now: Time,
        effects: &mut Effects,
    ) -> Result<(), SendFailed> {
        let session = self.sessions.get_mut(&id).expect("a session with a handle is there");
        let claimed = session.ops.try_claim().unwrap_or(Err(SendError::WouldBlock));
        self.enqueue(id, claimed, message, false, None, now, effects).map(drop)
    }

    #[expect(clippy::too_many_arguments, reason = "the parts of a message and of its operation")]
    #[inline]
    fn enqueue(
        &mut self,
        id: SessionId,
        claimed: Result<u32, SendError>,
        message: Lease,
        awaits_delivery: bool,
        waker: Option<&Waker>,
        now: Time,
        effects: &mut Effects,
    ) -> Result<u32, SendFailed> {
        let slot = match claimed {
            Ok(slot) => slot,
            Err(error) => return Err(SendFailed { error, lease: Some(message) }),
        };
        let len = message.len() as u64;
        let token = self.outgoing.vacant_key() as u32;
        let session = self.sessions.get_mut(&id).expect("a session with a handle is there");
        let queued = if token >= MAX_TOKENS {
            Err(SendError::WouldBlock)
        } else {
            self.core.send(id, StreamId::MAIN, Token(token), len).map_err(|refused| match refused {
                RefusedSend::TooLong { len, max } => {
                    SendError::TooLong { len: len as usize, max: max as usize }
                }
                _ => session.send_error(),
            })
        };
        if let Err(error) = queued {
            session.ops.release(slot, effects);
            return Err(SendFailed { error, lease: Some(message) });
        }
        let packets = if len > MAX_EAGER as u64 { 0 } else { packets(len) };
        self.outgoing.insert(OutgoingMessage::new(id, slot, awaits_delivery, packets));
        session.ops.put(slot, Body::Lease(message), waker);
        self.pump(now, effects);
        Ok(slot)
    }

    /// Ends what this side sends, in good order
    pub(crate) fn close(&mut self, id: SessionId, now: Time, effects: &mut Effects) {
        if let Some(session) = self.sessions.get_mut(&id) {
            session.refuse(SendError::Closed, effects);
            self.core.close(id);
            self.pump(now, effects);
        }
    }

    /// Ends a session at once; the peer learns `code`
    pub(crate) fn reset(&mut self, id: SessionId, code: u64, now: Time, effects: &mut Effects) {
        if let Some(session) = self.sessions.get_mut(&id)
            && session.end.value().is_none()
        {
            session.fail(&SessionError::Aborted, effects);
            self.core.reset(id, code);
            self.pump(now, effects);
        }
    }

    /// The last handle was dropped: queued messages are still sent, messages that arrive are dropped
    pub(crate) fn abandon(&mut self, id: SessionId, now: Time, effects: &mut Effects) {
        let Some(session) = self.sessions.get_mut(&id) else { return };
        session.is_held = false;
        self.discard(id, effects);
        self.close(id, now, effects);
        self.remove_if_unused(id);
    }

    /// Gives the room of a message back that the application has read
    pub(crate) fn recycle(&mut self, id: SessionId, len: usize, now: Time, effects: &mut Effects) {
        self.core.consume(id, packets(len as u64));
        self.pump(now, effects);
    }

    /// Drops what has arrived, if the application has dropped its handles
    fn discard(&mut self, id: SessionId, effects: &mut Effects) {
        while let Some(session) = self.sessions.get_mut(&id).filter(|session| !session.is_held)
            && let Some(body) = session.inbox.discard(effects)
        {
            self.core.consume(id, packets(body.len() as u64));
            effects.drop([body]);
        }
    }

    fn remove_if_unused(&mut self, id: SessionId) {
        if self.sessions.get(&id).is_some_and(SessionState::is_unused) {
            self.sessions.remove(&id);
        }
    }
}

// What the reactor does.
impl<D: Device> State<D> {
    /// Takes in completions of paths of this peering, given by their numbers
    pub(super) fn on_completion(
        &mut self,
        path: PathId,
        completion: &Completion,
        now: Time,
        effects: &mut Effects,
    ) {
        let (key, request) = Request::parse(completion.id);
        let lanes = self.lanes.get_mut(path.0 as usize).and_then(Option::as_mut);
        let Some(lanes) = lanes.filter(|lanes| lanes.key() == key) else { return };
        if completion.status != Status::Success {
            return self.lose_path(path, PathLoss::Device, now, effects);
        }
        let len = completion.byte_len as usize;
        let is_known = match request {
            Some(Request::Packet(frame)) => self.frames.completed(frame, key),
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
                let is_first = lanes.take_bulk_send() == Some(message);
                if is_first {
                    self.on_bulk_sent(message, effects);
                }
                is_first
            }
            Some(Request::BulkTrailer) => {
                self.core.bulk_sent(path);
                true
            }
            None => false,
        };
        if !is_known {
            self.fail(&SessionError::UnknownCompletion(completion.id), effects);
        }
        self.handle_events(now, effects);
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
            let is_whole = len == total;
            // Instead of this frame, which the application gets, another one is posted.
            let replacement = if is_whole { self.pool.try_lease(Zone::Eager, 1) } else { None };
            if let Some(replacement) = replacement {
                lease.truncate(len as usize);
                self.incoming.insert(id, Body::Lease(std::mem::replace(&mut lease, replacement)));
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
            Ok(()) => self.core.packet_receive_posted(path),
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
                self.core.on_bulk(now, path, part, lanes.trailer(place, len));
                let orphan = payload.and_then(|(buffer, ..)| self.incoming.completed(buffer));
                effects.drop(orphan);
            }
        }
    }

    /// Bytes of a message have left on a bulk lane
    fn on_bulk_sent(&mut self, token: u32, effects: &mut Effects) {
        if let Some(message) = self.outgoing.get_mut(token as usize) {
            message.unfinished -= 1;
            self.finish_message(token, effects);
        }
    }

    /// Ends the operation of a message, or forgets the message, when nothing needs it any more
    fn finish_message(&mut self, token: u32, effects: &mut Effects) {
        let Some(message) = self.outgoing.get_mut(token as usize) else { return };
        let is_free = message.unfinished == 0 && message.is_decided;
        if !is_free {
            return;
        }
        message.release(&mut self.frames);
        let (id, slot) = (message.session, message.slot.take());
        self.outgoing.remove(token as usize);
        if let (Some(session), Some(slot)) = (self.sessions.get_mut(&id), slot) {
            session.ops.complete(slot, Ok(()), effects);
        }
        self.remove_if_unused(id);
    }

    /// Does what time and memory allow; returns when to call again, or `None` if the peering is over
    ///
    /// `is_drained` says that everything that completed by `now` was reported; `cx` is the reactor's.
    pub(super) fn drive(
        &mut self,
        is_drained: bool,
        now: Time,
        cx: &mut Context<'_>,
        effects: &mut Effects,
    ) -> Option<Time> {
        if is_drained {
            self.core.tick(now);
            self.handle_events(now, effects);
        }
        self.find_memory(cx, effects);
        self.pump(now, effects);
        self.armed = self.core.next_timeout();
        if self.end.is_some() { None } else { Some(self.armed) }
    }

    /// Finds memory for announced messages, in turn
    fn find_memory(&mut self, cx: &mut Context<'_>, effects: &mut Effects) {
        while let Some(&(id, len)) = self.announced.front() {
            let span = frames(len as usize) as u32;
            let lease = self.pool.poll_lease(Zone::Bulk, span, &mut self.memory, cx, effects);
            let Poll::Ready(mut lease) = lease else { return };
            self.announced.pop_front();
            lease.set_received(len as usize);
            self.incoming.insert(id, Body::Lease(lease));
            self.core.accept_bulk(id);
        }
    }

    /// Posts everything that the protocol wants
    pub(super) fn pump(&mut self, now: Time, effects: &mut Effects) {
        // Without a frame, nothing is polled: a packet that is not sent would still take its number.
        while self.frames.free() > 0
            && let Some(transmit) = self.core.poll_transmit(now, self.frames.free() > PROTOCOL_FRAMES)
        {
            let (path, posted) = match transmit {
                Transmit::Packet { path, payload, trailer } => {
                    (path, self.post_packet(path, &payload, &trailer, effects))
                }
                Transmit::BulkReceive { path, id, offset, len } => {
                    (path, self.post_bulk_receive(path, id, offset, len))
                }
                Transmit::BulkSend { path, token, trailer } => (path, self.post_bulk(path, token, &trailer)),
            };
            if posted.is_err() {
                self.lose_path(path, PathLoss::Device, now, effects);
            }
        }
        self.handle_events(now, effects);
        if self.core.next_timeout() < self.armed {
            self.armed = Time::ZERO;
            effects.wake_reactor();
        }
    }

    fn post_packet(
        &mut self,
        path: PathId,
        payload: &Payload,
        trailer: &PacketTrailer,
        effects: &mut Effects,
    ) -> Result<(), rdma_core::Error> {
        let frame = match *payload {
            Payload::Inline(ref inline) => self.frames.take(inline.as_slice(), false),
            Payload::Fragment { token, offset, len } => {
                self.fragment_frame(token.0, offset as usize, len as usize, effects)
            }
        };
        let lanes = self.lanes.get_mut(path.0 as usize).and_then(Option::as_mut);
        // A packet that finds no frame is lost before it is sent: the next report will say so.
        let (Some(frame), Some(lanes)) = (frame, lanes) else { return Ok(()) };
        let trailer = trailer.to_bytes(self.frames.payload(frame), self.integrity);
        let (lease, len) = self.frames.post(frame, &trailer, lanes.key());
        let posted = lanes.send_packet(frame, lease, len);
        if posted.is_err() {
            self.frames.completed(frame, lanes.key());
        }
        posted
    }

    /// The frame of a fragment, which holds its payload
    fn fragment_frame(
        &mut self,
        token: u32,
        offset: usize,
        len: usize,
        effects: &mut Effects,
    ) -> Option<u16> {
        let number = offset / FRAGMENT;
        let message = self.outgoing.get_mut(token as usize)?;
        if let Some(frame) = message.frame(number) {
            let writable = self.frames.writable(frame)?;
            message.set_frame(number, writable);
            return Some(writable);
        }
        let session = self.sessions.get_mut(&message.session)?;
        let slot = message.slot.expect("a message that was not sent whole has its bytes");
        let body = session.ops.buffer(slot).expect("a message that was queued is in its slot");
        let frame = self.frames.take(&body[offset..][..len], true)?;
        message.set_frame(number, frame);
        message.unfinished -= 1;
        if message.unfinished == 0 && !message.awaits_delivery {
            message.slot = None;
            session.ops.complete(slot, Ok(()), effects);
        }
        Some(frame)
    }

    fn post_bulk_receive(
        &mut self,
        path: PathId,
        id: Option<IncomingId>,
        offset: u64,
        len: u32,
    ) -> Result<(), rdma_core::Error> {
        let Some(lanes) = self.lanes.get_mut(path.0 as usize).and_then(Option::as_mut) else { return Ok(()) };
        if let Some((key, lease)) = id.and_then(|id| self.incoming.post(id)) {
            let posted = lanes.post_bulk_receive(key, lease, offset, len);
            if posted.is_err() {
                // The message is not complete: it is no orphan.
                let _none = self.incoming.completed(key);
                return posted;
            }
        }
        lanes.post_trailer_receive()
    }

    fn post_bulk(
        &mut self,
        path: PathId,
        token: Option<Token>,
        trailer: &BulkTrailer,
    ) -> Result<(), rdma_core::Error> {
        let Some(lanes) = self.lanes.get_mut(path.0 as usize).and_then(Option::as_mut) else { return Ok(()) };
        let Grant { offset, len, .. } = trailer.grant;
        let (offset, len) = (offset as usize, len as usize);
        let message = token.and_then(|token| self.outgoing.get_mut(token.0 as usize).zip(Some(token.0)));
        let bytes = match message {
            Some((message, token)) => {
                let session = self.sessions.get_mut(&message.session).expect("it has messages under way");
                let slot = message.slot.expect("a message of the bulk lane keeps its bytes");
                let body = session.ops.buffer(slot).expect("a message that was queued is in its slot");
                let Body::Lease(lease) = body else { unreachable!("messages are sent from leases") };
                lanes.send_bulk(token, lease, offset, len)?;
                message.unfinished += 1;
                lease.part(offset, len)
            }
            None if len > 0 => {
                let len = len.min(self.scratch.capacity());
                lanes.send_bulk(MAX_TOKENS - 1, &self.scratch, 0, len)?;
                self.scratch.part(0, len)
            }
            None => &[],
        };
        lanes.send_trailer(&trailer.to_bytes(bytes, self.integrity))
    }

    fn handle_events(&mut self, now: Time, effects: &mut Effects) {
        while let Some(event) = self.core.poll_event() {
            match event {
                Event::Opened(id) => {
                    self.had_session = true;
                    self.sessions.insert(id, SessionState::new(self.max_in_flight));
                    self.opened.push(id);
                }
                Event::Message { session: id, id: incoming, .. } => {
                    let body = self.incoming.take(incoming);
                    if let (Some(body), Some(session)) = (body, self.sessions.get_mut(&id)) {
                        session.inbox.push(body, effects);
                        self.discard(id, effects);
                    }
                }
                Event::Finished { session: id, .. } => {
                    if let Some(session) = self.sessions.get_mut(&id) {
                        session.inbox.finish(effects);
                    }
                }
                Event::Announced { id, len, .. } => {
                    self.announced.push_back((id, len));
                    effects.wake_reactor();
                }
                Event::Withdrawn(id) => {
                    self.announced.retain(|(other, _)| *other != id);
                    effects.drop(self.incoming.withdraw(id));
                }
                Event::Delivered { token, .. } => self.on_decided(token, effects),
                Event::Undelivered { session: id, token } => {
                    if let Some(session) = self.sessions.get_mut(&id)
                        && let Some(message) = self.outgoing.get_mut(token.0 as usize)
                        && message.is_eager
                        && let Some(slot) = message.slot.take()
                    {
                        session.ops.complete(slot, Err(session.send_error()), effects);
                        message.unfinished = 0;
                    }
                    self.on_decided(token, effects);
                }
                Event::Flushed(id) => {
                    if let Some(session) = self.sessions.get_mut(&id) {
                        session.set_end(Ok(()), effects);
                    }
                }
                Event::PeerClosed(id) => {
                    if let Some(session) = self.sessions.get_mut(&id) {
                        session.refuse(SendError::PeerClosed, effects);
                        self.core.close(id);
                    }
                }
                Event::Closed(id) => {
                    if let Some(session) = self.sessions.get_mut(&id) {
                        session.conclude(effects);
                    }
                    self.remove_if_unused(id);
                }
                Event::Reset { session: id, code } => {
                    if let Some(session) = self.sessions.get_mut(&id) {
                        session.fail(&SessionError::Reset(code), effects);
                    }
                    self.remove_if_unused(id);
                }
                Event::PathLost { path, reason } => self.stop_path(path, reason, now, effects),
            }
        }
    }

    /// The peer has a message, or never will
    fn on_decided(&mut self, token: Token, effects: &mut Effects) {
        if let Some(message) = self.outgoing.get_mut(token.0 as usize) {
            message.is_decided = true;
            self.finish_message(token.0, effects);
        }
    }
}

// Paths, and how the peering ends.
impl<D: Device> State<D> {
    /// Adds a path whose queue pairs are connected, and posts its receives
    pub(crate) fn add_path(
        &mut self,
        path: PathId,
        epoch: u16,
        rate: u64,
        config: LaneConfig,
        mut lanes: Lanes<D>,
        receives: Vec<Lease>,
        probes: bool,
        now: Time,
        effects: &mut Effects,
    ) -> Result<(), rdma_core::Error> {
        let count = receives.len();
        lanes.open(receives)?;
        let index = path.0 as usize;
        if index >= self.lanes.len() {
            self.lanes.resize_with(index + 1, || None);
            self.epochs.resize(index + 1, 0);
        }
        self.epochs[index] = epoch;
        self.lanes[index] = Some(lanes);
        self.core.add_path(now, path, epoch, rate, config, probes);
        (0..count).for_each(|_| self.core.packet_receive_posted(path));
        self.pump(now, effects);
        Ok(())
    }

    pub(crate) fn lose_path(&mut self, path: PathId, reason: PathLoss, now: Time, effects: &mut Effects) {
        self.core.lose_path(path, reason);
        self.handle_events(now, effects);
    }

    /// Ends the queue pairs of a path that has failed
    fn stop_path(&mut self, path: PathId, reason: PathLoss, now: Time, effects: &mut Effects) {
        let Some(lanes) = self.lanes.get_mut(path.0 as usize).and_then(Option::take) else { return };
        let (key, epoch) = (lanes.key(), self.epochs[path.0 as usize]);
        self.lost_paths.push(LostPath { path, epoch, key, reason });
        let payload = lanes.payload;
        let stopped = lanes.stop();
        if !stopped.is_quiesced {
            // Nothing that was posted may be used again: what is counted as posted stays so for good.
            stopped.leases.into_iter().for_each(std::mem::forget);
            stopped.bulk_sends.into_iter().for_each(|token| self.quarantine(token, effects));
            return self.fail(&SessionError::Unstopped, effects);
        }
        effects.drop(stopped.leases.into_iter().map(Body::Lease));
        self.frames.stopped(key);
        let buffers = stopped.bulk_receives.into_iter().filter_map(|receive| match receive {
            BulkReceive::Payload { buffer, .. } => Some(buffer),
            BulkReceive::Trailer { .. } => None,
        });
        for buffer in buffers.chain(payload.map(|(buffer, ..)| buffer)).collect::<Vec<_>>() {
            effects.drop(self.incoming.completed(buffer));
        }
        for token in stopped.bulk_sends {
            self.on_bulk_sent(token, effects);
        }
        self.core.path_stopped(path);
        effects.wake_reactor();
        self.pump(now, effects);
    }

    pub(super) fn lose_all_paths(&mut self, now: Time, effects: &mut Effects) {
        for index in 0..self.lanes.len() {
            self.lose_path(PathId(index as u32), PathLoss::Device, now, effects);
        }
    }

    /// Keeps the bytes of a message from being used again: a device may still read them
    fn quarantine(&mut self, token: u32, effects: &mut Effects) {
        let Some(message) = self.outgoing.get_mut(token as usize) else { return };
        if let (Some(session), Some(slot)) = (self.sessions.get_mut(&message.session), message.slot.take()) {
            std::mem::forget(session.ops.revoke(slot, SessionError::Unstopped.into(), effects));
        }
    }

    /// Ends the peering and all of its sessions
    pub(crate) fn fail(&mut self, error: &SessionError, effects: &mut Effects) {
        if self.end.is_some() {
            return;
        }
        self.end = Some(error.clone());
        effects.wake_reactor();
        self.pool.leave(Zone::Bulk, &mut self.memory, effects);
        self.lose_all_paths(Time::ZERO, effects);
        for session in self.sessions.values_mut() {
            session.fail(error, effects);
        }
        for (_, message) in &mut self.outgoing {
            if let (Some(session), Some(slot)) =
                (self.sessions.get_mut(&message.session), message.slot.take())
            {
                session.ops.complete(slot, Err(error.clone().into()), effects);
            }
        }
        self.outgoing.clear();
        self.sessions.retain(|_, session| !session.is_unused());
    }
}

impl<D: Device> Drop for State<D> {
    fn drop(&mut self) {
        self.incoming.forget_posted();
    }
}
