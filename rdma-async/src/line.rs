//! One connection as the reactor and the application share it

use std::fmt;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use rdma_core::channel::{Channel, EnqueueError, Incoming, Token, Transmit};
use rdma_core::{Completion, Device, Status, Teardown, Time, frames};

use crate::error::{CloseError, ConnectionError, RecvError, SendError, Unsent};
use crate::gate::{Next, Ticket, Turns};
use crate::hub::Hub;
use crate::inbox::Inbox;
use crate::later::Later;
use crate::op::Outcome;
use crate::pool::Zone;
use crate::queues::{Ops, Queues, Request};
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
    channel: Channel,
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
    pub(crate) fn new(id: u32, hub: Arc<Hub<D>>, ops: Ops, channel: Channel, queues: Queues<D>) -> Self {
        let window = hub.options.window as usize;
        Self {
            id,
            hub,
            state: Mutex::new(State {
                channel,
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

    // ─── The application's side ───

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
    ) -> Poll<Result<u32, Unsent>> {
        let mut later = Later::default();
        let mut state = self.state.lock();
        let (claimed, next) = state.ops.poll_claim(ticket, cx);
        let queued = match claimed {
            Poll::Pending => Poll::Pending,
            Poll::Ready(Ok(slot)) => {
                let message = message.take().expect("a send that waits has its lease");
                Poll::Ready(self.enqueue(&mut state, slot, message, cx.waker(), &mut later))
            }
            Poll::Ready(Err(error)) => Poll::Ready(Err(Unsent { error, lease: message.take() })),
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
    ) -> Result<u32, Unsent> {
        let refused = if state.queues.is_none() {
            Some(state.send_error())
        } else {
            match state.channel.enqueue(Token(slot), message.len()) {
                Ok(()) => None,
                Err(EnqueueError::TooLong { len, max }) => Some(SendError::TooLong { len, max }),
                Err(_) => Some(state.send_error()),
            }
        };
        if let Some(error) = refused {
            later.wake(state.ops.unclaim(slot));
            return Err(Unsent { error, lease: Some(message) });
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
        state.channel.finish();
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
        state.linger = self.hub.runtime.now() + self.hub.options.timeout;
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
        self.state.lock().channel.max_message()
    }

    /// Why the connection is lost, if it is
    pub(crate) fn lost(&self) -> Option<ConnectionError> {
        self.state.lock().error.clone()
    }

    // ─── The reactor's side ───

    /// Takes in what has completed, then does what time and memory allow
    ///
    /// `is_drained` says that nothing else has completed by `now`. Tells when to look again, or that the connection is over.
    pub(crate) fn turn(
        &self,
        completions: &[Completion],
        is_drained: bool,
        now: Time,
        cx: &mut Context<'_>,
        later: &mut Later,
    ) -> Option<Time> {
        let mut state = self.state.lock();
        for completion in completions {
            if let (line, Some(request)) = Request::parse(completion.id)
                && line == self.id
                && let Err(error) = self.on_completion(&mut state, request, completion, now, later)
            {
                self.lose(&mut state, error, later);
            }
        }
        state.channel.tick(now);
        self.pump(&mut state, Some(cx), later);
        let wake = self.judge(&mut state, is_drained, now, later);
        drop(state);
        later.run(&self.hub);
        wake
    }

    /// Whether the connection is over, or else when to ask again
    fn judge(&self, state: &mut State<D>, is_drained: bool, now: Time, later: &mut Later) -> Option<Time> {
        state.queues.as_ref()?;
        let timeout = self.hub.options.timeout;
        if state.channel.is_settled() {
            self.end(state, later);
        } else if is_drained && state.channel.is_peer_lost(now) {
            self.lose(state, ConnectionError::PeerLost(timeout), later);
        } else if is_drained && now >= state.linger {
            self.lose(state, ConnectionError::Abandoned(timeout), later);
        } else {
            return Some(state.channel.next_timeout().min(state.linger));
        }
        None
    }

    fn on_completion(
        &self,
        state: &mut State<D>,
        request: Request,
        completion: &Completion,
        now: Time,
        later: &mut Later,
    ) -> Result<(), ConnectionError> {
        let State { channel, queues: Some(queues), ops, inbox, stats, .. } = state else { return Ok(()) };
        if completion.status != Status::Success {
            return Err(ConnectionError::Completion(completion.status));
        }
        match request {
            Request::EagerSend(slot) => {
                channel.eager_sent(now);
                self.sent(state, slot, now, later);
            }
            Request::BulkSend(slot) => {
                channel.bulk_sent(ops.buffer(slot).map_or(0, |lease| lease.len()));
                self.sent(state, slot, now, later);
            }
            Request::Control(index) => {
                queues.control_sent(index);
                channel.eager_sent(now);
            }
            Request::EagerRecv(index) => {
                let Some(mut lease) = queues.take_eager(index) else { return Ok(()) };
                lease.set_len(completion.byte_len as usize);
                match channel.on_eager(now, &lease)? {
                    Incoming::Data { len } => {
                        lease.set_len(len);
                        stats.messages_received += 1;
                        later.wake(inbox.push(lease));
                        self.discard(state, later);
                        return Ok(());
                    }
                    Incoming::Announced { .. } => later.wake(inbox.expect()),
                    Incoming::Fin => later.wake(inbox.finish()),
                    Incoming::Control => (),
                }
                self.repost(state, lease, later);
            }
            Request::BulkRecv => {
                let Some(lease) = queues.take_bulk() else { return Ok(()) };
                channel.on_bulk(now, completion.byte_len)?;
                stats.messages_received += 1;
                later.settle(inbox.fill(lease));
                self.discard(state, later);
            }
        }
        Ok(())
    }

    fn sent(&self, state: &mut State<D>, slot: u32, now: Time, later: &mut Later) {
        state.stats.messages_sent += 1;
        if !state.is_held {
            state.linger = now + self.hub.options.timeout;
        }
        later.settle(state.ops.complete(slot, Ok(()), false));
    }

    /// Drops what has arrived, if nobody will read it
    fn discard(&self, state: &mut State<D>, later: &mut Later) {
        while !state.is_held {
            let (message, next) = state.inbox.discard();
            later.wake(next);
            match message {
                Some(lease) if lease.zone() == Zone::Bulk => later.free(lease),
                Some(lease) => self.repost(state, lease, later),
                None => break,
            }
        }
    }

    fn repost(&self, state: &mut State<D>, lease: Lease, later: &mut Later) {
        let Some(queues) = &mut state.queues else { return later.free(lease) };
        match queues.post_eager_recv(lease) {
            Ok(()) => state.channel.eager_posted(),
            Err(error) => self.lose(state, error.into(), later),
        }
    }

    /// Posts everything that the protocol, the credits and the memory allow
    ///
    /// `cx` is the reactor's: it is woken when memory for the next announced message is free.
    #[inline]
    fn pump(&self, state: &mut State<D>, cx: Option<&mut Context<'_>>, later: &mut Later) {
        if !state.channel.is_quiet() {
            self.post(state, cx, later);
        }
    }

    fn post(&self, state: &mut State<D>, mut cx: Option<&mut Context<'_>>, later: &mut Later) {
        while !state.channel.is_quiet() {
            if let Err(error) = self.grant(state, cx.as_deref_mut(), later) {
                return self.lose(state, error, later);
            }
            let State { channel, queues: Some(queues), ops, .. } = state else { return };
            let Some(transmit) = channel.poll_transmit(queues.has_control()) else { break };
            let posted = match transmit {
                Transmit::Bulk { token } => queues.send(ops, token.0, None),
                Transmit::Eager { token, trailer } => queues.send(ops, token.0, Some(trailer)),
                Transmit::Control { body, trailer } => queues.send_control(body, trailer),
            };
            if let Err(error) = posted {
                return self.lose(state, error.into(), later);
            }
        }
        while let Some(token) = state.channel.poll_refused() {
            state.is_refused = true;
            later.settle(state.ops.complete(token.0, Err(SendError::PeerClosed), false));
        }
    }

    /// Posts receives for what the peer has announced, as far as memory reaches
    fn grant(
        &self,
        state: &mut State<D>,
        mut cx: Option<&mut Context<'_>>,
        later: &mut Later,
    ) -> Result<(), ConnectionError> {
        let State { channel, queues: Some(queues), memory, .. } = state else { return Ok(()) };
        while let Some(len) = channel.next_wanted() {
            let len = len as usize;
            if !queues.has_bulk_space(frames(len) as u32) {
                break;
            }
            let pool = &self.hub.pool;
            let lease = match &mut cx {
                Some(cx) => {
                    let (lease, next) = pool.poll_lease(Zone::Bulk, len, memory, cx);
                    later.wake(next);
                    match lease {
                        Poll::Ready(lease) => lease,
                        Poll::Pending => break,
                    }
                }
                None => match pool.try_lease(Zone::Bulk, len) {
                    Some(lease) => lease,
                    None => {
                        later.wake_reactor();
                        break;
                    }
                },
            };
            queues.post_bulk_recv(lease)?;
            channel.bulk_posted();
        }
        Ok(())
    }

    /// Ends the connection in good order
    fn end(&self, state: &mut State<D>, later: &mut Later) {
        let is_complete = state.channel.is_acknowledged() || !state.is_refused;
        let result = if is_complete { Ok(()) } else { Err(CloseError::PeerClosed) };
        tracing::debug!(line = self.id, "connection closed");
        let error = if state.channel.is_peer_finished() { SendError::PeerClosed } else { SendError::Closed };
        // What was posted and has not completed has arrived: the peer says so.
        let posted = if state.channel.is_settled() { Ok(()) } else { Err(error.clone()) };
        self.tear_down(state, error, posted, later);
        later.wake(state.inbox.close(Ok(())));
        later.wake(state.end.update(|end| end.get_or_insert(result).is_ok()).1);
    }

    /// Ends the connection because of `error`
    fn lose(&self, state: &mut State<D>, error: ConnectionError, later: &mut Later) {
        if state.queues.is_none() {
            return;
        }
        later.wake_reactor();
        if state.channel.is_concluded() {
            return self.end(state, later);
        }
        tracing::warn!(line = self.id, %error, "connection lost");
        state.error = Some(error.clone());
        self.tear_down(state, error.clone().into(), Err(error.clone().into()), later);
        later.wake(state.inbox.close(Err(error.clone().into())));
        later.wake(state.end.update(|end| end.get_or_insert(Err(error.into())).is_ok()).1);
    }

    /// Destroys the queue pairs: new sends get `error`, those in flight `posted`
    fn tear_down(
        &self,
        state: &mut State<D>,
        error: SendError,
        posted: Result<(), SendError>,
        later: &mut Later,
    ) {
        let Some(mut queues) = state.queues.take() else { return };
        later.wake(self.hub.pool.leave(Zone::Bulk, &mut state.memory));
        // Unposted sends are quarantined too if the device did not stop: rare, and safe.
        let keep = queues.destroy(later) == Teardown::Unknown;
        let posted = if keep { Err(error.clone()) } else { posted };
        later.wake(state.ops.close(error));
        for slot in state.ops.indices() {
            let (lease, next) = state.ops.complete(slot, posted.clone(), keep);
            match lease {
                Some(lease) if keep => lease.quarantine(),
                lease => lease.into_iter().for_each(|lease| later.free(lease)),
            }
            later.wake(next);
        }
    }
}

impl<D: Device> State<D> {
    /// Why there is no connection any more
    fn lost(&self) -> ConnectionError {
        self.error.clone().unwrap_or(ConnectionError::Aborted)
    }

    /// Why nothing can be sent
    fn send_error(&self) -> SendError {
        match &self.error {
            Some(error) => SendError::Lost(error.clone()),
            None if self.channel.is_peer_finished() => SendError::PeerClosed,
            None => SendError::Closed,
        }
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
