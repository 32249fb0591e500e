//! A piece of registered memory for one message
#![allow(unsafe_code, reason = "leases are ranges of memory that the device shares")]

use std::fmt;
use std::io;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::sync::Arc;

use bytes::BufMut;
use bytes::buf::UninitSlice;

use super::memory::{Memory, Zone};
use super::{Account, Charge};

/// Effects that may free memory
pub(crate) type Effects = crate::effects::Effects<Lease>;

/// Exclusive use of a piece of memory that devices know, in which a message is written
///
/// Works like a vector of fixed capacity: it starts empty, grows as bytes are written
/// ([`extend_from_slice`](Self::extend_from_slice), [`io::Write`], [`BufMut`], [`resize`](Self::resize)), and dereferences to the
/// written bytes. **Bytes of an earlier message in the same memory can neither be read nor sent**, and nothing is cleared for it. One of
/// [adopted](crate::Adopted) memory starts with what is there.
/// Dropping a lease gives its memory back to the node, and what the [message](crate::Message::into_lease) that it was held in its session.
///
/// ```
/// # use rdma_async::*;
/// # rdma_sim::Sim::new().run(async |net| {
/// # let node = |host| Node::builder(net.opener(host, "rdma_en2")).runtime(net.runtime()).build();
/// # let (a, b) = (node("a").unwrap(), node("b").unwrap());
/// # let (to_b, to_a) = tokio::io::duplex(1024);
/// # let (session, ()) = futures::future::try_join(a.connect(to_b), b.serve(to_a)).await.unwrap();
/// # let peer = b.accept().await.unwrap();
/// use std::io::Write as _;
///
/// let mut lease = session.alloc(64).await?;
/// write!(lease, "{} frames", 3)?;
/// lease.extend_from_slice(b"!");
/// assert_eq!(*lease, *b"3 frames!");
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// # }).value.unwrap();
/// ```
pub struct Lease {
    memory: Arc<Memory>,
    zone: Zone,
    start: u32,
    frames: u32,
    /// Bytes that were written, by the application or by the device.
    len: u32,
    /// What its frames count towards.
    account: Option<Account>,
    /// Dropped after the memory was given back.
    last: Option<Box<dyn Send + Sync>>,
}

impl Lease {
    /// An empty lease of frames that were taken out of their zone
    pub(super) fn new(memory: Arc<Memory>, zone: Zone, start: u32, frames: u32) -> Self {
        Self { memory, zone, start, frames, len: 0, account: None, last: None }
    }

    /// A lease of adopted memory, with what is there
    pub(super) fn adopted(memory: Arc<Memory>, start: u32, frames: u32) -> Self {
        let mut lease = Self::new(memory, Zone::Send, start, frames);
        lease.len = lease.capacity() as u32;
        lease
    }

    /// The longest message that fits, in bytes: whole frames, but for the end of [adopted](crate::Adopted) memory
    pub fn capacity(&self) -> usize {
        self.memory.len_of(self.zone, self.start, self.frames)
    }

    /// Makes the message empty
    pub fn clear(&mut self) {
        self.len = 0;
    }

    /// Makes the message at most `len` bytes long
    pub fn truncate(&mut self, len: usize) {
        self.len = len.min(self.len as usize) as u32;
    }

    /// Makes the message `len` bytes long; bytes that become part of it are `value`
    ///
    /// # Panics
    ///
    /// If `len` exceeds the [`capacity`](Self::capacity).
    pub fn resize(&mut self, len: usize, value: u8) {
        self.assert_fits(len);
        let written = self.len as usize;
        self.len = len as u32;
        if let Some(new) = self.get_mut(written..) {
            new.fill(value);
        }
    }

    /// Appends `bytes` to the message
    ///
    /// # Panics
    ///
    /// If the message would exceed the [`capacity`](Self::capacity).
    pub fn extend_from_slice(&mut self, bytes: &[u8]) {
        let len = self.len as usize + bytes.len();
        self.assert_fits(len);
        self.write_at(self.len as usize, bytes);
        self.len = len as u32;
    }

    #[track_caller]
    fn assert_fits(&self, len: usize) {
        assert!(len <= self.capacity(), "{len} bytes do not fit into {} of a lease", self.capacity());
    }

    /// The memory that it is a part of
    pub(super) fn memory(&self) -> &Arc<Memory> {
        &self.memory
    }

    /// Whether it is a part of `memory`
    #[inline]
    pub(super) fn is_part_of(&self, memory: &Arc<Memory>) -> bool {
        Arc::ptr_eq(&self.memory, memory)
    }

    /// Whether the lease is of the node to which `memory` belongs
    pub(super) fn is_of_node(&self, memory: &Memory) -> bool {
        self.memory.is_of_node(memory)
    }

    /// Makes the message `len` bytes long, which the device has written or will write before they are read
    pub(crate) fn set_received(&mut self, len: usize) {
        debug_assert!(len <= self.capacity(), "a message fits its lease");
        self.len = len as u32;
    }

    /// Where the memory is in its pool, in bytes
    pub(crate) fn offset(&self) -> usize {
        self.memory.offset(self.zone, self.start)
    }

    /// The `len` bytes at `offset`, which may lie behind the end of the message
    ///
    /// The device may be writing other parts of the lease meanwhile, and not this one.
    pub(crate) fn part(&self, offset: usize, len: usize) -> &[u8] {
        assert!(offset + len <= self.capacity(), "a read stays inside its lease");
        // SAFETY: the range was just found to be inside the frames of this lease.
        let from = unsafe { self.as_ptr().add(offset) };
        // SAFETY: as in `deref`; the caller sees to it that no device writes this part.
        unsafe { std::slice::from_raw_parts(from.as_ptr(), len) }
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

    /// Lets the frames count towards `account`
    pub(crate) fn charge_to(&mut self, account: &Account) {
        account.add(self.frames);
        if let Some(before) = self.account.replace(account.clone()) {
            before.subtract(self.frames);
        }
    }

    /// As [`charge_to`](Self::charge_to), if they count at all
    pub(crate) fn recharge_to(&mut self, account: &Account) {
        if self.account.is_some() {
            self.charge_to(account);
        }
    }

    /// What its frames count towards, and how many those are
    pub(crate) fn charge(&self) -> Option<Charge> {
        self.account.as_ref().map(|account| Charge::new(account, self.frames))
    }

    /// Whether it is in memory where messages arrive and do not stay
    pub(crate) fn is_in_transit(&self) -> bool {
        self.zone == Zone::Bulk && self.start < self.memory.transit()
    }

    /// Drops `last` after the memory was given back
    pub(crate) fn drop_last(&mut self, last: Box<dyn Send + Sync>) {
        self.last = Some(last);
    }

    fn as_ptr(&self) -> NonNull<u8> {
        self.memory.as_ptr(self.zone, self.start)
    }
}

impl Deref for Lease {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: the memory is initialized, mapped with zeros or given as bytes, this lease alone names it, and no device writes it: a lease that is
        // posted for receiving is owned by the queue pairs, which hand it out when the device is done with it.
        unsafe { std::slice::from_raw_parts(self.as_ptr().as_ptr(), self.len as usize) }
    }
}

impl DerefMut for Lease {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `deref`; nor does a device read it, for a lease that is posted for sending is owned by the op table, whose
        // users change no bytes until the device is done with it.
        unsafe { std::slice::from_raw_parts_mut(self.as_ptr().as_ptr(), self.len as usize) }
    }
}

/// Appends to the message, up to the [`capacity`](Lease::capacity)
///
/// # Errors
///
/// Never; a full lease takes zero bytes, which `write_all` reports as [`io::ErrorKind::WriteZero`].
impl io::Write for Lease {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let n = bytes.len().min(self.remaining_mut());
        self.extend_from_slice(&bytes[..n]);
        Ok(n)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

// SAFETY: `chunk_mut` is the memory of this lease behind the message, `remaining_mut` its length, and `advance_mut` moves the
// end of the message over it, never beyond the capacity.
unsafe impl BufMut for Lease {
    fn remaining_mut(&self) -> usize {
        self.capacity() - self.len as usize
    }

    unsafe fn advance_mut(&mut self, n: usize) {
        assert!(n <= self.remaining_mut(), "advanced by {n} of {} bytes", self.remaining_mut());
        self.len += n as u32;
    }

    fn chunk_mut(&mut self) -> &mut UninitSlice {
        // SAFETY: the message is inside the frames of this lease.
        let end = unsafe { self.as_ptr().add(self.len as usize) };
        // SAFETY: the rest of the frames is memory of this lease, as in `deref`.
        unsafe { UninitSlice::from_raw_parts_mut(end.as_ptr(), self.remaining_mut()) }
    }
}

impl AsRef<[u8]> for Lease {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        if let Some(account) = &self.account {
            account.subtract(self.frames);
        }
        self.memory.give(self.zone, self.start, self.frames);
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
