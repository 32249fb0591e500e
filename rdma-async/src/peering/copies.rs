//! Messages that are copied to be sent: in send memory while it leaves enough to others, and else on the heap
//!
//! Copies are in one half of send memory, as long as there stays as much free as the other copies of the stream have. One message of each
//! stream may be on the heap instead. A stream therefore waits only for its own earlier copies, and never for those of a stream whose peer
//! does not read.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;
use std::task::{Context, Poll};

use crate::effects::Effects;
use crate::pool::{Account, Lease, Pool};
use crate::wait_queue::{SharedWaitQueue, Waiter};

/// The copied messages of one stream that have not been sent
pub(crate) struct Copies {
    /// Frames of send memory that they have.
    frames: Account,
    /// Whether one is on the heap, for tasks that wait for memory.
    queue: SharedWaitQueue<bool>,
}

/// A message that the node has copied, or will copy, for the application
pub(crate) enum CopiedMessage {
    Lease(Lease),
    Heap(Vec<u8>, #[expect(dead_code, reason = "it is free when this is dropped")] HeapSlot),
}

impl CopiedMessage {
    /// Appends `bytes` to the message, inside the length for which its memory is
    pub(crate) fn extend_from_slice(&mut self, bytes: &[u8]) {
        match self {
            Self::Lease(lease) => lease.extend_from_slice(bytes),
            Self::Heap(written, _) => written.extend_from_slice(bytes),
        }
    }
}

impl Deref for CopiedMessage {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Self::Lease(lease) => lease,
            Self::Heap(bytes, _) => bytes,
        }
    }
}

impl fmt::Debug for CopiedMessage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let is_on_heap = matches!(self, Self::Heap(..));
        f.debug_struct("CopiedMessage").field("len", &self.len()).field("is_on_heap", &is_on_heap).finish()
    }
}

/// The right of a stream to one copy on the heap, which is free again when this is dropped
///
/// Dropping it wakes a task: not under a lock.
pub(crate) struct HeapSlot(Arc<Copies>);

impl Drop for HeapSlot {
    fn drop(&mut self) {
        self.0.queue.update(|is_taken| *is_taken = false);
    }
}

/// Where a task waits for memory, for one copy at a time; give it back with [`Copies::leave`]
#[must_use]
pub(crate) struct CopyWaiter {
    waiter: Waiter,
    /// In the queue of the pool, once the task is the first of the stream; lets leases go before.
    pool_waiter: Waiter,
}

impl CopyWaiter {
    pub(crate) fn new(waiter: Waiter) -> Self {
        Self { waiter, pool_waiter: Waiter::yielding() }
    }

    pub(crate) fn waits(&self) -> bool {
        self.waiter.waits()
    }
}

impl Copies {
    pub(super) fn new() -> Arc<Self> {
        let queue = SharedWaitQueue::new("memory for a message, beside those of its stream", false, 0);
        Arc::new(Self { frames: Account::default(), queue })
    }

    /// Send memory for a copy, if no task of the stream waits for some
    pub(crate) fn try_registered(&self, pool: &Pool, len: usize) -> Option<CopiedMessage> {
        self.queue.try_take(|_| self.registered(pool, len))
    }

    fn registered(&self, pool: &Pool, len: usize) -> Option<CopiedMessage> {
        let lease = pool.try_lease_for_copy(len, self.frames.frames())?;
        Some(self.charge(lease))
    }

    fn charge(&self, mut lease: Lease) -> CopiedMessage {
        lease.charge_to(&self.frames);
        CopiedMessage::Lease(lease)
    }

    fn on_heap(self: &Arc<Self>, len: usize, is_taken: &mut bool) -> Option<CopiedMessage> {
        let was_taken = std::mem::replace(is_taken, true);
        (!was_taken).then(|| CopiedMessage::Heap(Vec::with_capacity(len), HeapSlot(Arc::clone(self))))
    }

    /// Memory for a copy of `len` bytes, in turn among those of the stream
    pub(crate) fn poll_memory(
        self: &Arc<Self>,
        pool: &Pool,
        len: usize,
        waiter: &mut CopyWaiter,
        cx: &mut Context<'_>,
    ) -> Poll<CopiedMessage> {
        let CopyWaiter { waiter: own, pool_waiter } = waiter;
        let mut memory = self.queue.poll_take_alone(own, cx, |is_taken| {
            self.registered(pool, len).or_else(|| self.on_heap(len, is_taken))
        });
        if memory.is_pending() && self.queue.is_first(own) {
            let lease = pool.poll_lease_for_copy(len, &self.frames, pool_waiter, cx);
            memory = lease.map(|lease| self.charge(lease));
        }
        if memory.is_ready() {
            self.leave(pool, waiter);
        }
        memory
    }

    /// Stops waiting
    pub(crate) fn leave(&self, pool: &Pool, waiter: &mut CopyWaiter) {
        let CopyWaiter { waiter, pool_waiter } = waiter;
        self.queue.leave_alone(waiter);
        pool.leave_for_copy(pool_waiter);
    }

    /// How many tasks wait for memory
    pub(crate) fn waiting(&self) -> usize {
        self.queue.waiting()
    }

    /// Wakes all tasks that wait, because nothing can be sent any more
    pub(super) fn wake_all<T>(&self, effects: &mut Effects<T>) {
        self.queue.wake_all(effects);
    }
}
