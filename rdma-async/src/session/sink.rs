use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures_sink::Sink;
use rdma_core::Device;

use super::claim::Claim;
use super::handle::StreamHandle;
use crate::error::SendError;
use crate::peering::body::Body;
use crate::pool::Lease;

/// Sink of [`Session::sink`](super::Session::sink) and [`Stream::sink`](super::Stream::sink)
///
/// ```
/// # use rdma_async::*;
/// # rdma_sim::Sim::new().run(async |net| {
/// # let node = |host| Node::builder(net.opener(host, "rdma_en2")).runtime(net.runtime()).build();
/// # let (a, b) = (node("a").unwrap(), node("b").unwrap());
/// # let (to_b, to_a) = tokio::io::duplex(1024);
/// # let (session, ()) = futures::future::try_join(a.connect(to_b), b.serve(to_a)).await.unwrap();
/// # let peer = b.accept().await.unwrap();
/// use futures::SinkExt as _;
///
/// let mut lease = session.alloc(5).await?;
/// lease.extend_from_slice(b"hello");
/// session.sink().send(lease).await?;
/// assert_eq!(*peer.recv().await?.expect("a message"), *b"hello");
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// # }).value.unwrap();
/// ```
///
/// A message that it took will be sent: flushing waits for nothing. Closing [finishes](super::Stream::finish) the stream. Both fail when
/// the session is lost or the peer has dropped the stream: messages that were taken may then be lost.
///
/// A sink that is ready holds one of the places for [messages in flight](crate::NodeOptions::max_in_flight_sends) until it is given a
/// message or dropped. While a sink waits for a place, other messages of the stream go before it.
///
/// # Cancel safety
///
/// Dropping it loses no message that it took.
#[must_use = "sinks do nothing unless polled"]
pub struct MessageSink<D: Device> {
    stream: Arc<StreamHandle<D>>,
    claim: Claim<D>,
}

impl<D: Device> MessageSink<D> {
    pub(super) fn new(stream: &Arc<StreamHandle<D>>) -> Self {
        Self { stream: Arc::clone(stream), claim: Claim::new(stream) }
    }
}

impl<D: Device> Sink<Lease> for MessageSink<D> {
    type Error = SendError;

    fn poll_ready(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<(), SendError>> {
        self.claim.poll_claim(cx)
    }

    /// # Panics
    ///
    /// Unless `poll_ready` has returned `Ready(Ok(()))` since the last message.
    fn start_send(mut self: Pin<&mut Self>, lease: Lease) -> Result<(), SendError> {
        Ok(self.claim.send(Body::Lease(lease))?)
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Result<(), SendError>> {
        Poll::Ready(match self.stream.with(|stream, _| stream.refusal()) {
            Some(error @ (SendError::Lost(_) | SendError::StreamDropped)) => Err(error),
            _ => Ok(()),
        })
    }

    fn poll_close(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<(), SendError>> {
        self.stream.finish();
        self.poll_flush(cx)
    }
}

impl<D: Device> fmt::Debug for MessageSink<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let id = self.stream.key.session.number();
        f.debug_struct("MessageSink").field("session", &id).finish_non_exhaustive()
    }
}
