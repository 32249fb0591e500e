//! Posting and completing

use std::panic::Location;

use rdma_core::{
    Access, Cause, Completion, Error, FRAME, Invalid, Opcode, QpState, QpType, RecvRequest, SendOp,
    SendRequest, Sge, Status, Verb,
};

use super::queue_pair::{Memory, QpRef, QueuePair, Receive, Send};
use super::{Event, Fabric, QpKey, nanos};
use crate::rules::{EarlyReceives, MultiSge, RingOverflow, UcWrite};
use crate::trace::RecordKind;

impl Fabric {
    pub(crate) fn post_send(
        &mut self,
        key: QpKey,
        request: &SendRequest<'_>,
        site: &'static Location<'static>,
    ) -> Result<(), Error> {
        let fail = |cause| Err(Error::new(Verb::PostSend, cause));
        let op = self.supported(key, request.op)?;
        let splits = self.model.rules.multi_sge == MultiSge::Split;
        if request.sgl.is_empty() || request.sgl.len() > 1 && !splits {
            return fail(Invalid::SgeCount { count: request.sgl.len(), max: 1 }.into());
        }
        let flushes = self.model.caps.flush_on_error;
        let qp = self.qp_mut(key, Verb::PostSend)?;
        match qp.state {
            _ if qp.is_stale => return fail(Cause::DeviceGone),
            QpState::ReadyToSend => (),
            QpState::Error if flushes => {
                let (cq, qpn, id) = (qp.send_cq, qp.qpn, request.id);
                self.complete(cq, flushed(id, opcode(op), qpn));
                return Ok(());
            }
            state => return fail(Invalid::State { state }.into()),
        }
        // All elements are taken or none.
        let (first, others) = (&request.sgl[0], &request.sgl[1..]);
        let first = self.resolve(key, first, Verb::PostSend)?;
        let qp = &self.qps[key];
        let (capacity, mut frames) = (qp.capacity.send_frames, qp.taken_by(&first));
        check_length(frames, capacity, Verb::PostSend)?;
        for sge in others {
            let memory = self.resolve(key, sge, Verb::PostSend)?;
            let wanted = self.qps[key].taken_by(&memory);
            check_length(wanted, capacity, Verb::PostSend)?;
            frames += wanted;
        }
        reserve(&mut self.qps[key].send_frames, capacity, frames, false, Verb::PostSend)?;
        let mut rest = others.iter();
        let mut next = Some(first);
        while let Some(memory) = next {
            next = rest.next().and_then(|sge| self.resolve(key, sge, Verb::PostSend).ok());
            let qp = &mut self.qps[key];
            let name = qp.name();
            qp.sends.push_back(Send {
                id: request.id,
                op,
                memory,
                is_signaled: request.signaled,
                sent: 0,
                is_lost: false,
                is_split: false,
                is_applied: false,
                is_reported: false,
                ends: None,
                status: Status::Success,
            });
            self.watch_send(key, request.id, opcode(op), memory, site);
            self.record(RecordKind::PostSend, name, memory.len as u64);
            let doorbell = self.now + nanos(self.model.timing.doorbell_ns);
            self.schedule.add(doorbell, Event::Doorbell(self.qp_ref(key)));
        }
        Ok(())
    }

    /// What the device makes of an operation
    fn supported(&mut self, key: QpKey, op: SendOp) -> Result<SendOp, Error> {
        let fail = |cause| Err(Error::new(Verb::PostSend, cause));
        let (one_sided, uc_write) = (self.model.caps.one_sided, self.model.rules.uc_write);
        let qp_type = self.qp_mut(key, Verb::PostSend)?.qp_type;
        match op {
            SendOp::Send => Ok(op),
            SendOp::Write { .. } if one_sided => Ok(op),
            SendOp::Write { .. } if uc_write == UcWrite::AsSend => Ok(SendOp::Send),
            _ if one_sided && qp_type == QpType::Rc => Ok(op),
            _ => fail(Cause::Unsupported),
        }
    }

    pub(crate) fn post_recv(
        &mut self,
        key: QpKey,
        request: &RecvRequest<'_>,
        site: &'static Location<'static>,
    ) -> Result<(), Error> {
        let fail = |cause| Err(Error::new(Verb::PostRecv, cause));
        let [sge] = request.sgl else {
            return fail(Invalid::SgeCount { count: request.sgl.len(), max: 1 }.into());
        };
        let early = self.model.rules.early_receives;
        let flushes = self.model.caps.flush_on_error;
        let qp = self.qp_mut(key, Verb::PostRecv)?;
        let is_ready = match qp.state {
            _ if qp.is_stale => return fail(Cause::DeviceGone),
            QpState::Error if flushes => {
                let (cq, qpn) = (qp.recv_cq, qp.qpn);
                self.complete(cq, flushed(request.id, Opcode::Recv, qpn));
                return Ok(());
            }
            QpState::Init => early == EarlyReceives::FromInit,
            QpState::ReadyToReceive => early != EarlyReceives::FromReadyToSend,
            QpState::ReadyToSend => true,
            _ => false,
        };
        if !is_ready {
            return fail(Invalid::State { state: qp.state }.into());
        }
        let memory = self.resolve(key, sge, Verb::PostRecv)?;
        let visible = self.now + nanos(self.model.timing.propagation_ns);
        let takes_more = self.takes_more(key);
        let status = self.landing(key, memory);
        let qp = &mut self.qps[key];
        let (capacity, frames) = (qp.capacity.recv_frames, qp.taken_by(&memory));
        check_length(frames, capacity, Verb::PostRecv)?;
        reserve(&mut qp.recv_frames, capacity, frames, takes_more, Verb::PostRecv)?;
        let is_next = qp.receives.len() == qp.filled;
        let name = qp.name();
        qp.receives.push_back(Receive {
            id: request.id,
            memory,
            visible,
            frames_in: 0,
            bytes_in: 0,
            is_beyond: qp.recv_frames > qp.capacity.recv_frames,
            status,
        });
        self.watch_receive(key, request.id, memory, site);
        self.record(RecordKind::PostRecv, name, memory.len as u64);
        if is_next && let Some(sender) = self.connected_peer(key) {
            self.announce_credit(sender, visible);
        }
        self.announce_receive(key, memory.len);
        Ok(())
    }

    /// How a receive into that memory will end if nothing else goes wrong
    fn landing(&self, key: QpKey, memory: Memory) -> Status {
        let region = &self.regions[memory.region];
        let ready_at = self.qps[key].ready_at;
        let is_late = ready_at > 0 && region.registered > ready_at && !self.model.rules.late_registration;
        let is_writable = region.access.contains(Access::LOCAL_WRITE);
        if is_late || !is_writable { Status::LocalProtection } else { Status::Success }
    }

    /// Whether the receive queue of `key` takes more than it holds
    fn takes_more(&self, key: QpKey) -> bool {
        let is_overflowing = self.device(self.qps[key].device).trouble.overflows;
        is_overflowing || self.model.rules.ring_overflow == RingOverflow::Corrupts
    }

    /// The memory that an element names, checked
    fn resolve(&self, key: QpKey, sge: &Sge, verb: Verb) -> Result<Memory, Error> {
        let invalid = |why: Invalid| Err(Error::new(verb, why.into()));
        let device = self.device(self.qps[key].device);
        let region = device.regions.iter().find(|region| self.regions[**region].lkey == sge.lkey);
        let Some(&region) = region else { return invalid(Invalid::Lkey { lkey: sge.lkey }) };
        let len = sge.len as usize;
        let max = self.model.caps.max_message;
        if sge.len > max {
            return Err(Error::new(verb, Cause::MessageTooLong { len: len as u64, max: max.into() }));
        }
        match self.regions[region].offset(sge.addr, len) {
            Some(offset) => Ok(Memory { region, offset, len }),
            None => invalid(Invalid::OutsideRegion { addr: sge.addr, len: sge.len }),
        }
    }

    // ─── Completing ───

    pub(super) fn sent(&mut self, qp: QpRef) {
        let Some(found) = self.live(qp) else { return };
        if let Some(send) = found.pop_sent() {
            self.finish(qp.key, &send);
        }
    }

    /// Reports a send that has ended and that its queue does not hold any more
    pub(super) fn finish(&mut self, key: QpKey, send: &Send) {
        let (cq, qpn, name) = (self.qps[key].send_cq, self.qps[key].qpn, self.qps[key].name());
        self.unwatch(key, send.id, opcode(send.op));
        self.record(RecordKind::Sent, name, u64::from(send.status.code()));
        if (send.is_signaled || send.status != Status::Success) && !send.is_reported {
            let Send { id, status, op, .. } = *send;
            self.complete(cq, Completion { id, status, opcode: opcode(op), byte_len: 0, qpn });
        }
    }

    /// Reports a send before it has left
    pub(super) fn report_early(&mut self, key: QpKey) {
        let qp = &mut self.qps[key];
        let (cq, qpn) = (qp.send_cq, qp.qpn);
        let send = &mut qp.sends[qp.transmitted];
        let Send { id, status, op, is_signaled, .. } = *send;
        if is_signaled && !std::mem::replace(&mut send.is_reported, true) {
            self.complete(cq, Completion { id, status, opcode: opcode(op), byte_len: 0, qpn });
        }
    }

    pub(super) fn delivered(&mut self, qp: QpRef) {
        let Some(found) = self.live(qp) else { return };
        let Some(receive) = found.receives.pop_front() else { return };
        found.filled -= 1;
        found.recv_frames -= found.taken_by(&receive.memory);
        let (cq, qpn, name) = (found.recv_cq, found.qpn, found.name());
        self.check_receive(qp.key, &receive);
        let Receive { id, status, bytes_in: byte_len, .. } = receive;
        self.record(RecordKind::Delivered, name, u64::from(byte_len) << 8 | u64::from(status.code()));
        self.complete(cq, Completion { id, status, opcode: Opcode::Recv, byte_len, qpn });
    }

    /// Completes everything that is posted on a failed queue pair
    pub(super) fn flush(&mut self, key: QpKey) {
        let qp = &mut self.qps[key];
        let (send_cq, recv_cq, qpn) = (qp.send_cq, qp.recv_cq, qp.qpn);
        let sends: Vec<_> = qp.sends.drain(..).map(|send| (send.id, opcode(send.op))).collect();
        let receives: Vec<_> = qp.receives.drain(..).map(|receive| (receive.id, Opcode::Recv)).collect();
        qp.clear();
        self.forget_posts_of(key);
        for (id, opcode) in sends {
            self.complete(send_cq, flushed(id, opcode, qpn));
        }
        for (id, opcode) in receives {
            self.complete(recv_cq, flushed(id, opcode, qpn));
        }
    }
}

impl QueuePair {
    /// The oldest send that has left
    pub(super) fn pop_sent(&mut self) -> Option<Send> {
        let send = self.sends.pop_front()?;
        self.transmitted -= 1;
        self.ending = self.ending.saturating_sub(1);
        self.rung -= 1;
        self.send_frames -= self.taken_by(&send.memory);
        Some(send)
    }
}

pub(super) fn opcode(op: SendOp) -> Opcode {
    match op {
        SendOp::Write { .. } => Opcode::Write,
        SendOp::Read { .. } => Opcode::Read,
        SendOp::FetchAdd { .. } | SendOp::CompareSwap { .. } => Opcode::Atomic,
        _ => Opcode::Send,
    }
}

fn flushed(id: rdma_core::WrId, opcode: Opcode, qpn: rdma_core::Qpn) -> Completion {
    Completion { id, status: Status::Flushed, opcode, byte_len: 0, qpn }
}

/// Whether a message of `wanted` frames fits an empty queue
fn check_length(wanted: u32, capacity: u32, verb: Verb) -> Result<(), Error> {
    let bytes = |frames: u32| u64::from(frames) * FRAME as u64;
    if wanted <= capacity {
        return Ok(());
    }
    Err(Error::new(verb, Cause::MessageTooLong { len: bytes(wanted), max: bytes(capacity) }))
}

/// Takes `wanted` frames of a queue
fn reserve(used: &mut u32, capacity: u32, wanted: u32, takes_more: bool, verb: Verb) -> Result<(), Error> {
    if *used + wanted > capacity && !takes_more {
        return Err(Error::new(verb, Cause::QueueFull));
    }
    *used += wanted;
    Ok(())
}
