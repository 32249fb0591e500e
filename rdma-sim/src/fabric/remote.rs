//! What passes between the fabric and the processes that simulate the other hosts
//!
//! Of a queue pair in another process that has become ready to receive, the fabric keeps a shadow on the device: its receives
//! are those that were announced, and the transmitter fills them by the rules that hold within one process. Bytes and outcomes
//! are sent as messages instead of moving in memory.

use rdma_core::Status;

use super::Fabric;
use super::event::{Event, Nanos};
use super::ids::QpKey;
use super::memory::Moved;
use super::queue_pairs::{QueuePair, REQUEST_BYTES};
use super::world::World;
use crate::remote::{LinkMessage, ProcessName, QpName};

impl Fabric {
    // ─── To other processes ───

    /// Announces a queue pair that receives, and its receives, to the process of the peer, if there is one
    pub(super) fn announce(&mut self, key: QpKey) {
        let at = self.schedule.now() + Nanos(self.model.timing.propagation_ns);
        let found = &self.qps[key];
        let Some(host) = self.world.remote_neighbour(found.device) else { return };
        let (qp, peer, qp_type) = (found.name(), found.peer, found.qp_type);
        let to = ProcessName::of(host, peer);
        self.remotes.send(to, &LinkMessage::Ready { qp, peer, qp_type, at });
        for len in found.open_receives() {
            self.remotes.send(to, &LinkMessage::ReceivePosted { qp, len, at });
        }
    }

    /// Forgets what a process has announced
    pub(crate) fn forget_process(&mut self, process: ProcessName) {
        if !self.world.is_elsewhere(process.host) {
            return;
        }
        for device in self.world.devices_of(process.host) {
            let announced = self.qps.of(device).iter().copied();
            let announced = announced.filter(|key| self.qps[*key].process(process.host) == process);
            for key in announced.collect::<Vec<_>>() {
                self.qps.remove(key);
            }
        }
    }

    /// Announces all queue pairs that are connected to a new process, and forgets what its predecessor announced
    pub(crate) fn announce_all_to(&mut self, process: ProcessName) {
        self.forget_process(process);
        for key in self.qps.receiving() {
            let QueuePair { device, peer, .. } = self.qps[key];
            let host = self.world.remote_neighbour(device);
            if host.is_some_and(|host| ProcessName::of(host, peer) == process) {
                self.announce(key);
            }
        }
    }

    /// Lets the queue pairs that wait for room send again
    pub(crate) fn resume_blocked(&mut self) {
        for key in self.remotes.flush() {
            if self.qps.get(key).is_some_and(|qp| qp.is_stalled()) {
                self.enqueue_tx(key);
            }
        }
    }

    // ─── From other processes ───

    /// Applies a message from a process; one that makes no sense changes nothing
    pub(crate) fn apply_remote(&mut self, process: ProcessName, message: &LinkMessage<'_>) {
        let host = process.host;
        // No other process speaks for the queue pairs of this host, and none for those of another process.
        if !self.world.is_elsewhere(host) {
            return;
        }
        let now = self.schedule.now();
        let is_theirs = |qpn| ProcessName::of(host, qpn) == process;
        let theirs = |name: QpName| {
            let device = self.world.device_at_host(host, name.device).filter(|_| is_theirs(name.qpn))?;
            self.qps.find(device, name.qpn)
        };
        let ours =
            |to: QpName, from| self.qps.find_receiver(self.world.device_here(to.device)?, to.qpn, from);
        match *message {
            LinkMessage::Ready { qp, peer, qp_type, at } => {
                if let Some(device) = self.world.device_at_host(host, qp.device)
                    && is_theirs(qp.qpn)
                {
                    let at = at.max(now);
                    let shadow = self.qps.shadow(device, qp.qpn, peer, qp_type, now);
                    let neighbour = |device| self.world.neighbour(device);
                    self.schedule.add_all(self.qps.announce_ready(shadow, at, neighbour));
                }
            }
            LinkMessage::Closed { qp } => {
                if let Some(key) = theirs(qp) {
                    self.qps.remove(key);
                }
            }
            LinkMessage::ReceivePosted { qp, len, at } => {
                let at = at.max(now);
                if let Some(key) = theirs(qp)
                    && self.qps.push_announced(key, len as usize, at)
                {
                    let neighbour = |device| self.world.neighbour(device);
                    self.schedule.add_all(self.qps.announce_credit(key, at, neighbour));
                }
            }
            LinkMessage::Data { to, from, bytes } => {
                if let Some(key) = ours(to, from)
                    && let Some((into, is_refused)) = self.qps.take_data(key, bytes.len(), now)
                    && self.memory.deliver_from(bytes, into, is_refused) == Moved::NoTarget
                {
                    self.qps[key].fail_receive(Status::LocalProtection);
                }
            }
            LinkMessage::Filled { to, from, len, status, at } => {
                if let Some(key) = ours(to, from)
                    && self.qps.end_receive(key, len, status, now)
                {
                    let qp = &mut self.qps[key];
                    let at = qp.order_delivery(at.max(now));
                    self.memory.damage(qp.finish_receive());
                    self.schedule.add(at, Event::Delivered(qp.in_epoch(key)));
                }
            }
            LinkMessage::Request { to, from, op, len, bytes } => {
                if let Some(key) = ours(to, from)
                    && let Some(back) = self.world.neighbour(self.qps[key].device)
                {
                    let answer = self.memory.serve(op, len as usize, self.qps[key].device, bytes);
                    let (is_ok, mut bytes) = (answer.is_some(), answer.unwrap_or_default());
                    bytes.truncate(REQUEST_BYTES);
                    let (to, from) = (QpName { device: back.0, qpn: from }, to.qpn);
                    self.remotes.send(process, &LinkMessage::Response { to, from, is_ok, bytes: &bytes });
                }
            }
            LinkMessage::Response { to, from, is_ok, bytes } => {
                if let Some(key) = ours(to, from) {
                    self.on_response(key, is_ok, bytes);
                }
            }
        }
    }
}

/// The process and the name of a queue pair, if another process simulates it
pub(super) fn remote_name(world: &World, qp: &QueuePair) -> Option<(ProcessName, QpName)> {
    Some((qp.process(world.remote_host(qp.device)?), qp.name()))
}
