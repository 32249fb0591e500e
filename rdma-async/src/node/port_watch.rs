//! The changes of a node that its control tasks wait for

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake};

use crate::wait_queue::{SharedWaitQueue, Waiter};

/// Wakes the control tasks of a node when one of its ports may have changed, or the node is closed
pub(super) struct PortWatch {
    /// How many changes there were
    changes: SharedWaitQueue<u64>,
    watchers: AtomicUsize,
}

/// How much of a [`PortWatch`] a task has seen, until it [leaves](PortWatch::leave)
pub(super) struct Watcher {
    seen: u64,
    waiter: Waiter,
}

impl PortWatch {
    pub(super) fn new() -> Self {
        let changes = SharedWaitQueue::for_all("its ports to change", 0, 4);
        Self { changes, watchers: AtomicUsize::new(0) }
    }

    /// A task that has seen no change
    pub(super) fn watcher(&self) -> Watcher {
        self.watchers.fetch_add(1, Ordering::Relaxed);
        Watcher { seen: 0, waiter: Waiter::default() }
    }

    /// Whether a change would concern a task
    pub(super) fn has_watchers(&self) -> bool {
        self.watchers.load(Ordering::Relaxed) > 0
    }

    /// Something has changed
    pub(super) fn changed(&self) {
        self.changes.update(|changes| *changes += 1);
    }

    /// Waits for a change since the last one that was seen
    pub(super) fn poll_changed(&self, watcher: &mut Watcher, cx: &Context<'_>) -> Poll<()> {
        let Watcher { seen, waiter } = watcher;
        self.changes.poll_take_alone(waiter, cx, |changes| {
            let before = std::mem::replace(seen, *changes);
            (before < *changes).then_some(())
        })
    }

    /// The task waits no longer
    pub(super) fn leave(&self, watcher: &mut Watcher) {
        self.watchers.fetch_sub(1, Ordering::Relaxed);
        self.changes.leave_alone(&mut watcher.waiter);
    }
}

impl Wake for PortWatch {
    fn wake(self: Arc<Self>) {
        self.changed();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.changed();
    }
}
