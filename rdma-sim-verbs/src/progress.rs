//! A thread that works while the program does not call
//!
//! Devices fill receives, answer one-sided operations and raise events whether or not a program looks. While it polls, the thread
//! leaves the work to it and costs next to nothing.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::Thread;
use std::time::Duration;

use crate::complain;
use crate::engine::Engine;

pub(crate) struct Progress {
    thread: OnceLock<Option<Thread>>,
    is_asleep: AtomicBool,
}

/// How long the thread waits for a sign that the program does not poll.
const TURN: Duration = Duration::from_millis(1);
/// The longest rest: some things have to be done now and then.
const HOUSEKEEPING: Duration = Duration::from_millis(100);

impl Progress {
    pub(crate) const fn new() -> Self {
        Self { thread: OnceLock::new(), is_asleep: AtomicBool::new(false) }
    }

    /// Starts the thread, unless it runs
    pub(crate) fn begin(&self, engine: &'static Engine) {
        self.thread.get_or_init(|| {
            let builder = std::thread::Builder::new().name("librdma".to_owned());
            match builder.spawn(move || run(engine)) {
                Ok(handle) => Some(handle.thread().clone()),
                Err(error) => {
                    complain(&format!("no thread beside the program: {error}"));
                    None
                }
            }
        });
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

fn run(engine: &'static Engine) {
    let mut turns = 0;
    loop {
        let calls = engine.calls();
        std::thread::sleep(TURN);
        turns += 1;
        if engine.calls() != calls {
            if turns >= 100 {
                turns = 0;
                engine.keep_house();
            }
            continue;
        }
        while engine.calls() == calls {
            engine.go_on();
            engine.keep_house();
            engine.wait(HOUSEKEEPING);
        }
    }
}
