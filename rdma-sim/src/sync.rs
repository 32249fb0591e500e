//! Locks and wakers of programs that may panic

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::Waker;

/// Stores `waker`, and returns the one that it replaces, to be dropped without a lock: dropping a waker may run any code
pub(crate) fn replace(stored: &mut Option<Waker>, waker: &Waker) -> Option<Waker> {
    match stored {
        Some(same) if same.will_wake(waker) => None,
        stored => stored.replace(waker.clone()),
    }
}

/// Locks `mutex`, also after a panic
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A panic of the program under test must not be hidden by a second one here.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
