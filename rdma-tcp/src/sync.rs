//! Locks, wakers, time and random numbers

use std::hash::{BuildHasher as _, RandomState};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::Waker;
use std::time::Instant;

/// Locks `mutex`, also after a panic of another thread: the panic of the I/O thread is reported by the device itself
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Wakes a task; the caller holds no lock. A panic of the waker is not one of the device
pub(crate) fn wake(waker: Waker) {
    if catch_unwind(AssertUnwindSafe(|| waker.wake())).is_err() {
        tracing::error!("a waker has panicked");
    }
}

/// The time of the I/O thread, which has no runtime to ask
#[expect(
    clippy::disallowed_methods,
    reason = "the I/O thread bounds handshakes by wall time, outside of any runtime"
)]
pub(crate) fn now() -> Instant {
    Instant::now()
}

/// A number that no peer can guess, different each time
pub(crate) fn random() -> u64 {
    // Keyed with the random keys that the standard library draws from the system for its hash maps.
    RandomState::new().hash_one(now())
}
