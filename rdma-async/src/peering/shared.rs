//! A peering as the reactor, its task and its sessions share it

use std::mem::ManuallyDrop;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, Waker};

use rdma_core::probe::{self, Observer};
use rdma_core::session::{PathId, PathLoss, Priority, SessionId, Side, StreamId};
use rdma_core::{Completion, Device, Runtime, Time};
use tracing::Span;

use super::application::{Awaited, Queued};
use super::body::{Body, Effects};
use super::session_state::SessionState;
use super::state::{EndedPath, State};
use super::stream_state::{StreamKey, StreamState};
use crate::blocked_call::{BlockedCall, DeviceCall};
use crate::error::{OpenError, SendError, SessionError};
use crate::node_id::NodeId;
use crate::pool::{Lease, Pool};
use crate::send_failed::SendFailed;
use crate::sync::{Mutex, MutexGuard};
use crate::wait_queue::{SharedWaitQueue, Waiter};

/// The state of a peering under its one lock
///
/// Each method locks, asks the [`State`], unlocks, and runs the effects.
pub(crate) struct PeeringShared<D: Device> {
    pub(crate) peer: NodeId,
    pub(crate) pool: Pool,
    /// Wakes the reactor.
    reactor: Waker,
    pub(crate) runtime: Arc<dyn Runtime>,
    /// The spans of its paths and sessions are inside of this one.
    pub(crate) span: Span,
    /// When the reactor must look at this peering, in nanoseconds.
    wake_at: AtomicU64,
    state: Mutex<State<D>>,
    /// As [`State::take_activity`], since the reactor has asked.
    is_active: AtomicBool,
    /// How many threads have unlocked the state and still give memory back.
    giving_back: AtomicUsize,
    /// Wakes the task that accepts sessions and makes paths.
    news: SharedWaitQueue<bool>,
    /// This peering, for devices that stop working for it later.
    this: Weak<Self>,
}

impl<D: Device> PeeringShared<D> {
    pub(crate) fn new(
        peer: NodeId,
        pool: Pool,
        reactor: Waker,
        runtime: Arc<dyn Runtime>,
        state: State<D>,
        span: Span,
    ) -> Arc<Self> {
        let news = SharedWaitQueue::for_all("news of its peering", false, 2);
        let (wake_at, state) = (AtomicU64::new(0), Mutex::new(state));
        Arc::new_cyclic(|this| Self {
            peer,
            pool,
            reactor,
            runtime,
            span,
            wake_at,
            state,
            is_active: AtomicBool::new(false),
            giving_back: AtomicUsize::new(0),
            news,
            this: Weak::clone(this),
        })
    }

    /// As [`update`](Self::update), for what depends on the time
    #[inline]
    pub(crate) fn with<R>(&self, f: impl FnOnce(&mut State<D>, Time, &mut Effects) -> R) -> R {
        let now = self.runtime.now();
        self.update(|state, effects| f(state, now, effects))
    }

    #[inline]
    pub(crate) fn update<R>(&self, f: impl FnOnce(&mut State<D>, &mut Effects) -> R) -> R {
        let mut effects = Effects::new();
        let mut state = self.state.lock();
        let result = f(&mut state, &mut effects);
        // Under the lock: the reactor may be about to store a later time.
        if effects.is_reactor_due() {
            self.wake_at.store(0, Ordering::Relaxed);
        }
        self.unlock(state, &mut effects);
        result
    }

    /// Unlocks the state, runs the effects, wakes the task of the peering, and stops the hardware of paths that have ended
    #[inline]
    fn unlock(&self, mut state: MutexGuard<'_, State<D>>, effects: &mut Effects) {
        if state.take_activity() {
            self.is_active.store(true, Ordering::Relaxed);
        }
        let observer = probe::peering_observer();
        if state.has_news() || !state.has_stopped() || effects.holds_values() || observer.is_some() {
            return self.unlock_with_news(state, effects, observer);
        }
        drop(state);
        effects.run(&self.reactor);
    }

    /// As [`unlock`](Self::unlock), if there is more than wakers
    #[inline(never)]
    fn unlock_with_news(
        &self,
        mut state: MutexGuard<'_, State<D>>,
        effects: &mut Effects,
        observer: Option<Rc<dyn Observer>>,
    ) {
        let has_news = state.has_news();
        let hardware = state.take_ended();
        let watching = observer.map(|observer| (observer, state.side(), state.probe()));
        let giving_back = effects.holds_values().then(|| GivingBack::begin(&self.giving_back));
        drop(state);
        effects.run(&self.reactor);
        drop(giving_back);
        if has_news {
            self.news.update(|has_news| *has_news = true);
        }
        self.stop_all(hardware);
        if let Some((observer, side, state)) = watching {
            observer.peering(side == Side::Connecting, state);
        }
    }

    /// Whether the devices have given up every path that has ended, and the memory for it is free
    pub(crate) fn has_stopped(&self) -> bool {
        self.state.lock().has_stopped() && self.giving_back.load(Ordering::Acquire) == 0
    }

    /// Lets devices give up what they have for paths that have ended, where that may block
    fn stop_all(&self, hardware: Vec<EndedPath<D>>) {
        for EndedPath { key, hardware, calls, attempt, is_quiesced, span } in hardware {
            let _entered = span.enter();
            let Some(this) = self.this.upgrade() else {
                // The runtime has dropped its tasks: no other one is kept waiting.
                self.path_stopped(key, Ok(hardware.quiesce()));
                continue;
            };
            let hardware = ManuallyDrop::new(hardware);
            let of_device = Arc::clone(&calls);
            calls.start(
                DeviceCall::Stop,
                move || {
                    let is_proven = ManuallyDrop::into_inner(hardware).quiesce();
                    is_quiesced.store(is_proven, Ordering::Release);
                    is_proven
                },
                move |outcome| {
                    if outcome.is_err() {
                        of_device.count_abandoned();
                    }
                    this.path_stopped(key, outcome);
                    drop(attempt);
                },
            );
        }
    }

    fn path_stopped(&self, key: u32, outcome: Result<bool, BlockedCall>) {
        self.with(|state, now, effects| state.path_stopped(key, outcome, now, effects));
    }

    /// Does something with a session that has a handle
    #[inline]
    pub(crate) fn with_session<R>(
        &self,
        id: SessionId,
        f: impl FnOnce(&mut SessionState, &mut Effects) -> R,
    ) -> R {
        self.update(|state, effects| f(state.session(id).expect("a session with a handle is there"), effects))
    }

    /// Does something with a stream that has a handle
    #[inline]
    pub(crate) fn with_stream<R>(
        &self,
        key: StreamKey,
        f: impl FnOnce(&mut StreamState, &mut Effects) -> R,
    ) -> R {
        self.update(|state, effects| f(state.stream(key).expect("a stream with a handle is there"), effects))
    }

    pub(crate) fn poll_open_stream(
        &self,
        id: SessionId,
        priority: Priority,
        waiter: &mut Waiter,
        cx: &Context<'_>,
    ) -> Poll<Result<StreamId, OpenError>> {
        self.with(|state, now, effects| state.poll_open_stream(id, priority, waiter, cx, now, effects))
    }

    pub(crate) fn poll_send(
        &self,
        key: StreamKey,
        message: &mut Option<Body>,
        awaits_delivery: bool,
        waiter: &mut Waiter,
        cx: &Context<'_>,
    ) -> Poll<Result<Queued, SendFailed>> {
        if let Some(Body::Lease(foreign)) =
            message.take_if(|message| matches!(message, Body::Lease(lease) if !self.pool.owns(lease)))
        {
            return Poll::Ready(Err(SendFailed { error: SendError::ForeignLease, lease: Some(foreign) }));
        }
        self.with(|state, now, effects| {
            let awaited = if awaits_delivery { Awaited::Delivery } else { Awaited::Memory };
            state.poll_send(key, message, waiter, awaited, cx, now, effects)
        })
    }

    /// Queues a message in a place that was claimed
    pub(crate) fn send_claimed(&self, key: StreamKey, slot: u32, message: Body) -> Result<(), SendFailed> {
        let message = match message {
            Body::Lease(foreign) if !self.pool.owns(&foreign) => {
                self.with_stream(key, |stream, effects| stream.ops.release(slot, effects));
                return Err(SendFailed { error: SendError::ForeignLease, lease: Some(foreign) });
            }
            message => message,
        };
        self.with(|state, now, effects| state.send_claimed(key, slot, message, now, effects))
    }

    pub(crate) fn try_send(&self, key: StreamKey, message: Lease) -> Result<(), SendFailed> {
        if !self.pool.owns(&message) {
            return Err(SendFailed { error: SendError::ForeignLease, lease: Some(message) });
        }
        self.with(|state, now, effects| state.try_send(key, message, now, effects))
    }

    /// Takes in completions, all of path `path`
    pub(crate) fn on_completions(
        &self,
        path: PathId,
        completions: &[Completion],
        now: Time,
        effects: &mut Effects,
    ) {
        let mut state = self.state.lock();
        let mut is_due = false;
        for completion in completions {
            is_due |= state.on_completion(path, completion, now, effects);
        }
        if is_due {
            let rests_until = if effects.is_reactor_due() { None } else { state.rest(now) };
            self.wake_at.store(rests_until.map_or(0, Time::as_nanos), Ordering::Relaxed);
        }
        self.unlock(state, effects);
    }

    /// As [`State::take_activity`], without the lock
    #[inline]
    pub(crate) fn take_activity(&self) -> bool {
        self.is_active.load(Ordering::Relaxed) && self.is_active.swap(false, Ordering::Relaxed)
    }

    /// As [`State::drive`], if it is time; returns when to call again
    pub(crate) fn drive(
        &self,
        reported: Time,
        now: Time,
        cx: &mut Context<'_>,
        effects: &mut Effects,
    ) -> Option<Time> {
        let wake_at = Time::from_nanos(self.wake_at.load(Ordering::Relaxed));
        if now < wake_at {
            return Some(wake_at);
        }
        let mut state = self.state.lock();
        let wake = state.drive(reported, now, cx, effects);
        // Memory that comes free wakes the reactor, and not this peering.
        let wake_at = if state.waits_for_memory() { Some(Time::ZERO) } else { wake };
        self.wake_at.store(wake_at.map_or(u64::MAX, Time::as_nanos), Ordering::Relaxed);
        self.unlock(state, effects);
        wake
    }

    /// As [`State::expect_nothing`]
    pub(crate) fn expect_nothing(&self, now: Time, effects: &mut Effects) {
        let mut state = self.state.lock();
        if state.expect_nothing(now, effects) {
            self.wake_at.store(0, Ordering::Relaxed);
        }
        self.unlock(state, effects);
    }

    /// Why the peering is over
    pub(crate) fn error(&self) -> Option<SessionError> {
        self.state.lock().error().cloned()
    }

    /// Waits for something that the task of the peering must do
    pub(crate) fn poll_news(&self, waiter: &mut Waiter, cx: &Context<'_>) -> Poll<()> {
        self.news.poll_take_alone(waiter, cx, |has_news| std::mem::take(has_news).then_some(()))
    }

    /// A path has failed, as the device or the peer says
    pub(crate) fn lose_path(&self, path: PathId) {
        self.with(|state, now, effects| state.lose_path(path, PathLoss::Device, now, effects));
    }

    /// Gives up all paths, which are then made again
    pub(crate) fn break_paths(&self) {
        self.with(|state, now, effects| state.lose_all_paths(PathLoss::Broken, now, effects));
    }

    pub(crate) fn fail(&self, error: &SessionError) {
        self.update(|state, effects| state.fail(error, effects));
    }
}

/// A thread that gives memory back, until it is dropped
struct GivingBack<'a>(&'a AtomicUsize);

impl<'a> GivingBack<'a> {
    fn begin(count: &'a AtomicUsize) -> Self {
        // The lock, which is held, orders it before the look of `has_stopped`.
        count.fetch_add(1, Ordering::Relaxed);
        Self(count)
    }
}

impl Drop for GivingBack<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Release);
    }
}

impl<D: Device> Drop for PeeringShared<D> {
    fn drop(&mut self) {
        self.fail(&SessionError::RuntimeGone);
    }
}
