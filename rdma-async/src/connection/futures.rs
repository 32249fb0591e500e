//! The futures of a connection

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use futures_core::Stream;
use futures_core::stream::FusedStream;
use rdma_core::Device;

use super::message::{Message, Recycle};
use super::shared::{ConnectionHandle, ConnectionShared};
use crate::error::{CloseError, RecvError};
use crate::pool::Lease;
use crate::send_failed::SendFailed;
use crate::wait_queue::Waiter;

/// Future of [`Connection::send`](crate::Connection::send)
///
/// ```
/// # use rdma_async::*;
/// # use rdma_sim::Sim;
/// # Sim::new().run(async |net| {
/// # let open = |host| Endpoint::builder(net.open(host, "rdma_en2").unwrap()).runtime(net.runtime()).build();
/// # let (endpoint, other) = (open("a").unwrap(), open("b").unwrap());
/// # let (to_b, to_a) = tokio::io::duplex(256);
/// # let pair = futures::future::try_join(endpoint.connect(to_b), other.accept(to_a)).await.unwrap();
/// # let (connection, peer) = pair;
/// let mut lease = connection.try_alloc(5)?;
/// lease.extend_from_slice(b"hello");
/// let send: rdma_async::future::Send<_> = connection.send(lease);
/// // The lease comes back when the device has read the message.
/// assert_eq!(*send.await?, *b"hello");
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
    connection: Arc<ConnectionHandle<D>>,
    state: SendState,
}

enum SendState {
    /// Waits for a place
    Unqueued(Option<Lease>, Waiter),
    /// In this op slot
    Queued(u32),
    Done,
}

impl<D: Device> Send<D> {
    pub(super) fn new(connection: Arc<ConnectionHandle<D>>, lease: Lease) -> Self {
        Self { connection, state: SendState::Unqueued(Some(lease), Waiter::default()) }
    }
}

impl<D: Device> Future for Send<D> {
    type Output = Result<Lease, SendFailed>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Self { connection, state } = &mut *self;
        match state {
            SendState::Unqueued(lease, waiter) => match ready!(connection.poll_send(lease, waiter, cx)) {
                Ok(slot) => {
                    *state = SendState::Queued(slot);
                    Poll::Pending
                }
                Err(failed) => {
                    *state = SendState::Done;
                    Poll::Ready(Err(failed))
                }
            },
            SendState::Queued(slot) => {
                let (result, lease) = ready!(connection.poll_sent(*slot, cx));
                *state = SendState::Done;
                Poll::Ready(match (result, lease) {
                    (Ok(()), Some(lease)) => Ok(lease),
                    (Ok(()), None) => unreachable!("a device that has sent a message is done with it"),
                    (Err(error), lease) => Err(SendFailed { error, lease }),
                })
            }
            SendState::Done => panic!("a send that has ended was polled again"),
        }
    }
}

impl<D: Device> Drop for Send<D> {
    fn drop(&mut self) {
        match &mut self.state {
            SendState::Unqueued(_, waiter) => self.connection.leave_send(waiter),
            SendState::Queued(slot) => self.connection.detach(*slot),
            SendState::Done => (),
        }
    }
}

/// Future of [`Connection::recv`](crate::Connection::recv)
///
/// ```
/// # use rdma_async::*;
/// # use rdma_sim::Sim;
/// # Sim::new().run(async |net| {
/// # let open = |host| Endpoint::builder(net.open(host, "rdma_en2").unwrap()).runtime(net.runtime()).build();
/// # let (endpoint, other) = (open("a").unwrap(), open("b").unwrap());
/// # let (to_b, to_a) = tokio::io::duplex(256);
/// # let pair = futures::future::try_join(endpoint.connect(to_b), other.accept(to_a)).await.unwrap();
/// # let (connection, peer) = pair;
/// let recv: rdma_async::future::Recv<_> = peer.recv();
/// connection.send_bytes(b"hello").await?;
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
    pub(super) connection: Arc<ConnectionHandle<D>>,
    pub(super) waiter: Waiter,
}

impl<D: Device> Future for Recv<D> {
    type Output = Result<Option<Message>, RecvError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Self { connection, waiter } = &mut *self;
        let received = ready!(connection.poll_recv(waiter, cx))?;
        Poll::Ready(Ok(received.map(|lease| message(lease, connection))))
    }
}

/// A message whose memory goes back to its connection
pub(super) fn message<D: Device>(lease: Lease, connection: &ConnectionHandle<D>) -> Message {
    Message::new(lease, Arc::clone(connection.shared()) as Arc<dyn Recycle>)
}

impl<D: Device> Drop for Recv<D> {
    fn drop(&mut self) {
        self.connection.leave_recv(&mut self.waiter);
    }
}

/// Stream of [`Connection::messages`](crate::Connection::messages)
///
/// Ends after the last message, or after one error.
///
/// ```
/// # use rdma_async::*;
/// # use rdma_sim::Sim;
/// # Sim::new().run(async |net| {
/// # let open = |host| Endpoint::builder(net.open(host, "rdma_en2").unwrap()).runtime(net.runtime()).build();
/// # let (endpoint, other) = (open("a").unwrap(), open("b").unwrap());
/// # let (to_b, to_a) = tokio::io::duplex(256);
/// # let pair = futures::future::try_join(endpoint.connect(to_b), other.accept(to_a)).await.unwrap();
/// # let (connection, peer) = pair;
/// use futures::TryStreamExt as _;
///
/// for number in 0..3 {
///     connection.send_bytes(&[number]).await?;
/// }
/// let close = connection.close();
/// let read = peer.messages().map_ok(|message| message[0]).try_collect::<Vec<_>>();
/// let (closed, read) = futures::future::join(close, read).await;
/// assert_eq!(read?, [0, 1, 2]);
/// closed?;
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// # }).value.unwrap();
/// ```
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

/// Future of [`Connection::close`](crate::Connection::close)
///
/// ```
/// # use rdma_async::*;
/// # use rdma_sim::Sim;
/// # Sim::new().run(async |net| {
/// # let open = |host| Endpoint::builder(net.open(host, "rdma_en2").unwrap()).runtime(net.runtime()).build();
/// # let (endpoint, other) = (open("a").unwrap(), open("b").unwrap());
/// # let (to_b, to_a) = tokio::io::duplex(256);
/// # let pair = futures::future::try_join(endpoint.connect(to_b), other.accept(to_a)).await.unwrap();
/// # let (connection, peer) = pair;
/// connection.send_bytes(b"hello").await?;
/// // Resolves when the peer confirms that everything arrived.
/// connection.close().await?;
/// assert!(peer.recv().await?.is_some(), "the message");
/// assert!(peer.recv().await?.is_none(), "the end");
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// # }).value.unwrap();
/// ```
///
/// # Cancel safety
///
/// Closing begins when the future is first polled, and goes on when it is dropped.
#[must_use = "futures do nothing unless polled"]
pub struct Close<D: Device> {
    pub(super) closed: Closed<D>,
    pub(super) connection: Arc<ConnectionHandle<D>>,
    pub(super) is_begun: bool,
}

impl<D: Device> Future for Close<D> {
    type Output = Result<(), CloseError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        if !std::mem::replace(&mut self.is_begun, true) {
            self.connection.finish();
        }
        Pin::new(&mut self.closed).poll(cx)
    }
}

/// Future of [`Connection::closed`](crate::Connection::closed)
///
/// ```
/// # use rdma_async::*;
/// # use rdma_sim::Sim;
/// # Sim::new().run(async |net| {
/// # let open = |host| Endpoint::builder(net.open(host, "rdma_en2").unwrap()).runtime(net.runtime()).build();
/// # let (endpoint, other) = (open("a").unwrap(), open("b").unwrap());
/// # let (to_b, to_a) = tokio::io::duplex(256);
/// # let pair = futures::future::try_join(endpoint.connect(to_b), other.accept(to_a)).await.unwrap();
/// # let (connection, peer) = pair;
/// use rdma_async::{CloseError, ConnectionError};
///
/// let closed = connection.closed();
/// connection.abort();
/// assert_eq!(closed.await, Err(CloseError::Lost(ConnectionError::Aborted)));
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// # }).value.unwrap();
/// ```
///
/// # Cancel safety
///
/// Dropping it changes nothing.
#[must_use = "futures do nothing unless polled"]
pub struct Closed<D: Device> {
    /// Without a handle: a task that watches a connection does not keep it open.
    pub(super) connection: Arc<ConnectionShared<D>>,
    pub(super) waiter: Waiter,
}

impl<D: Device> Future for Closed<D> {
    type Output = Result<(), CloseError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Self { connection, waiter } = &mut *self;
        connection.poll_end(waiter, cx)
    }
}

impl<D: Device> Drop for Closed<D> {
    fn drop(&mut self) {
        self.connection.leave_end(&mut self.waiter);
    }
}

macro_rules! debug_by_connection {
    ($($future:ident: $($field:ident).+),* $(,)?) => {$(
        impl<D: Device> fmt::Debug for $future<D> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                let connection: &ConnectionShared<D> = &self.$($field).+;
                f.debug_struct(stringify!($future)).field("connection", &connection.id).finish_non_exhaustive()
            }
        }
    )*};
}

debug_by_connection! {
    Close: connection,
    Closed: connection,
    Messages: recv.connection,
    Recv: connection,
    Send: connection,
}
