//! What a seeded bug is

use std::time::Duration;

use futures::future::BoxFuture;
use rdma_sim::{Check, Model, Net, RandomFaults, Topology};

/// A small program with a mistake that people make, and its repair
pub(crate) struct Bug {
    pub(crate) name: &'static str,
    /// What is wrong, in one sentence
    pub(crate) wrong: &'static str,
    /// What must happen for the program to fail
    pub(crate) needs: Needs,
    /// A part of the message of the failure
    pub(crate) fails_with: &'static str,
    /// Whether the plain order of tasks finds it: only the jitter of frames and the faults differ by seed
    pub(crate) is_found_in_fifo: bool,
    topology: fn() -> Topology,
    model: fn() -> Model,
    /// How many random faults, in how many microseconds
    faults: (u32, u64),
    /// The program, repaired if the flag is set
    body: fn(Net, bool) -> BoxFuture<'static, ()>,
}

/// What a schedule needs for a bug to show
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Needs {
    /// Another order of tasks that are ready at one instant
    Order,
    /// Another order of timers or events that are due at one instant
    Ties,
    /// A task that runs late
    Delay,
    /// Several of these, at particular moments
    Several,
    /// The jitter of frames, which every schedule has
    Frames,
    /// A fault at a particular moment
    Fault,
    /// A fault at a particular moment, or a task that runs late
    FaultOrDelay,
}

/// What a simulation says whose main task waits for ever
pub(crate) const STALL: &str = "stalled";

impl Bug {
    /// A bug without faults, on two Macs
    pub(crate) const fn new(
        name: &'static str,
        wrong: &'static str,
        needs: Needs,
        fails_with: &'static str,
        body: fn(Net, bool) -> BoxFuture<'static, ()>,
    ) -> Self {
        let is_found_in_fifo = matches!(needs, Needs::Frames | Needs::Fault | Needs::FaultOrDelay);
        Self {
            name,
            wrong,
            needs,
            fails_with,
            is_found_in_fifo,
            topology: Topology::pair,
            model: Model::tb5,
            faults: (0, 0),
            body,
        }
    }

    /// With up to so many random faults in so many microseconds
    pub(crate) const fn faults(self, count: u32, micros: u64) -> Self {
        Self { faults: (count, micros), ..self }
    }

    /// On these Macs and cables
    pub(crate) const fn on(self, topology: fn() -> Topology) -> Self {
        Self { topology, ..self }
    }

    /// With devices that behave like this
    pub(crate) const fn model(self, model: fn() -> Model) -> Self {
        Self { model, ..self }
    }

    /// What is to be checked
    pub(crate) fn settings(&self) -> Check {
        let (count, micros) = self.faults;
        let faults = RandomFaults::up_to(count).within(Duration::from_micros(micros));
        Check::new().name(self.name).topology((self.topology)()).model((self.model)()).random_faults(faults)
    }

    /// The program
    pub(crate) async fn run(&self, net: Net, is_fixed: bool) {
        (self.body)(net, is_fixed).await;
    }
}

/// An entry of the table, from the name of its program
macro_rules! bug {
    ($program:ident, $needs:ident, $fails_with:expr, $wrong:literal) => {
        $crate::bug::Bug::new(
            stringify!($program),
            $wrong,
            $crate::bug::Needs::$needs,
            $fails_with,
            |net, is_fixed| Box::pin($program(net, is_fixed)),
        )
    };
}

pub(crate) use bug;
