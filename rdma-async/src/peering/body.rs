//! The memory of one message

use std::ops::Deref;

use super::copies::CopiedMessage;
use crate::effects;
use crate::pool::{Account, Charge, Lease};

/// Effects that may free memory of messages
pub(crate) type Effects = effects::Effects<Body>;

/// Where the bytes of a message are
#[derive(Debug)]
pub(crate) enum Body {
    /// In registered memory
    Lease(Lease),
    /// On the heap: registered memory had no room in one piece, or none where the message may stay
    Heap(HeapMessage),
    /// To be sent, copied by the node
    Copy(CopiedMessage),
}

/// A message on the heap
#[derive(Debug, Default)]
pub(crate) struct HeapMessage {
    pub(super) bytes: Box<[u8]>,
    /// The frames that it had when it arrived, if they count.
    charge: Option<Charge>,
}

impl From<Box<[u8]>> for HeapMessage {
    fn from(bytes: Box<[u8]>) -> Self {
        Self { bytes, charge: None }
    }
}

impl Body {
    /// Copies the bytes to the heap if they are where messages do not stay; returns the registered memory then
    #[must_use = "it is dropped after unlocking"]
    pub(super) fn leave_transit(&mut self) -> Option<Self> {
        match self {
            Self::Lease(lease) if lease.is_in_transit() => {
                let copy = HeapMessage { bytes: lease.as_ref().into(), charge: lease.charge() };
                Some(std::mem::replace(self, Self::Heap(copy)))
            }
            Self::Lease(_) | Self::Heap(_) | Self::Copy(_) => None,
        }
    }

    /// Lets the frames count towards `account`, if they count at all
    pub(super) fn recharge_to(&mut self, account: &Account) {
        match self {
            Self::Lease(lease) => lease.recharge_to(account),
            Self::Heap(HeapMessage { charge: Some(charge), .. }) => charge.recharge_to(account),
            Self::Heap(_) | Self::Copy(_) => (),
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
            Self::Heap(message) => &message.bytes,
            Self::Copy(message) => message,
        }
    }
}
