//! Completion queues behind the traits

use std::fmt;
use std::task::{Context, Poll};

use rdma_core::{Completion, CompletionQueue, Error, QpInit};

use crate::polled_cq::PolledCq;
use crate::queue_pair::VerbsQueuePair;
use crate::shared::DeviceShared;
use crate::sync::Arc;

/// A completion queue of a [`VerbsDevice`](crate::VerbsDevice)
pub struct VerbsCompletionQueue {
    cq: Arc<PolledCq>,
}

impl VerbsCompletionQueue {
    pub(crate) fn new(device: Arc<DeviceShared>, depth: u32) -> Result<Self, Error> {
        Ok(Self { cq: Arc::new(PolledCq::new(device, depth)?) })
    }
}

impl CompletionQueue for VerbsCompletionQueue {
    type Qp = VerbsQueuePair;

    fn create_qp(&self, init: &QpInit) -> Result<VerbsQueuePair, Error> {
        VerbsQueuePair::new(&self.cq, init)
    }

    #[inline]
    fn poll(&self, out: &mut [Completion]) -> Result<usize, Error> {
        self.cq.poll(out)
    }

    fn poll_completions(&self, cx: &mut Context<'_>, out: &mut [Completion]) -> Poll<Result<usize, Error>> {
        let n = self.cq.poll(out)?;
        if n == out.len() && n > 0 {
            self.cq.backoff.reset();
            return Poll::Ready(Ok(n));
        }
        if self.cq.backoff.wait(cx, n > 0) {
            self.cq.device.port_watch.suspect();
        }
        if n == 0 { Poll::Pending } else { Poll::Ready(Ok(n)) }
    }

    fn rest(&self) {
        self.cq.backoff.rest();
    }
}

impl fmt::Debug for VerbsCompletionQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("VerbsCompletionQueue").finish_non_exhaustive()
    }
}
