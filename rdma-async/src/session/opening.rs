//! The futures of streams that are about to open

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use rdma_core::Device;
use rdma_core::session::Priority;

use super::handle::StreamHandle;
use super::stream::Stream;
use crate::error::{OpenError, RecvError};
use crate::wait_queue::Waiter;

/// Future of [`Session::open_stream`](super::Session::open_stream)
///
/// # Cancel safety
///
/// Dropping it gives up the place in line; no stream is opened.
#[must_use = "futures do nothing unless polled"]
pub struct OpenStream<D: Device> {
    session: Arc<StreamHandle<D>>,
    priority: Priority,
    waiter: Waiter,
}

impl<D: Device> OpenStream<D> {
    pub(super) fn new(session: Arc<StreamHandle<D>>, priority: Priority) -> Self {
        Self { session, priority, waiter: Waiter::default() }
    }
}

impl<D: Device> Future for OpenStream<D> {
    type Output = Result<Stream<D>, OpenError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Self { session, priority, waiter } = &mut *self;
        let id = session.key.session;
        let opened = ready!(session.peering.poll_open_stream(id, *priority, waiter, cx))?;
        Poll::Ready(Ok(Stream::new(session, opened)))
    }
}

impl<D: Device> Drop for OpenStream<D> {
    fn drop(&mut self) {
        let Self { session, waiter, .. } = self;
        if waiter.waits() {
            session.with_session(|session, effects| session.places.leave(waiter, effects));
        }
    }
}

/// Future of [`Session::accept_stream`](super::Session::accept_stream)
///
/// # Cancel safety
///
/// Dropping it loses no stream: another call returns it.
#[must_use = "futures do nothing unless polled"]
pub struct AcceptStream<D: Device> {
    pub(super) session: Arc<StreamHandle<D>>,
    pub(super) waiter: Waiter,
}

impl<D: Device> Future for AcceptStream<D> {
    type Output = Result<Option<Stream<D>>, RecvError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Self { session, waiter } = &mut *self;
        let opened =
            ready!(session.with_session(|state, effects| state.opened.poll_next(waiter, cx, effects)))?;
        Poll::Ready(Ok(opened.map(|opened| Stream::new(session, opened))))
    }
}

impl<D: Device> Drop for AcceptStream<D> {
    fn drop(&mut self) {
        let Self { session, waiter } = self;
        if waiter.waits() {
            session.with_session(|session, effects| session.opened.leave(waiter, effects));
        }
    }
}

macro_rules! debug_by_session {
    ($($future:ident),* $(,)?) => {$(
        impl<D: Device> fmt::Debug for $future<D> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                let id = self.session.key.session.number();
                f.debug_struct(stringify!($future)).field("session", &id).finish_non_exhaustive()
            }
        }
    )*};
}

debug_by_session! { AcceptStream, OpenStream }
