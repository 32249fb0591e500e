//! The task that turns completions into progress

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use rdma_core::{Completion, CompletionQueue, Device, Time, Timer};

use crate::endpoint::Hub;
use crate::error::ConnectionError;
use crate::line::Line;
use crate::queues::Request;

/// Polls the completion queue of an endpoint and drives its connections
///
/// Ends when the endpoint and all of its connections are gone. If the runtime drops it before, the connections are lost.
pub(crate) struct Reactor<D: Device> {
    hub: Arc<Hub<D>>,
    timer: Pin<Box<dyn Timer>>,
    batch: Box<[Completion]>,
    /// The completion queue cannot be polled any more.
    is_failed: bool,
    lines: Vec<Arc<Line<D>>>,
}

/// Completions taken from the queue at once.
const BATCH: usize = 32;
/// Turns before other tasks are let in.
const TURNS: usize = 16;

impl<D: Device> Reactor<D> {
    pub(crate) fn new(hub: Arc<Hub<D>>) -> Self {
        let timer = hub.runtime.timer();
        Self { hub, timer, batch: vec![Completion::default(); BATCH].into(), is_failed: false, lines: Vec::new() }
    }

    fn turn(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.hub.reactor.register(cx.waker());
        for _ in 0..TURNS {
            let now = self.hub.runtime.now();
            let is_idle = self.drain(cx, now);
            self.hub.adopt(&mut self.lines);
            let mut wake = Time::MAX;
            let hub = &self.hub;
            self.lines.retain(|line| match line.drive(now, cx) {
                Some(at) => {
                    wake = wake.min(at);
                    true
                }
                None => {
                    hub.forget();
                    false
                }
            });
            if self.lines.is_empty() && !self.hub.is_held() {
                return Poll::Ready(());
            }
            self.timer.as_mut().reset(wake);
            if self.timer.as_mut().poll_expired(cx).is_pending() && is_idle {
                return Poll::Pending;
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    /// Handles what has completed; false if there may be more
    fn drain(&mut self, cx: &mut Context<'_>, now: Time) -> bool {
        if self.is_failed || self.hub.cq.poll_ready(cx).is_pending() {
            return true;
        }
        match self.hub.cq.poll(&mut self.batch) {
            Ok(n) => {
                self.hub.adopt(&mut self.lines);
                for completion in &self.batch[..n] {
                    let (id, request) = Request::parse(completion.id);
                    // A connection that is over has left its completions behind.
                    let line = self.lines.iter().find(|line| line.id == id);
                    if let (Some(line), Some(request)) = (line, request) {
                        line.complete(request, completion, now);
                    }
                }
            }
            Err(error) => {
                self.is_failed = true;
                self.hub.close(&mut self.lines);
                for line in &self.lines {
                    line.abort(error.into());
                }
            }
        }
        false
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
