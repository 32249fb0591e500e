//! How the reactor is woken for other reasons than completions

use std::sync::Arc;
use std::task::{Wake, Waker};

use crate::sync::{AtomicBool, Mutex, Ordering};

/// Wakes the reactor's task, and says that there is more to look at than the completion queue
///
/// A reactor whose task runs although this was not woken has only completions to take in.
#[derive(Debug)]
pub(crate) struct ReactorWaker {
    is_due: AtomicBool,
    task: Mutex<Option<Waker>>,
}

impl ReactorWaker {
    /// Due: the first look is at everything
    pub(crate) fn new() -> Self {
        Self { is_due: AtomicBool::new(true), task: Mutex::new(None) }
    }

    /// Sets the waker of the reactor's task
    pub(crate) fn set(&self, waker: Waker) {
        let before = self.task.lock().replace(waker);
        // Not under the lock: a waker may wake when it is dropped.
        drop(before);
    }

    /// Whether this was woken since the last call
    pub(crate) fn take(&self) -> bool {
        self.is_due.load(Ordering::Acquire) && self.is_due.swap(false, Ordering::AcqRel)
    }
}

impl Wake for ReactorWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        // Not a plain store: one waker would hide what another wrote before it woke, and its wake-up would be lost.
        self.is_due.swap(true, Ordering::AcqRel);
        let waker = self.task.lock().clone();
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}
