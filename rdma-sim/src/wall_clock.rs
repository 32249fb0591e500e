//! The clock of a simulation in real time, and the sleep of the thread that follows it

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};
use std::thread::Thread;
use std::time::{Duration, Instant};

use rdma_core::Time;

/// Nanoseconds of the fabric as nanoseconds of the wall clock
///
/// One thread fires the events and sleeps between them. What adds an earlier event or timer calls [`is_due`](Self::is_due): either
/// it sees that the thread sleeps for longer, or the thread sees the event before it sleeps.
#[derive(Debug)]
pub(crate) struct WallClock {
    start: Instant,
    thread: OnceLock<Thread>,
    /// Until when the thread sleeps; zero while it is awake
    sleeps_until: AtomicU64,
    is_over: AtomicBool,
    /// How many times the thread has slept
    sleeps: AtomicU64,
}

/// What the thread does until the next event is due
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Rest {
    /// Lets other threads run, and looks at the clock again
    Spin,
    Sleep(Duration),
    /// Sleeps until something is scheduled
    SleepOn,
}

/// How much later than asked a system may end a sleep: 50 µs and a switch of threads on Linux
const LATENESS: Duration = Duration::from_micros(60);

impl Rest {
    fn until(due: Time, now: Time) -> Self {
        match due.since(now).checked_sub(LATENESS) {
            _ if due == Time::MAX => Self::SleepOn,
            None | Some(Duration::ZERO) => Self::Spin,
            Some(time) => Self::Sleep(time),
        }
    }
}

impl WallClock {
    /// A clock that starts now
    #[expect(clippy::disallowed_methods, reason = "a simulation in real time is where the clock comes from")]
    pub(crate) fn start() -> Self {
        Self {
            start: Instant::now(),
            thread: OnceLock::new(),
            sleeps_until: AtomicU64::new(0),
            is_over: AtomicBool::new(false),
            sleeps: AtomicU64::new(0),
        }
    }

    pub(crate) fn now(&self) -> Time {
        Time::ZERO + self.start.elapsed()
    }

    /// Ends the sleep of the thread if something is due at `time`, before the end of the sleep
    pub(crate) fn is_due(&self, time: Time) {
        fence(Ordering::SeqCst);
        if time.as_nanos() < self.sleeps_until.load(Ordering::Relaxed) {
            self.wake();
        }
    }

    /// Ends the thread
    pub(crate) fn end(&self) {
        self.is_over.store(true, Ordering::SeqCst);
        self.wake();
    }

    pub(crate) fn is_over(&self) -> bool {
        self.is_over.load(Ordering::SeqCst)
    }

    fn wake(&self) {
        if let Some(thread) = self.thread.get() {
            thread.unpark();
        }
    }

    /// On the thread: waits until something may be due, which is at `next`
    pub(crate) fn rest(&self, next: impl Fn() -> Time) {
        self.thread.get_or_init(std::thread::current);
        let due = next();
        let rest = Rest::until(due, self.now());
        if rest == Rest::Spin {
            return std::thread::yield_now();
        }
        self.sleeps_until.store(due.as_nanos(), Ordering::Relaxed);
        fence(Ordering::SeqCst);
        if next() >= due && !self.is_over() {
            self.sleeps.fetch_add(1, Ordering::Relaxed);
            match rest {
                Rest::Sleep(time) => std::thread::park_timeout(time),
                _ => std::thread::park(),
            }
        }
        self.sleeps_until.store(0, Ordering::Relaxed);
    }
}

#[cfg(test)]
impl WallClock {
    /// Until when the thread sleeps; zero while it is awake
    pub(crate) fn sleeps_until(&self) -> Time {
        Time::from_nanos(self.sleeps_until.load(Ordering::SeqCst))
    }

    /// How many times the thread has slept
    pub(crate) fn sleeps(&self) -> u64 {
        self.sleeps.load(Ordering::SeqCst)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_thread_spins_only_as_long_as_a_sleep_would_be_too_long() {
        let rest = |due| Rest::until(Time::from_nanos(due), Time::from_nanos(5_000));
        assert_eq!(rest(0), Rest::Spin, "it is late");
        assert_eq!(rest(5_000), Rest::Spin);
        assert_eq!(rest(65_000), Rest::Spin);
        assert_eq!(rest(65_001), Rest::Sleep(Duration::from_nanos(1)));
        assert_eq!(rest(1_065_000), Rest::Sleep(Duration::from_millis(1)));
        assert_eq!(rest(u64::MAX), Rest::SleepOn);
    }
}
