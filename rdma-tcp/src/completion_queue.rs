//! Completion queues behind the traits

use std::fmt;
use std::sync::Arc;
use std::task::{Context, Poll};

use rdma_core::{Completion, CompletionQueue, Error, Invalid, QpInit, Verb};

use crate::completions::Completions;
use crate::handle::Handle;
use crate::queue_pair::TcpQueuePair;

/// A completion queue of a [`TcpDevice`](crate::TcpDevice)
pub struct TcpCompletionQueue {
    device: Arc<Handle>,
    completions: Arc<Completions>,
}

impl TcpCompletionQueue {
    pub(crate) fn new(device: &Arc<Handle>, depth: u32) -> Result<Self, Error> {
        let shared = &device.shared;
        let fail = |cause| Err(Error::new(Verb::CreateCq, cause));
        if let Err(cause) = shared.check() {
            return fail(cause);
        }
        let max = shared.caps.max_cqe;
        if depth == 0 || depth > max {
            return fail(Invalid::CqDepth { depth, max }.into());
        }
        match shared.add_completion_queue(depth) {
            Ok(completions) => Ok(Self { device: Arc::clone(device), completions }),
            Err(cause) => fail(cause),
        }
    }

    fn check(&self) -> Result<(), Error> {
        self.device.shared.check().map_err(|cause| Error::new(Verb::PollCq, cause))
    }
}

impl CompletionQueue for TcpCompletionQueue {
    type Qp = TcpQueuePair;

    fn create_qp(&self, init: &QpInit) -> Result<TcpQueuePair, Error> {
        TcpQueuePair::new(&self.device, &self.completions, init)
    }

    fn poll(&self, out: &mut [Completion]) -> Result<usize, Error> {
        let n = self.completions.poll(out)?;
        // Requests that a vanished device has flushed are reported first.
        if n == 0 { self.check().map(|()| 0) } else { Ok(n) }
    }

    fn poll_completions(&self, cx: &mut Context<'_>, out: &mut [Completion]) -> Poll<Result<usize, Error>> {
        let polled = self.completions.poll_completions(cx, out);
        if polled.is_pending() {
            self.check()?;
        }
        polled
    }
}

impl Drop for TcpCompletionQueue {
    fn drop(&mut self) {
        self.device.shared.remove_completion_queue(&self.completions);
        drop(self.completions.take_waker());
    }
}

impl fmt::Debug for TcpCompletionQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TcpCompletionQueue").finish_non_exhaustive()
    }
}
