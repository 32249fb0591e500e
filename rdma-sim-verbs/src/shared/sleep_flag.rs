//! The handshake between a process that sleeps and those that send to it
//!
//! A process sets the flag, then checks its rings again before it waits; a sender publishes its record, then tests the flag. One of
//! them sees the other, so that no record waits for a sleeper without a wake-up.

use super::sync::{AtomicU32, Ordering, fence};

/// Whether a process sleeps, in memory that all processes share
#[derive(Debug, Default)]
#[repr(transparent)]
pub(crate) struct SleepFlag(AtomicU32);

impl SleepFlag {
    /// Runs `wait`, unless `has_arrivals` is true after senders could see that this process sleeps
    pub(crate) fn sleep_unless(&self, has_arrivals: impl FnOnce() -> bool, wait: impl FnOnce()) {
        // Swaps, not stores: each reads the change before it, so that all changes have one order in loom's model, too.
        self.0.swap(1, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        if !has_arrivals() {
            wait();
        }
        self.clear();
    }

    /// Clears the flag: this process does not sleep
    pub(crate) fn clear(&self) {
        self.0.swap(0, Ordering::SeqCst);
    }

    /// After a record was published: whether the process sleeps and the caller has to wake it
    pub(crate) fn must_wake(&self) -> bool {
        fence(Ordering::SeqCst);
        self.must_wake_own()
    }

    /// Whether another thread of the caller's own process sleeps and the caller has to wake it
    pub(crate) fn must_wake_own(&self) -> bool {
        self.0.load(Ordering::Relaxed) == 1 && self.0.swap(0, Ordering::SeqCst) == 1
    }
}
