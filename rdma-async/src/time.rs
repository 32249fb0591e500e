//! Waiting with a limit, by a runtime's clock

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use pin_project::pin_project;
use rdma_core::{Runtime, Timer};

/// Gives `future` until `limit` from now
///
/// `None` if it took longer. The future is dropped with the returned one, not at the limit.
///
/// # Cancel safety
///
/// Dropping it drops `future`: it is as safe to cancel as that is.
///
/// ```
/// # rdma_sim::Sim::new().run(async |net| {
/// use std::time::Duration;
/// use rdma_async::time::timeout;
///
/// let (runtime, second) = (net.runtime(), Duration::from_secs(1));
/// assert_eq!(timeout(&*runtime, second, async { 7 }).await, Some(7));
/// assert_eq!(timeout(&*runtime, second, std::future::pending::<()>()).await, None);
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// # }).value.unwrap();
/// ```
pub fn timeout<F: Future>(runtime: &dyn Runtime, limit: Duration, future: F) -> Timeout<F> {
    let mut timer = runtime.timer();
    timer.as_mut().reset(runtime.now() + limit);
    Timeout { future, timer }
}

/// Ready after `duration`
///
/// # Cancel safety
///
/// Dropping it has no effect.
///
/// ```
/// # rdma_sim::Sim::new().run(async |net| {
/// use std::time::Duration;
/// use rdma_async::time::sleep;
///
/// let before = net.now();
/// sleep(&*net.runtime(), Duration::from_secs(3600)).await;
/// assert_eq!(net.now() - before, Duration::from_secs(3600), "an hour of virtual time");
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// # }).value.unwrap();
/// ```
pub fn sleep(runtime: &dyn Runtime, duration: Duration) -> Sleep {
    let mut timer = runtime.timer();
    timer.as_mut().reset(runtime.now() + duration);
    Sleep { timer }
}

/// Future of [`sleep`]
///
/// # Cancel safety
///
/// Dropping it changes nothing.
///
/// ```
/// # rdma_sim::Sim::new().run(async |net| {
/// use std::time::Duration;
///
/// use rdma_async::time::{Sleep, sleep};
///
/// let rest: Sleep = sleep(&*net.runtime(), Duration::from_secs(1));
/// let () = rest.await;
/// # }).value
/// ```
#[derive(Debug)]
#[must_use = "futures do nothing unless polled"]
pub struct Sleep {
    timer: Pin<Box<dyn Timer>>,
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        self.timer.as_mut().poll_expired(cx)
    }
}

/// Future of [`timeout`]
///
/// # Cancel safety
///
/// That of the future inside.
///
/// ```
/// # rdma_sim::Sim::new().run(async |net| {
/// use std::time::Duration;
///
/// use rdma_async::time::{Timeout, timeout};
///
/// let runtime = net.runtime();
/// let waits: Timeout<_> = timeout(&*runtime, Duration::from_secs(1), std::future::pending::<()>());
/// assert_eq!(waits.await, None, "a second of virtual time has passed");
/// # }).value
/// ```
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
