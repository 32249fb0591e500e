//! Posting requests, and completing them

use std::panic::Location;

use rdma_core::{
    Cause, Error, Invalid, Opcode, QpState, QpType, RecvRequest, SendOp, SendRequest, Status, Verb,
};

use super::Fabric;
use super::event::{Event, Nanos};
use super::ids::{QpKey, QpRef};
use super::queue_pairs::{Admission, opcode};
use crate::Model;
use crate::catalogue::rule;
use crate::remote::{LinkMessage, ProcessName};
use crate::rules::{MultiSge, RingOverflow, UcWrite};
use crate::trace::RecordKind;

impl Fabric {
    pub(crate) fn post_send(
        &mut self,
        key: QpKey,
        request: &SendRequest<'_>,
        site: &'static Location<'static>,
    ) -> Result<(), Error> {
        let fail = |cause| Error::new(Verb::PostSend, cause);
        let now = self.schedule.now();
        let qp = self.qps.require(key, Verb::PostSend)?;
        let op = if matches!(request.op, SendOp::Send) {
            SendOp::Send
        } else {
            let op = supported(&self.model, qp.qp_type, request.op);
            self.coverage.operation(request.op, op.is_err(), &self.model);
            op.map_err(fail)?
        };
        let (first, others) = match request.sgl {
            [first, others @ ..] if others.is_empty() || self.model.rules.multi_sge == MultiSge::Split => {
                (first, others)
            }
            _ => return Err(fail(Invalid::SgeCount { count: request.sgl.len(), max: 1 }.into())),
        };
        if qp.admit_send(self.model.caps.flush_on_error).map_err(fail)? == Admission::Flushed {
            let flushed = qp.flushed_send(request.id, op);
            self.complete(flushed);
            return Ok(());
        }
        // The device accepts all elements or none.
        let (device, max) = (qp.device, self.model.caps.max_message);
        let Some(first) = self.memory.find(device, first, max) else {
            return Err(self.memory.refusal(device, first, max, Verb::PostSend));
        };
        let mut size = qp.send_size(first)?;
        for sge in others {
            size += qp.send_size(self.memory.resolve(device, sge, max, Verb::PostSend)?)?;
        }
        qp.reserve_sends(size)?;
        self.cpu.spend(self.model.timing.post_ns);
        if !others.is_empty() {
            self.coverage.rule(rule!("multi-sge"));
        }
        // No chain of the first and the others: an element of a chain is copied right after it was written, which is slow.
        let (mut next, mut others) = (Some(first), others.iter());
        while let Some(span) = next {
            let qp = &mut self.qps[key];
            qp.push_send(request.id, &op, span, request.signaled);
            let (subject, doorbell) = (qp.subject(), Event::Doorbell(qp.in_epoch(key)));
            self.sanitizer.watch(now, key, request.id, opcode(op), span, site, &self.memory);
            self.trace.record_with(now, RecordKind::PostSend, subject, span.len as u64, request.id.0);
            if self.trace.keeps() {
                self.trace.note_beginning(self.memory.beginning(op, span));
            }
            let late_ns = self.lateness.ns(&mut *self.choices);
            let rings = now + Nanos(self.cpu.ahead_ns() + self.model.timing.doorbell_ns + late_ns);
            self.schedule.add(rings, doorbell);
            next = others.next().and_then(|sge| self.memory.resolve(device, sge, max, Verb::PostSend).ok());
        }
        Ok(())
    }

    pub(crate) fn post_recv(
        &mut self,
        key: QpKey,
        request: &RecvRequest<'_>,
        site: &'static Location<'static>,
    ) -> Result<(), Error> {
        let fail = |cause| Error::new(Verb::PostRecv, cause);
        let [sge] = request.sgl else {
            return Err(fail(Invalid::SgeCount { count: request.sgl.len(), max: 1 }.into()));
        };
        let (now, Model { caps, rules, timing, .. }) = (self.schedule.now(), &self.model);
        let qp = self.qps.require(key, Verb::PostRecv)?;
        if qp.admit_receive(rules.early_receives, caps.flush_on_error).map_err(fail)? == Admission::Flushed {
            let flushed = qp.flushed_receive(request.id);
            self.complete(flushed);
            return Ok(());
        }
        let device = qp.device;
        if qp.state != QpState::ReadyToSend {
            self.coverage.rule(rule!("receives-before-rts"));
        }
        let Some(span) = self.memory.find(device, sge, caps.max_message) else {
            return Err(self.memory.refusal(device, sge, caps.max_message, Verb::PostRecv));
        };
        let status = self.memory.initial_status(span, qp.ready_at, rules.late_registration);
        if status != Status::Success {
            let is_late = self.memory.is_late(span, qp.ready_at);
            self.coverage.rule(if is_late { rule!("late-registration") } else { rule!("receive-access") });
        }
        let overflows = rules.ring_overflow == RingOverflow::Corrupts || self.world.overflows(device);
        self.cpu.spend(timing.post_ns);
        let visible = now + Nanos(self.cpu.ahead_ns() + timing.propagation_ns);
        let is_next = qp.push_receive(request.id, span, visible, status, overflows)?;
        if overflows && qp.has_overflowed() {
            self.coverage.rule(rule!("ring-overflow"));
        }
        let (subject, name, peer, is_up) = (qp.subject(), qp.name(), qp.peer, qp.is_up());
        self.sanitizer.watch(now, key, request.id, Opcode::Recv, span, site, &self.memory);
        self.trace.record_with(now, RecordKind::PostRecv, subject, span.len as u64, request.id.0);
        if is_next {
            let neighbour = |device| self.world.neighbour(device);
            let credit = self.qps.announce_credit(key, visible, neighbour);
            if credit.is_some() {
                self.coverage.rule(rule!("credit-delay"));
            }
            self.schedule.add_all(credit);
        }
        if is_up && let Some(host) = self.world.remote_neighbour(device) {
            let len = span.len as u32;
            self.remotes.send(
                ProcessName::of(host, peer),
                &LinkMessage::ReceivePosted { qp: name, len, at: visible },
            );
        }
        Ok(())
    }

    /// The oldest send of a queue pair has ended, with `status` if there is one
    pub(super) fn send_ended(&mut self, key: QpKey, status: Option<Status>) {
        let qp = &mut self.qps[key];
        let Some(ended) = qp.pop_send(status) else { return };
        self.sanitizer.unwatch(key, ended.id, ended.opcode);
        let code = ended.status.code().into();
        self.trace.record(self.schedule.now(), RecordKind::Sent, qp.subject(), code);
        if ended.is_due {
            let completion = qp.send_completion(&ended);
            self.complete(completion);
        } else if ended.is_unsignaled {
            self.coverage.rule(rule!("unsignaled"));
        }
    }

    /// The oldest receive of a queue pair has ended
    pub(super) fn receive_ended(&mut self, qp: QpRef) {
        let (key, now) = (qp.key, self.schedule.now());
        let Some(qp) = self.qps.live(qp) else { return };
        let Some(ended) = qp.pop_receive() else { return };
        self.sanitizer.check_receive(now, key, &ended, &self.memory);
        let value = u64::from(ended.byte_len) << 8 | u64::from(ended.status.code());
        self.trace.record(now, RecordKind::Delivered, qp.subject(), value);
        let completion = qp.receive_completion(&ended);
        self.complete(completion);
    }
}

/// What the device makes of an operation
fn supported(model: &Model, qp_type: QpType, op: SendOp) -> Result<SendOp, Cause> {
    let one_sided = model.caps.one_sided;
    match op {
        SendOp::Send => Ok(op),
        SendOp::Write { .. } if one_sided => Ok(op),
        SendOp::Write { .. } if model.rules.uc_write == UcWrite::AsSend => Ok(SendOp::Send),
        _ if one_sided && qp_type == QpType::Rc => Ok(op),
        _ => Err(Cause::Unsupported),
    }
}
