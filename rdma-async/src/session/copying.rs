//! Memory for messages that are copied

use std::sync::Arc;
use std::task::{Context, Poll};

use rdma_core::Device;

use super::handle::StreamHandle;
use crate::error::SendError;
use crate::peering::body::Body;
use crate::peering::copies::{CopyMemory, CopyWaiter, HeapPlace};
use crate::pool::Lease;
use crate::wait_queue::Waiter;

/// A copy that is being written
pub(super) enum Blank {
    Lease(Lease),
    Heap(Vec<u8>, HeapPlace),
}

impl Blank {
    fn new(memory: CopyMemory, len: usize) -> Self {
        match memory {
            CopyMemory::Lease(lease) => Self::Lease(lease),
            CopyMemory::Heap(place) => Self::Heap(Vec::with_capacity(len), place),
        }
    }

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
    waiter: CopyWaiter,
}

impl<D: Device> Copying<D> {
    pub(super) fn new(stream: &Arc<StreamHandle<D>>) -> Self {
        Self { stream: Arc::clone(stream), waiter: CopyWaiter::new(Waiter::default()) }
    }

    /// For an object that a task may stop polling while it waits
    #[cfg(feature = "tokio")]
    pub(super) fn yielding(stream: &Arc<StreamHandle<D>>) -> Self {
        Self { stream: Arc::clone(stream), waiter: CopyWaiter::new(Waiter::yielding()) }
    }

    /// Memory for `len` bytes; fails when nothing can be sent any more, or if the peer does not take so many
    pub(super) fn poll_blank(&mut self, len: usize, cx: &mut Context<'_>) -> Poll<Result<Blank, SendError>> {
        let Self { stream, waiter } = self;
        let (copies, pool) = (&stream.copies, &stream.peering.pool);
        if !waiter.waits() {
            if let Some(memory) = copies.try_registered(pool, len) {
                return Poll::Ready(Ok(Blank::new(memory, len)));
            }
            let max = stream.max_message();
            if len > max {
                return Poll::Ready(Err(SendError::TooLong { len, max }));
            }
        }
        if let Poll::Ready(memory) = copies.poll_memory(pool, len, waiter, cx) {
            return Poll::Ready(Ok(Blank::new(memory, len)));
        }
        match stream.with(|stream, _| stream.refusal()) {
            Some(error) => {
                copies.leave(pool, waiter);
                Poll::Ready(Err(error))
            }
            None => Poll::Pending,
        }
    }
}

impl<D: Device> Drop for Copying<D> {
    fn drop(&mut self) {
        let Self { stream, waiter } = self;
        stream.copies.leave(&stream.peering.pool, waiter);
    }
}
