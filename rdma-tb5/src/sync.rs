//! The primitives under the structures that threads share
//!
//! The modules that loom checks name their primitives through `crate::sync`; `tests/loom.rs` compiles the same files against loom's.

pub(crate) use std::sync::{Arc, Condvar, Mutex, MutexGuard, atomic};
pub(crate) use std::thread::sleep;

/// Starts a thread that is not waited for
#[expect(clippy::disallowed_methods, reason = "a completion queue without events needs a timer of its own")]
pub(crate) fn spawn(work: impl FnOnce() + Send + 'static) {
    std::thread::spawn(work);
}
