//! Memory as one device knows it
#![allow(unsafe_code, reason = "the device is told of memory by its address")]

use std::sync::Arc;

use rdma_core::{Device, MemoryRegion, Sge, Teardown};

use super::adopted::AdoptedMemory;
use super::lease::Lease;
use super::memory::Memory;

/// All memory of a pool, or that the application has given, registered for one path
///
/// Registrations of its own for each path: when they are gone, the device touches no memory any more because of that path.
pub(crate) struct Registration<D: Device> {
    // In the order in which they must go.
    region: D::Mr,
    memory: Arc<Memory>,
}

impl<D: Device> Registration<D> {
    pub(super) fn new(memory: &Arc<Memory>, device: &D) -> Result<Self, rdma_core::Error> {
        let slice = memory.bytes();
        // SAFETY: the memory lives in the same structure as the registration and is dropped after it; leases, the only way to
        // its memory, are owned by the tables of the peering while they are posted.
        let region = unsafe { device.register_local(slice) };
        Ok(Self { region: region?, memory: Arc::clone(memory) })
    }

    /// Memory of the application
    pub(crate) fn adopted(memory: &AdoptedMemory, device: &D) -> Result<Self, rdma_core::Error> {
        Self::new(&memory.0, device)
    }

    /// The memory of `lease`
    pub(crate) fn of(lease: &Lease, device: &D) -> Result<Self, rdma_core::Error> {
        Self::new(lease.memory(), device)
    }

    /// Whether `lease` is a part of the memory
    #[inline]
    pub(crate) fn holds(&self, lease: &Lease) -> bool {
        lease.is_part_of(&self.memory)
    }

    /// Whether it is that of `adopted`
    pub(crate) fn is_of(&self, adopted: &AdoptedMemory) -> bool {
        Arc::ptr_eq(&self.memory, &adopted.0)
    }

    /// Deregisters the memory; the queue pairs that named it are destroyed
    pub(crate) fn deregister(&mut self) -> Teardown {
        self.region.deregister()
    }

    /// `len` bytes at `offset` of a lease, as the device names them
    pub(crate) fn sge(&self, lease: &Lease, offset: usize, len: usize) -> Sge {
        assert!(offset + len <= lease.capacity(), "a request stays inside its lease");
        let addr = self.region.base() + (lease.offset() + offset) as u64;
        Sge { addr, len: len as u32, lkey: self.region.lkey() }
    }
}
