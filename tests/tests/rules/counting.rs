//! Which rules the tests of this program exercise

use std::fs::OpenOptions;
use std::io::Write;

use rdma_sim::{Net, Run, Sim};

/// The environment variable with the file to which a process adds the rules that its simulations exercise
pub(crate) const FILE: &str = "RDMA_TEST_RULES";

/// A simulation whose rules are counted
pub(crate) trait Simulate {
    /// Runs `program` as [`Sim::run`] does, and adds the rules that were exercised to the [file](FILE), if there is one
    fn simulate<F: Future>(self, program: impl FnOnce(Net) -> F) -> Run<F::Output>;
}

impl Simulate for Sim {
    fn simulate<F: Future>(self, program: impl FnOnce(Net) -> F) -> Run<F::Output> {
        let run = self.run(program);
        add(&run);
        run
    }
}

/// Adds the rules that `run` has exercised to the [file](FILE), if there is one
pub(crate) fn add<T>(run: &Run<T>) {
    let Some(path) = std::env::var_os(FILE) else { return };
    let lines: String = run.rules.iter().map(|(name, _)| format!("{name}\n")).collect();
    // One write for each run: tests run at once.
    OpenOptions::new().append(true).open(path).unwrap().write_all(lines.as_bytes()).unwrap();
}

/// What `program` returns, simulated on `sim`
pub(crate) fn value_of<T>(sim: Sim, program: impl AsyncFnOnce(Net) -> T) -> T {
    sim.simulate(|net| program(net)).value
}
