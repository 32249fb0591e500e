//! The task that turns completions into progress

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use rdma_core::session::PathId;
use rdma_core::{Completion, CompletionQueue, Device, Time, Timer};

use super::inner::{NodeInner, Route};
use super::port::{OpenPort, Port};
use crate::error::SessionError;
use crate::peering::body::Effects;
use crate::peering::request::Request;
use crate::peering::shared::PeeringShared;

/// Polls the completion queues of a node and drives its peerings
///
/// Ends when the node and all of its peerings are gone. If the runtime drops it before, the sessions are lost.
pub(super) struct Reactor<D: Device> {
    node: Arc<NodeInner<D>>,
    timer: Pin<Box<dyn Timer>>,
    /// Wakes this task for everything but completions.
    waker: Waker,
    /// The waker of this task, as `waker` knows it.
    task: Option<Waker>,
    /// When the timer expires.
    timer_deadline: Time,
    batch: Box<[Completion]>,
    peerings: Vec<Arc<PeeringShared<D>>>,
    /// The path that completed something last, as the node knows it, and where its peering is in `peerings`.
    latest: Option<Latest>,
    /// The devices that are open.
    ports: Vec<Arc<OpenPort<D>>>,
    /// How often ports had changed when `ports` was filled.
    port_changes: Option<u32>,
    effects: Effects,
    intake: Intake,
    /// When there was more than the upkeep of paths the last time.
    active_at: Time,
    /// How many shortages of memory the peerings know of.
    seen_shortages: u64,
}

/// Completions taken from a queue at once.
const BATCH: usize = 32;
/// Without messages for so long, what completes is upkeep, and no task waits for what follows.
const QUIET: Duration = Duration::from_millis(10);
/// Iterations before other tasks are let in.
const MAX_ITERATIONS: usize = 16;

/// Up to when all completions have been handed to the peerings, also while the queues are never found empty
struct Intake {
    /// Everything that had completed by then was handed over.
    until: Time,
    /// Becomes `until` after so many more polls of each queue, of which each found as much as it had room for.
    next: Time,
    missing_polls: u64,
    /// Polls that find everything which can wait in a queue.
    polls: u64,
}

/// A path whose completions are dispatched without a look at the routes of the node
#[derive(Clone, Copy)]
struct Latest {
    /// No other path ever has it.
    key: u32,
    path: PathId,
    peering: usize,
}

impl Intake {
    fn new(max_completions: u64) -> Self {
        let polls = max_completions.div_ceil(BATCH as u64);
        Self { until: Time::ZERO, next: Time::ZERO, missing_polls: polls, polls }
    }

    /// Notes that each queue was polled once, and whether that has emptied them
    fn polled(&mut self, is_drained: bool, now: Time) {
        self.missing_polls -= 1;
        if is_drained {
            self.until = now;
        } else if self.missing_polls == 0 {
            self.until = self.next;
        } else {
            return;
        }
        (self.next, self.missing_polls) = (now, self.polls);
    }
}

impl<D: Device> Reactor<D> {
    pub(super) fn new(node: Arc<NodeInner<D>>, timer: Pin<Box<dyn Timer>>) -> Self {
        let waker = node.reactor_waker();
        let intake = Intake::new(node.options.max_completions());
        Self {
            node,
            timer,
            waker,
            task: None,
            timer_deadline: Time::MAX,
            batch: vec![Completion::default(); BATCH].into(),
            peerings: Vec::new(),
            latest: None,
            ports: Vec::new(),
            port_changes: None,
            effects: Effects::with_capacity(2 * BATCH),
            intake,
            active_at: Time::ZERO,
            seen_shortages: 0,
        }
    }

    fn run(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if !self.task.as_ref().is_some_and(|waker| waker.will_wake(cx.waker())) {
            self.task = Some(cx.waker().clone());
            self.node.reactor.set(cx.waker().clone());
        }
        let mut is_due = false;
        for _ in 0..MAX_ITERATIONS {
            // Before the look at the queues: a wake-up that comes later schedules this task again.
            if self.node.reactor.take() {
                is_due = true;
                self.look_for_ports();
            }
            let (count, is_drained) = self.poll_queues(cx);
            // Most polls of a task that spins end here.
            if count == 0 && !is_due {
                return Poll::Pending;
            }
            let now = self.node.runtime.now();
            self.intake.polled(is_drained, now);
            let wake = self.drive(now);
            if self.peerings.is_empty() && !self.node.is_held() {
                return Poll::Ready(());
            }
            if now >= self.active_at + QUIET {
                self.ports.iter().for_each(|port| port.cq().rest());
            }
            if self.arm_timer(wake, now) && is_drained {
                return Poll::Pending;
            }
            is_due = true;
        }
        self.waker.wake_by_ref();
        Poll::Pending
    }

    /// Lists the devices that are open, if one was opened or let go of
    fn look_for_ports(&mut self) {
        let Self { node, ports, port_changes, .. } = self;
        let changes = node.ports.iter().map(Port::changes).fold(0, u32::wrapping_add);
        if port_changes.replace(changes) != Some(changes) {
            ports.clear();
            ports.extend(node.ports.iter().filter_map(Port::current));
        }
    }

    /// Hands what has completed to the peerings; returns how much that is, and whether the queues are empty
    fn poll_queues(&mut self, cx: &mut Context<'_>) -> (usize, bool) {
        let Self { node, batch, peerings, latest, ports, effects, .. } = self;
        let (mut count, mut is_drained) = (0, true);
        ports.retain(|port| match port.cq().poll_completions(cx, batch) {
            Poll::Pending => true,
            Poll::Ready(Ok(n)) => {
                count += n;
                is_drained &= n < BATCH;
                let now = node.runtime.now();
                let key = |completion: &Completion| Request::parse(completion.id).0;
                for run in batch[..n].chunk_by(|one, other| key(one) == key(other)) {
                    let key = key(&run[0]);
                    if let Some(Latest { path, peering, .. }) = latest.filter(|latest| latest.key == key) {
                        peerings[peering].on_completions(path, run, now, effects);
                    } else if let Some(Route { peering, path, .. }) = node.route(key) {
                        let index = peerings.iter().position(|other| Arc::ptr_eq(other, &peering));
                        *latest = index.map(|index| Latest { key, path, peering: index });
                        peering.on_completions(path, run, now, effects);
                    }
                }
                true
            }
            Poll::Ready(Err(_)) => {
                // Nothing completes there any more: the device is opened anew.
                if let Some(index) = node.ports.iter().position(|other| other.forget_open(port)) {
                    let lost = node.routes().into_iter().filter(|route| route.port == index);
                    lost.for_each(|route| route.peering.lose_path(route.path));
                }
                false
            }
        });
        (count, is_drained)
    }

    /// Drives the peerings that have something to do and returns when to drive the next of them again
    fn drive(&mut self, now: Time) -> Time {
        let Self { node, waker, peerings, latest, effects, intake, active_at, seen_shortages, .. } = self;
        let cx = &mut Context::from_waker(waker);
        node.joining.take_into(peerings);
        let (mut wake, count) = (Time::MAX, peerings.len());
        peerings.retain(|peering| {
            let at = peering.drive(intake.until, now, cx, effects);
            if peering.take_activity() {
                *active_at = now;
            }
            wake = at.map_or(wake, |at| wake.min(at));
            at.is_some()
        });
        if peerings.len() < count {
            *latest = None;
        }
        let shortages = node.pool.shortages();
        if std::mem::replace(seen_shortages, shortages) != shortages {
            peerings.iter().for_each(|peering| peering.expect_nothing(now, effects));
            // They ask their peers to answer what was granted.
            wake = now;
        }
        wake
    }

    /// Sees to it that the timer expires by `wake`; false if it has already
    ///
    /// Deadlines move with each message. The timer is left to expire too early rather than moved along.
    fn arm_timer(&mut self, wake: Time, now: Time) -> bool {
        let is_due = self.timer_deadline <= now;
        if !is_due && self.timer_deadline <= wake {
            return true;
        }
        self.timer_deadline = wake;
        self.timer.as_mut().reset(wake);
        self.timer.as_mut().poll_expired(&mut Context::from_waker(&self.waker)).is_pending()
    }
}

impl<D: Device> Future for Reactor<D> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        self.run(cx)
    }
}

impl<D: Device> Drop for Reactor<D> {
    fn drop(&mut self) {
        self.node.joining.close_into(&mut self.peerings);
        for peering in self.peerings.drain(..) {
            peering.fail(&SessionError::RuntimeGone);
        }
        // No task of the node is left.
        self.node.close();
    }
}
