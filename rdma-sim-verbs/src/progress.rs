//! A thread that runs the devices while the program does not call
//!
//! Devices fill receives, answer one-sided operations and raise events whether or not the program calls. While the program
//! polls, its calls do that work, and the thread sleeps.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::thread::Thread;
use std::time::{Duration, Instant};

use rdma_core::Time;

use crate::log::log_error;

/// The state that the thread shares with the calls of the program
#[derive(Default)]
pub(crate) struct Progress {
    thread: OnceLock<Option<Thread>>,
    /// Calls of the program: while the number grows, the program does the work.
    calls: AtomicU32,
    is_asleep: AtomicBool,
    /// The program is about to wait for an event.
    is_wanted: AtomicBool,
    /// The time, in nanoseconds, up to which the thread sleeps; zero while it does not. Read and set while the simulation is locked:
    /// an event that is due earlier is scheduled either before the thread looks, or after it says how long it sleeps.
    sleeps_until: AtomicU64,
}

/// What the thread does
pub(crate) trait Work: Sync {
    /// Runs what is due
    fn run(&self);
    /// Waits until something is due or arrives, or for `most`
    fn wait(&self, most: Duration);
    /// Does what has to be done now and then
    fn housekeeping(&self);
}

/// How long the thread waits for a sign that the program does not poll.
const IDLE_AFTER: Duration = Duration::from_millis(1);
const HOUSEKEEPING: Duration = Duration::from_millis(100);

impl Progress {
    /// Counts a call of the program
    pub(crate) fn count_call(&self) {
        // Two calls at once may count as one: all that matters is that the number changes.
        self.calls.store(self.calls().wrapping_add(1), Ordering::Relaxed);
    }

    fn calls(&self) -> u32 {
        self.calls.load(Ordering::Relaxed)
    }

    /// Starts the thread, unless it runs
    pub(crate) fn start(&'static self, work: &'static impl Work) {
        self.thread.get_or_init(|| {
            let builder = std::thread::Builder::new().name("librdma".to_owned());
            match builder.spawn(move || self.work(work)) {
                Ok(handle) => Some(handle.thread().clone()),
                Err(error) => {
                    log_error(&format!("no thread beside the program: {error}"));
                    None
                }
            }
        });
    }

    /// The thread sleeps up to `time`, unless an event is due before; called while the simulation is locked
    pub(crate) fn announce_sleep(&self, time: Time) {
        self.sleeps_until.store(time.as_nanos(), Ordering::Relaxed);
    }

    /// The thread does not sleep any more
    pub(crate) fn end_sleep(&self) {
        self.sleeps_until.store(0, Ordering::Relaxed);
    }

    /// Whether the thread would sleep past `event` and the caller has to interrupt it; called while the simulation is locked
    pub(crate) fn sleeps_past(&self, event: Option<Time>) -> bool {
        let sleeps_until = self.sleeps_until.load(Ordering::Relaxed);
        let is_late = sleeps_until > 0 && event.is_some_and(|event| event.as_nanos() < sleeps_until);
        if is_late {
            // One interruption is enough.
            self.end_sleep();
        }
        is_late
    }

    /// Ends the sleep of the thread, or its next one
    pub(crate) fn unpark(&self) {
        if let Some(Some(thread)) = self.thread.get() {
            thread.unpark();
        }
    }

    /// Makes the thread poll at once: the program will not call before something has happened
    pub(crate) fn take_over(&self) {
        self.is_wanted.store(true, Ordering::Release);
        self.unpark();
    }

    /// Sleeps for `time`, or until it is [woken](Self::wake)
    pub(crate) fn sleep(&self, time: Duration) {
        self.is_asleep.store(true, Ordering::SeqCst);
        std::thread::park_timeout(time);
        self.is_asleep.store(false, Ordering::SeqCst);
    }

    /// Ends the sleep of the thread
    pub(crate) fn wake(&self) {
        if self.is_asleep.load(Ordering::Relaxed) && self.is_asleep.swap(false, Ordering::SeqCst) {
            self.unpark();
        }
    }

    /// The state of a thread that the caller stands in for
    #[cfg(test)]
    pub(crate) fn of_this_thread() -> Self {
        let progress = Self::default();
        let _ = progress.thread.set(Some(std::thread::current()));
        progress
    }

    #[expect(clippy::disallowed_methods, reason = "housekeeping is done by the clock on the wall")]
    fn work(&self, work: &impl Work) {
        let mut last_housekeeping = Instant::now();
        loop {
            let calls = self.calls();
            if !self.is_wanted.swap(false, Ordering::Acquire) {
                std::thread::park_timeout(IDLE_AFTER);
            }
            let program_polls = self.calls() != calls && !self.is_wanted.load(Ordering::Relaxed);
            let calls = self.calls();
            if !program_polls && self.calls() == calls {
                work.run();
            }
            while !program_polls && self.calls() == calls {
                work.wait(HOUSEKEEPING);
                // What ends the wait is due now, even if the program has called meanwhile.
                work.run();
                if last_housekeeping.elapsed() >= HOUSEKEEPING {
                    break;
                }
            }
            if last_housekeeping.elapsed() >= HOUSEKEEPING {
                work.housekeeping();
                last_housekeeping = Instant::now();
            }
        }
    }
}
