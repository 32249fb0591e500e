//! Calls of a device that may block, off the executor
//!
//! Verbs of connecting and of teardown may take seconds, or never return (field reports). They run where the runtime lets calls block, and a
//! bound is kept on each. After it, the call is reported, its objects are abandoned, and the device is left alone until the call returns.
//!
//! Posts and polls stay on the executor, without a bound: they touch rings in the memory of the process, and no source reports one that blocks.
//! A device may [report](rdma_core::Device::blocked) one that does not return.

use std::future::poll_fn;
use std::mem::ManuallyDrop;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use rdma_core::Runtime;
use tracing::{Instrument as _, Span};

use crate::blocked_call::{BlockedCall, DeviceCall};
use crate::sync::Mutex;

/// What the devices of a node have not returned from
///
/// ```
/// # rdma_sim::Sim::new().run(async |net| {
/// use rdma_async::{DeviceStats, Node};
///
/// let node = Node::builder(net.opener("a", "rdma_en2")).runtime(net.runtime()).build()?;
/// let stats: DeviceStats = node.device_stats();
/// assert_eq!((stats.blocked_calls, stats.abandoned), (0, 0));
/// # Ok::<_, rdma_async::NodeError>(())
/// # }).value.unwrap();
/// ```
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub struct DeviceStats {
    /// Calls that have not returned within [`device_timeout`](crate::NodeOptions::device_timeout), and still have not; each keeps a thread
    pub blocked_calls: usize,
    /// Open devices that [report](rdma_core::Device::blocked) a post or a poll which does not return; it keeps the thread of the task that has
    /// made it
    pub blocked_devices: usize,
    /// Paths, devices and registrations that a device was never asked to give up, because it was blocked: they are kept. And those that it
    /// did not give up in time: they are freed if the call returns later
    pub abandoned: u64,
}

/// The calls of one device
pub(crate) struct DeviceCalls {
    runtime: Arc<dyn Runtime>,
    limit: Duration,
    /// Calls that were reported, and have not returned.
    blocked: AtomicUsize,
    abandoned: AtomicU64,
    latest: Mutex<Option<BlockedCall>>,
}

/// What is done with the outcome of a call: by the thread of the call, or when the limit has passed
type Done<T> = Box<dyn FnOnce(Result<T, BlockedCall>) + Send>;

/// The queries of the device that a lasting call makes: odd while one is under way
#[derive(Default)]
pub(crate) struct Progress(AtomicU32);

impl Progress {
    /// Calls the device
    pub(crate) fn during<T>(&self, query: impl FnOnce() -> T) -> T {
        self.0.fetch_add(1, Ordering::Relaxed);
        let answer = query();
        self.0.fetch_add(1, Ordering::Relaxed);
        answer
    }
}

/// Looks within the limit of a lasting call, which count as long as they find the device in the same query.
///
/// Looks are counted instead of time: a process that was stopped, and a machine that slept, have made no progress meanwhile.
const LOOKS: u32 = 4;

/// A call that is under way
struct Pending<T> {
    /// `None` once the outcome is known.
    done: Mutex<Option<Done<T>>>,
    watcher: Mutex<Option<Waker>>,
}

impl DeviceCalls {
    pub(crate) fn new(runtime: &Arc<dyn Runtime>, limit: Duration) -> Self {
        Self {
            runtime: Arc::clone(runtime),
            limit,
            blocked: AtomicUsize::new(0),
            abandoned: AtomicU64::new(0),
            latest: Mutex::new(None),
        }
    }

    /// The latest call that has not returned in time, while the device is left alone because of it
    pub(crate) fn blocked(&self) -> Option<BlockedCall> {
        if self.blocked.load(Ordering::Acquire) == 0 { None } else { *self.latest.lock() }
    }

    /// How many calls have not returned in time and still have not
    pub(crate) fn blocked_count(&self) -> usize {
        self.blocked.load(Ordering::Acquire)
    }

    /// How many objects, or paths with their objects, were never given back to the device
    pub(crate) fn abandoned(&self) -> u64 {
        self.abandoned.load(Ordering::Relaxed)
    }

    /// Whether a call may sleep: time passes for its thread as for the tasks
    pub(crate) fn may_sleep(&self) -> bool {
        self.runtime.is_real_time()
    }

    /// Sleeps until the clock shows a multiple of `interval`: at the same time as other calls, so that a processor rests longer between them
    pub(crate) fn sleep_until_next(&self, interval: Duration) {
        let (now, interval) = (self.runtime.now().as_nanos(), interval.as_nanos() as u64);
        std::thread::sleep(Duration::from_nanos(interval - now % interval));
    }

    /// Runs `f`, and `done` with its outcome; a device that is blocked is not called
    ///
    /// `done` runs once: at once, on the thread of the call, or on a task when the limit has passed.
    pub(crate) fn start<T: Send + 'static>(
        self: &Arc<Self>,
        call: DeviceCall,
        f: impl FnOnce() -> T + Send + 'static,
        done: impl FnOnce(Result<T, BlockedCall>) + Send + 'static,
    ) {
        self.start_watched(call, None, f, done);
    }

    /// As [`start`](Self::start), for a call that makes many queries: each has the limit, and is reported up to a quarter of it late
    pub(crate) fn start_lasting<T: Send + 'static>(
        self: &Arc<Self>,
        call: DeviceCall,
        f: impl FnOnce(&Progress) -> T + Send + 'static,
        done: impl FnOnce(Result<T, BlockedCall>) + Send + 'static,
    ) {
        let progress = Arc::new(Progress::default());
        let of_call = Arc::clone(&progress);
        self.start_watched(call, Some(progress), move || f(&of_call), done);
    }

    fn start_watched<T: Send + 'static>(
        self: &Arc<Self>,
        call: DeviceCall,
        progress: Option<Arc<Progress>>,
        f: impl FnOnce() -> T + Send + 'static,
        done: impl FnOnce(Result<T, BlockedCall>) + Send + 'static,
    ) {
        if let Some(blocked) = self.blocked() {
            drop(f);
            return done(Err(blocked));
        }
        let pending =
            Arc::new(Pending { done: Mutex::new(Some(Box::new(done) as _)), watcher: Mutex::new(None) });
        let (calls, of_call, span) = (Arc::clone(self), Arc::clone(&pending), Span::current());
        self.runtime.spawn_blocking(Box::new(move || {
            let value = span.in_scope(f);
            Box::new(move || {
                let _entered = span.enter();
                match of_call.take() {
                    Some(done) => done(Ok(value)),
                    None => {
                        // First: what the value holds is given back to the device only if that is not blocked.
                        calls.returned(call);
                        drop(value);
                    }
                }
            })
        }));
        if !pending.is_done() {
            self.watch(call, pending, progress);
        }
    }

    /// Reports the call if it does not return in time
    fn watch<T: Send + 'static>(
        self: &Arc<Self>,
        call: DeviceCall,
        pending: Arc<Pending<T>>,
        progress: Option<Arc<Progress>>,
    ) {
        let calls = Arc::clone(self);
        let mut timer = self.runtime.timer();
        timer.as_mut().reset(self.runtime.now() + self.limit / progress.as_ref().map_or(1, |_| LOOKS));
        let watching = async move {
            let (mut made, mut looks) = (0, 0);
            let expired = poll_fn(|cx| {
                if pending.poll_done(cx).is_ready() {
                    return Poll::Ready(false);
                }
                while timer.as_mut().poll_expired(cx).is_ready() {
                    let Some(progress) = &progress else { return Poll::Ready(true) };
                    let before = std::mem::replace(&mut made, progress.0.load(Ordering::Relaxed));
                    looks = if before == made && made % 2 == 1 { looks + 1 } else { 0 };
                    if looks == LOOKS {
                        return Poll::Ready(true);
                    }
                    timer.as_mut().reset(calls.runtime.now() + calls.limit / LOOKS);
                }
                Poll::Pending
            });
            if expired.await
                && let Some(done) = pending.take_for(&calls, call)
            {
                let waited = calls.limit;
                tracing::warn!(%call, ?waited, "a device does not return from a call: it is left alone until it does");
                done(Err(BlockedCall { call, waited }));
            }
        };
        self.runtime.spawn(Box::pin(watching.in_current_span()));
    }

    /// Runs `f`; returns its outcome. The call drops `guard` when `f` has returned or is reported, also if this future is dropped before
    pub(crate) async fn run<T: Send + 'static>(
        self: &Arc<Self>,
        call: DeviceCall,
        f: impl FnOnce() -> T + Send + 'static,
        guard: impl Send + 'static,
    ) -> Result<T, BlockedCall> {
        let outcome = Arc::new(Mutex::new((None, None::<Waker>)));
        let place = Arc::clone(&outcome);
        self.start(call, f, move |result| {
            let mut locked = place.lock();
            locked.0 = Some(result);
            let waker = locked.1.take();
            drop(locked);
            drop((place, guard));
            waker.into_iter().for_each(Waker::wake);
        });
        poll_fn(|cx| {
            let mut outcome = outcome.lock();
            match outcome.0.take() {
                Some(result) => Poll::Ready(result),
                None => {
                    let before = outcome.1.replace(cx.waker().clone());
                    drop(outcome);
                    drop(before);
                    Poll::Pending
                }
            }
        })
        .await
    }

    /// Drops `value`, of which the destructor calls the device; while the device is blocked, `value` is kept for good
    pub(crate) fn discard<T: Send + 'static>(self: &Arc<Self>, call: DeviceCall, value: T) {
        let calls = Arc::clone(self);
        // A call that is never made keeps it, too.
        let kept = ManuallyDrop::new(value);
        let drops = move || drop(ManuallyDrop::into_inner(kept));
        self.start(call, drops, move |outcome| {
            if outcome.is_err() {
                calls.count_abandoned();
            }
        });
    }

    /// Counts something that its device has not given up in time: freed if the call returns later, and else kept
    pub(crate) fn count_abandoned(&self) {
        self.abandoned.fetch_add(1, Ordering::Relaxed);
    }

    fn reported(&self, call: DeviceCall) {
        let blocked = BlockedCall { call, waited: self.limit };
        *self.latest.lock() = Some(blocked);
        self.blocked.fetch_add(1, Ordering::Release);
    }

    fn returned(&self, call: DeviceCall) {
        self.blocked.fetch_sub(1, Ordering::Release);
        tracing::info!(%call, "a device has returned from a call that was given up");
    }
}

impl<T> Pending<T> {
    /// Takes what is to be done with the outcome, unless that was done
    fn take(&self) -> Option<Done<T>> {
        let done = self.done.lock().take();
        let watcher = self.watcher.lock().take();
        watcher.into_iter().for_each(Waker::wake);
        done
    }

    /// As [`take`](Self::take), when the limit has passed; the device counts as blocked before its call can return
    fn take_for(&self, calls: &DeviceCalls, call: DeviceCall) -> Option<Done<T>> {
        let mut place = self.done.lock();
        let done = place.take();
        if done.is_some() {
            calls.reported(call);
        }
        done
    }

    fn is_done(&self) -> bool {
        self.done.lock().is_none()
    }

    fn poll_done(&self, cx: &Context<'_>) -> Poll<()> {
        let before = self.watcher.lock().replace(cx.waker().clone());
        drop(before);
        if self.is_done() { Poll::Ready(()) } else { Poll::Pending }
    }
}
