//! Registered memory and the copies that a device makes in it
//!
//! The only module of the simulator with `unsafe` code that is not a trait's signature.
#![allow(unsafe_code, reason = "the simulated DMA engine writes through the pointers that were registered")]

use std::ptr::NonNull;

use rdma_core::Lkey;

use super::DeviceIndex;

/// Memory that a device may touch
#[derive(Debug)]
pub(crate) struct Region {
    pub(super) device: DeviceIndex,
    pub(super) base: u64,
    pub(super) lkey: Lkey,
    memory: NonNull<[u8]>,
}

// SAFETY: the pointer is only used by `copy`, whose callers hold the fabric exclusively; who registered the memory
// promised (`Device::register`, and the posts) that it is valid and that nobody else uses the parts that are posted.
unsafe impl Send for Region {}

impl Region {
    pub(super) fn new(device: DeviceIndex, base: u64, lkey: Lkey, memory: NonNull<[u8]>) -> Self {
        Self { device, base, lkey, memory }
    }

    pub(super) fn len(&self) -> usize {
        self.memory.len()
    }

    /// The range of `len` bytes at `offset`, if it is inside
    fn range(&self, offset: usize, len: usize) -> Option<NonNull<u8>> {
        if offset.checked_add(len)? > self.len() {
            return None;
        }
        // SAFETY: the offset was just found to be inside the registered memory.
        Some(unsafe { self.memory.cast::<u8>().add(offset) })
    }
}

/// Copies `len` bytes from one region into another, as the two devices do together
///
/// The ranges may overlap. Nothing is copied, and `false` returned, if one of them is not inside its region.
pub(super) fn copy(from: &Region, from_offset: usize, to: &Region, to_offset: usize, len: usize) -> bool {
    let (Some(from), Some(to)) = (from.range(from_offset, len), to.range(to_offset, len)) else {
        return false;
    };
    // SAFETY: both ranges are inside registered memory, named by posted requests; registering and posting promised that
    // the memory is valid and not in use by anybody but the device.
    unsafe { from.copy_to(to, len) };
    true
}
