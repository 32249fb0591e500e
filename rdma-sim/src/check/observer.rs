//! What a run does, as its program says it

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::fmt;

use rdma_core::probe::{Observer, ProtocolState, Statement};

use super::landmarks::Landmarks;

/// How often a statement was evaluated
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub struct Count {
    /// How many times it was evaluated, in all runs together
    pub evaluated: u64,
    /// How many times it held, in all runs together
    pub held: u64,
    /// The number of runs in which it held at least once
    pub runs: u64,
}

impl Count {
    /// Adds what was seen so many times in one run
    pub(super) fn add(&mut self, times: u64) {
        self.evaluated += times;
        self.held += times;
        self.runs += u64::from(times > 0);
    }
}

/// A count for each state of the protocol
#[derive(Debug)]
struct ProtocolCounts([Cell<u64>; ProtocolState::ALL.len()]);

impl Default for ProtocolCounts {
    fn default() -> Self {
        Self(std::array::from_fn(|_| Cell::new(0)))
    }
}

/// Counts the statements and states of a run
#[derive(Debug, Default)]
pub(super) struct Counting {
    statements: RefCell<BTreeMap<Statement, Count>>,
    states: RefCell<BTreeMap<(&'static str, u64), u64>>,
    pub(super) landmarks: Landmarks,
    /// How many times a connection was in each state
    protocol_states: ProtocolCounts,
    /// The test has ended, and what it leaves is dropped
    has_ended: Cell<bool>,
}

impl Counting {
    /// The statements that were evaluated
    pub(super) fn statements(&self) -> BTreeMap<Statement, Count> {
        self.statements.take()
    }

    /// Counts no more states of the protocol: those that the test leaves open are lost with it
    pub(super) fn end(&self) {
        self.has_ended.set(true);
    }

    /// How many times each state of the protocol was reached, by its name
    pub(super) fn protocol_states(&self) -> impl Iterator<Item = (String, u64)> {
        let counts =
            ProtocolState::ALL.iter().zip(&self.protocol_states.0).filter(|(_, count)| count.get() > 0);
        counts.map(|(state, count)| (format!("protocol {state}"), count.get()))
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
        if holds {
            self.landmarks.reach((statement.label, statement.line.into()), count.held);
        }
    }

    fn state(&self, label: &'static str, value: u64) {
        let mut counts = self.states.borrow_mut();
        let count = counts.entry((label, value)).or_default();
        *count += 1;
        self.landmarks.reach((label, value), *count);
    }

    fn waits_for(&self, _: fmt::Arguments<'_>) {}

    fn reached(&self, state: ProtocolState) {
        if self.has_ended.get() {
            return;
        }
        let count = &self.protocol_states.0[state as usize];
        count.set(count.get() + 1);
        self.landmarks.reach_protocol(state, count.get());
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::AtomicU64;
    use std::time::Duration;

    use super::*;
    use crate::Sim;
    use crate::check::landmarks::Position;

    /// Regression: a variation of a run that had reached a state of the protocol began anywhere. Catches states that what the test leaves
    /// open reaches when it is dropped.
    #[test]
    fn states_of_the_protocol_are_landmarks_where_they_are_reached() {
        let run = Sim::new().run(async |net| {
            let counting = Counting::default();
            counting.landmarks.keep(net.clone(), Arc::new(AtomicU64::new(7)));
            for _ in 0..5 {
                net.sleep(Duration::from_nanos(10)).await;
                counting.reached(ProtocolState::PathProven);
            }
            counting.end();
            counting.reached(ProtocolState::PathProven);
            let times = counting.landmarks.take().into_iter().map(|landmark| {
                let Position { drawn, time } = landmark.position.expect("it is known where the run is");
                (drawn, time.as_nanos())
            });
            (times.collect::<Vec<_>>(), counting.protocol_states().collect::<Vec<_>>())
        });
        let (landmarks, counts) = run.value;
        assert_eq!(landmarks, [(7, 10), (7, 20), (7, 30), (7, 40)], "each of the first four times");
        assert_eq!(counts, [("protocol path proven".to_owned(), 5)]);
    }
}
