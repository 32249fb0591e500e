//! Queue pairs: what they are, how they come and go

use std::collections::VecDeque;

use rdma_core::{
    Cause, Error, Invalid, Lid, Psn, QpAddress, QpCapacity, QpInit, QpState, QpType, Qpn, Resource, SendOp,
    Status, Time, Verb, WrId, frames,
};

use super::{CqKey, DeviceIndex, DeviceRef, Fabric, QpKey, RegionKey};
use crate::rules::QueueUnit;

#[derive(Debug)]
pub(super) struct QueuePair {
    pub(super) device: DeviceIndex,
    pub(super) send_cq: CqKey,
    pub(super) recv_cq: CqKey,
    pub(super) qpn: Qpn,
    pub(super) qp_type: QpType,
    pub(super) state: QpState,
    pub(super) capacity: QpCapacity,
    /// What its queues count.
    pub(super) unit: QueueUnit,
    /// The queue pair at the other end, once connected.
    pub(super) peer: Qpn,
    /// Where that was found last.
    pub(super) peer_key: Option<QpKey>,
    /// Grows when everything that is under way stops to mean anything.
    pub(super) epoch: u16,
    /// Its cable was pulled: nothing will ever happen on it again.
    pub(super) is_stale: bool,
    /// It has rested for too long: nothing will ever happen on it again, and nobody is told.
    pub(super) is_dead: bool,
    /// A step to ready-to-receive failed: the device has begun and does not begin again.
    pub(super) is_half_connected: bool,
    /// When it became ready to receive, by the clock of set-up.
    pub(super) ready_at: u64,
    pub(super) last_active: Time,
    pub(super) sends: VecDeque<Send>,
    pub(super) send_frames: u32,
    /// How many of `sends` have been transmitted and only wait for their completion.
    pub(super) transmitted: usize,
    /// How many of `sends` have a completion on its way.
    pub(super) ending: usize,
    /// How many of `sends` the transmitter knows of.
    pub(super) rung: usize,
    pub(super) tx: Tx,
    /// Whether a [`GiveUp`](super::Event::GiveUp) is on its way.
    pub(super) is_giving_up: bool,
    pub(super) receives: VecDeque<Receive>,
    pub(super) recv_frames: u32,
    /// How many of `receives` have been filled and only wait for their completion.
    pub(super) filled: usize,
    /// Of a one-sided operation on far memory, the bytes that are done.
    pub(super) asking: Option<usize>,
    /// Deliveries keep their order whatever the choices add to each.
    pub(super) last_delivery: Time,
    pub(super) last_departure: Time,
}

/// A queue pair as it was when something began
#[derive(Clone, Copy, Debug)]
pub(super) struct QpRef {
    pub(super) key: QpKey,
    epoch: u16,
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
    pub(super) id: WrId,
    pub(super) op: SendOp,
    pub(super) memory: Memory,
    pub(super) is_signaled: bool,
    /// Frames that have left.
    pub(super) sent: u32,
    /// It goes nowhere: it was lost, or found no receive.
    pub(super) is_lost: bool,
    /// It does not fit the receives that it found.
    pub(super) is_split: bool,
    /// It has done its work in the memory of the peer.
    pub(super) is_applied: bool,
    /// Its completion came before it had left.
    pub(super) is_reported: bool,
    /// When its completion can be seen, once that is known.
    pub(super) ends: Option<Time>,
    pub(super) status: Status,
}

#[derive(Debug)]
pub(super) struct Receive {
    pub(super) id: WrId,
    pub(super) memory: Memory,
    /// When the sender knows of it.
    pub(super) visible: Time,
    /// Frames that have come.
    pub(super) frames_in: u32,
    pub(super) bytes_in: u32,
    /// It was posted beyond the end of the ring.
    pub(super) is_beyond: bool,
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

impl QueuePair {
    pub(super) fn new(
        device: DeviceIndex,
        [send_cq, recv_cq]: [CqKey; 2],
        qpn: Qpn,
        qp_type: QpType,
        capacity: QpCapacity,
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
            unit: QueueUnit::Frames,
            peer: Qpn(0),
            peer_key: None,
            epoch: 0,
            is_stale: false,
            is_dead: false,
            is_half_connected: false,
            ready_at: 0,
            last_active: now,
            sends: VecDeque::with_capacity(64),
            send_frames: 0,
            transmitted: 0,
            ending: 0,
            rung: 0,
            tx: Tx::Idle,
            is_giving_up: false,
            receives: VecDeque::with_capacity(64),
            recv_frames: 0,
            filled: 0,
            asking: None,
            last_delivery: Time::ZERO,
            last_departure: Time::ZERO,
        }
    }

    /// Forgets everything that is posted and under way
    pub(super) fn clear(&mut self) {
        self.epoch = self.epoch.wrapping_add(1);
        self.peer_key = None;
        self.sends.clear();
        self.send_frames = 0;
        self.transmitted = 0;
        self.ending = 0;
        self.rung = 0;
        self.tx = Tx::Idle;
        self.is_giving_up = false;
        self.ready_at = 0;
        self.receives.clear();
        self.recv_frames = 0;
        self.filled = 0;
        self.asking = None;
    }

    /// Nothing that is under way will arrive, and what is posted stays posted
    pub(super) fn freeze(&mut self) {
        self.epoch = self.epoch.wrapping_add(1);
        self.tx = Tx::Idle;
        self.is_giving_up = false;
    }

    /// How much of a queue a request for that memory takes
    pub(super) fn taken_by(&self, memory: &Memory) -> u32 {
        match self.unit {
            QueueUnit::Frames => memory.frames(),
            QueueUnit::Requests => 1,
        }
    }

    /// How the trace calls it: numbers are unique on a device only
    pub(super) fn name(&self) -> u32 {
        self.device.0 << 20 | self.qpn.0
    }

    /// Whether it receives
    pub(super) fn is_up(&self) -> bool {
        matches!(self.state, QpState::ReadyToReceive | QpState::ReadyToSend)
    }

    pub(super) fn is_alive(&self) -> bool {
        !self.is_stale && !self.is_dead
    }
}

impl Fabric {
    pub(crate) fn create_qp(
        &mut self,
        device: DeviceRef,
        [send_cq, recv_cq]: [CqKey; 2],
        init: &QpInit,
    ) -> Result<QpKey, Error> {
        let fail = |cause| Err(Error::new(Verb::CreateQp, cause));
        self.require_usable(device, Verb::CreateQp)?;
        if !self.has_cq(send_cq) || !self.has_cq(recv_cq) {
            return fail(Cause::DeviceGone);
        }
        let is_supported = match init.qp_type {
            QpType::Uc => true,
            QpType::Rc => self.model.caps.one_sided,
            _ => false,
        };
        if !is_supported {
            return fail(Cause::Unsupported);
        }
        let limit = self.model.caps.max_qp;
        let index = device.index;
        let owner = self.device(index);
        if (owner.qps.len() as u32).saturating_add(owner.lost_qps) >= limit {
            return fail(Cause::Exhausted { resource: Resource::QueuePairs, limit });
        }
        let QpCapacity { recv_frames, send_frames } = init.capacity;
        let max = self.model.caps.max_queue_frames;
        let frames = recv_frames.max(send_frames);
        if frames > max {
            return fail(Invalid::QueueFrames { frames, max }.into());
        }
        // A ring of a power of two, of which one entry stays free.
        let grant = |asked: u32| ((asked + 1).next_power_of_two() - 1).min(max);
        let capacity = QpCapacity { recv_frames: grant(recv_frames), send_frames: grant(send_frames) };
        let qpn = self.take_qpn(index);
        let cqs = [send_cq, recv_cq];
        let mut qp = QueuePair::new(index, cqs, qpn, init.qp_type, capacity, self.now);
        qp.unit = self.model.rules.queue_unit;
        let key = self.qps.insert(qp);
        self.device_mut(index).qps.push(key);
        Ok(key)
    }

    /// Takes the queue pair away: nothing it has posted is touched any more
    pub(crate) fn destroy_qp(&mut self, key: QpKey) {
        self.forget_posts_of(key);
        self.announce_end(key);
        if let Some(qp) = self.qps.remove(key) {
            self.device_mut(qp.device).qps.retain(|other| *other != key);
        }
    }

    pub(crate) fn qp_address(&self, key: QpKey) -> QpAddress {
        let qp = &self.qps[key];
        let gids = self.gids(qp.device);
        let ipv4 = gids.iter().find(|gid| gid.ipv4().is_some());
        let gid = ipv4.or_else(|| gids.iter().find(|gid| !gid.is_zero())).copied().unwrap_or_default();
        QpAddress { gid, lid: Lid(qp.device.0 as u16 + 1), psn: Psn(7), qpn: qp.qpn }
    }

    pub(crate) fn qp_capacity(&self, key: QpKey) -> QpCapacity {
        self.qps[key].capacity
    }

    /// The state, if the queue pair still exists
    pub(crate) fn qp_state(&self, key: QpKey) -> Option<QpState> {
        self.qps.get(key).map(|qp| qp.state)
    }

    pub(super) fn qp_mut(&mut self, key: QpKey, verb: Verb) -> Result<&mut QueuePair, Error> {
        self.qps.get_mut(key).ok_or_else(|| Error::new(verb, Cause::DeviceGone))
    }

    pub(super) fn qp_ref(&self, key: QpKey) -> QpRef {
        QpRef { key, epoch: self.qps[key].epoch }
    }

    /// The queue pair, unless what `qp` belonged to is over
    pub(super) fn live(&mut self, qp: QpRef) -> Option<&mut QueuePair> {
        self.qps.get_mut(qp.key).filter(|found| found.epoch == qp.epoch)
    }

    /// The queue pair that `key` is connected to, if it is connected back
    pub(super) fn connected_peer(&mut self, key: QpKey) -> Option<QpKey> {
        let qp = &self.qps[key];
        let (qpn, peer) = (qp.qpn, qp.peer);
        let is_peer =
            |other: &QueuePair| other.is_up() && other.qpn == peer && other.peer == qpn && other.is_alive();
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
}
