//! The primitives under the structures that threads share
//!
//! The modules that loom checks name their primitives through `crate::sync`; `tests/loom.rs` compiles the same files against loom's.

use std::sync::PoisonError;

pub(crate) use std::hint::spin_loop;
pub(crate) use std::sync::{Arc, MutexGuard, atomic};
pub(crate) use std::thread::sleep;

/// A mutex that does not care whether a thread panicked while it held the lock
#[derive(Debug)]
pub(crate) struct Mutex<T>(std::sync::Mutex<T>);

impl<T> Mutex<T> {
    pub(crate) fn new(value: T) -> Self {
        Self(std::sync::Mutex::new(value))
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The condition variable of a [`Mutex`]
#[derive(Debug)]
pub(crate) struct Condvar(std::sync::Condvar);

impl Condvar {
    pub(crate) fn new() -> Self {
        Self(std::sync::Condvar::new())
    }

    pub(crate) fn wait<'a, T>(&self, guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
        self.0.wait(guard).unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn notify_one(&self) {
        self.0.notify_one();
    }
}

/// A cell that is accessed through raw pointers only, as loom's
#[derive(Debug)]
pub(crate) struct UnsafeCell<T>(std::cell::UnsafeCell<T>);

impl<T> UnsafeCell<T> {
    pub(crate) const fn new(value: T) -> Self {
        Self(std::cell::UnsafeCell::new(value))
    }

    #[inline]
    pub(crate) fn with_mut<R>(&self, f: impl FnOnce(*mut T) -> R) -> R {
        f(self.0.get())
    }
}

/// Starts a thread that is not waited for
#[expect(clippy::disallowed_methods, reason = "a completion queue without events needs a timer of its own")]
pub(crate) fn spawn(work: impl FnOnce() + Send + 'static) {
    std::thread::spawn(work);
}
