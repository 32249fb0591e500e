//! A lock for a few dozen instructions
#![allow(unsafe_code, reason = "shares a value between threads")]

use crate::sync::atomic::{AtomicBool, Ordering};
use crate::sync::{UnsafeCell, spin_loop};

/// A value that one thread at a time uses; the others spin
///
/// Cheaper than a mutex where a lock is held for tens of nanoseconds and rarely contended. Not reentrant: `with` inside of `with` never
/// returns.
#[derive(Debug)]
pub(crate) struct SpinLock<T> {
    is_held: AtomicBool,
    value: UnsafeCell<T>,
}

// SAFETY: `value` is accessed only by the thread that has set `is_held`, so sharing the lock only moves the value between threads.
unsafe impl<T: Send> Sync for SpinLock<T> {}

impl<T> SpinLock<T> {
    pub(crate) fn new(value: T) -> Self {
        Self { is_held: AtomicBool::new(false), value: UnsafeCell::new(value) }
    }

    /// Runs `f` on the value while no other thread uses it
    #[inline]
    pub(crate) fn with<R>(&self, f: impl FnOnce(&mut T) -> R) -> R {
        while self.is_held.compare_exchange_weak(false, true, Ordering::Acquire, Ordering::Relaxed).is_err() {
            spin_loop();
        }
        let result = self.value.with_mut(|value| {
            // SAFETY: this thread has set `is_held`, and no reference outlives the call.
            f(unsafe { &mut *value })
        });
        self.is_held.store(false, Ordering::Release);
        result
    }
}
