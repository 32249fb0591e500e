//! The primitives under the structures that threads share
//!
//! The modules that loom checks name their primitives through `crate::sync`; `tests/loom.rs` compiles the same files against loom's.

use std::sync::PoisonError;
pub(crate) use std::sync::{Arc, Condvar, Mutex, MutexGuard, atomic};
use std::time::Duration;

/// Starts a thread that is not waited for
#[expect(clippy::disallowed_methods, reason = "a completion queue without events needs a timer of its own")]
pub(crate) fn spawn(work: impl FnOnce() + Send + 'static) {
    std::thread::spawn(work);
}

/// Waits until `changed` is notified or `time` has passed; returns whether it has passed
pub(crate) fn wait_for<'a, T>(
    _: &'a Mutex<T>,
    changed: &Condvar,
    guard: MutexGuard<'a, T>,
    time: Duration,
) -> (MutexGuard<'a, T>, bool) {
    let (guard, ended) = changed.wait_timeout(guard, time).unwrap_or_else(PoisonError::into_inner);
    (guard, ended.timed_out())
}
