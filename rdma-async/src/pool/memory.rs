//! The one registration of an endpoint, and which of its frames are free
#![allow(unsafe_code, reason = "the device is told of memory by its address")]

use std::any::Any;
use std::fmt;
use std::io::ErrorKind;
use std::ptr::NonNull;
use std::sync::Arc;

use rdma_arena::Arena;
use rdma_core::{Access, Device, FRAME, Lkey, MemoryRegion, Sge};

use super::frames::Frames;
use crate::error::PoolError;
use crate::wait_queue::SharedWaitQueue;

/// What memory is for: one kind cannot starve another
///
/// As wide as the other fields of a lease: leases move often, and a wide read of narrow writes waits for them.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[repr(u32)]
pub(crate) enum Zone {
    /// Messages that the application sends
    Send = 0,
    /// The windows of the connections
    Eager = 1,
    /// Longer messages that are received
    Bulk = 2,
    /// Packets that are sent, until the peer has them
    Transmit = 3,
}

/// How many zones there are
pub(super) const ZONES: usize = 4;

/// Mapped and registered memory, divided into zones of frames
pub(super) struct Memory {
    zones: [SharedWaitQueue<Frames>; ZONES],
    /// How long each zone is, in frames.
    lens: [u32; ZONES],
    /// Where each zone begins, in frames.
    starts: [u32; ZONES],
    base: u64,
    lkey: Lkey,
    // In the order in which they must go: the registration, the memory, and what the registration hangs on.
    _region: Option<Box<dyn MemoryRegion>>,
    arena: Arena,
    _anchor: Option<Arc<dyn Any + Send + Sync>>,
}

/// Places for tasks that wait for memory, before waiting itself allocates.
const WAITING: usize = 64;

impl Memory {
    pub(super) fn new<D: Device>(
        device: &D,
        lens: [u32; ZONES],
        anchor: Arc<dyn Any + Send + Sync>,
    ) -> Result<Self, PoolError> {
        let mut memory = Self::unregistered(lens)?;
        // SAFETY: the arena lives in the same structure as the registration and is dropped after it; leases, the only
        // way to its memory, are owned by the op table or the queue pairs while they are posted.
        let region = unsafe { device.register(memory.arena.as_slice_ptr(), Access::LOCAL_WRITE) };
        let region = region.map_err(PoolError::Register)?;
        (memory.base, memory.lkey) = (region.base(), region.lkey());
        memory._region = Some(Box::new(region));
        memory._anchor = Some(anchor);
        Ok(memory)
    }

    /// Mapped memory, which each path registers for itself
    pub(super) fn unregistered(lens: [u32; ZONES]) -> Result<Self, PoolError> {
        let mut starts = [0; ZONES];
        let mut end = Some(0u32);
        for (start, len) in starts.iter_mut().zip(lens) {
            *start = end.unwrap_or_default();
            end = end.and_then(|end| end.checked_add(len));
        }
        let end = end.ok_or(PoolError::Memory(ErrorKind::OutOfMemory))?;
        let arena = Arena::new(end as usize * FRAME).map_err(|error| PoolError::Memory(error.kind()))?;
        Ok(Self {
            zones: lens.map(|frames| {
                SharedWaitQueue::new(
                    "memory of its endpoint, which leases and messages hold",
                    Frames::new(frames),
                    WAITING,
                )
            }),
            lens,
            starts,
            base: 0,
            lkey: Lkey::default(),
            _region: None,
            arena,
            _anchor: None,
        })
    }

    /// All of the memory
    pub(super) fn arena(&self) -> &Arena {
        &self.arena
    }

    pub(super) fn zone(&self, zone: Zone) -> &SharedWaitQueue<Frames> {
        &self.zones[zone as usize]
    }

    /// Length of a zone in frames
    pub(super) fn zone_len(&self, zone: Zone) -> u32 {
        self.lens[zone as usize]
    }

    /// The first byte of frame `frame` of a zone
    pub(super) fn as_ptr(&self, zone: Zone, frame: u32) -> NonNull<u8> {
        // SAFETY: leases are made of frames of their zone, which are inside the arena.
        unsafe { self.arena.as_ptr().add(self.offset(zone, frame)) }
    }

    /// `len` bytes from frame `frame` of a zone on, as a device names them
    pub(super) fn sge(&self, zone: Zone, frame: u32, len: usize) -> Sge {
        Sge { addr: self.base + self.offset(zone, frame) as u64, len: len as u32, lkey: self.lkey }
    }

    /// Where frame `frame` of a zone is, in bytes
    pub(super) fn offset(&self, zone: Zone, frame: u32) -> usize {
        (self.starts[zone as usize] + frame) as usize * FRAME
    }
}

impl fmt::Debug for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Memory").field("bytes", &self.arena.len()).finish_non_exhaustive()
    }
}
