//! Waiting for completions that nothing announces: spin, then yield, then park

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::task::{Context, Waker};
use std::time::Duration;

/// How a task waits for completions
///
/// Apple's provider has no completion events that anybody has seen work: a queue must be polled. Each round of the task is a
/// poll; between rounds other tasks of the executor have their turn. Spawn what should answer fast: a runtime of tokio with one
/// thread looks at the future of its `block_on` only once in 61 polls of tasks that spin.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct PollPolicy {
    /// Rounds without a completion before the task is parked
    pub spins: u32,
    /// How long a parked task sleeps between two looks; it never sleeps if this is zero
    pub nap: Duration,
}

impl Default for PollPolicy {
    /// Some hundred microseconds of spinning, then a look each 100 µs: an idle connection costs about a percent of a core
    fn default() -> Self {
        Self { spins: 2_000, nap: Duration::from_micros(100) }
    }
}

impl PollPolicy {
    /// Never sleeps: the lowest latency, and a core of its own
    pub const SPIN: Self = Self { spins: u32::MAX, nap: Duration::ZERO };
}

pub(crate) struct Waiter {
    policy: PollPolicy,
    /// Rounds without a completion.
    idle: AtomicU32,
    alarm: Mutex<Option<Arc<Alarm>>>,
}

/// Where a thread finds whom to wake
struct Alarm {
    waker: Mutex<Option<Waker>>,
    is_set: Condvar,
    is_over: AtomicBool,
}

impl Waiter {
    pub(crate) fn new(policy: PollPolicy) -> Self {
        Self { policy, idle: AtomicU32::new(0), alarm: Mutex::new(None) }
    }

    /// There were completions
    pub(crate) fn found(&self) {
        self.idle.store(0, Ordering::Relaxed);
    }

    /// Has the task of `cx` look again: at once while it spins, later when nothing has come for long; whether that is later
    pub(crate) fn wait(&self, cx: &Context<'_>, found: bool) -> bool {
        let idle = if found { 0 } else { self.idle.load(Ordering::Relaxed).saturating_add(1) };
        self.idle.store(idle, Ordering::Relaxed);
        let spins = idle < self.policy.spins || self.policy.nap.is_zero();
        if spins {
            cx.waker().wake_by_ref();
        } else {
            self.park(cx.waker());
        }
        !spins
    }

    fn park(&self, waker: &Waker) {
        let mut place = self.alarm.lock().unwrap_or_else(PoisonError::into_inner);
        let alarm = place.get_or_insert_with(|| Alarm::start(self.policy.nap));
        alarm.set(waker);
    }
}

impl Alarm {
    #[expect(
        clippy::disallowed_methods,
        reason = "nothing else can tell when to look at a queue without events"
    )]
    fn start(nap: Duration) -> Arc<Self> {
        let alarm = Arc::new(Self {
            waker: Mutex::new(None),
            is_set: Condvar::new(),
            is_over: AtomicBool::new(false),
        });
        let ringing = Arc::clone(&alarm);
        std::thread::spawn(move || ringing.ring(nap));
        alarm
    }

    fn set(&self, waker: &Waker) {
        let mut place = self.waker.lock().unwrap_or_else(PoisonError::into_inner);
        match &mut *place {
            Some(old) => old.clone_from(waker),
            none => *none = Some(waker.clone()),
        }
        drop(place);
        self.is_set.notify_one();
    }

    /// Wakes whoever asks, a nap later, until nobody will ask any more
    fn ring(&self, nap: Duration) {
        loop {
            let mut place = self.waker.lock().unwrap_or_else(PoisonError::into_inner);
            while place.is_none() {
                if self.is_over.load(Ordering::Acquire) {
                    return;
                }
                place = self.is_set.wait(place).unwrap_or_else(PoisonError::into_inner);
            }
            let waker = place.take();
            drop(place);
            std::thread::sleep(nap);
            waker.into_iter().for_each(Waker::wake);
        }
    }
}

impl Drop for Waiter {
    fn drop(&mut self) {
        let place = self.alarm.get_mut().unwrap_or_else(PoisonError::into_inner);
        if let Some(alarm) = place.take() {
            // Under the lock, lest the thread go to sleep between its look and this.
            let mut place = alarm.waker.lock().unwrap_or_else(PoisonError::into_inner);
            alarm.is_over.store(true, Ordering::Release);
            let waker = place.take();
            drop(place);
            alarm.is_set.notify_one();
            drop(waker);
        }
    }
}

impl fmt::Debug for Waiter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Waiter").field("policy", &self.policy).finish_non_exhaustive()
    }
}
