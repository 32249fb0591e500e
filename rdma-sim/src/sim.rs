use std::sync::Arc;

use rdma_core::Time;

use crate::executor::{SimRuntime, Spawner, Stalled};
use crate::fabric::{Fabric, Finding};
use crate::fault::{FaultError, FaultPlan};
use crate::model::DEFAULT_TIME_LIMIT;
use crate::net::Net;
use crate::trace::{Digest, Record};
use crate::{Choices, Model, Seeded, Topology};

/// A simulation that is about to run
///
/// The DMA sanitizer is on in debug builds, which is where tests run.
#[derive(Debug)]
#[must_use = "nothing happens before it runs"]
pub struct Sim {
    topology: Topology,
    model: Model,
    plan: FaultPlan,
    choices: Box<dyn Choices>,
    time_limit: Time,
    sanitizes: bool,
    keeps_records: bool,
    real_addresses: bool,
}

/// How a simulation went
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Run<T> {
    /// What the main future returned
    pub value: T,
    /// The virtual time at its end
    pub time: Time,
    /// The fingerprint of everything that happened
    pub digest: Digest,
    /// How many events the fabric recorded
    pub events: u64,
    /// What the DMA sanitizer found
    pub findings: Vec<Finding>,
    /// What was left when everything had been dropped that the simulation itself held
    pub leaks: Leaks,
    /// What happened, if records were [kept](Sim::keep_records)
    pub records: Vec<Record>,
}

/// What still exists at the end of a simulation
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
    /// Completions in the queues that are left
    pub unpolled_completions: usize,
}

impl Leaks {
    pub(crate) fn of(fabric: &Fabric) -> Self {
        let [queue_pairs, completion_queues, memory_regions, protection_domains] = fabric.census();
        let unpolled_completions = fabric.unpolled();
        Self { queue_pairs, completion_queues, memory_regions, protection_domains, unpolled_completions }
    }

    /// Whether nothing is left
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// Why a simulation has no outcome
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum RunError {
    /// A fault has no place in the topology
    #[error(transparent)]
    Fault(#[from] FaultError),
    /// The main future waits and nothing will ever wake it
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
            time_limit: DEFAULT_TIME_LIMIT,
            sanitizes: cfg!(debug_assertions),
            keeps_records: false,
            real_addresses: false,
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

    /// Simulates these Macs and cables
    pub fn topology(self, topology: Topology) -> Self {
        Self { topology, ..self }
    }

    /// Simulates devices that behave like this
    pub fn model(self, model: Model) -> Self {
        Self { model, ..self }
    }

    /// Has these faults happen
    pub fn faults(self, plan: FaultPlan) -> Self {
        Self { plan, ..self }
    }

    /// Gives up when the virtual time exceeds `limit`; a day, if not set
    pub fn time_limit(self, limit: Time) -> Self {
        Self { time_limit: limit, ..self }
    }

    /// Looks for misuse of memory, or does not
    pub fn sanitize(self, sanitizes: bool) -> Self {
        Self { sanitizes, ..self }
    }

    /// Gives regions the addresses of their memory instead of invented ones
    ///
    /// Programs that speak the C ABI expect that. The addresses do not enter the trace.
    pub fn real_addresses(self) -> Self {
        Self { real_addresses: true, ..self }
    }

    /// Keeps what happens in [`Run::records`]
    pub fn keep_records(self) -> Self {
        Self { keeps_records: true, ..self }
    }

    /// Runs the future that `main` makes, and all tasks that it spawns, until it ends
    ///
    /// # Panics
    ///
    /// If the main future waits for something that will never happen, if a fault has no place (see
    /// [`try_run`](Self::try_run) for both), or if the DMA sanitizer found something.
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
    /// The main future waits for something that will never happen, or for longer than the time limit; or a fault has no
    /// place in the topology.
    pub fn try_run<F: Future>(self, main: impl FnOnce(Net) -> F) -> Result<Run<F::Output>, RunError> {
        let time_limit = self.time_limit;
        let (net, runtime) = self.build(None)?;
        let value = runtime.block_on(&net, time_limit, main(net.clone()))?;
        let state = net.shared().lock();
        let fabric = &state.fabric;
        Ok(Run {
            value,
            time: runtime.clock_now(),
            digest: fabric.trace().digest(),
            events: fabric.trace().events(),
            findings: fabric.findings().to_vec(),
            leaks: Leaks::of(fabric),
            records: fabric.trace().records().to_vec(),
        })
    }

    pub(crate) fn build(self, spawner: Option<Spawner>) -> Result<(Net, Arc<SimRuntime>), FaultError> {
        self.plan.check(&self.topology)?;
        let runtime = Arc::new(SimRuntime::new(spawner));
        let mut fabric = Fabric::new(&self.topology, self.model, self.plan, self.choices);
        if self.sanitizes {
            fabric.sanitize();
        }
        if self.keeps_records {
            fabric.keep_records();
        }
        if self.real_addresses {
            fabric.use_real_addresses();
        }
        Ok((Net::new(fabric, Arc::clone(&runtime)), runtime))
    }
}
