//! What faults do to the fabric

use rdma_core::{Gid, PortState};

use super::device::Trouble;
use super::host::{Host, Process};
use super::{DeviceIndex, Event, Fabric};
use crate::fault::{FaultKind, Target};
use crate::trace::RecordKind;

impl Fabric {
    /// Has the fault `number` wait until the port at `place` has sent `frames` frames
    pub(super) fn arm(&mut self, target: &Target, frames: u64, number: u32) {
        let port = self.port_at(target).or_else(|| {
            let host = self.find_host(target.host())?;
            let mut devices = self.hosts[host as usize].devices.clone().map(DeviceIndex);
            devices.find(|device| self.device(*device).cable.is_some())
        });
        if let Some((cable, end)) = port.and_then(|device| self.device(device).cable) {
            let now = self.now;
            let direction = self.direction(cable, end);
            if direction.stats.frames >= frames.max(1) {
                return self.schedule.add(now, Event::Fault(number));
            }
            direction.triggers.push((frames.max(1), number));
            direction.triggers.sort_by_key(|(frames, number)| std::cmp::Reverse((*frames, *number)));
        }
    }

    fn port_at(&self, target: &Target) -> Option<DeviceIndex> {
        match target {
            Target::Port { host, device } => {
                let host = self.find_host(host)?;
                let mut devices = self.hosts[host as usize].devices.clone().map(DeviceIndex);
                devices.find(|index| self.device(*index).name == *device)
            }
            Target::Host(_) => None,
        }
    }

    /// A fault of the plan is due
    pub(super) fn fault(&mut self, number: u32) {
        let fault = self.plan[number as usize].clone();
        if self.keep_for_all(&fault) {
            return;
        }
        self.record(RecordKind::Fault, number, 0);
        match (self.port_at(&fault.target), self.find_host(fault.target.host())) {
            (Some(device), _) => self.fault_at_port(device, fault.kind),
            (None, Some(host)) => self.fault_at_host(host, &fault.kind),
            (None, None) => (),
        }
    }

    fn fault_at_host(&mut self, host: u32, kind: &FaultKind) {
        let Host { process, is_booting, .. } = self.hosts[host as usize];
        match kind {
            FaultKind::RdmaOff => self.set_up(host, |host| host.has_rdma = false),
            FaultKind::RdmaOn => self.set_up(host, |host| host.has_rdma = true),
            FaultKind::Renumber => self.renumber(host),
            // Nothing else happens to a host that is not there.
            _ if is_booting => (),
            FaultKind::Reboot { down } => {
                self.kill(host);
                self.set_up(host, |host| host.is_booting = true);
                self.schedule.add(self.now + *down, Event::Boot(host));
            }
            FaultKind::Kill => self.kill(host),
            FaultKind::Pause if process == Process::Running => self.set_process(host, Process::Stopped),
            FaultKind::Resume if process == Process::Stopped => self.set_process(host, Process::Running),
            FaultKind::Restart => {
                if process != Process::Dead {
                    self.kill(host);
                }
                self.set_process(host, Process::Running);
            }
            FaultKind::Sleep => {
                self.set_up(host, |host| host.is_asleep = true);
                if process == Process::Running {
                    self.set_process(host, Process::Stopped);
                }
            }
            FaultKind::Wake => {
                self.set_up(host, |host| host.is_asleep = false);
                if process == Process::Stopped {
                    self.set_process(host, Process::Running);
                }
            }
            _ => (),
        }
    }

    fn renumber(&mut self, host: u32) {
        let devices = self.hosts[host as usize].devices.clone();
        let range = devices.start as usize..devices.end as usize;
        let mut names: Vec<_> = self.devices[range.clone()].iter().map(|d| d.name.clone()).collect();
        names.rotate_left(1);
        for (device, name) in self.devices[range].iter_mut().zip(names) {
            device.name = name;
        }
    }

    /// Ports of a host come or go with the host
    fn set_up(&mut self, host: u32, change: impl FnOnce(&mut Host)) {
        let devices = self.hosts[host as usize].devices.clone().map(DeviceIndex);
        let were_active: Vec<_> = devices.clone().map(|device| self.is_active(device)).collect();
        change(&mut self.hosts[host as usize]);
        for (device, was_active) in devices.zip(were_active) {
            match (was_active, self.is_active(device)) {
                (true, false) => self.cut_off(device),
                (false, true) => self.plug_in(device),
                _ => (),
            }
        }
    }

    /// A host has restarted: nothing is left of what was wrong in its kernel
    pub(super) fn boot(&mut self, host: u32) {
        self.set_up(host, |host| (host.is_booting, host.is_asleep) = (false, false));
        for device in self.hosts[host as usize].devices.clone().map(DeviceIndex) {
            let device = self.device_mut(device);
            device.trouble = Trouble::default();
            (device.lost_cqs, device.lost_pds, device.lost_qps, device.lost_regions) = (0, 0, 0, 0);
        }
        self.set_process(host, Process::Running);
    }

    fn fault_at_port(&mut self, device: DeviceIndex, kind: FaultKind) {
        let cable = self.device(device).cable;
        match kind {
            FaultKind::Unplug => self.unplug(device),
            FaultKind::Replug => self.replug(device),
            FaultKind::Flap { down } => {
                self.unplug(device);
                self.schedule.add(self.now + down, Event::Replug(device));
            }
            FaultKind::Cross { with } => self.cross(device, &with),
            FaultKind::Corrupt { frames } => {
                if let Some((cable, end)) = cable {
                    let corrupt = &mut self.direction(cable, end).corrupt;
                    *corrupt = corrupt.saturating_add(frames);
                }
            }
            FaultKind::Lose { frames } => {
                if let Some((cable, end)) = cable {
                    let lose = &mut self.direction(cable, end).lose;
                    *lose = lose.saturating_add(frames);
                }
            }
            FaultKind::Slow { percent } | FaultKind::Storm { percent } => {
                if let Some((cable, _)) = cable {
                    self.cables[cable as usize].percent = percent.clamp(1, 100);
                }
            }
            FaultKind::IdleDeath => self.rest_too_long(device),
            FaultKind::InterfaceDown | FaultKind::Unresolvable => {
                self.both_ends(device, |found| found.trouble.unresolvable = true);
            }
            FaultKind::Resolvable => self.both_ends(device, |found| found.trouble.unresolvable = false),
            kind => self.fault_at_device(device, &kind),
        }
    }

    fn fault_at_device(&mut self, device: DeviceIndex, kind: &FaultKind) {
        let device = self.device_mut(device);
        match *kind {
            FaultKind::Boundary => device.trouble.boundary = true,
            FaultKind::Busy => device.trouble.busy = true,
            FaultKind::Delay { by } => {
                device.trouble.delay_ns = u64::try_from(by.as_nanos()).unwrap_or(u64::MAX / 4);
            }
            FaultKind::GidAt { index } => {
                let ipv4: Vec<_> = device.gids.extract_if(.., |gid| gid.ipv4().is_some()).collect();
                let at = usize::from(index);
                device.gids.resize(device.gids.len().max(at), Gid::default());
                device.gids.splice(at..at, ipv4);
            }
            FaultKind::LeakCqs { count } => device.lost_cqs = device.lost_cqs.saturating_add(count),
            FaultKind::LeakMrs { count } => device.lost_regions = device.lost_regions.saturating_add(count),
            FaultKind::LeakPds { count } => device.lost_pds = device.lost_pds.saturating_add(count),
            FaultKind::LeakQps { count } => device.lost_qps = device.lost_qps.saturating_add(count),
            FaultKind::LinkLocalGids => device.gids.retain(|gid| gid.ipv4().is_none()),
            FaultKind::NoGids => device.gids.clear(),
            FaultKind::NoPds => device.trouble.no_pds = true,
            FaultKind::Overflow => device.trouble.overflows = true,
            FaultKind::SlowReceive => device.trouble.slow_receive = true,
            FaultKind::Wedge => device.trouble.is_wedged = true,
            _ => (),
        }
    }

    fn both_ends(&mut self, device: DeviceIndex, change: impl Fn(&mut super::device::Device)) {
        change(self.device_mut(device));
        if let Some(far) = self.neighbour(device) {
            change(self.device_mut(far));
        }
    }

    // ─── Cables ───

    fn unplug(&mut self, device: DeviceIndex) {
        if self.neighbour(device).is_none() {
            return;
        }
        self.cut_off(device);
        if let Some((cable, _)) = self.device(device).cable {
            self.cables[cable as usize].is_plugged = false;
        }
    }

    /// Plugs the cable in a port in again
    pub(super) fn replug(&mut self, device: DeviceIndex) {
        let Some((cable, _)) = self.device(device).cable else { return };
        if !std::mem::replace(&mut self.cables[cable as usize].is_plugged, true) {
            self.record(RecordKind::Plugged, device.0, 1);
            self.both_ends(device, |found| found.trouble.no_pds = false);
            if self.is_active(device) {
                self.plug_in(device);
            }
        }
    }

    fn is_active(&self, device: DeviceIndex) -> bool {
        self.port(device).state == PortState::Active
    }

    /// Everything that was connected over the cable of `device` is over, and nobody is told
    fn cut_off(&mut self, device: DeviceIndex) {
        let Some(far) = self.neighbour(device) else { return };
        self.record(RecordKind::Plugged, device.0, 0);
        for end in [device, far] {
            self.device_mut(end).incarnation += 1;
            for key in self.device(end).qps.clone() {
                let qp = &mut self.qps[key];
                qp.is_stale = true;
                qp.freeze();
            }
        }
        if let Some((cable, _)) = self.device(device).cable {
            for end in [0, 1] {
                self.direction(cable, end).round.clear();
            }
        }
    }

    /// The ends of a cable find each other again
    fn plug_in(&mut self, device: DeviceIndex) {
        let leak = self.model.rules.replug_leaks_pds;
        self.both_ends(device, |found| found.lost_pds = found.lost_pds.saturating_add(leak));
    }

    fn cross(&mut self, device: DeviceIndex, with: &str) {
        let host = self.device(device).host;
        let mut others = self.hosts[host as usize].devices.clone().map(DeviceIndex);
        let Some(other) = others.find(|other| self.device(*other).name == with) else { return };
        let (Some((one, end)), Some((two, other_end))) =
            (self.device(device).cable, self.device(other).cable)
        else {
            return;
        };
        if one == two {
            return;
        }
        self.cut_off(device);
        self.cut_off(other);
        let (far_end, other_far_end) = (1 - end, 1 - other_end);
        let far = self.cables[one as usize].devices[usize::from(far_end)];
        let other_far = self.cables[two as usize].devices[usize::from(other_far_end)];
        self.cables[one as usize].devices[usize::from(far_end)] = other_far;
        self.cables[two as usize].devices[usize::from(other_far_end)] = far;
        self.device_mut(other_far).cable = Some((one, far_end));
        self.device_mut(far).cable = Some((two, other_far_end));
    }

    /// Queue pairs of both ends die as if they had rested for too long
    fn rest_too_long(&mut self, device: DeviceIndex) {
        for end in [Some(device), self.neighbour(device)].into_iter().flatten() {
            for key in self.device(end).qps.clone() {
                let qp = &mut self.qps[key];
                qp.is_dead = true;
                qp.freeze();
            }
        }
        if let Some((cable, end)) = self.device(device).cable {
            self.direction(cable, end).round.clear();
            self.direction(cable, 1 - end).round.clear();
        }
    }
}
