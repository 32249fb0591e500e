//! The memory of one message

use std::ops::Deref;
use std::sync::Arc;

use crate::effects;
use crate::pool::Lease;
use crate::wait_queue::SharedWaitQueue;

/// Effects that may free memory of messages
pub(crate) type Effects = effects::Effects<Body>;

/// Where the bytes of a message are
#[derive(Debug)]
pub(crate) enum Body {
    /// In registered memory
    Lease(Lease),
    /// On the heap: registered memory had no room in one piece
    Heap(Box<[u8]>),
    /// A copy to be sent, on the heap: registered memory had no room beside what it leaves to others
    Copy(Box<[u8]>, #[expect(dead_code, reason = "it is free when this is dropped")] HeapPlace),
}

/// The one place of a stream for a [copy](Body::Copy) on the heap, which is free again when this is dropped
///
/// Dropping it wakes a task: not under a lock.
#[derive(Debug)]
pub(crate) struct HeapPlace(Arc<SharedWaitQueue<bool>>);

impl HeapPlace {
    /// For a stream whose tasks wait in `line` while the place is taken
    pub(crate) fn new(line: &Arc<SharedWaitQueue<bool>>) -> Self {
        Self(Arc::clone(line))
    }
}

impl Drop for HeapPlace {
    fn drop(&mut self) {
        self.0.update(|is_taken| *is_taken = false);
    }
}

impl Body {
    /// Copies the bytes to the heap; returns the registered memory, if they were there
    pub(super) fn move_to_heap(&mut self) -> Option<Self> {
        match self {
            Self::Lease(lease) => {
                let copy = Self::Heap(lease.as_ref().into());
                Some(std::mem::replace(self, copy))
            }
            Self::Heap(_) | Self::Copy(..) => None,
        }
    }

    /// The registered memory, if the bytes are there; what else there is to drop, after unlocking
    pub(crate) fn into_lease(self) -> Result<Lease, Self> {
        match self {
            Self::Lease(lease) => Ok(lease),
            heap @ (Self::Heap(_) | Self::Copy(..)) => Err(heap),
        }
    }
}

impl Deref for Body {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Self::Lease(lease) => lease,
            Self::Heap(bytes) | Self::Copy(bytes, _) => bytes,
        }
    }
}
