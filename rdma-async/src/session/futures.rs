//! The futures of a session

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use futures_core::Stream;
use futures_core::stream::FusedStream;
use rdma_core::Device;
use rdma_core::session::SessionId;

use super::handle::{StreamHandle, StreamRef};
use super::message::Message;
use crate::error::{CloseError, RecvError, SendError};
use crate::op_table::Outcome;
use crate::peering::body::Body;
use crate::pool::Lease;
use crate::send_failed::SendFailed;
use crate::wait_queue::Waiter;

/// Future of [`Session::send`](super::Session::send)
///
/// ```
/// # use rdma_async::*;
/// # rdma_sim::Sim::new().run(async |net| {
/// # let node = |host| Node::builder(net.opener(host, "rdma_en2")).runtime(net.runtime()).build();
/// # let (a, b) = (node("a").unwrap(), node("b").unwrap());
/// # let (to_b, to_a) = tokio::io::duplex(1024);
/// # let (session, ()) = futures::future::try_join(a.connect(to_b), b.serve(to_a)).await.unwrap();
/// # let peer = b.accept().await.unwrap();
/// let mut lease = session.try_alloc(5)?;
/// lease.extend_from_slice(b"hello");
/// let send: rdma_async::future::Send<_> = session.send(lease);
/// assert_eq!(*send.delivered().await?, *b"hello");
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// # }).value.unwrap();
/// ```
///
/// # Cancel safety
///
/// Dropping it before it was first polled, or while it waits for a place in the queue, drops the message. Once the message has a
/// place it will be sent, whether or not the future lives; its memory is then freed by itself.
#[must_use = "futures do nothing unless polled"]
pub struct Send<D: Device> {
    stream: Arc<StreamHandle<D>>,
    awaits_delivery: bool,
    state: SendState,
}

enum SendState {
    /// Waits for a place
    Unqueued(Option<Body>, Waiter),
    /// In this op slot
    Queued(u32),
    Done,
}

impl<D: Device> Send<D> {
    pub(super) fn new(stream: Arc<StreamHandle<D>>, message: Body) -> Self {
        let state = SendState::Unqueued(Some(message), Waiter::default());
        Self { stream, awaits_delivery: false, state }
    }

    /// Resolves when the peer's node has the message, instead of when the lease may be reused
    ///
    /// It says nothing about the application of the peer, which may read the message later, or have dropped the stream meanwhile.
    ///
    /// # Panics
    ///
    /// If the future was polled before.
    pub fn delivered(mut self) -> Self {
        let is_new = matches!(&self.state, SendState::Unqueued(Some(_), waiter) if !waiter.waits());
        assert!(is_new, "a send that was polled cannot be changed");
        self.awaits_delivery = true;
        self
    }

    /// The message, while it waits for a place in the queue; `None` once it has one
    pub fn unqueued(&self) -> Option<&[u8]> {
        match &self.state {
            SendState::Unqueued(message, _) => message.as_deref(),
            SendState::Queued(_) | SendState::Done => None,
        }
    }

    /// The outcome of the message, and its memory unless a failed device may still touch it; an error if it was not queued
    pub(super) fn poll_sent(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Outcome<Body, SendError>, SendFailed>> {
        let Self { stream, awaits_delivery, state } = self;
        let outcome = match state {
            SendState::Unqueued(message, waiter) => {
                match ready!(stream.peering.poll_send(stream.key, message, *awaits_delivery, waiter, cx)) {
                    Ok((slot, outcome)) => {
                        *state = SendState::Queued(slot);
                        outcome
                    }
                    Err(failed) => {
                        *state = SendState::Done;
                        return Poll::Ready(Err(failed));
                    }
                }
            }
            SendState::Queued(slot) => {
                stream.with(|stream, effects| stream.ops.poll_outcome(*slot, cx, effects))
            }
            SendState::Done => panic!("a send that has ended was polled again"),
        };
        let outcome = ready!(outcome);
        *state = SendState::Done;
        Poll::Ready(Ok(outcome))
    }
}

impl<D: Device> Future for Send<D> {
    type Output = Result<Lease, SendFailed>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let (result, body) = ready!(self.poll_sent(cx))?;
        Poll::Ready(match (result, body.and_then(|body| body.into_lease().ok())) {
            (Ok(()), Some(lease)) => Ok(lease),
            (Ok(()), None) => unreachable!("a message that was sent is in its lease"),
            (Err(error), lease) => Err(SendFailed { error, lease }),
        })
    }
}

impl<D: Device> Drop for Send<D> {
    fn drop(&mut self) {
        let Self { stream, state, .. } = self;
        match state {
            SendState::Unqueued(_, waiter) if waiter.waits() => {
                stream.with(|stream, effects| stream.ops.leave(waiter, effects));
            }
            SendState::Queued(slot) => stream.with(|stream, effects| stream.ops.detach(*slot, effects)),
            SendState::Unqueued(..) | SendState::Done => (),
        }
    }
}

/// Future of [`Session::recv`](super::Session::recv)
///
/// ```
/// # use rdma_async::*;
/// # rdma_sim::Sim::new().run(async |net| {
/// # let node = |host| Node::builder(net.opener(host, "rdma_en2")).runtime(net.runtime()).build();
/// # let (a, b) = (node("a").unwrap(), node("b").unwrap());
/// # let (to_b, to_a) = tokio::io::duplex(1024);
/// # let (session, ()) = futures::future::try_join(a.connect(to_b), b.serve(to_a)).await.unwrap();
/// # let peer = b.accept().await.unwrap();
/// let recv: rdma_async::future::Recv<_> = peer.recv();
/// session.send_bytes(b"hello").await?;
/// assert!(recv.await?.is_some());
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// # }).value.unwrap();
/// ```
///
/// # Cancel safety
///
/// Messages are received whether or not a future waits: dropping it loses none.
#[must_use = "futures do nothing unless polled"]
pub struct Recv<D: Device> {
    pub(super) stream: Arc<StreamHandle<D>>,
    pub(super) waiter: Waiter,
}

impl<D: Device> Recv<D> {
    /// For an object that receives one message after another, whether or not a task polls it
    pub(super) fn yielding(stream: &Arc<StreamHandle<D>>) -> Self {
        Self { stream: Arc::clone(stream), waiter: Waiter::yielding() }
    }
}

impl<D: Device> Future for Recv<D> {
    type Output = Result<Option<Message>, RecvError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Self { stream, waiter } = &mut *self;
        let body = ready!(stream.with(|stream, effects| stream.poll_next(waiter, cx, effects)))?;
        Poll::Ready(Ok(body.map(|body| stream.message(body))))
    }
}

impl<D: Device> Drop for Recv<D> {
    fn drop(&mut self) {
        let Self { stream, waiter } = self;
        if waiter.waits() {
            stream.peering.update(|state, effects| state.stop_waiting(stream.key, waiter, effects));
        }
    }
}

/// Stream of [`Session::messages`](super::Session::messages)
///
/// ```
/// # use rdma_async::*;
/// # rdma_sim::Sim::new().run(async |net| {
/// # let node = |host| Node::builder(net.opener(host, "rdma_en2")).runtime(net.runtime()).build();
/// # let (a, b) = (node("a").unwrap(), node("b").unwrap());
/// # let (to_b, to_a) = tokio::io::duplex(1024);
/// # let (session, ()) = futures::future::try_join(a.connect(to_b), b.serve(to_a)).await.unwrap();
/// # let peer = b.accept().await.unwrap();
/// use futures::TryStreamExt as _;
///
/// for number in 0..3 {
///     session.send_bytes(&[number]).await?;
/// }
/// let close = session.close();
/// let read = peer.messages().map_ok(|message| message[0]).try_collect::<Vec<_>>();
/// let (closed, read) = futures::future::join(close, read).await;
/// assert_eq!(read?, [0, 1, 2]);
/// closed?;
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// # }).value.unwrap();
/// ```
///
/// Ends after the last message, or after one error.
///
/// # Cancel safety
///
/// Messages are received whether or not the stream is polled: dropping it loses none.
#[must_use = "streams do nothing unless polled"]
pub struct Messages<D: Device> {
    pub(super) recv: Recv<D>,
    pub(super) is_ended: bool,
}

impl<D: Device> Stream for Messages<D> {
    type Item = Result<Message, RecvError>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if self.is_ended {
            return Poll::Ready(None);
        }
        let received = ready!(Pin::new(&mut self.recv).poll(cx));
        self.is_ended = !matches!(received, Ok(Some(_)));
        Poll::Ready(received.transpose())
    }
}

impl<D: Device> FusedStream for Messages<D> {
    fn is_terminated(&self) -> bool {
        self.is_ended
    }
}

/// Future of [`Session::closed`](super::Session::closed)
///
/// ```
/// # use rdma_async::*;
/// # rdma_sim::Sim::new().run(async |net| {
/// # let node = |host| Node::builder(net.opener(host, "rdma_en2")).runtime(net.runtime()).build();
/// # let (a, b) = (node("a").unwrap(), node("b").unwrap());
/// # let (to_b, to_a) = tokio::io::duplex(1024);
/// # let (session, ()) = futures::future::try_join(a.connect(to_b), b.serve(to_a)).await.unwrap();
/// # let peer = b.accept().await.unwrap();
/// let closed: rdma_async::future::Closed<_> = session.closed();
/// session.reset(7);
/// assert_eq!(closed.await, Err(CloseError::Lost(SessionError::Aborted)));
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// # }).value.unwrap();
/// ```
///
/// # Cancel safety
///
/// Dropping it changes nothing.
#[must_use = "futures do nothing unless polled"]
pub struct Closed<D: Device> {
    id: SessionId,
    waiter: Waiter,
    state: Watch<D>,
}

enum Watch<D: Device> {
    /// Without a handle: a task that watches a session does not keep it open.
    Waits(Arc<StreamRef<D>>),
    Ended(Result<(), CloseError>),
}

impl<D: Device> Closed<D> {
    pub(super) fn new(session: Arc<StreamRef<D>>) -> Self {
        session.with_session(|session, _| session.watchers += 1);
        Self { id: session.key.session, waiter: Waiter::default(), state: Watch::Waits(session) }
    }

    fn leave(&mut self) {
        let Self { waiter, state, .. } = self;
        if let Watch::Waits(session) = state {
            session.peering.update(|state, effects| state.unwatch(session.key.session, waiter, effects));
        }
    }
}

impl<D: Device> Future for Closed<D> {
    type Output = Result<(), CloseError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Self { waiter, state, .. } = &mut *self;
        let session = match state {
            Watch::Waits(session) => session,
            Watch::Ended(result) => return Poll::Ready(result.clone()),
        };
        let result = ready!(session.with_session(|session, effects| {
            session.end.poll_take(waiter, cx, effects, |end| end.clone())
        }));
        self.leave();
        self.state = Watch::Ended(result.clone());
        Poll::Ready(result)
    }
}

impl<D: Device> Drop for Closed<D> {
    fn drop(&mut self) {
        self.leave();
    }
}

/// Future of [`Session::path_change`](super::Session::path_change)
///
/// ```
/// # use rdma_async::*;
/// # rdma_sim::Sim::new().run(async |net| {
/// # let node = |host| Node::builder(net.opener(host, "rdma_en2")).runtime(net.runtime()).build();
/// # let (a, b) = (node("a").unwrap(), node("b").unwrap());
/// # let (to_b, to_a) = tokio::io::duplex(1024);
/// # let (session, ()) = futures::future::try_join(a.connect(to_b), b.serve(to_a)).await.unwrap();
/// # let peer = b.accept().await.unwrap();
/// let change: rdma_async::future::PathChange<_> = session.path_change(1);
/// session.reset(7);
/// drop((session, peer));
/// assert_eq!(change.await, 0);
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// # }).value.unwrap();
/// ```
///
/// # Cancel safety
///
/// Dropping it changes nothing.
#[must_use = "futures do nothing unless polled"]
pub struct PathChange<D: Device> {
    session: Arc<StreamRef<D>>,
    known: usize,
    waiter: Waiter,
}

impl<D: Device> PathChange<D> {
    pub(super) fn new(session: Arc<StreamRef<D>>, known: usize) -> Self {
        Self { session, known, waiter: Waiter::default() }
    }
}

impl<D: Device> Future for PathChange<D> {
    type Output = usize;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<usize> {
        let Self { session, known, waiter } = &mut *self;
        session.peering.update(|state, effects| state.poll_paths_up(*known, waiter, cx, effects))
    }
}

impl<D: Device> Drop for PathChange<D> {
    fn drop(&mut self) {
        let Self { session, waiter, .. } = self;
        if waiter.waits() {
            session.peering.update(|state, effects| state.leave_paths_up(waiter, effects));
        }
    }
}

macro_rules! debug_by_session {
    ($($future:ident: $($field:tt).+),* $(,)?) => {$(
        impl<D: Device> fmt::Debug for $future<D> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                let id = self.$($field).+.number();
                f.debug_struct(stringify!($future)).field("session", &id).finish_non_exhaustive()
            }
        }
    )*};
}

debug_by_session! {
    Closed: id,
    Messages: recv.stream.key.session,
    PathChange: session.key.session,
    Recv: stream.key.session,
    Send: stream.key.session,
}
