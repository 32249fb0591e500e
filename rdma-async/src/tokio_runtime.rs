use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use rdma_core::{BlockingCall, Runtime, Time, Timer};
use tokio::runtime::Handle;
use tokio::time::{Instant, Sleep};

use crate::blocking_threads;

/// Tokio's clock and tasks
///
/// Follows tokio's clock when that is paused. Tokio's timers know whole milliseconds.
///
/// ```
/// use rdma_async::TokioRuntime;
///
/// # let tokio = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
/// # tokio.block_on(async {
/// let runtime = TokioRuntime::current();
/// rdma_async::time::sleep(&runtime, std::time::Duration::from_millis(1)).await;
/// # });
/// ```
#[derive(Clone, Debug)]
pub struct TokioRuntime {
    handle: Handle,
    start: Instant,
}

impl TokioRuntime {
    /// The runtime that the caller runs on
    ///
    /// # Panics
    ///
    /// If the caller does not run on tokio. Timers panic if the runtime has none enabled; [`NodeBuilder::build`](crate::NodeBuilder::build)
    /// refuses such a runtime.
    pub fn current() -> Self {
        Self { handle: Handle::current(), start: Instant::now() }
    }

    /// The runtime that the caller runs on, or `None` if the caller does not run on tokio
    pub fn try_current() -> Option<Self> {
        let handle = Handle::try_current().ok()?;
        Some(Self { handle, start: Instant::now() })
    }
}

impl Runtime for TokioRuntime {
    fn now(&self) -> Time {
        Time::ZERO + self.start.elapsed()
    }

    fn spawn(&self, task: Pin<Box<dyn Future<Output = ()> + Send>>) {
        drop(self.handle.spawn(task));
    }

    fn spawn_blocking(&self, call: BlockingCall) {
        let _entered = self.handle.enter();
        // Tokio does not advance a paused clock while one of its own threads has a call.
        if stands_still(Instant::now) {
            drop(self.handle.spawn_blocking(move || call()()));
        } else {
            blocking_threads::run(call);
        }
    }

    fn is_real_time(&self) -> bool {
        let _entered = self.handle.enter();
        !stands_still(Instant::now)
    }

    fn timer(&self) -> Pin<Box<dyn Timer>> {
        let _entered = self.handle.enter();
        Box::pin(TokioTimer {
            sleep: Box::pin(tokio::time::sleep(Duration::ZERO)),
            start: self.start,
            is_set: false,
        })
    }
}

/// Whether a clock is paused: others move within so many looks, also that of a Mac, which ticks every 42 ns
fn stands_still<T: PartialEq>(clock: impl Fn() -> T) -> bool {
    let first = clock();
    (0..1000).all(|_| clock() == first)
}

#[derive(Debug)]
struct TokioTimer {
    sleep: Pin<Box<Sleep>>,
    start: Instant,
    is_set: bool,
}

/// Longer than any deadline that matters, and no overflow in tokio's arithmetic.
const FAR: Duration = Duration::from_hours(24 * 365);

impl Timer for TokioTimer {
    fn reset(mut self: Pin<&mut Self>, deadline: Time) {
        self.is_set = deadline < Time::MAX;
        let at = self.start + deadline.since(Time::ZERO).min(self.start.elapsed() + FAR);
        if self.is_set && self.sleep.deadline() != at {
            self.sleep.as_mut().reset(at);
        }
    }

    fn poll_expired(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        if !self.is_set {
            return Poll::Pending;
        }
        let expired = self.sleep.as_mut().poll(cx);
        if expired.is_ready() {
            self.is_set = false;
        }
        expired
    }
}

#[cfg(test)]
mod tests {
    use futures::channel::oneshot;

    use super::*;
    use crate::time;

    #[tokio::test(start_paused = true)]
    async fn time_is_tokios() {
        let runtime = TokioRuntime::current();
        let start = runtime.now();
        time::sleep(&runtime, Duration::from_secs(3600)).await;
        assert_eq!(runtime.now() - start, Duration::from_secs(3600));

        let (send, receive) = oneshot::channel();
        runtime.spawn(Box::pin(async move { send.send(7).expect("the receiver waits") }));
        assert_eq!(time::timeout(&runtime, Duration::from_secs(1), receive).await, Some(Ok(7)));
        let never = std::future::pending::<()>();
        assert_eq!(time::timeout(&runtime, Duration::from_secs(1), never).await, None);
    }

    /// Regression: two looks at a clock were compared, and one that ticks more rarely was taken for paused.
    #[tokio::test(start_paused = true)]
    async fn a_clock_that_ticks_rarely_is_not_paused() {
        let looks = std::cell::Cell::new(0);
        let ticks = || {
            looks.set(looks.get() + 1);
            looks.get() / 20
        };
        assert!(!stands_still(ticks));
        assert!(stands_still(Instant::now), "the clock of this test is paused");
        tokio::time::resume();
        assert!(!stands_still(Instant::now));
    }

    #[tokio::test(start_paused = true)]
    async fn a_timer_expires_when_it_was_last_set_to() {
        let runtime = TokioRuntime::current();
        let mut timer = runtime.timer();
        let mut expired = async || std::future::poll_fn(|cx| timer.as_mut().poll_expired(cx)).await;
        assert!(futures::poll!(std::pin::pin!(expired())).is_pending(), "it is not set");
        timer.as_mut().reset(runtime.now() + Duration::from_secs(9));
        timer.as_mut().reset(runtime.now() + Duration::from_secs(2));
        std::future::poll_fn(|cx| timer.as_mut().poll_expired(cx)).await;
        assert_eq!(runtime.now(), Time::ZERO + Duration::from_secs(2));
        timer.as_mut().reset(Time::MAX);
        let mut again = std::pin::pin!(std::future::poll_fn(|cx| timer.as_mut().poll_expired(cx)));
        assert!(futures::poll!(again.as_mut()).is_pending());
    }
}
