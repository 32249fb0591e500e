use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rdma_async::time::sleep;
use rdma_core::{Runtime, Time};

/// The verb that is being called, and the time of the call: for a thread that watches whether one hangs
#[derive(Debug)]
pub struct Calls {
    runtime: Arc<dyn Runtime>,
    current: Mutex<Option<(&'static str, Time)>>,
}

impl Calls {
    /// No call yet, by the clock of `runtime`
    pub fn new(runtime: Arc<dyn Runtime>) -> Self {
        Self { runtime, current: Mutex::default() }
    }

    /// The verb that has been called and has not returned, and for how long
    pub fn blocked(&self) -> Option<(&'static str, Duration)> {
        self.current().map(|(verb, since)| (verb, self.runtime.now() - since))
    }

    /// Waits until a verb has not returned for `longest`, looking every `interval`; returns which, and for how long
    ///
    /// Time in which the process was stopped, or the machine slept, does not count: the verb was not running either.
    ///
    /// For a task on another thread: the one that calls the verb does not go on.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: it changes nothing.
    pub async fn hangs(&self, longest: Duration, interval: Duration) -> (&'static str, Duration) {
        let (mut watched, mut time, mut looked) = (None, Duration::ZERO, self.runtime.now());
        loop {
            let (current, now) = (self.current(), self.runtime.now());
            let passed = (now - looked).min(2 * interval);
            time = if current == watched { time + passed } else { Duration::ZERO };
            (watched, looked) = (current, now);
            match watched {
                Some((verb, _)) if time >= longest => return (verb, time),
                _ => sleep(&*self.runtime, interval).await,
            }
        }
    }

    pub(crate) fn during<T>(&self, verb: &'static str, call: impl FnOnce() -> T) -> T {
        self.set(Some((verb, self.runtime.now())));
        let returned = call();
        self.set(None);
        returned
    }

    /// The time that a call takes more because it is noted, in nanoseconds: the mean of `count` calls that do nothing
    pub(crate) fn noting_ns(&self, count: usize) -> f64 {
        let start = self.runtime.now();
        for _ in 0..count {
            self.during("nothing", || std::hint::black_box(()));
        }
        (self.runtime.now() - start).as_nanos() as f64 / count as f64
    }

    pub(crate) fn runtime(&self) -> &Arc<dyn Runtime> {
        &self.runtime
    }

    fn current(&self) -> Option<(&'static str, Time)> {
        *self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set(&self, current: Option<(&'static str, Time)>) {
        *self.current.lock().unwrap_or_else(PoisonError::into_inner) = current;
    }
}

#[cfg(test)]
mod tests {
    use std::pin::Pin;
    use std::sync::atomic::{AtomicU64, Ordering};

    use rdma_core::{BlockingCall, Timer};
    use rdma_sim::Sim;

    use super::*;

    /// A runtime with a clock of which each reading takes 100 ns
    #[derive(Debug, Default)]
    struct SlowClock(AtomicU64);

    impl Runtime for SlowClock {
        fn now(&self) -> Time {
            Time::from_nanos(self.0.fetch_add(100, Ordering::Relaxed))
        }

        fn spawn(&self, _: Pin<Box<dyn Future<Output = ()> + Send>>) {
            unreachable!("no task is started");
        }

        fn spawn_blocking(&self, _: BlockingCall) {
            unreachable!("nothing blocks");
        }

        fn timer(&self) -> Pin<Box<dyn Timer>> {
            unreachable!("nothing waits");
        }
    }

    /// Catches the time of noting a call that counts as that of a post or of a poll.
    #[test]
    fn the_time_of_noting_a_call_is_that_of_calls_that_do_nothing() {
        let calls = Calls::new(Arc::new(SlowClock::default()));
        // Each call reads the clock once, and so does the end of all.
        assert_eq!(calls.noting_ns(100), 101.0);
    }

    /// Regression: a process that was stopped for 20 s called its driver hung, and told its user to restart the Mac.
    ///
    /// Catches also a verb that hangs and is not noticed, and the time of one verb that counts for the next.
    #[test]
    fn only_time_in_which_the_process_runs_counts() {
        const LONGEST: Duration = Duration::from_secs(15);
        let plan = "at 2s a pause; at 62s a resume".parse().unwrap();
        Sim::new().faults(plan).run(async |net| {
            let calls = Arc::new(Calls::new(net.host("a").runtime()));
            let (ends, ended) = futures::channel::oneshot::channel();
            let watching = Arc::clone(&calls);
            net.host("a").spawn(async move {
                let hangs = watching.hangs(LONGEST, Duration::from_millis(100)).await;
                ends.send(hangs).unwrap();
            });
            calls.set(Some(("post_send", net.now())));
            net.sleep(Duration::from_secs(70)).await;
            // As of another call of the same verb.
            calls.set(Some(("post_send", net.now())));
            let since = net.now();
            assert_eq!(ended.await.unwrap(), ("post_send", LONGEST));
            assert!((LONGEST..LONGEST + Duration::from_secs(1)).contains(&(net.now() - since)));
        });
    }
}
