use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use bytes::Bytes;

use crate::pool::Lease;

/// A received message, where the device put it
///
/// Dereferences to its bytes; becomes [`Bytes`] without a copy. **Memory of messages that are kept is not free for others**: a
/// peer whose messages are never dropped can send only as much as the window and the receive memory hold.
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
/// use bytes::Bytes;
///
/// connection.send_bytes(b"hello").await?;
/// let message = peer.recv().await?.expect("a message");
/// assert_eq!(*message, *b"hello");
/// let bytes = Bytes::from(message);
/// assert_eq!(bytes.slice(..4), b"hell".as_slice());
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// # }).value.unwrap();
/// ```
#[must_use]
pub struct Message {
    /// `None` only while it is dropped.
    lease: Option<Lease>,
    recycle: Arc<dyn Recycle>,
}

/// Takes back the memory of messages that were read
pub(super) trait Recycle: Send + Sync {
    fn recycle(&self, lease: Lease);
}

impl Message {
    pub(super) fn new(lease: Lease, recycle: Arc<dyn Recycle>) -> Self {
        Self { lease: Some(lease), recycle }
    }
}

impl Deref for Message {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.lease.as_deref().unwrap_or_default()
    }
}

impl AsRef<[u8]> for Message {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl From<Message> for Bytes {
    /// The same bytes where they are: their memory is the connection's until the last of the `Bytes` is dropped
    fn from(message: Message) -> Self {
        Self::from_owner(message)
    }
}

impl Drop for Message {
    fn drop(&mut self) {
        if let Some(lease) = self.lease.take() {
            self.recycle.recycle(lease);
        }
    }
}

impl fmt::Debug for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Message").field("len", &self.len()).finish_non_exhaustive()
    }
}
