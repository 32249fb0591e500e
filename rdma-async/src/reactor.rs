//! The task that turns completions into progress

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use rdma_core::{Completion, CompletionQueue, Device, Time, Timer};

use crate::connection::shared::ConnectionShared;
use crate::endpoint_inner::EndpointInner;
use crate::error::ConnectionError;
use crate::pool::Effects;

/// Polls the completion queue of an endpoint and drives its connections
///
/// Ends when the endpoint and all of its connections are gone. If the runtime drops it before, the connections are lost.
pub(crate) struct Reactor<D: Device> {
    endpoint: Arc<EndpointInner<D>>,
    timer: Pin<Box<dyn Timer>>,
    /// Wakes this task for everything but completions.
    waker: Waker,
    /// The waker of this task, as `waker` knows it.
    task: Option<Waker>,
    /// When the timer expires.
    timer_deadline: Time,
    batch: Box<[Completion]>,
    /// The completion queue cannot be polled any more.
    is_failed: bool,
    /// The connections were told that the endpoint is closed.
    is_closed: bool,
    connections: Vec<Arc<ConnectionShared<D>>>,
    effects: Effects,
}

/// Completions taken from the queue at once.
const BATCH: usize = 32;
/// Iterations before other tasks are let in.
const MAX_ITERATIONS: usize = 16;

impl<D: Device> Reactor<D> {
    pub(crate) fn new(endpoint: Arc<EndpointInner<D>>, timer: Pin<Box<dyn Timer>>) -> Self {
        let waker = endpoint.reactor_waker();
        Self {
            endpoint,
            timer,
            waker,
            task: None,
            timer_deadline: Time::MAX,
            batch: vec![Completion::default(); BATCH].into(),
            is_failed: false,
            is_closed: false,
            connections: Vec::new(),
            effects: Effects::with_capacity(2 * BATCH),
        }
    }

    fn run(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if !self.task.as_ref().is_some_and(|waker| waker.will_wake(cx.waker())) {
            self.task = Some(cx.waker().clone());
            self.endpoint.reactor.set(cx.waker().clone());
        }
        let mut is_due = false;
        for _ in 0..MAX_ITERATIONS {
            // Before the look at the queue: a wake-up that comes later schedules this task again.
            is_due |= self.endpoint.reactor.take();
            let n = self.poll_queue(cx);
            // Most polls of a task that spins end here.
            if n == 0 && !is_due && !self.is_failed {
                return Poll::Pending;
            }
            let now = self.endpoint.runtime.now();
            let wake = self.drive(n, now);
            if self.connections.is_empty() && !self.endpoint.is_held() {
                return Poll::Ready(());
            }
            let rests = self.arm_timer(wake, now);
            if rests && n < BATCH {
                return Poll::Pending;
            }
            is_due = true;
        }
        self.waker.wake_by_ref();
        Poll::Pending
    }

    /// Moves what has completed into the batch and returns how much that is
    fn poll_queue(&mut self, cx: &mut Context<'_>) -> usize {
        if self.is_failed {
            return 0;
        }
        match self.endpoint.cq.poll_completions(cx, &mut self.batch) {
            Poll::Pending => 0,
            Poll::Ready(Ok(n)) => n,
            Poll::Ready(Err(error)) => {
                self.is_failed = true;
                self.endpoint.failure.get_or_init(|| error);
                self.endpoint.joining.close_into(&mut self.connections);
                for connection in &self.connections {
                    connection.abort(error.into());
                }
                0
            }
        }
    }

    /// Drives the connections with the first `n` completions and returns when to drive the next of them again
    ///
    /// A connection that is over may have left completions behind; they are ignored.
    fn drive(&mut self, n: usize, now: Time) -> Time {
        let Self { endpoint, waker, connections, batch, effects, .. } = self;
        let cx = &mut Context::from_waker(waker);
        let known = connections.len();
        endpoint.joining.take_into(connections);
        if endpoint.is_closed() {
            // Each connection once: closing wakes this task.
            let told = if std::mem::replace(&mut self.is_closed, true) { known } else { 0 };
            connections[told..].iter().for_each(|connection| connection.finish());
        }
        let mut wake = Time::MAX;
        let mut number = 0;
        while let Some(connection) = connections.get(number) {
            match connection.drive(&batch[..n], n < BATCH, now, cx, effects) {
                Some(at) => {
                    wake = wake.min(at);
                    number += 1;
                }
                None => {
                    drop(connections.remove(number));
                    endpoint.forget();
                }
            }
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
        self.endpoint.joining.close_into(&mut self.connections);
        for connection in self.connections.drain(..) {
            connection.abort(ConnectionError::RuntimeGone);
            self.endpoint.forget();
        }
    }
}
