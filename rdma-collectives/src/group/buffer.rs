//! The memory of a message of an operation while it is written

use std::ops::{Deref, DerefMut};

use rdma_async::Lease;

/// Where a message is written
pub(crate) enum Buffer {
    /// For the stream of the neighbour
    Lease(Lease),
    /// For other ranks
    Heap(Vec<u8>),
}

impl Buffer {
    pub(crate) fn extend_from_slice(&mut self, bytes: &[u8]) {
        match self {
            Self::Lease(lease) => lease.extend_from_slice(bytes),
            Self::Heap(message) => message.extend_from_slice(bytes),
        }
    }

    pub(crate) fn resize(&mut self, len: usize, value: u8) {
        match self {
            Self::Lease(lease) => lease.resize(len, value),
            Self::Heap(message) => message.resize(len, value),
        }
    }
}

impl Deref for Buffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Self::Lease(lease) => lease,
            Self::Heap(message) => message,
        }
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        match self {
            Self::Lease(lease) => lease,
            Self::Heap(message) => message,
        }
    }
}
