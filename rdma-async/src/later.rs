//! What waits until the lock of a connection is released

use std::task::Waker;

use rdma_core::Device;

use crate::Lease;
use crate::gate::Next;
use crate::hub::Hub;

/// Tasks to wake and memory to free
///
/// Both run code of others: a waker may poll its task on the spot, which may ask for the lock again.
#[derive(Debug, Default)]
pub(crate) struct Later {
    deeds: Vec<Deed>,
    is_reactor_due: bool,
}

#[derive(Debug)]
enum Deed {
    Free(Lease),
    Wake(Waker),
}

impl Later {
    /// What the reactor uses again and again, with space so that it need not allocate
    pub(crate) fn with_capacity(capacity: usize) -> Self {
        Self { deeds: Vec::with_capacity(capacity), is_reactor_due: false }
    }

    pub(crate) fn wake(&mut self, next: Next) {
        self.deeds.extend(next.waker.map(Deed::Wake));
    }

    pub(crate) fn wake_reactor(&mut self) {
        self.is_reactor_due = true;
    }

    #[inline]
    pub(crate) fn free(&mut self, leases: impl IntoIterator<Item = Lease>) {
        self.deeds.extend(leases.into_iter().map(Deed::Free));
    }

    /// Frees what nobody waits for any more, and wakes who waits
    #[inline]
    pub(crate) fn settle(&mut self, (lease, next): (Option<Lease>, Next)) {
        self.free(lease);
        self.wake(next);
    }

    /// Does everything that waits; the caller holds no lock
    #[inline]
    pub(crate) fn run<D: Device>(&mut self, hub: &Hub<D>) {
        for deed in self.deeds.drain(..) {
            match deed {
                Deed::Free(lease) => drop(lease),
                Deed::Wake(waker) => waker.wake(),
            }
        }
        if std::mem::take(&mut self.is_reactor_due) {
            hub.wake_reactor();
        }
    }
}
