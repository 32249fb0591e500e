//! A region of registered memory, and the copies that a device makes in it
//!
//! The only module of the simulator that reads and writes through pointers.
#![allow(unsafe_code, reason = "the simulated DMA engine writes through the pointers that were registered")]

use std::ptr::NonNull;

use rdma_core::{Access, Lkey, Rkey};

use crate::fabric::ids::DeviceIndex;

/// Regions are at least 4 GiB apart, and devices find no data beyond a multiple of 4 GiB.
pub(super) const BOUNDARY: u64 = 1 << 32;

/// Memory that a device may touch
#[derive(Debug)]
pub(super) struct Region {
    pub(super) device: DeviceIndex,
    pub(super) base: u64,
    pub(super) lkey: Lkey,
    pub(super) rkey: Option<Rkey>,
    pub(super) access: Access,
    /// The step of set-up in which it was registered.
    pub(super) registered: u64,
    memory: NonNull<[u8]>,
}

// SAFETY: the pointer is used only by the functions of this module, whose callers hold the fabric exclusively. The contract of
// `Device::register` and of the posts binds the program: the memory stays valid while it is registered; the program does not
// touch parts that are posted for receiving and does not write parts that are posted for sending; and it holds no reference
// to memory that a remote right exposes, which it accesses by volatile or atomic accesses.
unsafe impl Send for Region {}

impl Region {
    pub(super) fn new(
        device: DeviceIndex,
        base: u64,
        lkey: Lkey,
        rkey: Option<Rkey>,
        access: Access,
        registered: u64,
        memory: NonNull<[u8]>,
    ) -> Self {
        Self { device, base, lkey, rkey, access, registered, memory }
    }

    pub(super) fn len(&self) -> usize {
        self.memory.len()
    }

    /// The offset of `addr`, if `len` bytes from there are inside
    pub(super) fn offset(&self, addr: u64, len: usize) -> Option<usize> {
        let offset = usize::try_from(addr.checked_sub(self.base)?).ok()?;
        (offset.checked_add(len)? <= self.len()).then_some(offset)
    }

    /// Whether it was registered after the step `ready_at` of set-up
    pub(super) fn is_later_than(&self, ready_at: Option<u64>) -> bool {
        ready_at.is_some_and(|ready_at| self.registered > ready_at)
    }

    /// How many of `len` bytes at `offset` the device finds: none beyond the next 4 GiB boundary after the base
    pub(super) fn reachable(&self, offset: usize, len: usize) -> usize {
        let boundary = BOUNDARY - self.base % BOUNDARY;
        usize::try_from(boundary).unwrap_or(usize::MAX).saturating_sub(offset).min(len)
    }

    /// The range of `len` bytes at `offset`, if it is inside
    fn range(&self, offset: usize, len: usize) -> Option<NonNull<u8>> {
        if offset.checked_add(len)? > self.len() {
            return None;
        }
        // SAFETY: the offset was just found to be inside the registered memory.
        Some(unsafe { self.memory.cast::<u8>().add(offset) })
    }

    /// Inverts the byte at `offset`, if there is one
    pub(super) fn damage(&self, offset: usize) {
        if let [byte] = self.bytes(offset, 1)[..] {
            self.write(offset, &[!byte]);
        }
    }

    /// Overwrites a range with `byte`; nothing happens if it is not inside
    pub(super) fn fill(&self, offset: usize, len: usize, byte: u8) {
        if let Some(range) = self.range(offset, len) {
            // SAFETY: the range is inside registered memory, which is valid; it is posted for receiving.
            unsafe { range.write_bytes(byte, len) };
        }
    }

    /// Copies a range out; empty if it is not inside
    pub(super) fn bytes(&self, offset: usize, len: usize) -> Vec<u8> {
        let mut out = vec![0; len];
        match self.range(offset, len) {
            // SAFETY: the range is inside registered memory, which is valid; it is posted, or a remote right exposes it. `out` is
            // new memory.
            Some(range) => unsafe { range.copy_to_nonoverlapping(NonNull::from(&mut *out).cast(), len) },
            None => out.clear(),
        }
        out
    }

    /// Shows a range as the device finds it; nothing if it is not inside
    ///
    /// With `boundary`, zeros are read beyond a 4 GiB boundary.
    pub(super) fn show<T>(
        &self,
        offset: usize,
        len: usize,
        boundary: bool,
        f: impl FnOnce(&[u8]) -> T,
    ) -> Option<T> {
        let range = NonNull::slice_from_raw_parts(self.range(offset, len)?, len);
        let found = if boundary { self.reachable(offset, len) } else { len };
        // SAFETY: the range is inside registered memory, which is valid, and is posted: the program does not write it, and devices
        // write only while they hold the fabric, which the caller holds.
        let bytes = unsafe { range.as_ref() };
        if found == len {
            return Some(f(bytes));
        }
        let mut copy = bytes.to_vec();
        copy[found..].fill(0);
        Some(f(&copy))
    }

    /// Copies in what the device can: with `boundary`, no bytes beyond a 4 GiB boundary
    pub(super) fn write_reachable(&self, offset: usize, bytes: &[u8], boundary: bool) {
        let found = if boundary { self.reachable(offset, bytes.len()) } else { bytes.len() };
        self.write(offset, &bytes[..found]);
    }

    /// Copies `bytes` in; nothing happens if the range is not inside
    pub(super) fn write(&self, offset: usize, bytes: &[u8]) {
        if let Some(range) = self.range(offset, bytes.len()) {
            // SAFETY: the range is inside registered memory, which is valid; it is posted for receiving, or a remote right exposes
            // it. `bytes` is memory of the simulator.
            unsafe { range.copy_from_nonoverlapping(NonNull::from(bytes).cast(), bytes.len()) };
        }
    }
}

/// Copies `len` bytes from one region into another, as the two devices do together
///
/// The ranges may overlap. Nothing is copied, and `false` returned, if one of them is not inside its region. With
/// `boundary`, what lies beyond a 4 GiB boundary is not found: zeros are read there, and writes go elsewhere.
pub(super) fn copy(
    from: &Region,
    from_offset: usize,
    to: &Region,
    to_offset: usize,
    len: usize,
    boundary: bool,
) -> bool {
    let (Some(source), Some(target)) = (from.range(from_offset, len), to.range(to_offset, len)) else {
        return false;
    };
    let (mut read, mut written) = (len, len);
    if boundary {
        (read, written) = (from.reachable(from_offset, len), to.reachable(to_offset, len));
    }
    // SAFETY: both ranges are inside registered memory, which is valid; each is posted, or a remote right exposes it. They may
    // overlap, which `copy_to` permits.
    unsafe { source.copy_to(target, read.min(written)) };
    if read < written {
        to.fill(to_offset + read, written - read, 0);
    }
    true
}
