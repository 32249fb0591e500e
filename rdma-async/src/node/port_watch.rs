//! The changes of a node that its control tasks wait for

use std::sync::Arc;
use std::task::{Context, Poll, Wake};

use crate::wait_queue::{SharedWaitQueue, Waiter};

/// Wakes the control tasks of a node when one of its ports may have changed, or the node is closed
pub(super) struct PortWatch(SharedWaitQueue<u64>);

/// How much of a [`PortWatch`] a task has seen
#[derive(Default)]
pub(super) struct Watcher {
    seen: u64,
    waiter: Waiter,
}

impl PortWatch {
    pub(super) fn new() -> Self {
        Self(SharedWaitQueue::for_all("its ports to change", 0, 4))
    }

    /// Something has changed
    pub(super) fn changed(&self) {
        self.0.update(|changes| *changes += 1);
    }

    /// Waits for a change since the last one that was seen
    pub(super) fn poll_changed(&self, watcher: &mut Watcher, cx: &Context<'_>) -> Poll<()> {
        let Watcher { seen, waiter } = watcher;
        self.0.poll_take_alone(waiter, cx, |changes| {
            let before = std::mem::replace(seen, *changes);
            (before < *changes).then_some(())
        })
    }

    /// The task waits no longer
    pub(super) fn leave(&self, watcher: &mut Watcher) {
        self.0.leave_alone(&mut watcher.waiter);
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
