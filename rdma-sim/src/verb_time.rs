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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Scheduler, Sim};

    /// Catches verbs of set-up and teardown that no schedule delays: what others do while a program is in one would not be explored.
    #[test]
    fn verbs_of_set_up_and_teardown_take_time_in_some_schedules() {
        let delays = |scheduler| {
            let mut delays = [0; 2];
            for seed in 0..40 {
                let run = Sim::new().scheduler(scheduler).seed(seed).run(async |net| {
                    let (device, opened) = measure(|| net.open("a", "rdma_en2").unwrap());
                    [opened, measure(|| drop(device)).1]
                });
                for (count, ns) in delays.iter_mut().zip(run.value) {
                    *count += u32::from(ns > 0);
                }
            }
            delays
        };
        assert_eq!(delays(Scheduler::Fifo), [0; 2]);
        assert!(delays(Scheduler::Random).iter().all(|count| (5..35).contains(count)));
    }
}
