//! What faults do to hosts, ports and cables

use std::time::Duration;

use rdma_core::{Gid, PortState};

use super::World;
use super::device::{Device, DeviceFaults, Leaked};
use super::host::{Host, Process};
use crate::fabric::event::Event;
use crate::fabric::ids::{DeviceIndex, LinkEnd};
use crate::fault::{FaultKind, Target};

/// What a fault does to the other components
#[derive(Clone, Copy, Debug)]
pub(crate) enum FaultEffect {
    /// An event follows after some time
    After(Duration, Event),
    /// The next frames of a transmitter are damaged
    Corrupt(LinkEnd, u32),
    /// What was connected over a cable is invalid, at both ends
    CutOff { ends: [DeviceIndex; 2], cable: u32 },
    /// The queue pairs of these devices die as if they had rested for too long
    IdleDeath { ends: [Option<DeviceIndex>; 2], cable: Option<u32> },
    /// The next messages of a transmitter are lost, up to so many frames
    Lose(LinkEnd, u32),
    /// A cable was plugged in
    PluggedIn(DeviceIndex),
    /// The objects of a device go with their process
    Reclaim(DeviceIndex),
    /// A cable carries so many percent of its rate
    Slow { cable: u32, percent: u32 },
}

type Effects = Vec<FaultEffect>;

impl World {
    /// Fires a fault, and returns what it does to the other components, in order
    pub(crate) fn fire(&mut self, target: &Target, kind: &FaultKind) -> Effects {
        let mut out = Vec::new();
        match (self.port_of(target), self.find_host(target.host())) {
            (Some(device), _) => self.fire_at_port(device, kind, &mut out),
            (None, Some(host)) => self.fire_at_host(host, kind, &mut out),
            (None, None) => (),
        }
        out
    }

    /// A host has restarted: its kernel is as new
    pub(crate) fn boot(&mut self, host: u32) -> Effects {
        let mut out = Vec::new();
        self.hosts[host as usize].boots += 1;
        self.change_host(host, |host| (host.is_booting, host.is_asleep) = (false, false), &mut out);
        for index in self.devices_of(host) {
            let readdresses = self.rules.reboot_readdresses;
            let device = self.device_mut(index);
            (device.faults, device.leaked) = (DeviceFaults::default(), Leaked::default());
            if readdresses {
                device.readdress();
            }
            self.set_unresolvable(index, false);
        }
        self.set_process(host, Process::Running);
        out
    }

    /// Plugs the cable of a port in again
    pub(crate) fn replug(&mut self, device: DeviceIndex) -> Effects {
        let Some(LinkEnd { cable, .. }) = self.link(device) else { return Vec::new() };
        if std::mem::replace(&mut self.cables[cable as usize].is_plugged, true) {
            return Vec::new();
        }
        self.change_both_ends(device, |found| found.faults.no_pds = false);
        if self.is_active(device) {
            self.link_up(device);
        }
        vec![FaultEffect::PluggedIn(device)]
    }

    /// Ends all faults that another one can end: cables are plugged in, and processes run
    pub(crate) fn repair(&mut self) -> Effects {
        let mut out = Vec::new();
        for host in 0..self.hosts.len() as u32 {
            self.change_host(host, |host| (host.has_rdma, host.is_asleep) = (true, false), &mut out);
            if self.hosts[host as usize].process != Process::Running && !self.hosts[host as usize].is_booting
            {
                self.set_process(host, Process::Running);
            }
            for index in self.devices_of(host) {
                out.extend(self.replug(index));
                self.set_unresolvable(index, false);
                let faults = &mut self.device_mut(index).faults;
                (faults.delay_ns, faults.slow_receive) = (0, false);
                faults.slow_verbs.clear();
            }
        }
        out
    }

    // ─── Hosts ───

    fn fire_at_host(&mut self, host: u32, kind: &FaultKind, out: &mut Effects) {
        let Host { process, is_booting, .. } = self.hosts[host as usize];
        match kind {
            FaultKind::RdmaOff => self.change_host(host, |host| host.has_rdma = false, out),
            FaultKind::RdmaOn => self.change_host(host, |host| host.has_rdma = true, out),
            FaultKind::Renumber => self.renumber(host),
            // No other fault applies to a host that is not there.
            _ if is_booting => (),
            FaultKind::Reboot { down } => {
                self.kill(host, out);
                self.change_host(host, |host| host.is_booting = true, out);
                out.push(FaultEffect::After(*down, Event::Boot(host)));
            }
            FaultKind::Kill => self.kill(host, out),
            FaultKind::Pause if process == Process::Running => self.set_process(host, Process::Stopped),
            FaultKind::Resume if process == Process::Stopped => self.set_process(host, Process::Running),
            FaultKind::Restart => {
                if process != Process::Dead {
                    self.kill(host, out);
                }
                self.set_process(host, Process::Running);
            }
            FaultKind::Sleep => {
                self.change_host(host, |host| host.is_asleep = true, out);
                if process == Process::Running {
                    self.set_process(host, Process::Stopped);
                }
            }
            FaultKind::Wake => {
                self.change_host(host, |host| host.is_asleep = false, out);
                if process == Process::Stopped {
                    self.set_process(host, Process::Running);
                }
            }
            _ => (),
        }
    }

    fn set_process(&mut self, host: u32, process: Process) {
        let host = &mut self.hosts[host as usize];
        if process == Process::Running && host.process == Process::Dead {
            host.generation += 1;
            host.is_starting = true;
        }
        host.process = process;
        self.has_news = true;
    }

    /// The processes die: the objects on their devices go with them
    fn kill(&mut self, host: u32, out: &mut Effects) {
        self.set_process(host, Process::Dead);
        for index in self.devices_of(host) {
            let leak = self.rules.process_end_leaks_pds;
            let device = self.device_mut(index);
            device.incarnation += 1;
            device.generation += 1;
            device.leaked.pds = device.leaked.pds.saturating_add(leak.min(device.pds));
            device.pds = 0;
            out.push(FaultEffect::Reclaim(index));
        }
    }

    /// A process that had so many queue pairs on a device has ended; returns whether the kernel keeps some of them
    pub(crate) fn keep_qps(&mut self, device: DeviceIndex, count: u32) -> bool {
        let kept = self.rules.process_end_leaks_qps.min(count);
        let leaked = &mut self.device_mut(device).leaked;
        leaked.qps = leaked.qps.saturating_add(kept);
        kept > 0
    }

    fn renumber(&mut self, host: u32) {
        let devices: Vec<_> = self.devices_of(host).collect();
        let mut names: Vec<_> = devices.iter().map(|device| self.device_name(*device).to_owned()).collect();
        if !names.is_empty() {
            names.rotate_left(1);
        }
        for (device, name) in devices.into_iter().zip(names) {
            self.device_mut(device).name = name;
        }
    }

    /// Changes a host, and its ports with it
    fn change_host(&mut self, host: u32, change: impl FnOnce(&mut Host), out: &mut Effects) {
        let were_active: Vec<_> =
            self.devices_of(host).map(|device| (device, self.is_active(device))).collect();
        change(&mut self.hosts[host as usize]);
        for (device, was_active) in were_active {
            match (was_active, self.is_active(device)) {
                (true, false) => self.cut_off(device, out),
                (false, true) => self.link_up(device),
                _ => (),
            }
        }
    }

    // ─── Ports ───

    fn fire_at_port(&mut self, device: DeviceIndex, kind: &FaultKind, out: &mut Effects) {
        let link = self.link(device);
        match kind {
            FaultKind::Unplug => self.unplug(device, out),
            FaultKind::Replug => out.extend(self.replug(device)),
            FaultKind::Flap { down } => {
                self.unplug(device, out);
                out.push(FaultEffect::After(*down, Event::Replug(device)));
            }
            FaultKind::Cross { with } => self.cross(device, with, out),
            FaultKind::Corrupt { frames } => out.extend(link.map(|link| FaultEffect::Corrupt(link, *frames))),
            FaultKind::Lose { frames } => out.extend(link.map(|link| FaultEffect::Lose(link, *frames))),
            FaultKind::Slow { percent } | FaultKind::Storm { percent } => {
                let percent = (*percent).clamp(1, 100);
                out.extend(link.map(|link| FaultEffect::Slow { cable: link.cable, percent }));
            }
            FaultKind::IdleDeath => {
                let ends = [Some(device), self.neighbour(device)];
                out.push(FaultEffect::IdleDeath { ends, cable: link.map(|link| link.cable) });
            }
            FaultKind::InterfaceDown | FaultKind::Unresolvable => self.set_unresolvable(device, true),
            FaultKind::Resolvable => self.set_unresolvable(device, false),
            kind => {
                self.has_device_faults = true;
                self.has_slow_verbs |= matches!(kind, FaultKind::Hang { .. } | FaultKind::SlowVerb { .. });
                self.device_mut(device).apply_fault(kind);
            }
        }
    }

    fn change_both_ends(&mut self, device: DeviceIndex, change: impl Fn(&mut Device)) {
        change(self.device_mut(device));
        if let Some(neighbour) = self.neighbour(device) {
            change(self.device_mut(neighbour));
        }
    }

    /// Changes the cable, whether or not it is plugged in
    fn set_unresolvable(&mut self, device: DeviceIndex, is_unresolvable: bool) {
        if let Some(link) = self.link(device) {
            self.cables[link.cable as usize].is_unresolvable = is_unresolvable;
        }
    }

    fn is_active(&self, device: DeviceIndex) -> bool {
        self.port(device).state == PortState::Active
    }

    // ─── Cables ───

    fn unplug(&mut self, device: DeviceIndex, out: &mut Effects) {
        if let (Some(_), Some(LinkEnd { cable, .. })) = (self.neighbour(device), self.link(device)) {
            self.cut_off(device, out);
            self.cables[cable as usize].is_plugged = false;
        }
    }

    /// Invalidates what was created over the cable of `device`, without a word to the programs
    fn cut_off(&mut self, device: DeviceIndex, out: &mut Effects) {
        if let (Some(neighbour), Some(LinkEnd { cable, .. })) = (self.neighbour(device), self.link(device)) {
            self.change_both_ends(device, |found| found.incarnation += 1);
            out.push(FaultEffect::CutOff { ends: [device, neighbour], cable });
        }
    }

    /// The ends of a cable find each other again: it costs protection domains, and their interfaces get their addresses anew
    fn link_up(&mut self, device: DeviceIndex) {
        let (leak, moves) = (self.rules.replug_leaks_pds, self.rules.gids_move);
        self.change_both_ends(device, |found| {
            found.leaked.pds = found.leaked.pds.saturating_add(leak);
            if moves {
                found.move_gids();
            }
        });
    }

    /// Exchanges the remote ends of two cables of a host
    fn cross(&mut self, device: DeviceIndex, with: &str, out: &mut Effects) {
        let mut others = self.devices_of(self.host_of(device));
        let Some(other) = others.find(|other| self.device(*other).name == with) else { return };
        let (Some(here), Some(there)) = (self.link(device), self.link(other)) else { return };
        if here.cable == there.cable {
            return;
        }
        self.cut_off(device, out);
        self.cut_off(other, out);
        let (remote, there_remote) = (here.opposite(), there.opposite());
        let (one, two) = (self.device_at(remote), self.device_at(there_remote));
        for (end, device) in [(remote, two), (there_remote, one)] {
            self.cables[end.cable as usize].ends[usize::from(end.end)] = device;
            self.links[device.position()] = Some(end);
        }
    }

    fn device_at(&self, LinkEnd { cable, end }: LinkEnd) -> DeviceIndex {
        self.cables[cable as usize].ends[usize::from(end)]
    }
}

impl Device {
    /// Applies a fault that concerns this device alone
    fn apply_fault(&mut self, kind: &FaultKind) {
        let Self { faults, gids, leaked, .. } = self;
        match *kind {
            FaultKind::Boundary => faults.straddles = true,
            FaultKind::Busy => faults.is_busy = true,
            FaultKind::Captured => gids.truncate(1),
            FaultKind::Delay { by } => {
                faults.delay_ns = u64::try_from(by.as_nanos()).unwrap_or(u64::MAX / 4);
            }
            FaultKind::GidAt { index } => {
                let ipv4: Vec<_> = gids.extract_if(.., |gid| gid.ipv4().is_some()).collect();
                let at = usize::from(index);
                gids.resize(gids.len().max(at), Gid::default());
                gids.splice(at..at, ipv4);
            }
            FaultKind::Hang { verb } => faults.slow_down(verb.verb(), u64::MAX),
            FaultKind::LeakCqs { count } => leaked.cqs = leaked.cqs.saturating_add(count),
            FaultKind::LeakMrs { count } => leaked.regions = leaked.regions.saturating_add(count),
            FaultKind::LeakPds { count } => leaked.pds = leaked.pds.saturating_add(count),
            FaultKind::LeakQps { count } => leaked.qps = leaked.qps.saturating_add(count),
            FaultKind::LinkLocalGids => gids.retain(|gid| gid.ipv4().is_none()),
            FaultKind::NoGids => gids.clear(),
            FaultKind::NoPds => faults.no_pds = true,
            FaultKind::Overflow => faults.overflows = true,
            FaultKind::SlowReceive => faults.slow_receive = true,
            FaultKind::SlowVerb { slow } => {
                // Only a verb that hangs takes for ever.
                let ns = u64::try_from(slow.time.as_nanos()).unwrap_or(u64::MAX).min(u64::MAX / 4);
                faults.slow_down(slow.verb.verb(), ns);
            }
            FaultKind::Wedge => faults.is_wedged = true,
            _ => (),
        }
    }
}
