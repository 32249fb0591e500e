//! The end of this process, and processes that are forked from it
//!
//! A child that is forked from a process of a fabric has a copy of everything: the rings that only one process may write to, and
//! locks that threads held which the child does not have. Every function of the ABI therefore fails in a child, before it takes a lock.

use std::sync::atomic::{AtomicBool, Ordering};

static IS_CHILD: AtomicBool = AtomicBool::new(false);

extern "C" fn note_child() {
    IS_CHILD.store(true, Ordering::Relaxed);
}

/// Refuses all verbs in processes that are forked from this one from now on
pub(crate) fn refuse_in_children() {
    // SAFETY: the handler stores to an atomic number, which is permitted after a fork.
    unsafe { libc::pthread_atfork(None, None, Some(note_child)) };
}

/// Runs `f` when the program ends; `f` does not unwind
pub(crate) fn at_exit(f: extern "C" fn()) {
    // SAFETY: the function takes and returns nothing.
    unsafe { libc::atexit(f) };
}

/// Whether this process was forked from one of a fabric
pub(crate) fn is_child() -> bool {
    IS_CHILD.load(Ordering::Relaxed)
}
