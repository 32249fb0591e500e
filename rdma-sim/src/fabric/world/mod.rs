//! The hosts, their ports, and which cables are plugged in where

mod connecting;
mod device;
mod faults;
mod host;

use rdma_core::{Cause, Error, Gid, PortState, PortStatus, Resource, Time, Verb};

pub(crate) use self::device::Leaked;
pub(crate) use self::faults::FaultEffect;
pub use self::host::Process;

use self::device::Device;
use self::host::Host;
use super::ids::{DeviceIndex, DeviceRef, LinkEnd};
use super::object_counts::ObjectCounts;
use crate::fault::Target;
use crate::rules::Rules;
use crate::topology::{PortIndex, Topology, gids_under};
use crate::{LineRate, Model};

/// The hosts, their ports, and which cables are plugged in where
pub(crate) struct World {
    hosts: Vec<Host>,
    devices: Vec<Device>,
    /// The end of a cable that is in the port of each device; apart, because each transmission looks at it.
    links: Vec<Option<LinkEnd>>,
    /// Whether a fault has concerned a device alone.
    has_device_faults: bool,
    /// A fault has made a verb slow: posts and polls look whether it is theirs.
    has_slow_verbs: bool,
    cables: Vec<Cable>,
    /// Processes have stopped or started since the last [`take_processes_changed`](Self::take_processes_changed).
    has_news: bool,
    /// Faults have fired since the last [`take_ports_changed`](Self::take_ports_changed), which may have changed ports.
    ports_changed: bool,
    /// The only host that is simulated here, if other processes simulate the others.
    here: Option<u32>,
    max_pd: u32,
    rules: Rules,
}

struct Cable {
    rate: LineRate,
    is_plugged: bool,
    /// Neither end can resolve the address of the other.
    is_unresolvable: bool,
    ends: [DeviceIndex; 2],
}

impl World {
    pub(super) fn new(topology: &Topology, model: &Model) -> Self {
        let rates = topology.cables.iter().map(|cable| topology.link_rate(cable));
        let mut cables: Vec<_> = rates
            .map(|rate| Cable { rate, is_plugged: true, is_unresolvable: false, ends: [DeviceIndex(0); 2] })
            .collect();
        let (mut devices, mut links, mut hosts) = (Vec::new(), Vec::new(), Vec::new());
        for (h, host) in topology.hosts.iter().enumerate() {
            let first = devices.len() as u32;
            for (p, port) in host.ports.iter().enumerate() {
                let index = DeviceIndex(devices.len() as u32);
                let position = PortIndex { host: h, port: p };
                let link = topology.cables.iter().enumerate().find_map(|(c, cable)| {
                    let end = cable.ends.iter().position(|end| *end == position)?;
                    cables[c].ends[end] = index;
                    Some(LinkEnd { cable: c as u32, end: end as u8 })
                });
                let gids = gids_under(&model.rules, port, [h, p]);
                devices.push(Device::new(port.device.clone(), gids, host.mac().line_rate(), h as u32));
                links.push(link);
            }
            hosts.push(Host::new(host.name.clone(), first..devices.len() as u32));
        }
        let (max_pd, rules) = (model.caps.max_pd, model.rules.clone());
        Self {
            hosts,
            devices,
            links,
            has_device_faults: false,
            has_slow_verbs: false,
            cables,
            has_news: false,
            ports_changed: false,
            here: None,
            max_pd,
            rules,
        }
    }

    // ─── Hosts ───

    /// The names of the hosts, for messages
    pub(crate) fn host_names(&self) -> Vec<String> {
        self.hosts.iter().map(|host| host.name.clone()).collect()
    }

    /// Whether the kernel of a host answers on a network
    pub(crate) fn answers(&self, host: u32) -> bool {
        let host = &self.hosts[host as usize];
        !host.is_booting && !host.is_asleep
    }

    pub(crate) fn host_name(&self, host: u32) -> &str {
        &self.hosts[host as usize].name
    }

    /// The names of the devices of a host that programs can open, for messages
    pub(crate) fn device_names(&self, host: u32) -> Vec<String> {
        let names = self.devices_of(host).map(|index| self.device(index).name.clone());
        names.filter(|name| self.find_device(&self.hosts[host as usize].name, name).is_some()).collect()
    }

    pub(crate) fn find_host(&self, name: &str) -> Option<u32> {
        self.hosts.iter().position(|host| host.name == name).map(|index| index as u32)
    }

    /// The state of the processes of a host, and how often they were started
    pub(crate) fn process(&self, host: u32) -> (Process, u32) {
        let host = &self.hosts[host as usize];
        (host.process, host.generation)
    }

    /// How often a host has restarted
    pub(crate) fn boots(&self, host: u32) -> u32 {
        self.hosts[host as usize].boots
    }

    /// Whether the processes of a host have started anew since the last call
    pub(crate) fn take_start(&mut self, host: u32) -> bool {
        std::mem::take(&mut self.hosts[host as usize].is_starting)
    }

    pub(crate) fn has_news(&self) -> bool {
        self.has_news || self.ports_changed
    }

    /// Whether processes have stopped or started since the last call
    pub(crate) fn take_processes_changed(&mut self) -> bool {
        std::mem::take(&mut self.has_news)
    }

    /// Whether ports may have changed since the last call
    pub(crate) fn take_ports_changed(&mut self) -> bool {
        std::mem::take(&mut self.ports_changed)
    }

    /// A fault has fired or ended
    pub(super) fn set_ports_changed(&mut self) {
        self.ports_changed = true;
    }

    /// The devices of a host; none if there is no such host
    pub(crate) fn devices_of(&self, host: u32) -> impl Iterator<Item = DeviceIndex> + use<> {
        let devices = self.hosts.get(host as usize).map_or(0..0, |host| host.devices.clone());
        devices.map(DeviceIndex)
    }

    // ─── Other processes ───

    /// Simulates only `host` from now on
    pub(crate) fn simulate_only(&mut self, host: u32) {
        self.here = Some(host);
    }

    /// Whether other processes simulate the other hosts
    #[inline]
    pub(super) fn has_remote_hosts(&self) -> bool {
        self.here.is_some()
    }

    /// Whether another process simulates `host`
    pub(super) fn is_elsewhere(&self, host: u32) -> bool {
        self.here.is_some_and(|here| here != host)
    }

    /// The host of a device, if another process simulates it
    pub(super) fn remote_host(&self, device: DeviceIndex) -> Option<u32> {
        self.here?;
        let host = self.device(device).host;
        self.is_elsewhere(host).then_some(host)
    }

    /// The host at the other end of a device's cable, if another process simulates it
    pub(super) fn remote_neighbour(&self, device: DeviceIndex) -> Option<u32> {
        self.here?;
        self.remote_host(self.neighbour(device)?)
    }

    /// The device at that position, if it is one of `host`
    pub(super) fn device_at_host(&self, host: u32, position: u32) -> Option<DeviceIndex> {
        self.devices_of(host).find(|device| device.0 == position)
    }

    /// The device at that position, if it is one of the host that is simulated here
    pub(super) fn device_here(&self, position: u32) -> Option<DeviceIndex> {
        self.device_at_host(self.here?, position)
    }

    // ─── Devices ───

    /// The device called `name` on `host`, unless the rules hide it
    pub(crate) fn find_device(&self, host: &str, name: &str) -> Option<DeviceIndex> {
        let found = self.find_port(host, name)?;
        (self.rules.tb4_devices || self.device(found).rate != LineRate::TB4).then_some(found)
    }

    /// Whether the port of a device, which the rules may hide, is of the older kind
    pub(crate) fn is_tb4(&self, host: &str, name: &str) -> bool {
        self.find_port(host, name).is_some_and(|found| self.device(found).rate == LineRate::TB4)
    }

    /// The device called `name` on `host`, whether or not the rules hide it
    pub(crate) fn find_port(&self, host: &str, name: &str) -> Option<DeviceIndex> {
        self.devices_of(self.find_host(host)?).find(|index| self.device(*index).name == name)
    }

    fn port_of(&self, target: &Target) -> Option<DeviceIndex> {
        match target {
            Target::Port { host, device } => self.find_port(host, device),
            Target::Host(_) => None,
        }
    }

    /// The transmitter whose frames a fault at `target` counts: for a host, that of its first port with a cable
    pub(super) fn counted_link(&self, target: &Target) -> Option<LinkEnd> {
        let first = || {
            let mut devices = self.devices_of(self.find_host(target.host())?);
            devices.find(|device| self.link(*device).is_some())
        };
        self.link(self.port_of(target).or_else(first)?)
    }

    pub(super) fn device_count(&self) -> usize {
        self.devices.len()
    }

    pub(crate) fn device_name(&self, device: DeviceIndex) -> &str {
        &self.device(device).name
    }

    pub(crate) fn gids(&self, device: DeviceIndex) -> &[Gid] {
        &self.device(device).gids
    }

    pub(crate) fn host_of(&self, device: DeviceIndex) -> u32 {
        self.device(device).host
    }

    /// The bit of a device's host; the hosts from the 63rd on share one
    pub(crate) fn host_bit(&self, device: DeviceIndex) -> u64 {
        1 << self.host_of(device).min(63)
    }

    /// The devices at both ends of a cable
    pub(crate) fn ends(&self, link: LinkEnd) -> Option<[DeviceIndex; 2]> {
        self.cables.get(link.cable as usize).map(|cable| cable.ends)
    }

    /// The end of a cable that is in the port of a device
    pub(crate) fn link(&self, device: DeviceIndex) -> Option<LinkEnd> {
        self.links[device.position()]
    }

    /// Of the devices of `host`, the first with a cable to the host `to`
    pub(crate) fn device_to(&self, host: u32, to: u32) -> Option<DeviceIndex> {
        let leads_there = |device| self.neighbour(device).is_some_and(|other| self.host_of(other) == to);
        self.devices_of(host).find(|device| leads_there(*device))
    }

    /// The device at the other end of a device's cable, if the cable is plugged in
    pub(crate) fn neighbour(&self, device: DeviceIndex) -> Option<DeviceIndex> {
        let LinkEnd { cable, end } = self.link(device)?;
        let cable = &self.cables[cable as usize];
        cable.is_plugged.then(|| cable.ends[1 - usize::from(end)])
    }

    /// Whether neither end of a device's cable can resolve the address of the other
    pub(super) fn is_unresolvable(&self, device: DeviceIndex) -> bool {
        self.link(device).is_some_and(|link| self.cables[link.cable as usize].is_unresolvable)
    }

    /// The device at the other end of a device's cable, if the kernels of both hosts reach each other over it
    pub(crate) fn ip_neighbour(&self, device: DeviceIndex) -> Option<DeviceIndex> {
        let neighbour = self.neighbour(device).filter(|_| !self.is_unresolvable(device))?;
        let both_answer = [device, neighbour].into_iter().all(|end| self.answers(self.host_of(end)));
        both_answer.then_some(neighbour)
    }

    /// Active if the hosts at both ends of the cable are up
    pub(crate) fn port(&self, device: DeviceIndex) -> PortStatus {
        let is_up = |device: DeviceIndex| self.hosts[self.host_of(device) as usize].is_up();
        match self.link(device) {
            Some(link) if is_up(device) && self.neighbour(device).is_some_and(is_up) => {
                let rate = self.cables[link.cable as usize].rate;
                PortStatus::new(PortState::Active, rate.bits_per_second)
            }
            _ => PortStatus::new(PortState::Down, 0),
        }
    }

    /// The device as it is now
    pub(crate) fn current(&self, index: DeviceIndex) -> DeviceRef {
        let Device { incarnation, generation, .. } = *self.device(index);
        DeviceRef { index, incarnation, generation }
    }

    /// When a completion at `device` that is ready at `time` becomes visible
    pub(super) fn visible_at(&self, device: DeviceIndex, time: Time) -> Time {
        if self.has_device_faults { self.device(device).faults.visible_at(time) } else { time }
    }

    fn device(&self, device: DeviceIndex) -> &Device {
        &self.devices[device.position()]
    }

    fn device_mut(&mut self, device: DeviceIndex) -> &mut Device {
        &mut self.devices[device.position()]
    }

    /// Whether a verb may be slow, of any device
    #[inline]
    pub(crate) fn has_slow_verbs(&self) -> bool {
        self.has_slow_verbs
    }

    /// How many nanoseconds longer a verb takes at `device` because of faults; [`u64::MAX`] if it does not return
    pub(crate) fn slow_verb_ns(&self, device: DeviceIndex, verb: Verb) -> u64 {
        let slow = self.device(device).faults.slow_verbs.iter().find(|(slow, _)| *slow == verb);
        slow.map_or(0, |(_, ns)| *ns)
    }

    // ─── Objects on devices ───

    /// # Errors
    ///
    /// [`Cause::DeviceGone`] if the device was opened before its cable was pulled
    pub(super) fn require_current(&self, device: DeviceRef, verb: Verb) -> Result<(), Error> {
        match self.device(device.index).incarnation == device.incarnation {
            true => Ok(()),
            false => Err(Error::new(verb, Cause::DeviceGone)),
        }
    }

    /// Whether an object can be created on the device
    pub(super) fn require_usable(&self, device: DeviceRef, verb: Verb) -> Result<(), Error> {
        self.require_current(device, verb)?;
        if self.device(device.index).faults.is_wedged {
            return Err(Error::new(verb, Cause::Busy));
        }
        match self.port(device.index).state {
            PortState::Active => Ok(()),
            _ => Err(Error::new(verb, Cause::PortDown)),
        }
    }

    pub(crate) fn alloc_pd(&mut self, device: DeviceRef, objects: &mut ObjectCounts) -> Result<(), Error> {
        self.require_usable(device, Verb::AllocPd)?;
        let (resource, limit) = (Resource::ProtectionDomains, self.max_pd);
        let found = self.device_mut(device.index);
        let counted = match found.faults.no_pds {
            true => Err(Cause::Exhausted { resource, limit }),
            false => objects.add(device.index, resource, [found.pds, found.leaked.pds], limit),
        };
        counted.map_err(|cause| Error::new(Verb::AllocPd, cause))?;
        found.pds += 1;
        Ok(())
    }

    /// Whether the port allocates no protection domain because of a fault
    pub(super) fn has_no_pds(&self, device: DeviceIndex) -> bool {
        self.device(device).faults.no_pds
    }

    pub(crate) fn dealloc_pd(&mut self, device: DeviceRef, objects: &mut ObjectCounts) {
        let owner = self.device_mut(device.index);
        if owner.generation == device.generation {
            owner.pds -= 1;
            objects.set(device.index, Resource::ProtectionDomains, owner.pds);
        }
    }

    /// Protection domains of all devices
    pub(crate) fn pds(&self) -> usize {
        self.devices.iter().map(|device| device.pds as usize).sum()
    }

    pub(super) fn leaked(&self, device: DeviceIndex) -> Leaked {
        self.device(device).leaked
    }

    /// Whether the receive queues of `device` accept more than they hold
    pub(super) fn overflows(&self, device: DeviceIndex) -> bool {
        self.has_device_faults && self.device(device).faults.overflows
    }

    /// Whether the next region of `device` shall lie across a 4 GiB boundary; true once for each fault
    pub(super) fn take_straddle(&mut self, device: DeviceIndex) -> bool {
        std::mem::take(&mut self.device_mut(device).faults.straddles)
    }

    /// A region was deregistered: returns whether the device still counts it, as after an error state
    pub(super) fn region_deregistered(&mut self, device: DeviceIndex) -> bool {
        let device = self.device_mut(device);
        device.leaked.regions += u32::from(device.faults.keeps_mappings);
        device.faults.keeps_mappings
    }

    /// Notes whether a queue pair of a device has died of idleness
    pub(super) fn note_idleness(&mut self, device: DeviceIndex, has_idled: bool) {
        let spoils = self.rules.idle_death_spoils;
        self.device_mut(device).faults.is_spoiled |= spoils && has_idled;
    }

    /// A queue pair was set to the error state
    pub(super) fn qp_failed(&mut self, device: DeviceIndex) {
        let keeps_mappings = self.rules.error_keeps_mappings;
        self.device_mut(device).faults.keeps_mappings |= keeps_mappings;
    }
}
