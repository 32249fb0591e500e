//! Registered memory, leased in whole frames

#![allow(unsafe_code, reason = "leases are ranges of memory that the device shares")]

pub(crate) mod frames;

use std::any::Any;
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::sync::Arc;
use std::task::{Context, Poll};

use rdma_arena::Arena;
use rdma_core::{Access, Device, FRAME, Lkey, MemoryRegion, Sge};

use self::frames::Frames;
use crate::error::{AllocError, PoolError};
use crate::gate::{Gate, Next, Ticket};

/// One registration of memory, from which messages are leased
///
/// Divided into zones, so that none can starve another: what applications lease for sending, the windows of the
/// connections, and what longer messages are received into. If sending and receiving shared one, two peers that fill their
/// memory with messages for each other would wait for ever; if the windows had none, bulk traffic could keep a connection
/// from being made.
#[derive(Clone, Debug)]
pub(crate) struct Pool(Arc<Shared>);

struct Shared {
    zones: [Gate<Frames>; 3],
    /// How long each zone is, in frames.
    lens: [u32; 3],
    /// Where each zone begins, in frames.
    starts: [u32; 3],
    base: u64,
    lkey: Lkey,
    // In the order in which they must go: the registration, the memory, and what the registration hangs on.
    _region: Box<dyn MemoryRegion>,
    arena: Arena,
    _anchor: Arc<dyn Any + Send + Sync>,
}

/// What a lease is for
///
/// As wide as the other fields of a lease: leases move often, and what was written in narrow pieces is read in wide ones
/// only after a wait.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[repr(u32)]
pub(crate) enum Zone {
    Send = 0,
    Eager = 1,
    Bulk = 2,
}

/// Places for tasks that wait for memory, before waiting itself allocates.
const WAITING: usize = 64;

impl Pool {
    /// Maps and registers memory for zones of that many frames
    ///
    /// `anchor` outlives the registration.
    pub(crate) fn new<D: Device>(
        device: &D,
        zones: [u32; 3],
        anchor: Arc<dyn Any + Send + Sync>,
    ) -> Result<Self, PoolError> {
        let [send, eager, bulk] = zones;
        let starts = [0, send, send + eager];
        let arena = Arena::new((starts[2] + bulk) as usize * FRAME)
            .map_err(|error| PoolError::Memory(error.kind()))?;
        // SAFETY: the arena lives in the same structure as the registration and is dropped after it; leases, the only
        // way to its memory, are owned by the op table while they are posted.
        let region = unsafe { device.register(arena.as_slice_ptr(), Access::LOCAL_WRITE) };
        let region = region.map_err(PoolError::Register)?;
        Ok(Self(Arc::new(Shared {
            zones: zones.map(|frames| Gate::new(Frames::new(frames), WAITING)),
            lens: zones,
            starts,
            base: region.base(),
            lkey: region.lkey(),
            _region: Box::new(region),
            arena,
            _anchor: anchor,
        })))
    }

    fn zone(&self, zone: Zone) -> &Gate<Frames> {
        &self.0.zones[zone as usize]
    }

    /// Leases `len` bytes, when they are free and it is this task's turn
    pub(crate) fn poll_lease(
        &self,
        zone: Zone,
        len: usize,
        ticket: &mut Ticket,
        cx: &mut Context<'_>,
    ) -> (Poll<Lease>, Next) {
        let frames = rdma_core::frames(len) as u32;
        let (taken, next) = self.zone(zone).poll_take(ticket, cx, |zone| zone.take(frames));
        (taken.map(|start| self.lease(zone, start, frames, len)), next)
    }

    /// Leases `len` bytes if they are free and nobody waits
    pub(crate) fn try_lease(&self, zone: Zone, len: usize) -> Option<Lease> {
        let frames = rdma_core::frames(len) as u32;
        let start = self.zone(zone).try_take(|zone| zone.take(frames))?;
        Some(self.lease(zone, start, frames, len))
    }

    fn lease(&self, zone: Zone, start: u32, frames: u32, len: usize) -> Lease {
        Lease { pool: self.clone(), zone, start, frames, len: len as u32 }
    }

    /// Gives up waiting for memory
    pub(crate) fn leave(&self, zone: Zone, ticket: &mut Ticket) -> Next {
        self.zone(zone).leave(ticket)
    }

    /// Whether `len` bytes could ever be leased
    pub(crate) fn check(&self, zone: Zone, len: usize) -> Result<(), AllocError> {
        let max = self.0.lens[zone as usize] as usize * FRAME;
        if len > max { Err(AllocError::TooLarge { len, max }) } else { Ok(()) }
    }

    /// How much there is, and how much of it is free
    pub(crate) fn stats(&self) -> PoolStats {
        let [send, eager, bulk] = [Zone::Send, Zone::Eager, Zone::Bulk].map(|zone| {
            let (total, free) = (self.0.lens[zone as usize], self.zone(zone).inspect(Frames::free));
            ZoneStats { total_bytes: total as usize * FRAME, free_bytes: free as usize * FRAME }
        });
        let receive = ZoneStats {
            total_bytes: eager.total_bytes + bulk.total_bytes,
            free_bytes: eager.free_bytes + bulk.free_bytes,
        };
        PoolStats { send, receive }
    }
}

impl PartialEq for Pool {
    /// Whether both are the same memory
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool").field("bytes", &self.arena.len()).finish_non_exhaustive()
    }
}

/// How much memory an endpoint has, and how much of it is free
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct PoolStats {
    /// Memory for messages to be sent
    pub send: ZoneStats,
    /// Memory for messages to be received
    pub receive: ZoneStats,
}

impl PoolStats {
    /// Whether no lease is out
    pub fn is_whole(&self) -> bool {
        [self.send, self.receive].iter().all(|zone| zone.free_bytes == zone.total_bytes)
    }
}

/// A zone of a pool
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct ZoneStats {
    /// All of it, in bytes
    pub total_bytes: usize,
    /// What no lease holds, in bytes
    pub free_bytes: usize,
}

/// Exclusive use of a piece of registered memory: the bytes of one message
///
/// Dereferences to the message. Dropping a lease gives its memory back to the pool. Contents are those of an earlier
/// message until they are overwritten.
pub struct Lease {
    pool: Pool,
    zone: Zone,
    start: u32,
    frames: u32,
    len: u32,
}

impl Lease {
    /// The longest message that fits, in bytes: whole frames
    pub fn capacity(&self) -> usize {
        self.frames as usize * FRAME
    }

    /// Makes the message `len` bytes long
    ///
    /// Bytes that become part of it are those of an earlier message.
    ///
    /// # Panics
    ///
    /// If `len` exceeds the [`capacity`](Self::capacity).
    pub fn set_len(&mut self, len: usize) {
        assert!(len <= self.capacity(), "{len} bytes do not fit into {} of a lease", self.capacity());
        self.len = len as u32;
    }

    /// Whether the memory is of `pool`
    pub(crate) fn is_of(&self, pool: &Pool) -> bool {
        self.pool == *pool
    }

    pub(crate) fn zone(&self) -> Zone {
        self.zone
    }

    pub(crate) fn frame_count(&self) -> u32 {
        self.frames
    }

    /// The first `len` bytes, as a device names them
    pub(crate) fn sge(&self, len: usize) -> Sge {
        debug_assert!(len <= self.capacity(), "a request stays inside its lease");
        let addr = self.pool.0.base + self.offset() as u64;
        Sge { addr, len: len as u32, lkey: self.pool.0.lkey }
    }

    /// Writes `bytes` at `offset`, inside the capacity, without touching anything else
    ///
    /// The device may be reading other parts of the lease meanwhile.
    pub(crate) fn write_at(&mut self, offset: usize, bytes: &[u8]) {
        assert!(offset + bytes.len() <= self.capacity(), "a write stays inside its lease");
        // SAFETY: the range was just found to be inside the frames of this lease.
        let to = unsafe { self.as_ptr().add(offset) };
        // SAFETY: as above; `bytes` is borrowed memory and cannot overlap with what this lease owns.
        unsafe { to.copy_from_nonoverlapping(NonNull::from(bytes).cast(), bytes.len()) };
    }

    /// Keeps the memory from ever being leased again: a device may still write to it
    pub(crate) fn quarantine(self) {
        tracing::warn!(frames = self.frames, "memory stays out of the pool: the device may still touch it");
        std::mem::forget(self);
    }

    fn offset(&self) -> usize {
        (self.pool.0.starts[self.zone as usize] + self.start) as usize * FRAME
    }

    fn as_ptr(&self) -> NonNull<u8> {
        // SAFETY: the frames of a lease are inside the arena.
        unsafe { self.pool.0.arena.as_ptr().add(self.offset()) }
    }
}

impl Deref for Lease {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: the memory is mapped and was zero-filled, this lease alone names it, and no device touches it: a lease
        // that is posted is owned by the queues, which hand it out only when the device is done with it.
        unsafe { std::slice::from_raw_parts(self.as_ptr().as_ptr(), self.len as usize) }
    }
}

impl DerefMut for Lease {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `deref`.
        unsafe { std::slice::from_raw_parts_mut(self.as_ptr().as_ptr(), self.len as usize) }
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        let (start, frames) = (self.start, self.frames);
        self.pool.zone(self.zone).update(|zone| zone.give(start, frames));
    }
}

impl fmt::Debug for Lease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lease")
            .field("len", &self.len)
            .field("capacity", &self.capacity())
            .finish_non_exhaustive()
    }
}
