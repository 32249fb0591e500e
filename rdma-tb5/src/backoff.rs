//! Waiting for completions without events: spin, then let a timer wake the task

use std::sync::PoisonError;
use std::task::{Context, Waker};
use std::time::Duration;

use crate::sync::atomic::{AtomicU32, Ordering};
use crate::sync::{Arc, Condvar, Mutex, MutexGuard, sleep, spawn};

/// How a task waits for completions
///
/// Completion events of Apple's provider have not been shown to work, so a queue must be polled. A task polls once each time it runs;
/// between two polls the other tasks of the executor run. Spawn tasks that must answer fast: a runtime of tokio with one thread polls
/// the future of its `block_on` only once in 61 polls of tasks that spin.
///
/// ```
/// use std::time::Duration;
///
/// use rdma_tb5::{OpenOptions, PollPolicy};
///
/// // Spins for some hundred microseconds, then polls once per millisecond.
/// let options = OpenOptions::new().poll(PollPolicy { nap: Duration::from_millis(1), ..PollPolicy::default() });
/// // Never sleeps.
/// let fastest = OpenOptions::new().poll(PollPolicy::SPIN);
/// ```
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct PollPolicy {
    /// Polls in a row without a completion before the task sleeps between polls
    pub spins: u32,
    /// The time between two polls of a task that sleeps; zero means that it never sleeps
    pub nap: Duration,
}

impl Default for PollPolicy {
    /// Some hundred microseconds of spinning, then a poll each 100 µs: an idle connection costs about a percent of a core
    fn default() -> Self {
        Self { spins: 2_000, nap: Duration::from_micros(100) }
    }
}

impl PollPolicy {
    /// Never sleeps: the lowest latency, at the price of a core
    pub const SPIN: Self = Self { spins: u32::MAX, nap: Duration::ZERO };
}

/// When the task of a completion queue polls again
pub(crate) struct Backoff {
    policy: PollPolicy,
    /// Polls in a row without a completion.
    idle: AtomicU32,
    /// Started when the task sleeps for the first time.
    timer: Mutex<Option<Arc<WakeTimer>>>,
}

/// A thread that wakes one task a nap after it was asked to
struct WakeTimer {
    request: Mutex<Request>,
    changed: Condvar,
}

/// What the thread shall do next
#[derive(Default)]
struct Request {
    wake: Option<Waker>,
    is_over: bool,
}

impl Backoff {
    pub(crate) fn new(policy: PollPolicy) -> Self {
        Self { policy, idle: AtomicU32::new(0), timer: Mutex::new(None) }
    }

    /// Notes that a poll has filled all space for completions
    pub(crate) fn reset(&self) {
        self.idle.store(0, Ordering::Relaxed);
    }

    /// Makes the task of `cx` run again: at once while it spins, after a nap when nothing has completed for long
    ///
    /// Returns whether it is after a nap.
    pub(crate) fn wait(&self, cx: &Context<'_>, has_found: bool) -> bool {
        let idle = if has_found { 0 } else { self.idle.load(Ordering::Relaxed).saturating_add(1) };
        self.idle.store(idle, Ordering::Relaxed);
        let spins = idle < self.policy.spins || self.policy.nap.is_zero();
        if spins {
            cx.waker().wake_by_ref();
        } else {
            self.wake_after_nap(cx.waker());
        }
        !spins
    }

    fn wake_after_nap(&self, waker: &Waker) {
        let mut timer = lock(&self.timer);
        timer.get_or_insert_with(|| WakeTimer::start(self.policy.nap)).schedule(waker);
    }
}

impl WakeTimer {
    fn start(nap: Duration) -> Arc<Self> {
        let timer = Arc::new(Self { request: Mutex::new(Request::default()), changed: Condvar::new() });
        let thread = Arc::clone(&timer);
        spawn(move || thread.run(nap));
        timer
    }

    fn schedule(&self, waker: &Waker) {
        let mut request = lock(&self.request);
        match &mut request.wake {
            Some(old) => old.clone_from(waker),
            none => *none = Some(waker.clone()),
        }
        drop(request);
        self.changed.notify_one();
    }

    /// Wakes each scheduled task after a nap, until [`end`](Self::end)
    fn run(&self, nap: Duration) {
        loop {
            let mut request = lock(&self.request);
            let waker = loop {
                if request.is_over {
                    return;
                }
                match request.wake.take() {
                    Some(waker) => break waker,
                    None => request = self.changed.wait(request).unwrap_or_else(PoisonError::into_inner),
                }
            };
            drop(request);
            sleep(nap);
            waker.wake();
        }
    }

    /// Ends the thread; a task that is scheduled is not woken
    fn end(&self) {
        let mut request = lock(&self.request);
        request.is_over = true;
        let waker = request.wake.take();
        drop(request);
        self.changed.notify_one();
        // The destructor of a waker may do anything: not under the lock.
        drop(waker);
    }
}

impl Drop for Backoff {
    fn drop(&mut self) {
        if let Some(timer) = lock(&self.timer).take() {
            timer.end();
        }
    }
}

/// Locks, whether or not a thread has panicked under the lock
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
