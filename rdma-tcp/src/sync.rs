//! The clock and the locks of the device

use std::hash::{BuildHasher as _, RandomState};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// Locks `mutex`, also after a panic of another thread: the panic of the I/O thread is reported by the device itself
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
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
