//! The state of a completion queue

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

use rdma_core::{Cause, Completion, Error, Verb};

use crate::frame_counts::{FrameCounts, Queue};
use crate::sync::lock;

/// A completion, and the frames that it frees when it is polled
pub(crate) struct Finished {
    pub(crate) completion: Completion,
    pub(crate) queue: Queue,
    pub(crate) frames: u32,
    pub(crate) counts: Arc<FrameCounts>,
}

/// Completions that were not polled
#[derive(Default)]
pub(crate) struct Completions {
    depth: usize,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    finished: VecDeque<Finished>,
    has_overrun: bool,
    waker: Option<Waker>,
}

impl Completions {
    pub(crate) fn new(depth: u32) -> Self {
        Self { depth: depth as usize, ..Self::default() }
    }

    /// Moves `finished` into the queue; the caller wakes the waker that is returned, without a lock
    #[must_use]
    pub(crate) fn push(&self, finished: &mut Vec<Finished>) -> Option<Waker> {
        if finished.is_empty() {
            return None;
        }
        let mut state = lock(&self.state);
        state.has_overrun |= state.finished.len() + finished.len() > self.depth;
        if state.has_overrun {
            finished.clear();
        } else {
            state.finished.extend(finished.drain(..));
        }
        state.waker.take()
    }

    /// The waker of the task that waits
    pub(crate) fn take_waker(&self) -> Option<Waker> {
        lock(&self.state).waker.take()
    }

    pub(crate) fn poll(&self, out: &mut [Completion]) -> Result<usize, Error> {
        Self::take(&mut lock(&self.state), out)
    }

    pub(crate) fn poll_completions(
        &self,
        cx: &mut Context<'_>,
        out: &mut [Completion],
    ) -> Poll<Result<usize, Error>> {
        let mut state = lock(&self.state);
        let n = Self::take(&mut state, out)?;
        if n == out.len() && n > 0 {
            return Poll::Ready(Ok(n));
        }
        let before = match &mut state.waker {
            Some(waker) if waker.will_wake(cx.waker()) => None,
            waker => waker.replace(cx.waker().clone()),
        };
        drop(state);
        drop(before);
        if n == 0 { Poll::Pending } else { Poll::Ready(Ok(n)) }
    }

    fn take(state: &mut State, out: &mut [Completion]) -> Result<usize, Error> {
        if state.has_overrun {
            return Err(Error::new(Verb::PollCq, Cause::QueueFull));
        }
        let n = out.len().min(state.finished.len());
        for (place, finished) in out.iter_mut().zip(state.finished.drain(..n)) {
            finished.counts.free(finished.queue, finished.frames);
            *place = finished.completion;
        }
        Ok(n)
    }
}

#[cfg(test)]
mod tests {
    use rdma_core::QpCapacity;

    use super::*;

    fn finished(count: usize) -> Vec<Finished> {
        let counts = Arc::new(FrameCounts::new(QpCapacity { recv_frames: 8, send_frames: 8 }));
        let finished = |_| {
            counts.take(Queue::Recv, 1).unwrap();
            let completion = Completion::default();
            Finished { completion, queue: Queue::Recv, frames: 1, counts: Arc::clone(&counts) }
        };
        (0..count).map(finished).collect()
    }

    /// Catches frames that are freed before their completion is polled: then the queue could overrun.
    #[test]
    fn frames_are_freed_by_the_poll() {
        let completions = Completions::new(8);
        let mut eight = finished(8);
        let counts = Arc::clone(&eight[0].counts);
        assert!(completions.push(&mut eight).is_none());
        assert!(counts.take(Queue::Recv, 1).is_err());
        assert_eq!(completions.poll(&mut [Completion::default(); 3]), Ok(3));
        assert!(counts.take(Queue::Recv, 3).is_ok());
        assert!(counts.take(Queue::Recv, 1).is_err());
    }

    #[test]
    fn an_overrun_queue_reports_nothing_more() {
        let completions = Completions::new(2);
        assert!(completions.push(&mut finished(2)).is_none());
        assert!(completions.push(&mut finished(1)).is_none());
        let refused = completions.poll(&mut [Completion::default(); 3]).unwrap_err();
        assert_eq!(refused.cause, Cause::QueueFull);
    }
}
