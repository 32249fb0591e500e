//! One connection as the reactor and the application share it

use std::fmt;
use std::sync::Arc;
use std::task::{Context, Poll};

use rdma_core::channel::{Channel, EnqueueError, Incoming, Token, Transmit};
use rdma_core::{Completion, Device, Status, Teardown, Time, frames};

use crate::error::{CloseError, ConnectionError, RecvError, SendError, Unsent};
use crate::gate::{Gate, Ticket};
use crate::hub::Hub;
use crate::inbox::Inbox;
use crate::pool::Zone;
use crate::queues::{Lane, Ops, Queues, Request};
use crate::sync::Mutex;
use crate::{ConnectionStats, Lease};

/// A connection: the protocol, its queues, and where its futures wait
pub(crate) struct Line<D: Device> {
    pub(crate) id: u32,
    pub(crate) hub: Arc<Hub<D>>,
    pub(crate) ops: Ops,
    pub(crate) inbox: Inbox<(Lease, Lane), RecvError>,
    /// How the connection ended.
    end: Gate<Option<Result<(), CloseError>>>,
    state: Mutex<State<D>>,
}

struct State<D: Device> {
    channel: Channel,
    /// `None` once the connection is over.
    queues: Option<Queues<D>>,
    /// Whether the application still holds a handle.
    is_held: bool,
    /// When a connection that nobody holds is given up.
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
            ops,
            inbox: Inbox::new(2 * window),
            end: Gate::new(None, 4),
            state: Mutex::new(State {
                channel,
                queues: Some(queues),
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

    /// Hands the message in op slot `slot` to the protocol
    pub(crate) fn enqueue(&self, slot: u32, len: usize) -> Result<(), Unsent> {
        let mut state = self.state.lock();
        let refused = if state.queues.is_none() {
            Some(state.send_error())
        } else {
            match state.channel.enqueue(Token(slot), len) {
                Ok(()) => None,
                Err(EnqueueError::TooLong { len, max }) => Some(SendError::TooLong { len, max }),
                Err(_) => Some(state.send_error()),
            }
        };
        if let Some(error) = refused {
            drop(state);
            return Err(Unsent { error, lease: self.ops.withdraw(slot) });
        }
        state.stats.messages_queued += 1;
        self.pump(&mut state, self.hub.runtime.now(), None);
        Ok(())
    }

    /// Says that the application sends nothing more
    pub(crate) fn finish(&self) {
        let mut state = self.state.lock();
        state.channel.finish();
        self.pump(&mut state, self.hub.runtime.now(), None);
        drop(state);
        self.hub.wake_reactor();
    }

    /// The last handle is gone: what is queued is still sent, what arrives is dropped
    pub(crate) fn abandon(&self) {
        let mut state = self.state.lock();
        state.is_held = false;
        state.linger = self.hub.runtime.now() + self.hub.options.timeout;
        drop(state);
        while let Some((lease, lane)) = self.inbox.discard() {
            self.release(lease, lane);
        }
        self.finish();
    }

    /// How the connection ended, once it has
    pub(crate) fn poll_end(&self, ticket: &mut Ticket, cx: &mut Context<'_>) -> Poll<Result<(), CloseError>> {
        self.end.poll_take(ticket, cx, |end| end.clone())
    }

    pub(crate) fn leave_end(&self, ticket: &mut Ticket) {
        self.end.leave(ticket);
    }

    /// Takes back the memory of a message that the application has read
    pub(crate) fn release(&self, lease: Lease, lane: Lane) {
        if lane == Lane::Bulk {
            // Whoever waits for memory is woken by the pool.
            return drop(lease);
        }
        let mut state = self.state.lock();
        if state.queues.is_none() {
            drop(state);
            return drop(lease);
        }
        self.repost(&mut state, lease);
        self.pump(&mut state, self.hub.runtime.now(), None);
    }

    pub(crate) fn stats(&self) -> ConnectionStats {
        ConnectionStats { messages_in_flight: self.ops.in_use(), ..self.state.lock().stats }
    }

    pub(crate) fn max_message(&self) -> usize {
        self.state.lock().channel.max_message()
    }

    // ─── The reactor's side ───

    /// Takes in what has completed, then does what time and memory allow
    ///
    /// Tells when to look again, or that the connection is over.
    pub(crate) fn turn(&self, completions: &[Completion], now: Time, cx: &mut Context<'_>) -> Option<Time> {
        let mut state = self.state.lock();
        for completion in completions {
            if let (line, Some(request)) = Request::parse(completion.id)
                && line == self.id
                && let Err(error) = self.on_completion(&mut state, request, completion, now)
            {
                self.lose(&mut state, error);
            }
        }
        self.pump(&mut state, now, Some(cx));
        state.queues.as_ref()?;
        if state.channel.is_peer_lost(now) || now >= state.linger {
            self.lose(&mut state, ConnectionError::PeerLost(self.hub.options.timeout));
            return None;
        }
        if state.channel.is_settled() {
            self.end(&mut state);
            return None;
        }
        Some(state.channel.next_timeout(now).min(state.linger))
    }

    /// Ends the connection because of `error`
    pub(crate) fn abort(&self, error: ConnectionError) {
        let mut state = self.state.lock();
        self.lose(&mut state, error);
    }

    fn on_completion(
        &self,
        state: &mut State<D>,
        request: Request,
        completion: &Completion,
        now: Time,
    ) -> Result<(), ConnectionError> {
        if completion.status != Status::Success {
            return Err(ConnectionError::Completion(completion.status));
        }
        let State { channel, queues: Some(queues), stats, .. } = state else { return Ok(()) };
        match request {
            Request::EagerSend(slot) => {
                channel.eager_sent();
                stats.messages_sent += 1;
                drop(self.ops.complete(slot, Ok(()), false));
            }
            Request::BulkSend(slot) => {
                channel.bulk_sent(self.ops.with_buffer(slot, |lease| lease.len()).unwrap_or(0));
                stats.messages_sent += 1;
                drop(self.ops.complete(slot, Ok(()), false));
            }
            Request::Control(index) => {
                queues.control_sent(index);
                channel.eager_sent();
            }
            Request::EagerRecv(index) => {
                let Some(mut lease) = queues.take_eager(index) else { return Ok(()) };
                lease.set_len(completion.byte_len as usize);
                match channel.on_eager(now, &lease)? {
                    Incoming::Data { len } if state.is_held => {
                        lease.set_len(len);
                        stats.messages_received += 1;
                        self.inbox.push((lease, Lane::Eager));
                        return Ok(());
                    }
                    Incoming::Announced { .. } => self.inbox.expect(),
                    Incoming::Fin => self.inbox.finish(),
                    Incoming::Control | Incoming::Data { .. } => (),
                }
                self.repost(state, lease);
            }
            Request::BulkRecv => {
                let Some(lease) = queues.take_bulk() else { return Ok(()) };
                channel.on_bulk(now, completion.byte_len)?;
                stats.messages_received += 1;
                let surplus = self.inbox.fill((lease, Lane::Bulk));
                let unread = if state.is_held { surplus } else { surplus.or_else(|| self.inbox.discard()) };
                drop(unread);
            }
        }
        Ok(())
    }

    fn repost(&self, state: &mut State<D>, lease: Lease) {
        let Some(queues) = &mut state.queues else { return };
        match queues.post_eager_recv(lease) {
            Ok(()) => state.channel.eager_posted(),
            Err(error) => self.lose(state, error.into()),
        }
    }

    /// Posts everything that the protocol, the credits and the memory allow
    ///
    /// `cx` is the reactor's: it is woken when memory for the next announced message is free.
    fn pump(&self, state: &mut State<D>, now: Time, mut cx: Option<&mut Context<'_>>) {
        loop {
            if let Err(error) = self.grant(state, cx.as_deref_mut()) {
                return self.lose(state, error);
            }
            let State { channel, queues: Some(queues), .. } = state else { return };
            let Some(transmit) = channel.poll_transmit(now, queues.has_control()) else { break };
            let posted = match transmit {
                Transmit::Bulk { token } => queues.send(&self.ops, token.0, None),
                Transmit::Eager { token, trailer } => queues.send(&self.ops, token.0, Some(trailer)),
                Transmit::Control { announce, trailer } => queues.send_control(announce, trailer),
            };
            if let Err(error) = posted {
                return self.lose(state, error.into());
            }
        }
        while let Some(token) = state.channel.poll_refused() {
            state.is_refused = true;
            drop(self.ops.complete(token.0, Err(SendError::PeerClosed), false));
        }
    }

    /// Posts receives for what the peer has announced, as far as memory reaches
    fn grant(&self, state: &mut State<D>, mut cx: Option<&mut Context<'_>>) -> Result<(), ConnectionError> {
        let State { channel, queues: Some(queues), memory, .. } = state else { return Ok(()) };
        while let Some(len) = channel.next_wanted() {
            let len = len as usize;
            if !queues.has_bulk_space(frames(len) as u32) {
                break;
            }
            let pool = &self.hub.pool;
            let lease = match &mut cx {
                Some(cx) => match pool.poll_lease(Zone::Receive, len, memory, cx) {
                    Poll::Ready(lease) => lease,
                    Poll::Pending => break,
                },
                None => match pool.try_lease(Zone::Receive, len) {
                    Some(lease) => lease,
                    None => {
                        self.hub.wake_reactor();
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
    fn end(&self, state: &mut State<D>) {
        let is_complete = state.channel.is_acknowledged() || !state.is_refused;
        let result = if is_complete { Ok(()) } else { Err(CloseError::PeerClosed) };
        tracing::debug!(line = self.id, "connection closed");
        self.tear_down(
            state,
            if state.channel.is_peer_finished() { SendError::PeerClosed } else { SendError::Closed },
        );
        self.inbox.close(Ok(()));
        self.end.update(|end| end.get_or_insert(result).is_ok());
    }

    /// Ends the connection because of `error`
    fn lose(&self, state: &mut State<D>, error: ConnectionError) {
        if state.queues.is_none() {
            return;
        }
        tracing::warn!(line = self.id, %error, "connection lost");
        state.error = Some(error.clone());
        self.tear_down(state, error.clone().into());
        self.inbox.close(Err(error.clone().into()));
        self.end.update(|end| end.get_or_insert(Err(error.into())).is_ok());
        self.hub.wake_reactor();
    }

    fn tear_down(&self, state: &mut State<D>, error: SendError) {
        let Some(mut queues) = state.queues.take() else { return };
        self.hub.pool.leave(Zone::Receive, &mut state.memory);
        let teardown = queues.destroy();
        self.ops.close(error.clone());
        for slot in self.ops.indices() {
            // Unposted sends are quarantined too if the device did not stop: rare, and safe.
            let keep = teardown == Teardown::Unknown;
            if let Some(lease) = self.ops.complete(slot, Err(error.clone()), keep)
                && keep
            {
                lease.quarantine();
            }
        }
    }
}

impl<D: Device> State<D> {
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
