//! A connection as its reactor and its futures share it

use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Waker};

use rdma_core::{Completion, Device, Runtime, Time};

use super::identity::Peer;
use super::message::Recycle;
use super::state::State;
use super::stats::ConnectionStats;
use crate::error::{CloseError, ConnectionError, RecvError, SendError};
use crate::op_table::Outcome;
use crate::pool::{Effects, Lease, Pool, Zone};
use crate::send_failed::SendFailed;
use crate::sync::Mutex;
use crate::wait_queue::Waiter;

/// The state of a connection under its one lock
///
/// Each method locks, asks the [`State`], unlocks, and runs the effects.
pub(crate) struct ConnectionShared<D: Device> {
    pub(crate) id: u32,
    pub(crate) peer: Peer,
    pub(crate) pool: Pool,
    /// Wakes the reactor.
    reactor: Waker,
    runtime: Arc<dyn Runtime>,
    state: Mutex<State<D>>,
}

impl<D: Device> ConnectionShared<D> {
    pub(crate) fn new(
        id: u32,
        peer: Peer,
        pool: Pool,
        reactor: Waker,
        runtime: Arc<dyn Runtime>,
        state: State<D>,
    ) -> Self {
        Self { id, peer, pool, reactor, runtime, state: Mutex::new(state) }
    }

    #[inline]
    fn with<R>(&self, f: impl FnOnce(&mut State<D>, &mut Effects) -> R) -> R {
        let mut effects = Effects::new();
        let result = f(&mut self.state.lock(), &mut effects);
        effects.run(&self.reactor);
        result
    }

    /// As [`with`](Self::with), if the task has a place in line to give up
    #[inline]
    fn leave(&self, waiter: &mut Waiter, leave: impl FnOnce(&mut State<D>, &mut Waiter, &mut Effects)) {
        if waiter.waits() {
            self.with(|state, effects| leave(state, waiter, effects));
        }
    }

    pub(crate) fn open(&self, receives: Vec<Lease>) -> Result<(), ConnectionError> {
        self.with(|state, effects| state.open(receives, effects))
    }

    pub(super) fn poll_send(
        &self,
        message: &mut Option<Lease>,
        waiter: &mut Waiter,
        cx: &Context<'_>,
    ) -> Poll<Result<u32, SendFailed>> {
        if message.as_ref().is_some_and(|message| !self.pool.owns(message)) {
            return Poll::Ready(Err(SendFailed { error: SendError::ForeignLease, lease: message.take() }));
        }
        self.with(|state, effects| state.poll_send(message, waiter, cx, effects))
    }

    pub(super) fn try_send(&self, message: Lease) -> Result<(), SendFailed> {
        if !self.pool.owns(&message) {
            return Err(SendFailed { error: SendError::ForeignLease, lease: Some(message) });
        }
        self.with(|state, effects| state.try_send(message, effects))
    }

    pub(super) fn check_send(&self, len: usize) -> Result<(), SendError> {
        self.state.lock().check_send(len)
    }

    pub(super) fn poll_sent(&self, slot: u32, cx: &Context<'_>) -> Poll<Outcome<Lease, SendError>> {
        self.with(|state, effects| state.ops.poll_outcome(slot, cx, effects))
    }

    pub(super) fn detach(&self, slot: u32) {
        self.with(|state, effects| state.ops.detach(slot, effects));
    }

    pub(super) fn leave_send(&self, waiter: &mut Waiter) {
        self.leave(waiter, |state, waiter, effects| state.ops.leave(waiter, effects));
    }

    pub(super) fn poll_recv(
        &self,
        waiter: &mut Waiter,
        cx: &Context<'_>,
    ) -> Poll<Result<Option<Lease>, RecvError>> {
        self.with(|state, effects| state.inbox.poll_next(waiter, cx, effects))
    }

    pub(super) fn try_recv(&self) -> Result<Option<Lease>, RecvError> {
        self.with(|state, _| state.try_recv())
    }

    pub(super) fn leave_recv(&self, waiter: &mut Waiter) {
        self.leave(waiter, |state, waiter, effects| state.inbox.leave(waiter, effects));
    }

    pub(super) fn poll_end(&self, waiter: &mut Waiter, cx: &Context<'_>) -> Poll<Result<(), CloseError>> {
        self.with(|state, effects| state.end.poll_take(waiter, cx, effects, |end| end.clone()))
    }

    pub(super) fn leave_end(&self, waiter: &mut Waiter) {
        self.leave(waiter, |state, waiter, effects| state.end.leave(waiter, effects));
    }

    pub(super) fn end(&self) -> Option<Result<(), CloseError>> {
        self.state.lock().end.value().clone()
    }

    pub(crate) fn finish(&self) {
        self.with(State::finish);
    }

    pub(crate) fn abort(&self, error: ConnectionError) {
        self.with(|state, effects| state.abort(error, effects));
    }

    pub(super) fn stats(&self) -> ConnectionStats {
        self.state.lock().stats()
    }

    pub(super) fn max_message(&self) -> usize {
        self.state.lock().protocol.max_message()
    }

    pub(crate) fn error(&self) -> Option<ConnectionError> {
        self.state.lock().error.clone()
    }

    /// As [`State::drive`]; `effects` are the reactor's, which it uses again and again
    pub(crate) fn drive(
        &self,
        completions: &[Completion],
        is_drained: bool,
        now: Time,
        cx: &mut Context<'_>,
        effects: &mut Effects,
    ) -> Option<Time> {
        let wake = self.state.lock().drive(completions, is_drained, now, cx, effects);
        effects.run(&self.reactor);
        wake
    }
}

impl<D: Device> Recycle for ConnectionShared<D> {
    fn recycle(&self, lease: Lease) {
        if lease.zone() == Zone::Bulk {
            // The pool wakes the task that waits for memory.
            return drop(lease);
        }
        self.with(|state, effects| state.recycle(lease, effects));
    }
}

impl<D: Device> Drop for ConnectionShared<D> {
    fn drop(&mut self) {
        self.abort(ConnectionError::RuntimeGone);
    }
}

/// Keeps a connection open: dropping the last one abandons it
pub(crate) struct ConnectionHandle<D: Device> {
    shared: Arc<ConnectionShared<D>>,
    /// Whether the peer is ready, too: until then, dropping the handle aborts the connection.
    is_confirmed: AtomicBool,
}

impl<D: Device> ConnectionHandle<D> {
    pub(crate) fn new(shared: Arc<ConnectionShared<D>>) -> Self {
        Self { shared, is_confirmed: AtomicBool::new(false) }
    }

    pub(crate) fn confirm(&self) {
        self.is_confirmed.store(true, Ordering::Relaxed);
    }

    pub(super) fn shared(&self) -> &Arc<ConnectionShared<D>> {
        &self.shared
    }
}

impl<D: Device> Deref for ConnectionHandle<D> {
    type Target = ConnectionShared<D>;

    fn deref(&self) -> &ConnectionShared<D> {
        &self.shared
    }
}

impl<D: Device> Drop for ConnectionHandle<D> {
    fn drop(&mut self) {
        if *self.is_confirmed.get_mut() {
            let now = self.shared.runtime.now();
            self.shared.with(|state, effects| state.abandon(now, effects));
        } else {
            self.shared.abort(ConnectionError::Aborted);
        }
    }
}
