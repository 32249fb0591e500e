use std::fmt;
use std::io;

use crate::error::SendError;
use crate::pool::Lease;

/// A message that was not sent, with its lease where it can be had
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
/// let mut lease = connection.alloc(64).await?;
/// lease.extend_from_slice(b"hello");
/// connection.abort();
/// let failed = connection.send(lease).await.unwrap_err();
/// assert!(failed.lease.is_some_and(|lease| *lease == *b"hello"), "the message comes back");
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// # }).value.unwrap();
/// ```
#[derive(thiserror::Error)]
#[error("{error}")]
pub struct SendFailed {
    /// What went wrong
    #[source]
    pub error: SendError,
    /// The message; `None` if a device may still touch its memory
    pub lease: Option<Lease>,
}

impl fmt::Debug for SendFailed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("SendFailed").field(&self.error).finish()
    }
}

impl From<SendFailed> for SendError {
    fn from(failed: SendFailed) -> Self {
        failed.error
    }
}

impl From<SendFailed> for io::Error {
    fn from(failed: SendFailed) -> Self {
        failed.error.into()
    }
}
