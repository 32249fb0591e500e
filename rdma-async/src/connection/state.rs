//! The state of a connection and its steps; the caller holds its lock and passes the time

use std::task::{Context, Poll, Waker};

use rdma_core::probe::{self, ConnectionState};
use rdma_core::protocol::{EnqueueError, Incoming, Protocol, Token, Transmit};
use rdma_core::{Completion, Device, FRAME, Status, Teardown, Time, frames};

use super::stats::ConnectionStats;
use crate::effects::Event;
use crate::error::{CloseError, ConnectionError, RecvError, SendError};
use crate::inbox::Inbox;
use crate::pool::{Effects, Lease, Pool, Zone};
use crate::queue_pairs::{Ops, QueuePairs, Request};
use crate::send_failed::SendFailed;
use crate::wait_queue::{WaitQueue, Waiter};

/// The protocol, its queue pairs, and where the futures of the application wait
///
/// Not synchronized: [`ConnectionShared`](super::shared::ConnectionShared) holds the lock, and runs the effects after unlocking.
pub(crate) struct State<D: Device> {
    id: u32,
    pool: Pool,
    pub(super) protocol: Protocol,
    /// `None` once the connection is over.
    queues: Option<QueuePairs<D>>,
    pub(super) ops: Ops,
    pub(super) inbox: Inbox<Lease, RecvError>,
    /// How the connection ended.
    pub(super) end: WaitQueue<Option<Result<(), CloseError>>>,
    /// Whether the application still holds a handle.
    is_held: bool,
    /// When a connection without a handle is given up, unless a send completes before.
    linger: Time,
    /// Waits for memory for the next announced message.
    memory: Waiter,
    /// An announced message waits for memory.
    is_starved: bool,
    /// Whether a message was refused because the peer has closed.
    is_refused: bool,
    pub(super) error: Option<ConnectionError>,
    stats: ConnectionStats,
}

// What the application does.
impl<D: Device> State<D> {
    pub(crate) fn new(id: u32, pool: Pool, protocol: Protocol, queues: QueuePairs<D>, ops: Ops) -> Self {
        let window = queues.window();
        Self {
            id,
            pool,
            protocol,
            queues: Some(queues),
            ops,
            inbox: Inbox::new(2 * window),
            end: WaitQueue::for_all("its connection to end", None, 4),
            is_held: true,
            linger: Time::MAX,
            memory: Waiter::default(),
            is_starved: false,
            is_refused: false,
            error: None,
            stats: ConnectionStats::default(),
        }
    }

    /// Posts the first receives; the reactor knows of the connection already, so that it misses no completion
    pub(super) fn open(
        &mut self,
        receives: Vec<Lease>,
        effects: &mut Effects,
    ) -> Result<(), ConnectionError> {
        let Some(queues) = &mut self.queues else { return Err(self.lost()) };
        receives.into_iter().try_for_each(|lease| {
            queues.post_eager_recv(lease).map_err(|(error, lease)| {
                effects.drop(lease);
                error.into()
            })
        })
    }

    /// Queues a message, when there is a slot for it and this task is first in line; returns its slot
    pub(super) fn poll_send(
        &mut self,
        message: &mut Option<Lease>,
        waiter: &mut Waiter,
        cx: &Context<'_>,
        effects: &mut Effects,
    ) -> Poll<Result<u32, SendFailed>> {
        self.ops.poll_claim(waiter, cx, effects).map(|claimed| {
            let message = message.take().expect("a send that waits has its lease");
            self.enqueue(claimed, message, Some(cx.waker()), effects)
        })
    }

    /// Queues a message whose outcome no future will collect, if there is a slot for it and no task waits
    pub(super) fn try_send(&mut self, message: Lease, effects: &mut Effects) -> Result<(), SendFailed> {
        let claimed = self.ops.try_claim().unwrap_or(Err(SendError::WouldBlock));
        self.enqueue(claimed, message, None, effects).map(drop)
    }

    #[inline]
    fn enqueue(
        &mut self,
        claimed: Result<u32, SendError>,
        message: Lease,
        waker: Option<&Waker>,
        effects: &mut Effects,
    ) -> Result<u32, SendFailed> {
        let slot = match claimed {
            Ok(slot) => slot,
            Err(error) => return Err(SendFailed { error, lease: Some(message) }),
        };
        let queued = self.open_protocol().and_then(|protocol| protocol.enqueue(Token(slot), message.len()));
        if let Err(error) = queued.map_err(|error| self.refusal(error)) {
            self.ops.release(slot, effects);
            return Err(SendFailed { error, lease: Some(message) });
        }
        self.ops.put(slot, message, waker);
        self.stats.messages_queued += 1;
        self.pump(None, effects);
        Ok(slot)
    }

    /// Whether a message of `len` bytes can be sent, now or when there is memory and a slot for it
    pub(super) fn check_send(&mut self, len: usize) -> Result<(), SendError> {
        self.open_protocol().and_then(|protocol| protocol.check(len)).map_err(|error| self.refusal(error))
    }

    /// The next message, or the end, if it is there and no task waits for it; after a close, even if tasks wait
    pub(super) fn try_recv(&mut self) -> Result<Option<Lease>, RecvError> {
        self.inbox.try_next().unwrap_or(Err(RecvError::WouldBlock))
    }

    /// Takes back the memory of a message that the application has read
    pub(super) fn recycle(&mut self, lease: Lease, effects: &mut Effects) {
        self.repost(lease, effects);
        self.pump(None, effects);
    }

    /// Lets the peer know, after everything that is queued, that nothing more will be sent
    pub(super) fn finish(&mut self, effects: &mut Effects) {
        self.protocol.finish();
        self.pump(None, effects);
        effects.wake_reactor();
    }

    /// The last handle was dropped: queued messages are still sent, messages that arrive are dropped
    pub(super) fn abandon(&mut self, now: Time, effects: &mut Effects) {
        self.is_held = false;
        self.linger = now + self.protocol.peer_timeout();
        self.discard(effects);
        self.finish(effects);
    }

    /// Ends the connection because of `error`, unless it is over
    pub(super) fn abort(&mut self, error: ConnectionError, effects: &mut Effects) {
        if self.queues.is_none() {
            return;
        }
        effects.wake_reactor();
        if self.protocol.can_end_without_peer() {
            return self.settle(effects);
        }
        effects.log(Event::Lost { connection: self.id, error: error.clone() });
        self.error = Some(error.clone());
        self.tear_down(error.clone().into(), Err(error.clone().into()), effects);
        self.conclude(Err(error.clone().into()), Err(error.into()), effects);
    }

    pub(super) fn stats(&self) -> ConnectionStats {
        ConnectionStats { messages_in_flight: self.ops.in_use(), ..self.stats }
    }
}

// What the reactor does.
impl<D: Device> State<D> {
    /// Takes in the completions of this connection, then does what time and memory allow
    ///
    /// `is_drained` says that nothing else has completed by `now`; `cx` is the reactor's. Returns when to drive again, or `None`
    /// if the connection is over.
    pub(super) fn drive(
        &mut self,
        completions: &[Completion],
        is_drained: bool,
        now: Time,
        cx: &mut Context<'_>,
        effects: &mut Effects,
    ) -> Option<Time> {
        for completion in completions {
            let (connection, request) = Request::parse(completion.id);
            if connection == self.id
                && let Err(error) = self.on_completion(request, completion, now, effects)
            {
                self.abort(error, effects);
            }
        }
        self.protocol.tick(now);
        self.pump(Some(cx), effects);
        self.queues.as_ref()?;
        if self.protocol.is_closed() {
            self.settle(effects);
        } else if is_drained && self.protocol.is_peer_lost(now) {
            self.abort(ConnectionError::PeerLost(self.protocol.peer_timeout()), effects);
        } else if is_drained && now >= self.linger {
            self.abort(ConnectionError::Abandoned(self.protocol.peer_timeout()), effects);
        } else {
            return Some(self.protocol.next_timeout().min(self.linger));
        }
        None
    }

    fn on_completion(
        &mut self,
        request: Option<Request>,
        completion: &Completion,
        now: Time,
        effects: &mut Effects,
    ) -> Result<(), ConnectionError> {
        let Self { protocol, queues: Some(queues), ops, inbox, stats, .. } = self else { return Ok(()) };
        if completion.status != Status::Success {
            return Err(ConnectionError::Completion(completion.status));
        }
        let unknown = || ConnectionError::UnknownCompletion(completion.id);
        match request.ok_or_else(unknown)? {
            Request::EagerSend(slot) => {
                queues.sent(slot, Zone::Eager).ok_or_else(unknown)?;
                protocol.eager_sent(now);
                self.on_sent(slot, now, effects);
            }
            Request::BulkSend(slot) => {
                queues.sent(slot, Zone::Bulk).ok_or_else(unknown)?;
                protocol.bulk_sent(ops.buffer(slot).ok_or_else(unknown)?.len());
                self.on_sent(slot, now, effects);
            }
            Request::Control(index) => {
                queues.control_sent(index).ok_or_else(unknown)?;
                protocol.eager_sent(now);
            }
            Request::EagerRecv(index) => {
                let mut lease = queues.take_eager(index).ok_or_else(unknown)?;
                let received = match completion.byte_len {
                    found if found as usize > FRAME => {
                        Err(ConnectionError::Overlong { found, max: FRAME as u32 })
                    }
                    len => {
                        lease.set_received(len as usize);
                        protocol.on_eager(now, &lease).map_err(ConnectionError::from)
                    }
                };
                match received {
                    Ok(Incoming::Data { len }) => {
                        lease.truncate(len);
                        stats.messages_received += 1;
                        inbox.push(lease, effects);
                        self.discard(effects);
                        return Ok(());
                    }
                    Ok(Incoming::Announced { .. }) => inbox.expect(effects),
                    Ok(Incoming::Fin) => inbox.finish(effects),
                    Ok(Incoming::Control) => (),
                    Err(error) => {
                        effects.drop([lease]);
                        return Err(error);
                    }
                }
                self.repost(lease, effects);
            }
            Request::BulkRecv => {
                let lease = queues.take_bulk().ok_or_else(unknown)?;
                if let Err(violation) = protocol.on_bulk(now, completion.byte_len) {
                    effects.drop([lease]);
                    return Err(violation.into());
                }
                stats.messages_received += 1;
                inbox.fill(lease, effects);
                self.discard(effects);
            }
        }
        Ok(())
    }

    fn on_sent(&mut self, slot: u32, now: Time, effects: &mut Effects) {
        self.stats.messages_sent += 1;
        if !self.is_held {
            self.linger = now + self.protocol.peer_timeout();
        }
        self.ops.complete(slot, Ok(()), effects);
    }

    /// Drops what has arrived, if the application has dropped its handles
    fn discard(&mut self, effects: &mut Effects) {
        while !self.is_held {
            match self.inbox.discard(effects) {
                Some(lease) if lease.zone() == Zone::Bulk => effects.drop([lease]),
                Some(lease) => self.repost(lease, effects),
                None => break,
            }
        }
    }

    fn repost(&mut self, lease: Lease, effects: &mut Effects) {
        let Some(queues) = &mut self.queues else { return effects.drop([lease]) };
        match queues.post_eager_recv(lease) {
            Ok(()) => self.protocol.eager_receive_posted(),
            Err((error, lease)) => {
                effects.drop(lease);
                self.abort(error.into(), effects);
            }
        }
    }

    /// Posts everything that the protocol, the credits and the memory allow
    ///
    /// `cx` is the reactor's: it is woken when memory for the next announced message is free.
    #[inline]
    fn pump(&mut self, cx: Option<&mut Context<'_>>, effects: &mut Effects) {
        if !self.protocol.is_idle()
            && let Err(error) = self.post(cx, effects)
        {
            self.abort(error, effects);
        }
    }

    fn post(
        &mut self,
        mut cx: Option<&mut Context<'_>>,
        effects: &mut Effects,
    ) -> Result<(), ConnectionError> {
        while !self.protocol.is_idle() {
            self.grant(cx.as_deref_mut(), effects)?;
            let Self { protocol, queues: Some(queues), ops, .. } = self else { return Ok(()) };
            let Some(transmit) = protocol.poll_transmit(queues.has_control()) else { break };
            match transmit {
                Transmit::Bulk { token } => queues.send(ops, token.0, None)?,
                Transmit::Eager { token, trailer } => queues.send(ops, token.0, Some(trailer))?,
                Transmit::Control { body, trailer } => queues.send_control(body, trailer)?,
            }
        }
        while let Some(token) = self.protocol.poll_refused() {
            self.is_refused = true;
            probe::reached(ConnectionState::SendRefused);
            self.ops.complete(token.0, Err(SendError::PeerClosed), effects);
        }
        Ok(())
    }

    /// Posts receives for what the peer has announced, as far as memory reaches
    fn grant(
        &mut self,
        mut cx: Option<&mut Context<'_>>,
        effects: &mut Effects,
    ) -> Result<(), ConnectionError> {
        let Self { protocol, queues: Some(queues), memory, pool, is_starved, .. } = self else {
            return Ok(());
        };
        while let Some(len) = protocol.next_bulk_receive() {
            let span = frames(len as usize) as u32;
            if !queues.has_bulk_space(span) {
                break;
            }
            let lease = match &mut cx {
                Some(cx) => match pool.poll_lease(Zone::Bulk, span, memory, cx, effects) {
                    Poll::Ready(lease) => {
                        *is_starved = false;
                        Some(lease)
                    }
                    Poll::Pending => {
                        if !std::mem::replace(is_starved, true) {
                            probe::reached(ConnectionState::BulkStarved);
                        }
                        break;
                    }
                },
                None => pool.try_lease(Zone::Bulk, span),
            };
            let Some(mut lease) = lease else {
                effects.wake_reactor();
                break;
            };
            lease.set_received(len as usize);
            if let Err((error, lease)) = queues.post_bulk_recv(lease) {
                effects.drop(lease);
                return Err(error.into());
            }
            protocol.bulk_receive_posted();
        }
        Ok(())
    }
}

// How it ends.
impl<D: Device> State<D> {
    /// Ends the connection in good order
    fn settle(&mut self, effects: &mut Effects) {
        let is_complete = self.protocol.is_acknowledged() || !self.is_refused;
        let result = if is_complete { Ok(()) } else { Err(CloseError::PeerClosed) };
        effects.log(Event::Closed { connection: self.id });
        let error = self.send_error();
        // Sends that were posted and have not completed have arrived: the peer says so.
        let posted = if self.protocol.is_closed() { Ok(()) } else { Err(error.clone()) };
        self.tear_down(error, posted, effects);
        self.conclude(Ok(()), result, effects);
    }

    /// Destroys the queue pairs: new sends get `error`, those in flight `posted`
    fn tear_down(&mut self, error: SendError, posted: Result<(), SendError>, effects: &mut Effects) {
        let Some(mut queues) = self.queues.take() else { return };
        self.pool.leave(Zone::Bulk, &mut self.memory, effects);
        // Sends that were queued and not posted are quarantined, too, if the device did not stop: rare, and safe.
        let is_quiesced = queues.destroy(effects) == Teardown::Quiesced;
        self.ops.close(error.clone(), effects);
        for slot in self.ops.indices() {
            if is_quiesced {
                self.ops.complete(slot, posted.clone(), effects);
            } else if let Some(lease) = self.ops.revoke(slot, error.clone(), effects) {
                lease.quarantine(effects);
            }
        }
    }

    /// Wakes the tasks that receive, and those that wait for the end
    fn conclude(
        &mut self,
        received: Result<(), RecvError>,
        closed: Result<(), CloseError>,
        effects: &mut Effects,
    ) {
        self.inbox.close(received, effects);
        self.end.update(effects, |end| *end = Some(closed));
    }

    /// Why there is no connection any more
    fn lost(&self) -> ConnectionError {
        self.error.clone().unwrap_or(ConnectionError::Aborted)
    }

    /// The protocol, unless the connection is over
    fn open_protocol(&mut self) -> Result<&mut Protocol, EnqueueError> {
        if self.queues.is_none() { Err(EnqueueError::Closed) } else { Ok(&mut self.protocol) }
    }

    /// Why a message cannot be sent
    fn refusal(&self, error: EnqueueError) -> SendError {
        match error {
            EnqueueError::TooLong { len, max } => SendError::TooLong { len, max },
            _ => self.send_error(),
        }
    }

    /// Why nothing can be sent
    fn send_error(&self) -> SendError {
        match &self.error {
            Some(error) => SendError::Lost(error.clone()),
            None if self.protocol.is_peer_finished() => SendError::PeerClosed,
            None => SendError::Closed,
        }
    }
}
