//! The clock and the timers of a runtime of this crate

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use rdma_core::{Time, Timer};

use crate::effects::Effects;
use crate::sync::Mutex;

/// Timers by deadline, and the clock that they go by
pub(crate) struct Timers {
    start: Instant,
    /// By deadline and number of the timer: one entry for each timer that is set and was polled.
    armed: Mutex<BTreeMap<(Time, u64), Waker>>,
    next: AtomicU64,
    /// Called, without a lock, when the first deadline is an earlier one than before
    on_earlier: Box<dyn Fn() + Send + Sync>,
}

impl Timers {
    /// Timers whose clock begins now
    #[expect(clippy::disallowed_methods, reason = "a runtime is where the clock comes from")]
    pub(crate) fn new(on_earlier: impl Fn() + Send + Sync + 'static) -> Self {
        let (armed, next) = (Mutex::default(), AtomicU64::new(0));
        Self { start: Instant::now(), armed, next, on_earlier: Box::new(on_earlier) }
    }

    pub(crate) fn now(&self) -> Time {
        Time::ZERO + self.start.elapsed()
    }

    /// A timer without a deadline
    pub(crate) fn timer(self: &Arc<Self>) -> Pin<Box<dyn Timer>> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        Box::pin(ArmedTimer { timers: Arc::clone(self), number, deadline: Time::MAX })
    }

    /// The first deadline, if a timer is set
    pub(crate) fn first(&self) -> Option<Time> {
        self.armed.lock().first_key_value().map(|((deadline, _), _)| *deadline)
    }

    /// Wakes the tasks whose timers have expired
    pub(crate) fn expire(&self) {
        let mut armed = self.armed.lock();
        if armed.is_empty() {
            return;
        }
        let now = self.now();
        let mut effects = Effects::<Infallible>::new();
        while let Some(timer) = armed.first_entry().filter(|timer| timer.key().0 <= now) {
            effects.wake(Some(timer.remove()));
        }
        drop(armed);
        effects.run_alone();
    }

    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.armed.lock().len()
    }
}

struct ArmedTimer {
    timers: Arc<Timers>,
    number: u64,
    /// `Time::MAX` while it is not set.
    deadline: Time,
}

impl ArmedTimer {
    /// Forgets the task that waits for the deadline, if there is one
    fn disarm(&self) {
        let waker = self.timers.armed.lock().remove(&(self.deadline, self.number));
        // Not under the lock: a waker may use the runtime when it is dropped.
        drop(waker);
    }
}

impl Timer for ArmedTimer {
    fn reset(mut self: Pin<&mut Self>, deadline: Time) {
        if deadline != self.deadline {
            self.disarm();
            self.deadline = deadline;
        }
    }

    fn poll_expired(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        if self.deadline == Time::MAX {
            return Poll::Pending;
        }
        if self.deadline <= self.timers.now() {
            self.disarm();
            self.deadline = Time::MAX;
            return Poll::Ready(());
        }
        let key = (self.deadline, self.number);
        let mut armed = self.timers.armed.lock();
        if !armed.get(&key).is_some_and(|waker| waker.will_wake(cx.waker())) {
            let before = armed.insert(key, cx.waker().clone());
            let is_first = armed.first_key_value().is_some_and(|(first, _)| *first == key);
            drop(armed);
            drop(before);
            if is_first {
                (self.timers.on_earlier)();
            }
        }
        Poll::Pending
    }
}

impl Drop for ArmedTimer {
    fn drop(&mut self) {
        if self.deadline != Time::MAX {
            self.disarm();
        }
    }
}

impl fmt::Debug for ArmedTimer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ArmedTimer").field("deadline", &self.deadline).finish_non_exhaustive()
    }
}
