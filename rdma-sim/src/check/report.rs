//! What all runs of a check have seen

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use rdma_core::Time;
use rdma_core::probe::{ProtocolState, Statement, StatementKind};

use super::expectation::doubt;
use super::observer::Count;
use super::run::FinishedRun;
use crate::catalogue::{self, Rule};
use crate::executor::HumanDuration;
use crate::fault::{FAULTS, FaultInfo};
use crate::model::Model;

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
    /// How many of the runs were those of seeds; the others are the plain run and those of a [corpus](super::Check::corpus)
    pub seeds: u64,
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
    /// What was reached: `fault NAME`, `rule NAME` of the [catalogue](crate::catalogue), `state LABEL` of `state!`,
    /// `protocol STATE` for each [`ProtocolState`], verbs that were refused, and how requests completed
    pub covered: BTreeMap<String, Count>,
    /// The tasks that waited when the test ended, and were dropped, by where they were spawned and on which host
    pub tasks: BTreeMap<String, Count>,
    /// The devices that were simulated: they decide which rules could be exercised
    pub(super) model: Model,
}

impl Report {
    pub(super) fn add(&mut self, run: &FinishedRun) {
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
        let rules = run.rules.iter().map(|(name, times)| (format!("rule {name}"), *times));
        let covered = run.covered.iter().map(|(name, times)| (name.clone(), *times));
        for (behaviour, times) in covered.chain(rules) {
            self.covered.entry(behaviour).or_default().add(times);
        }
        let mut tasks = BTreeMap::<_, u64>::new();
        for task in &run.unfinished {
            *tasks.entry(&task.wait.task).or_default() += 1;
        }
        for (task, times) in tasks {
            self.tasks.entry(task.clone()).or_default().add(times);
        }
    }

    /// The rules of the [catalogue](crate::catalogue) that [apply](Rule::applies_to) to the model of the check and that no run has
    /// exercised, without those that are not [counted](Rule::uncounted)
    pub fn never_exercised(&self) -> impl Iterator<Item = &'static Rule> {
        let counted = self.applicable(catalogue::rules()).filter(|rule| rule.uncounted.is_none());
        counted.filter(|rule| !self.has("rule", rule.name))
    }

    /// Those of `rules` that the model of the check can exercise
    fn applicable(&self, rules: impl Iterator<Item = &'static Rule>) -> impl Iterator<Item = &'static Rule> {
        rules.filter(|rule| rule.applies_to(&self.model))
    }

    /// The kinds of faults that fired in no run
    pub fn never_fired(&self) -> impl Iterator<Item = &'static FaultInfo> {
        FAULTS.iter().filter(|fault| !self.has("fault", fault.name))
    }

    /// The states of the protocol that no run has reached; all of them, if the test has no session
    pub fn never_reached(&self) -> impl Iterator<Item = ProtocolState> {
        ProtocolState::ALL.iter().copied().filter(|state| !self.has("protocol", state.name()))
    }

    fn has(&self, kind: &str, name: &str) -> bool {
        self.covered.contains_key(&format!("{kind} {name}"))
    }

    /// Whether a run has reached what has this name in the report
    fn reaches(&self, name: &str) -> bool {
        let mut statements = self.statements.iter();
        self.covered.contains_key(name)
            || statements.any(|(found, count)| found.label == name && count.held > 0)
    }

    /// Why an expected name that was not reached is probably misspelt, if it is
    fn doubt(&self, name: &str) -> String {
        let labels = self.statements.keys().map(|statement| statement.label);
        doubt(name, labels, self.covered.keys().map(String::as_str), &self.model)
    }

    /// What was not reached, and what is not counted, as text
    fn write_gaps(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let never: Vec<_> = self.never_exercised().map(|rule| rule.name).collect();
        for (title, rules) in catalogue::SECTIONS {
            let counted = self.applicable(rules.iter()).filter(|rule| rule.uncounted.is_none()).count();
            let names: Vec<_> =
                rules.iter().map(|rule| rule.name).filter(|name| never.contains(name)).collect();
            let title = format!("rules never exercised, {title}");
            write_names(f, &title, if names.len() == counted { &["all"] } else { &names })?;
        }
        let uncounted = self.applicable(catalogue::rules()).filter(|rule| rule.uncounted.is_some());
        let uncounted = uncounted.map(|rule| rule.name);
        write_names(f, "rules not counted: they always hold", &uncounted.collect::<Vec<_>>())?;
        let states: Vec<_> = self.never_reached().map(ProtocolState::name).collect();
        let states = if states.len() == ProtocolState::ALL.len() { &["all"] } else { &states[..] };
        write_names(f, "states of the protocol never reached", states)?;
        let faults: Vec<_> = self.never_fired().map(|fault| fault.name).collect();
        write_names(
            f,
            "faults that never fired",
            if faults.len() == FAULTS.len() { &["all"] } else { &faults },
        )
    }

    /// What never held, and which of the `expected` names was not reached, as text
    pub(super) fn never_reached_text(&self, expected: &[String]) -> Option<String> {
        let held = |Statement { label, file, line, .. }: &_| format!("\n  {label:?} at {file}:{line}");
        let never = self.never_held().map(held);
        let unreached = expected.iter().filter(|name| !self.reaches(name));
        let unreached =
            unreached.map(|name| format!("\n  {name:?}, which `Check::reaches` names{}", self.doubt(name)));
        let never: Vec<_> = never.chain(unreached).collect();
        let runs = self.runs;
        let runs = if runs == 1 { "1 run".to_owned() } else { format!("{runs} runs") };
        let runs = match self.orders {
            Some(Orders { are_all: true, .. }) => format!("{runs}, and there are no other orders:"),
            _ => format!("{runs}: try more,"),
        };
        let text = format!(
            "what should hold sometimes never did in {runs} give the test what it needs to get there, or remove the statement:{}",
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
        let Self { test, runs, seeds, simulated, elapsed, events, .. } = self;
        let factor = simulated.as_secs_f64() / elapsed.as_secs_f64().max(1e-9);
        write!(f, "{test}: ")?;
        match runs.saturating_sub(*seeds) {
            1 if *seeds == 0 => f.write_str("1 run")?,
            _ if *seeds == 0 => write!(f, "{runs} runs")?,
            0 | 1 => write!(f, "{seeds} seeds and the plain run")?,
            others => write!(f, "{seeds} seeds, the plain run and {} of the corpus", others - 1)?,
        }
        write!(
            f,
            ", {} simulated in {} (× {factor:.0}), {events} events",
            HumanDuration(*simulated),
            HumanDuration(*elapsed)
        )?;
        if let Some(Orders { tried, pruned, are_all }) = self.orders {
            let which = if are_all { "all" } else { "not all" };
            let orders = if tried == 1 { "order" } else { "orders" };
            write!(f, "; {tried} {orders}, {which} of them, beside {pruned} that show nothing else")?;
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
        for (task, Count { evaluated, held, runs }) in &self.tasks {
            write!(f, "\n{evaluated:>12} {held:>12} {runs:>8}  at the end, {task} waits")?;
        }
        f.write_str("\n")?;
        self.write_gaps(f)
    }
}

/// Most letters of a line of names
const WIDTH: usize = 120;

/// Writes names behind a title, in lines that are not too long; nothing if there are none
fn write_names(f: &mut fmt::Formatter<'_>, title: &str, names: &[&str]) -> fmt::Result {
    if names.is_empty() {
        return Ok(());
    }
    write!(f, "\n{title}:")?;
    let mut column = title.len() + 1;
    for (number, name) in names.iter().enumerate() {
        let end = if number + 1 == names.len() { "" } else { "," };
        if column + name.len() + 2 > WIDTH {
            f.write_str("\n   ")?;
            column = 3;
        }
        write!(f, " {name}{end}")?;
        column += name.len() + 2;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Catches a factor that is upside down, and one of other times.
    #[test]
    fn a_report_says_how_many_times_faster_than_real_time_the_runs_were() {
        let report = Report {
            test: "t".to_owned(),
            runs: 3,
            seeds: 2,
            simulated: Duration::from_secs(10),
            elapsed: Duration::from_millis(20),
            events: 7,
            ..Report::default()
        };
        assert_eq!(
            report.to_string(),
            "t: 2 seeds and the plain run, 10 s simulated in 20 ms (× 500), 7 events"
        );
        let slow = Report { elapsed: Duration::from_secs(5), ..report };
        assert!(slow.to_string().contains("10 s simulated in 5 s (× 2)"), "{slow}");
    }
}
