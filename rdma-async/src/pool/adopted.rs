//! Memory of the application, from which leases are made
#![allow(unsafe_code, reason = "devices are told of memory that the application owns")]

use std::any::Any;
use std::fmt;
use std::marker::PhantomData;
use std::ops::{DerefMut, Range};
use std::pin::Pin;
use std::ptr::NonNull;
use std::sync::{Arc, Weak};

use rdma_core::FRAME;
use stable_deref_trait::StableDeref;

use super::frames::Frames;
use super::lease::Lease;
use super::memory::{Memory, Zone};

/// Memory of the application, as the tables of a node keep it
#[derive(Clone)]
pub(crate) struct AdoptedMemory(pub(super) Arc<Memory>);

impl AdoptedMemory {
    /// Memory of `owner` for the node to which the memory `pool` belongs
    ///
    /// # Errors
    ///
    /// The owner, if it has no byte, or 4 GiB or more.
    pub(super) fn new<T>(pool: &Memory, owner: T) -> Result<Self, T>
    where
        T: DerefMut<Target = [u8]> + StableDeref + Send + 'static,
    {
        // Before its bytes are looked for: moving a box may forbid the use of pointers that were made before.
        let mut owner = Box::new(owner);
        let bytes = NonNull::from(&mut **owner);
        if bytes.is_empty() || u32::try_from(bytes.len()).is_err() {
            return Err(*owner);
        }
        // SAFETY: `StableDeref` promises that the bytes stay where they are. The owner is in the memory, which gives it away only as
        // a whole: no other code can reach the bytes.
        Ok(Self(Arc::new(unsafe { Memory::adopted(pool, bytes, owner) })))
    }

    /// Whether both are the same memory
    pub(crate) fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    fn len(&self) -> usize {
        self.0.bytes().len()
    }

    /// Where the frames of `range` begin, and how many they are
    #[track_caller]
    fn frames(&self, range: &Range<usize>) -> (u32, u32) {
        let Range { start, end } = *range;
        assert!(start < end && end <= self.len(), "{start}..{end} of {} bytes", self.len());
        assert!(start.is_multiple_of(FRAME), "{start} is no multiple of {FRAME}");
        ((start / FRAME) as u32, (end - start).div_ceil(FRAME) as u32)
    }

    fn take(&self, range: &Range<usize>, zone: &mut Frames) -> Option<Lease> {
        let (first, frames) = self.frames(range);
        if !zone.take_at(first, frames) {
            return None;
        }
        let mut lease = Lease::adopted(Arc::clone(&self.0), first, frames);
        lease.truncate(range.len());
        Some(lease)
    }

    fn lease(&self, range: Range<usize>) -> Option<Lease> {
        self.0.zone(Zone::Send).try_take(|zone| self.take(&range, zone))
    }

    async fn lease_when_free(&self, range: Range<usize>) -> Lease {
        self.0.zone(Zone::Send).take_when(|zone| self.take(&range, zone)).await
    }

    /// Whether there is no lease of it
    pub(crate) fn is_free(&self) -> bool {
        let zone = self.0.zone(Zone::Send);
        zone.inspect(Frames::free) == self.0.zone_len(Zone::Send)
    }

    /// The owner, if nothing else knows the memory any more
    pub(crate) fn into_owner(self) -> Result<Box<dyn Any + Send>, Self> {
        Arc::try_unwrap(self.0).map(Memory::into_owner).map_err(Self)
    }
}

/// Adopted memory of any type
pub(crate) trait RegionMemory: Send + Sync {
    fn len(&self) -> usize;

    /// As [`Adopted::lease_when_free`]
    fn lease(&self, range: Range<usize>) -> Pin<Box<dyn Future<Output = Lease> + Send + '_>>;
}

impl<T: 'static> RegionMemory for Adopted<T> {
    fn len(&self) -> usize {
        self.kept().len()
    }

    fn lease(&self, range: Range<usize>) -> Pin<Box<dyn Future<Output = Lease> + Send + '_>> {
        Box::pin(self.kept().lease_when_free(range))
    }
}

/// The node that has adopted memory
pub(crate) trait Adopter: Send + Sync {
    /// Lets paths that are made from now on register `memory`
    fn keep(&self, memory: &AdoptedMemory);

    /// Forgets `memory`, at once or when it has no lease any more
    fn disown(&self, memory: &AdoptedMemory);
}

/// Memory of the application that a node sends from and receives into without a copy
///
/// Made by [`Node::adopt`](crate::Node::adopt). While a node has it, the bytes are reached by [leases](Self::lease) only, which do not
/// overlap: so nothing reads them while a device writes, whatever futures are dropped. Memory that is dropped before its last lease is freed
/// when other memory is adopted or dropped afterwards, or with the node.
///
/// ```
/// # use rdma_async::*;
/// # rdma_sim::Sim::new().run(async |net| {
/// # let node = |host| Node::builder(net.opener(host, "rdma_en2")).runtime(net.runtime()).build();
/// # let (a, b) = (node("a").unwrap(), node("b").unwrap());
/// # let (to_b, to_a) = tokio::io::duplex(1024);
/// # let (session, ()) = futures::future::try_join(a.connect(to_b), b.serve(to_a)).await.unwrap();
/// # let peer = b.accept().await.unwrap();
/// let weights = a.adopt(MappedBytes::zeroed(1 << 20)?)?;
/// let part = weights.lease(0..300_000).expect("no other lease has this part");
/// session.try_send(part)?;
/// assert_eq!(peer.recv().await?.expect("a message").len(), 300_000);
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// # }).value.unwrap();
/// ```
pub struct Adopted<T> {
    /// `None` only while it is dropped.
    memory: Option<AdoptedMemory>,
    /// Weak: it keeps no device open.
    node: Weak<dyn Adopter>,
    owner: PhantomData<fn() -> T>,
}

impl<T: 'static> Adopted<T> {
    pub(crate) fn new(memory: AdoptedMemory, node: Weak<dyn Adopter>) -> Self {
        Self { memory: Some(memory), node, owner: PhantomData }
    }

    fn kept(&self) -> &AdoptedMemory {
        self.memory.as_ref().expect("it was not dropped")
    }

    /// Length in bytes
    #[expect(clippy::len_without_is_empty, reason = "it is never empty")]
    pub fn len(&self) -> usize {
        self.kept().len()
    }

    /// The bytes in `range`, as a message; `None` while another lease has any of them
    ///
    /// Dropping the lease changes none of its bytes.
    ///
    /// # Panics
    ///
    /// Unless the range is inside the memory, not empty, and begins at a multiple of 4096 bytes. A range that does not end at one has the
    /// rest of its last 4096 bytes to itself, as [`capacity`](Lease::capacity).
    #[must_use]
    pub fn lease(&self, range: Range<usize>) -> Option<Lease> {
        self.kept().lease(range)
    }

    /// As [`lease`](Self::lease), when all of the bytes are free
    ///
    /// Tasks that wait are not in line: leases of parts of the range that follow each other can keep the whole range from being free.
    ///
    /// # Panics
    ///
    /// As [`lease`](Self::lease).
    ///
    /// # Cancel safety
    ///
    /// Dropping the future changes nothing.
    pub async fn lease_when_free(&self, range: Range<usize>) -> Lease {
        self.kept().lease_when_free(range).await
    }

    /// Gives the memory back
    ///
    /// # Errors
    ///
    /// The [`Adopted`] itself, while leases are there, or messages that were made of them, or while a path is being made.
    pub fn into_inner(mut self) -> Result<T, Self> {
        let Some(memory) = self.memory.take_if(|memory| memory.is_free()) else { return Err(self) };
        self.disown(&memory);
        match memory.into_owner() {
            Ok(owner) => Ok(*owner.downcast().expect("the owner that was given")),
            Err(memory) => Err(Self::new(memory, Weak::clone(&self.node))),
        }
    }
}

impl<T> Adopted<T> {
    /// Lets the node forget the memory, unless the node is gone
    fn disown(&self, memory: &AdoptedMemory) {
        if let Some(node) = self.node.upgrade() {
            node.disown(memory);
        }
    }
}

impl<T> Drop for Adopted<T> {
    fn drop(&mut self) {
        if let Some(memory) = self.memory.take() {
            self.disown(&memory);
        }
    }
}

impl<T> fmt::Debug for Adopted<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let len = self.memory.as_ref().map(|memory| memory.0.bytes().len());
        f.debug_struct("Adopted").field("len", &len).finish_non_exhaustive()
    }
}
