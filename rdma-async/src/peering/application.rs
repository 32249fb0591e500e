//! What the application asks of a peering

use std::task::{Context, Poll};

use rdma_core::session::{MAX_EAGER, Priority, RefusedSend, SessionId, StreamId, Token, packets};
use rdma_core::{Device, Time};

use super::body::{Body, Effects};
use super::outgoing::OutgoingMessage;
use super::request::MAX_TOKENS;
use super::session_state::StreamPlaces;
use super::state::{REFUSED, State, find_stream};
use super::stream_state::StreamKey;
use crate::error::{ConnectError, OpenError, SendError, SessionError};
use crate::op_table::Outcome;
use crate::pool::Lease;
use crate::send_failed::SendFailed;
use crate::wait_queue::Waiter;

/// What the future of a send waits for
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Awaited {
    /// Its own memory
    Memory,
    /// That the peer has the message
    Delivery,
}

/// The slot of a message that was queued, and its outcome, which may be there at once
pub(crate) type Queued = (u32, Poll<Outcome<Body, SendError>>);

/// A message was not queued
fn failed(error: SendError, message: Body, effects: &mut Effects) -> SendFailed {
    let lease = message.into_lease().map_err(|body| effects.drop([body])).ok();
    SendFailed { error, lease }
}

impl<D: Device> State<D> {
    /// Opens a session, unless the peer takes no more, or the peering is over
    pub(crate) fn try_open(&mut self, now: Time, effects: &mut Effects) -> Result<SessionId, ConnectError> {
        if let Some(error) = &self.end {
            return Err(error.clone().into());
        }
        let id = self.core.open().ok_or(ConnectError::TooManySessions)?;
        if self.sessions.contains_key(&id) {
            // The application still holds a session of that number, which ended thousands of sessions ago.
            self.core.reset(id, REFUSED);
            return Err(ConnectError::TooManySessions);
        }
        self.new_session(id);
        self.pump(now, effects);
        Ok(id)
    }

    /// Queues a message, when there is a slot for it and this task is first in line
    #[expect(clippy::too_many_arguments, reason = "the time and the effects come with each call")]
    pub(super) fn poll_send(
        &mut self,
        key: StreamKey,
        message: &mut Option<Body>,
        waiter: &mut Waiter,
        awaited: Awaited,
        cx: &Context<'_>,
        now: Time,
        effects: &mut Effects,
    ) -> Poll<Result<Queued, SendFailed>> {
        let stream = self.stream(key).expect("a stream with a handle is there");
        stream.ops.poll_claim(waiter, cx, effects).map(|claimed| {
            let message = message.take().expect("a send that waits has its message");
            let slot = self.enqueue(key, claimed, message, Some(awaited), now, effects)?;
            let stream = self.stream(key).expect("a stream with a handle is there");
            Ok((slot, stream.ops.poll_outcome(slot, cx, effects)))
        })
    }

    /// Queues a message without a future for its outcome, if a slot is free and no task waits for one
    pub(super) fn try_send(
        &mut self,
        key: StreamKey,
        message: Lease,
        now: Time,
        effects: &mut Effects,
    ) -> Result<(), SendFailed> {
        let stream = self.stream(key).expect("a stream with a handle is there");
        let claimed = stream.ops.try_claim().unwrap_or(Err(SendError::WouldBlock));
        self.enqueue(key, claimed, Body::Lease(message), None, now, effects).map(drop)
    }

    /// Queues a message in a place that was claimed
    pub(super) fn send_claimed(
        &mut self,
        key: StreamKey,
        slot: u32,
        message: Body,
        now: Time,
        effects: &mut Effects,
    ) -> Result<(), SendFailed> {
        let refusal = self.stream(key).and_then(|stream| {
            let refusal = stream.refusal()?;
            stream.ops.release(slot, effects);
            Some(refusal)
        });
        self.enqueue(key, refusal.map_or(Ok(slot), Err), message, None, now, effects).map(drop)
    }

    #[inline]
    fn enqueue(
        &mut self,
        key: StreamKey,
        claimed: Result<u32, SendError>,
        message: Body,
        awaited: Option<Awaited>,
        now: Time,
        effects: &mut Effects,
    ) -> Result<u32, SendFailed> {
        let slot = match claimed {
            Ok(slot) => slot,
            Err(error) => return Err(failed(error, message, effects)),
        };
        let awaits_delivery = awaited == Some(Awaited::Delivery);
        let len = message.len() as u64;
        let token = self.outgoing.vacant_key() as u32;
        let StreamKey { session: id, stream: stream_id } = key;
        let session = self.sessions.get_mut(&id).expect("a session with a handle is there");
        let stream = session.stream(stream_id).expect("a stream with a handle is there");
        let queued = if token >= MAX_TOKENS {
            Err(SendError::WouldBlock)
        } else {
            self.core.send(id, stream_id, Token(token), len).map_err(|refused| match refused {
                RefusedSend::TooLong { len, max } => {
                    SendError::TooLong { len: len as usize, max: max as usize }
                }
                _ => stream.send_error(),
            })
        };
        if let Err(error) = queued {
            stream.ops.release(slot, effects);
            return Err(failed(error, message, effects));
        }
        let packets = if len > MAX_EAGER as u64 { 0 } else { packets(len) };
        self.outgoing.insert(OutgoingMessage::new(key, slot, awaits_delivery, packets, now));
        stream.ops.put(slot, message, awaited.is_some());
        session.counts.queued += 1;
        session.counts.bytes_queued += len;
        self.pump(now, effects);
        Ok(slot)
    }

    /// Copies of the messages of a stream that the peer does not have, as far as this side knows, in any order
    pub(crate) fn undelivered(&mut self, key: StreamKey) -> Vec<Box<[u8]>> {
        let Self { outgoing, sessions, frames, .. } = self;
        let messages =
            outgoing.iter().filter(|(_, message)| message.stream == key && message.outcome.is_none());
        let bytes = messages.map(|(_, message)| match message.slot {
            Some(slot) => {
                let stream = find_stream(sessions, key).expect("a stream with a message is there");
                let body = stream.ops.buffer(slot).expect("a message that was queued is in its slot");
                Box::from(&**body)
            }
            None => message.frames().flat_map(|frame| frames.payload(frame)).copied().collect(),
        });
        bytes.collect()
    }

    /// Opens a stream of a session, when the peer takes one more and this task is first in line
    pub(super) fn poll_open_stream(
        &mut self,
        id: SessionId,
        priority: Priority,
        waiter: &mut Waiter,
        cx: &Context<'_>,
        now: Time,
        effects: &mut Effects,
    ) -> Poll<Result<StreamId, OpenError>> {
        let session = self.sessions.get_mut(&id).expect("a session with a handle is there");
        let place = session.places.poll_take(waiter, cx, effects, StreamPlaces::take);
        place.map(|place| {
            place?;
            let opened = self.core.open_stream(id, priority).ok_or(OpenError::Closed)?;
            if let Some(session) = self.sessions.get_mut(&id) {
                session.add_own(opened);
            }
            self.pump(now, effects);
            Ok(opened)
        })
    }

    /// Ends what this side sends on a stream, in good order
    pub(crate) fn finish(&mut self, key: StreamKey, now: Time, effects: &mut Effects) {
        if let Some(stream) = self.stream(key) {
            stream.refuse(SendError::Closed, effects);
            self.core.finish(key.session, key.stream);
            self.pump(now, effects);
        }
    }

    /// Lets the messages of a stream take turns with those of other streams of `priority`
    pub(crate) fn set_priority(&mut self, key: StreamKey, priority: Priority) {
        self.core.set_priority(key.session, key.stream, priority);
    }

    /// Ends what this side sends in a session, in good order
    pub(crate) fn close(&mut self, id: SessionId, now: Time, effects: &mut Effects) {
        if let Some(session) = self.sessions.get_mut(&id) {
            session.refuse(&SendError::Closed, OpenError::Closed, effects);
            self.core.close(id);
            self.pump(now, effects);
        }
    }

    /// Ends a session at once; the peer learns `code`
    pub(crate) fn reset(&mut self, id: SessionId, code: u64, now: Time, effects: &mut Effects) {
        if let Some(session) = self.sessions.get_mut(&id)
            && !session.is_over
        {
            session.fail(&SessionError::Aborted, effects);
            self.core.reset(id, code);
            self.pump(now, effects);
        }
    }

    /// The last handle of a stream was dropped: queued messages are still sent, messages that arrive are dropped
    pub(crate) fn abandon(&mut self, key: StreamKey, now: Time, effects: &mut Effects) {
        self.core.expect_nothing(key.session, key.stream);
        self.handle_events(now, effects);
        if key.stream == StreamId::MAIN {
            return self.abandon_session(key.session, now, effects);
        }
        let Some(stream) = self.stream(key) else { return };
        stream.is_held = false;
        self.core.stop(key.session, key.stream);
        self.finish(key, now, effects);
        self.remove_stream_if_unused(key, effects);
    }

    fn abandon_session(&mut self, id: SessionId, now: Time, effects: &mut Effects) {
        let Some(session) = self.sessions.get_mut(&id) else { return };
        session.release();
        self.close(id, now, effects);
        self.abandoned.push(id, now);
        effects.wake_reactor();
        self.remove_if_unused(id, effects);
    }

    /// A task has given up waiting for a message
    pub(crate) fn stop_waiting(&mut self, key: StreamKey, waiter: &mut Waiter, effects: &mut Effects) {
        if let Some(stream) = self.stream(key) {
            stream.inbox.leave(waiter, effects);
            if stream.is_passed_over {
                // Perhaps a shortage is over.
                effects.wake_reactor();
            }
        }
    }

    /// Gives the room of a message back that the application has read
    pub(crate) fn recycle(&mut self, key: StreamKey, len: usize, effects: &mut Effects) {
        // Left to the reactor: if the application answers before, the answer carries the room. A message that waits for memory may get it
        // now: what was dropped may have been on the heap.
        if self.consume(key, len) || !self.announced.is_empty() {
            effects.wake_reactor();
        }
    }

    /// A message of `len` bytes has left its stream; returns whether the peer should learn of the room
    fn consume(&mut self, key: StreamKey, len: usize) -> bool {
        self.core.consume(key.session, key.stream, packets(len as u64))
    }

    /// Drops what has arrived, if the application has dropped its handles
    pub(super) fn discard(&mut self, key: StreamKey, effects: &mut Effects) {
        while let Some(stream) = self.stream(key).filter(|stream| !stream.is_held)
            && let Some(body) = stream.inbox.discard(effects)
        {
            self.consume(key, body.len());
            effects.drop([body]);
        }
    }

    /// A future that waited for the end of a session is gone
    pub(crate) fn unwatch(&mut self, id: SessionId, waiter: &mut Waiter, effects: &mut Effects) {
        let Some(session) = self.sessions.get_mut(&id) else { return };
        session.end.leave(waiter, effects);
        session.watchers -= 1;
        self.remove_if_unused(id, effects);
    }

    /// Forgets a stream, and its session, unless the application, a message or the protocol needs them
    pub(super) fn remove_stream_if_unused(&mut self, key: StreamKey, effects: &mut Effects) {
        self.discard(key, effects);
        let Some(session) = self.sessions.get_mut(&key.session) else { return };
        session.remove_if_unused(key.stream);
        if session.is_unused() {
            self.sessions.remove(&key.session);
        }
    }

    /// As [`remove_stream_if_unused`](Self::remove_stream_if_unused), for all streams of a session
    pub(super) fn remove_if_unused(&mut self, id: SessionId, effects: &mut Effects) {
        let Some(session) = self.sessions.get(&id) else { return };
        for stream in session.stream_ids().collect::<Vec<_>>() {
            self.remove_stream_if_unused(StreamKey { session: id, stream }, effects);
        }
        self.remove_stream_if_unused(StreamKey::main(id), effects);
    }
}
