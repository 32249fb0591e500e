//! The primitives under the shared structures of this crate
//!
//! The modules that loom checks name their primitives through `crate::sync`; `tests/loom.rs` compiles the same files
//! against loom's.

use std::sync::PoisonError;

/// A mutex that does not care whether a thread panicked while it held the lock
///
/// No code of this crate panics while it holds one; a panic of the application inside a waker must not take other
/// connections along.
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
