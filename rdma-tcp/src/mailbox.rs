//! Notices of other threads to the I/O thread

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use mio::Waker;

use crate::endpoint::Endpoint;
use crate::sync::lock;

/// Notices to the I/O thread
pub(crate) struct Mailbox {
    notices: Mutex<Notices>,
    /// Whether the I/O thread was woken, and has not looked since.
    is_woken: AtomicBool,
    waker: Waker,
}

/// Notices since the I/O thread last took them
#[derive(Default)]
pub(crate) struct Notices {
    /// Queue pairs with new sends
    pub(crate) posted: Vec<Arc<Endpoint>>,
    /// Queue pairs with a new state
    pub(crate) changed: Vec<Arc<Endpoint>>,
    /// The device is gone
    pub(crate) is_closed: bool,
}

impl Mailbox {
    pub(crate) fn new(waker: Waker) -> Self {
        Self { notices: Mutex::default(), is_woken: AtomicBool::new(false), waker }
    }

    /// A send was posted
    pub(crate) fn posted(&self, endpoint: &Arc<Endpoint>) {
        if !endpoint.is_queued.swap(true, Ordering::AcqRel) {
            lock(&self.notices).posted.push(Arc::clone(endpoint));
            self.wake();
        }
    }

    /// The state of a queue pair was changed
    pub(crate) fn changed(&self, endpoint: &Arc<Endpoint>) {
        lock(&self.notices).changed.push(Arc::clone(endpoint));
        self.wake();
    }

    /// The device is gone
    pub(crate) fn close(&self) {
        lock(&self.notices).is_closed = true;
        self.wake();
    }

    fn wake(&self) {
        if !self.is_woken.swap(true, Ordering::AcqRel)
            && let Err(error) = self.waker.wake()
        {
            log_error(&error);
        }
    }

    /// Moves the notices into `notices`, which is empty
    pub(crate) fn take(&self, notices: &mut Notices) {
        // Before the look: a notice that comes later wakes the thread again.
        if self.is_woken.swap(false, Ordering::AcqRel) {
            std::mem::swap(&mut *lock(&self.notices), notices);
        }
    }
}

#[cold]
fn log_error(error: &io::Error) {
    tracing::error!(%error, "the I/O thread cannot be woken");
}
