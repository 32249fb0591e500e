//! Waits for memory for messages that are copied

use std::sync::Arc;
use std::task::{Context, Poll};

use rdma_core::Device;

use super::handle::StreamHandle;
use crate::error::SendError;
use crate::peering::copies::{CopiedMessage, CopyWaiter};
use crate::wait_queue::Waiter;

/// Allocates memory for copies of a stream, for one at a time
pub(super) struct CopyAllocator<D: Device> {
    stream: Arc<StreamHandle<D>>,
    waiter: CopyWaiter,
}

impl<D: Device> CopyAllocator<D> {
    pub(super) fn new(stream: &Arc<StreamHandle<D>>) -> Self {
        Self { stream: Arc::clone(stream), waiter: CopyWaiter::new(Waiter::default()) }
    }

    /// For an object that a task may stop polling while it waits
    #[cfg(feature = "tokio")]
    pub(super) fn yielding(stream: &Arc<StreamHandle<D>>) -> Self {
        Self { stream: Arc::clone(stream), waiter: CopyWaiter::new(Waiter::yielding()) }
    }

    /// An empty message with memory for `len` bytes; fails when nothing can be sent any more, or if the peer does not take so many
    pub(super) fn poll_alloc(
        &mut self,
        len: usize,
        cx: &mut Context<'_>,
    ) -> Poll<Result<CopiedMessage, SendError>> {
        let Self { stream, waiter } = self;
        let (copies, pool) = (&stream.copies, &stream.peering.pool);
        if !waiter.waits() {
            if let Some(message) = copies.try_registered(pool, len) {
                return Poll::Ready(Ok(message));
            }
            let max = stream.max_message();
            if len > max {
                return Poll::Ready(Err(SendError::TooLong { len, max }));
            }
        }
        if let Poll::Ready(message) = copies.poll_memory(pool, len, waiter, cx) {
            return Poll::Ready(Ok(message));
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

impl<D: Device> Drop for CopyAllocator<D> {
    fn drop(&mut self) {
        let Self { stream, waiter } = self;
        stream.copies.leave(&stream.peering.pool, waiter);
    }
}
