//! A queue pair: its state, and how its requests are transmitted and filled

use rdma_core::{
    AttrMask, Cause, Completion, Invalid, Opcode, QpAttr, QpCapacity, QpState, QpType, Qpn, SendOp, Status,
    Time, WrId,
};

use super::delivery::{self, Piece};
use super::work::{EndedReceive, EndedSend, Head, Receive, Send, opcode};
use crate::fabric::fifo::Fifo;
use crate::fabric::ids::{CqKey, DeviceIndex, QpKey, QpRef, Span};
use crate::remote::{ProcessName, QpName};
use crate::rules::{FrameMatch, QueueUnit};

const HAS_SENDS: &str = "a queue pair whose turn it is has a send that has not left";

/// A queue pair
#[derive(Debug)]
pub(crate) struct QueuePair {
    pub(crate) device: DeviceIndex,
    pub(super) send_cq: CqKey,
    pub(super) recv_cq: CqKey,
    pub(crate) qpn: Qpn,
    pub(crate) qp_type: QpType,
    pub(crate) state: QpState,
    pub(crate) capacity: QpCapacity,
    /// What its queues count.
    pub(super) unit: QueueUnit,
    /// The number of the queue pair at the other end, once connected.
    pub(crate) peer: Qpn,
    /// Where that was found last.
    pub(super) peer_key: Option<QpKey>,
    /// Grows when the events under way stop to apply.
    pub(super) epoch: u16,
    /// Its cable was pulled: no request ever completes again.
    pub(super) is_stale: bool,
    /// It has rested for too long: no request ever completes again, and no error says so.
    pub(super) is_dead: bool,
    /// A transition to RTR failed. The device does not retry it; the queue pair must be destroyed.
    pub(crate) has_failed_rtr: bool,
    /// The step of set-up in which it became ready to receive.
    pub(crate) ready_at: Option<u64>,
    pub(super) last_active: Time,
    pub(super) sends: Fifo<Send>,
    /// What `sends` take of the capacity.
    pub(super) send_frames: u32,
    /// How many of `sends` have been transmitted and only wait for their completion.
    pub(super) transmitted: usize,
    /// How many of `sends` have their completion scheduled.
    pub(super) ending: usize,
    /// How many of `sends` have reached the transmitter.
    pub(super) rung: usize,
    pub(super) tx: Tx,
    /// The retry timer is scheduled.
    pub(super) retry_armed: bool,
    /// One-sided operations that have arrived before the peer could be reached.
    early: usize,
    pub(super) receives: Fifo<Receive>,
    /// What `receives` take of the capacity.
    pub(super) recv_frames: u32,
    /// How many of `receives` have been filled and only wait for their completion.
    pub(super) filled: usize,
    /// Bytes of the oldest one-sided operation that the process of the peer has answered, while it is asked for more.
    pub(super) requested: Option<usize>,
    /// Deliveries keep their order whatever the choices add to each.
    pub(super) last_delivery: Time,
    pub(super) last_departure: Time,
}

/// What the transmitter knows of a queue pair
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Tx {
    /// It has nothing to send
    Idle,
    /// It is in the queue of the transmitter
    Ready,
    /// It waits for a receive of its peer
    Stalled,
}

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
            sends: Fifo::new(),
            send_frames: 0,
            transmitted: 0,
            ending: 0,
            rung: 0,
            tx: Tx::Idle,
            retry_armed: false,
            early: 0,
            receives: Fifo::new(),
            recv_frames: 0,
            filled: 0,
            requested: None,
            last_delivery: Time::ZERO,
            last_departure: Time::ZERO,
        }
    }

    // ─── What it is ───

    pub(crate) fn name(&self) -> QpName {
        QpName { device: self.device.0, qpn: self.qpn }
    }

    /// The process that it belongs to, if its device belongs to `host`
    pub(crate) fn process(&self, host: u32) -> ProcessName {
        ProcessName::of(host, self.qpn)
    }

    /// This queue pair, which has that key, in its epoch
    pub(crate) fn in_epoch(&self, key: QpKey) -> QpRef {
        QpRef { key, epoch: self.epoch }
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

    /// Whether it has rested for too long
    pub(crate) fn is_dead(&self) -> bool {
        self.is_dead
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
        self.early = 0;
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

    /// A one-sided operation has arrived, and the peer cannot be reached
    pub(crate) fn arrived_early(&mut self) {
        self.early += 1;
    }

    pub(super) fn take_early(&mut self) -> usize {
        std::mem::take(&mut self.early)
    }

    #[inline(always)]
    fn front(&self) -> &Send {
        self.sends.get(self.transmitted).expect(HAS_SENDS)
    }

    #[inline(always)]
    fn front_mut(&mut self) -> &mut Send {
        self.sends.get_mut(self.transmitted).expect(HAS_SENDS)
    }

    /// What it has to send next
    #[inline(always)]
    pub(crate) fn head(&self) -> Head {
        let Send { id, opcode, span, sent, is_lost, .. } = *self.front();
        Head { id, opcode, span, is_first: sent == 0, is_lost, is_reliable: self.is_reliable() }
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
        let Send { id, opcode, status, is_signaled, .. } = *send;
        let is_due = is_signaled && !std::mem::replace(&mut send.is_reported, true);
        is_due.then(|| (self.send_cq, self.completion(id, opcode, status, 0)))
    }

    /// The next piece, at most `batch` frames and no more than `room`, with its bytes, and whether its send fits no receive
    #[inline(always)]
    pub(super) fn transmit(&mut self, room: u32, batch: u64, now: Time) -> (Piece, Span, bool) {
        self.last_active = now;
        let send = self.front_mut();
        let piece = delivery::plan(send, room, batch);
        send.sent += piece.frames;
        (piece, send.span.part(piece.from, piece.len), send.is_split)
    }

    /// The send of the last piece is longer than the receive that it has filled
    #[cold]
    pub(super) fn outgrow_receive(&mut self, rule: FrameMatch) {
        self.front_mut().outgrow(rule);
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
    #[inline(always)]
    pub(crate) fn end_send(&mut self, position: usize, at: Time) {
        self.sends.get_mut(position).expect("a send that ends has not left its queue").ends = Some(at);
    }

    /// When the next send completes whose end is known, and those before it
    pub(crate) fn next_end(&mut self) -> Option<Time> {
        let ends = self.sends.get(self.ending)?.ends?;
        self.ending += 1;
        self.last_departure = self.last_departure.max(ends);
        Some(self.last_departure)
    }

    /// Takes the oldest send out of its queue; it ends with `status`, if there is one
    pub(crate) fn pop_send(&mut self, status: Option<Status>) -> Option<EndedSend> {
        let (ended, span) = self.sends.take_front(|send| {
            let Send { id, opcode, span, is_signaled, is_reported, .. } = *send;
            let status = status.unwrap_or(send.status);
            let is_due = (is_signaled || status != Status::Success) && !is_reported;
            (EndedSend { id, opcode, status, is_due, is_unsignaled: !is_signaled }, span)
        })?;
        self.transmitted = self.transmitted.saturating_sub(1);
        self.ending = self.ending.saturating_sub(1);
        self.rung = self.rung.saturating_sub(1);
        self.send_frames -= self.taken_by(span);
        Some(ended)
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
    pub(crate) fn finish_receive(&mut self) -> Option<Span> {
        let damaged = self.oldest_open()?.damaged();
        self.filled += 1;
        damaged
    }

    /// Takes the oldest receive out of its queue
    pub(crate) fn pop_receive(&mut self) -> Option<EndedReceive> {
        let ended = self.receives.take_front(|receive| {
            let Receive { id, span, bytes_in: byte_len, status, .. } = *receive;
            EndedReceive { id, span, byte_len, status }
        })?;
        self.filled = self.filled.saturating_sub(1);
        self.recv_frames = self.recv_frames.saturating_sub(self.taken_by(ended.span));
        Some(ended)
    }

    pub(crate) fn receive_completion(&self, ended: &EndedReceive) -> (CqKey, Completion) {
        (self.recv_cq, self.completion(ended.id, Opcode::Recv, ended.status, ended.byte_len))
    }
}
