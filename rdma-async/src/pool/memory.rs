//! The memory of a node, and which of its frames are free
#![allow(unsafe_code, reason = "leases are ranges of this memory")]

use std::any::Any;
use std::fmt;
use std::io::ErrorKind;
use std::ptr::NonNull;
use std::sync::Arc;

use rdma_arena::Arena;
use rdma_core::FRAME;

use super::frames::Frames;
use super::shortage::Shortages;
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
    /// The windows of the paths, and messages up to 68,544 bytes that are received
    Eager = 1,
    /// Longer messages that are received
    Bulk = 2,
    /// Packets that are sent, until the peer has them
    Transmit = 3,
}

/// How many zones there are
pub(super) const ZONES: usize = 4;

/// Memory that is divided into zones of frames
pub(super) struct Memory {
    zones: [SharedWaitQueue<Frames>; ZONES],
    /// How often memory for longer messages came free, for those that must not stand in line.
    freed: SharedWaitQueue<u64>,
    shortages: Arc<Shortages>,
    /// How long each zone is, in frames.
    lens: [u32; ZONES],
    /// Where each zone begins, in frames.
    starts: [u32; ZONES],
    /// Frames of [`Zone::Eager`] that messages leave to windows.
    windows: u32,
    /// The first frames of [`Zone::Bulk`], in which messages arrive and do not stay.
    transit: u32,
    /// All of the memory; while `owner` is here, only leases reach it.
    bytes: NonNull<[u8]>,
    owner: Box<dyn Any + Send>,
    /// The same for all memory of a node.
    node: Arc<()>,
}

// SAFETY: the bytes are memory that leases divide among themselves; the owner is only moved, out of memory that no lease and no path shares.
unsafe impl Send for Memory {}
// SAFETY: as above.
unsafe impl Sync for Memory {}

/// Places for tasks that wait for memory, before waiting itself allocates.
const WAITING: usize = 64;

impl Memory {
    /// Mapped memory, which each path registers for itself
    pub(super) fn new(lens: [u32; ZONES], windows: u32, transit: u32) -> Result<Self, PoolError> {
        let total = lens.iter().try_fold(0u32, |total, len| total.checked_add(*len));
        let total = total.ok_or(PoolError::Memory(ErrorKind::OutOfMemory))?;
        let arena = Arena::new(total as usize * FRAME).map_err(|error| PoolError::Memory(error.kind()))?;
        let bytes = arena.as_slice_ptr();
        Ok(Self::divided(lens, [windows, transit], bytes, Box::new(arena), Arc::default()))
    }

    /// Memory of the application, one zone for the node of `pool`
    ///
    /// # Safety
    ///
    /// While `owner` lives, `bytes` are memory of it, at least one and less than 4 GiB, that no other code accesses.
    pub(super) unsafe fn adopted(pool: &Self, bytes: NonNull<[u8]>, owner: Box<dyn Any + Send>) -> Self {
        let frames = rdma_core::frames(bytes.len()) as u32;
        let mut memory = Self::divided([frames, 0, 0, 0], [0; 2], bytes, owner, Arc::clone(&pool.node));
        // A task that waits for some bytes is not in the way of one that wants others.
        memory.zones[Zone::Send as usize] =
            SharedWaitQueue::for_all("bytes of adopted memory, which others have", Frames::new(frames), 0);
        memory
    }

    fn divided(
        lens: [u32; ZONES],
        [windows, transit]: [u32; 2],
        bytes: NonNull<[u8]>,
        owner: Box<dyn Any + Send>,
        node: Arc<()>,
    ) -> Self {
        let mut end = 0;
        let starts = lens.map(|len| {
            end += len;
            end - len
        });
        let waits_for = "memory of its node, which leases and messages hold";
        Self {
            zones: lens.map(|frames| SharedWaitQueue::new(waits_for, Frames::new(frames), WAITING)),
            freed: SharedWaitQueue::for_all("memory of its node to come free", 0, WAITING),
            shortages: Arc::default(),
            lens,
            starts,
            windows,
            transit,
            bytes,
            owner,
            node,
        }
    }

    /// All of the memory
    pub(super) fn bytes(&self) -> NonNull<[u8]> {
        self.bytes
    }

    /// The owner of the memory
    pub(super) fn into_owner(mut self) -> Box<dyn Any + Send> {
        self.take_owner()
    }

    fn take_owner(&mut self) -> Box<dyn Any + Send> {
        std::mem::replace(&mut self.owner, Box::new(()))
    }

    /// Whether both are memory of one node
    pub(super) fn is_of_node(&self, pool: &Self) -> bool {
        Arc::ptr_eq(&self.node, &pool.node)
    }

    /// How many bytes there are from frame `frame` of a zone to the end of `frames`
    pub(super) fn len_of(&self, zone: Zone, frame: u32, frames: u32) -> usize {
        // The last frame of adopted memory may be short.
        (frames as usize * FRAME).min(self.bytes.len() - self.offset(zone, frame))
    }

    pub(super) fn zone(&self, zone: Zone) -> &SharedWaitQueue<Frames> {
        &self.zones[zone as usize]
    }

    pub(super) fn freed(&self) -> &SharedWaitQueue<u64> {
        &self.freed
    }

    pub(super) fn shortages(&self) -> &Arc<Shortages> {
        &self.shortages
    }

    /// Gives frames back
    pub(super) fn give(&self, zone: Zone, start: u32, frames: u32) {
        self.zone(zone).update(|zone| zone.give(start, frames));
        if zone == Zone::Bulk {
            self.freed.update(|count| *count += 1);
        }
    }

    /// Frames of [`Zone::Eager`] that messages leave to windows
    pub(super) fn windows(&self) -> u32 {
        self.windows
    }

    /// The first frames of [`Zone::Bulk`], in which messages arrive and do not stay
    pub(super) fn transit(&self) -> u32 {
        self.transit
    }

    /// Length of a zone in frames
    pub(super) fn zone_len(&self, zone: Zone) -> u32 {
        self.lens[zone as usize]
    }

    /// The first byte of frame `frame` of a zone
    pub(super) fn as_ptr(&self, zone: Zone, frame: u32) -> NonNull<u8> {
        // SAFETY: leases are made of frames of their zone, which begin inside the memory.
        unsafe { self.bytes.cast().add(self.offset(zone, frame)) }
    }

    /// Where frame `frame` of a zone is, in bytes
    pub(super) fn offset(&self, zone: Zone, frame: u32) -> usize {
        (self.starts[zone as usize] + frame) as usize * FRAME
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        if let Ok(arena) = self.take_owner().downcast::<Arena>() {
            let written = |(zone, (start, len)): (&SharedWaitQueue<Frames>, (u32, u32))| {
                let taken = zone.inspect(|frames| frames.ever_taken(len));
                taken
                    .map(|range| (start + range.start) as usize * FRAME..(start + range.end) as usize * FRAME)
            };
            let zones = self.starts.into_iter().zip(self.lens);
            arena.retire(self.zones.iter().zip(zones).flat_map(written).collect());
        }
    }
}

impl fmt::Debug for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Memory").field("bytes", &self.bytes.len()).finish_non_exhaustive()
    }
}
