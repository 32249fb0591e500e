//! Waiting for completions without events: spin, then let a timer wake the task

use std::sync::PoisonError;
use std::task::{Context, Waker};
use std::time::Duration;

use crate::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use crate::sync::{Arc, Condvar, Mutex, MutexGuard, spawn, wait_for};

/// How a task waits for completions
///
/// Completion events of Apple's provider have not been shown to work, so a queue must be polled. A task polls once each time it runs;
/// between two polls the other tasks of the executor run. Spawn tasks that must answer fast: a runtime of tokio with one thread polls
/// the future of its `block_on` only once in 61 polls of tasks that spin.
///
/// The naps of a task for which nothing completes grow with the time that it has waited, to about a tenth of it, so that a long pause
/// costs little and a short one is hardly prolonged. A send ends the nap: its completion, and an answer to it, find a task that spins.
/// After a nap it spins for a sixteenth of the polls, and each completion that it finds meanwhile doubles them; then its naps begin at a
/// quarter of that nap, unless it has come to spin for all polls. So a lone message, such as a heartbeat, does not cost what the beginning of
/// a conversation does. A node that has sent and received no message for 10 ms lets the task [sleep on](rdma_core::CompletionQueue::rest) as if
/// nothing had completed.
///
/// Naps of a millisecond and more end at the same times on all queues of a process, and the one that follows a shorter one earlier: a task that
/// polls several queues is woken once for all of them.
///
/// ```
/// use std::time::Duration;
///
/// use rdma_tb5::{OpenOptions, PollPolicy};
///
/// // Spins for some hundred microseconds, then polls every millisecond, however long nothing completes.
/// let millisecond = Duration::from_millis(1);
/// let steady = PollPolicy { nap: millisecond, longest_nap: millisecond, ..PollPolicy::default() };
/// let options = OpenOptions::new().poll(steady);
/// // Never sleeps.
/// let fastest = OpenOptions::new().poll(PollPolicy::SPIN);
/// ```
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct PollPolicy {
    /// Most polls in a row without a completion before the task sleeps between polls
    pub spins: u32,
    /// The time between two polls of a task that begins to sleep; zero means that it never sleeps
    pub nap: Duration,
    /// The time between two polls of a task that has slept for long, unless `nap` is longer
    pub longest_nap: Duration,
}

impl Default for PollPolicy {
    /// Some hundred microseconds of spinning, then naps of 100 µs that grow to 10 ms within 100 ms: a node at rest with a session over one port
    /// costs less than a percent of a core, and more with more ports
    fn default() -> Self {
        Self { spins: 2_000, nap: Duration::from_micros(100), longest_nap: Duration::from_millis(10) }
    }
}

/// The part of the spins that follows a nap
const AFTER_NAP: u32 = 16;
/// Naps before the next ones are twice as long
const NAPS: u32 = 8;
/// So many naps earlier, one is a quarter as long
const TWO_STEPS_BACK: u32 = 2 * NAPS;

impl PollPolicy {
    /// Never sleeps: the lowest latency, at the price of a core
    pub const SPIN: Self = Self { spins: u32::MAX, nap: Duration::ZERO, longest_nap: Duration::ZERO };

    /// The nap that follows so many others
    fn nap_after(&self, naps: u32) -> Duration {
        let times = 1_u32.checked_shl(naps / NAPS).unwrap_or(u32::MAX);
        self.nap.saturating_mul(times).min(self.longest_nap.max(self.nap))
    }
}

/// When the task of a completion queue polls again
pub(crate) struct Backoff {
    policy: PollPolicy,
    /// Polls in a row without a completion.
    idle: AtomicU32,
    /// How many of them there may be before the task sleeps.
    spins: AtomicU32,
    /// How many naps have made the next one as long as it is.
    naps: AtomicU32,
    /// What `naps` was before the last nap ended.
    naps_before: AtomicU32,
    /// The thread that polled last, when a rest could follow.
    poller: AtomicUsize,
    /// Whether a thread other than the polling one has posted since the last rest: that thread awaits the completion.
    is_awaited: AtomicBool,
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
    /// The task to be woken after the nap.
    wake: Option<Waker>,
    /// The nap that was asked for last.
    nap: Duration,
    /// The nap under way; it may have begun before it was asked for.
    under_way: Option<Duration>,
    /// The nap, or the next one, ends at once.
    is_cut: bool,
    is_over: bool,
}

impl Backoff {
    pub(crate) fn new(policy: PollPolicy) -> Self {
        let spins = AtomicU32::new(policy.spins);
        let [idle, naps, naps_before] = std::array::from_fn(|_| AtomicU32::new(0));
        let (poller, is_awaited) = (AtomicUsize::new(0), AtomicBool::new(false));
        Self { policy, idle, spins, naps, naps_before, poller, is_awaited, timer: Mutex::new(None) }
    }

    /// Notes that a poll has filled all space for completions
    pub(crate) fn reset(&self) {
        self.idle.store(0, Ordering::Relaxed);
    }

    /// Notes that a request was posted which will complete soon: ends a nap of the task
    #[inline]
    pub(crate) fn posted(&self) {
        let (idle, spins) = (self.idle.load(Ordering::Relaxed), self.spins.load(Ordering::Relaxed));
        if self.may_rest(idle, spins) && self.poller.load(Ordering::Relaxed) != this_thread() {
            self.is_awaited.store(true, Ordering::Relaxed);
        }
        if idle >= spins {
            self.end_nap();
        }
    }

    /// Whether a [rest](Self::rest) may follow: the task sleeps, or spins after a nap, and not for all polls
    #[inline]
    fn may_rest(&self, idle: u32, spins: u32) -> bool {
        idle >= spins || spins < self.policy.spins
    }

    fn note_poller(&self) {
        let here = this_thread();
        if self.poller.load(Ordering::Relaxed) != here {
            self.poller.store(here, Ordering::Relaxed);
            // What the other thread has posted looked like a post of the task.
            self.is_awaited.store(true, Ordering::Relaxed);
        }
    }

    /// Ends the spinning that follows a nap: the task sleeps on, as if nothing had completed and its thread had posted nothing
    pub(crate) fn rest(&self) {
        if self.is_awaited.swap(false, Ordering::Relaxed) {
            return;
        }
        let spins = self.spins.load(Ordering::Relaxed);
        if spins < self.policy.spins && self.idle.load(Ordering::Relaxed) < spins {
            self.idle.store(spins, Ordering::Relaxed);
            self.naps.store(self.naps_before.load(Ordering::Relaxed), Ordering::Relaxed);
            if let Some(timer) = &*lock(&self.timer) {
                lock(&timer.request).is_cut = false;
            }
        }
    }

    #[cold]
    fn end_nap(&self) {
        self.spin_after_nap();
        self.reset();
        if let Some(timer) = &*lock(&self.timer) {
            timer.cut();
        }
    }

    /// Makes the task of `cx` run again: at once while it spins, after a nap when nothing has completed for long
    ///
    /// Returns whether it is after a nap.
    pub(crate) fn wait(&self, cx: &Context<'_>, has_found: bool) -> bool {
        let mut idle = self.idle.load(Ordering::Relaxed).saturating_add(1);
        let mut spins = self.spins.load(Ordering::Relaxed);
        if self.may_rest(idle, spins) {
            self.note_poller();
        }
        if has_found {
            spins = if idle > spins { self.spin_after_nap() } else { self.spin_on() };
            idle = 0;
        }
        if idle < spins || self.policy.nap.is_zero() {
            self.idle.store(idle, Ordering::Relaxed);
            cx.waker().wake_by_ref();
            return false;
        }
        // A post may reset the number meanwhile. No run of naps is long enough to overflow `idle`.
        self.idle.fetch_add(1, Ordering::Relaxed);
        let sleeps = self.wake_after(self.next_nap(), cx.waker());
        if !sleeps {
            self.reset();
            cx.waker().wake_by_ref();
        }
        sleeps
    }

    /// How long the task sleeps
    pub(crate) fn next_nap(&self) -> Duration {
        let nap = self.policy.nap_after(self.naps.load(Ordering::Relaxed));
        if nap < self.policy.longest_nap {
            self.naps.fetch_add(1, Ordering::Relaxed);
        }
        nap
    }

    /// Spins for a short time, because the task has slept; returns for how many polls
    fn spin_after_nap(&self) -> u32 {
        let naps = self.naps.load(Ordering::Relaxed);
        self.naps_before.store(naps, Ordering::Relaxed);
        self.naps.store(naps.saturating_sub(TWO_STEPS_BACK), Ordering::Relaxed);
        let spins = (self.policy.spins / AFTER_NAP).max(1).min(self.policy.spins);
        self.spins.store(spins, Ordering::Relaxed);
        spins
    }

    /// Spins for longer, because something has completed while the task has spun; returns for how many polls
    fn spin_on(&self) -> u32 {
        let spins = self.spins.load(Ordering::Relaxed).saturating_mul(2).min(self.policy.spins);
        self.spins.store(spins, Ordering::Relaxed);
        if spins == self.policy.spins {
            self.naps.store(0, Ordering::Relaxed);
        }
        spins
    }

    /// Waits until the thread of the timer has noted that a nap was cut short
    #[cfg(test)]
    pub(crate) fn await_cut(&self) {
        while lock(&self.timer).as_ref().is_some_and(|timer| lock(&timer.request).is_cut) {
            std::thread::yield_now();
        }
    }

    /// Wakes a task after a nap; false if a post has ended the nap already
    fn wake_after(&self, nap: Duration, waker: &Waker) -> bool {
        lock(&self.timer).get_or_insert_with(WakeTimer::start).schedule(nap, waker)
    }
}

impl WakeTimer {
    fn start() -> Arc<Self> {
        let timer = Arc::new(Self { request: Mutex::new(Request::default()), changed: Condvar::new() });
        let thread = Arc::clone(&timer);
        spawn(move || thread.run());
        timer
    }

    /// Schedules a task, at the end of a nap under way unless `nap` is shorter; false if the nap has been cut
    fn schedule(&self, nap: Duration, waker: &Waker) -> bool {
        let mut request = lock(&self.request);
        if std::mem::take(&mut request.is_cut) {
            return false;
        }
        match &mut request.wake {
            Some(old) => old.clone_from(waker),
            none => *none = Some(waker.clone()),
        }
        request.nap = nap;
        if request.under_way.is_none_or(|under_way| nap < under_way) {
            drop(request);
            self.changed.notify_one();
        }
        true
    }

    /// Ends the nap, or the next one
    fn cut(&self) {
        lock(&self.request).is_cut = true;
        self.changed.notify_one();
    }

    /// Wakes each scheduled task after a nap, until [`end`](Self::end)
    fn run(&self) {
        let mut request = lock(&self.request);
        let mut is_expected = false;
        loop {
            while !is_expected && request.wake.is_none() && !request.is_over {
                request = self.changed.wait(request).unwrap_or_else(PoisonError::into_inner);
            }
            let mut has_ended = false;
            while !has_ended && !request.is_cut && !request.is_over {
                let nap = request.nap;
                request.under_way = Some(nap);
                (request, has_ended) = wait_for(&self.request, &self.changed, request, nap);
            }
            if request.is_over {
                return;
            }
            request.under_way = None;
            // A task that is woken asks for its next nap: it begins now, which saves a switch to this thread.
            is_expected = has_ended && request.wake.is_some();
            let Some(waker) = request.wake.take() else { continue };
            request.is_cut = false;
            drop(request);
            waker.wake();
            request = lock(&self.request);
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

/// A number that no other thread has at the same time
fn this_thread() -> usize {
    thread_local!(static HERE: u8 = const { 0 });
    HERE.with(|here| (&raw const *here).addr())
}

/// Locks, whether or not a thread has panicked under the lock
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn naps_grow_with_the_time_that_was_waited() {
        let policy = PollPolicy::default();
        let micros = |naps| policy.nap_after(naps).as_micros();
        assert_eq!([0, 7, 8, 16, 40, 55].map(micros), [100, 100, 200, 400, 3200, 6400]);
        assert_eq!([56, 1000, u32::MAX].map(micros), [10_000; 3]);
        for naps in 8..56 {
            let waited: u128 = (0..naps).map(micros).sum();
            let share = micros(naps) as f64 / waited as f64;
            assert!((0.0625..=0.25).contains(&share), "{naps}: {share}");
        }
    }

    #[test]
    fn naps_never_become_shorter_than_the_first() {
        let policy = PollPolicy { nap: Duration::from_millis(19), ..PollPolicy::default() };
        assert_eq!([0, 8, 900].map(|naps| policy.nap_after(naps)), [policy.nap; 3]);
        let longest = PollPolicy { nap: Duration::MAX, ..policy };
        assert_eq!(longest.nap_after(u32::MAX), Duration::MAX);
    }
}
