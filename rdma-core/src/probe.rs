//! What a simulation sees of the program that it runs
//!
//! A program states what must hold [always](crate::always!), what some run has to reach ([`sometimes!`](crate::sometimes!)), in which
//! [state](crate::state!) it is, and what its tasks [wait for](waits_for). Outside of a simulation, these cost a look at a thread-local variable, and only
//! `always!` does something: it panics, as `assert!` does. The session protocol notes its own [states](ProtocolState).

mod peering_state;
mod protocol_state;

pub use self::peering_state::PeeringState;
pub use self::protocol_state::ProtocolState;

use std::cell::{Cell, RefCell};
use std::fmt;
use std::rc::Rc;

/// A statement about the program that was evaluated
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
#[non_exhaustive]
pub struct Statement {
    /// The text of the statement, as the program wrote it in the macro: `"the queue is long"`
    pub label: &'static str,
    /// Which kind of statement it is
    pub kind: StatementKind,
    /// The file that states it
    pub file: &'static str,
    /// Its line
    pub line: u32,
}

/// Which kind of statement a [`Statement`] is
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
#[non_exhaustive]
pub enum StatementKind {
    /// It holds each time
    Always,
    /// It holds at least once in all runs
    Sometimes,
}

impl fmt::Display for StatementKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Always => "always",
            Self::Sometimes => "sometimes",
        })
    }
}

/// A simulation that looks at the program of this thread
pub trait Observer {
    /// A statement was evaluated
    fn evaluated(&self, statement: Statement, holds: bool);

    /// The program is in a state
    fn state(&self, label: &'static str, value: u64);

    /// The task that is polled waits for `event`
    fn waits_for(&self, event: fmt::Arguments<'_>);

    /// The protocol has reached a state
    ///
    /// The peering is locked meanwhile: the observer must not use its sessions.
    fn reached(&self, _: ProtocolState) {}

    /// Whether the observer wants to know the [state of each peering](Self::peering), which takes time
    fn watches_peerings(&self) -> bool {
        false
    }

    /// A side of a peering, the one that has connected or the other one, has taken a step and is in this state
    ///
    /// The peering is not locked.
    fn peering(&self, _has_connected: bool, _: PeeringState) {}

    /// A fault called `name` fires at this host, or at a port of it
    ///
    /// The simulation is locked meanwhile: the observer must not use it.
    fn fault_fires(&self, _host: &str, _name: &str) {}
}

thread_local! {
    /// Whether there is an observer: unlike it, this is read without asking whether the thread ends
    static IS_OBSERVED: Cell<bool> = const { Cell::new(false) };
    static OBSERVER: RefCell<Option<Rc<dyn Observer>>> = const { RefCell::new(None) };
}

/// Ends the observation when it is dropped
#[must_use = "the observation ends when it is dropped"]
pub struct Observation {
    /// The observer before
    outer: Option<Rc<dyn Observer>>,
}

/// Shows the program of this thread to `observer`, instead of to the one before, until the observation is dropped
pub fn observe(observer: Rc<dyn Observer>) -> Observation {
    IS_OBSERVED.set(true);
    Observation { outer: OBSERVER.replace(Some(observer)) }
}

impl Drop for Observation {
    fn drop(&mut self) {
        IS_OBSERVED.set(self.outer.is_some());
        // A thread that ends may have dropped the variable.
        let _ = OBSERVER.try_with(|observer| observer.replace(self.outer.take()));
    }
}

impl fmt::Debug for Observation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Observation").finish_non_exhaustive()
    }
}

/// The observer of this thread, if there is one: for another one that passes on what it sees
#[inline]
pub fn observer() -> Option<Rc<dyn Observer>> {
    if IS_OBSERVED.get() { current() } else { None }
}

#[cold]
fn current() -> Option<Rc<dyn Observer>> {
    OBSERVER.try_with(|observer| observer.borrow().clone()).ok().flatten()
}

/// Notifies the observer of the event for which the task that is polled waits, in words that follow "waits for"
///
/// ```
/// rdma_core::probe::waits_for(format_args!("a vote of {}", "b"));
/// ```
pub fn waits_for(event: fmt::Arguments<'_>) {
    if let Some(observer) = observer() {
        observer.waits_for(event);
    }
}

/// Notifies the observer that the protocol has reached `state`
///
/// Sessions do so by themselves: this is for the library.
#[inline]
pub fn reached(state: ProtocolState) {
    if let Some(observer) = observer() {
        observer.reached(state);
    }
}

/// The observer of this thread, if it watches peerings
///
/// Sessions ask by themselves: this is for the library.
#[doc(hidden)]
#[inline]
pub fn peering_observer() -> Option<Rc<dyn Observer>> {
    observer().filter(|observer| observer.watches_peerings())
}

/// Notifies the observer that a fault fires at a host; for simulations
#[doc(hidden)]
pub fn fault_fires(host: &str, name: &str) {
    if let Some(observer) = observer() {
        observer.fault_fires(host, name);
    }
}

/// Notifies the observer that `statement` was evaluated; see the macros
#[doc(hidden)]
pub fn evaluated(label: &'static str, kind: StatementKind, (file, line): (&'static str, u32), holds: bool) {
    if let Some(observer) = observer() {
        observer.evaluated(Statement { label, kind, file, line }, holds);
    }
}

/// Notifies the observer that the program is in a state; see [`state!`](crate::state!)
#[doc(hidden)]
pub fn state(label: &'static str, value: u64) {
    if let Some(observer) = observer() {
        observer.state(label, value);
    }
}

/// States what has to hold at least once: a check of a simulation fails if the statement was evaluated and held in no run
///
/// So a test shows that it has tested what it is for. A check knows of the statements that were evaluated: one in code that no run reaches
/// is unknown to it, unless the test names its label beforehand, by `Check::reaches`.
///
/// ```
/// let queue = [1, 2, 3];
/// rdma_core::sometimes!(queue.len() > 2, "the queue is long");
/// ```
#[macro_export]
macro_rules! sometimes {
    ($condition:expr, $label:literal $(,)?) => {
        $crate::probe::evaluated(
            $label,
            $crate::probe::StatementKind::Sometimes,
            (::core::file!(), ::core::line!()),
            $condition,
        )
    };
}

/// States what has to hold each time: panics otherwise, and lets a check of a simulation count how often it was evaluated
///
/// ```
/// let (sent, acknowledged) = (4, 3);
/// rdma_core::always!(acknowledged <= sent, "no more is acknowledged than was sent");
/// // The label is the text of the panic, and may have arguments; reports show it without them.
/// rdma_core::always!(acknowledged <= sent, "{acknowledged} of {} are acknowledged", sent);
/// ```
#[macro_export]
macro_rules! always {
    ($condition:expr, $label:literal $(, $($arguments:tt)+)?) => {{
        let holds: bool = $condition;
        $crate::probe::evaluated(
            $label,
            $crate::probe::StatementKind::Always,
            (::core::file!(), ::core::line!()),
            holds,
        );
        ::core::assert!(holds, $label $(, $($arguments)+)?);
    }};
}

/// Tells a simulation in which state the program is: it lists the states that were reached, and varies runs that reach new ones
///
/// The value, zero if there is none, distinguishes what should count as different states: a phase, a number of retries, not a time.
///
/// ```
/// let retries = 3_u32;
/// rdma_core::state!("leader");
/// rdma_core::state!("retries", retries);
/// ```
#[macro_export]
macro_rules! state {
    ($label:literal $(,)?) => {
        $crate::probe::state($label, 0)
    };
    ($label:literal, $value:expr $(,)?) => {
        $crate::probe::state($label, u64::from($value))
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Default)]
    struct Seen(RefCell<Vec<String>>);

    impl Observer for Seen {
        fn evaluated(&self, statement: Statement, holds: bool) {
            self.0.borrow_mut().push(format!("{} {} {holds}", statement.kind, statement.label));
        }

        fn state(&self, label: &'static str, value: u64) {
            self.0.borrow_mut().push(format!("state {label} {value}"));
        }

        fn waits_for(&self, event: fmt::Arguments<'_>) {
            self.0.borrow_mut().push(event.to_string());
        }

        fn reached(&self, state: ProtocolState) {
            self.0.borrow_mut().push(format!("protocol {state}"));
        }
    }

    #[test]
    fn statements_are_seen_while_the_thread_is_observed() {
        let seen = Rc::new(Seen::default());
        sometimes!(true, "before");
        let observation = observe(seen.clone());
        sometimes!(false, "full");
        always!(1 < 2, "in order");
        state!("open");
        state!("retries", 3_u32);
        waits_for(format_args!("a message of {}", "b"));
        let inner = observe(Rc::new(Seen::default()));
        state!("seen by another observer");
        drop(inner);
        reached(ProtocolState::PathProven);
        drop(observation);
        sometimes!(true, "after");
        reached(ProtocolState::SessionClosed);
        let expected = [
            "sometimes full false",
            "always in order true",
            "state open 0",
            "state retries 3",
            "a message of b",
            "protocol path proven",
        ];
        assert_eq!(*seen.0.borrow(), expected);
    }

    #[test]
    #[should_panic(expected = "3 credits are too many")]
    fn a_violated_always_panics_with_its_text() {
        always!(3 < 2, "{} credits are too many", 3);
    }
}
