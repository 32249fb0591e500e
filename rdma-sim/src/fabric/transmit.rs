//! Transmitting: which queue pair sends, what leaves, and what follows from it
//!
//! A credit is a posted receive of the peer. The transmitter looks at the peer's receive queue, as it was one propagation
//! time ago, and sends a frame only into a receive that it can see. Bytes move when their frame is transmitted, straight
//! from the sender's memory to the receiver's; the receiving program cannot look before its completion.

use rdma_core::{FRAME, Opcode, Status, Time};

use super::Fabric;
use super::event::{Event, Nanos};
use super::ids::{LinkEnd, QpKey};
use super::links::TxStart;
use super::memory::Moved;
use super::queue_pairs::{Head, Piece, PieceTarget, QueuePair};
use super::remote::remote_name;
use crate::catalogue::rule;
use crate::remote::{LinkMessage, ProcessName, QpName};
use crate::rules::SendCompletion;
use crate::trace::{Ending, RecordKind, Wait};

impl Fabric {
    /// Puts a queue pair that has something to send into the queue of its transmitter
    pub(super) fn enqueue_tx(&mut self, key: QpKey) {
        let device = self.qps.make_ready(key);
        let Some(link) = self.world.link(device) else { return };
        match self.links.enqueue_tx(link, key, self.schedule.now()) {
            TxStart::Armed => (),
            TxStart::At(at) => self.schedule.add(at, Event::Free(link)),
            TxStart::Now => self.transmit(link, Some(key)),
        }
    }

    /// Sends for the first queue pair that has something which may leave: `next`, or one of the queue
    pub(super) fn transmit(&mut self, link: LinkEnd, mut next: Option<QpKey>) {
        while let Some(key) = next
            && !self.transmit_next(link, key)
        {
            next = self.links.pop(link);
        }
        self.schedule.add_all(self.links.arm_transmitter(link).map(|at| (at, Event::Free(link))));
    }

    /// Sends something of `key`, unless it has to wait for a receive
    #[inline(always)]
    fn transmit_next(&mut self, link: LinkEnd, key: QpKey) -> bool {
        let now = self.schedule.now();
        let Some(head) = self.qps.head(key, now) else {
            let idle = self.qps.get(key).filter(|qp| qp.is_dead()).map(QueuePair::subject);
            if idle.is_some() {
                self.coverage.rule(rule!("idle-death"));
            }
            self.trace.note_dropped(now, idle, Ending::Idle);
            return false;
        };
        if head.opcode != Opcode::Send {
            self.transmit_one_sided(link, key, &head);
            return true;
        }
        let (peer, visible) = self.qps.receiver(key, now, |device| self.world.neighbour(device));
        // What does not wait leaves at once, and finds at its arrival even a receive that is not visible here.
        let waits = self.model.caps.send_waits_for_receive || head.is_reliable;
        let is_ready = visible.is_some_and(|visible| visible <= now || !waits);
        let mut is_lost = head.is_lost;
        if head.is_first && (is_ready || !waits) {
            let by_fault = !head.is_reliable && self.links.take_loss(link, head.span.frames());
            is_lost = by_fault || !is_ready;
            if is_lost {
                self.coverage.rule(rule!("no-delivery-receipt"));
                if !by_fault {
                    self.coverage.rule(rule!("roce-drops"));
                }
                self.qps[key].lose_head();
                let [_, left] = self.links.pending_faults(link);
                self.trace.note(now, RecordKind::Lost, self.qps[key].subject(), by_fault.into(), left.into());
            }
        }
        if is_lost || is_ready {
            self.transmit_piece(link, key, &head, peer.filter(|_| !is_lost));
            return true;
        }
        let qp = &mut self.qps[key];
        qp.stall();
        self.links.count_stall(link);
        let wait = match (peer, visible) {
            (None, _) => Wait::NoPeer,
            (_, None) => Wait::NoReceive,
            _ => Wait::NotVisible,
        };
        self.trace.record_with(now, RecordKind::Stall, qp.subject(), 0, wait as u64);
        self.coverage.stalled(wait, head.is_reliable);
        if wait == Wait::NoPeer {
            self.coverage.rule(self.qps.rule_without_peer(key, |device| self.world.neighbour(device)));
        }
        if let Some(visible) = visible {
            self.schedule.add(visible, Event::Credit(self.qps.at(key)));
        } else if head.is_reliable {
            self.schedule.add_all(self.qps.arm_retry_timer(key, now));
        }
        false
    }

    /// Sends frames of `key` into a receive of `peer`, or nowhere
    ///
    /// Batches the following frames of the same message as long as no other event could come between them; the trace is
    /// identical to sending them one by one.
    #[inline(always)]
    fn transmit_piece(&mut self, link: LinkEnd, key: QpKey, head: &Head, peer: Option<QpKey>) {
        let now = self.schedule.now();
        if self.model.rules.send_completion == SendCompletion::HandOff
            && let Some(early) = self.qps[key].report_early()
        {
            self.complete(early);
        }
        let remote = peer.filter(|_| self.world.has_remote_hosts());
        let remote = remote.and_then(|peer| remote_name(&self.world, &self.qps[peer]));
        let room = remote.map_or(u64::MAX, |(process, _)| self.remotes.room(process));
        if room == 0 {
            self.qps[key].stall();
            return self.remotes.block(key);
        }

        let batch = match head.span.len {
            0..=FRAME => 1,
            _ => self.links.batch(link, now, self.schedule.quiet_until(), head.is_first),
        };
        let (piece, landing) = self.qps.deliver(key, peer, batch.min(room), now);
        // With the last frame all of them: the program must not have written to those that have left either.
        let leaving = if piece.is_last { (0, head.span.len) } else { (piece.from, piece.len) };
        self.sanitizer.check_send(now, (key, head.id), head.span, leaving, &self.memory);
        if let (Some(landing), Some(peer)) = (&landing, peer) {
            self.move_bytes(link, [key, peer], remote, &piece, landing);
        }
        let left = self.account(link, key, &piece);
        let is_full = landing.is_some_and(|landing| landing.is_full);
        if is_full && !piece.is_last {
            self.coverage.rule(rule!("frame-mismatch-spill"));
        }
        let peer = peer.filter(|_| piece.is_last || is_full);
        let acknowledged = peer.map(|peer| self.fill(key, peer, remote, left));
        if piece.is_last {
            let departed = left + Nanos(self.model.timing.send_completion_ns);
            let end = acknowledged.filter(|_| head.is_reliable).unwrap_or(departed);
            self.end_send(key, None, end);
        }
    }

    /// Moves the bytes of a piece into the memory of the peer, or to its process
    #[inline(always)]
    fn move_bytes(
        &mut self,
        link: LinkEnd,
        [key, peer]: [QpKey; 2],
        remote: Option<(ProcessName, QpName)>,
        piece: &Piece,
        landing: &PieceTarget,
    ) {
        let PieceTarget { from, into, is_refused, .. } = *landing;
        let moved = match remote {
            Some((process, to)) => {
                let sender = self.qps[key].qpn;
                self.memory.deliver_to(from.part(0, into.len), |bytes| {
                    self.remotes.send(process, &LinkMessage::Data { to, from: sender, bytes });
                })
            }
            None => self.memory.deliver(from, into, is_refused),
        };
        match moved {
            Moved::Done if self.links.take_damage(link, piece.frames) => {
                let [left, _] = self.links.pending_faults(link);
                let subject = self.qps[peer].subject();
                self.trace.note(self.schedule.now(), RecordKind::Damaged, subject, 1, left.into());
                self.qps[peer].fail_receive(Status::BadResponse);
            }
            Moved::Done | Moved::Refused => (),
            Moved::NoSource => {
                self.coverage.rule(rule!("deregistered"));
                self.qps[key].fail_head(Status::LocalProtection);
            }
            Moved::NoTarget => {
                self.coverage.rule(rule!("deregistered"));
                self.qps[peer].fail_receive(Status::LocalProtection);
            }
        }
        if self.memory.is_beyond_boundary(from) || self.memory.is_beyond_boundary(into) {
            self.coverage.rule(rule!("four-gib-boundary"));
        }
    }

    /// Counts and records the frames of a piece, and returns when the last has left
    #[inline(always)]
    fn account(&mut self, link: LinkEnd, key: QpKey, piece: &Piece) -> Time {
        let qp = &mut self.qps[key];
        let subject = qp.subject();
        let left = self.links.transmit(link, self.schedule.now(), piece, |[start, end], bytes| {
            self.trace.record_with(start, RecordKind::Frame, subject, bytes as u64, end.as_nanos());
        });
        if qp.finish_piece(piece.is_last) {
            if self.links.has_next(link) {
                self.coverage.rule(rule!("turns"));
            }
            self.links.requeue(link, key, || self.qps.is_first_of_port(key));
        }
        self.schedule.add_all(self.links.triggered(link).into_iter().flatten());
        left
    }

    /// A receive of `peer` is filled when the last frame has `left`; returns when `key` gets the acknowledgement
    #[inline(always)]
    fn fill(&mut self, key: QpKey, peer: QpKey, remote: Option<(ProcessName, QpName)>, left: Time) -> Time {
        let timing = &self.model.timing;
        let propagation = Nanos(timing.propagation_ns);
        let jitter = self.choices.pick(timing.jitter_ns + 1);
        let late_ns = u64::from(jitter) + self.lateness.ns(&mut *self.choices);
        let arrival = left + propagation + Nanos(timing.delivery_ns + late_ns);
        let qp = &mut self.qps[peer];
        let at = qp.order_delivery(self.world.visible_at(qp.device, arrival));
        match remote {
            Some((process, to)) => {
                if let Some(ended) = qp.pop_receive() {
                    let (from, len, status) = (self.qps[key].qpn, ended.byte_len, ended.status);
                    self.remotes.send(process, &LinkMessage::Filled { to, from, len, status, at });
                }
            }
            None => {
                self.memory.damage(qp.finish_receive());
                self.schedule.add(at, Event::Delivered(qp.in_epoch(peer)));
            }
        }
        if self.trace.keeps() {
            let [from, to] = [key, peer].map(|key| self.qps[key].subject());
            self.trace.note(self.schedule.now(), RecordKind::Filled, to, from.into(), at.as_nanos());
        }
        at + propagation
    }

    /// Schedules the completion of a transmitted send of `key`, by its position in the queue or else the last, and of those that waited
    /// for it
    #[inline(always)]
    pub(super) fn end_send(&mut self, key: QpKey, position: Option<usize>, time: Time) {
        let qp = &mut self.qps[key];
        let position = position.unwrap_or_else(|| qp.last_transmitted());
        let event = Event::Sent(qp.in_epoch(key));
        qp.end_send(position, self.world.visible_at(qp.device, time));
        while let Some(end) = qp.next_end() {
            self.schedule.add(end, event);
        }
    }
}
