//! Devices, queues and cables in virtual time
//!
//! A [`Fabric`] is a plain value: no I/O, no threads, no clock. Verbs change it, [`advance`](Fabric::advance) lets time
//! pass, and [`next_event`](Fabric::next_event) tells how far it can pass without anything happening.

mod memory;
mod queue_pair;
mod wire;

pub use self::wire::CableStats;

use std::collections::VecDeque;
use std::ptr::NonNull;

use rdma_core::{
    Caps, Cause, Completion, Error, Gid, Lkey, PortState, PortStatus, Qpn, Resource, Time, Verb,
};
use slotmap::{SlotMap, new_key_type};

use self::memory::Region;
use self::queue_pair::QueuePair;
use self::wire::Cable;
use crate::schedule::Schedule;
use crate::trace::{Digest, Trace};
use crate::{Choices, Model, Topology};

new_key_type! {
    /// A completion queue
    pub(crate) struct CqKey;
    /// A queue pair
    pub(crate) struct QpKey;
    /// A memory region
    pub(crate) struct RegionKey;
}

/// Position of a device among all devices of the fabric
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct DeviceIndex(pub(crate) u32);

/// What happens by itself
#[derive(Clone, Copy, Debug)]
enum Event {
    /// A posted send reaches the transmitter
    Doorbell(QpKey),
    /// The transmitter of one direction of a cable is free again
    Free { cable: u32, end: u8 },
    /// A receive that was posted becomes known to the sender
    Credit(QpKey),
    /// The oldest transmitted send of a queue pair completes
    Sent(QpKey),
    /// The oldest filled receive of a queue pair completes
    Delivered(QpKey),
}

/// The simulated hardware: devices, their objects, and the cables between them
#[derive(Debug)]
pub(crate) struct Fabric {
    now: Time,
    /// How far time may pass before somebody else has a say.
    limit: Time,
    schedule: Schedule<Event>,
    choices: Box<dyn Choices>,
    trace: Trace,
    model: Model,
    hosts: Vec<String>,
    devices: Vec<Device>,
    cables: Vec<Cable>,
    regions: SlotMap<RegionKey, Region>,
    cqs: SlotMap<CqKey, CompletionQueue>,
    qps: SlotMap<QpKey, QueuePair>,
    /// Completion queues that somebody waits for and that have something to tell since the last look.
    woken: Vec<CqKey>,
}

/// One port of a Mac
#[derive(Debug)]
struct Device {
    name: String,
    host: u32,
    /// The cable and which of its ends is here.
    cable: Option<(u32, u8)>,
    gids: Vec<Gid>,
    pds: u32,
    cqs: u32,
    qps: Vec<QpKey>,
    regions: Vec<RegionKey>,
    next_qpn: u32,
    next_lkey: u32,
    next_base: u64,
}

#[derive(Debug)]
struct CompletionQueue {
    device: DeviceIndex,
    entries: VecDeque<Completion>,
    depth: usize,
    is_overrun: bool,
    is_awaited: bool,
}

/// Queue pair numbers are hop numbers times 256, from hop 9 (published reverse-engineered driver).
const FIRST_QPN: u32 = 0x900;
const QPN_STEP: u32 = 0x100;
/// The first key that Apple's provider was seen to give.
const FIRST_LKEY: u32 = 0x101;
const LKEY_STEP: u32 = 0x100;
/// Virtual addresses of regions: 4 GiB apart, so that a wrong one is inside no other region.
const FIRST_BASE: u64 = 1 << 32;

impl Fabric {
    pub(crate) fn new(topology: &Topology, model: Model, choices: Box<dyn Choices>) -> Self {
        let mut devices = Vec::new();
        let mut cables: Vec<_> =
            topology.cables.iter().map(|cable| Cable::new(topology.link_rate(cable))).collect();
        for (h, host) in topology.hosts.iter().enumerate() {
            for (p, port) in host.ports.iter().enumerate() {
                let index = DeviceIndex(devices.len() as u32);
                let end_here = crate::topology::PortIndex { host: h, port: p };
                let cable = topology.cables.iter().enumerate().find_map(|(c, cable)| {
                    let end = cable.ends.iter().position(|end| *end == end_here)?;
                    cables[c].devices[end] = index;
                    Some((c as u32, end as u8))
                });
                devices.push(Device::new(port.device.clone(), h as u32, cable, port.gids()));
            }
        }
        Self {
            now: Time::ZERO,
            limit: Time::ZERO,
            schedule: Schedule::new(),
            choices,
            trace: Trace::new(),
            model,
            hosts: topology.hosts.iter().map(|host| host.name.clone()).collect(),
            devices,
            cables,
            regions: SlotMap::with_key(),
            cqs: SlotMap::with_key(),
            qps: SlotMap::with_key(),
            woken: Vec::with_capacity(16),
        }
    }

    // ─── Time ───

    pub(crate) fn now(&self) -> Time {
        self.now
    }

    pub(crate) fn next_event(&self) -> Option<Time> {
        self.schedule.next()
    }

    /// Lets happen what is due by `limit`, until somebody should be woken; time stops at the last thing that happened
    pub(crate) fn advance(&mut self, limit: Time) {
        debug_assert!(limit >= self.now, "time does not go back");
        self.limit = limit;
        while self.woken.is_empty() {
            let Some((at, event)) = self.schedule.pop_by(limit) else {
                return;
            };
            self.now = at;
            self.happen(event);
        }
        // What else happens at this very moment belongs to it.
        self.limit = self.now;
        while let Some((_, event)) = self.schedule.pop_by(self.now) {
            self.happen(event);
        }
    }

    /// Lets time pass in which nothing happens
    pub(crate) fn skip_to(&mut self, time: Time) {
        debug_assert!(
            time >= self.now && self.schedule.next().is_none_or(|next| next > time),
            "nothing is skipped"
        );
        self.now = time;
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Doorbell(qp) => self.doorbell(qp),
            Event::Free { cable, end } => self.transmit(cable, end),
            Event::Credit(qp) => self.credit(qp),
            Event::Sent(qp) => self.sent(qp),
            Event::Delivered(qp) => self.delivered(qp),
        }
    }

    pub(crate) fn has_woken(&self) -> bool {
        !self.woken.is_empty()
    }

    /// Names each completion queue whose waiter should look
    pub(crate) fn drain_woken(&mut self, wake: impl FnMut(CqKey)) {
        self.woken.drain(..).for_each(wake);
    }

    pub(crate) fn digest(&self) -> Digest {
        self.trace.digest()
    }

    pub(crate) fn events(&self) -> u64 {
        self.trace.events()
    }

    // ─── Devices ───

    pub(crate) fn caps(&self) -> &Caps {
        &self.model.caps
    }

    pub(crate) fn find_device(&self, host: &str, name: &str) -> Option<DeviceIndex> {
        let host = self.hosts.iter().position(|h| h == host)? as u32;
        let index = self.devices.iter().position(|device| device.host == host && device.name == name)?;
        Some(DeviceIndex(index as u32))
    }

    pub(crate) fn device_name(&self, device: DeviceIndex) -> &str {
        &self.device(device).name
    }

    pub(crate) fn port(&self, device: DeviceIndex) -> PortStatus {
        match self.device(device).cable {
            Some((cable, _)) => {
                PortStatus::new(PortState::Active, self.cables[cable as usize].rate.bits_per_second)
            }
            None => PortStatus::new(PortState::Down, 0),
        }
    }

    pub(crate) fn gids(&self, device: DeviceIndex) -> &[Gid] {
        &self.device(device).gids
    }

    /// What has passed over the cable of `device`, from this end and from the other
    pub(crate) fn cable_stats(&self, device: DeviceIndex) -> Option<[CableStats; 2]> {
        let (cable, end) = self.device(device).cable?;
        let directions = &self.cables[cable as usize].directions;
        let end = usize::from(end);
        Some([directions[end].stats, directions[1 - end].stats])
    }

    fn device(&self, device: DeviceIndex) -> &Device {
        &self.devices[device.0 as usize]
    }

    fn device_mut(&mut self, device: DeviceIndex) -> &mut Device {
        &mut self.devices[device.0 as usize]
    }

    fn require_active(&self, device: DeviceIndex, verb: Verb) -> Result<(), Error> {
        match self.port(device).state {
            PortState::Active => Ok(()),
            _ => Err(Error::new(verb, Cause::PortDown)),
        }
    }

    pub(crate) fn alloc_pd(&mut self, device: DeviceIndex) -> Result<(), Error> {
        self.require_active(device, Verb::AllocPd)?;
        let limit = self.model.caps.max_pd;
        let pds = &mut self.device_mut(device).pds;
        if *pds >= limit {
            let resource = Resource::ProtectionDomains;
            return Err(Error::new(Verb::AllocPd, Cause::Exhausted { resource, limit }));
        }
        *pds += 1;
        Ok(())
    }

    pub(crate) fn dealloc_pd(&mut self, device: DeviceIndex) {
        self.device_mut(device).pds -= 1;
    }

    // ─── Memory ───

    pub(crate) fn register(
        &mut self,
        device: DeviceIndex,
        memory: NonNull<[u8]>,
    ) -> Result<RegionKey, Error> {
        let limit = self.model.caps.max_mr;
        if self.device(device).regions.len() as u32 >= limit {
            let resource = Resource::MemoryRegions;
            return Err(Error::new(Verb::RegMr, Cause::Exhausted { resource, limit }));
        }
        if memory.is_empty() {
            return Err(Error::new(Verb::RegMr, Cause::Invalid("a memory region has at least one byte")));
        }
        let owner = self.device_mut(device);
        let (base, lkey) = (owner.next_base, Lkey(owner.next_lkey));
        owner.next_base += (memory.len() as u64).next_multiple_of(FIRST_BASE);
        owner.next_lkey += LKEY_STEP;
        let key = self.regions.insert(Region::new(device, base, lkey, memory));
        self.device_mut(device).regions.push(key);
        Ok(key)
    }

    /// Base address and key of a region
    pub(crate) fn region(&self, key: RegionKey) -> (u64, Lkey) {
        let region = &self.regions[key];
        (region.base, region.lkey)
    }

    pub(crate) fn deregister(&mut self, key: RegionKey) {
        if let Some(region) = self.regions.remove(key) {
            self.device_mut(region.device).regions.retain(|other| *other != key);
        }
    }

    // ─── Completion queues ───

    pub(crate) fn create_cq(&mut self, device: DeviceIndex, depth: u32) -> Result<CqKey, Error> {
        self.require_active(device, Verb::CreateCq)?;
        let Caps { max_cq: limit, max_cqe, .. } = self.model.caps;
        if self.device(device).cqs >= limit {
            let resource = Resource::CompletionQueues;
            return Err(Error::new(Verb::CreateCq, Cause::Exhausted { resource, limit }));
        }
        if depth == 0 || depth > max_cqe {
            return Err(Error::new(
                Verb::CreateCq,
                Cause::Invalid("the depth is not one that the device offers"),
            ));
        }
        self.device_mut(device).cqs += 1;
        Ok(self.cqs.insert(CompletionQueue {
            device,
            entries: VecDeque::with_capacity(depth as usize),
            depth: depth as usize,
            is_overrun: false,
            is_awaited: false,
        }))
    }

    pub(crate) fn destroy_cq(&mut self, key: CqKey) {
        if let Some(cq) = self.cqs.remove(key) {
            self.device_mut(cq.device).cqs -= 1;
        }
    }

    pub(crate) fn poll_cq(&mut self, key: CqKey, out: &mut [Completion]) -> Result<usize, Error> {
        let cq = self.cqs.get_mut(key).ok_or(Error::new(Verb::PollCq, Cause::DeviceGone))?;
        if cq.is_overrun {
            return Err(Error::new(Verb::PollCq, Cause::QueueFull));
        }
        let n = out.len().min(cq.entries.len());
        for (slot, completion) in out.iter_mut().zip(cq.entries.drain(..n)) {
            *slot = completion;
        }
        Ok(n)
    }

    /// Has the queue [woken](Self::drain_woken) when it is not empty any more
    pub(crate) fn await_cq(&mut self, key: CqKey) {
        if let Some(cq) = self.cqs.get_mut(key) {
            cq.is_awaited = true;
        }
    }

    fn complete(&mut self, key: CqKey, completion: Completion) {
        let Some(cq) = self.cqs.get_mut(key) else { return };
        if cq.entries.len() == cq.depth {
            cq.is_overrun = true;
        } else {
            cq.entries.push_back(completion);
        }
        if cq.is_awaited {
            cq.is_awaited = false;
            self.woken.push(key);
            self.limit = self.now;
        }
    }
}

impl Device {
    fn new(name: String, host: u32, cable: Option<(u32, u8)>, gids: Vec<Gid>) -> Self {
        Self {
            name,
            host,
            cable,
            gids,
            pds: 0,
            cqs: 0,
            qps: Vec::new(),
            regions: Vec::new(),
            next_qpn: FIRST_QPN,
            next_lkey: FIRST_LKEY,
            next_base: FIRST_BASE,
        }
    }

    fn take_qpn(&mut self) -> Qpn {
        let qpn = self.next_qpn;
        self.next_qpn += QPN_STEP;
        Qpn(qpn)
    }
}
