//! What the reactor does with a connection

use std::task::{Context, Poll};

use rdma_core::protocol::{Incoming, Transmit};
use rdma_core::{Completion, Device, Status, Time, frames};

use super::{Line, State};
use crate::Lease;
use crate::error::{ConnectionError, SendError};
use crate::later::Later;
use crate::pool::Zone;
use crate::queues::Request;

impl<D: Device> Line<D> {
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
        state.protocol.tick(now);
        self.pump(&mut state, Some(cx), later);
        let wake = self.judge(&mut state, is_drained, now, later);
        drop(state);
        later.run(&self.hub);
        wake
    }

    /// Whether the connection is over, or else when to ask again
    fn judge(&self, state: &mut State<D>, is_drained: bool, now: Time, later: &mut Later) -> Option<Time> {
        state.queues.as_ref()?;
        let timeout = self.hub.options.peer_timeout;
        if state.protocol.is_closed() {
            self.end(state, later);
        } else if is_drained && state.protocol.is_peer_lost(now) {
            self.lose(state, ConnectionError::PeerLost(timeout), later);
        } else if is_drained && now >= state.linger {
            self.lose(state, ConnectionError::Abandoned(timeout), later);
        } else {
            return Some(state.protocol.next_timeout().min(state.linger));
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
        let State { protocol, queues: Some(queues), ops, inbox, stats, .. } = state else { return Ok(()) };
        if completion.status != Status::Success {
            return Err(ConnectionError::Completion(completion.status));
        }
        match request {
            Request::EagerSend(slot) => {
                protocol.eager_sent(now);
                self.sent(state, slot, now, later);
            }
            Request::BulkSend(slot) => {
                protocol.bulk_sent(ops.buffer(slot).map_or(0, |lease| lease.len()));
                self.sent(state, slot, now, later);
            }
            Request::Control(index) => {
                queues.control_sent(index);
                protocol.eager_sent(now);
            }
            Request::EagerRecv(index) => {
                let Some(mut lease) = queues.take_eager(index) else { return Ok(()) };
                lease.set_len(completion.byte_len as usize);
                match protocol.on_eager(now, &lease)? {
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
                if let Err(violation) = protocol.on_bulk(now, completion.byte_len) {
                    later.free([lease]);
                    return Err(violation.into());
                }
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
            state.linger = now + self.hub.options.peer_timeout;
        }
        later.settle(state.ops.complete(slot, Ok(()), false));
    }

    /// Drops what has arrived, if nobody will read it
    pub(super) fn discard(&self, state: &mut State<D>, later: &mut Later) {
        while !state.is_held {
            let (message, next) = state.inbox.discard();
            later.wake(next);
            match message {
                Some(lease) if lease.zone() == Zone::Bulk => later.free([lease]),
                Some(lease) => self.repost(state, lease, later),
                None => break,
            }
        }
    }

    pub(super) fn repost(&self, state: &mut State<D>, lease: Lease, later: &mut Later) {
        let Some(queues) = &mut state.queues else { return later.free([lease]) };
        match queues.post_eager_recv(lease) {
            Ok(()) => state.protocol.eager_receive_posted(),
            Err(error) => self.lose(state, error.into(), later),
        }
    }

    /// Posts everything that the protocol, the credits and the memory allow
    ///
    /// `cx` is the reactor's: it is woken when memory for the next announced message is free.
    #[inline]
    pub(super) fn pump(&self, state: &mut State<D>, cx: Option<&mut Context<'_>>, later: &mut Later) {
        if !state.protocol.is_idle() {
            self.post(state, cx, later);
        }
    }

    fn post(&self, state: &mut State<D>, mut cx: Option<&mut Context<'_>>, later: &mut Later) {
        while !state.protocol.is_idle() {
            if let Err(error) = self.grant(state, cx.as_deref_mut(), later) {
                return self.lose(state, error, later);
            }
            let State { protocol, queues: Some(queues), ops, .. } = state else { return };
            let Some(transmit) = protocol.poll_transmit(queues.has_control()) else { break };
            let posted = match transmit {
                Transmit::Bulk { token } => queues.send(ops, token.0, None),
                Transmit::Eager { token, trailer } => queues.send(ops, token.0, Some(trailer)),
                Transmit::Control { body, trailer } => queues.send_control(body, trailer),
            };
            if let Err(error) = posted {
                return self.lose(state, error.into(), later);
            }
        }
        while let Some(token) = state.protocol.poll_refused() {
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
        let State { protocol, queues: Some(queues), memory, .. } = state else { return Ok(()) };
        while let Some(len) = protocol.next_bulk_receive() {
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
            if let Err((error, lease)) = queues.post_bulk_recv(lease) {
                later.free(lease);
                return Err(error.into());
            }
            protocol.bulk_receive_posted();
        }
        Ok(())
    }
}
