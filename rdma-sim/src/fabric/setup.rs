//! The verbs that create, connect and destroy objects

use std::ptr::NonNull;

use rdma_core::{
    Access, AttrMask, Cause, Error, Invalid, Lid, Psn, QpAddress, QpAttr, QpCapacity, QpInit, QpState,
    QpType, Resource, Transition, Verb,
};

use super::Fabric;
use super::event::Nanos;
use super::ids::{CqKey, DeviceRef, QpKey, RegionKey};
use super::memory::Registered;
use super::queue_pairs::QueuePair;
use crate::catalogue::rule;
use crate::remote::{LinkMessage, ProcessName};
use crate::trace::{Ending, RecordKind};

/// The sequence number with which every queue pair begins.
const PSN: Psn = Psn(7);
/// Bytes of a page of memory.
const PAGE: u64 = 16 << 10;

/// A change of the state of a queue pair
#[derive(Clone, Copy, Debug)]
pub(crate) enum Change<'a> {
    /// To these attributes, which must be complete
    Attributes(&'a QpAttr, AttrMask),
    /// A transition with all attributes that it needs, filled in as a careful program does
    To(Transition),
}

impl Fabric {
    pub(crate) fn create_cq(&mut self, device: DeviceRef, depth: u32) -> Result<CqKey, Error> {
        self.world.require_usable(device, Verb::CreateCq)?;
        let leaked = self.world.leaked(device.index).cqs;
        self.cqs.create(device.index, depth, leaked, &self.model.caps, &mut self.objects)
    }

    pub(crate) fn register(
        &mut self,
        device: DeviceRef,
        memory: NonNull<[u8]>,
        access: Access,
    ) -> Result<Registered, Error> {
        let invalid = |why: Invalid| Err(Error::new(Verb::RegMr, why.into()));
        self.world.require_current(device, Verb::RegMr)?;
        let (device, rules) = (device.index, &self.model.rules);
        if memory.is_empty() {
            return invalid(Invalid::EmptyRegion);
        }
        let (addr, align) = (memory.cast::<u8>().addr().get(), rules.alignment);
        if !addr.is_multiple_of(align) {
            return invalid(Invalid::Misaligned { addr: addr as u64, align: align as u64 });
        }
        if access == Access::LOCAL_WRITE && !rules.local_write_alone {
            return invalid(Invalid::LocalWriteOnly);
        }
        let (own, leaked) = (self.memory.count(device), self.world.leaked(device).regions);
        let limit = self.model.caps.max_mr;
        let counted = self.objects.add(device, Resource::MemoryRegions, [own, leaked], limit);
        counted.map_err(|cause| Error::new(Verb::RegMr, cause))?;
        self.setup_steps += 1;
        let pages = (memory.len() as u64).div_ceil(PAGE);
        self.cpu.spend_in_verb(self.model.timing.register_page_ns.saturating_mul(pages));
        for (applies, number) in [
            (access == Access::LOCAL_WRITE, rule!("registration-access")),
            (
                memory.len() > 16_000_000 || !memory.len().is_multiple_of(16 * 1024),
                rule!("registration-length"),
            ),
            (true, rule!("keys")),
            (self.memory.gives_key_again(device), rule!("key-reuse")),
        ] {
            if applies {
                self.coverage.rule(number);
            }
        }
        let straddles = self.world.take_straddle(device);
        let is_remote = self.model.caps.one_sided;
        Ok(self.memory.register(device, memory, access, is_remote, straddles, self.setup_steps))
    }

    pub(crate) fn deregister(&mut self, key: RegionKey) {
        self.sanitizer.check_deregistration(self.schedule.now(), key);
        if let Some(device) = self.memory.deregister(key) {
            if self.world.region_deregistered(device) {
                self.coverage.rule(rule!("error-state-keeps-mappings"));
            }
            self.objects.set(device, Resource::MemoryRegions, self.memory.count(device));
        }
    }

    /// Creates a queue pair in the reset state
    pub(crate) fn create_qp(
        &mut self,
        device: DeviceRef,
        cqs: [CqKey; 2],
        init: &QpInit,
    ) -> Result<(QpKey, QpAddress, QpCapacity), Error> {
        let fail = |cause| Err(Error::new(Verb::CreateQp, cause));
        self.world.require_usable(device, Verb::CreateQp)?;
        if !cqs.iter().all(|cq| self.cqs.contains(*cq)) {
            return fail(Cause::DeviceGone);
        }
        match init.qp_type {
            QpType::Uc => (),
            QpType::Rc if self.model.caps.one_sided => (),
            _ => return fail(Cause::Unsupported),
        }
        let (device, now) = (device.index, self.schedule.now());
        let leaked = self.world.leaked(device).qps;
        let is_shared = self.qps.of(device).iter().any(|other| self.qps[*other].completes_to(cqs));
        let key = self.qps.create(device, cqs, init, leaked, now, &mut self.objects)?;
        let (qp, reported) = (&self.qps[key], self.qps.read_back(key, init.capacity));
        for (applies, number) in [
            (is_shared, rule!("shared-cq")),
            (qp.capacity != init.capacity, rule!("queue-grant")),
            (true, rule!("queue-read-back")),
            (true, rule!("qp-numbers")),
        ] {
            if applies {
                self.coverage.rule(number);
            }
        }
        let lid = Lid(device.0 as u16 + 1);
        let address = QpAddress { gid: self.world.address(device), lid, psn: PSN, qpn: qp.qpn };
        Ok((key, address, reported))
    }

    /// Destroys a queue pair: its requests touch no memory any more
    pub(crate) fn destroy_qp(&mut self, key: QpKey) {
        self.sanitizer.forget(key);
        self.withdraw(key);
        if let Some(qp) = self.qps.get(key) {
            let device = qp.device;
            if qp.has_requests() {
                self.coverage.rule(rule!("destroy"));
            }
            self.world.note_idleness(device, self.qps.has_idled(device, self.schedule.now()));
        }
        let subject = self.qps.get(key).map(QueuePair::subject);
        self.trace.note_dropped(self.schedule.now(), subject, Ending::Destroyed);
        let device = self.qps.get(key).map(|qp| qp.device);
        self.qps.remove(key);
        if let Some(device) = device {
            self.objects.set(device, Resource::QueuePairs, self.qps.of(device).len() as u32);
        }
    }

    pub(crate) fn modify_qp(&mut self, key: QpKey, change: Change<'_>) -> Result<(), Error> {
        let fail = |cause| Error::new(Verb::ModifyQp, cause);
        let qp = self.qps.require(key, Verb::ModifyQp)?;
        let (attr, mask) = match change {
            Change::To(Transition::ReadyToReceive { peer }) => {
                QpAttr::ready_to_receive(&peer, self.world.source_index(qp.device), 1024)
            }
            Change::To(Transition::Reset) => QpAttr::plain(QpState::Reset),
            Change::To(Transition::Init) => QpAttr::init(),
            Change::To(Transition::ReadyToSend) => QpAttr::ready_to_send(PSN),
            Change::To(_) => QpAttr::plain(QpState::Error),
            Change::Attributes(attr, mask) => (*attr, mask),
        };
        qp.check_transition(&attr, mask).map_err(fail)?;
        match attr.state {
            QpState::ReadyToReceive => self.receive_from(key, &attr).map_err(fail)?,
            QpState::Error => self.fail_qp(key),
            QpState::Reset => {
                self.withdraw(key);
                self.trace.note_dropped(self.schedule.now(), [self.qps[key].subject()], Ending::Reset);
                self.qps[key].reset();
                self.coverage.rule(rule!("reset"));
                self.sanitizer.forget(key);
            }
            state => qp.state = state,
        }
        Ok(())
    }

    fn receive_from(&mut self, key: QpKey, attr: &QpAttr) -> Result<(), Cause> {
        let now = self.schedule.now();
        let device = self.qps[key].device;
        self.world.note_idleness(device, self.qps.has_idled(device, now));
        let qp = &mut self.qps[key];
        let exercise = |number| self.coverage.rule(number);
        let resolved = self.world.resolve_peer(qp.device, attr, qp.has_failed_rtr, exercise);
        let peer = self.world.neighbour(qp.device).map_or(0, |peer| peer.0 << 20 | attr.dest_qpn.0);
        let is_ok = resolved.is_ok().into();
        self.trace.record_with(now, RecordKind::Connect, qp.subject(), is_ok, peer.into());
        if let Err(cause) = resolved {
            qp.has_failed_rtr = true;
            let takes_time = matches!(cause, Cause::NoNeighbour | Cause::PeerUnreachable);
            if takes_time && self.model.timing.unresolved_rtr_ns > 0 {
                self.blocked_ns = self.model.timing.unresolved_rtr_ns;
                self.coverage.rule(rule!("rtr-second"));
            }
            return Err(cause);
        }
        self.setup_steps += 1;
        // The sender learns only now of receives that were posted before.
        let visible = now + Nanos(self.model.timing.propagation_ns);
        qp.receive_from(attr.dest_qpn, self.setup_steps, now, visible);
        let neighbour = |device| self.world.neighbour(device);
        if qp.open_receives().next().is_some() {
            self.schedule.add_all(self.qps.announce_credit(key, visible, neighbour));
        }
        self.schedule.add_all(self.qps.announce_ready(key, visible, neighbour));
        self.announce(key);
        Ok(())
    }

    /// Sets a queue pair to the error state
    pub(super) fn fail_qp(&mut self, key: QpKey) {
        self.withdraw(key);
        self.trace.note_dropped(self.schedule.now(), [self.qps[key].subject()], Ending::Failed);
        self.qps[key].fail();
        self.world.qp_failed(self.qps[key].device);
        if !self.model.caps.flush_on_error {
            self.coverage.rule(rule!("error-state"));
        } else {
            self.sanitizer.forget(key);
            while let Some(flushed) = self.qps[key].pop_flushed() {
                self.complete(flushed);
            }
        }
    }

    /// Ends the part of a queue pair in what is under way: its transmitter and its peer
    fn withdraw(&mut self, key: QpKey) {
        let Some(qp) = self.qps.get(key) else { return };
        if let Some(link) = self.world.link(qp.device) {
            self.links.remove(link, key);
        }
        if let Some(host) = self.world.remote_neighbour(qp.device) {
            self.remotes.send(ProcessName::of(host, qp.peer), &LinkMessage::Closed { qp: qp.name() });
        }
    }
}
