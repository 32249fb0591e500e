use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use pin_project::pin_project;
use rdma_core::{Runtime, Timer};

/// Polls a future a given number of times, whether or not it was woken, and then drops it
///
/// Time passes between two polls, so that each number of polls drops the future at a different point of the operation.
#[pin_project]
#[derive(Debug)]
pub struct DropAfter<F> {
    #[pin]
    future: Option<F>,
    polls: usize,
    every: Duration,
    runtime: std::sync::Arc<dyn Runtime>,
    timer: Pin<Box<dyn Timer>>,
}

impl<F: Future> DropAfter<F> {
    /// Drops `future` when it has been polled `polls` times, once per `every`
    pub fn new(runtime: std::sync::Arc<dyn Runtime>, every: Duration, polls: usize, future: F) -> Self {
        let timer = runtime.timer();
        Self { future: Some(future), polls, every, runtime, timer }
    }
}

impl<F: Future> Future for DropAfter<F> {
    /// `None` if the future was dropped before it was ready
    type Output = Option<F::Output>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        if *this.polls == 0 {
            this.future.set(None);
            return Poll::Ready(None);
        }
        *this.polls -= 1;
        if let Some(future) = this.future.as_mut().as_pin_mut()
            && let Poll::Ready(output) = future.poll(cx)
        {
            this.future.set(None);
            return Poll::Ready(Some(output));
        }
        this.timer.as_mut().reset(this.runtime.now() + *this.every);
        match this.timer.as_mut().poll_expired(cx) {
            Poll::Ready(()) => cx.waker().wake_by_ref(),
            Poll::Pending => (),
        }
        Poll::Pending
    }
}
