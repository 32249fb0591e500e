//! The primitives under the shared structures of this crate
//!
//! The modules that loom checks name their primitives through `crate::sync`; `tests/loom.rs` compiles the same files
//! against loom's.

use std::sync::PoisonError;

/// A mutex that does not care whether a thread panicked while it held the lock
///
/// Nothing of the application runs while one is held: neither wakers, see [`Later`](crate::later::Later), nor destructors.
#[derive(Debug, Default)]
pub(crate) struct Mutex<T>(std::sync::Mutex<T>);

pub(crate) type MutexGuard<'a, T> = std::sync::MutexGuard<'a, T>;

impl<T> Mutex<T> {
    pub(crate) const fn new(value: T) -> Self {
        Self(std::sync::Mutex::new(value))
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
