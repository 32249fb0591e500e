use std::fmt;
use std::ops::Deref;
use std::sync::Weak;

use bytes::Bytes;

use crate::peering::body::Body;
use crate::peering::stream_state::StreamKey;
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
/// their stream, which stalls when they occupy all of it. Messages up to 68,544 bytes take nothing from other streams; longer ones are
/// in the [receive memory](crate::NodeOptions::receive_memory) of the node: what a session keeps of it stalls the session itself, and no
/// other one, when it is half of what the messages of other sessions and its own unread ones leave.
#[must_use]
pub struct Message {
    // In the order in which they must go.
    body: Body,
    place: Place,
}

/// What a message holds of its stream, until it is dropped
struct Place {
    len: usize,
    stream: StreamKey,
    /// Weak: a peering that sends the message on keeps neither itself nor another one.
    peering: Weak<dyn Recycle>,
}

/// Takes back what a message held in its stream
pub(crate) trait Recycle: Send + Sync {
    /// A message of `len` bytes was dropped
    fn recycle(&self, stream: StreamKey, len: usize);
}

impl Drop for Place {
    fn drop(&mut self) {
        if let Some(peering) = self.peering.upgrade() {
            peering.recycle(self.stream, self.len);
        }
    }
}

impl Message {
    pub(crate) fn new(body: Body, peering: Weak<dyn Recycle>, stream: StreamKey) -> Self {
        Self { place: Place { len: body.len(), stream, peering }, body }
    }

    /// Its memory, to be changed or sent on without a copy, on any session of the node that received it
    ///
    /// It counts as the message until it is dropped. A short message for which no registered memory was free in one piece is on the
    /// heap, and so is a longer one for which other messages left no [receive memory](crate::NodeOptions::receive_memory).
    ///
    /// # Errors
    ///
    /// The [`Message`] itself, if it is on the heap: it has to be copied into a lease.
    pub fn into_lease(self) -> Result<Lease, Self> {
        let Self { body, place } = self;
        match body {
            Body::Lease(mut lease) => {
                lease.drop_last(Box::new(place));
                Ok(lease)
            }
            body => Err(Self { body, place }),
        }
    }
}

impl Deref for Message {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.body
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

impl fmt::Debug for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Message").field("len", &self.len()).finish_non_exhaustive()
    }
}
