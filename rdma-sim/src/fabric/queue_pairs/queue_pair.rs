//! A queue pair: its state, its queues, and its share of what happens to them

use std::collections::VecDeque;

use rdma_core::{
    AttrMask, Cause, Completion, Error, FRAME, Invalid, Opcode, QpAttr, QpCapacity, QpState, QpType, Qpn,
    SendOp, Status, Time, Verb, WrId,
};

use super::delivery::{self, Piece};
use super::work::{EndedReceive, EndedSend, Head, OneSided, Receive, Send, opcode};
use crate::fabric::ids::{CqKey, DeviceIndex, QpKey, Span};
use crate::remote::QpName;
use crate::rules::{EarlyReceives, QueueUnit};

/// A queue pair
#[derive(Debug)]
pub(crate) struct QueuePair {
    device: DeviceIndex,
    send_cq: CqKey,
    recv_cq: CqKey,
    qpn: Qpn,
    qp_type: QpType,
    state: QpState,
    capacity: QpCapacity,
    /// What its queues count.
    unit: QueueUnit,
    /// The number of the queue pair at the other end, once connected.
    pub(super) peer: Qpn,
    /// Where that was found last.
    pub(super) peer_key: Option<QpKey>,
    /// Grows when the events under way stop to apply.
    pub(super) epoch: u16,
    /// Its cable was pulled: no request ever completes again.
    is_stale: bool,
    /// It has rested for too long: no request ever completes again, and no error says so.
    is_dead: bool,
    /// A transition to RTR failed. The device does not retry it; the queue pair must be destroyed.
    has_failed_rtr: bool,
    /// The step of set-up in which it became ready to receive.
    ready_at: Option<u64>,
    last_active: Time,
    sends: VecDeque<Send>,
    /// What `sends` take of the capacity.
    send_frames: u32,
    /// How many of `sends` have been transmitted and only wait for their completion.
    transmitted: usize,
    /// How many of `sends` have their completion scheduled.
    ending: usize,
    /// How many of `sends` have reached the transmitter.
    rung: usize,
    tx: Tx,
    /// The retry timer is scheduled.
    retry_armed: bool,
    receives: VecDeque<Receive>,
    /// What `receives` take of the capacity.
    recv_frames: u32,
    /// How many of `receives` have been filled and only wait for their completion.
    filled: usize,
    /// Bytes of the oldest one-sided operation that the process of the peer has answered, while it is asked for more.
    requested: Option<usize>,
    /// Deliveries keep their order whatever the choices add to each.
    last_delivery: Time,
    last_departure: Time,
}

/// What the transmitter knows of a queue pair
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Tx {
    /// It has nothing to send
    Idle,
    /// It is in the queue of the transmitter
    Ready,
    /// It waits for a receive of its peer
    Stalled,
}

/// What becomes of a request
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Admission {
    /// It completes at once, because the queue pair has failed
    Flushed,
    /// It joins its queue
    Queued,
}

/// A piece of a one-sided operation for the process of the peer
#[derive(Clone, Copy, Debug)]
pub(crate) struct Request {
    pub(crate) op: SendOp,
    pub(crate) span: Span,
}

/// What the answer to a request means
#[derive(Clone, Copy, Debug)]
pub(crate) struct Answered {
    /// The operation's position in the send queue.
    pub(crate) position: usize,
    /// Where the returned bytes go, if any are expected.
    pub(crate) into: Option<Span>,
    /// No further request follows for this operation.
    pub(crate) is_over: bool,
}

/// Bytes of a request for the process of a peer
pub(crate) const REQUEST_BYTES: usize = 32 * 1024;

impl QueuePair {
    pub(super) fn new(
        device: DeviceIndex,
        [send_cq, recv_cq]: [CqKey; 2],
        qpn: Qpn,
        qp_type: QpType,
        capacity: QpCapacity,
        unit: QueueUnit,
        now: Time,
    ) -> Self {
        Self {
            device,
            send_cq,
            recv_cq,
            qpn,
            qp_type,
            state: QpState::Reset,
            capacity,
            unit,
            peer: Qpn(0),
            peer_key: None,
            epoch: 0,
            is_stale: false,
            is_dead: false,
            has_failed_rtr: false,
            ready_at: None,
            last_active: now,
            sends: VecDeque::with_capacity(64),
            send_frames: 0,
            transmitted: 0,
            ending: 0,
            rung: 0,
            tx: Tx::Idle,
            retry_armed: false,
            receives: VecDeque::with_capacity(64),
            recv_frames: 0,
            filled: 0,
            requested: None,
            last_delivery: Time::ZERO,
            last_departure: Time::ZERO,
        }
    }

    // ─── What it is ───

    pub(crate) fn device(&self) -> DeviceIndex {
        self.device
    }

    pub(crate) fn qpn(&self) -> Qpn {
        self.qpn
    }

    pub(crate) fn peer(&self) -> Qpn {
        self.peer
    }

    pub(crate) fn qp_type(&self) -> QpType {
        self.qp_type
    }

    pub(crate) fn capacity(&self) -> QpCapacity {
        self.capacity
    }

    pub(crate) fn state(&self) -> QpState {
        self.state
    }

    pub(crate) fn ready_at(&self) -> Option<u64> {
        self.ready_at
    }

    pub(crate) fn name(&self) -> QpName {
        QpName { device: self.device.0, qpn: self.qpn }
    }

    /// Its number in the trace, where the numbers of all devices must differ
    pub(crate) fn subject(&self) -> u32 {
        self.device.0 << 20 | self.qpn.0
    }

    pub(crate) fn is_reliable(&self) -> bool {
        self.qp_type == QpType::Rc
    }

    /// Whether it receives
    pub(crate) fn is_up(&self) -> bool {
        matches!(self.state, QpState::ReadyToReceive | QpState::ReadyToSend)
    }

    pub(crate) fn is_alive(&self) -> bool {
        !self.is_stale && !self.is_dead
    }

    pub(super) fn is_connected_to(&self, other: &Self) -> bool {
        self.is_up() && self.qpn == other.peer && self.peer == other.qpn && self.is_alive()
    }

    /// Whether it is dead, which it is from now on if it has rested for longer than `idle_ns`
    pub(super) fn expire_if_idle(&mut self, now: Time, idle_ns: u64) -> bool {
        if !self.is_dead && now.as_nanos() - self.last_active.as_nanos() > idle_ns {
            self.die();
        }
        self.is_dead
    }

    pub(super) fn is_ready_to_send(&self) -> bool {
        self.state == QpState::ReadyToSend && self.is_alive()
    }

    // ─── States ───

    /// Whether the transition that `attr` asks for exists, and `mask` names all that it needs
    pub(crate) fn check_transition(&self, attr: &QpAttr, mask: AttrMask) -> Result<(), Cause> {
        if self.is_stale {
            return Err(Cause::DeviceGone);
        }
        let needed = match (self.state, attr.state) {
            (_, QpState::Reset | QpState::Error) => AttrMask::STATE,
            (QpState::Reset | QpState::Init, QpState::Init) => AttrMask::INIT,
            (QpState::Init, QpState::ReadyToReceive) => AttrMask::READY_TO_RECEIVE,
            (QpState::ReadyToReceive, QpState::ReadyToSend) => AttrMask::READY_TO_SEND,
            (from, to) => return Err(Invalid::Transition { from, to }.into()),
        };
        if !mask.contains(needed) {
            return Err(Invalid::AttrMask { mask, needed }.into());
        }
        if attr.state == QpState::Init && (attr.port != 1 || attr.pkey_index != 0) {
            return Err(Invalid::Port { port: attr.port, pkey_index: attr.pkey_index }.into());
        }
        Ok(())
    }

    /// Takes a transition that needs no peer
    pub(crate) fn set_state(&mut self, state: QpState) {
        self.state = state;
    }

    pub(crate) fn has_failed_rtr(&self) -> bool {
        self.has_failed_rtr
    }

    pub(crate) fn set_failed_rtr(&mut self) {
        self.has_failed_rtr = true;
    }

    /// Becomes ready to receive from `peer`; its sender learns at `visible` of the receives that were posted before
    pub(crate) fn receive_from(&mut self, peer: Qpn, step: u64, now: Time, visible: Time) {
        self.state = QpState::ReadyToReceive;
        self.peer = peer;
        self.ready_at = Some(step);
        self.last_active = now;
        self.receives.iter_mut().for_each(|receive| receive.visible = visible);
    }

    /// Returns to the reset state, without any request
    pub(crate) fn reset(&mut self) {
        self.clear();
        self.state = QpState::Reset;
    }

    fn clear(&mut self) {
        self.freeze();
        self.peer_key = None;
        self.sends.clear();
        self.send_frames = 0;
        self.transmitted = 0;
        self.ending = 0;
        self.rung = 0;
        self.ready_at = None;
        self.receives.clear();
        self.recv_frames = 0;
        self.filled = 0;
        self.requested = None;
    }

    /// Ends what is under way; requests stay posted
    fn freeze(&mut self) {
        self.epoch = self.epoch.wrapping_add(1);
        self.tx = Tx::Idle;
        self.retry_armed = false;
    }

    /// Fails: requests stay posted and never complete, unless they are [flushed](Self::pop_flushed)
    pub(crate) fn fail(&mut self) {
        self.state = QpState::Error;
        self.freeze();
    }

    /// Its cable was pulled
    pub(crate) fn cut_off(&mut self) {
        self.is_stale = true;
        self.freeze();
    }

    /// It has rested for too long
    pub(crate) fn die(&mut self) {
        self.is_dead = true;
        self.freeze();
    }

    /// The next completion of a request that a failed queue pair still has; without one, it is as after a reset
    pub(crate) fn pop_flushed(&mut self) -> Option<(CqKey, Completion)> {
        if let Some(send) = self.sends.pop_front() {
            return Some(self.flushed_send(send.id, send.op));
        }
        match self.receives.pop_front() {
            Some(receive) => Some(self.flushed_receive(receive.id)),
            None => {
                self.clear();
                None
            }
        }
    }

    pub(crate) fn flushed_send(&self, id: WrId, op: SendOp) -> (CqKey, Completion) {
        (self.send_cq, self.completion(id, opcode(op), Status::Flushed, 0))
    }

    pub(crate) fn flushed_receive(&self, id: WrId) -> (CqKey, Completion) {
        (self.recv_cq, self.completion(id, Opcode::Recv, Status::Flushed, 0))
    }

    fn completion(&self, id: WrId, opcode: Opcode, status: Status, byte_len: u32) -> Completion {
        Completion { id, status, opcode, byte_len, qpn: self.qpn }
    }

    // ─── Posting ───

    pub(crate) fn admit_send(&self, flushes: bool) -> Result<Admission, Cause> {
        match self.state {
            _ if self.is_stale => Err(Cause::DeviceGone),
            QpState::ReadyToSend => Ok(Admission::Queued),
            QpState::Error if flushes => Ok(Admission::Flushed),
            state => Err(Invalid::State { state }.into()),
        }
    }

    pub(crate) fn admit_receive(&self, early: EarlyReceives, flushes: bool) -> Result<Admission, Cause> {
        let is_ready = match self.state {
            _ if self.is_stale => return Err(Cause::DeviceGone),
            QpState::Error if flushes => return Ok(Admission::Flushed),
            QpState::Init => early == EarlyReceives::FromInit,
            QpState::ReadyToReceive => early != EarlyReceives::FromReadyToSend,
            QpState::ReadyToSend => true,
            _ => false,
        };
        match is_ready {
            true => Ok(Admission::Queued),
            false => Err(Invalid::State { state: self.state }.into()),
        }
    }

    /// What a request for `span` takes of a queue
    fn taken_by(&self, span: Span) -> u32 {
        match self.unit {
            QueueUnit::Frames => span.frames(),
            QueueUnit::Requests => 1,
        }
    }

    /// What a send of `span` takes of the send queue, if it fits an empty one
    pub(crate) fn send_size(&self, span: Span) -> Result<u32, Error> {
        check_length(self.taken_by(span), self.capacity.send_frames, Verb::PostSend)
    }

    pub(crate) fn reserve_sends(&mut self, wanted: u32) -> Result<(), Error> {
        if self.send_frames + wanted > self.capacity.send_frames {
            return Err(Error::new(Verb::PostSend, Cause::QueueFull));
        }
        self.send_frames += wanted;
        Ok(())
    }

    pub(crate) fn push_send(&mut self, id: WrId, op: SendOp, span: Span, is_signaled: bool) {
        self.sends.push_back(Send::new(id, op, span, is_signaled));
    }

    /// Posts a receive, and returns whether it is the next to be filled; with `overflows`, beyond the end of the ring if need be
    pub(crate) fn push_receive(
        &mut self,
        id: WrId,
        span: Span,
        visible: Time,
        status: Status,
        overflows: bool,
    ) -> Result<bool, Error> {
        let capacity = self.capacity.recv_frames;
        let wanted = check_length(self.taken_by(span), capacity, Verb::PostRecv)?;
        if self.recv_frames + wanted > capacity && !overflows {
            return Err(Error::new(Verb::PostRecv, Cause::QueueFull));
        }
        self.recv_frames += wanted;
        let is_beyond = self.recv_frames > capacity;
        let is_next = self.receives.len() == self.filled;
        self.receives.push_back(Receive::new(id, span, visible, is_beyond, status));
        Ok(is_next)
    }

    /// Adds a receive to the shadow of a queue pair in another process, and returns whether it is the only one
    pub(super) fn push_announced(&mut self, span: Span, now: Time) -> bool {
        self.receives.push_back(Receive::new(WrId(0), span, now, false, Status::Success));
        self.receives.len() == 1
    }

    /// The lengths of the receives that are not filled
    pub(crate) fn open_receives(&self) -> impl Iterator<Item = u32> + '_ {
        self.receives.iter().skip(self.filled).map(|receive| receive.span.len as u32)
    }

    // ─── Transmitting ───

    /// A send has reached the transmitter; true if the queue pair has to join the queue for it
    pub(super) fn ring(&mut self) -> bool {
        self.rung += 1;
        self.tx == Tx::Idle
    }

    pub(crate) fn is_stalled(&self) -> bool {
        self.tx == Tx::Stalled
    }

    pub(crate) fn stall(&mut self) {
        self.tx = Tx::Stalled;
    }

    pub(super) fn make_ready(&mut self) {
        self.tx = Tx::Ready;
    }

    /// Starts the retry timer; false if it runs
    pub(super) fn arm_retry_timer(&mut self) -> bool {
        !std::mem::replace(&mut self.retry_armed, true)
    }

    pub(super) fn retry_expired(&mut self) {
        self.retry_armed = false;
    }

    fn front(&self) -> &Send {
        &self.sends[self.transmitted]
    }

    fn front_mut(&mut self) -> &mut Send {
        &mut self.sends[self.transmitted]
    }

    /// What it has to send next
    pub(crate) fn head(&self) -> Head {
        let Send { id, op, span, sent, is_lost, .. } = *self.front();
        Head { id, op, span, is_first: sent == 0, is_lost, is_reliable: self.is_reliable() }
    }

    pub(crate) fn lose_head(&mut self) {
        self.front_mut().is_lost = true;
    }

    pub(crate) fn fail_head(&mut self, status: Status) {
        self.front_mut().status = status;
    }

    /// The completion of the next send before it has left, unless it was reported before
    pub(crate) fn report_early(&mut self) -> Option<(CqKey, Completion)> {
        let send = self.front_mut();
        let Send { id, op, status, is_signaled, .. } = *send;
        let is_due = is_signaled && !std::mem::replace(&mut send.is_reported, true);
        is_due.then(|| (self.send_cq, self.completion(id, opcode(op), status, 0)))
    }

    pub(super) fn plan(&self, peer: Option<&Self>, batch: u64) -> Piece {
        delivery::plan(self.front(), peer.and_then(Self::oldest_open), batch)
    }

    /// The next send and where its piece begins
    pub(super) fn transmit(&mut self, piece: &Piece, now: Time) -> (&mut Send, Span) {
        self.last_active = now;
        let send = self.front_mut();
        send.sent += piece.frames;
        let from = send.span.part(piece.from, piece.len);
        (send, from)
    }

    /// A piece has left; true if the queue pair has more to send
    pub(crate) fn finish_piece(&mut self, is_last: bool) -> bool {
        self.transmitted += usize::from(is_last);
        let has_more = self.transmitted < self.rung;
        if !has_more {
            self.tx = Tx::Idle;
        }
        has_more
    }

    /// Position of the send that was transmitted last
    pub(crate) fn last_transmitted(&self) -> usize {
        self.transmitted - 1
    }

    /// Ends a transmitted send at `at`
    pub(super) fn end_send(&mut self, position: usize, at: Time) {
        self.sends[position].ends = Some(at);
    }

    /// When the next send completes whose end is known, and those before it
    pub(super) fn next_end(&mut self) -> Option<Time> {
        let ends = self.sends.get(self.ending)?.ends?;
        self.ending += 1;
        self.last_departure = self.last_departure.max(ends);
        Some(self.last_departure)
    }

    /// Takes the oldest send out of its queue; it ends with `status`, if there is one
    pub(crate) fn pop_send(&mut self, status: Option<Status>) -> Option<EndedSend> {
        let send = self.sends.pop_front()?;
        self.transmitted = self.transmitted.saturating_sub(1);
        self.ending = self.ending.saturating_sub(1);
        self.rung = self.rung.saturating_sub(1);
        self.send_frames -= self.taken_by(send.span);
        let status = status.unwrap_or(send.status);
        let is_due = (send.is_signaled || status != Status::Success) && !send.is_reported;
        Some(EndedSend { id: send.id, opcode: opcode(send.op), status, is_due })
    }

    pub(crate) fn send_completion(&self, ended: &EndedSend) -> (CqKey, Completion) {
        (self.send_cq, self.completion(ended.id, ended.opcode, ended.status, 0))
    }

    // ─── Receiving ───

    /// The oldest receive that is not filled
    pub(super) fn oldest_open(&self) -> Option<&Receive> {
        self.receives.get(self.filled)
    }

    pub(super) fn oldest_open_mut(&mut self, now: Time) -> Option<&mut Receive> {
        self.last_active = now;
        self.receives.get_mut(self.filled)
    }

    /// The oldest receive that is not filled fails
    pub(crate) fn fail_receive(&mut self, status: Status) {
        if let Some(receive) = self.receives.get_mut(self.filled) {
            receive.status = status;
        }
    }

    /// When the next delivery completes that could complete at `at`: not before the previous one
    pub(crate) fn order_delivery(&mut self, at: Time) -> Time {
        self.last_delivery = self.last_delivery.max(at);
        self.last_delivery
    }

    /// Fills the oldest open receive; returns its bytes, if one of them is damaged
    pub(super) fn finish_receive(&mut self) -> Option<Span> {
        let damaged = self.oldest_open()?.damaged();
        self.filled += 1;
        damaged
    }

    /// Takes the oldest receive out of its queue
    pub(crate) fn pop_receive(&mut self) -> Option<EndedReceive> {
        let Receive { id, span, bytes_in: byte_len, status, .. } = self.receives.pop_front()?;
        self.filled = self.filled.saturating_sub(1);
        self.recv_frames = self.recv_frames.saturating_sub(self.taken_by(span));
        Some(EndedReceive { id, span, byte_len, status })
    }

    pub(crate) fn receive_completion(&self, ended: &EndedReceive) -> (CqKey, Completion) {
        (self.recv_cq, self.completion(ended.id, Opcode::Recv, ended.status, ended.byte_len))
    }

    // ─── One-sided operations ───

    /// The next one-sided operation leaves; true if the queue pair has more to send
    pub(crate) fn transmit_one_sided(&mut self, now: Time) -> bool {
        self.last_active = now;
        self.finish_piece(true)
    }

    pub(crate) fn oldest_one_sided(&self) -> Option<OneSided> {
        let mut sent = self.sends.iter().take(self.transmitted);
        let position = sent.position(|send| send.op != SendOp::Send && !send.is_applied)?;
        let Send { id, op, span, .. } = self.sends[position];
        Some(OneSided { position, id, op, span })
    }

    pub(crate) fn set_applied(&mut self, position: usize) {
        self.sends[position].is_applied = true;
    }

    /// Whether a request to the process of the peer is unanswered
    pub(crate) fn is_requesting(&self) -> bool {
        self.requested.is_some()
    }

    /// The next piece to ask the process of the peer for
    pub(crate) fn request(&mut self) -> Option<Request> {
        let done = *self.requested.get_or_insert(0);
        let OneSided { op, span, .. } = self.oldest_one_sided()?;
        let len = (span.len - done).min(REQUEST_BYTES);
        Some(Request { op: further(op, done as u64), span: span.part(done, len) })
    }

    /// The process of the peer has answered the oldest request
    pub(crate) fn on_response(&mut self, is_ok: bool) -> Option<Answered> {
        let done = self.requested.take()?;
        let OneSided { position, op, span, .. } = self.oldest_one_sided()?;
        let len = (span.len - done).min(REQUEST_BYTES);
        let returns_bytes = is_ok && !matches!(op, SendOp::Write { .. });
        let into = returns_bytes.then(|| span.part(done, len));
        let is_over = !is_ok || opcode(op) == Opcode::Atomic || done + len == span.len;
        if is_over {
            self.sends[position].is_applied = true;
        } else {
            self.requested = Some(done + len);
        }
        Some(Answered { position, into, is_over })
    }
}

/// `wanted`, if a queue of `capacity` can hold a message that takes so much
fn check_length(wanted: u32, capacity: u32, verb: Verb) -> Result<u32, Error> {
    let bytes = |frames: u32| u64::from(frames) * FRAME as u64;
    if wanted <= capacity {
        return Ok(wanted);
    }
    Err(Error::new(verb, Cause::MessageTooLong { len: bytes(wanted), max: bytes(capacity) }))
}

/// The same operation, `by` bytes further on
fn further(op: SendOp, by: u64) -> SendOp {
    match op {
        SendOp::Write { remote_addr, rkey } => {
            SendOp::Write { remote_addr: remote_addr.wrapping_add(by), rkey }
        }
        SendOp::Read { remote_addr, rkey } => {
            SendOp::Read { remote_addr: remote_addr.wrapping_add(by), rkey }
        }
        op => op,
    }
}
