//! Why a simulation cannot go on, and which task waits for what

use std::cell::RefCell;
use std::fmt;
use std::rc::Rc;
use std::time::Duration;

use rdma_core::Time;
use rdma_core::probe::{Observer, Statement, observe};

use crate::caught::{Caught, catch};

/// The main future waits for an event that will never come, or the simulation goes on without end
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Stalled {
    /// Every task waits, and no event or timer is due
    #[error(
        "the simulation stalled after {}: no event or timer is left that could wake a task{waits}\n\
         A task that waits for a clock, a socket or a thread outside of the simulation is never woken: use the clock, the streams \
         and the tasks of `Net`",
        SinceStart(*at)
    )]
    Deadlock {
        /// When the last event fired
        at: Time,
        /// What each task waits for
        waits: Waits,
    },
    /// The choices have ended the run, because others have shown what it would
    #[error("the choices have ended the run: others have shown what it would")]
    Pruned,
    /// A task is polled again and again while no time passes
    #[error(
        "the simulation spins after {}: {task} was polled {polls} times at one instant\n\
         A loop that looks for news without waiting never lets time pass: await an event or `Net::sleep` in it",
        SinceStart(*at)
    )]
    Spin {
        /// The instant
        at: Time,
        /// The task that was polled last
        task: String,
        /// How many times tasks were polled at that instant
        polls: u64,
    },
    /// Tasks were polled more often than they may be
    #[error(
        "the simulation took more than {limit} steps in {} of virtual time, and has not ended: the last is one of {task}\n\
         A loop that waits for moments goes on for ever: await an event in it, or let it sleep for longer (`Net::sleep`) or give up. A \
         test that takes more steps raises `step_limit`",
        SinceStart(*at)
    )]
    StepLimit {
        /// When it has passed the limit
        at: Time,
        /// The limit
        limit: u64,
        /// The task that was to be polled then
        task: String,
    },
    /// There are more tasks than there may be
    #[error(
        "the simulation has more than {limit} tasks that have not ended: the last is {task}\n\
         A task that spawns others again and again takes all memory: let some end before it spawns more. A test that needs more at once \
         raises `task_limit`"
    )]
    TaskLimit {
        /// The limit
        limit: usize,
        /// The task that was spawned last
        task: String,
    },
    /// The limit of virtual time has passed
    #[error(
        "the simulation reached its limit of {} of virtual time and the main task still waits{waits}\n\
         A task that waits for a message that never comes does so for ever, because open sessions go on with their heartbeats: let it \
         give up after a while (`rdma_async::time::timeout`). A test that takes longer raises `time_limit`",
        HumanDuration(limit.since(Time::ZERO))
    )]
    TimeLimit {
        /// The limit
        limit: Time,
        /// What each task waits for
        waits: Waits,
    },
}

impl Stalled {
    /// All tasks wait: for what comes after `limit`, or for nothing
    pub(super) fn at(at: Time, limit: Option<Time>) -> Self {
        let waits = Waits::default();
        match limit {
            Some(limit) => Self::TimeLimit { limit, waits },
            None => Self::Deadlock { at, waits },
        }
    }
}

/// What the tasks of a simulation wait for, the main one first
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Waits(pub Vec<Wait>);

/// What one task waits for
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct Wait {
    /// The task: `main`, or where it was spawned and on which host
    pub task: String,
    /// What could wake it; nothing of the simulation, if empty
    pub events: Vec<String>,
}

impl Wait {
    pub(super) fn new(task: String, event: &str) -> Self {
        Self { task, events: vec![event.to_owned()] }
    }
}

/// Most tasks that are printed
const MOST: usize = 16;

impl fmt::Display for Waits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for Wait { task, events } in self.0.iter().take(MOST) {
            write!(f, "\n  {task} waits for ")?;
            match &events[..] {
                [] => f.write_str("nothing that the simulation knows")?,
                events => f.write_str(&events.join(", or for "))?,
            }
        }
        match self.0.len().checked_sub(MOST) {
            None | Some(0) => Ok(()),
            Some(more) => write!(f, "\n  and {more} further tasks"),
        }
    }
}

/// A duration in the unit that people would use
pub(crate) struct HumanDuration(pub(crate) Duration);

impl fmt::Display for HumanDuration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.as_secs() {
            hours if hours >= 7200 => write!(f, "{:.1} h", self.0.as_secs_f64() / 3600.0),
            minutes if minutes >= 120 => write!(f, "{:.1} min", self.0.as_secs_f64() / 60.0),
            0 => match self.0.as_nanos() {
                ns if ns < 1000 => write!(f, "{ns} ns"),
                ns if ns < 1_000_000 => write!(f, "{} µs", ns as f64 / 1e3),
                ns => write!(f, "{} ms", (ns / 1000) as f64 / 1e3),
            },
            _ => write!(f, "{} s", self.0.as_millis() as f64 / 1e3),
        }
    }
}

/// The time since the simulation started
struct SinceStart(Time);

impl fmt::Display for SinceStart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        HumanDuration(self.0.since(Time::ZERO)).fmt(f)
    }
}

/// Collects what the task that is polled waits for
#[derive(Debug, Default)]
struct Listener(RefCell<Vec<String>>);

impl Observer for Listener {
    fn evaluated(&self, _: Statement, _: bool) {}

    fn state(&self, _: &'static str, _: u64) {}

    fn waits_for(&self, event: fmt::Arguments<'_>) {
        let (event, mut events) = (event.to_string(), self.0.borrow_mut());
        if !events.contains(&event) {
            events.push(event);
        }
    }
}

/// What the task that `poll` polls once more waits for; it returns whether the task was ready
pub(super) fn wait_of(task: String, poll: impl FnOnce() -> bool) -> Wait {
    let listener = Rc::new(Listener::default());
    let observation = observe(listener.clone());
    // A task that runs on, because its wake-up was lost, may fail: the stall came first.
    let is_ready = catch(poll).map_err(Caught::into_panics) != Ok(false);
    drop(observation);
    if is_ready {
        return Wait::new(task, "its turn, although it is ready: it was never woken, so a wake-up was lost");
    }
    Wait { task, events: listener.0.take() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_printed_in_the_unit_of_people() {
        let text = |ns| HumanDuration(Duration::from_nanos(ns)).to_string();
        assert_eq!(text(0), "0 ns");
        assert_eq!(text(12_100), "12.1 µs");
        assert_eq!(text(5_250_100), "5.25 ms");
        assert_eq!(text(61_250_000_000), "61.25 s");
        assert_eq!(text(24 * 3_600_000_000_000), "24.0 h");
    }
}
