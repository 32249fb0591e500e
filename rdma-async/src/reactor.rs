//! The task that turns completions into progress

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use rdma_core::{Completion, CompletionQueue, Device, Time, Timer};

use crate::error::ConnectionError;
use crate::hub::Hub;
use crate::later::Later;
use crate::line::Line;

/// Polls the completion queue of an endpoint and drives its connections
///
/// Ends when the endpoint and all of its connections are gone. If the runtime drops it before, the connections are lost.
pub(crate) struct Reactor<D: Device> {
    hub: Arc<Hub<D>>,
    timer: Pin<Box<dyn Timer>>,
    /// What everything but the completion queue wakes this task by.
    nudge: Waker,
    /// What that wakes.
    waker: Option<Waker>,
    /// When the timer expires.
    alarm: Time,
    batch: Box<[Completion]>,
    /// The completion queue cannot be polled any more.
    is_failed: bool,
    lines: Vec<Arc<Line<D>>>,
    later: Later,
}

/// Completions taken from the queue at once.
const BATCH: usize = 32;
/// Turns before other tasks are let in.
const TURNS: usize = 16;

impl<D: Device> Reactor<D> {
    pub(crate) fn new(hub: Arc<Hub<D>>) -> Self {
        let (timer, nudge) = (hub.runtime.timer(), Arc::clone(&hub.reactor).into());
        Self {
            hub,
            timer,
            nudge,
            waker: None,
            alarm: Time::MAX,
            batch: vec![Completion::default(); BATCH].into(),
            is_failed: false,
            lines: Vec::new(),
            later: Later::with_capacity(2 * BATCH),
        }
    }

    fn turn(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if !self.waker.as_ref().is_some_and(|waker| waker.will_wake(cx.waker())) {
            self.waker = Some(cx.waker().clone());
            self.hub.reactor.set(cx.waker().clone());
        }
        let mut is_due = false;
        for _ in 0..TURNS {
            // Before the look at the queue: a nudge that comes later wakes this task again.
            is_due |= self.hub.reactor.take();
            let n = self.poll_queue(cx);
            // Most turns of a task that spins end here.
            if n == 0 && !is_due && !self.is_failed {
                return Poll::Pending;
            }
            let now = self.hub.runtime.now();
            let wake = self.drive(n, now);
            if self.lines.is_empty() && !self.hub.is_held() {
                return Poll::Ready(());
            }
            let rests = self.rest_until(wake, now);
            if rests && n < BATCH {
                return Poll::Pending;
            }
            is_due = true;
        }
        self.nudge.wake_by_ref();
        Poll::Pending
    }

    /// Moves what has completed into the batch and tells how much that is
    fn poll_queue(&mut self, cx: &mut Context<'_>) -> usize {
        if self.is_failed {
            return 0;
        }
        match self.hub.cq.poll_completions(cx, &mut self.batch) {
            Poll::Pending => 0,
            Poll::Ready(Ok(n)) => n,
            Poll::Ready(Err(error)) => {
                self.is_failed = true;
                self.hub.close(&mut self.lines);
                for line in &self.lines {
                    line.abort(error.into());
                }
                0
            }
        }
    }

    /// Drives the connections with the first `n` completions and tells when the next of them wants to be driven again
    ///
    /// A connection that is over has left its completions behind; they are nobody's.
    fn drive(&mut self, n: usize, now: Time) -> Time {
        let Self { hub, nudge, lines, batch, later, .. } = self;
        let cx = &mut Context::from_waker(nudge);
        hub.adopt(lines);
        let mut wake = Time::MAX;
        let mut number = 0;
        while let Some(line) = lines.get(number) {
            match line.turn(&batch[..n], n < BATCH, now, cx, later) {
                Some(at) => {
                    wake = wake.min(at);
                    number += 1;
                }
                None => {
                    drop(lines.remove(number));
                    hub.forget();
                }
            }
        }
        wake
    }

    /// Sees to it that the timer expires by `wake`; false if it has already
    ///
    /// Deadlines move with each message. The timer is left to expire too early rather than moved along.
    fn rest_until(&mut self, wake: Time, now: Time) -> bool {
        let is_due = self.alarm <= now;
        if !is_due && self.alarm <= wake {
            return true;
        }
        self.alarm = wake;
        self.timer.as_mut().reset(wake);
        self.timer.as_mut().poll_expired(&mut Context::from_waker(&self.nudge)).is_pending()
    }
}

impl<D: Device> Future for Reactor<D> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        self.turn(cx)
    }
}

impl<D: Device> Drop for Reactor<D> {
    fn drop(&mut self) {
        self.hub.close(&mut self.lines);
        for line in self.lines.drain(..) {
            line.abort(ConnectionError::RuntimeGone);
        }
    }
}
