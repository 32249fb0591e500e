//! Operations on the memory of the peer, which only some devices have
//!
//! They go out in one piece, and end when the answer is back. For the memory of another process an operation is requested in
//! pieces, one at a time, and each is answered; so neither process has to keep more than a piece.

use rdma_core::{Opcode, SendOp, Status};

use super::Fabric;
use super::event::{Event, Nanos};
use super::ids::{LinkEnd, QpKey, QpRef};
use super::queue_pairs::Head;
use super::remote::remote_name;
use crate::remote::{LinkMessage, ProcessName, QpName};
use crate::trace::RecordKind;

impl Fabric {
    pub(super) fn transmit_one_sided(&mut self, link: LinkEnd, key: QpKey, head: &Head) {
        let (now, len) = (self.schedule.now(), head.span.len);
        let qp = &mut self.qps[key];
        let has_more = qp.transmit_one_sided(now);
        let subject = qp.subject();
        let out = if head.opcode == Opcode::Write { len } else { 0 };
        let left = self.links.occupy(link, now, out);
        self.trace.record_with(now, RecordKind::OneSided, subject, len as u64, left.as_nanos());
        self.schedule.add_all(self.links.triggered(link).into_iter().flatten());
        if has_more {
            self.links.requeue(link, key, || self.qps.is_first_of_port(key));
        }
        let arrival = left + Nanos(self.model.timing.propagation_ns);
        self.schedule.add(arrival, Event::OneSided(self.qps.at(key)));
    }

    /// The oldest operation on its way has reached the peer
    ///
    /// Its bytes move now. On an unreliable queue pair it completes now, too: its memory is not looked at later.
    pub(super) fn one_sided_arrived(&mut self, qp: QpRef) {
        let (key, now) = (qp.key, self.schedule.now());
        let Some(found) = self.qps.live(qp) else { return };
        let is_reliable = found.is_reliable();
        let Some(operation) = found.oldest_one_sided() else { return };
        let peer = self.qps.connected_peer(key, |device| self.world.neighbour(device));
        if peer.is_none() && is_reliable {
            self.qps[key].arrived_early();
            return self.schedule.add_all(self.qps.arm_retry_timer(key, now));
        }
        if let Some((process, to)) = peer.and_then(|peer| remote_name(&self.world, &self.qps[peer])) {
            if !self.qps[key].is_requesting() {
                self.request(key, process, to);
            }
            return;
        }
        self.qps[key].set_applied(operation.position);
        self.coverage.one_sided(operation.op);
        let whole = (0, operation.span.len);
        self.sanitizer.check_send(now, (key, operation.id), operation.span, whole, &self.memory);
        let device = peer.map(|peer| self.qps[peer].device);
        let applied = device.filter(|device| self.memory.apply(operation.op, operation.span, *device));
        if !is_reliable {
            return self.end_send(key, Some(operation.position), now);
        }
        let Some(device) = applied else {
            return self.fail_send(key, operation.position, Status::RemoteAccess);
        };
        let back = if matches!(operation.op, SendOp::Read { .. }) { operation.span.len } else { 0 };
        let mut returned = now;
        if let Some(link) = self.world.link(device) {
            returned = self.links.occupy(link, now, back);
            self.schedule.add_all(self.links.triggered(link).into_iter().flatten());
        }
        let timing = &self.model.timing;
        self.end_send(
            key,
            Some(operation.position),
            returned + Nanos(timing.propagation_ns + timing.delivery_ns),
        );
    }

    /// The retry timer of a reliable queue pair has expired: without a peer, it fails
    pub(super) fn retry(&mut self, qp: QpRef) {
        let (key, now) = (qp.key, self.schedule.now());
        let Some(found) = self.qps.retry_expired(qp) else { return };
        let is_stalled = found.is_stalled();
        if self.qps.connected_peer(key, |device| self.world.neighbour(device)).is_none() {
            return self.fail_send(key, 0, Status::RetryExceeded);
        }
        for _ in 0..self.qps.take_early(key) {
            self.one_sided_arrived(qp);
        }
        if is_stalled || self.qps[key].is_requesting() {
            self.schedule.add_all(self.qps.arm_retry_timer(key, now));
        }
    }

    /// Ends the send at `position` with `status`, and with it the queue pair
    fn fail_send(&mut self, key: QpKey, position: usize, status: Status) {
        // Peers work in order: what was sent before has arrived.
        for number in 0..=position {
            self.send_ended(key, (number == position).then_some(status));
        }
        self.fail_qp(key);
    }

    // ─── Memory of other processes ───

    /// Asks the process of the peer for the next piece of the oldest operation of `key`
    fn request(&mut self, key: QpKey, process: ProcessName, to: QpName) {
        let qp = &mut self.qps[key];
        let (from, request) = (qp.qpn, qp.request());
        if qp.is_reliable() {
            self.schedule.add_all(self.qps.arm_retry_timer(key, self.schedule.now()));
        }
        let Some(request) = request else { return };
        let (op, len) = (request.op, request.span.len as u32);
        let mut send =
            |bytes: &[u8]| self.remotes.send(process, &LinkMessage::Request { to, from, op, len, bytes });
        match op {
            SendOp::Write { .. } => self.memory.show(request.span, send).unwrap_or_default(),
            _ => send(&[]),
        }
    }

    /// The process of the peer has answered the oldest request of `key`
    pub(super) fn on_response(&mut self, key: QpKey, is_ok: bool, bytes: &[u8]) {
        let qp = &mut self.qps[key];
        let is_reliable = qp.is_reliable();
        let Some(answered) = qp.on_response(is_ok) else { return };
        if let Some(into) = answered.into {
            self.memory.write(into, bytes);
        }
        if answered.is_over && !is_ok && is_reliable {
            return self.fail_send(key, answered.position, Status::RemoteAccess);
        }
        if answered.is_over {
            self.end_send(key, Some(answered.position), self.schedule.now());
        }
        let peer = self.qps.connected_peer(key, |device| self.world.neighbour(device));
        if self.qps[key].oldest_one_sided().is_some()
            && let Some((process, to)) = peer.and_then(|peer| remote_name(&self.world, &self.qps[peer]))
        {
            self.request(key, process, to);
        }
    }
}
