use std::ops::Deref;
use std::ops::Range;
use std::sync::Arc;

use rdma_core::Device;
use rdma_core::session::{SessionId, StreamId};
use tracing::Span;

use super::message::{Message, Recycle};
use crate::peering::body::{Body, Effects};
use crate::peering::copies::Copies;
use crate::peering::session_state::SessionState;
use crate::peering::shared::PeeringShared;
use crate::peering::stream_state::{StreamKey, StreamState};

/// A stream and its peering
pub(crate) struct StreamRef<D: Device> {
    pub(crate) peering: Arc<PeeringShared<D>>,
    pub(crate) key: StreamKey,
}

impl<D: Device> StreamRef<D> {
    /// Does something with the stream, while it has a handle
    #[inline]
    pub(super) fn with<R>(&self, f: impl FnOnce(&mut StreamState, &mut Effects) -> R) -> R {
        self.peering.with_stream(self.key, f)
    }

    /// Does something with its session, while that has a handle
    pub(super) fn with_session<R>(&self, f: impl FnOnce(&mut SessionState, &mut Effects) -> R) -> R {
        self.peering.with_session(self.key.session, f)
    }
}

impl<D: Device> Recycle for PeeringShared<D> {
    fn recycle(&self, stream: StreamKey, len: usize) {
        self.update(|state, effects| state.recycle(stream, len, effects));
    }
}

/// Keeps a stream open, and its session: dropping the last one abandons it
pub(crate) struct StreamHandle<D: Device> {
    stream: Arc<StreamRef<D>>,
    /// That of the main stream, for the others.
    main: Option<Arc<Self>>,
    /// That of the session, in the handle of the main stream.
    span: Span,
    pub(super) copies: Arc<Copies>,
}

impl<D: Device> StreamHandle<D> {
    /// The handle of a session, which is that of its main stream
    pub(crate) fn session(peering: Arc<PeeringShared<D>>, id: SessionId) -> Arc<Self> {
        let span = tracing::info_span!(parent: &peering.span, "session", peer = %peering.peer, session = %id);
        span.in_scope(|| tracing::debug!("session open"));
        let of_end = span.clone();
        peering.with_session(id, |session, effects| session.trace(of_end, effects));
        Self::new(peering, StreamKey::main(id), None, span)
    }

    /// The handle of a stream of the session with the handle `main`
    pub(super) fn stream(main: &Arc<Self>, stream: StreamId) -> Arc<Self> {
        let key = StreamKey { stream, ..main.key };
        Self::new(Arc::clone(&main.peering), key, Some(Arc::clone(main)), Span::none())
    }

    fn new(peering: Arc<PeeringShared<D>>, key: StreamKey, main: Option<Arc<Self>>, span: Span) -> Arc<Self> {
        let copies = peering.with_stream(key, |stream, _| stream.copies());
        Arc::new(Self { stream: Arc::new(StreamRef { peering, key }), main, span, copies })
    }

    /// The span of the session
    pub(super) fn span(&self) -> &Span {
        self.main.as_ref().map_or(&self.span, |main| &main.span)
    }

    /// The handle of the session
    pub(super) fn main(self: &Arc<Self>) -> &Arc<Self> {
        self.main.as_ref().unwrap_or(self)
    }

    /// Ends what this side sends on the stream
    pub(super) fn finish(&self) {
        self.peering.with(|state, now, effects| state.finish(self.key, now, effects));
    }

    /// Expects `len` bytes as each of the messages at `places`; for how many more there is memory
    pub(super) fn expect(&self, len: usize, places: Range<usize>) -> usize {
        self.peering.with(|state, now, effects| state.expect(self.key, len, places, now, effects))
    }

    /// The longest message that the peer takes, in bytes
    pub(super) fn max_message(&self) -> usize {
        let max = self.peering.update(|state, _| state.max_message());
        usize::try_from(max).unwrap_or(usize::MAX)
    }

    /// The stream, without keeping it open
    pub(super) fn stream_ref(&self) -> Arc<StreamRef<D>> {
        Arc::clone(&self.stream)
    }

    /// A received message
    pub(super) fn message(&self, body: Body) -> Message {
        let peering = Arc::downgrade(&self.peering);
        Message::new(body, peering, self.key)
    }
}

impl<D: Device> Deref for StreamHandle<D> {
    type Target = StreamRef<D>;

    fn deref(&self) -> &StreamRef<D> {
        &self.stream
    }
}

impl<D: Device> Drop for StreamHandle<D> {
    fn drop(&mut self) {
        let _entered = self.span().enter();
        self.peering.with(|state, now, effects| state.abandon(self.key, now, effects));
    }
}
