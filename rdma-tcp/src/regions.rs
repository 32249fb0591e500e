//! The registered memory of a device, and every access to it
//!
//! Memory is reached only through [`Mapped`], which holds the lock of the table: deregistering a region waits until the system
//! call that uses it has returned, and no later call finds it.
#![allow(unsafe_code, reason = "names memory by its address")]

use std::collections::HashMap;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{PoisonError, RwLock, RwLockReadGuard};

use rdma_core::{Access, Cause, Invalid, Lkey, Resource, Sge};

/// The regions of a device, by their keys
#[derive(Debug)]
pub(crate) struct Regions {
    table: RwLock<HashMap<Lkey, Region>>,
    next: AtomicU32,
    max: u32,
}

#[derive(Clone, Copy, Debug)]
struct Region {
    memory: NonNull<[u8]>,
    is_writable: bool,
}

// SAFETY: a region is an address. Memory behind it is accessed under the contract of `Mapped::range` only.
unsafe impl Send for Region {}
// SAFETY: as above.
unsafe impl Sync for Region {}

/// Registered memory, none of which is deregistered while this exists
pub(crate) struct Mapped<'a>(RwLockReadGuard<'a, HashMap<Lkey, Region>>);

impl Regions {
    pub(crate) fn new(max: u32) -> Self {
        // Keys are never used again, and no key is zero, so that a forgotten field is an error.
        Self { table: RwLock::default(), next: AtomicU32::new(1), max }
    }

    /// Adds a region
    ///
    /// # Safety
    ///
    /// `memory` stays valid for reads and writes until [`remove`](Self::remove) has returned.
    pub(crate) unsafe fn add(&self, memory: NonNull<[u8]>, access: Access) -> Result<Lkey, Cause> {
        if memory.is_empty() {
            return Err(Invalid::EmptyRegion.into());
        }
        let mut table = self.table.write().unwrap_or_else(PoisonError::into_inner);
        let exhausted = Cause::Exhausted { resource: Resource::MemoryRegions, limit: self.max };
        if table.len() >= self.max as usize {
            return Err(exhausted);
        }
        let lkey = self.next.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |next| next.checked_add(1));
        let lkey = Lkey(lkey.map_err(|_| exhausted)?);
        table.insert(lkey, Region { memory, is_writable: access.contains(Access::LOCAL_WRITE) });
        Ok(lkey)
    }

    /// Removes a region; waits for a system call that uses it
    pub(crate) fn remove(&self, lkey: Lkey) {
        self.table.write().unwrap_or_else(PoisonError::into_inner).remove(&lkey);
    }

    /// Locks the regions for accesses
    pub(crate) fn map(&self) -> Mapped<'_> {
        Mapped(self.table.read().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Mapped<'_> {
    /// The address of the first byte of `sge`, whose whole range is valid for reads and writes while `self` exists
    pub(crate) fn range(&self, sge: &Sge, is_written: bool) -> Result<NonNull<u8>, Invalid> {
        let region = self.0.get(&sge.lkey).ok_or(Invalid::Lkey { lkey: sge.lkey })?;
        let outside = Invalid::OutsideRegion { addr: sge.addr, len: sge.len };
        let base = region.memory.cast::<u8>();
        let offset = sge.addr.checked_sub(base.as_ptr() as u64).ok_or(outside)?;
        let is_inside =
            offset.checked_add(sge.len.into()).is_some_and(|end| end <= region.memory.len() as u64);
        if !is_inside {
            return Err(outside);
        }
        if is_written && !region.is_writable {
            return Err(Invalid::Refused);
        }
        // SAFETY: the offset was just found to be inside the region.
        Ok(unsafe { base.add(offset as usize) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn memory(bytes: &mut [u8]) -> NonNull<[u8]> {
        NonNull::from(bytes)
    }

    fn add(regions: &Regions, bytes: &mut [u8], access: Access) -> Result<Lkey, Cause> {
        // SAFETY: the memory outlives the table in each test, and no test accesses it by the table.
        unsafe { regions.add(memory(bytes), access) }
    }

    /// Catches a check that is off by one, or that overflows.
    #[test]
    fn ranges_inside_are_found_and_others_are_not() {
        let mut bytes = [0; 100];
        let base = bytes.as_ptr() as u64;
        let regions = Regions::new(2);
        let lkey = add(&regions, &mut bytes, Access::LOCAL_WRITE).unwrap();
        let range =
            |addr, len| regions.map().range(&Sge { addr, len, lkey }, true).map(|at| at.as_ptr() as u64);
        for (offset, len) in [(0, 100), (99, 1), (100, 0), (40, 60)] {
            assert_eq!(range(base + offset, len), Ok(base + offset));
        }
        for (addr, len) in [(base - 1, 1), (base, 101), (base + 100, 1), (u64::MAX, u32::MAX), (0, 0)] {
            assert_eq!(range(addr, len), Err(Invalid::OutsideRegion { addr, len }));
        }
    }

    /// Catches a key that is used again, a region that stays, and rights that are not checked.
    #[test]
    fn keys_and_rights_are_checked() {
        let (mut one, mut two) = ([0; 8], [0; 8]);
        let addr = one.as_ptr() as u64;
        let regions = Regions::new(1);
        let lkey = add(&regions, &mut one, Access::NONE).unwrap();
        let sge = Sge { addr, len: 8, lkey };
        assert!(regions.map().range(&sge, false).is_ok());
        assert_eq!(regions.map().range(&sge, true), Err(Invalid::Refused));
        let full = Cause::Exhausted { resource: Resource::MemoryRegions, limit: 1 };
        assert_eq!(add(&regions, &mut two, Access::NONE), Err(full));
        regions.remove(lkey);
        assert_eq!(regions.map().range(&sge, false), Err(Invalid::Lkey { lkey }));
        assert_ne!(add(&regions, &mut two, Access::NONE).unwrap(), lkey);
        assert_eq!(add(&Regions::new(1), &mut [], Access::NONE), Err(Invalid::EmptyRegion.into()));
    }
}
