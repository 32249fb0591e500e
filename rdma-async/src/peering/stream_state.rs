//! A stream of a session as its peering keeps it

use std::sync::Arc;
use std::task::{Context, Poll};

use rdma_core::session::{MAX_EAGER, SessionId, StreamId};

use super::body::{Body, Effects, HeapMessage};
use super::copies::Copies;
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

/// Whether a message came by the bulk lane
fn is_long(body: &Body) -> bool {
    body.len() > MAX_EAGER
}

/// Memory of the application for a message
pub(crate) struct Offer {
    pub(crate) lease: Lease,
    /// The longest message that is received there, in bytes.
    pub(crate) max: usize,
}

impl Offer {
    pub(crate) fn fits(&self, len: usize) -> bool {
        len <= self.max.min(self.lease.capacity())
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
    /// Long messages that were announced, have memory and are not complete; not those that were expected.
    pub(super) arriving: u32,
    /// Whether a long message waits for memory beside the line.
    pub(super) is_passed_over: bool,
    /// Whether the application has looked for a message without waiting, and none has come since.
    is_tried: bool,
    /// Memory of the application for the next long message, and the number of the offer.
    offer: Option<(u32, Offer)>,
    offers: u32,
    /// Frames of long messages of the session that arrive or are unread.
    unread: Account,
    /// Frames of those that the application has.
    in_hand: Account,
    copies: Arc<Copies>,
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
            is_tried: false,
            offer: None,
            offers: 0,
            unread: unread.clone(),
            in_hand: in_hand.clone(),
            copies: Copies::new(),
            closed: None,
        }
    }

    /// A message has arrived
    pub(super) fn push(&mut self, body: Body, was_expected: bool, effects: &mut Effects) {
        if is_long(&body) && !was_expected {
            self.arriving -= 1;
        }
        self.is_tried = false;
        self.inbox.push(body, effects);
    }

    /// The next message, or the end
    pub(crate) fn poll_next(
        &mut self,
        waiter: &mut Waiter,
        cx: &Context<'_>,
        effects: &mut Effects,
    ) -> Poll<Result<Option<Body>, RecvError>> {
        let was_passed_over = self.is_passed_over && !self.is_awaited();
        let next = self.inbox.poll_next(waiter, cx, effects);
        self.look_for_memory(was_passed_over, effects);
        next.map(|next| self.take(next))
    }

    /// The next message, or the end, if it is there and no task waits for it
    pub(crate) fn try_next(&mut self, effects: &mut Effects) -> Option<Result<Option<Body>, RecvError>> {
        let was_passed_over = self.is_passed_over && !self.is_awaited();
        let next = self.inbox.try_next();
        self.is_tried |= next.is_none();
        self.look_for_memory(was_passed_over, effects);
        next.map(|next| self.take(next))
    }

    /// Lets the reactor find memory for a message that was passed over because the application did not wait for it, and now does
    fn look_for_memory(&self, was_passed_over: bool, effects: &mut Effects) {
        if was_passed_over && self.is_awaited() {
            effects.wake_reactor();
        }
    }

    fn take(&mut self, mut next: Result<Option<Body>, RecvError>) -> Result<Option<Body>, RecvError> {
        if let Ok(Some(body)) = &mut next {
            body.recharge_to(&self.in_hand);
        }
        next
    }

    /// A long message got memory
    pub(super) fn receives(&mut self) {
        self.arriving += 1;
        self.is_passed_over = false;
    }

    /// Offers memory for the next long message, unless another task has; returns the number of the offer
    pub(crate) fn offer(&mut self, offer: &mut Option<Offer>, effects: &mut Effects) -> Option<u32> {
        let offer = offer.take_if(|_| self.offer.is_none())?;
        self.offers = self.offers.wrapping_add(1);
        self.offer = Some((self.offers, offer));
        if self.is_passed_over {
            effects.wake_reactor();
        }
        Some(self.offers)
    }

    /// Takes back what was offered under `number`, unless a message arrives there
    pub(crate) fn take_back(&mut self, number: u32) -> Option<Offer> {
        self.offer.take_if(|(current, _)| *current == number).map(|(_, offer)| offer)
    }

    /// Takes the memory that the application has offered, if the message for which it waits fits there
    pub(super) fn take_offer(&mut self, len: usize, is_usable: impl FnOnce(&Lease) -> bool) -> Option<Lease> {
        let is_awaited = self.is_awaited();
        let offer = self.offer.take_if(|(_, offer)| is_awaited && offer.fits(len) && is_usable(&offer.lease));
        offer.map(|(_, offer)| offer.lease)
    }

    /// Where the frames of messages count that arrive or are unread
    pub(super) fn unread(&self) -> &Account {
        &self.unread
    }

    /// Whether a message would be read, or dropped, as soon as it is here
    pub(super) fn is_awaited(&self) -> bool {
        let is_empty = self.arriving == 0 && self.inbox.len() == 0;
        !self.is_held || (is_empty && (self.is_tried || self.inbox.is_awaited()))
    }

    /// Frames of long messages of the session: unread, and in the hands of the application
    pub(super) fn long_frames(&self) -> [u32; 2] {
        [self.unread.frames(), self.in_hand.frames()]
    }

    /// Its messages that are copied
    pub(crate) fn copies(&self) -> Arc<Copies> {
        Arc::clone(&self.copies)
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
            self.copies.wake_all(effects);
        }
    }

    /// Ends the operation in `slot`; frees the memory of a copy at once
    pub(super) fn complete(&mut self, slot: u32, result: Result<(), SendError>, effects: &mut Effects) {
        if let Some(body @ Body::Copy(_)) = self.ops.buffer(slot) {
            // At once: no task gets it back, and others need the memory before the one that sent it asks for the outcome.
            effects.drop([std::mem::replace(body, Body::Heap(HeapMessage::default()))]);
        }
        self.ops.complete(slot, result, effects);
    }

    /// Whether neither the application nor a message needs it
    pub(super) fn is_unused(&self) -> bool {
        !self.is_held && self.ops.in_use() == 0
    }
}
