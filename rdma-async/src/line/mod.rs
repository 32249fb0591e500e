//! One connection as the reactor and the application share it: here, what the application does

mod ending;
mod turn;

use std::fmt;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use rdma_core::protocol::{EnqueueError, Protocol, Token};
use rdma_core::{Device, Time};

use crate::error::{CloseError, ConnectionError, RecvError, SendError, SendFailed};
use crate::gate::{Next, Ticket, Turns};
use crate::hub::Hub;
use crate::inbox::Inbox;
use crate::later::Later;
use crate::op::Outcome;
use crate::pool::Zone;
use crate::queues::{Ops, Queues};
use crate::sync::Mutex;
use crate::{ConnectionStats, Lease};

/// A connection, and the one lock of it
pub(crate) struct Line<D: Device> {
    pub(crate) id: u32,
    pub(crate) hub: Arc<Hub<D>>,
    state: Mutex<State<D>>,
}

/// The protocol, its queues, and where its futures wait
struct State<D: Device> {
    protocol: Protocol,
    /// `None` once the connection is over.
    queues: Option<Queues<D>>,
    ops: Ops,
    inbox: Inbox<Lease, RecvError>,
    /// How the connection ended.
    end: Turns<Option<Result<(), CloseError>>>,
    /// Whether the application still holds a handle.
    is_held: bool,
    /// When a connection that nobody holds is given up, unless it moves on.
    linger: Time,
    /// Waits for memory for the next announced message.
    memory: Ticket,
    /// Whether a message was refused because the peer has closed.
    is_refused: bool,
    error: Option<ConnectionError>,
    stats: ConnectionStats,
}

impl<D: Device> Line<D> {
    pub(crate) fn new(id: u32, hub: Arc<Hub<D>>, ops: Ops, protocol: Protocol, queues: Queues<D>) -> Self {
        let window = hub.options.recv_window as usize;
        Self {
            id,
            hub,
            state: Mutex::new(State {
                protocol,
                queues: Some(queues),
                ops,
                inbox: Inbox::new(2 * window),
                end: Turns::new(None, 4),
                is_held: true,
                linger: Time::MAX,
                memory: Ticket::default(),
                is_refused: false,
                error: None,
                stats: ConnectionStats::default(),
            }),
        }
    }

    /// Posts the first receives; the reactor knows of the connection already, lest it miss a completion
    pub(crate) fn open(&self, receives: Vec<Lease>) -> Result<(), ConnectionError> {
        let mut state = self.state.lock();
        let State { queues: Some(queues), .. } = &mut *state else { return Err(state.lost()) };
        receives.into_iter().try_for_each(|lease| Ok(queues.post_eager_recv(lease)?))
    }

    /// Hands a message to the protocol, when there is a place for it and it is this task's turn; tells its op slot
    pub(crate) fn poll_send(
        &self,
        message: &mut Option<Lease>,
        ticket: &mut Ticket,
        cx: &Context<'_>,
    ) -> Poll<Result<u32, SendFailed>> {
        let mut later = Later::default();
        let mut state = self.state.lock();
        let (claimed, next) = state.ops.poll_claim(ticket, cx);
        let queued = match claimed {
            Poll::Pending => Poll::Pending,
            Poll::Ready(Ok(slot)) => {
                let message = message.take().expect("a send that waits has its lease");
                Poll::Ready(self.enqueue(&mut state, slot, message, cx.waker(), &mut later))
            }
            Poll::Ready(Err(error)) => Poll::Ready(Err(SendFailed { error, lease: message.take() })),
        };
        drop(state);
        next.wake();
        later.run(&self.hub);
        queued
    }

    #[inline]
    fn enqueue(
        &self,
        state: &mut State<D>,
        slot: u32,
        message: Lease,
        waker: &Waker,
        later: &mut Later,
    ) -> Result<u32, SendFailed> {
        let refused = if state.queues.is_none() {
            Some(state.send_error())
        } else {
            match state.protocol.enqueue(Token(slot), message.len()) {
                Ok(()) => None,
                Err(EnqueueError::TooLong { len, max }) => Some(SendError::TooLong { len, max }),
                Err(_) => Some(state.send_error()),
            }
        };
        if let Some(error) = refused {
            later.wake(state.ops.release(slot));
            return Err(SendFailed { error, lease: Some(message) });
        }
        state.ops.put(slot, message, waker);
        state.stats.messages_queued += 1;
        self.pump(state, None, later);
        Ok(slot)
    }

    /// What became of the message in op slot `slot`
    pub(crate) fn poll_sent(&self, slot: u32, cx: &Context<'_>) -> Poll<Outcome<Lease, SendError>> {
        let (outcome, next) = self.state.lock().ops.poll_outcome(slot, cx);
        next.wake();
        outcome
    }

    /// Leaves the message in op slot `slot` to itself
    pub(crate) fn detach(&self, slot: u32) {
        // What is dropped here may ask for the lock.
        let (_lease, next) = self.state.lock().ops.detach(slot);
        next.wake();
    }

    /// The next message, or the end
    pub(crate) fn poll_recv(
        &self,
        ticket: &mut Ticket,
        cx: &Context<'_>,
    ) -> Poll<Result<Option<Lease>, RecvError>> {
        let (message, next) = self.state.lock().inbox.poll_next(ticket, cx);
        next.wake();
        message
    }

    pub(crate) fn leave_send(&self, ticket: &mut Ticket) {
        self.leave(ticket, |state, ticket| state.ops.leave(ticket));
    }

    pub(crate) fn leave_recv(&self, ticket: &mut Ticket) {
        self.leave(ticket, |state, ticket| state.inbox.leave(ticket));
    }

    pub(crate) fn leave_end(&self, ticket: &mut Ticket) {
        self.leave(ticket, |state, ticket| state.end.leave(ticket));
    }

    #[inline]
    fn leave(&self, ticket: &mut Ticket, leave: impl FnOnce(&mut State<D>, &mut Ticket) -> Next) {
        if ticket.waits() {
            let next = leave(&mut self.state.lock(), ticket);
            next.wake();
        }
    }

    /// Says that the application sends nothing more
    pub(crate) fn finish(&self) {
        let mut later = Later::default();
        let mut state = self.state.lock();
        state.protocol.finish();
        self.pump(&mut state, None, &mut later);
        drop(state);
        later.wake_reactor();
        later.run(&self.hub);
    }

    /// The last handle is gone: what is queued is still sent, what arrives is dropped
    pub(crate) fn abandon(&self) {
        let mut later = Later::default();
        let mut state = self.state.lock();
        state.is_held = false;
        state.linger = self.hub.runtime.now() + self.hub.options.peer_timeout;
        self.discard(&mut state, &mut later);
        drop(state);
        later.run(&self.hub);
        self.finish();
    }

    /// Ends the connection because of `error`
    pub(crate) fn abort(&self, error: ConnectionError) {
        let mut later = Later::default();
        let mut state = self.state.lock();
        self.lose(&mut state, error, &mut later);
        drop(state);
        later.run(&self.hub);
    }

    /// How the connection ended, once it has
    pub(crate) fn poll_end(&self, ticket: &mut Ticket, cx: &mut Context<'_>) -> Poll<Result<(), CloseError>> {
        let (end, next) = self.state.lock().end.poll_take(ticket, cx, |end| end.clone());
        next.wake();
        end
    }

    /// Takes back the memory of a message that the application has read
    pub(crate) fn release(&self, lease: Lease) {
        if lease.zone() == Zone::Bulk {
            // Whoever waits for memory is woken by the pool.
            return drop(lease);
        }
        let mut later = Later::default();
        let mut state = self.state.lock();
        self.repost(&mut state, lease, &mut later);
        self.pump(&mut state, None, &mut later);
        drop(state);
        later.run(&self.hub);
    }

    pub(crate) fn stats(&self) -> ConnectionStats {
        let state = self.state.lock();
        ConnectionStats { messages_in_flight: state.ops.in_use(), ..state.stats }
    }

    pub(crate) fn max_message(&self) -> usize {
        self.state.lock().protocol.max_message()
    }

    /// Why the connection is lost, if it is
    pub(crate) fn lost(&self) -> Option<ConnectionError> {
        self.state.lock().error.clone()
    }
}

impl<D: Device> fmt::Debug for Line<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Line").field("id", &self.id).finish_non_exhaustive()
    }
}

impl<D: Device> Drop for Line<D> {
    fn drop(&mut self) {
        self.abort(ConnectionError::RuntimeGone);
    }
}
