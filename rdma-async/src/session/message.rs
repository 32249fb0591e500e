use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use bytes::Bytes;

use crate::peering::body::Body;

/// A received message
///
/// Dereferences to its bytes; becomes [`Bytes`] without a copy. Memory of messages that are kept counts towards the share of
/// their session, which stalls when they occupy all of it. Messages up to 64 KiB take nothing from other sessions; longer ones are
/// in the [receive memory](crate::NodeOptions::receive_memory) of the node, of which a session gets half at most.
#[must_use]
pub struct Message {
    /// `None` only while it is dropped.
    body: Option<Body>,
    recycle: Arc<dyn Recycle>,
}

/// Takes back what a message held in its session
pub(crate) trait Recycle: Send + Sync {
    /// A message of `len` bytes was dropped; its memory is free already
    fn recycle(&self, len: usize);
}

impl Message {
    pub(crate) fn new(body: Body, recycle: Arc<dyn Recycle>) -> Self {
        Self { body: Some(body), recycle }
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
        let len = self.len();
        drop(self.body.take());
        self.recycle.recycle(len);
    }
}

impl fmt::Debug for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Message").field("len", &self.len()).finish_non_exhaustive()
    }
}
