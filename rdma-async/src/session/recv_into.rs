//! Receiving into memory that the application chooses

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use rdma_core::Device;

use super::handle::StreamHandle;
use super::message::Message;
use crate::error::RecvError;
use crate::peering::body::Body;
use crate::peering::stream_state::Offer;
use crate::pool::Lease;
use crate::wait_queue::Waiter;

/// Future of [`Stream::recv_into`](crate::Stream::recv_into)
///
/// ```
/// # use rdma_async::*;
/// # rdma_sim::Sim::new().run(async |net| {
/// # let node = |host| Node::builder(net.opener(host, "rdma_en2")).runtime(net.runtime()).build();
/// # let (a, b) = (node("a").unwrap(), node("b").unwrap());
/// let memory = b.adopt(MappedBytes::zeroed(1 << 20)?)?;
/// # let (to_b, to_a) = tokio::io::duplex(1024);
/// # let (session, ()) = futures::future::try_join(a.connect(to_b), b.serve(to_a)).await.unwrap();
/// # let peer = b.accept().await.unwrap();
/// session.send_bytes(&[7; 100_000]).await?;
/// let place = memory.lease(0..1 << 20).expect("it is free");
/// let recv: rdma_async::future::RecvInto<_> = peer.recv_into(place);
/// drop(recv.await?.expect("a message"));
/// assert_eq!(memory.into_inner().expect("no lease is left")[..100_000], [7; 100_000]);
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// # }).value.unwrap();
/// ```
///
/// # Cancel safety
///
/// Dropping it loses no message. The lease is dropped; if a message is arriving there, it is dropped with the message, which is received
/// as others are.
#[must_use = "futures do nothing unless polled"]
pub struct RecvInto<D: Device> {
    stream: Arc<StreamHandle<D>>,
    /// Until it is made.
    unmade: Option<Offer>,
    /// The number of the offer, once it is made.
    offer: Option<u32>,
    waiter: Waiter,
}

impl<D: Device> RecvInto<D> {
    /// Receives messages of at most `max` bytes into `lease`
    pub(super) fn new(stream: &Arc<StreamHandle<D>>, lease: Lease, max: usize) -> Self {
        let unmade = Some(Offer { lease, max });
        Self { stream: Arc::clone(stream), unmade, offer: None, waiter: Waiter::default() }
    }
}

impl<D: Device> Future for RecvInto<D> {
    type Output = Result<Option<Message>, RecvError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Self { stream, unmade, offer, waiter } = &mut *self;
        if unmade.take_if(|unmade| !stream.peering.pool.owns(&unmade.lease)).is_some() {
            return Poll::Ready(Err(RecvError::ForeignLease));
        }
        let received = stream.with(|stream, effects| {
            if unmade.is_some() {
                *offer = stream.offer(unmade, effects);
            }
            let received = stream.poll_next(waiter, cx, effects);
            if received.is_ready()
                && let Some(number) = offer.take()
            {
                *unmade = stream.take_back(number);
            }
            received
        });
        let body = ready!(received)?;
        let body = match (body, unmade.take()) {
            (Some(body), Some(offer)) if offer.fits(body.len()) => {
                let Offer { mut lease, .. } = offer;
                lease.write_at(0, &body);
                lease.set_received(body.len());
                Some(Body::Lease(lease))
            }
            (body, _) => body,
        };
        Poll::Ready(Ok(body.map(|body| stream.message(body))))
    }
}

impl<D: Device> Drop for RecvInto<D> {
    fn drop(&mut self) {
        let Self { stream, offer, waiter, .. } = self;
        if waiter.waits() {
            let offer = stream.peering.update(|state, effects| {
                state.stop_waiting(stream.key, waiter, effects);
                state.stream(stream.key)?.take_back((*offer)?)
            });
            drop(offer);
        }
    }
}

impl<D: Device> fmt::Debug for RecvInto<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RecvInto").field("offer", &self.offer).finish_non_exhaustive()
    }
}
