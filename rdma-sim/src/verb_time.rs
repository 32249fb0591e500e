//! How long the verbs take that a thread calls
//!
//! The fabric is locked and asked for a moment only, so a verb returns at once in real time, whatever it takes in virtual time. What it takes
//! is noted for the thread that has called it. The executor, or the driver, takes the note when the call has returned, and lets the
//! virtual time pass before the program goes on.

use std::cell::Cell;

/// Stands for a verb that does not return
pub(crate) const NEVER: u64 = u64::MAX;

thread_local! {
    static TAKEN_NS: Cell<u64> = const { Cell::new(0) };
}

/// The calling thread has called a verb that takes so many nanoseconds
pub(crate) fn add(ns: u64) {
    TAKEN_NS.set(TAKEN_NS.get().saturating_add(ns));
}

/// How long the verbs take together that this thread has called since the last call; [`NEVER`] if one of them does not return
#[inline]
pub(crate) fn take() -> u64 {
    TAKEN_NS.replace(0)
}

/// How long the verbs take together that this thread has called since the last [`take`], so far as they return
#[inline]
pub(crate) fn so_far() -> u64 {
    Some(TAKEN_NS.get()).filter(|ns| *ns < NEVER).unwrap_or(0)
}

/// Whether this thread is in a verb that does not return: nothing that it calls until the next [`take`] happens
#[inline]
pub(crate) fn is_stuck() -> bool {
    TAKEN_NS.get() == NEVER
}

/// Runs `call` and returns how long the verbs take that it calls, apart from those that were called before
pub(crate) fn measure<T>(call: impl FnOnce() -> T) -> (T, u64) {
    let before = take();
    let result = call();
    let ns = TAKEN_NS.replace(before);
    (result, ns)
}
