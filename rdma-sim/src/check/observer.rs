//! What a run does, as its program says it

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt;

use rdma_core::probe::{Observer, Statement};

use super::landmarks::Landmarks;

/// How often a statement was evaluated
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub struct Count {
    /// How often
    pub evaluated: u64,
    /// How often it held
    pub held: u64,
    /// In how many runs it held
    pub runs: u64,
}

/// Counts the statements and states of a run
#[derive(Debug, Default)]
pub(super) struct Counting {
    statements: RefCell<BTreeMap<Statement, Count>>,
    states: RefCell<BTreeMap<(&'static str, u64), u64>>,
    pub(super) landmarks: Landmarks,
}

impl Counting {
    /// The statements that were evaluated
    pub(super) fn statements(&self) -> BTreeMap<Statement, Count> {
        self.statements.take()
    }

    /// How many times each state was reached, by its name
    pub(super) fn states(&self) -> BTreeMap<String, u64> {
        let name = |(label, value): &(&'static str, u64)| match value {
            0 => format!("state {label}"),
            value => format!("state {label} = {value}"),
        };
        self.states.borrow().iter().map(|(state, count)| (name(state), *count)).collect()
    }
}

impl Observer for Counting {
    fn evaluated(&self, statement: Statement, holds: bool) {
        let mut counts = self.statements.borrow_mut();
        let count = counts.entry(statement).or_default();
        count.evaluated += 1;
        count.held += u64::from(holds);
        drop(counts);
        if holds {
            self.landmarks.reach((statement.label, statement.line.into()));
        }
    }

    fn state(&self, label: &'static str, value: u64) {
        *self.states.borrow_mut().entry((label, value)).or_default() += 1;
        self.landmarks.reach((label, value));
    }

    fn waits_for(&self, _: fmt::Arguments<'_>) {}
}
