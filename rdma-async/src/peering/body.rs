//! The memory of one message

use std::ops::Deref;

use crate::effects;
use crate::pool::Lease;

/// Effects that may free memory of messages
pub(crate) type Effects = effects::Effects<Body>;

/// Where the bytes of a message are
#[derive(Debug)]
pub(crate) enum Body {
    /// In registered memory
    Lease(Lease),
    /// On the heap: registered memory had no room in one piece
    Heap(Box<[u8]>),
}

impl Body {
    /// Copies the bytes to the heap; returns the registered memory, if they were there
    pub(super) fn move_to_heap(&mut self) -> Option<Self> {
        match self {
            Self::Lease(lease) => {
                let copy = Self::Heap(lease.as_ref().into());
                Some(std::mem::replace(self, copy))
            }
            Self::Heap(_) => None,
        }
    }
}

impl Deref for Body {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Self::Lease(lease) => lease,
            Self::Heap(bytes) => bytes,
        }
    }
}
