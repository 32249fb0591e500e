//! What all runs of a check have seen

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use rdma_core::Time;
use rdma_core::probe::{Statement, StatementKind};

use super::observer::Count;
use super::run::Finished;
use crate::executor::Human;

/// The orders that an [exhaustive](super::Check::exhaustive) check has tried
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub struct Orders {
    /// How many orders were tried to the end
    pub tried: u64,
    /// How many were given up, because they differed from others only in steps of different hosts
    pub pruned: u64,
    /// Whether there are no others
    pub are_all: bool,
}

/// What the runs of a check have seen, from [`try_check`](super::try_check)
///
/// Prints as one line, and with `{:#}` as a table.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Report {
    /// The name of the test
    pub test: String,
    /// How many runs
    pub runs: u64,
    /// The virtual time of all runs
    pub simulated: Duration,
    /// The real time that they took
    pub elapsed: Duration,
    /// How many events of the fabric
    pub events: u64,
    /// How many times tasks were polled
    pub steps: u64,
    /// The statements of `sometimes!` and `always!` that were evaluated
    pub statements: BTreeMap<Statement, Count>,
    /// The orders that were tried, if the check was exhaustive
    pub orders: Option<Orders>,
    /// What was reached: faults that fired, verbs that were refused, how requests completed, and states of `state!`
    pub covered: BTreeMap<String, Count>,
}

impl Report {
    pub(super) fn add(&mut self, run: &Finished) {
        self.runs += 1;
        self.simulated += run.time.since(Time::ZERO);
        self.events += run.events;
        self.steps += run.steps;
        for (statement, count) in &run.statements {
            let total = self.statements.entry(*statement).or_default();
            total.evaluated += count.evaluated;
            total.held += count.held;
            total.runs += u64::from(count.held > 0);
        }
        for (behaviour, times) in &run.covered {
            let total = self.covered.entry(behaviour.clone()).or_default();
            total.evaluated += times;
            total.held += times;
            total.runs += u64::from(*times > 0);
        }
    }

    /// What never held, as text
    pub(super) fn never_held_text(&self) -> Option<String> {
        let never: Vec<_> = self
            .never_held()
            .map(|Statement { label, file, line, .. }| format!("\n  {label:?} at {file}:{line}"))
            .collect();
        let runs = self.runs;
        let text = format!(
            "what should hold sometimes never did in {runs} runs: try more, give the test what it needs to get there, or remove the \
             statement:{}",
            never.concat()
        );
        if never.is_empty() { None } else { Some(text) }
    }

    /// The statements that have to hold sometimes, and never did
    pub fn never_held(&self) -> impl Iterator<Item = &Statement> {
        let statements = self.statements.iter();
        let never = statements
            .filter(|(statement, count)| statement.kind == StatementKind::Sometimes && count.held == 0);
        never.map(|(statement, _)| statement)
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { test, runs, simulated, elapsed, events, .. } = self;
        let factor = simulated.as_secs_f64() / elapsed.as_secs_f64().max(1e-9);
        write!(
            f,
            "{test}: {runs} runs, {} simulated in {} (× {factor:.0}), {events} events",
            Human(*simulated),
            Human(*elapsed)
        )?;
        if let Some(Orders { tried, pruned, are_all }) = self.orders {
            let which = if are_all { "all" } else { "not all" };
            write!(f, "; {tried} orders, {which} of them, beside {pruned} that show nothing else")?;
        }
        if !f.alternate() {
            return Ok(());
        }
        write!(f, "\n\n{:>12} {:>12} {:>8}", "times", "held", "runs")?;
        for (Statement { label, kind, file, line, .. }, Count { evaluated, held, runs }) in &self.statements {
            write!(f, "\n{evaluated:>12} {held:>12} {runs:>8}  {kind} {label} ({file}:{line})")?;
        }
        for (behaviour, Count { evaluated, held, runs }) in &self.covered {
            write!(f, "\n{evaluated:>12} {held:>12} {runs:>8}  {behaviour}")?;
        }
        Ok(())
    }
}
