//! Virtual time and its timers

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::fmt;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

use rdma_core::{Time, Timer, probe};
use slotmap::{SlotMap, new_key_type};

use super::stalled::HumanDuration;
use crate::cpu::Cpu;
use crate::sync::{lock, replace};

new_key_type! { struct TimerKey; }

pub(super) struct Clock {
    now: AtomicU64,
    /// No timer expires before this time; outside of the lock, because every jump reads it
    earliest: AtomicU64,
    timers: Mutex<Timers>,
    cpu: Cpu,
}

#[derive(Default)]
struct Timers {
    /// Deadlines that were set; an entry that differs from the deadline of its timer is obsolete
    heap: BinaryHeap<Reverse<(Time, u64, TimerKey)>>,
    next_seq: u64,
    timers: SlotMap<TimerKey, TimerState>,
}

#[derive(Default)]
struct TimerState {
    deadline: Option<Time>,
    waker: Option<Waker>,
}

impl Timers {
    /// The waker of a timer that expires by `now`
    fn expire(&mut self, now: Time) -> Option<Waker> {
        while self.next()? <= now {
            let Reverse((_, _, key)) = self.heap.pop()?;
            if let Some(waker) = self.timers.get_mut(key)?.waker.take() {
                return Some(waker);
            }
        }
        None
    }

    /// The earliest deadline that is not obsolete
    fn next(&mut self) -> Option<Time> {
        while let Some(&Reverse((at, _, key))) = self.heap.peek() {
            if self.timers.get(key).is_some_and(|timer| timer.deadline == Some(at)) {
                return Some(at);
            }
            self.heap.pop();
        }
        None
    }
}

impl Clock {
    pub(super) fn new(cpu: Cpu) -> Self {
        Self { now: AtomicU64::new(0), earliest: AtomicU64::new(u64::MAX), timers: Mutex::default(), cpu }
    }

    /// The time of the task that is polled
    pub(super) fn now(&self) -> Time {
        Time::from_nanos(self.now.load(Ordering::Relaxed) + self.cpu.ahead_ns())
    }

    /// When the next timer expires, or earlier
    pub(super) fn next(&self) -> Time {
        Time::from_nanos(self.earliest.load(Ordering::Relaxed))
    }

    /// Sets the time, and wakes the tasks whose timers have expired
    #[inline(always)]
    pub(super) fn expire(&self, now: Time) {
        self.now.store(now.as_nanos(), Ordering::Relaxed);
        if self.next() <= now {
            self.wake_expired(now);
        }
    }

    #[cold]
    fn wake_expired(&self, now: Time) {
        // No lock is held: a waker may run any code.
        loop {
            let expired = lock(&self.timers).expire(now);
            match expired {
                Some(waker) => waker.wake(),
                None => break,
            }
        }
        let next = lock(&self.timers).next().unwrap_or(Time::MAX);
        self.earliest.store(next.as_nanos(), Ordering::Relaxed);
    }

    /// A timer without a deadline
    pub(super) fn timer(self: &Arc<Self>) -> SimTimer {
        let key = lock(&self.timers).timers.insert(TimerState::default());
        SimTimer { clock: Arc::clone(self), key }
    }
}

impl fmt::Debug for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Clock").field(&self.now()).finish()
    }
}

#[derive(Debug)]
pub(super) struct SimTimer {
    clock: Arc<Clock>,
    key: TimerKey,
}

impl Timer for SimTimer {
    fn reset(self: Pin<&mut Self>, deadline: Time) {
        let mut timers = lock(&self.clock.timers);
        let timer = &mut timers.timers[self.key];
        if timer.deadline == Some(deadline) {
            return;
        }
        timer.deadline = Some(deadline);
        if deadline < Time::MAX {
            let seq = timers.next_seq;
            timers.next_seq += 1;
            timers.heap.push(Reverse((deadline, seq, self.key)));
            // A deadline that has passed is for now: time does not go back.
            let at = deadline.max(self.clock.now());
            self.clock.earliest.fetch_min(at.as_nanos(), Ordering::Relaxed);
        }
    }

    fn poll_expired(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let now = self.clock.now();
        let mut timers = lock(&self.clock.timers);
        let timer = &mut timers.timers[self.key];
        if timer.deadline.is_some_and(|deadline| deadline <= now) {
            timer.deadline = None;
            return Poll::Ready(());
        }
        let (replaced, deadline) = (replace(&mut timer.waker, cx.waker()), timer.deadline);
        drop(timers);
        drop(replaced);
        if let Some(deadline) = deadline.filter(|deadline| *deadline < Time::MAX) {
            probe::waits_for(format_args!("its timer in {}", HumanDuration(deadline.since(now))));
        }
        Poll::Pending
    }
}

impl Drop for SimTimer {
    fn drop(&mut self) {
        // Dropping its waker may run any code: not under the lock.
        let removed = lock(&self.clock.timers).timers.remove(self.key);
        drop(removed);
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::time::Duration;

    use rdma_core::Time;

    use crate::Sim;

    /// Regression: a timer that was set to a time that had passed, and not polled, turned time back.
    #[test]
    fn a_deadline_that_has_passed_expires_now() {
        Sim::new().run(async |net| {
            net.sleep(Duration::from_secs(1)).await;
            let mut timer = net.runtime().timer();
            timer.as_mut().reset(Time::from_nanos(5));
            net.sleep(Duration::from_secs(1)).await;
            let before = net.now();
            poll_fn(|cx| timer.as_mut().poll_expired(cx)).await;
            assert_eq!(net.now(), before);
        });
    }
}
