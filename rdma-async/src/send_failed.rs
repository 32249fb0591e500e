use std::fmt;

use crate::error::SendError;
use crate::pool::Lease;

/// A message that was not sent, with its lease where it can be had
///
/// ```
/// # use rdma_async::*;
/// # rdma_sim::Sim::new().run(async |net| {
/// # let node = |host| Node::builder(net.opener(host, "rdma_en2")).runtime(net.runtime()).build();
/// # let (a, b) = (node("a").unwrap(), node("b").unwrap());
/// # let (to_b, to_a) = tokio::io::duplex(1024);
/// # let (session, ()) = futures::future::try_join(a.connect(to_b), b.serve(to_a)).await.unwrap();
/// # let peer = b.accept().await.unwrap();
/// let lease = session.alloc(64).await?;
/// session.reset(7);
/// let failed = session.send(lease).await.unwrap_err();
/// assert!(failed.lease.is_some());
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
