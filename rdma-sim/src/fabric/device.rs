//! Devices: their ports, GID tables, protection domains and memory regions

use std::ptr::NonNull;

use rdma_core::{
    Access, Caps, Cause, Error, Gid, Invalid, Lkey, PortState, PortStatus, Qpn, Resource, Rkey, Time, Verb,
};

use super::memory::Region;
use super::{CqKey, DeviceIndex, Fabric, QpKey, RegionKey};
use crate::LineRate;
use crate::topology::Port;

/// One port of a Mac
#[derive(Debug)]
pub(super) struct Device {
    pub(super) name: String,
    pub(super) host: u32,
    /// The cable and which of its ends is here.
    pub(super) cable: Option<(u32, u8)>,
    pub(super) gids: Vec<Gid>,
    /// Of what the port itself is capable.
    pub(super) rate: LineRate,
    /// Grows when everything that was created before becomes useless.
    pub(super) incarnation: u32,
    /// Grows when everything that was created before was taken away.
    pub(super) generation: u32,
    pub(super) pds: u32,
    pub(super) cqs: u32,
    pub(super) qps: Vec<QpKey>,
    pub(super) regions: Vec<RegionKey>,
    /// What counts, and nobody has.
    pub(super) lost_cqs: u32,
    pub(super) lost_pds: u32,
    pub(super) lost_regions: u32,
    pub(super) lost_qps: u32,
    pub(super) next_lkey: u32,
    pub(super) next_base: u64,
    pub(super) trouble: Trouble,
}

/// What faults have done to a device
#[derive(Clone, Debug, Default)]
pub(super) struct Trouble {
    /// The next region lies across a 4 GiB boundary.
    pub(super) boundary: bool,
    /// No queue pair becomes ready to receive.
    pub(super) busy: bool,
    /// Completions come later.
    pub(super) delay_ns: u64,
    pub(super) failed_rtrs: u32,
    pub(super) is_wedged: bool,
    /// A queue pair was set to the error state: mappings are kept.
    pub(super) keeps_mappings: bool,
    pub(super) no_pds: bool,
    pub(super) overflows: bool,
    pub(super) slow_receive: bool,
    pub(super) unresolvable: bool,
}

/// An open device, as long as it is the same one
#[derive(Clone, Copy, Debug)]
pub(crate) struct DeviceRef {
    pub(crate) index: DeviceIndex,
    incarnation: u32,
    generation: u32,
}

/// Queue pair numbers are hop numbers times 256, from hop 9 (published reverse-engineered driver).
const FIRST_HOP: u32 = 9;
/// The first key that Apple's provider was seen to give.
const FIRST_LKEY: u32 = 0x101;
const LKEY_STEP: u32 = 0x100;
/// Virtual addresses of regions: 4 GiB apart, so that a wrong one is inside no other region.
pub(super) const BOUNDARY: u64 = 1 << 32;

impl Device {
    pub(super) fn new(port: &Port, rate: LineRate, host: u32, cable: Option<(u32, u8)>) -> Self {
        Self {
            name: port.device.clone(),
            host,
            cable,
            gids: port.gids(),
            rate,
            incarnation: 1,
            generation: 1,
            pds: 0,
            cqs: 0,
            qps: Vec::new(),
            regions: Vec::new(),
            lost_cqs: 0,
            lost_pds: 0,
            lost_regions: 0,
            lost_qps: 0,
            next_lkey: FIRST_LKEY,
            next_base: BOUNDARY,
            trouble: Trouble::default(),
        }
    }
}

impl Fabric {
    pub(crate) fn caps(&self) -> &Caps {
        &self.model.caps
    }

    pub(crate) fn find_device(&self, host: &str, name: &str) -> Option<DeviceIndex> {
        let host = &self.hosts[self.find_host(host)? as usize];
        host.devices.clone().map(DeviceIndex).find(|index| {
            let device = self.device(*index);
            device.name == name && (self.model.rules.tb4_devices || device.rate != LineRate::TB4)
        })
    }

    pub(crate) fn device_name(&self, device: DeviceIndex) -> &str {
        &self.device(device).name
    }

    pub(super) fn device(&self, device: DeviceIndex) -> &Device {
        &self.devices[device.0 as usize]
    }

    pub(super) fn device_mut(&mut self, device: DeviceIndex) -> &mut Device {
        &mut self.devices[device.0 as usize]
    }

    /// Active if a host that speaks RDMA is at either end of the cable
    pub(crate) fn port(&self, device: DeviceIndex) -> PortStatus {
        let this = self.device(device);
        let far = self.neighbour(device).map(|far| &self.hosts[self.device(far).host as usize]);
        match this.cable {
            Some((cable, _))
                if self.hosts[this.host as usize].is_up() && far.is_some_and(super::host::Host::is_up) =>
            {
                PortStatus::new(PortState::Active, self.cables[cable as usize].rate.bits_per_second)
            }
            _ => PortStatus::new(PortState::Down, 0),
        }
    }

    pub(crate) fn gids(&self, device: DeviceIndex) -> &[Gid] {
        &self.device(device).gids
    }

    /// The device at the other end of a device's cable, if the cable is plugged in
    pub(super) fn neighbour(&self, device: DeviceIndex) -> Option<DeviceIndex> {
        let (cable, end) = self.device(device).cable?;
        let cable = &self.cables[cable as usize];
        cable.is_plugged.then(|| cable.devices[1 - usize::from(end)])
    }

    /// The device as it is now
    pub(crate) fn current(&self, index: DeviceIndex) -> DeviceRef {
        let Device { incarnation, generation, .. } = *self.device(index);
        DeviceRef { index, incarnation, generation }
    }

    pub(crate) fn is_current(&self, device: DeviceRef) -> bool {
        self.device(device.index).incarnation == device.incarnation
    }

    /// Whether something can be created on the device
    pub(super) fn require_usable(&self, device: DeviceRef, verb: Verb) -> Result<(), Error> {
        if !self.is_current(device) {
            return Err(Error::new(verb, Cause::DeviceGone));
        }
        if self.device(device.index).trouble.is_wedged {
            return Err(Error::new(verb, Cause::Busy));
        }
        match self.port(device.index).state {
            PortState::Active => Ok(()),
            _ => Err(Error::new(verb, Cause::PortDown)),
        }
    }

    pub(crate) fn alloc_pd(&mut self, device: DeviceRef) -> Result<(), Error> {
        self.require_usable(device, Verb::AllocPd)?;
        let limit = self.model.caps.max_pd;
        let found = self.device_mut(device.index);
        if found.pds.saturating_add(found.lost_pds) >= limit || found.trouble.no_pds {
            let resource = Resource::ProtectionDomains;
            return Err(Error::new(Verb::AllocPd, Cause::Exhausted { resource, limit }));
        }
        found.pds += 1;
        Ok(())
    }

    pub(crate) fn dealloc_pd(&mut self, device: DeviceRef) {
        let owner = self.device_mut(device.index);
        if owner.generation == device.generation {
            owner.pds -= 1;
        }
    }

    /// Takes away what the processes of the host had on the device
    pub(super) fn reclaim(&mut self, index: DeviceIndex) {
        for qp in std::mem::take(&mut self.device_mut(index).qps) {
            self.forget_posts_of(qp);
            self.qps.remove(qp);
        }
        for region in std::mem::take(&mut self.device_mut(index).regions) {
            self.regions.remove(region);
        }
        self.destroy_cqs_of(index);
        let device = self.device_mut(index);
        device.incarnation += 1;
        device.generation += 1;
        device.pds = 0;
        device.cqs = 0;
    }

    /// The lowest free number
    pub(super) fn take_qpn(&self, device: DeviceIndex) -> Qpn {
        let is_taken = |qpn| self.device(device).qps.iter().any(|key| self.qps[*key].qpn == qpn);
        let mut qpns = (FIRST_HOP..).map(|hop| Qpn(hop << 8));
        qpns.find(|qpn| !is_taken(*qpn)).expect("there are more numbers than queue pairs")
    }

    // ─── Memory ───

    pub(crate) fn register(
        &mut self,
        device: DeviceRef,
        memory: NonNull<[u8]>,
        access: Access,
    ) -> Result<RegionKey, Error> {
        let fail = |cause| Err(Error::new(Verb::RegMr, cause));
        if !self.is_current(device) {
            return fail(Cause::DeviceGone);
        }
        let limit = self.model.caps.max_mr;
        let owner = self.device(device.index);
        if (owner.regions.len() as u32).saturating_add(owner.lost_regions) >= limit {
            return fail(Cause::Exhausted { resource: Resource::MemoryRegions, limit });
        }
        if memory.is_empty() {
            return fail(Invalid::EmptyRegion.into());
        }
        let (addr, align) = (memory.cast::<u8>().addr().get(), self.model.rules.alignment);
        if !addr.is_multiple_of(align) {
            return fail(Invalid::Misaligned { addr: addr as u64, align: align as u64 }.into());
        }
        if access == Access::LOCAL_WRITE && !self.model.rules.local_write_alone {
            return fail(Invalid::LocalWriteOnly.into());
        }
        self.clock_of_setup += 1;
        let registered = self.clock_of_setup;
        let (one_sided, real_addresses) = (self.model.caps.one_sided, self.real_addresses);
        let owner = self.device_mut(device.index);
        let (mut base, lkey) = (owner.next_base, Lkey(owner.next_lkey));
        owner.next_base += (memory.len() as u64).next_multiple_of(BOUNDARY);
        if real_addresses {
            base = memory.cast::<u8>().addr().get() as u64;
        }
        owner.next_lkey += LKEY_STEP;
        if std::mem::take(&mut owner.trouble.boundary) && !real_addresses {
            // Half of it, in whole pages, lies below the boundary.
            owner.next_base += BOUNDARY;
            base += BOUNDARY - (memory.len() as u64 / 2).next_multiple_of(16 * 1024).min(BOUNDARY);
        }
        let rkey = one_sided.then_some(Rkey(lkey.0));
        let region = Region::new(device.index, base, lkey, rkey, access, registered, memory);
        let key = self.regions.insert(region);
        self.device_mut(device.index).regions.push(key);
        Ok(key)
    }

    /// Base address and keys of a region
    pub(crate) fn region(&self, key: RegionKey) -> (u64, Lkey, Option<Rkey>) {
        let region = &self.regions[key];
        (region.base, region.lkey, region.rkey)
    }

    pub(crate) fn deregister(&mut self, key: RegionKey) {
        self.check_deregistration(key);
        if let Some(region) = self.regions.remove(key) {
            let device = self.device_mut(region.device);
            device.regions.retain(|other| *other != key);
            if device.trouble.keeps_mappings {
                device.lost_regions += 1;
            }
        }
    }

    /// When something at `device` that is ready at `time` can be seen
    pub(super) fn visible_at(&self, device: DeviceIndex, time: Time) -> Time {
        let trouble = &self.device(device).trouble;
        if trouble.delay_ns == 0 && !trouble.slow_receive {
            return time;
        }
        let time = time + super::nanos(trouble.delay_ns);
        if trouble.slow_receive {
            const SECOND: u64 = 1_000_000_000;
            return Time::from_nanos(time.as_nanos().next_multiple_of(SECOND));
        }
        time
    }

    /// What still exists: queue pairs, completion queues, regions, protection domains
    pub(crate) fn census(&self) -> [usize; 4] {
        let pds = self.devices.iter().map(|device| device.pds as usize).sum();
        [self.qps.len(), self.cqs.len(), self.regions.len(), pds]
    }

    pub(crate) fn has_cq(&self, cq: CqKey) -> bool {
        self.cqs.contains_key(cq)
    }
}
