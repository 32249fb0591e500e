//! Drivers: other clocks and other executors than the simulation's own

pub mod realtime;

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use rdma_core::Time;

pub use crate::fabric::Process;
use crate::fault::FaultError;
use crate::net::Net;
use crate::remote::{SharedObjects, Transport};
pub use crate::session::{RemoteInput, Session};
use crate::sim::Sim;
use crate::verb_time;
use crate::wall_clock::WallClock;

/// A task as a runtime takes it
pub type Task = Pin<Box<dyn Future<Output = ()> + Send>>;

/// A simulation whose time the caller advances
///
/// For tests that run in another runtime: a paused tokio (feature `tokio`), turmoil from inside or outside, threads in real time
/// ([`realtime`]). The fabric is as deterministic as ever; the other runtime decides the order of tasks.
///
/// ```
/// use std::time::Duration;
///
/// use rdma_core::{Cause, Time};
/// use rdma_sim::{Driver, Sim};
///
/// let sim = Sim::new().faults("at 5ms a:rdma_en2 unplug".parse()?);
/// // A runtime of the caller runs the tasks; this program has none.
/// let driver = Driver::new(sim, drop)?;
/// let unplugged = Time::ZERO + Duration::from_millis(5);
/// assert_eq!(driver.next(), Some(unplugged));
/// assert!(driver.net().open("a", "rdma_en2").is_ok());
/// driver.advance_to(unplugged);
/// let refused = rdma_core::Error::from(driver.net().open("a", "rdma_en2").unwrap_err());
/// assert_eq!(refused.cause, Cause::PortDown);
/// # Ok::<(), rdma_sim::FaultError>(())
/// ```
#[derive(Debug)]
pub struct Driver {
    net: Net,
}

impl Driver {
    /// A driver for `sim`, whose tasks `spawn` runs
    ///
    /// # Errors
    ///
    /// [`FaultError`] with [`FaultReason::UnknownHost`](crate::fault::FaultReason::UnknownHost) or
    /// [`FaultReason::UnknownDevice`](crate::fault::FaultReason::UnknownDevice) if the topology lacks the target of a fault.
    pub fn new(sim: Sim, spawn: impl Fn(Task) + Send + Sync + 'static) -> Result<Self, FaultError> {
        Self::build(sim, spawn, None)
    }

    fn build(
        sim: Sim,
        spawn: impl Fn(Task) + Send + Sync + 'static,
        clock: Option<Arc<WallClock>>,
    ) -> Result<Self, FaultError> {
        let net = sim.build(Some(Box::new(spawn)), clock)?;
        // The digest is that of a run, which a driver does not have.
        net.shared().lock().fabric.trace.stop();
        Ok(Self { net })
    }

    /// The simulated Macs and cables
    pub fn net(&self) -> &Net {
        &self.net
    }

    /// The virtual time
    pub fn now(&self) -> Time {
        self.net.now()
    }

    /// How long the verbs take that the calling thread has called since its last call, which does nothing else meanwhile; `None` if one
    /// of them never returns
    pub fn take_blocked(&self) -> Option<Duration> {
        Some(verb_time::take()).filter(|ns| *ns < verb_time::NEVER).map(Duration::from_nanos)
    }

    /// Simulates only `host` from now on; `transport` carries messages to the processes that simulate the others
    ///
    /// # Panics
    ///
    /// If there is no such host.
    pub fn simulate_only(&self, host: &str, transport: Box<dyn Transport>) {
        let fabric = &mut self.net.shared().lock().fabric;
        let index = fabric.world.find_host(host).unwrap_or_else(|| panic!("no host is called {host:?}"));
        fabric.world.simulate_only(index);
        fabric.qps.share_numbers(0);
        fabric.remotes.start(transport);
    }

    /// From now on, this process is the one with that number of several that [simulate](Self::simulate_only) the same host
    ///
    /// It has no objects yet. `objects` counts them for all processes of the host: the limits of a device apply to them together.
    pub fn share_host(&self, number: u32, objects: Box<dyn SharedObjects>) {
        let fabric = &mut self.net.shared().lock().fabric;
        fabric.qps.share_numbers(number);
        fabric.objects.share(objects);
    }

    /// Locks the simulation, to apply what other hosts have sent
    pub fn remote_input(&self) -> RemoteInput<'_> {
        RemoteInput(self.net.shared().lock())
    }

    /// Locks the simulation for several steps
    pub fn session(&self) -> Session<'_> {
        Session::new(self.net.shared(), self.net.sim_runtime())
    }

    /// When the next event or timer is due, unless the program causes an earlier one
    pub fn next(&self) -> Option<Time> {
        let event = self.net.shared().lock().fabric.schedule.next();
        let timer = Some(self.net.sim_runtime().next_timer()).filter(|timer| *timer < Time::MAX);
        event.into_iter().chain(timer).min()
    }

    /// Advances time to `time`: fires every event that is due and wakes the tasks that wait for it
    ///
    /// Returns whether faults have stopped or started processes meanwhile. The tasks of such a process keep running, because
    /// they belong to the other runtime, but their devices are gone.
    pub fn advance_to(&self, time: Time) -> bool {
        let time = time.max(self.now());
        let advanced = self.net.shared().advance_to(time);
        self.net.sim_runtime().expire(time);
        advanced.has_host_news
    }
}

/// Under `#[tokio::test(start_paused = true)]`
///
/// tokio's paused clock knows whole milliseconds only. Time is therefore dilated: a microsecond of the fabric takes a
/// millisecond of tokio's clock, which takes no wall time. A test therefore measures with [`Net::now`](crate::Net::now) and waits with
/// [`Net::sleep`](crate::Net::sleep): a `tokio::time::timeout` of a second ends after a millisecond of the fabric. Options of nodes are
/// times of the fabric, if their runtime is that of [`Net::runtime`](crate::Net::runtime) or of a host.
///
/// ```
/// use rdma_core::Time;
/// use rdma_sim::{Sim, driver};
///
/// # let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
/// # runtime.block_on(async {
/// let net = driver::tokio::start(Sim::new())?;
/// net.sleep(std::time::Duration::from_micros(50)).await;
/// assert_eq!(net.now(), Time::from_nanos(50_000));
/// # Ok::<(), rdma_sim::FaultError>(())
/// # }).unwrap();
/// ```
#[cfg(feature = "tokio")]
pub mod tokio {
    use std::time::Duration;

    use super::Driver;
    use crate::fault::FaultError;
    use crate::net::Net;
    use crate::sim::Sim;

    /// Virtual time of the fabric per millisecond of tokio's clock
    pub const TICK: Duration = Duration::from_micros(1);

    /// Runs `sim` inside of the current tokio runtime; ends with it
    ///
    /// # Errors
    ///
    /// [`FaultError`] with [`FaultReason::UnknownHost`](crate::fault::FaultReason::UnknownHost) or
    /// [`FaultReason::UnknownDevice`](crate::fault::FaultReason::UnknownDevice) if the topology lacks the target of a fault.
    ///
    /// # Panics
    ///
    /// Outside of a tokio runtime.
    pub fn start(sim: Sim) -> Result<Net, FaultError> {
        let driver = Driver::new(sim, |task| drop(::tokio::spawn(task)))?;
        let net = driver.net().clone();
        ::tokio::spawn(async move {
            loop {
                ::tokio::time::sleep(Duration::from_millis(1)).await;
                driver.advance_to(driver.now() + TICK);
            }
        });
        Ok(net)
    }
}
