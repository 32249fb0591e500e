//! Memory that devices know, leased in whole frames

mod account;
mod adopted;
mod alloc;
pub(crate) mod frames;
mod lease;
mod memory;
mod registration;
mod shortage;
#[cfg(test)]
mod tests;

use std::ops::DerefMut;
use std::sync::Arc;
use std::task::{Context, Poll};

use rdma_core::{Device, FRAME};
use stable_deref_trait::StableDeref;

pub(crate) use self::account::{Account, Charge};
pub use self::adopted::Adopted;
pub(crate) use self::adopted::{AdoptedMemory, Adopter, RegionMemory};
pub use self::alloc::Alloc;
use self::frames::Frames;
pub(crate) use self::lease::Effects;
pub use self::lease::Lease;
use self::memory::Memory;
pub(crate) use self::memory::Zone;
pub(crate) use self::registration::Registration;
pub(crate) use self::shortage::Shortage;
use crate::effects;
use crate::error::{AllocError, PoolError};
use crate::wait_queue::Waiter;

/// The memory of a node, from which messages are leased
///
/// Divided into [zones](Zone), so that none can starve another: if sending and receiving shared one, two peers that fill their
/// memory with messages for each other would wait for ever; if the windows had none, bulk traffic could keep a path
/// from being made.
#[derive(Clone, Debug)]
pub(crate) struct Pool(Arc<Memory>);

impl Pool {
    /// Maps memory for zones of that many frames, which each path [registers](Self::register) for itself
    ///
    /// Short messages that arrive leave `windows` frames free, so that an application which keeps many of them does not keep a path
    /// from being made again. Longer messages [do not stay](Lease::is_in_transit) in the first `transit` frames of their zone, so that those which
    /// an application keeps do not keep another one from arriving.
    pub(crate) fn new(zones: [u32; memory::ZONES], windows: u32, transit: u32) -> Result<Self, PoolError> {
        Memory::new(zones, windows, transit).map(|memory| Self(Arc::new(memory)))
    }

    /// Registers all of the memory with a device
    pub(crate) fn register<D: Device>(&self, device: &D) -> Result<Registration<D>, PoolError> {
        Registration::new(&self.0, device).map_err(PoolError::Register)
    }

    /// Memory of the application for the node of this pool
    ///
    /// # Errors
    ///
    /// The owner, if it has no byte, or 4 GiB or more.
    pub(crate) fn adopt<T>(&self, owner: T) -> Result<AdoptedMemory, T>
    where
        T: DerefMut<Target = [u8]> + StableDeref + Send + 'static,
    {
        AdoptedMemory::new(&self.0, owner)
    }

    /// How many frames a lease of `len` bytes takes
    ///
    /// # Errors
    ///
    /// [`AllocError::TooLarge`] if the zone has not so many.
    pub(crate) fn frames(&self, zone: Zone, len: usize) -> Result<u32, AllocError> {
        let frames = rdma_core::frames(len);
        let max = self.0.zone_len(zone);
        if frames > max as usize {
            return Err(AllocError::TooLarge { len, max: max as usize * FRAME });
        }
        Ok(frames as u32)
    }

    /// Leases so many frames, when they are free and this task is first in line
    pub(crate) fn poll_lease<T>(
        &self,
        zone: Zone,
        frames: u32,
        waiter: &mut Waiter,
        cx: &mut Context<'_>,
        effects: &mut effects::Effects<T>,
    ) -> Poll<Lease> {
        let taken = self.0.zone(zone).poll_take(waiter, cx, effects, |zone| zone.take(frames));
        taken.map(|start| self.lease(zone, start, frames))
    }

    /// Leases so many frames if they are free and no task waits
    pub(crate) fn try_lease(&self, zone: Zone, frames: u32) -> Option<Lease> {
        let start = self.0.zone(zone).try_take(|zone| zone.take(frames))?;
        Some(self.lease(zone, start, frames))
    }

    /// Leases `count` single frames if so many are free and no task waits
    pub(crate) fn try_leases(&self, zone: Zone, count: u32) -> Option<Vec<Lease>> {
        let mut leases = Vec::with_capacity(count as usize);
        for _ in 0..count {
            leases.push(self.try_lease(zone, 1)?);
        }
        Some(leases)
    }

    /// Leases so many frames for a short message that arrives
    pub(crate) fn try_lease_short(&self, frames: u32) -> Option<Lease> {
        let start = self.0.zone(Zone::Eager).try_take(|zone| {
            let is_enough = zone.free() >= self.0.windows().saturating_add(frames);
            if is_enough { zone.take(frames) } else { None }
        })?;
        Some(self.lease(Zone::Eager, start, frames))
    }

    /// Leases so many frames for a longer message that may stay, if no task waits and `reserve` frames stay free in one piece
    pub(crate) fn try_lease_long(&self, frames: u32, reserve: u32) -> Option<Lease> {
        let take = |zone: &mut Frames| zone.take_leaving(self.0.transit(), frames, reserve);
        let start = self.0.zone(Zone::Bulk).try_take(take)?;
        Some(self.lease(Zone::Bulk, start, frames))
    }

    /// How many frames are free in which longer messages may stay
    pub(crate) fn free_long(&self) -> u32 {
        self.0.zone(Zone::Bulk).inspect(|zone| zone.free_from(self.0.transit()))
    }

    /// How long a lease for sending can be, in bytes
    #[cfg(feature = "tokio")]
    pub(crate) fn send_bytes(&self) -> usize {
        self.0.zone_len(Zone::Send) as usize * FRAME
    }

    /// How many tasks wait for memory of a zone
    pub(crate) fn waiting(&self, zone: Zone) -> usize {
        self.0.zone(zone).waiting()
    }

    /// Leases send memory for the copy of a message, if no task waits
    ///
    /// The lease is in the half of the zone where copies are. `others` is how many frames the other copies of the stream have: at least as
    /// many stay free in that half.
    pub(crate) fn try_lease_for_copy(&self, len: usize, others: u32) -> Option<Lease> {
        let frames = self.frames(Zone::Send, len).ok()?;
        let start = self.0.zone(Zone::Send).try_take(|zone| self.take_for_copy(zone, frames, others))?;
        Some(self.lease(Zone::Send, start, frames))
    }

    /// As [`try_lease_for_copy`](Self::try_lease_for_copy), when there is memory, behind tasks that wait for leases
    pub(crate) fn poll_lease_for_copy(
        &self,
        len: usize,
        others: &Account,
        waiter: &mut Waiter,
        cx: &Context<'_>,
    ) -> Poll<Lease> {
        let Ok(frames) = self.frames(Zone::Send, len) else { return Poll::Pending };
        let take = |zone: &mut Frames| self.take_for_copy(zone, frames, others.frames());
        let taken = self.0.zone(Zone::Send).poll_take_alone(waiter, cx, take);
        taken.map(|start| self.lease(Zone::Send, start, frames))
    }

    fn take_for_copy(&self, zone: &mut Frames, frames: u32, others: u32) -> Option<u32> {
        // Runs of leases begin at the other end: copies that stay for long do not cut their half to pieces.
        zone.take_below(self.0.zone_len(Zone::Send).div_ceil(2), frames, others)
    }

    /// Gives up [`poll_lease_for_copy`](Self::poll_lease_for_copy)
    pub(crate) fn leave_for_copy(&self, waiter: &mut Waiter) {
        self.0.zone(Zone::Send).leave_alone(waiter);
    }

    /// Waits until memory for longer messages has come free more often than `seen` times, and says how often
    pub(crate) fn poll_freed<T>(
        &self,
        seen: u64,
        waiter: &mut Waiter,
        cx: &Context<'_>,
        effects: &mut effects::Effects<T>,
    ) -> Poll<u64> {
        let is_news = |count: &mut u64| (*count != seen).then_some(*count);
        self.0.freed().poll_take(waiter, cx, effects, is_news)
    }

    /// Gives up [`poll_freed`](Self::poll_freed)
    pub(crate) fn leave_freed<T>(&self, waiter: &mut Waiter, effects: &mut effects::Effects<T>) {
        self.0.freed().leave(waiter, effects);
    }

    /// Notes that a task waits for a message that finds no memory, until the result is dropped
    pub(crate) fn begin_shortage(&self) -> Shortage {
        Shortage::begin(self.0.shortages())
    }

    /// How many shortages have begun
    pub(crate) fn shortages(&self) -> u64 {
        self.0.shortages().begun()
    }

    /// Whether a task waits for a message that finds no memory
    pub(crate) fn is_short(&self) -> bool {
        self.0.shortages().is_any()
    }

    /// Leases `len` bytes for sending if they are free and no task waits
    pub(crate) fn try_alloc(&self, len: usize) -> Result<Lease, AllocError> {
        let frames = self.frames(Zone::Send, len)?;
        self.try_lease(Zone::Send, frames).ok_or(AllocError::WouldBlock)
    }

    fn lease(&self, zone: Zone, start: u32, frames: u32) -> Lease {
        Lease::new(Arc::clone(&self.0), zone, start, frames)
    }

    /// Gives up waiting for memory
    pub(crate) fn leave<T>(&self, zone: Zone, waiter: &mut Waiter, effects: &mut effects::Effects<T>) {
        self.0.zone(zone).leave(waiter, effects);
    }

    /// Whether `lease` is of the node of this pool
    pub(crate) fn owns(&self, lease: &Lease) -> bool {
        lease.is_of_node(&self.0)
    }

    /// How much there is, and how much of it is free
    pub(crate) fn stats(&self) -> PoolStats {
        let [send, eager, bulk, transmit] =
            [Zone::Send, Zone::Eager, Zone::Bulk, Zone::Transmit].map(|zone| {
                let (total, free) = (self.0.zone_len(zone), self.0.zone(zone).inspect(Frames::free));
                ZoneStats { total_bytes: total as usize * FRAME, free_bytes: free as usize * FRAME }
            });
        let receive = ZoneStats {
            total_bytes: eager.total_bytes + bulk.total_bytes,
            free_bytes: eager.free_bytes + bulk.free_bytes,
        };
        PoolStats { send, receive, protocol: transmit }
    }
}

/// How much memory a node has, and how much of it is free
///
/// ```
/// # use rdma_async::*;
/// # rdma_sim::Sim::new().run(async |net| {
/// # let node = |host| Node::builder(net.opener(host, "rdma_en2")).runtime(net.runtime()).build();
/// # let (a, b) = (node("a").unwrap(), node("b").unwrap());
/// # let (to_b, to_a) = tokio::io::duplex(1024);
/// # let (session, ()) = futures::future::try_join(a.connect(to_b), b.serve(to_a)).await.unwrap();
/// # let peer = b.accept().await.unwrap();
/// let lease = session.alloc(4096).await?;
/// let send = a.pool_stats().send;
/// assert_eq!(send.total_bytes - send.free_bytes, lease.capacity());
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// # }).value.unwrap();
/// ```
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct PoolStats {
    /// Memory for messages to be sent
    pub send: ZoneStats,
    /// Memory for what is received: the windows of paths, and messages
    pub receive: ZoneStats,
    /// Memory for packets that are sent
    pub protocol: ZoneStats,
}

impl PoolStats {
    /// Whether all of it is free: no lease, no message and no peer holds any
    pub fn is_whole(&self) -> bool {
        [self.send, self.receive, self.protocol].iter().all(|zone| zone.free_bytes == zone.total_bytes)
    }
}

/// Memory for one purpose
///
/// ```
/// # use rdma_async::*;
/// # rdma_sim::Sim::new().run(async |net| {
/// # let node = |host| Node::builder(net.opener(host, "rdma_en2")).runtime(net.runtime()).build();
/// # let (a, b) = (node("a").unwrap(), node("b").unwrap());
/// # let (to_b, to_a) = tokio::io::duplex(1024);
/// # let (session, ()) = futures::future::try_join(a.connect(to_b), b.serve(to_a)).await.unwrap();
/// # let peer = b.accept().await.unwrap();
/// let zone: rdma_async::ZoneStats = a.pool_stats().send;
/// assert_eq!((zone.total_bytes, zone.free_bytes), (16 << 20, 16 << 20));
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// # }).value.unwrap();
/// ```
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct ZoneStats {
    /// All of it, in bytes
    pub total_bytes: usize,
    /// The part that is free, in bytes
    pub free_bytes: usize,
}
