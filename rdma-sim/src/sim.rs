use std::sync::Arc;

use rdma_core::{Runtime, Time};

use crate::executor::{SimRuntime, Stalled};
use crate::fabric::Fabric;
use crate::model::DEFAULT_TIME_LIMIT;
use crate::trace::Digest;
use crate::{Choices, Model, Net, Seeded, Topology};

/// A simulation to be run
///
/// ```
/// use rdma_core::Device;
/// use rdma_sim::Sim;
///
/// let run = Sim::new().seed(7).run(|net| async move {
///     let a = net.open("a", "rdma_en2").unwrap();
///     a.port().unwrap().bits_per_second
/// });
/// assert_eq!(run.value, 80_000_000_000);
/// ```
#[derive(Debug)]
#[must_use = "a simulation does nothing until it is run"]
pub struct Sim {
    topology: Topology,
    model: Model,
    choices: Box<dyn Choices>,
    time_limit: Time,
}

/// How a simulation went
#[derive(Clone, Copy, Debug)]
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
            choices: Box::new(Seeded::new(0)),
            time_limit: DEFAULT_TIME_LIMIT,
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

    /// Gives up when the virtual time exceeds `limit`; a day, if not set
    pub fn time_limit(self, limit: Time) -> Self {
        Self { time_limit: limit, ..self }
    }

    /// Runs the future that `main` makes, and all tasks that it spawns, until it ends
    ///
    /// # Panics
    ///
    /// If the main future waits for something that will never happen; see [`try_run`](Self::try_run).
    pub fn run<F: Future>(self, main: impl FnOnce(Net) -> F) -> Run<F::Output> {
        self.try_run(main).unwrap_or_else(|stalled| panic!("{stalled}"))
    }

    /// Runs the future that `main` makes, and all tasks that it spawns, until it ends
    ///
    /// # Errors
    ///
    /// The main future waits for something that will never happen, or for longer than the time limit.
    pub fn try_run<F: Future>(self, main: impl FnOnce(Net) -> F) -> Result<Run<F::Output>, Stalled> {
        let runtime = Arc::new(SimRuntime::new());
        let net = Net::new(Fabric::new(&self.topology, self.model, self.choices), Arc::clone(&runtime));
        let value = runtime.block_on(&net, self.time_limit, main(net.clone()))?;
        let state = net.shared().lock();
        Ok(Run { value, time: runtime.now(), digest: state.fabric.digest(), events: state.fabric.events() })
    }
}
