//! The primitives under the structures that threads share
//!
//! Those structures name their primitives through `crate::sync`; `tests/loom.rs` compiles the same files against loom's.

use std::sync::PoisonError;
pub(crate) use std::sync::atomic::{AtomicBool, Ordering};

/// A mutex that ignores poison
///
/// No code of the application runs while one is held: neither wakers nor destructors nor log subscribers, see
/// [`Effects`](crate::effects::Effects).
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
