use std::collections::BTreeMap;
use std::sync::Arc;

use rdma_core::Time;

use crate::executor::{Ended, Limits, Progress, SimRuntime, Spawner, Stalled, UnfinishedTask};
use crate::fabric::{Fabric, Finding, Options};
use crate::fault::{FaultError, FaultPlan};
use crate::marking;
use crate::net::{Leaks, Net};
use crate::scheduler::Order;
use crate::trace::{Digest, History};
use crate::wall_clock::WallClock;
use crate::{Choices, Model, Replay, Scheduler, Seeded, Topology};

/// A simulation, ready to run
///
/// The DMA sanitizer is on in debug builds, which is where tests run.
///
/// ```
/// use std::time::Duration;
///
/// use rdma_core::Cause;
/// use rdma_sim::{Model, Sim, Topology};
///
/// // Three Macs with four ports each, in a ring.
/// let run = Sim::new()
///     .seed(17)
///     .topology(Topology::ring(3, 4)?)
///     .model(Model::tb5_macos_26_2())
///     .faults("at 2ms b:rdma_en2 unplug".parse()?)
///     .run(|net| async move {
///         net.sleep(Duration::from_millis(3)).await;
///         rdma_core::Error::from(net.open("b", "rdma_en2").unwrap_err()).cause
///     });
/// assert_eq!(run.value, Cause::PortDown, "the cable is out");
/// assert_eq!(run.time.as_nanos(), 3_000_000);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
#[must_use = "nothing happens before it runs"]
pub struct Sim {
    topology: Topology,
    model: Model,
    plan: FaultPlan,
    choices: Box<dyn Choices>,
    limits: Limits,
    options: Options,
    hashes: bool,
    keeps_moments: bool,
    keeps_orders: bool,
    settles: bool,
    progress: Arc<Progress>,
}

/// The outcome of a simulation
///
/// ```
/// use rdma_sim::Sim;
///
/// let run = Sim::new().keep_records().faults("at 1ms a:rdma_en2 unplug".parse()?).run(|net| async move {
///     let device = net.open("a", "rdma_en2").expect("the cable is plugged in");
///     net.sleep(std::time::Duration::from_millis(2)).await;
///     drop(device);
/// });
/// assert!(run.leaks.is_empty() && run.findings.is_empty());
/// let lines: Vec<_> = run.history.lines().collect();
/// assert_eq!(lines[0], "     0.001000000  fault: at 1ms a:rdma_en2 unplug");
/// assert_eq!(lines[1], "     0.001000000  port a:rdma_en2: cable cut off");
/// # Ok::<(), rdma_sim::FaultError>(())
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Run<T> {
    /// What the main future returned
    pub value: T,
    /// The virtual time at its end
    pub time: Time,
    /// The fingerprint of every event
    pub digest: Digest,
    /// How many events the fabric recorded
    pub events: u64,
    /// How many times tasks were polled
    pub steps: u64,
    /// What the DMA sanitizer found
    pub findings: Vec<Finding>,
    /// The objects that still existed after the simulation had dropped its own
    pub leaks: Leaks,
    /// The events, if records were [kept](Sim::keep_records)
    pub history: History,
    /// How many times each rule of the [catalogue](crate::catalogue) was exercised, by its name: those that were, in its order
    pub rules: Vec<(&'static str, u64)>,
    /// The tasks that waited when the main future ended
    pub(crate) unfinished: Vec<UnfinishedTask>,
    /// How many times the device behaved in each way
    pub(crate) covered: BTreeMap<String, u64>,
    /// Orders of tasks, if they were kept
    pub(crate) orders: Vec<u64>,
    /// Moments with traffic, if they were kept
    pub(crate) moments: Vec<Time>,
}

/// Why a simulation has no outcome
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum RunError {
    /// The topology lacks the host or port of a fault
    #[error(transparent)]
    Fault(#[from] FaultError),
    /// The main future waits for an event that will never come, or the simulation goes on without end
    #[error(transparent)]
    Stalled(#[from] Stalled),
}

impl Default for Sim {
    fn default() -> Self {
        Self::new()
    }
}

impl Sim {
    /// Two Macs and a cable, with seed 0
    pub fn new() -> Self {
        Self {
            topology: Topology::pair(),
            model: Model::default(),
            plan: FaultPlan::none(),
            choices: Box::new(Seeded::new(0)),
            limits: Limits::default(),
            options: Options {
                sanitizes: cfg!(debug_assertions),
                keeps_records: false,
                real_addresses: false,
                scheduler: Scheduler::Fifo,
                calm: None,
            },
            hashes: true,
            keeps_moments: false,
            keeps_orders: false,
            settles: false,
            progress: Arc::default(),
        }
    }

    /// Draws all choices from `seed`
    pub fn seed(self, seed: u64) -> Self {
        self.choices(Seeded::new(seed))
    }

    /// Draws all choices from `choices`
    pub fn choices(self, choices: impl Choices + 'static) -> Self {
        Self { choices: Box::new(choices), ..self }
    }

    /// Orders what may happen in any order like this; [`Scheduler::Fifo`], if not set
    pub fn scheduler(mut self, scheduler: Scheduler) -> Self {
        self.options.scheduler = scheduler;
        self
    }

    /// Repeats a run of a check: its choices, its scheduler and its faults
    ///
    /// Topology and model must be those of the check, and [`Check::liveness`](crate::Check::liveness) does not end the faults.
    pub fn replay(self, replay: &Replay) -> Self {
        let sim = self.faults(replay.faults.clone()).scheduler(replay.scheduler);
        Self { choices: replay.source(), ..sim }
    }

    /// Simulates these Macs and cables
    pub fn topology(self, topology: Topology) -> Self {
        Self { topology, ..self }
    }

    /// Simulates devices that behave like this
    pub fn model(self, model: Model) -> Self {
        Self { model, ..self }
    }

    /// Injects these faults
    pub fn faults(self, plan: FaultPlan) -> Self {
        Self { plan, ..self }
    }

    /// Gives up when the virtual time exceeds `limit`; a day, if not set
    pub fn time_limit(mut self, limit: Time) -> Self {
        self.limits.time = limit;
        self
    }

    /// Gives up when tasks were polled more often than this, all together; 1 000 000 000 times, if not set
    ///
    /// A loop whose rounds take a few nanoseconds of virtual time would take years to come to the limit of [time](Self::time_limit).
    pub fn step_limit(mut self, limit: u64) -> Self {
        self.limits.steps = limit;
        self
    }

    /// Gives up when there are more tasks at once than this, beside the main one; 100 000, if not set
    ///
    /// A task that spawns ten times as many before it waits panics.
    pub fn task_limit(mut self, limit: usize) -> Self {
        self.limits.tasks = limit;
        self
    }

    /// Turns the DMA sanitizer, which looks for misuse of memory, on or off
    pub fn sanitize(mut self, sanitizes: bool) -> Self {
        self.options.sanitizes = sanitizes;
        self
    }

    /// Gives regions the addresses of their memory instead of invented ones
    ///
    /// Programs that speak the C ABI expect that. The addresses do not enter the trace.
    pub fn real_addresses(mut self) -> Self {
        self.options.real_addresses = true;
        self
    }

    /// Keeps the events in [`Run::history`]
    pub fn keep_records(mut self) -> Self {
        self.options.keeps_records = true;
        self
    }

    /// Ends all faults at `time`
    pub(crate) fn calm_at(mut self, time: Time) -> Self {
        self.options.calm = Some(time);
        self
    }

    /// Computes no digest
    pub(crate) fn without_digest(self) -> Self {
        Self { hashes: false, ..self }
    }

    /// Keeps the moments with traffic
    pub(crate) fn keep_moments(self) -> Self {
        Self { keeps_moments: true, ..self }
    }

    /// Keeps the orders of tasks
    pub(crate) fn keep_orders(self) -> Self {
        Self { keeps_orders: true, ..self }
    }

    /// Lets tasks end that may run when the main future has ended
    pub(crate) fn settle(self, settles: bool) -> Self {
        Self { settles, ..self }
    }

    /// Shows another thread how far the run is
    pub(crate) fn progress(self, progress: Arc<Progress>) -> Self {
        Self { progress, ..self }
    }

    /// Runs the future that `main` makes, and all tasks that it spawns, until it ends
    ///
    /// # Panics
    ///
    /// If [`try_run`](Self::try_run) fails, or if the DMA sanitizer found misuse of memory.
    pub fn run<F: Future>(self, main: impl FnOnce(Net) -> F) -> Run<F::Output> {
        let run = self.try_run(main).unwrap_or_else(|error| panic!("{error}"));
        if let Some(finding) = run.findings.first() {
            panic!("the DMA sanitizer found: {finding}");
        }
        run
    }

    /// Runs the future that `main` makes, and all tasks that it spawns, until it ends
    ///
    /// # Errors
    ///
    /// [`RunError::Stalled`] if the main future waits for an event that will never come, or goes on beyond a limit of time, steps or tasks;
    /// [`RunError::Fault`] if the topology lacks the host or port of a fault.
    pub fn try_run<F: Future>(self, main: impl FnOnce(Net) -> F) -> Result<Run<F::Output>, RunError> {
        let Self { limits, keeps_orders, settles, options: Options { scheduler, keeps_records, .. }, .. } =
            self;
        let net = self.build(None, None)?;
        let runtime = net.sim_runtime();
        let mut order = Order::new(scheduler, &mut *net.shared().lock().fabric.choices);
        if keeps_orders {
            order.keep_sequences();
        }
        let _marking = keeps_records.then(|| marking::observe(runtime));
        let main = main(net.clone());
        let Ended { value, order, unfinished } =
            runtime.block_on(net.shared(), limits, order, settles, main)?;
        let history = net.history();
        let fabric = &net.shared().lock().fabric;
        Ok(Run {
            value,
            time: net.now(),
            digest: fabric.trace.digest(),
            events: fabric.trace.events(),
            steps: order.steps(),
            orders: order.sequences().into_iter().collect(),
            findings: fabric.sanitizer.findings().to_vec(),
            leaks: Leaks::of(fabric),
            history,
            unfinished,
            rules: fabric.coverage.rules(&fabric.model),
            covered: fabric.coverage.counts(),
            moments: fabric.coverage.moments(),
        })
    }

    /// `spawner` runs the tasks if another executor does, and time is that of `clock` if there is one
    pub(crate) fn build(
        self,
        spawner: Option<Spawner>,
        clock: Option<Arc<WallClock>>,
    ) -> Result<Net, FaultError> {
        self.plan.check(&self.topology)?;
        let mut model = self.model;
        // The tasks of another executor run on a real processor.
        model.timing.cpu &= spawner.is_none();
        let mut fabric = Fabric::new(&self.topology, model, self.plan.0, self.choices, self.options);
        if !self.hashes {
            fabric.trace.stop();
        }
        if self.keeps_moments {
            fabric.coverage.keep_moments();
        }
        let runtime =
            SimRuntime::new(spawner, self.progress, fabric.cpu, self.limits.tasks.saturating_mul(10));
        Ok(Net::new(fabric, Arc::new(runtime), clock))
    }
}
