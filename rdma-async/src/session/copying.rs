//! Memory for messages that are copied: send memory while it leaves enough to others, and else the heap
//!
//! What a stream has under way is in send memory as long as half of that stays free for leases, and beyond it as much as the copies of the
//! stream have. One message of a stream may be on the heap instead. So a stream whose peer does not read keeps no other from sending: the
//! memory for what it sends next is its own.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use rdma_core::Device;

use super::futures::Closed;
use super::handle::StreamHandle;
use crate::error::SendError;
use crate::peering::body::{Body, HeapPlace};
use crate::pool::{Account, Lease, Pool};
use crate::wait_queue::{SharedWaitQueue, Waiter};

/// The copies of a stream that are under way
pub(super) struct Copies {
    /// Frames of send memory that they have.
    frames: Account,
    /// Whether one is on the heap; tasks that have to wait for memory stand in this line.
    line: Arc<SharedWaitQueue<bool>>,
}

impl Copies {
    pub(super) fn new() -> Self {
        let line = SharedWaitQueue::new("memory for a message, beside those of its stream", false, 0);
        Self { frames: Account::default(), line: Arc::new(line) }
    }

    /// Memory for a copy, if no task of the stream waits for some
    fn try_registered(&self, pool: &Pool, len: usize) -> Option<Blank> {
        self.line.try_take(|_| self.registered(pool, len))
    }

    fn registered(&self, pool: &Pool, len: usize) -> Option<Blank> {
        let lease = pool.try_lease_for_copy(len, self.frames.frames())?;
        Some(self.charge(lease))
    }

    fn charge(&self, mut lease: Lease) -> Blank {
        lease.charge_to(&self.frames);
        Blank::Lease(lease)
    }

    fn on_heap(&self, len: usize, is_taken: &mut bool) -> Option<Blank> {
        let was_taken = std::mem::replace(is_taken, true);
        (!was_taken).then(|| Blank::Heap(Vec::with_capacity(len), HeapPlace::new(&self.line)))
    }
}

/// Memory for a copy, to be written
pub(super) enum Blank {
    Lease(Lease),
    Heap(Vec<u8>, HeapPlace),
}

impl Blank {
    pub(super) fn extend_from_slice(&mut self, bytes: &[u8]) {
        match self {
            Self::Lease(lease) => lease.extend_from_slice(bytes),
            Self::Heap(written, _) => written.extend_from_slice(bytes),
        }
    }

    /// The message that was written
    pub(super) fn into_body(self) -> Body {
        match self {
            Self::Lease(lease) => Body::Lease(lease),
            Self::Heap(written, place) => Body::Copy(written.into(), place),
        }
    }
}

/// Waits for memory for a copy, one at a time
pub(super) struct Copying<D: Device> {
    stream: Arc<StreamHandle<D>>,
    /// In the line of the stream.
    in_line: Waiter,
    /// In that of the pool, once this is first in line; lets leases go before.
    for_memory: Waiter,
    /// Wakes the task when the session ends, while it waits.
    closed: Option<Closed<D>>,
}

impl<D: Device> Copying<D> {
    pub(super) fn new(stream: &Arc<StreamHandle<D>>) -> Self {
        Self::waiting_as(stream, Waiter::default())
    }

    /// For an object that a task may stop polling while it waits
    #[cfg(feature = "tokio")]
    pub(super) fn yielding(stream: &Arc<StreamHandle<D>>) -> Self {
        Self::waiting_as(stream, Waiter::yielding())
    }

    fn waiting_as(stream: &Arc<StreamHandle<D>>, in_line: Waiter) -> Self {
        Self { stream: Arc::clone(stream), in_line, for_memory: Waiter::yielding(), closed: None }
    }

    /// Memory for `len` bytes; fails when nothing can be sent any more, or if the peer does not take so many
    pub(super) fn poll_blank(&mut self, len: usize, cx: &mut Context<'_>) -> Poll<Result<Blank, SendError>> {
        let Self { stream, in_line, for_memory, closed } = self;
        let (copies, pool) = (&stream.copies, &stream.peering.pool);
        if !in_line.waits() {
            if let Some(blank) = copies.try_registered(pool, len) {
                return Poll::Ready(Ok(blank));
            }
            let max = stream.max_message();
            if len > max {
                return Poll::Ready(Err(SendError::TooLong { len, max }));
            }
        }
        let blank = copies.line.poll_take_alone(in_line, cx, |is_taken| {
            copies.registered(pool, len).or_else(|| copies.on_heap(len, is_taken))
        });
        if blank.is_ready() {
            self.stop_waiting();
            return blank.map(Ok);
        }
        if copies.line.is_first(in_line)
            && let Poll::Ready(lease) = pool.poll_lease_for_copy(len, &copies.frames, for_memory, cx)
        {
            let blank = copies.charge(lease);
            self.stop_waiting();
            return Poll::Ready(Ok(blank));
        }
        // Polled only so that the end of the session wakes this task: the check returns the reason.
        let closed = closed.get_or_insert_with(|| Closed::new(stream.stream_ref()));
        let _ = Pin::new(closed).poll(cx);
        match stream.with(|stream, _| stream.refusal()) {
            Some(error) => {
                self.stop_waiting();
                Poll::Ready(Err(error))
            }
            None => Poll::Pending,
        }
    }

    fn stop_waiting(&mut self) {
        let Self { stream, in_line, for_memory, closed } = self;
        if in_line.waits() {
            stream.copies.line.leave_alone(in_line);
        }
        stream.peering.pool.leave_for_copy(for_memory);
        *closed = None;
    }
}

impl<D: Device> Drop for Copying<D> {
    fn drop(&mut self) {
        self.stop_waiting();
    }
}
