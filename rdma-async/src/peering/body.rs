//! The memory of one message

use std::ops::Deref;

use super::copies::CopiedMessage;
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
    /// To be sent, copied by the node
    Copy(CopiedMessage),
}

impl Body {
    /// Copies the bytes to the heap; returns the registered memory, if they were there
    pub(super) fn move_to_heap(&mut self) -> Option<Self> {
        match self {
            Self::Lease(lease) => {
                let copy = Self::Heap(lease.as_ref().into());
                Some(std::mem::replace(self, copy))
            }
            Self::Heap(_) | Self::Copy(_) => None,
        }
    }

    /// The lease in which the application has the message
    ///
    /// # Errors
    ///
    /// The [`Body`] itself, if it is no lease of the application.
    pub(crate) fn into_lease(self) -> Result<Lease, Self> {
        match self {
            Self::Lease(lease) => Ok(lease),
            heap @ (Self::Heap(_) | Self::Copy(_)) => Err(heap),
        }
    }
}

impl Deref for Body {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Self::Lease(lease) => lease,
            Self::Heap(bytes) => bytes,
            Self::Copy(message) => message,
        }
    }
}
