//! A session as its peering keeps it

use std::collections::BTreeMap;

use rdma_core::Histogram;
use rdma_core::session::StreamId;
use tracing::Span;

use super::body::Effects;
use super::dropped_puts::DroppedPuts;
use super::end_report::EndReport;
use super::stream_state::StreamState;
use crate::error::{CloseError, OpenError, RecvError, SendError, SessionError};
use crate::inbox::Inbox;
use crate::pool::Account;
use crate::wait_queue::WaitQueue;

/// The streams of a session, and where its futures wait
pub(crate) struct SessionState {
    main: StreamState,
    /// The other streams.
    streams: BTreeMap<StreamId, StreamState>,
    /// Streams that the peer has opened, until the application accepts them.
    pub(crate) opened: Inbox<StreamId, RecvError>,
    pub(crate) places: WaitQueue<StreamPlaces>,
    pub(crate) dropped_puts: WaitQueue<DroppedPuts>,
    /// How the session ended, for this side.
    pub(crate) end: WaitQueue<Option<Result<(), CloseError>>>,
    /// Where the end is reported.
    span: Option<Span>,
    /// Futures that wait for the end, and keep no session open.
    pub(crate) watchers: u32,
    pub(crate) counts: Counts,
    /// How long messages took from the queue to the peer.
    pub(crate) deliveries: Histogram,
    /// Why nothing can be sent in the session any more, if so.
    refused: Option<SendError>,
    /// Whether the protocol has forgotten the session.
    pub(crate) is_over: bool,
    max_in_flight: u32,
    /// Frames of long messages that arrive or are unread, and of those that the application has.
    accounts: [Account; 2],
}

/// Streams that this side may still open
#[derive(Debug)]
pub(crate) struct StreamPlaces {
    free: u32,
    /// Why there will be none any more.
    closed: Option<OpenError>,
}

impl StreamPlaces {
    pub(super) fn take(&mut self) -> Option<Result<(), OpenError>> {
        match &self.closed {
            Some(error) => Some(Err(error.clone())),
            None => self.free.checked_sub(1).map(|free| {
                self.free = free;
                Ok(())
            }),
        }
    }
}

/// What a session has done so far
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counts {
    pub(crate) queued: u64,
    pub(crate) bytes_queued: u64,
    pub(crate) delivered: u64,
    pub(crate) received: u64,
    pub(crate) bytes_received: u64,
    /// Packets and parts of messages that were sent, and messages that the peer has.
    pub(crate) progress: u64,
}

impl SessionState {
    /// Each stream may have `max_in_flight` messages in flight, and this side may open `max_streams`
    pub(super) fn new(max_in_flight: u32, max_streams: u32) -> Self {
        let places = StreamPlaces { free: max_streams, closed: None };
        let accounts = [Account::default(), Account::default()];
        Self {
            main: StreamState::new(max_in_flight, false, &accounts),
            streams: BTreeMap::new(),
            opened: Inbox::new("a stream of its peer", 0),
            places: WaitQueue::new("a stream to be over", places, 0),
            dropped_puts: WaitQueue::for_all("the peer to end a dropped put", DroppedPuts::default(), 0),
            end: WaitQueue::for_all("its session to end", None, 4),
            span: None,
            watchers: 0,
            counts: Counts::default(),
            deliveries: Histogram::default(),
            refused: None,
            is_over: false,
            max_in_flight,
            accounts,
        }
    }

    #[inline]
    pub(crate) fn stream(&mut self, id: StreamId) -> Option<&mut StreamState> {
        if id == StreamId::MAIN { Some(&mut self.main) } else { self.streams.get_mut(&id) }
    }

    /// All streams, the main one first
    pub(crate) fn streams(&self) -> impl Iterator<Item = &StreamState> {
        std::iter::once(&self.main).chain(self.streams.values())
    }

    fn streams_mut(&mut self) -> impl Iterator<Item = &mut StreamState> {
        std::iter::once(&mut self.main).chain(self.streams.values_mut())
    }

    /// The numbers of the streams but the main one
    pub(super) fn stream_ids(&self) -> impl Iterator<Item = StreamId> {
        self.streams.keys().copied()
    }

    /// Whether the application still holds a handle, or may accept the session
    pub(super) fn is_held(&self) -> bool {
        self.main.is_held
    }

    /// Notes that the application has dropped its last handle, and accepts no more streams
    pub(super) fn release(&mut self) {
        self.streams_mut().for_each(|stream| stream.is_held = false);
    }

    /// Adds a stream that this side has opened
    pub(super) fn add_own(&mut self, id: StreamId) {
        self.streams.insert(id, StreamState::new(self.max_in_flight, true, &self.accounts));
    }

    /// Adds a stream that the peer has opened
    pub(super) fn add_opened(&mut self, id: StreamId, effects: &mut Effects) {
        let mut stream = StreamState::new(self.max_in_flight, false, &self.accounts);
        stream.is_held = self.is_held();
        if let Some(error) = &self.refused {
            stream.refuse(error.clone(), effects);
        }
        if stream.is_held {
            self.opened.push(id, effects);
        }
        self.streams.insert(id, stream);
    }

    /// The protocol has forgotten a stream
    pub(super) fn stream_over(&mut self, id: StreamId, effects: &mut Effects) {
        let Some(stream) = self.stream(id) else { return };
        stream.is_over = true;
        if stream.is_own {
            self.places.update(effects, |places| places.free += 1);
        }
        if !self.dropped_puts.value().is_empty() {
            self.dropped_puts.update(effects, |puts| puts.stream_over(id));
        }
    }

    /// The application has dropped a put whose request may be on its way on a stream
    pub(crate) fn put_dropped(&mut self, region: &str, id: StreamId, effects: &mut Effects) {
        if !self.is_over && self.stream(id).is_some_and(|stream| !stream.is_over) {
            self.dropped_puts.update(effects, |puts| puts.push(region, id));
        }
    }

    /// Forgets a stream that the protocol has forgotten, unless the application or a message needs it
    pub(super) fn remove_if_unused(&mut self, id: StreamId) {
        let is_over = self.is_over;
        let is_unneeded = |stream: &StreamState| (stream.is_over || is_over) && stream.is_unused();
        if self.streams.get(&id).is_some_and(is_unneeded) {
            self.streams.remove(&id);
        }
    }

    /// Refuses messages and streams from now on
    pub(super) fn refuse(&mut self, error: &SendError, reason: OpenError, effects: &mut Effects) {
        self.refused.get_or_insert_with(|| error.clone());
        self.streams_mut().for_each(|stream| stream.refuse(error.clone(), effects));
        self.places.end(effects, |places| {
            places.closed.get_or_insert(reason);
        });
    }

    /// The peer opens no more streams, and sends no more messages
    fn close_inboxes(&mut self, end: &Result<(), RecvError>, effects: &mut Effects) {
        self.opened.close(end.clone(), effects);
        self.dropped_puts.update(effects, DroppedPuts::clear);
        self.streams_mut().for_each(|stream| stream.inbox.close(end.clone(), effects));
    }

    /// The peer has closed the session
    pub(super) fn closed_by_peer(&mut self, effects: &mut Effects) {
        self.refuse(&SendError::PeerClosed, OpenError::PeerClosed, effects);
        self.opened.close(Ok(()), effects);
    }

    /// Ends the session for this side, in good order
    pub(super) fn conclude(&mut self, effects: &mut Effects) {
        self.is_over = true;
        self.close_inboxes(&Ok(()), effects);
        self.set_end(Ok(()), effects);
    }

    /// Ends the session at once
    pub(super) fn fail(&mut self, error: &SessionError, effects: &mut Effects) {
        self.refuse(&error.clone().into(), error.clone().into(), effects);
        self.is_over = true;
        self.close_inboxes(&Err(error.clone().into()), effects);
        self.set_end(Err(error.clone().into()), effects);
    }

    pub(super) fn set_end(&mut self, result: Result<(), CloseError>, effects: &mut Effects) {
        if let Some(span) = self.span.take() {
            effects.wake(Some(EndReport::waker(span, result.clone())));
        }
        self.end.update(effects, |end| {
            end.get_or_insert(result);
        });
    }

    /// The end is reported in `span`
    pub(crate) fn trace(&mut self, span: Span, effects: &mut Effects) {
        match self.end.value() {
            Some(end) => effects.wake(Some(EndReport::waker(span, end.clone()))),
            None => self.span = Some(span),
        }
    }

    /// Whether neither the application nor a message needs it
    pub(super) fn is_unused(&self) -> bool {
        self.is_over && self.is_released()
    }

    /// Whether neither the application nor a message would need it if it were over
    pub(super) fn is_released(&self) -> bool {
        self.watchers == 0 && self.streams().all(StreamState::is_unused)
    }
}
