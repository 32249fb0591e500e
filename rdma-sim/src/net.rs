use std::fmt;
use std::net::IpAddr;
use std::num::NonZeroU128;
use std::panic::Location;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use rdma_core::probe::Observation;
use rdma_core::session::LinkId;
use rdma_core::{BlockingCall, Gid, PortStatus, Runtime, Time, Timer};

use crate::catalogue::rule;
use crate::device::SimDevice;
use crate::executor::{Origin, SimRuntime};
use crate::fabric::{CableStats, DeviceIndex, Fabric, Finding};
use crate::fault::{Fault, FaultPlan};
use crate::marking;
use crate::open_error::OpenError;
use crate::shared::Shared;
use crate::tcp::Listening;
use crate::trace::{History, Names};
use crate::wall_clock::WallClock;

/// The simulated Macs and cables, as the program under test sees them
///
/// Cheap to clone; all clones mean the same network.
///
/// ```
/// use rdma_sim::Sim;
///
/// Sim::new().run(|net| async move {
///     let device = net.open("a", "rdma_en2").expect("a cable is in the port");
///     assert_eq!(net.objects().protection_domains, 1);
///     drop(device);
///     assert!(net.objects().is_empty());
/// });
/// ```
#[derive(Clone, Debug)]
pub struct Net {
    shared: Arc<Shared>,
    runtime: Arc<SimRuntime>,
    listening: Arc<Listening>,
}

impl Net {
    pub(crate) fn new(fabric: Fabric, runtime: Arc<SimRuntime>, clock: Option<Arc<WallClock>>) -> Self {
        Self { shared: Arc::new(Shared::new(fabric, clock)), runtime, listening: Arc::default() }
    }

    /// Opens the device called `name` on `host`
    ///
    /// # Errors
    ///
    /// * [`OpenError::UnknownHost`] or [`OpenError::UnknownDevice`] with the names that exist;
    /// * [`OpenError::Verbs`] with [`Cause::PortDown`](rdma_core::Cause::PortDown) if no host is up at the other end, [`Cause::Exhausted`](rdma_core::Cause::Exhausted) if the device has
    ///   been opened too often, or [`Cause::Busy`](rdma_core::Cause::Busy) if its driver is wedged.
    pub fn open(&self, host: &str, name: &str) -> Result<SimDevice, OpenError> {
        Ok(SimDevice::open(&self.shared, self.find(host, name)?)?)
    }

    /// A function that opens the device called `name` on `host`, as [`open`](Self::open), each time that it is called
    ///
    /// # Errors
    ///
    /// This function has none. The one that it returns fails as [`open`](Self::open), also for names that do not exist, with a
    /// [`rdma_core::Error`].
    pub fn opener(
        &self,
        host: &str,
        name: &str,
    ) -> impl Fn() -> Result<SimDevice, OpenError> + Send + Sync + use<> {
        let (net, host, name) = (self.clone(), host.to_owned(), name.to_owned());
        move || net.open(&host, &name)
    }

    /// Opens the device called `name` on `host` without a protection domain, which works whether or not a cable is plugged in
    ///
    /// # Errors
    ///
    /// [`OpenError::UnknownHost`] or [`OpenError::UnknownDevice`] with the names that exist.
    pub fn open_context(&self, host: &str, name: &str) -> Result<SimDevice, OpenError> {
        Ok(SimDevice::open_context(&self.shared, self.find(host, name)?))
    }

    /// What the port of a device says, without opening it
    ///
    /// # Errors
    ///
    /// [`OpenError::UnknownHost`] or [`OpenError::UnknownDevice`] with the names that exist.
    pub fn port(&self, host: &str, name: &str) -> Result<PortStatus, OpenError> {
        let device = self.find(host, name)?;
        Ok(self.shared.lock().fabric.world.port(device))
    }

    /// The GID table of a device, without opening it
    ///
    /// # Errors
    ///
    /// [`OpenError::UnknownHost`] or [`OpenError::UnknownDevice`] with the names that exist.
    pub fn gids(&self, host: &str, name: &str) -> Result<Vec<Gid>, OpenError> {
        let device = self.find(host, name)?;
        Ok(self.shared.lock().fabric.world.gids(device).to_vec())
    }

    /// The interface of a port as the kernel of its host uses it for IP; `None` if there is no such port
    ///
    /// # Model
    ///
    /// Assumed: a Thunderbolt cable carries IP whether or not RDMA is on, as long as it is plugged in, both Macs are awake, and neither
    /// interface is down.
    pub fn interface(&self, host: &str, device: &str) -> Option<IpInterface> {
        let world = &self.shared.lock().fabric.world;
        let port = world.find_port(host, device)?;
        let named =
            |port| (world.host_name(world.host_of(port)).to_owned(), world.device_name(port).to_owned());
        let addresses = world.gids(port).iter().filter(|gid| !gid.is_zero());
        let address = |gid: &Gid| gid.ipv4().map_or_else(|| IpAddr::from(gid.0), IpAddr::from);
        Some(IpInterface {
            neighbour: world.ip_neighbour(port).map(named),
            addresses: addresses.map(address).collect(),
        })
    }

    pub(crate) fn find_host(&self, host: &str) -> Result<u32, OpenError> {
        let world = &self.shared.lock().fabric.world;
        let unknown = || OpenError::UnknownHost { host: host.to_owned(), hosts: world.host_names() };
        world.find_host(host).ok_or_else(unknown)
    }

    fn find(&self, host: &str, name: &str) -> Result<DeviceIndex, OpenError> {
        let index = self.find_host(host)?;
        let fabric = &mut self.shared.lock().fabric;
        let world = &fabric.world;
        if world.is_tb4(host, name) {
            fabric.coverage.rule(rule!("tb4-devices"));
        }
        world.find_device(host, name).ok_or_else(|| OpenError::UnknownDevice {
            host: host.to_owned(),
            device: name.to_owned(),
            devices: world.device_names(index),
        })
    }

    /// Virtual time and tasks
    pub fn runtime(&self) -> Arc<dyn Runtime> {
        match self.shared.clock() {
            None => Arc::clone(&self.runtime) as Arc<dyn Runtime>,
            Some(_) => Arc::new(WallRuntime(self.clone())),
        }
    }

    /// Runs `task` beside the main future, outside of all hosts: no fault stops it
    ///
    /// [`SimHost::spawn`](crate::SimHost::spawn) makes a task part of a host. Under [`check`](crate::check()), the task must end before the
    /// main future does, unless [leaked tasks are allowed](crate::Check::allow_leaked_tasks).
    #[track_caller]
    pub fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.runtime.spawn_at(Location::caller(), Box::pin(task));
    }

    /// Waits until this much virtual time has passed
    ///
    /// # Cancel safety
    ///
    /// Dropping the future has no effect.
    pub async fn sleep(&self, duration: Duration) {
        self.sleep_until(self.now() + duration).await;
    }

    /// Waits until virtual time has reached `deadline`
    ///
    /// # Cancel safety
    ///
    /// Dropping the future has no effect.
    pub async fn sleep_until(&self, deadline: Time) {
        let mut timer = self.timer();
        timer.as_mut().reset(deadline);
        std::future::poll_fn(|cx| timer.as_mut().poll_expired(cx)).await;
    }

    /// The virtual time
    pub fn now(&self) -> Time {
        self.shared.clock().map_or_else(|| self.runtime.now(), |clock| clock.now())
    }

    /// Runs `call` where it may block
    #[expect(clippy::disallowed_methods, reason = "a verb in real time blocks its thread")]
    pub(crate) fn spawn_blocking_for(&self, origin: Origin, call: BlockingCall) {
        match self.shared.clock() {
            None => self.runtime.spawn_blocking_for(origin, call),
            Some(_) => drop(std::thread::spawn(move || call()())),
        }
    }

    /// A timer without a deadline
    pub(crate) fn timer(&self) -> Pin<Box<dyn Timer>> {
        let timer = self.runtime.timer();
        match self.shared.clock() {
            None => timer,
            Some(clock) => Box::pin(WallTimer { timer, clock: Arc::clone(clock) }),
        }
    }

    /// Schedules `fault`; it fires at once if its time has passed
    ///
    /// # Panics
    ///
    /// If there is no such host or device, if the fault happens to the other kind of target, or if its argument is out of range.
    #[track_caller]
    pub fn inject(&self, fault: Fault) {
        let checked = fault.check_target().and_then(|()| fault.check_text());
        checked.unwrap_or_else(|reason| panic!("fault {fault}: {reason}"));
        let exists = match &fault.target {
            crate::Target::Port { host, device } => self.find(host, device).map(drop),
            crate::Target::Host(host) => self.find_host(host).map(drop),
        };
        exists.unwrap_or_else(|error| panic!("fault {fault}: {error}"));
        self.shared.lock().fabric.plan(fault);
    }

    /// What exists now
    pub fn objects(&self) -> Leaks {
        Leaks::of(&self.shared.lock().fabric)
    }

    /// A number below `n`, or 0 if `n` is 0, from the simulation's one source of choices, for programs that want to vary by seed
    ///
    /// It is 0 in the plain run, which is the first of each [check](crate::check()), and in a shrunk run behind the draws that it needs.
    /// Delays that must differ between hosts, such as those of elections, need a part that is not drawn.
    pub fn pick(&self, n: u32) -> u32 {
        let mut shared = self.shared.lock();
        shared.fabric.has_picked = true;
        shared.fabric.choices.pick(n)
    }

    /// Whether the program has drawn a number
    pub(crate) fn has_picked(&self) -> bool {
        self.shared.lock().fabric.has_picked
    }

    /// The seed of the simulation, if its choices come from one
    pub fn seed(&self) -> Option<u64> {
        self.shared.lock().fabric.choices.seed()
    }

    /// The faults of the simulation, those that have fired and those to come
    pub fn faults(&self) -> FaultPlan {
        FaultPlan(self.shared.lock().fabric.plan.clone())
    }

    /// The name of the cable in the port of a device, which is the same at both of its ends; `None` if there is no such port, or no cable
    /// in it
    ///
    /// For the nodes of `rdma-async`, which then try no port in vain: each try may harm a device
    /// ([`Rules::failed_rtr_wedges`](crate::Rules::failed_rtr_wedges)).
    ///
    /// # Model
    ///
    /// Verbs have no such name. On a Mac the Thunderbolt domains at both ends make one.
    pub fn link(&self, host: &str, name: &str) -> Option<LinkId> {
        let world = &self.shared.lock().fabric.world;
        let here = world.find_device(host, name)?;
        let mut ends = [here, world.neighbour(here)?].map(|device| device.position() as u128 + 1);
        ends.sort_unstable();
        NonZeroU128::new(ends[0] << 64 | ends[1]).map(LinkId)
    }

    /// What has passed over the cable at this device: sent from here, and received
    ///
    /// `None` if there is no such device or no cable in it.
    pub fn cable_stats(&self, host: &str, name: &str) -> Option<[CableStats; 2]> {
        let fabric = &self.shared.lock().fabric;
        let link = fabric.world.link(fabric.world.find_device(host, name)?)?;
        Some(fabric.links.stats(link))
    }

    /// What the DMA sanitizer has found so far
    pub fn findings(&self) -> Vec<Finding> {
        self.shared.lock().fabric.sanitizer.findings().to_vec()
    }

    /// By how many nanoseconds a message is late that leaves now
    pub(crate) fn late_ns(&self) -> u64 {
        let fabric = &mut self.shared.lock().fabric;
        fabric.lateness.ns(&mut *fabric.choices)
    }

    pub(crate) fn listening(&self) -> &Arc<Listening> {
        &self.listening
    }

    /// Keeps in the [history](Self::history) what the program of this thread states, such as [`state!`](rdma_core::state!), until the result
    /// is dropped
    ///
    /// For programs under a [`Driver`](crate::Driver), on the thread that runs their tasks; a [`Sim`](crate::Sim) that keeps records does so
    /// by itself. Statements of tasks that another executor runs have no host.
    pub fn observe(&self) -> Observation {
        marking::observe(&self.runtime)
    }

    /// The events so far, if records are [kept](crate::Sim::keep_records)
    pub fn history(&self) -> History {
        let fabric = &self.shared.lock().fabric;
        let findings = fabric.sanitizer.findings().iter();
        let remarks = findings.map(|finding| (finding.time, finding.to_string())).collect();
        let names = fabric.notes.as_ref().map(|notes| notes.names().clone()).unwrap_or_default();
        let names = Names { faults: fabric.plan.clone(), ..names };
        History::new(fabric.trace.records().to_vec(), names, fabric.schedule.now(), remarks)
            .with_beginnings(fabric.trace.beginnings().to_vec())
            .with_marks(self.runtime.marks())
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    pub(crate) fn sim_runtime(&self) -> &Arc<SimRuntime> {
        &self.runtime
    }
}

/// The network interface of a port
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct IpInterface {
    /// Host and device at the other end of the cable, if IP passes now
    pub neighbour: Option<(String, String)>,
    /// Its addresses, as the GID table shows them
    pub addresses: Vec<IpAddr>,
}

/// The runtime of a simulation in real time
#[derive(Debug)]
struct WallRuntime(Net);

impl Runtime for WallRuntime {
    fn now(&self) -> Time {
        self.0.now()
    }

    fn spawn(&self, task: Pin<Box<dyn Future<Output = ()> + Send>>) {
        self.0.runtime.spawn(task);
    }

    fn spawn_blocking(&self, call: BlockingCall) {
        self.0.spawn_blocking_for(Origin::default(), call);
    }

    fn timer(&self) -> Pin<Box<dyn Timer>> {
        self.0.timer()
    }

    fn random(&self) -> u64 {
        self.0.runtime.random()
    }
}

/// A timer of the simulation that wakes the thread of the clock for an earlier deadline
#[derive(Debug)]
struct WallTimer {
    timer: Pin<Box<dyn Timer>>,
    clock: Arc<WallClock>,
}

impl Timer for WallTimer {
    fn reset(mut self: Pin<&mut Self>, deadline: Time) {
        self.timer.as_mut().reset(deadline);
        self.clock.is_due(deadline);
    }

    fn poll_expired(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        self.timer.as_mut().poll_expired(cx)
    }
}

/// The objects that exist in a simulation
///
/// ```
/// use rdma_sim::Sim;
///
/// let run = Sim::new().run(|net| async move { net.open("a", "rdma_en2").expect("a cable is in the port") });
/// assert_eq!(run.leaks.protection_domains, 1, "the device is still open");
/// ```
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub struct Leaks {
    /// Queue pairs
    pub queue_pairs: usize,
    /// Completion queues
    pub completion_queues: usize,
    /// Memory regions
    pub memory_regions: usize,
    /// Protection domains
    pub protection_domains: usize,
    /// Completions that were not polled
    pub unpolled_completions: usize,
}

impl Leaks {
    pub(crate) fn of(fabric: &Fabric) -> Self {
        let Fabric { qps, cqs, memory, world, .. } = fabric;
        Self {
            queue_pairs: qps.len(),
            completion_queues: cqs.len(),
            memory_regions: memory.len(),
            protection_domains: world.pds(),
            unpolled_completions: cqs.unpolled(),
        }
    }

    /// Whether there are none
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

impl fmt::Display for Leaks {
    /// What there is, in words; "nothing" if there is nothing
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let counts = [
            (self.queue_pairs, "queue pair", "queue pairs"),
            (self.completion_queues, "completion queue", "completion queues"),
            (self.memory_regions, "memory region", "memory regions"),
            (self.protection_domains, "protection domain", "protection domains"),
            (self.unpolled_completions, "completion that was not polled", "completions that were not polled"),
        ];
        let parts = counts.into_iter().filter(|(count, ..)| *count > 0);
        let parts =
            parts.map(|(count, one, many)| format!("{count} {}", if count == 1 { one } else { many }));
        let parts: Vec<_> = parts.collect();
        f.write_str(if parts.is_empty() { "nothing" } else { "" })?;
        f.write_str(&parts.join(", "))
    }
}
