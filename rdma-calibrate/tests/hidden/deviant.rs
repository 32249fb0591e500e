//! A simulated device that breaks one thing: a wrapper that answers otherwise, or a model of another kind
#![allow(unsafe_code, reason = "a device is an unsafe trait")]

mod queues;

use std::collections::{BTreeMap, VecDeque};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use futures::future::join;
use rdma_calibrate::{
    Behaviour, Calls, Conformance, Expectations, Findings, Machine, Options, Path, calibrate, conform, serve,
};
use rdma_core::{
    Access, AnyDevice, Caps, Cause, Device, Error, Gid, Invalid, Lkey, MemoryRegion, PortState, PortStatus,
    QpAddress, Qpn, Resource, Rkey, Runtime, Sge, Teardown, Verb, WrId,
};
use rdma_sim::rules::{EarlyReceives, FrameMatch, QueueUnit, RingOverflow};
use rdma_sim::{Model, Net, Sim, SimDevice, SimMemoryRegion, SimQueuePair};

use self::queues::DeviantCq;

/// Breaks no rule: when it registers so many bytes, the system has just run out of memory
pub(crate) const NO_MEMORY: &str = "no memory";
/// Breaks no rule of the catalogue: a receive that completes also changes the last byte of the memory
pub(crate) const STRAY_WRITE: &str = "stray write";

/// Breaks no rule: a completion with an error does not name the kind of its request, at the side that answers
pub(crate) const NO_KINDS: &str = "peer: errors without a kind";

/// Beginning of the name of a device that deviates at the side that answers; other devices deviate at the side that asks
const OF_PEER: &str = "peer: ";

/// A host of a pair of which one deviates
pub(crate) struct Mac(Net, &'static str, &'static str, Arc<Shared>);

impl Machine for Mac {
    fn open(&self, path: Path) -> Result<AnyDevice, Error> {
        let Self(net, host, broken, shared) = self;
        if *broken == "a device opens once" && shared.count() > 1 {
            let cause = Cause::Exhausted { resource: Resource::ProtectionDomains, limit: 1 };
            return Err(Error::new(Verb::AllocPd, cause));
        }
        let device = net.open(host, "rdma_en2").map_err(Error::from)?;
        let device = device.with_path(path.source_index, path.mtu);
        let caps = caps(device.caps(), broken);
        Ok(AnyDevice::new(Deviant { device, caps, broken, shared: Arc::clone(shared) }))
    }

    fn runtime(&self) -> Arc<dyn Runtime> {
        self.0.host(self.1).runtime()
    }

    /// What is expected does not follow from the rules of a model that differs
    fn expectations(&self) -> Option<Expectations> {
        Some(Expectations::TB5)
    }
}

/// Both hosts, of which one deviates
pub(crate) fn macs(net: &Net, broken: &'static str) -> [Mac; 2] {
    let is_of_peer = broken.starts_with(OF_PEER);
    // Numbers are shown by one side and used by the other one.
    let is_of_both = broken == "qp-numbers";
    [("a", is_of_both || !is_of_peer), ("b", is_of_both || is_of_peer)].map(|(host, deviates)| {
        let broken = if deviates { broken } else { "" };
        Mac(net.clone(), host, broken, Arc::default())
    })
}

/// The findings of a calibration
pub(crate) fn found(broken: &'static str) -> Findings {
    let run = Sim::new().sanitize(false).run(async |net| {
        let (asks, answers) = net.tcp();
        let [a, b] = macs(&net, broken);
        let options = Options::default().with_risk_reboot(true);
        join(calibrate(&a, asks, &options), serve(&b, answers)).await
    });
    run.value.0.unwrap_or_else(|error| panic!("{broken}: {error}"))
}

/// The verdicts on the behaviours alone
pub(crate) fn conformed(broken: &'static str) -> Vec<Behaviour> {
    conformed_with(broken, &Options::default().with_risk_reboot(true))
}

/// As [`conformed`], with these options
pub(crate) fn conformed_with(broken: &'static str, options: &Options) -> Vec<Behaviour> {
    let conformance = try_conformed(broken, options);
    assert_eq!(conformance.ended, None, "{broken}");
    conformance.behaviours
}

/// As [`conformed_with`], with the reason for which the body ended
pub(crate) fn try_conformed(broken: &'static str, options: &Options) -> Conformance {
    let run = Sim::new().model(model(broken)).sanitize(false).run(async |net| {
        let (asks, answers) = net.tcp();
        let [a, b] = macs(&net, broken);
        let calls = Arc::new(Calls::new(a.runtime()));
        join(conform(&a, asks, options, &calls), serve(&b, answers)).await
    });
    run.value.0.unwrap_or_else(|error| panic!("{broken}: {error}"))
}

/// A model that differs where the body expects that of Apple's device
fn model(broken: &str) -> Model {
    let mut model = Model::tb5();
    match broken {
        "sends do not wait" => model.caps.send_waits_for_receive = false,
        "receives may be longer" => model.rules.frame_match = FrameMatch::Fits,
        "queues count requests" => model.rules.queue_unit = QueueUnit::Requests,
        "full queues accept" => model.rules.ring_overflow = RingOverflow::Corrupts,
        "receives from RTR on" => model.rules.early_receives = EarlyReceives::FromReadyToReceive,
        _ => (),
    }
    model
}

/// The limits that the device states
fn caps(of: &Caps, broken: &str) -> Caps {
    let mut caps = of.clone();
    match broken {
        "no elements" => caps.max_sge = 0,
        "fewer queue pairs" => caps.max_qp += 20,
        "fewer completion queues" => caps.max_cq += 20,
        "fewer regions" => caps.max_mr += 20,
        "fewer domains" => caps.max_pd += 20,
        "fewer completions" => caps.max_cqe *= 2,
        "fewer frames" => caps.max_queue_frames += 1000,
        _ => (),
    }
    caps
}

/// The state that all objects of a host share
#[derive(Default)]
struct Shared {
    counted: AtomicU32,
    /// Of the memory that was registered last, or null once that is deregistered
    last_byte: AtomicPtr<u8>,
    regions: Mutex<Vec<Region>>,
    queue_pairs: Mutex<BTreeMap<Qpn, Known>>,
    /// The latest queue pair that was not destroyed although it was said
    alive: Mutex<Option<SimQueuePair>>,
}

/// The address of a region and its key
struct Region {
    base: u64,
    len: u64,
    lkey: Lkey,
    /// The address of its memory, exposed
    memory: usize,
}

impl Region {
    fn has(&self, addr: u64) -> bool {
        (self.base..self.base + self.len).contains(&addr)
    }
}

/// The history of a queue pair
#[derive(Default)]
struct Known {
    peer: Option<QpAddress>,
    has_refused: u32,
    /// The number of receives that were posted when one more was refused
    full_at: Option<usize>,
    has_failed_receive: bool,
    posts: u32,
    /// The name and the address of each request that has not completed
    sends: VecDeque<(WrId, Sge)>,
    receives: VecDeque<(WrId, Sge)>,
}

impl Shared {
    /// The number of calls that were counted before
    fn count(&self) -> u32 {
        self.counted.fetch_add(1, Ordering::Relaxed)
    }

    /// Changes a byte of a region
    fn scribble(&self, addr: u64) {
        let regions = self.regions.lock().unwrap();
        let Some(region) = regions.iter().find(|region| region.has(addr)) else { return };
        let address = region.memory + (addr - region.base) as usize;
        let byte = std::ptr::with_exposed_provenance_mut::<u8>(address);
        // SAFETY: the memory is registered, hence mapped, and this thread reads it only when it has polled.
        let found = unsafe { byte.read_volatile() };
        // SAFETY: as above.
        unsafe { byte.write_volatile(found ^ 0xff) };
    }

    fn queue_pairs(&self) -> MutexGuard<'_, BTreeMap<Qpn, Known>> {
        self.queue_pairs.lock().unwrap()
    }
}

struct Deviant {
    device: SimDevice,
    caps: Caps,
    broken: &'static str,
    shared: Arc<Shared>,
}

struct DeviantMr {
    region: SimMemoryRegion,
    broken: &'static str,
    shared: Arc<Shared>,
}

// SAFETY: the simulated device keeps every promise about memory; answers are changed, and bytes of mapped memory.
unsafe impl Device for Deviant {
    type Mr = DeviantMr;
    type Cq = DeviantCq;

    fn name(&self) -> &str {
        match self.broken {
            "no name" => "",
            "device-per-port" => "mlx5_0",
            _ => self.device.name(),
        }
    }

    fn caps(&self) -> &Caps {
        &self.caps
    }

    fn port(&self) -> Result<PortStatus, Error> {
        let status = self.device.port()?;
        // At first, the side looks whether it can begin. The body ends if the port is down of the side that asks.
        let is_down = self.broken == "peer: the port goes down" && self.shared.count() > 0;
        Ok(if is_down { PortStatus::new(PortState::Down, status.bits_per_second) } else { status })
    }

    fn gids(&self) -> Result<Vec<Gid>, Error> {
        let mut gids = self.device.gids()?;
        match self.broken {
            "gid-table" => gids[0].0[11] = 0,
            "no IPv4 entry" => gids.retain(|gid| gid.ipv4().is_none()),
            _ => (),
        }
        Ok(gids)
    }

    fn create_cq(&self, depth: u32) -> Result<DeviantCq, Error> {
        let max = self.caps.max_cqe;
        let depth = match self.broken {
            "depth one is refused" if depth == 1 => {
                return Err(Error::new(Verb::CreateCq, Invalid::CqDepth { depth, max }.into()));
            }
            "depth zero is accepted" => depth.max(1),
            "any depth is accepted" => depth.min(max),
            _ => depth,
        };
        let cq = self.device.create_cq(depth)?;
        Ok(DeviantCq { cq, broken: self.broken, shared: Arc::clone(&self.shared), created: Mutex::default() })
    }

    unsafe fn register(&self, mem: NonNull<[u8]>, access: Access) -> Result<DeviantMr, Error> {
        let refused = match (self.broken, mem.len()) {
            ("one byte", 1) => Some(Invalid::EmptyRegion.into()),
            ("long regions", 0x100_0001..) => Some(Invalid::EmptyRegion.into()),
            (NO_MEMORY, 0x100_0001) => Some(Cause::LockedMemory { limit: 16 << 20 }),
            ("regions fail at times", _) if self.shared.count() % 250 == 249 => Some(Cause::Os(12)),
            _ => None,
        };
        if let Some(cause) = refused {
            return Err(Error::new(Verb::RegMr, cause));
        }
        // SAFETY: the caller keeps the same contract.
        let region = unsafe { self.device.register(mem, access) }?;
        // SAFETY: the memory is not empty.
        let last = unsafe { mem.cast::<u8>().add(mem.len() - 1) };
        self.shared.last_byte.store(last.as_ptr(), Ordering::Relaxed);
        let memory = mem.cast::<u8>().as_ptr().expose_provenance();
        let known = Region { base: region.base(), len: mem.len() as u64, lkey: region.lkey(), memory };
        self.shared.regions.lock().unwrap().push(known);
        Ok(DeviantMr { region, broken: self.broken, shared: Arc::clone(&self.shared) })
    }
}

/// The key of all regions of a device that has one
const ONE_KEY: Lkey = Lkey(0x101);

impl MemoryRegion for DeviantMr {
    fn base(&self) -> u64 {
        self.region.base()
    }

    fn lkey(&self) -> Lkey {
        if self.broken == "keys" { ONE_KEY } else { self.region.lkey() }
    }

    fn rkey(&self) -> Option<Rkey> {
        if self.broken == "remote keys" { Some(Rkey(7)) } else { self.region.rkey() }
    }

    fn deregister(&mut self) -> Teardown {
        self.shared.last_byte.store(std::ptr::null_mut(), Ordering::Relaxed);
        let key = self.region.lkey();
        self.shared.regions.lock().unwrap().retain(|known| known.lkey != key);
        self.region.deregister()
    }
}

impl Drop for DeviantMr {
    fn drop(&mut self) {
        let _ = self.deregister();
    }
}
