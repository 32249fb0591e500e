use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rdma_async::time::sleep;
use rdma_core::Runtime;

/// The verb that is being called: for a thread that watches whether one hangs
#[derive(Debug)]
pub struct Calls {
    runtime: Arc<dyn Runtime>,
    /// The number of the latest call, above the [`Call`] that it is; 0 instead of that once it has returned
    ///
    /// Written without a clock and without a lock, so that measured times of verbs contain next to nothing of it. One task calls one verb
    /// at a time.
    current: AtomicU64,
}

/// A verb that is noted while it is called
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Call {
    CreateCq = 1,
    CreateQp,
    DeallocPd,
    DeregMr,
    DestroyCq,
    DestroyQp,
    ModifyQp,
    /// Those by which a device is opened
    Open,
    PollCq,
    PostRecv,
    PostSend,
    QueryGid,
    QueryPort,
    QueryQp,
    RegMr,
}

impl Call {
    const NAMES: [(Self, &'static str); 15] = [
        (Self::CreateCq, "create_cq"),
        (Self::CreateQp, "create_qp"),
        (Self::DeallocPd, "dealloc_pd"),
        (Self::DeregMr, "dereg_mr"),
        (Self::DestroyCq, "destroy_cq"),
        (Self::DestroyQp, "destroy_qp"),
        (Self::ModifyQp, "modify_qp"),
        (Self::Open, "open_device, query_device or alloc_pd"),
        (Self::PollCq, "poll_cq"),
        (Self::PostRecv, "post_recv"),
        (Self::PostSend, "post_send"),
        (Self::QueryGid, "query_gid"),
        (Self::QueryPort, "query_port"),
        (Self::QueryQp, "query_qp"),
        (Self::RegMr, "reg_mr"),
    ];

    /// The name of the verb of a word of [`Calls`]; `None` if no verb is being called
    fn name_of(word: u64) -> Option<&'static str> {
        let mut names = Self::NAMES.into_iter();
        names.find_map(|(call, name)| (call as u64 == word & CALL).then_some(name))
    }
}

/// The bits of a word that are the [`Call`]
const CALL: u64 = 0xff;
/// The number of a call is counted in these steps.
const NUMBER: u64 = CALL + 1;

impl Calls {
    /// No call yet; [`hangs`](Self::hangs) measures by the clock of `runtime`
    pub fn new(runtime: Arc<dyn Runtime>) -> Self {
        Self { runtime, current: AtomicU64::new(0) }
    }

    /// Waits until a verb has not returned for `longest`, looking every `interval`; returns which, and for how long
    ///
    /// The time of a verb begins when it is first seen, up to `interval` after the call. Time in which the process was stopped, or the
    /// machine slept, does not count: the verb was not running either.
    ///
    /// For a task on another thread: the one that calls the verb does not go on.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: it changes nothing.
    pub async fn hangs(&self, longest: Duration, interval: Duration) -> (&'static str, Duration) {
        let (mut watched, mut time, mut looked) = (0, Duration::ZERO, self.runtime.now());
        loop {
            let (current, now) = (self.current.load(Ordering::Relaxed), self.runtime.now());
            let passed = (now - looked).min(2 * interval);
            time = if current == watched { time + passed } else { Duration::ZERO };
            (watched, looked) = (current, now);
            match Call::name_of(watched) {
                Some(verb) if time >= longest => return (verb, time),
                _ => sleep(&*self.runtime, interval).await,
            }
        }
    }

    pub(crate) fn during<T>(&self, call: Call, verb: impl FnOnce() -> T) -> T {
        let number = self.begin(call);
        let returned = verb();
        self.current.store(number, Ordering::Relaxed);
        returned
    }

    /// Notes the begin of a call, and returns its number
    fn begin(&self, call: Call) -> u64 {
        let number = (self.current.load(Ordering::Relaxed) & !CALL).wrapping_add(NUMBER);
        self.current.store(number | call as u64, Ordering::Relaxed);
        number
    }

    pub(crate) fn runtime(&self) -> &Arc<dyn Runtime> {
        &self.runtime
    }
}

#[cfg(test)]
mod tests {
    use std::pin::Pin;

    use rdma_core::{AnyDevice, BlockingCall, Device as _, Time, Timer};
    use rdma_sim::Sim;

    use super::*;
    use crate::station::Station;
    use crate::watched::watch;

    /// A runtime that counts the readings of its clock
    #[derive(Debug, Default)]
    struct CountingClock(AtomicU64);

    impl Runtime for CountingClock {
        fn now(&self) -> Time {
            Time::from_nanos(self.0.fetch_add(1, Ordering::Relaxed))
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

    /// Regression: constants of a real device contained two readings of the clock per verb.
    #[test]
    fn verbs_are_noted_without_reading_the_clock() {
        Sim::new().run(async |net| {
            let clock = Arc::new(CountingClock::default());
            let calls = Arc::new(Calls::new(Arc::<CountingClock>::clone(&clock)));
            let device = watch(AnyDevice::new(net.open("a", "rdma_en2").unwrap()), &calls);
            device.port().unwrap();
            let runtime = net.host("a").runtime();
            let mut station = Station::new(&runtime, &Arc::new(device), 16, 1 << 14).unwrap();
            station.recv(0..8).unwrap();
            station.poll().unwrap();
            drop(station);
            assert_eq!(clock.0.load(Ordering::Relaxed), 0, "readings of the clock");
            assert!(calls.current.load(Ordering::Relaxed) > 4 * NUMBER, "the verbs were noted");
        });
    }

    /// Catches a verb that is still noted after it has returned, or under another name, and calls that share a number.
    #[test]
    fn each_call_is_noted_under_its_name_until_it_returns() {
        let calls = Calls::new(Arc::new(CountingClock::default()));
        let word = || calls.current.load(Ordering::Relaxed);
        let mut seen = vec![word()];
        for (call, name) in Call::NAMES {
            seen.push(calls.during(call, word));
            assert_eq!(Call::name_of(seen[seen.len() - 1]), Some(name));
            assert_eq!(Call::name_of(word()), None, "{name} has returned");
        }
        let [first, second] = [(); 2].map(|()| calls.during(Call::PollCq, word));
        assert_ne!(first, second);
        let count = seen.len();
        seen.sort_unstable();
        seen.dedup();
        assert_eq!(seen.len(), count);
    }

    /// Regression: a process that was stopped for 20 s called its driver hung, and advised its user to restart the Mac.
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
            calls.begin(Call::PostSend);
            net.sleep(Duration::from_secs(70)).await;
            // As of another call of the same verb.
            calls.begin(Call::PostSend);
            let since = net.now();
            assert_eq!(ended.await.unwrap(), ("post_send", LONGEST));
            assert!((LONGEST..LONGEST + Duration::from_secs(1)).contains(&(net.now() - since)));
        });
    }
}
