//! The memory of a node, and which of its frames are free
#![allow(unsafe_code, reason = "leases are ranges of this memory")]

use std::fmt;
use std::io::ErrorKind;
use std::ptr::NonNull;

use rdma_arena::Arena;
use rdma_core::FRAME;

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
    /// The windows of the paths, and messages up to 68,544 bytes that are received
    Eager = 1,
    /// Longer messages that are received
    Bulk = 2,
    /// Packets that are sent, until the peer has them
    Transmit = 3,
}

/// How many zones there are
pub(super) const ZONES: usize = 4;

/// Mapped memory, divided into zones of frames
pub(super) struct Memory {
    zones: [SharedWaitQueue<Frames>; ZONES],
    /// How often memory for longer messages came free, for those that must not stand in line.
    freed: SharedWaitQueue<u64>,
    /// How long each zone is, in frames.
    lens: [u32; ZONES],
    /// Where each zone begins, in frames.
    starts: [u32; ZONES],
    /// Frames of [`Zone::Eager`] that messages leave to windows.
    windows: u32,
    arena: Arena,
}

/// Places for tasks that wait for memory, before waiting itself allocates.
const WAITING: usize = 64;

impl Memory {
    /// Mapped memory, which each path registers for itself
    pub(super) fn new(lens: [u32; ZONES], windows: u32) -> Result<Self, PoolError> {
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
                    "memory of its node, which leases and messages hold",
                    Frames::new(frames),
                    WAITING,
                )
            }),
            freed: SharedWaitQueue::for_all("memory of its node to come free", 0, WAITING),
            lens,
            starts,
            windows,
            arena,
        })
    }

    /// All of the memory
    pub(super) fn arena(&self) -> &Arena {
        &self.arena
    }

    pub(super) fn zone(&self, zone: Zone) -> &SharedWaitQueue<Frames> {
        &self.zones[zone as usize]
    }

    pub(super) fn freed(&self) -> &SharedWaitQueue<u64> {
        &self.freed
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

    /// Length of a zone in frames
    pub(super) fn zone_len(&self, zone: Zone) -> u32 {
        self.lens[zone as usize]
    }

    /// The first byte of frame `frame` of a zone
    pub(super) fn as_ptr(&self, zone: Zone, frame: u32) -> NonNull<u8> {
        // SAFETY: leases are made of frames of their zone, which are inside the arena.
        unsafe { self.arena.as_ptr().add(self.offset(zone, frame)) }
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
