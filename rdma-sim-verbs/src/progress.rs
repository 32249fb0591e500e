//! A thread that works while the program does not call
//!
//! Devices fill receives, answer one-sided operations and raise events whether or not a program looks. While it polls, the thread
//! leaves the work to it and costs next to nothing.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::Thread;
use std::time::{Duration, Instant};

use crate::complain;
use crate::engine::Engine;

pub(crate) struct Progress {
    thread: OnceLock<Option<Thread>>,
    is_asleep: AtomicBool,
    /// The program is about to wait for an event.
    is_wanted: AtomicBool,
}

/// How long the thread waits for a sign that the program does not poll.
const TURN: Duration = Duration::from_millis(1);
/// Some things have to be done now and then.
const HOUSEKEEPING: Duration = Duration::from_millis(100);

impl Progress {
    pub(crate) const fn new() -> Self {
        Self { thread: OnceLock::new(), is_asleep: AtomicBool::new(false), is_wanted: AtomicBool::new(false) }
    }

    /// Starts the thread, unless it runs
    pub(crate) fn begin(&self, engine: &'static Engine) {
        self.thread.get_or_init(|| {
            let builder = std::thread::Builder::new().name("librdma".to_owned());
            match builder.spawn(move || engine.work()) {
                Ok(handle) => Some(handle.thread().clone()),
                Err(error) => {
                    complain(&format!("no thread beside the program: {error}"));
                    None
                }
            }
        });
    }

    /// The program will not call before something has happened
    pub(crate) fn take_over(&self) {
        self.is_wanted.store(true, Ordering::Release);
        if let Some(Some(thread)) = self.thread.get() {
            thread.unpark();
        }
    }

    pub(crate) fn rest(&self, time: Duration) {
        self.is_asleep.store(true, Ordering::SeqCst);
        std::thread::park_timeout(time);
        self.is_asleep.store(false, Ordering::SeqCst);
    }

    pub(crate) fn rouse(&self) {
        if self.is_asleep.load(Ordering::Relaxed)
            && self.is_asleep.swap(false, Ordering::SeqCst)
            && let Some(Some(thread)) = self.thread.get()
        {
            thread.unpark();
        }
    }
}

impl Engine {
    #[expect(
        clippy::disallowed_methods,
        reason = "what is done now and then is done by the clock on the wall"
    )]
    fn work(&self) {
        let mut house = Instant::now();
        loop {
            let calls = self.calls();
            if !self.progress.is_wanted.swap(false, Ordering::Acquire) {
                std::thread::park_timeout(TURN);
            }
            let is_left_alone = self.calls() != calls && !self.progress.is_wanted.load(Ordering::Relaxed);
            let calls = self.calls();
            while !is_left_alone && self.calls() == calls {
                self.go_on();
                self.wait(HOUSEKEEPING);
                if house.elapsed() >= HOUSEKEEPING {
                    break;
                }
            }
            if house.elapsed() >= HOUSEKEEPING {
                self.keep_house();
                house = Instant::now();
            }
        }
    }
}
