//! Waiting with a limit, by a runtime's clock

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use pin_project::pin_project;
use rdma_core::{Runtime, Timer};

/// Gives `future` until `limit` from now
///
/// `None` if it took longer. The future is dropped with the returned one, not at the limit.
pub fn timeout<F: Future>(runtime: &dyn Runtime, limit: Duration, future: F) -> Timeout<F> {
    let mut timer = runtime.timer();
    timer.as_mut().reset(runtime.now() + limit);
    Timeout { future, timer }
}

/// Ready after `duration`
pub fn sleep(runtime: &dyn Runtime, duration: Duration) -> Timeout<std::future::Pending<()>> {
    timeout(runtime, duration, std::future::pending())
}

/// Future of [`timeout`]
///
/// # Cancel safety
///
/// That of the future inside.
#[derive(Debug)]
#[must_use = "futures do nothing unless polled"]
#[pin_project]
pub struct Timeout<F> {
    #[pin]
    future: F,
    timer: Pin<Box<dyn Timer>>,
}

impl<F: Future> Future for Timeout<F> {
    type Output = Option<F::Output>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<F::Output>> {
        let this = self.project();
        if let Poll::Ready(output) = this.future.poll(cx) {
            return Poll::Ready(Some(output));
        }
        this.timer.as_mut().poll_expired(cx).map(|()| None)
    }
}
