//! A stream of a session as its peering keeps it

use std::task::{Context, Poll};

use rdma_core::session::{MAX_EAGER, SessionId, StreamId};

use super::body::{Body, Effects};
use crate::error::{RecvError, SendError};
use crate::inbox::Inbox;
use crate::op_table::OpTable;
use crate::pool::{Account, Lease};
use crate::wait_queue::Waiter;

/// Names a stream of a peering
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct StreamKey {
    pub(crate) session: SessionId,
    pub(crate) stream: StreamId,
}

impl StreamKey {
    /// The stream that session `session` has from the start
    pub(crate) fn main(session: SessionId) -> Self {
        Self { session, stream: StreamId::MAIN }
    }
}

/// Where the futures of a stream wait
pub(crate) struct StreamState {
    pub(crate) ops: OpTable<Body, SendError>,
    pub(crate) inbox: Inbox<Body, RecvError>,
    /// Whether the application holds a handle, or may still accept the stream.
    pub(super) is_held: bool,
    /// Whether this side has opened it.
    pub(super) is_own: bool,
    /// Whether the protocol has forgotten it.
    pub(super) is_over: bool,
    /// Long messages that have memory and are not complete.
    pub(super) arriving: u32,
    /// Whether a long message waits for memory beside the line.
    pub(super) is_passed_over: bool,
    /// Whether the application has asked for a message, and none has come since.
    is_asked: bool,
    /// Frames of long messages of the session that arrive or are unread.
    unread: Account,
    /// Frames of those that the application has.
    in_hand: Account,
    /// Why nothing can be sent any more.
    closed: Option<SendError>,
}

impl StreamState {
    pub(super) fn new(max_in_flight: u32, is_own: bool, [unread, in_hand]: &[Account; 2]) -> Self {
        Self {
            ops: OpTable::new(max_in_flight),
            inbox: Inbox::new("a message of its peer", 8),
            is_held: true,
            is_own,
            is_over: false,
            arriving: 0,
            is_passed_over: false,
            is_asked: false,
            unread: unread.clone(),
            in_hand: in_hand.clone(),
            closed: None,
        }
    }

    /// A message has arrived
    pub(super) fn push(&mut self, body: Body, effects: &mut Effects) {
        if body.len() > MAX_EAGER {
            self.arriving -= 1;
        }
        self.is_asked = false;
        self.inbox.push(body, effects);
    }

    /// The next message, or the end
    pub(crate) fn poll_next(
        &mut self,
        waiter: &mut Waiter,
        cx: &Context<'_>,
        effects: &mut Effects,
    ) -> Poll<Result<Option<Body>, RecvError>> {
        let next = self.inbox.poll_next(waiter, cx, effects);
        self.asked(next.is_pending(), effects);
        next.map(|next| self.take(next))
    }

    /// The next message, or the end, if it is there and no task waits for it
    pub(crate) fn try_next(&mut self, effects: &mut Effects) -> Option<Result<Option<Body>, RecvError>> {
        let next = self.inbox.try_next();
        self.asked(next.is_none(), effects);
        next.map(|next| self.take(next))
    }

    fn asked(&mut self, is_missing: bool, effects: &mut Effects) {
        if is_missing && self.is_passed_over && !self.is_asked {
            effects.wake_reactor();
        }
        self.is_asked |= is_missing;
    }

    fn take(&self, mut next: Result<Option<Body>, RecvError>) -> Result<Option<Body>, RecvError> {
        if let Ok(Some(Body::Lease(lease))) = &mut next
            && lease.len() > MAX_EAGER
        {
            lease.charge_to(&self.in_hand);
        }
        next
    }

    /// Lets a long message have `lease`
    pub(super) fn receive_into(&mut self, lease: &mut Lease) {
        lease.charge_to(&self.unread);
        self.arriving += 1;
        self.is_passed_over = false;
    }

    /// Whether a message would be read, or dropped, as soon as it is here
    pub(super) fn is_awaited(&self) -> bool {
        !self.is_held || (self.is_asked && self.arriving == 0)
    }

    /// Frames of long messages of the session: unread, and in the hands of the application
    pub(super) fn long_frames(&self) -> [u32; 2] {
        [self.unread.frames(), self.in_hand.frames()]
    }

    /// Why nothing can be sent, if so
    pub(crate) fn refusal(&self) -> Option<SendError> {
        self.closed.clone()
    }

    /// Why nothing can be sent
    pub(super) fn send_error(&self) -> SendError {
        self.refusal().unwrap_or(SendError::Closed)
    }

    /// Refuses messages from now on; the first reason counts
    pub(super) fn refuse(&mut self, error: SendError, effects: &mut Effects) {
        if self.closed.is_none() {
            self.closed = Some(error.clone());
            self.ops.close(error, effects);
        }
    }

    /// Whether neither the application nor a message needs it
    pub(super) fn is_unused(&self) -> bool {
        !self.is_held && self.ops.in_use() == 0
    }
}
