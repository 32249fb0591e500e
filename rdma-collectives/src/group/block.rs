//! Messages that arrived, until they are used

use rdma_async::{Lease, MAX_EAGER, Message};

use super::wire::Header;

/// A message of an operation
///
/// A short one is copied at once, so that it takes nothing of the share of its stream while it waits.
pub(crate) enum Block {
    Heap(Box<[u8]>),
    Lease(Lease),
}

impl Block {
    pub(crate) fn new(message: Message) -> Self {
        let message = if message.len() > MAX_EAGER { message.into_lease() } else { Err(message) };
        match message {
            Ok(lease) => Self::Lease(lease),
            Err(message) => Self::Heap(Box::from(&*message)),
        }
    }

    pub(crate) fn message(&self) -> &[u8] {
        match self {
            Self::Heap(bytes) => bytes,
            Self::Lease(lease) => lease,
        }
    }

    /// The `len` bytes behind the header, if there are so many
    pub(crate) fn payload(&self, len: usize) -> &[u8] {
        self.message().get(Header::LEN..Header::LEN + len).unwrap_or_default()
    }

    /// How much of the receive memory of the node it holds, in bytes
    pub(crate) fn held(&self) -> usize {
        match self {
            Self::Heap(_) => 0,
            Self::Lease(lease) => lease.len(),
        }
    }

    /// Moves it out of the receive memory of the node
    pub(crate) fn release(&mut self) {
        if let Self::Lease(lease) = self {
            *self = Self::Heap(Box::from(&**lease));
        }
    }
}
