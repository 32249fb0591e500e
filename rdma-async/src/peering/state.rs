//! The state of a peering and its steps; the caller holds its lock and passes the time

use std::collections::{HashMap, VecDeque};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use rdma_core::session::{
    IncomingId, Integrity, MAX_EAGER, PathCounts, PathId, PathLoss, PathStatus, Peering, RefusedSend,
    SessionId, SessionWaits, StreamId, Token, packets,
};
use rdma_core::{Device, Time, frames};
use slab::Slab;

use super::abandoned::Abandoned;
use super::body::{Body, Effects};
use super::frames::TransmitFrames;
use super::incoming::IncomingBuffers;
use super::lanes::{Lanes, MAX_TOKENS};
use super::memory_line::MemoryLine;
use super::outgoing::OutgoingMessage;
use super::session_state::SessionState;
use crate::error::{ConnectError, SendError, SessionError};
use crate::pool::{Lease, Pool};
use crate::send_failed::SendFailed;
use crate::wait_queue::Waiter;

/// The protocol, its paths and its tables
///
/// Not synchronized: [`PeeringShared`](super::shared::PeeringShared) holds the lock, and runs the effects after unlocking.
pub(crate) struct State<D: Device> {
    pub(super) pool: Pool,
    pub(super) core: Peering,
    pub(super) integrity: Integrity,
    pub(super) lanes: Vec<Option<Lanes<D>>>,
    /// The incarnation of each path.
    pub(super) epochs: Vec<u16>,
    pub(super) frames: TransmitFrames,
    pub(super) outgoing: Slab<OutgoingMessage>,
    pub(super) incoming: IncomingBuffers,
    /// Announced messages that wait for memory.
    pub(super) announced: VecDeque<Announced>,
    pub(super) memory: MemoryLine,
    /// Arbitrary bytes, which answer a grant after this side has given up the granted message.
    ///
    /// `None` if a device that has not stopped may still read it.
    pub(super) scratch: Option<Lease>,
    pub(super) sessions: HashMap<SessionId, SessionState>,
    pub(super) had_session: bool,
    /// Sessions without a handle whose queued messages are still sent.
    pub(super) abandoned: Abandoned,
    /// Sessions of the peer that the application has not accepted, and how many there may be.
    pub(super) unaccepted: u32,
    pub(super) max_unaccepted: u32,
    pub(super) max_in_flight: u32,
    /// Sessions that the peer has opened, for the listener.
    pub(super) opened: Vec<SessionId>,
    /// Paths that failed and were stopped, for the task that makes new ones.
    pub(super) lost_paths: Vec<LostPath>,
    /// When the reactor looks at this peering at the latest.
    pub(super) armed: Time,
    pub(super) end: Option<SessionError>,
}

/// A long message that waits for memory
#[derive(Clone, Copy, Debug)]
pub(super) struct Announced {
    pub(super) id: IncomingId,
    pub(super) session: SessionId,
    pub(super) len: u64,
}

/// A path that failed
pub(crate) struct LostPath {
    pub(crate) path: PathId,
    pub(crate) epoch: u16,
    /// Its name in requests.
    pub(crate) key: u32,
    pub(crate) reason: PathLoss,
}

/// What the future of a send waits for
pub(crate) struct Awaited<'a> {
    /// Whether it waits for the peer to have the message, and not for its own memory.
    pub(crate) is_delivery: bool,
    pub(crate) waker: &'a Waker,
}

/// What a peering is made of
pub(crate) struct Parts {
    pub(crate) pool: Pool,
    pub(crate) core: Peering,
    pub(crate) integrity: Integrity,
    pub(crate) scratch: Lease,
    pub(crate) transmit: Vec<Lease>,
    pub(crate) max_in_flight: u32,
    pub(crate) max_unaccepted: u32,
    pub(crate) peer_timeout: Duration,
}

/// The code with which a node resets sessions that nobody accepts, or that it gives up.
pub(super) const REFUSED: u64 = u64::MAX;

impl<D: Device> State<D> {
    pub(crate) fn new(parts: Parts) -> Self {
        Self {
            pool: parts.pool,
            core: parts.core,
            integrity: parts.integrity,
            lanes: Vec::new(),
            epochs: Vec::new(),
            frames: TransmitFrames::new(parts.transmit.into_iter()),
            outgoing: Slab::new(),
            incoming: IncomingBuffers::default(),
            announced: VecDeque::new(),
            memory: MemoryLine::default(),
            scratch: Some(parts.scratch),
            sessions: HashMap::new(),
            had_session: false,
            abandoned: Abandoned::new(parts.peer_timeout),
            unaccepted: 0,
            max_unaccepted: parts.max_unaccepted,
            max_in_flight: parts.max_in_flight,
            opened: Vec::new(),
            lost_paths: Vec::new(),
            armed: Time::ZERO,
            end: None,
        }
    }

    pub(crate) fn session(&mut self, id: SessionId) -> Option<&mut SessionState> {
        self.sessions.get_mut(&id)
    }

    /// Whether announced messages wait for memory
    pub(super) fn waits_for_memory(&self) -> bool {
        !self.announced.is_empty()
    }

    /// Whether there is something for the task that accepts sessions and makes paths
    pub(super) fn has_news(&self) -> bool {
        !self.opened.is_empty() || !self.lost_paths.is_empty() || self.end.is_some() || self.is_idle(false)
    }

    /// Sessions that the peer opened and paths that failed since the last call
    pub(crate) fn take_news(&mut self) -> (Vec<SessionId>, Vec<LostPath>) {
        (std::mem::take(&mut self.opened), std::mem::take(&mut self.lost_paths))
    }

    /// Whether the last session is over, and none will be opened
    pub(crate) fn is_idle(&self, is_closed: bool) -> bool {
        (self.had_session || is_closed) && self.sessions.is_empty() && self.core.is_quiet()
    }

    /// When the latest packet arrived
    pub(crate) fn last_heard(&self) -> Time {
        self.core.last_heard()
    }

    /// A session that the peer opened was accepted
    pub(crate) fn accepted(&mut self) {
        self.unaccepted -= 1;
    }

    /// Ends a session that the peer opened and that no task accepts any more
    pub(crate) fn refuse(&mut self, id: SessionId, now: Time, effects: &mut Effects) {
        if let Some(session) = self.sessions.get_mut(&id) {
            session.is_held = false;
        }
        self.unaccepted -= 1;
        self.reset(id, REFUSED, now, effects);
        self.remove_if_unused(id, effects);
    }

    pub(crate) fn error(&self) -> Option<&SessionError> {
        self.end.as_ref()
    }
}

// What the application does.
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
        self.had_session = true;
        self.sessions.insert(id, SessionState::new(self.max_in_flight));
        self.pump(now, effects);
        Ok(id)
    }

    /// Queues a message, when there is a slot for it and this task is first in line; returns its slot
    pub(super) fn poll_send(
        &mut self,
        id: SessionId,
        message: &mut Option<Lease>,
        waiter: &mut Waiter,
        awaited: Awaited<'_>,
        now: Time,
        effects: &mut Effects,
    ) -> Poll<Result<u32, SendFailed>> {
        let session = self.sessions.get_mut(&id).expect("a session with a handle is there");
        let cx = &Context::from_waker(awaited.waker);
        session.ops.poll_claim(waiter, cx, effects).map(|claimed| {
            let message = message.take().expect("a send that waits has its lease");
            self.enqueue(id, claimed, message, Some(awaited), now, effects)
        })
    }

    /// Queues a message without a future for its outcome, if a slot is free and no task waits for one
    pub(super) fn try_send(
        &mut self,
        id: SessionId,
        message: Lease,
        now: Time,
        effects: &mut Effects,
    ) -> Result<(), SendFailed> {
        let session = self.sessions.get_mut(&id).expect("a session with a handle is there");
        let claimed = session.ops.try_claim().unwrap_or(Err(SendError::WouldBlock));
        self.enqueue(id, claimed, message, None, now, effects).map(drop)
    }

    #[inline]
    fn enqueue(
        &mut self,
        id: SessionId,
        claimed: Result<u32, SendError>,
        message: Lease,
        awaited: Option<Awaited<'_>>,
        now: Time,
        effects: &mut Effects,
    ) -> Result<u32, SendFailed> {
        let slot = match claimed {
            Ok(slot) => slot,
            Err(error) => return Err(SendFailed { error, lease: Some(message) }),
        };
        let awaits_delivery = awaited.as_ref().is_some_and(|awaited| awaited.is_delivery);
        let len = message.len() as u64;
        let token = self.outgoing.vacant_key() as u32;
        let session = self.sessions.get_mut(&id).expect("a session with a handle is there");
        let queued = if token >= MAX_TOKENS {
            Err(SendError::WouldBlock)
        } else {
            self.core.send(id, StreamId::MAIN, Token(token), len).map_err(|refused| match refused {
                RefusedSend::TooLong { len, max } => {
                    SendError::TooLong { len: len as usize, max: max as usize }
                }
                _ => session.send_error(),
            })
        };
        if let Err(error) = queued {
            session.ops.release(slot, effects);
            return Err(SendFailed { error, lease: Some(message) });
        }
        let packets = if len > MAX_EAGER as u64 { 0 } else { packets(len) };
        self.outgoing.insert(OutgoingMessage::new(id, slot, awaits_delivery, packets));
        session.counts.queued += 1;
        session.ops.put(slot, Body::Lease(message), awaited.map(|awaited| awaited.waker));
        self.pump(now, effects);
        Ok(slot)
    }

    /// Ends what this side sends, in good order
    pub(crate) fn close(&mut self, id: SessionId, now: Time, effects: &mut Effects) {
        if let Some(session) = self.sessions.get_mut(&id) {
            session.refuse(SendError::Closed, effects);
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

    /// The last handle was dropped: queued messages are still sent, messages that arrive are dropped
    pub(crate) fn abandon(&mut self, id: SessionId, now: Time, effects: &mut Effects) {
        let Some(session) = self.sessions.get_mut(&id) else { return };
        session.is_held = false;
        self.discard(id, effects);
        self.close(id, now, effects);
        self.abandoned.push(id, now);
        effects.wake_reactor();
        self.remove_if_unused(id, effects);
    }

    /// Gives the room of a message back that the application has read
    pub(crate) fn recycle(&mut self, id: SessionId, len: usize, now: Time, effects: &mut Effects) {
        self.consume(id, len, effects);
        self.pump(now, effects);
    }

    /// A message of `len` bytes has left the session
    fn consume(&mut self, id: SessionId, len: usize, effects: &mut Effects) {
        self.core.consume(id, packets(len as u64));
        if len > MAX_EAGER
            && let Some(session) = self.sessions.get_mut(&id)
        {
            session.bulk_frames = session.bulk_frames.saturating_sub(frames(len) as u32);
            if self.waits_for_memory() {
                effects.wake_reactor();
            }
        }
    }

    /// Drops what has arrived, if the application has dropped its handles
    pub(super) fn discard(&mut self, id: SessionId, effects: &mut Effects) {
        while let Some(session) = self.sessions.get_mut(&id).filter(|session| !session.is_held)
            && let Some(body) = session.inbox.discard(effects)
        {
            self.consume(id, body.len(), effects);
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

    /// How many paths there have been at once
    pub(crate) fn path_count(&self) -> u32 {
        self.lanes.len() as u32
    }

    pub(crate) fn path(&self, path: PathId) -> (PathStatus, PathCounts) {
        (self.core.path_status(path), self.core.path_counts(path))
    }

    pub(crate) fn session_waits(&self, id: SessionId) -> SessionWaits {
        self.core.session_waits(id)
    }

    /// How many long messages of a session wait for memory
    pub(crate) fn wants_memory(&self, id: SessionId) -> usize {
        self.announced.iter().filter(|announced| announced.session == id).count()
    }

    /// The longest message that the peer takes
    pub(crate) fn max_message(&self) -> u64 {
        self.core.max_message()
    }

    pub(super) fn remove_if_unused(&mut self, id: SessionId, effects: &mut Effects) {
        self.discard(id, effects);
        if self.sessions.get(&id).is_some_and(SessionState::is_unused) {
            self.sessions.remove(&id);
        }
    }
}

impl<D: Device> Drop for State<D> {
    fn drop(&mut self) {
        self.incoming.forget_posted();
    }
}
