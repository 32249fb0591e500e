//! Operations on the memory of the peer, which only some devices have
//!
//! They go out in one piece, and end when the answer is back.

use rdma_core::{Access, QpState, QpType, Rkey, SendOp, Status};

use super::queue_pair::{Memory, QpRef, QueuePair, Tx};
use super::{DeviceIndex, Event, Fabric, QpKey, RegionKey, memory, nanos};
use crate::trace::RecordKind;

impl Fabric {
    pub(super) fn transmit_one_sided(&mut self, cable: u32, end: u8, key: QpKey) {
        let now = self.now;
        let qp = &mut self.qps[key];
        qp.last_active = now;
        let (op, len, qpn) = {
            let send = &qp.sends[qp.transmitted];
            (send.op, send.memory.len, qp.name())
        };
        qp.transmitted += 1;
        let has_more = qp.transmitted < qp.rung;
        qp.tx = if has_more { Tx::Ready } else { Tx::Idle };
        self.record(RecordKind::OneSided, qpn, len as u64);
        let out = if matches!(op, SendOp::Write { .. }) { len } else { 0 };
        let left = self.occupy(cable, end, out);
        if has_more {
            self.direction(cable, end).round.push_back(key);
        }
        let arrival = left + nanos(self.model.timing.propagation_ns);
        self.schedule.add(arrival, Event::Remote(self.qp_ref(key)));
    }

    /// Occupies one direction of a cable with `len` bytes; tells when they have left
    fn occupy(&mut self, cable: u32, end: u8, len: usize) -> rdma_core::Time {
        let (now, per_message) = (self.now, self.model.timing.per_message_ns);
        let cable = &mut self.cables[cable as usize];
        let frames = rdma_core::frames(len) as u64;
        let full = cable.frame_ns(rdma_core::FRAME);
        let last = cable.frame_ns(len - (frames as usize - 1) * rdma_core::FRAME);
        let wire_bytes = cable.rate.wire_bytes(len);
        let direction = &mut cable.directions[usize::from(end)];
        let left = direction.busy_until.max(now) + nanos(per_message + (frames - 1) * full + last);
        direction.busy_until = left;
        direction.stats.frames += frames;
        direction.stats.messages += 1;
        direction.stats.payload_bytes += len as u64;
        direction.stats.wire_bytes += wire_bytes;
        while let Some(fault) = direction.pop_triggered() {
            self.schedule.add(left, Event::Fault(fault));
        }
        left
    }

    /// The oldest operation on its way has reached the peer
    ///
    /// Its bytes move now. On an unreliable queue pair it completes now, too: its memory is not looked at later.
    pub(super) fn remote(&mut self, qp: QpRef) {
        let peer = self.live(qp).is_some().then(|| self.connected_peer(qp.key)).flatten();
        let Some(found) = self.live(qp) else { return };
        let is_reliable = found.qp_type == QpType::Rc;
        let Some(position) = found.oldest_one_sided() else { return };
        if peer.is_none() && is_reliable {
            return self.be_patient(qp.key);
        }
        if let Some((host, to)) = peer.and_then(|peer| self.far_name(peer)) {
            return self.ask(qp.key, host, to);
        }
        let Some(found) = self.live(qp) else { return };
        let send = &mut found.sends[position];
        send.is_applied = true;
        let (op, memory) = (send.op, send.memory);
        self.check_send(qp.key, position);
        let device = peer.map(|peer| self.qps[peer].device);
        let applied = device.filter(|device| self.apply(op, memory, *device));
        if !is_reliable {
            return self.complete_send_at(qp.key, position, self.now);
        }
        let Some(device) = applied else { return self.fail_send(qp, position, Status::RemoteAccess) };
        let back = if matches!(op, SendOp::Read { .. }) { memory.len } else { 0 };
        let returned = match self.device(device).cable {
            Some((cable, end)) => self.occupy(cable, end, back),
            None => self.now,
        };
        let timing = &self.model.timing;
        let answer = returned + nanos(timing.propagation_ns + timing.delivery_ns);
        self.complete_send_at(qp.key, position, answer);
    }

    /// Does what `op` asks for; false if the memory is not there or not for this
    fn apply(&mut self, op: SendOp, local: Memory, device: DeviceIndex) -> bool {
        let Some((remote, offset)) = self.target(device, op, local.len) else { return false };
        let (Some(here), Some(there)) = (self.regions.get(local.region), self.regions.get(remote)) else {
            return false;
        };
        match op {
            SendOp::Write { .. } => memory::copy(here, local.offset, there, offset, local.len, false),
            SendOp::Read { .. } => memory::copy(there, offset, here, local.offset, local.len, false),
            _ => {
                here.write(local.offset, &exchange(op, there, offset));
                true
            }
        }
    }

    /// The memory of `device` that an operation of `len` bytes means, if it is there, and for this
    pub(super) fn target(&self, device: DeviceIndex, op: SendOp, len: usize) -> Option<(RegionKey, usize)> {
        match op {
            SendOp::Write { remote_addr, rkey } => {
                self.find_remote(device, rkey, remote_addr, len, Access::REMOTE_WRITE)
            }
            SendOp::Read { remote_addr, rkey } => {
                self.find_remote(device, rkey, remote_addr, len, Access::REMOTE_READ)
            }
            SendOp::FetchAdd { remote_addr, rkey, .. } | SendOp::CompareSwap { remote_addr, rkey, .. }
                if len >= 8 && remote_addr.is_multiple_of(8) =>
            {
                self.find_remote(device, rkey, remote_addr, 8, Access::REMOTE_ATOMIC)
            }
            _ => None,
        }
    }

    fn find_remote(
        &self,
        device: DeviceIndex,
        rkey: Rkey,
        addr: u64,
        len: usize,
        access: Access,
    ) -> Option<(RegionKey, usize)> {
        let regions = &self.device(device).regions;
        let key = *regions.iter().find(|key| self.regions[**key].rkey == Some(rkey))?;
        let region = &self.regions[key];
        let offset = region.offset(addr, len)?;
        region.access.contains(access).then_some((key, offset))
    }

    /// A reliable queue pair has waited long enough for a peer that is not there
    pub(super) fn give_up(&mut self, qp: QpRef) {
        let Some(found) = self.live(qp) else { return };
        found.is_giving_up = false;
        let is_stalled = found.tx == Tx::Stalled;
        if self.connected_peer(qp.key).is_none() {
            return self.fail_send(qp, 0, Status::RetryExceeded);
        }
        self.remote(qp);
        if is_stalled || self.qps[qp.key].asking.is_some() {
            self.be_patient(qp.key);
        }
    }

    /// Ends the send at `position` with `status`, and with it the queue pair
    pub(super) fn fail_send(&mut self, qp: QpRef, position: usize, status: Status) {
        // Peers work in order: what was sent before has arrived.
        for number in 0..=position {
            let Some(mut send) = self.live(qp).and_then(|found| found.sends.pop_front()) else { return };
            if number == position {
                send.status = status;
            }
            self.finish(qp.key, &send);
        }
        self.qps[qp.key].state = QpState::Error;
        self.fail_qp(qp.key);
    }
}

/// Does an atomic operation on the eight bytes at `offset`, and tells what they were
pub(super) fn exchange(op: SendOp, region: &memory::Region, offset: usize) -> Vec<u8> {
    let old = region.bytes(offset, 8);
    let was = old.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes));
    if let Some(new) = replacement(op, was) {
        region.write(offset, &new.to_le_bytes());
    }
    old
}

/// What an atomic operation leaves where `was` has been; `None` if that stays
fn replacement(op: SendOp, was: u64) -> Option<u64> {
    match op {
        SendOp::FetchAdd { add, .. } => Some(was.wrapping_add(add)),
        SendOp::CompareSwap { compare, swap, .. } if was == compare => Some(swap),
        _ => None,
    }
}

impl QueuePair {
    /// The oldest one-sided operation that has left and not been done, by its position in the queue
    pub(super) fn oldest_one_sided(&self) -> Option<usize> {
        let mut sent = self.sends.iter().take(self.transmitted);
        sent.position(|send| send.op != SendOp::Send && !send.is_applied)
    }
}
