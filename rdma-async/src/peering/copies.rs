//! What a stream has under way of messages that are copied: in send memory while it leaves enough to others, and else on the heap
//!
//! Copies are in send memory as long as half of that stays free for leases, and beyond it as much as the copies of the stream have. One
//! message of a stream may be on the heap instead. So a stream whose peer does not read keeps no other from sending: what a stream waits
//! for is its own.

use std::sync::Arc;
use std::task::{Context, Poll};

use crate::effects::Effects;
use crate::pool::{Account, Lease, Pool};
use crate::wait_queue::{SharedWaitQueue, Waiter};

/// The copies of a stream that are under way
pub(crate) struct Copies {
    /// Frames of send memory that they have.
    frames: Account,
    /// Whether one is on the heap; tasks that have to wait for memory stand in this line.
    line: SharedWaitQueue<bool>,
}

/// Memory for a copy
pub(crate) enum CopyMemory {
    Lease(Lease),
    /// On the heap
    Heap(HeapPlace),
}

/// The one place of a stream for a copy on the heap, which is free again when this is dropped
///
/// Dropping it wakes a task: not under a lock.
pub(crate) struct HeapPlace(Arc<Copies>);

impl Drop for HeapPlace {
    fn drop(&mut self) {
        self.0.line.update(|is_taken| *is_taken = false);
    }
}

impl std::fmt::Debug for HeapPlace {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("HeapPlace").finish()
    }
}

/// A task's places in line, for one copy at a time; give them back with [`Copies::leave`]
#[must_use]
pub(crate) struct CopyWaiter {
    /// In the line of the stream.
    in_line: Waiter,
    /// In that of the pool, once the task is first in line; lets leases go before.
    for_memory: Waiter,
}

impl CopyWaiter {
    pub(crate) fn new(in_line: Waiter) -> Self {
        Self { in_line, for_memory: Waiter::yielding() }
    }

    pub(crate) fn waits(&self) -> bool {
        self.in_line.waits()
    }
}

impl Copies {
    pub(super) fn new() -> Arc<Self> {
        let line = SharedWaitQueue::new("memory for a message, beside those of its stream", false, 0);
        Arc::new(Self { frames: Account::default(), line })
    }

    /// Send memory for a copy, if no task of the stream waits for some
    pub(crate) fn try_registered(&self, pool: &Pool, len: usize) -> Option<CopyMemory> {
        self.line.try_take(|_| self.registered(pool, len))
    }

    fn registered(&self, pool: &Pool, len: usize) -> Option<CopyMemory> {
        let lease = pool.try_lease_for_copy(len, self.frames.frames())?;
        Some(self.charge(lease))
    }

    fn charge(&self, mut lease: Lease) -> CopyMemory {
        lease.charge_to(&self.frames);
        CopyMemory::Lease(lease)
    }

    fn on_heap(self: &Arc<Self>, is_taken: &mut bool) -> Option<CopyMemory> {
        let was_taken = std::mem::replace(is_taken, true);
        (!was_taken).then(|| CopyMemory::Heap(HeapPlace(Arc::clone(self))))
    }

    /// Memory for a copy of `len` bytes, in turn among those of the stream
    pub(crate) fn poll_memory(
        self: &Arc<Self>,
        pool: &Pool,
        len: usize,
        waiter: &mut CopyWaiter,
        cx: &mut Context<'_>,
    ) -> Poll<CopyMemory> {
        let CopyWaiter { in_line, for_memory } = waiter;
        let mut memory = self.line.poll_take_alone(in_line, cx, |is_taken| {
            self.registered(pool, len).or_else(|| self.on_heap(is_taken))
        });
        if memory.is_pending() && self.line.is_first(in_line) {
            let lease = pool.poll_lease_for_copy(len, &self.frames, for_memory, cx);
            memory = lease.map(|lease| self.charge(lease));
        }
        if memory.is_ready() {
            self.leave(pool, waiter);
        }
        memory
    }

    /// Stops waiting
    pub(crate) fn leave(&self, pool: &Pool, waiter: &mut CopyWaiter) {
        let CopyWaiter { in_line, for_memory } = waiter;
        if in_line.waits() {
            self.line.leave_alone(in_line);
        }
        pool.leave_for_copy(for_memory);
    }

    /// Wakes all tasks that wait, because nothing can be sent any more
    pub(super) fn wake_all<T>(&self, effects: &mut Effects<T>) {
        self.line.wake_all(effects);
    }
}
