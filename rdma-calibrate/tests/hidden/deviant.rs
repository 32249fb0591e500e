//! A simulated device that breaks one rule which no field of the model switches
#![allow(unsafe_code, reason = "a device is an unsafe trait")]

use std::collections::BTreeMap;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, Ordering};
use std::task::{Context, Poll};

use futures::future::join;
use rdma_calibrate::{Findings, Machine, Options, Path, calibrate, serve};
use rdma_core::{
    Access, AnyDevice, Caps, Cause, Completion, CompletionQueue, Device, Error, FRAME, Gid, Invalid, Lkey,
    MemoryRegion, Opcode, PortStatus, QpAddress, QpCapacity, QpInit, QpState, QpType, Qpn, QueuePair,
    RecvRequest, Rkey, Runtime, SendRequest, Status, Teardown, Transition, Verb, WrId,
};
use rdma_sim::{Net, Sim, SimCompletionQueue, SimDevice, SimMemoryRegion, SimQueuePair, catalogue};

/// The device of host a breaks the rule
struct Mac(Net, &'static str, &'static str);

impl Machine for Mac {
    fn open(&self, path: Path) -> Result<AnyDevice, Error> {
        let device = self.0.open(self.1, "rdma_en2").map_err(Error::from)?;
        let device = device.with_path(path.source_index, path.mtu);
        Ok(match self.1 {
            "a" => AnyDevice::new(Deviant(device, self.2, LastByte::default())),
            _ => AnyDevice::new(device),
        })
    }

    fn runtime(&self) -> Arc<dyn Runtime> {
        self.0.host(self.1).runtime()
    }
}

pub(crate) fn found(broken: &'static str) -> Findings {
    let run = Sim::new().sanitize(false).run(async |net| {
        let (asks, answers) = net.tcp();
        let [a, b] = ["a", "b"].map(|host| Mac(net.clone(), host, broken));
        join(calibrate(&a, asks, &Options::default()), serve(&b, answers)).await
    });
    run.value.0.unwrap_or_else(|error| panic!("{broken}: {error}"))
}

/// Catches an experiment that cannot fail.
#[test]
fn each_rule_without_a_field_that_a_device_breaks_is_named() {
    let rules = found("").rules;
    assert!(rules.iter().all(|found| found.instead.is_none()), "{rules:?}");
    // A device that only answers otherwise does not change rates: the experiment has a test of its own.
    for broken in rules.iter().map(|found| found.rule).filter(|rule| *rule != "full-duplex") {
        assert!(catalogue::rules().any(|rule| rule.name == broken), "{broken} is in the catalogue");
        let found = found(broken);
        assert!(found.contradictions().contains(&broken), "{broken}: {:?}", found.rules);
        let page = found.page();
        let contradicted = page.split("## What it confirms").next().unwrap();
        assert!(contradicted.contains(&format!("| rule {broken} | ")), "{page}");
        // Completions in another order have other names.
        let others = found.rules.iter().filter(|found| found.instead.is_some() && found.rule != broken);
        let others: BTreeMap<_, _> = others.map(|found| (found.rule, &found.instead)).collect();
        assert!(others.is_empty() || broken == "order", "{broken}: {others:?}");
    }
}

/// Regression: a machine without enough memory that a process may lock was said to break the rule.
///
/// Catches a refusal of another cause than the length that counts as one for it, and a rule that is said to hold, or not mentioned.
#[test]
fn a_registration_that_is_refused_for_lack_of_memory_does_not_test_the_rule() {
    let found = found(NO_MEMORY);
    let is_it = |rule: &str| rule == "registration-length";
    assert!(!found.rules.iter().any(|found| is_it(found.rule)), "{:?}", found.rules);
    assert!(found.contradictions().is_empty(), "{:?}", found.contradictions());
    let (_, why) = found.untested_rules.iter().find(|(rule, _)| is_it(rule)).unwrap();
    assert!(why.contains("16777217 bytes") && why.contains("RLIMIT_MEMLOCK"), "{why}");
    let page = found.page();
    let undecided = page.split("## What was not decided").nth(1).unwrap();
    assert!(undecided.contains("| rule registration-length | not tested | 16777217 bytes: "), "{page}");
}

/// Breaks no rule: when it registers so many bytes, the system has just run out of memory
const NO_MEMORY: &str = "no memory";

/// The address of no host to which the calibration tries to connect
fn nowhere() -> Gid {
    Gid::from_ipv4([203, 0, 113, 77].into())
}

/// Breaks no rule of the catalogue: a receive that completes also changes the byte behind it
pub(crate) const STRAY_WRITE: &str = "stray write";

struct Deviant(SimDevice, &'static str, LastByte);

/// The last byte of the memory that was registered last, or null once that is deregistered
type LastByte = Arc<AtomicPtr<u8>>;

/// With what its queue pairs ask for: it tells the experiments apart
struct DeviantCq(SimCompletionQueue, &'static str, AtomicU32, LastByte);

struct DeviantQp {
    qp: SimQueuePair,
    broken: &'static str,
    /// Queue pairs of 8 frames are not connected.
    frames: u32,
    has_refused: AtomicBool,
}

/// With the key that it shows
struct DeviantMr(SimMemoryRegion, Lkey, LastByte);

// SAFETY: the simulated device keeps every promise about memory; only answers are changed.
unsafe impl Device for Deviant {
    type Mr = DeviantMr;
    type Cq = DeviantCq;

    fn name(&self) -> &str {
        if self.1 == "device-per-port" { "mlx5_0" } else { self.0.name() }
    }

    fn caps(&self) -> &Caps {
        self.0.caps()
    }

    fn port(&self) -> Result<PortStatus, Error> {
        self.0.port()
    }

    fn gids(&self) -> Result<Vec<Gid>, Error> {
        let mut gids = self.0.gids()?;
        if self.1 == "gid-table" {
            gids[0].0[11] = 0;
        }
        Ok(gids)
    }

    fn create_cq(&self, depth: u32) -> Result<DeviantCq, Error> {
        Ok(DeviantCq(self.0.create_cq(depth)?, self.1, AtomicU32::new(0), Arc::clone(&self.2)))
    }

    unsafe fn register(&self, mem: NonNull<[u8]>, access: Access) -> Result<DeviantMr, Error> {
        if self.1 == "registration-length" && mem.len() == 1 {
            return Err(Error::new(Verb::RegMr, Invalid::EmptyRegion.into()));
        }
        if self.1 == NO_MEMORY && mem.len() == (16 << 20) + 1 {
            return Err(Error::new(Verb::RegMr, Cause::LockedMemory { limit: 16 << 20 }));
        }
        // SAFETY: the caller keeps the same contract.
        let region = unsafe { self.0.register(mem, access) }?;
        // Regions of a frame have no requests.
        let key = if self.1 == "keys" && mem.len() == FRAME { Lkey(1) } else { region.lkey() };
        // SAFETY: the memory is not empty.
        let last = unsafe { mem.cast::<u8>().add(mem.len() - 1) };
        self.2.store(last.as_ptr(), Ordering::Relaxed);
        Ok(DeviantMr(region, key, Arc::clone(&self.2)))
    }
}

impl MemoryRegion for DeviantMr {
    fn base(&self) -> u64 {
        self.0.base()
    }

    fn lkey(&self) -> Lkey {
        self.1
    }

    fn rkey(&self) -> Option<Rkey> {
        self.0.rkey()
    }

    fn deregister(&mut self) -> Teardown {
        self.2.store(std::ptr::null_mut(), Ordering::Relaxed);
        self.0.deregister()
    }
}

impl Drop for DeviantMr {
    fn drop(&mut self) {
        let _ = self.deregister();
    }
}

impl CompletionQueue for DeviantCq {
    type Qp = DeviantQp;

    fn create_qp(&self, init: &QpInit) -> Result<DeviantQp, Error> {
        let qp_type = if self.1 == "transports" { QpType::Uc } else { init.qp_type };
        let qp = self.0.create_qp(&QpInit { qp_type, ..*init })?;
        let frames = init.capacity.recv_frames;
        self.2.store(frames, Ordering::Relaxed);
        Ok(DeviantQp { qp, broken: self.1, frames, has_refused: AtomicBool::new(false) })
    }

    fn poll(&self, out: &mut [Completion]) -> Result<usize, Error> {
        self.0.poll(out)
    }

    fn poll_completions(&self, cx: &mut Context<'_>, out: &mut [Completion]) -> Poll<Result<usize, Error>> {
        let frames = self.2.load(Ordering::Relaxed);
        self.0.poll_completions(cx, out).map_ok(|n| {
            let last = self.3.load(Ordering::Relaxed);
            if self.1 == STRAY_WRITE && n > 0 && !last.is_null() {
                // SAFETY: the memory is registered, and this thread reads it only when it has polled.
                unsafe { last.write(7) };
            }
            for completion in out[..n].iter_mut() {
                match (self.1, frames) {
                    ("order", 16) if completion.opcode != Opcode::Recv => completion.id.0 ^= 1,
                    ("receive-access", 28) => completion.status = Status::Success,
                    ("shared-cq", 20) => completion.qpn = Qpn(9 * 256),
                    _ => (),
                }
            }
            n
        })
    }
}

impl QueuePair for DeviantQp {
    fn address(&self) -> QpAddress {
        let address = self.qp.address();
        let is_odd = self.broken == "qp-numbers" && self.frames == 8;
        if is_odd { QpAddress { qpn: Qpn(address.qpn.0 + 1), ..address } } else { address }
    }

    fn capacity(&self) -> QpCapacity {
        self.qp.capacity()
    }

    fn state(&self) -> QpState {
        self.qp.state()
    }

    fn modify(&self, to: Transition) -> Result<(), Error> {
        match (self.broken, to, self.qp.state()) {
            ("rtr-neighbour", Transition::ReadyToReceive { peer }, _) if peer.gid == nowhere() => Ok(()),
            ("steps", Transition::ReadyToSend, QpState::Init) => Ok(()),
            ("reset", Transition::Reset, _) => Err(Error::new(Verb::ModifyQp, Cause::Busy)),
            _ => self.qp.modify(to),
        }
    }

    unsafe fn post_send(&self, request: &SendRequest<'_>) -> Result<(), Error> {
        let request = match self.broken {
            "unsignaled" => SendRequest { signaled: true, ..*request },
            _ => *request,
        };
        if self.broken == "post-failure" && self.has_refused.load(Ordering::Relaxed) {
            return Err(Error::new(Verb::PostSend, Cause::QueueFull));
        }
        let is_lost = match (self.broken, self.frames) {
            ("no-loss", 36) => request.id == WrId(3),
            ("peer-readiness", 24) | ("pairing", 40) | ("own-pace", 44) => true,
            _ => false,
        };
        if is_lost {
            return Ok(());
        }
        // SAFETY: the caller keeps the same contract.
        let posted = unsafe { self.qp.post_send(&request) };
        let Err(error) = posted else { return posted };
        let is_early = self.qp.state() != QpState::ReadyToSend;
        let is_unregistered = matches!(error.cause, Cause::Invalid(Invalid::Lkey { .. }));
        self.has_refused.fetch_or(is_unregistered, Ordering::Relaxed);
        match self.broken {
            "send-at-rts" if is_early => Ok(()),
            "unregistered" if is_unregistered => Ok(()),
            "operations" if error.cause == Cause::Unsupported => Ok(()),
            "queue-depth" if request.sgl.iter().any(|sge| sge.len as usize > 1023 * FRAME) => Ok(()),
            _ => Err(error),
        }
    }

    unsafe fn post_recv(&self, request: &RecvRequest<'_>) -> Result<(), Error> {
        // SAFETY: the caller keeps the same contract.
        unsafe { self.qp.post_recv(request) }
    }

    fn destroy(&mut self) -> Teardown {
        self.qp.destroy()
    }
}
