//! Memory of this program that a device uses

use std::ops::Range;
use std::ptr::NonNull;

use rdma_arena::Arena;
use rdma_core::{
    Access, AnyDevice, AnyMemoryRegion, Cause, Device as _, Error, Invalid, Lkey, MemoryRegion as _, Sge,
    Teardown, Verb,
};

/// Every right on memory that Apple's device may want; it has no one-sided operations.
pub(crate) const ALL_ACCESS: Access =
    Access::LOCAL_WRITE.union(Access::REMOTE_READ).union(Access::REMOTE_WRITE);

/// A mapping with at most one region
///
/// The program makes no reference to it, and touches its bytes only by [`fill`](Self::fill) and [`find`](Self::find).
pub(crate) struct Memory {
    region: Option<AnyMemoryRegion>,
    /// `None` once the device may touch it for ever, so that it is never unmapped.
    arena: Option<Arena>,
}

impl Memory {
    /// Registers `len` bytes, from `offset` bytes behind the beginning of a mapping on
    pub(crate) fn register(
        device: &AnyDevice,
        offset: usize,
        len: usize,
        access: Access,
    ) -> Result<Self, Error> {
        let mut memory = Self::mapped(offset + len)?;
        // SAFETY: the rights of peers mean nothing on Apple's device. On an adapter, they may write bytes that nothing reads.
        memory.register_with(offset, |part| unsafe { device.register(part, access) })?;
        Ok(memory)
    }

    /// Registers `len` bytes for requests of this side alone
    pub(crate) fn local(device: &AnyDevice, len: usize) -> Result<Self, Error> {
        let mut memory = Self::mapped(len)?;
        memory.register_local(device)?;
        Ok(memory)
    }

    /// `len` bytes that are not registered yet
    pub(crate) fn mapped(len: usize) -> Result<Self, Error> {
        let arena = Arena::new(len)
            .map_err(|error| Error::new(Verb::RegMr, Cause::Os(error.raw_os_error().unwrap_or(22))))?;
        Ok(Self { region: None, arena: Some(arena) })
    }

    /// Registers all of it, which must not be registered, with every right: the verb and nothing else, for its time
    pub(crate) fn register_all(&mut self, device: &AnyDevice) -> Result<(), Error> {
        // SAFETY: as in `register`.
        self.register_with(0, |part| unsafe { device.register(part, ALL_ACCESS) })
    }

    /// Registers all of it, which must not be registered, for requests of this side alone
    pub(crate) fn register_local(&mut self, device: &AnyDevice) -> Result<(), Error> {
        // SAFETY: bytes are touched only while no posted request names them, as `fill` and `find` demand.
        self.register_with(0, |part| unsafe { device.register_local(part) })
    }

    /// Registers all bytes from `offset` on by `register`
    ///
    /// It may rely on this: `drop` unmaps the arena only after the region is gone, and the program makes no reference to it. The arena
    /// begins as zeros, so that a peer learns nothing of the process.
    fn register_with(
        &mut self,
        offset: usize,
        register: impl FnOnce(NonNull<[u8]>) -> Result<AnyMemoryRegion, Error>,
    ) -> Result<(), Error> {
        assert!(self.region.is_none(), "the memory is registered");
        let arena = self.arena.as_ref().expect("memory is mapped until it was deregistered");
        let (whole, len) = (arena.as_slice_ptr(), arena.len() - offset);
        // SAFETY: the mapping has `len` bytes from `offset` on.
        let from = unsafe { whole.cast::<u8>().add(offset) };
        self.region = Some(register(NonNull::slice_from_raw_parts(from, len))?);
        Ok(())
    }

    pub(crate) fn lkey(&self) -> Option<Lkey> {
        self.region.as_ref().map(AnyMemoryRegion::lkey)
    }

    /// True if peers could name the region
    pub(crate) fn has_rkey(&self) -> bool {
        self.region.as_ref().is_some_and(|region| region.rkey().is_some())
    }

    /// The element of a request for a part of the memory
    ///
    /// # Errors
    ///
    /// [`Invalid::OutsideRegion`] for a part that the memory does not have, such as one that the peer asks for.
    pub(crate) fn sge(&self, verb: Verb, range: &Range<usize>) -> Result<Sge, Error> {
        let region = self.region.as_ref().expect("the region is there until it is dropped");
        let addr = region.base().wrapping_add(range.start as u64);
        let len = u32::try_from(range.len()).unwrap_or(u32::MAX);
        if range.start <= range.end && range.end <= self.len() && len < u32::MAX {
            Ok(Sge { addr, len, lkey: region.lkey() })
        } else {
            Err(Error::new(verb, Invalid::OutsideRegion { addr, len }.into()))
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.arena.as_ref().map_or(0, Arena::len)
    }

    /// Writes `byte` of its offset into each byte
    ///
    /// # Safety
    ///
    /// No posted request names the memory, and peers have no rights to it.
    pub(crate) unsafe fn fill(&mut self, byte: impl Fn(usize) -> u8) {
        let bytes: Vec<_> = (0..self.len()).map(byte).collect();
        let Some(arena) = &self.arena else { return };
        // SAFETY: the mapping has so many bytes, and `bytes` is elsewhere. The caller promises that no request uses them.
        unsafe { arena.as_ptr().as_ptr().copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
    }

    /// The offset of the first byte of which `is_wanted` is true, with its offset as the first argument
    ///
    /// # Safety
    ///
    /// No posted request names the memory.
    pub(crate) unsafe fn find(&self, is_wanted: impl Fn(usize, u8) -> bool) -> Option<usize> {
        let first = self.arena.as_ref()?.as_ptr();
        (0..self.len()).find(|at| {
            // SAFETY: the offset is inside of the mapping.
            let address = unsafe { first.add(*at) };
            // SAFETY: the byte is mapped. It is volatile because a device that breaks its promise may write it meanwhile.
            is_wanted(*at, unsafe { address.read_volatile() })
        })
    }

    /// Deregisters; true if the device has stopped touching the memory
    pub(crate) fn deregister(&mut self) -> bool {
        self.region.as_mut().is_none_or(|region| region.deregister() == Teardown::Quiesced)
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        if !self.deregister() {
            std::mem::forget(self.arena.take());
        }
        drop(self.region.take());
    }
}
