use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use bytes::Bytes;

use crate::peering::body::Body;
use crate::pool::Lease;

/// A received message
///
/// ```
/// # use rdma_async::*;
/// # rdma_sim::Sim::new().run(async |net| {
/// # let node = |host| Node::builder(net.opener(host, "rdma_en2")).runtime(net.runtime()).build();
/// # let (a, b) = (node("a").unwrap(), node("b").unwrap());
/// # let (to_b, to_a) = tokio::io::duplex(1024);
/// # let (session, ()) = futures::future::try_join(a.connect(to_b), b.serve(to_a)).await.unwrap();
/// # let peer = b.accept().await.unwrap();
/// use bytes::Bytes;
///
/// session.send_bytes(b"hello").await?;
/// let message = peer.recv().await?.expect("a message");
/// assert_eq!(*message, *b"hello");
/// assert_eq!(Bytes::from(message).slice(..4), b"hell".as_slice());
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// # }).value.unwrap();
/// ```
///
/// Dereferences to its bytes; becomes [`Bytes`] without a copy. Memory of messages that are kept counts towards the share of
/// their session, which stalls when they occupy all of it. Messages up to 68,544 bytes take nothing from other sessions; longer ones are
/// in the [receive memory](crate::NodeOptions::receive_memory) of the node, of which a session gets half at most, or one message.
#[must_use]
pub struct Message {
    /// `None` only while it is dropped.
    body: Option<Body>,
    len: usize,
    recycle: Arc<dyn Recycle>,
}

/// Takes back what a message held in its session
pub(crate) trait Recycle: Send + Sync {
    /// A message of `len` bytes was dropped, or became a lease
    fn recycle(&self, len: usize);
}

impl Message {
    pub(crate) fn new(body: Body, recycle: Arc<dyn Recycle>) -> Self {
        Self { len: body.len(), body: Some(body), recycle }
    }

    /// Its memory, to be changed or sent on without a copy, on any session of the node that received it
    ///
    /// What the message took of the share of its stream is given back at once. A short message for which no registered memory was free
    /// in one piece is on the heap.
    ///
    /// # Errors
    ///
    /// The [`Message`] itself, if it is on the heap: it has to be copied into a lease.
    pub fn into_lease(mut self) -> Result<Lease, Self> {
        match self.body.take() {
            Some(Body::Lease(lease)) => Ok(lease),
            body => {
                self.body = body;
                Err(self)
            }
        }
    }
}

impl Deref for Message {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.body.as_deref().unwrap_or_default()
    }
}

impl AsRef<[u8]> for Message {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl From<Message> for Bytes {
    fn from(message: Message) -> Self {
        Self::from_owner(message)
    }
}

impl Drop for Message {
    fn drop(&mut self) {
        drop(self.body.take());
        self.recycle.recycle(self.len);
    }
}

impl fmt::Debug for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Message").field("len", &self.len()).finish_non_exhaustive()
    }
}
