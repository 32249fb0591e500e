//! Queue pairs: their states, what may be posted, and what completes

use std::collections::VecDeque;

use rdma_core::{
    Cause, Completion, Error, Lid, Opcode, Psn, QpAddress, QpCapacity, QpInit, QpState, QpType, Qpn,
    RecvRequest, Resource, SendRequest, Sge, Status, Time, Transition, Verb, WrId, frames,
};

use super::{CqKey, DeviceIndex, Event, Fabric, QpKey, RegionKey};

#[derive(Debug)]
pub(super) struct QueuePair {
    pub(super) device: DeviceIndex,
    cq: CqKey,
    pub(super) qpn: Qpn,
    pub(super) state: QpState,
    capacity: QpCapacity,
    /// The queue pair at the other end, once connected.
    pub(super) peer: Qpn,
    /// Where that was found last.
    peer_key: Option<QpKey>,
    pub(super) sends: VecDeque<Send>,
    send_frames: u32,
    /// How many of `sends` have been transmitted and only wait for their completion.
    pub(super) transmitted: usize,
    /// How many of `sends` the transmitter knows of.
    pub(super) rung: usize,
    pub(super) tx: Tx,
    pub(super) receives: VecDeque<Receive>,
    recv_frames: u32,
    /// How many of `receives` have been filled and only wait for their completion.
    pub(super) filled: usize,
    /// Deliveries keep their order whatever the choices add to each.
    pub(super) last_delivery: Time,
}

/// What the transmitter makes of a queue pair
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Tx {
    /// It has nothing to send
    Idle,
    /// It is in the round
    Ready,
    /// It waits for a receive of its peer
    Stalled,
}

#[derive(Debug)]
pub(super) struct Send {
    id: WrId,
    pub(super) memory: Memory,
    is_signaled: bool,
    /// Frames that have left.
    pub(super) sent: u32,
    pub(super) status: Status,
}

#[derive(Debug)]
pub(super) struct Receive {
    id: WrId,
    pub(super) memory: Memory,
    /// When the sender knows of it.
    pub(super) visible: Time,
    /// Frames that have come.
    pub(super) frames_in: u32,
    pub(super) bytes_in: u32,
    pub(super) status: Status,
}

/// A posted range of registered memory
#[derive(Clone, Copy, Debug)]
pub(super) struct Memory {
    pub(super) region: RegionKey,
    pub(super) offset: usize,
    pub(super) len: usize,
}

impl Memory {
    pub(super) fn frames(&self) -> u32 {
        frames(self.len) as u32
    }
}

impl Fabric {
    pub(crate) fn create_qp(
        &mut self,
        device: DeviceIndex,
        cq: CqKey,
        init: &QpInit,
    ) -> Result<QpKey, Error> {
        let fail = |cause| Err(Error::new(Verb::CreateQp, cause));
        if init.qp_type != QpType::Uc {
            return fail(Cause::Unsupported);
        }
        let limit = self.model.caps.max_qp;
        if self.device(device).qps.len() as u32 >= limit {
            return fail(Cause::Exhausted { resource: Resource::QueuePairs, limit });
        }
        let QpCapacity { recv_frames, send_frames } = init.capacity;
        let max = self.model.caps.max_queue_frames;
        if recv_frames.max(send_frames) > max {
            return fail(Cause::Invalid("the queues are longer than the device offers"));
        }
        // A ring of a power of two, of which one entry stays free.
        let grant = |asked: u32| ((asked + 1).next_power_of_two() - 1).min(max);
        let capacity = QpCapacity { recv_frames: grant(recv_frames), send_frames: grant(send_frames) };
        let qpn = self.device_mut(device).take_qpn();
        let key = self.qps.insert(QueuePair {
            device,
            cq,
            qpn,
            state: QpState::Reset,
            capacity,
            peer: Qpn(0),
            peer_key: None,
            sends: VecDeque::with_capacity(64),
            send_frames: 0,
            transmitted: 0,
            rung: 0,
            tx: Tx::Idle,
            receives: VecDeque::with_capacity(64),
            recv_frames: 0,
            filled: 0,
            last_delivery: Time::ZERO,
        });
        self.device_mut(device).qps.push(key);
        Ok(key)
    }

    /// Takes the queue pair away: nothing it has posted is touched any more
    pub(crate) fn destroy_qp(&mut self, key: QpKey) {
        if let Some(qp) = self.qps.remove(key) {
            self.device_mut(qp.device).qps.retain(|other| *other != key);
        }
    }

    pub(crate) fn qp_address(&self, key: QpKey) -> QpAddress {
        let qp = &self.qps[key];
        let gids = self.gids(qp.device);
        let gid = gids
            .iter()
            .find(|gid| gid.ipv4().is_some())
            .or_else(|| gids.first())
            .copied()
            .unwrap_or_default();
        QpAddress { gid, lid: Lid(qp.device.0 as u16 + 1), psn: Psn(7), qpn: qp.qpn }
    }

    pub(crate) fn qp_capacity(&self, key: QpKey) -> QpCapacity {
        self.qps[key].capacity
    }

    pub(crate) fn qp_state(&self, key: QpKey) -> QpState {
        self.qps[key].state
    }

    pub(crate) fn modify_qp(&mut self, key: QpKey, to: Transition) -> Result<(), Error> {
        let fail = |cause| Err(Error::new(Verb::ModifyQp, cause));
        let from = self.qps[key].state;
        let next = match (from, to) {
            (_, Transition::Error) => QpState::Error,
            (_, Transition::Reset) => QpState::Reset,
            (QpState::Reset | QpState::Init, Transition::Init) => QpState::Init,
            (QpState::Init, Transition::ReadyToReceive { peer }) => {
                let neighbour = self.neighbour(self.qps[key].device);
                if !neighbour.is_some_and(|device| self.gids(device).contains(&peer.gid)) {
                    return fail(Cause::PeerUnreachable);
                }
                self.qps[key].peer = peer.qpn;
                QpState::ReadyToReceive
            }
            (QpState::ReadyToReceive, Transition::ReadyToSend) => QpState::ReadyToSend,
            _ => return fail(Cause::Invalid("the queue pair cannot go from its state to that one")),
        };
        self.qps[key].state = next;
        if next == QpState::ReadyToReceive {
            self.announce_receives(key);
        }
        Ok(())
    }

    /// Tells the peer of receives that were posted before it could know of them
    fn announce_receives(&mut self, key: QpKey) {
        let visible = self.now + nanos(self.model.timing.propagation_ns);
        let qp = &mut self.qps[key];
        for receive in &mut qp.receives {
            receive.visible = visible;
        }
        if !qp.receives.is_empty()
            && let Some(sender) = self.connected_peer(key)
        {
            self.announce_credit(sender, visible);
        }
    }

    /// The device at the other end of a device's cable
    pub(super) fn neighbour(&self, device: DeviceIndex) -> Option<DeviceIndex> {
        let (cable, end) = self.device(device).cable?;
        Some(self.cables[cable as usize].devices[1 - usize::from(end)])
    }

    pub(crate) fn post_send(&mut self, key: QpKey, request: &SendRequest<'_>) -> Result<(), Error> {
        let memory = self.resolve(key, request.sgl, Verb::PostSend)?;
        let qp = &mut self.qps[key];
        if qp.state != QpState::ReadyToSend {
            return Err(Error::new(Verb::PostSend, Cause::Invalid("the queue pair is not ready to send")));
        }
        reserve(&mut qp.send_frames, qp.capacity.send_frames, memory.frames(), Verb::PostSend)?;
        let status = Status::Success;
        qp.sends.push_back(Send { id: request.id, memory, is_signaled: request.signaled, sent: 0, status });
        self.trace.record(self.now, 1, qp.qpn.0, memory.len as u64);
        self.schedule.add(self.now + nanos(self.model.timing.doorbell_ns), Event::Doorbell(key));
        Ok(())
    }

    pub(crate) fn post_recv(&mut self, key: QpKey, request: &RecvRequest<'_>) -> Result<(), Error> {
        let memory = self.resolve(key, request.sgl, Verb::PostRecv)?;
        let visible = self.now + nanos(self.model.timing.propagation_ns);
        let qp = &mut self.qps[key];
        if qp.state == QpState::Reset {
            return Err(Error::new(
                Verb::PostRecv,
                Cause::Invalid("the queue pair is not ready for receives"),
            ));
        }
        reserve(&mut qp.recv_frames, qp.capacity.recv_frames, memory.frames(), Verb::PostRecv)?;
        let is_next = qp.receives.len() == qp.filled;
        qp.receives.push_back(Receive {
            id: request.id,
            memory,
            visible,
            frames_in: 0,
            bytes_in: 0,
            status: Status::Success,
        });
        self.trace.record(self.now, 2, qp.qpn.0, memory.len as u64);
        if is_next && let Some(sender) = self.connected_peer(key) {
            self.announce_credit(sender, visible);
        }
        Ok(())
    }

    /// The memory that a request names, checked
    fn resolve(&self, key: QpKey, sgl: &[Sge], verb: Verb) -> Result<Memory, Error> {
        let invalid = |why| Err(Error::new(verb, Cause::Invalid(why)));
        let [sge] = sgl else { return invalid("the device takes exactly one scatter-gather element") };
        let device = self.device(self.qps[key].device);
        let region = device.regions.iter().find(|region| self.regions[**region].lkey == sge.lkey);
        let Some(&region) = region else { return invalid("no memory region of this device has that lkey") };
        let len = sge.len as usize;
        let max = self.model.caps.max_message;
        if sge.len > max {
            return Err(Error::new(verb, Cause::MessageTooLong { len: len as u64, max: max.into() }));
        }
        let found = &self.regions[region];
        let Some(offset) =
            sge.addr.checked_sub(found.base).filter(|o| o + u64::from(sge.len) <= found.len() as u64)
        else {
            return invalid("the memory is not inside its region");
        };
        Ok(Memory { region, offset: offset as usize, len })
    }

    /// The queue pair that `key` is connected to, if it is connected back
    pub(super) fn connected_peer(&mut self, key: QpKey) -> Option<QpKey> {
        let qp = &self.qps[key];
        let (qpn, peer) = (qp.qpn, qp.peer);
        let is_peer = |other: &QueuePair| {
            let is_up = matches!(other.state, QpState::ReadyToReceive | QpState::ReadyToSend);
            is_up && other.qpn == peer && other.peer == qpn
        };
        if let Some(known) = qp.peer_key
            && self.qps.get(known).is_some_and(is_peer)
        {
            return Some(known);
        }
        let device = self.device(self.neighbour(qp.device)?);
        let found = device.qps.iter().copied().find(|other| is_peer(&self.qps[*other]));
        self.qps[key].peer_key = found;
        found
    }

    pub(super) fn sent(&mut self, key: QpKey) {
        let Some(qp) = self.qps.get_mut(key) else { return };
        let Some(send) = qp.sends.pop_front() else { return };
        qp.transmitted -= 1;
        qp.rung -= 1;
        qp.send_frames -= send.memory.frames();
        let (cq, qpn) = (qp.cq, qp.qpn);
        self.trace.record(self.now, 3, qpn.0, u64::from(send.status.code()));
        if send.is_signaled || send.status != Status::Success {
            let byte_len = 0;
            let Send { id, status, .. } = send;
            self.complete(cq, Completion { id, status, opcode: Opcode::Send, byte_len, qpn });
        }
    }

    pub(super) fn delivered(&mut self, key: QpKey) {
        let Some(qp) = self.qps.get_mut(key) else { return };
        let Some(receive) = qp.receives.pop_front() else { return };
        qp.filled -= 1;
        qp.recv_frames -= receive.memory.frames();
        let (cq, qpn) = (qp.cq, qp.qpn);
        let Receive { id, status, bytes_in: byte_len, .. } = receive;
        self.trace.record(self.now, 4, qpn.0, u64::from(byte_len) << 8 | u64::from(status.code()));
        self.complete(cq, Completion { id, status, opcode: Opcode::Recv, byte_len, qpn });
    }
}

/// Takes `wanted` frames of a queue
fn reserve(used: &mut u32, capacity: u32, wanted: u32, verb: Verb) -> Result<(), Error> {
    if wanted > capacity {
        let bytes = |frames: u32| u64::from(frames) * rdma_core::FRAME as u64;
        return Err(Error::new(verb, Cause::MessageTooLong { len: bytes(wanted), max: bytes(capacity) }));
    }
    if *used + wanted > capacity {
        return Err(Error::new(verb, Cause::QueueFull));
    }
    *used += wanted;
    Ok(())
}

pub(super) fn nanos(ns: u64) -> std::time::Duration {
    std::time::Duration::from_nanos(ns)
}
