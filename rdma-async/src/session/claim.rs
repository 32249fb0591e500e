//! A place in the send queue of a stream, before there is a message for it

use std::sync::Arc;
use std::task::{Context, Poll, ready};

use rdma_core::Device;

use super::handle::StreamHandle;
use crate::error::SendError;
use crate::peering::body::Body;
use crate::send_failed::SendFailed;
use crate::wait_queue::Waiter;

/// Claims places for messages, one at a time, for an object that a task may stop polling while it waits
pub(super) struct Claim<D: Device> {
    stream: Arc<StreamHandle<D>>,
    waiter: Waiter,
    slot: Option<u32>,
}

impl<D: Device> Claim<D> {
    pub(super) fn new(stream: &Arc<StreamHandle<D>>) -> Self {
        Self { stream: Arc::clone(stream), waiter: Waiter::yielding(), slot: None }
    }

    /// Claims a place, unless one is claimed, when one is free and this task is first in line
    pub(super) fn poll_claim(&mut self, cx: &Context<'_>) -> Poll<Result<(), SendError>> {
        let Self { stream, waiter, slot } = self;
        // A place that was claimed before the end of the stream is of no use any more.
        if slot.is_some() {
            return Poll::Ready(stream.with(|stream, _| stream.refusal()).map_or(Ok(()), Err));
        }
        let claimed = stream.with(|stream, effects| stream.ops.poll_claim(waiter, cx, effects));
        *slot = Some(ready!(claimed)?);
        Poll::Ready(Ok(()))
    }

    /// Queues a message in the place that was claimed
    ///
    /// # Panics
    ///
    /// If there is none.
    pub(super) fn send(&mut self, message: Body) -> Result<(), SendFailed> {
        let slot = self.slot.take().expect("a place was claimed before");
        self.stream.peering.send_claimed(self.stream.key, slot, message)
    }
}

impl<D: Device> Drop for Claim<D> {
    fn drop(&mut self) {
        let Self { stream, waiter, slot } = self;
        stream.with(|stream, effects| {
            stream.ops.leave(waiter, effects);
            if let Some(slot) = slot.take() {
                stream.ops.release(slot, effects);
            }
        });
    }
}
