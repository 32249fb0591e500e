//! The far ends of cables that other processes simulate
//!
//! Of a far queue pair that has become ready to receive, the fabric keeps a likeness on the far device: its receives are those
//! that were announced, and the transmitter fills them by the rules that hold within one process. What would have moved in
//! memory is told instead.

use rdma_core::{FRAME, QpCapacity, QpState, QpType, Qpn, Status, Time, WrId};
use slotmap::Key as _;

use super::queue_pair::{Memory, QueuePair, Receive, Tx};
use super::{CqKey, DeviceIndex, Event, Fabric, QpKey, RegionKey};
use crate::fault::{Fault, Trigger};
use crate::remote::{LinkMessage, QpName, Transport};

/// The only host that is simulated here, and the way to the others
pub(super) struct Remotes {
    host: u32,
    pub(super) transport: Box<dyn Transport>,
    /// Queue pairs that wait for room.
    blocked: Vec<QpKey>,
    /// Faults that waited for frames which have been sent: they happen to all, when all are told.
    fired: Vec<Fault>,
}

impl Fabric {
    /// Simulates only `host` from now on
    pub(crate) fn simulate_only(&mut self, host: u32, transport: Box<dyn Transport>) {
        self.remotes = Some(Remotes { host, transport, blocked: Vec::new(), fired: Vec::new() });
    }

    /// The host of a device that another process simulates
    pub(super) fn far_host(&self, device: DeviceIndex) -> Option<u32> {
        let host = self.device(device).host;
        self.remotes.as_ref().is_some_and(|far| far.host != host).then_some(host)
    }

    /// The host at the other end of a device's cable, if another process simulates it
    fn far_neighbour(&self, device: DeviceIndex) -> Option<u32> {
        // Only this: within one process, nobody looks any further.
        self.remotes.as_ref()?;
        self.far_host(self.neighbour(device)?)
    }

    /// Keeps a fault that this host alone has seen coming, until it is told to all; false if nobody is elsewhere
    pub(super) fn keep_for_all(&mut self, fault: &Fault) -> bool {
        let Some(far) = &mut self.remotes else { return false };
        let is_seen_here = matches!(fault.trigger, Trigger::AfterFrames(_));
        if is_seen_here {
            far.fired.push(fault.clone());
            self.has_host_news = true;
        }
        is_seen_here
    }

    /// Faults that happen now, and that all have to be told of
    pub(crate) fn take_fired(&mut self) -> Vec<Fault> {
        self.remotes.as_mut().map(|far| std::mem::take(&mut far.fired)).unwrap_or_default()
    }

    fn name_of(&self, key: QpKey) -> QpName {
        let qp = &self.qps[key];
        QpName { device: qp.device.0, qpn: qp.qpn }
    }

    /// The host and the name of a queue pair that another process simulates
    pub(super) fn far_name(&self, key: QpKey) -> Option<(u32, QpName)> {
        Some((self.far_host(self.qps[key].device)?, self.name_of(key)))
    }

    pub(super) fn send(&mut self, host: u32, message: &LinkMessage<'_>) {
        if let Some(far) = &mut self.remotes {
            far.transport.send(host, message);
        }
    }

    // ─── What is told of the queue pairs here ───

    /// Tells the far end, if there is one, that a queue pair receives, and what it has posted
    pub(super) fn announce(&mut self, key: QpKey) {
        let Some(host) = self.far_neighbour(self.qps[key].device) else { return };
        let qp = self.name_of(key);
        let QueuePair { peer, qp_type, .. } = self.qps[key];
        self.send(host, &LinkMessage::Ready { qp, peer, qp_type });
        let found = &self.qps[key];
        let open: Vec<_> =
            found.receives.iter().skip(found.filled).map(|receive| receive.memory.len as u32).collect();
        for len in open {
            self.send(host, &LinkMessage::ReceivePosted { qp, len });
        }
    }

    /// Tells the far end, if there is one, of a receive that was posted
    pub(super) fn announce_receive(&mut self, key: QpKey, len: usize) {
        let qp = &self.qps[key];
        if let Some(host) = self.far_neighbour(qp.device)
            && qp.is_up()
        {
            self.send(host, &LinkMessage::ReceivePosted { qp: self.name_of(key), len: len as u32 });
        }
    }

    /// Tells that the oldest receive of `peer`, which `key` has filled, ends at `at`
    pub(super) fn send_filled(&mut self, host: u32, to: QpName, key: QpKey, peer: QpKey, at: Time) {
        let from = self.qps[key].qpn;
        if let Some(Receive { bytes_in: len, status, .. }) = self.qps[peer].receives.pop_front() {
            self.send(host, &LinkMessage::Filled { to, from, len, status, at });
        }
    }

    /// Tells the far end, if there is one, that a queue pair receives no more
    pub(super) fn announce_end(&mut self, key: QpKey) {
        let Some(qp) = self.qps.get(key) else { return };
        if let Some(host) = self.far_neighbour(qp.device) {
            self.send(host, &LinkMessage::Closed { qp: self.name_of(key) });
        }
    }

    /// Tells a host that has just come of all queue pairs that receive from it
    pub(crate) fn announce_all_to(&mut self, host: u32) {
        self.forget_host(host);
        let keys: Vec<_> =
            self.qps.iter().filter(|(_, qp)| qp.is_up() && qp.is_alive()).map(|(key, _)| key).collect();
        for key in keys {
            if self.far_neighbour(self.qps[key].device) == Some(host) {
                self.announce(key);
            }
        }
    }

    /// The processes of a host are not those that were there before: nothing that they said holds
    pub(crate) fn forget_host(&mut self, host: u32) {
        for device in self.hosts[host as usize].devices.clone().map(DeviceIndex) {
            for key in std::mem::take(&mut self.device_mut(device).qps) {
                self.qps.remove(key);
            }
        }
    }

    // ─── Room ───

    /// How many frames can be sent to `host` now
    pub(super) fn room_towards(&mut self, host: u32) -> u32 {
        let room = self.remotes.as_mut().map_or(0, |far| far.transport.room(host) / FRAME);
        u32::try_from(room).unwrap_or(u32::MAX)
    }

    /// Has `key` go on when there is room
    pub(super) fn wait_for_room(&mut self, key: QpKey) {
        self.qps[key].tx = Tx::Stalled;
        self.remotes.iter_mut().for_each(|far| far.blocked.push(key));
    }

    /// Goes on with what waits for room
    pub(crate) fn resume_blocked(&mut self) {
        let Some(far) = &mut self.remotes else { return };
        far.transport.flush();
        for key in std::mem::take(&mut far.blocked) {
            if self.qps.get(key).is_some_and(|qp| qp.tx == Tx::Stalled) {
                self.join_round(key);
            }
        }
    }

    // ─── What the others tell ───

    /// Takes in what `host` has told; nonsense is passed over
    pub(crate) fn apply_remote(&mut self, host: u32, message: &LinkMessage<'_>) {
        // What is here, nobody else tells.
        if self.remotes.as_ref().is_none_or(|far| far.host == host) {
            return;
        }
        match *message {
            LinkMessage::Ready { qp, peer, qp_type } => {
                if let Some(device) = self.device_of(host, qp) {
                    self.shadow_qp(device, qp.qpn, peer, qp_type);
                }
            }
            LinkMessage::Closed { qp } => {
                if let Some(key) = self.find_told(host, qp) {
                    self.forget_told(key);
                }
            }
            LinkMessage::ReceivePosted { qp, len } => {
                if let Some(key) = self.find_told(host, qp) {
                    self.receive_told(key, len as usize);
                }
            }
            LinkMessage::Data { to, from, bytes } => {
                if let Some(key) = self.find_here(to, from) {
                    self.data(key, bytes);
                }
            }
            LinkMessage::Filled { to, from, len, status, at } => {
                if let Some(key) = self.find_here(to, from) {
                    self.filled(key, len, status, at);
                }
            }
            LinkMessage::Request { to, from, op, len, bytes } => self.asked(host, to, from, op, len, bytes),
            LinkMessage::Response { to, from, is_ok, bytes } => {
                if let Some(key) = self.find_here(to, from) {
                    self.answered(key, is_ok, bytes);
                }
            }
        }
    }

    fn device_of(&self, host: u32, name: QpName) -> Option<DeviceIndex> {
        self.hosts.get(host as usize)?.devices.contains(&name.device).then_some(DeviceIndex(name.device))
    }

    fn find_told(&self, host: u32, name: QpName) -> Option<QpKey> {
        let device = self.device(self.device_of(host, name)?);
        device.qps.iter().copied().find(|key| self.qps[*key].qpn == name.qpn)
    }

    /// The queue pair of this host that is meant, if it still listens to `from`
    pub(super) fn find_here(&self, name: QpName, from: Qpn) -> Option<QpKey> {
        let host = self.remotes.as_ref()?.host;
        let key = self.find_told(host, name)?;
        let qp = &self.qps[key];
        (qp.is_up() && qp.peer == from && qp.is_alive()).then_some(key)
    }

    fn forget_told(&mut self, key: QpKey) {
        if let Some(qp) = self.qps.remove(key) {
            self.device_mut(qp.device).qps.retain(|other| *other != key);
        }
    }

    /// Keeps the likeness of a far queue pair
    fn shadow_qp(&mut self, device: DeviceIndex, qpn: Qpn, peer: Qpn, qp_type: QpType) {
        if let Some(old) = self.device(device).qps.iter().copied().find(|key| self.qps[*key].qpn == qpn) {
            self.forget_told(old);
        }
        let mut qp = QueuePair::new(
            device,
            [CqKey::null(); 2],
            qpn,
            qp_type,
            QpCapacity { recv_frames: 0, send_frames: 0 },
            self.now,
        );
        (qp.state, qp.peer) = (QpState::ReadyToReceive, peer);
        let key = self.qps.insert(qp);
        self.device_mut(device).qps.push(key);
    }

    fn receive_told(&mut self, key: QpKey, len: usize) {
        let (now, qp) = (self.now, &mut self.qps[key]);
        qp.receives.push_back(Receive {
            id: WrId(0),
            memory: Memory { region: RegionKey::null(), offset: 0, len },
            visible: now,
            frames_in: 0,
            bytes_in: 0,
            is_beyond: false,
            status: Status::Success,
        });
        if qp.receives.len() == 1
            && let Some(sender) = self.connected_peer(key)
        {
            self.announce_credit(sender, now);
        }
    }

    /// Bytes have come for the oldest receive that is not filled
    fn data(&mut self, key: QpKey, bytes: &[u8]) {
        let (now, boundary) = (self.now, self.model.rules.boundary);
        let qp = &mut self.qps[key];
        qp.last_active = now;
        let Some(receive) = qp.receives.get_mut(qp.filled) else { return };
        let into = receive.bytes_in as usize;
        receive.bytes_in = receive.bytes_in.saturating_add(bytes.len() as u32);
        let space = receive.memory.len.saturating_sub(into);
        let bytes = &bytes[..bytes.len().min(space)];
        if receive.status == Status::Success {
            match self.regions.get(receive.memory.region) {
                Some(target) => target.write_reachable(receive.memory.offset + into, bytes, boundary),
                None => receive.status = Status::LocalProtection,
            }
        }
    }

    fn filled(&mut self, key: QpKey, len: u32, status: Status, at: Time) {
        let qp = &mut self.qps[key];
        let Some(receive) = qp.receives.get_mut(qp.filled) else { return };
        receive.bytes_in = len;
        receive.frames_in = receive.memory.frames();
        if receive.status == Status::Success {
            let fits = len as usize <= receive.memory.len;
            receive.status = if fits || status != Status::Success { status } else { Status::LocalLength };
        }
        let Memory { region, offset, len } = receive.memory;
        if (status == Status::BadResponse || receive.is_beyond)
            && len > 0
            && let Some(target) = self.regions.get(region)
        {
            let byte = target.bytes(offset, 1)[0];
            target.write(offset, &[!byte]);
        }
        qp.filled += 1;
        qp.last_delivery = qp.last_delivery.max(at).max(self.now);
        let delivery = qp.last_delivery;
        self.schedule.add(delivery, Event::Delivered(self.qp_ref(key)));
    }
}
