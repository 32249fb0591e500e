//! A queue pair of this side without the bookkeeping of [`BareQp`](rdma_bare::BareQp): its completion queue is polled directly, and its
//! memory outlives it
#![allow(unsafe_code, reason = "posting needs a promise about the memory")]

use std::ops::Range;

use rdma_arena::Arena;
use rdma_core::{
    AnyCompletionQueue, AnyDevice, AnyMemoryRegion, AnyQueuePair, Cause, Completion, CompletionQueue as _,
    Device as _, Error, MemoryRegion as _, QpAddress, QpInit, QueuePair as _, RecvRequest, SendOp,
    SendRequest, Sge, Teardown, Verb, WrId,
};

use super::acts::byte;

/// The fields are dropped in this order: the memory outlives the queue pair.
pub(super) struct Raw {
    qp: AnyQueuePair,
    cq: AnyCompletionQueue,
    memory: Filled,
}

impl Raw {
    /// One with a completion queue of `depth` entries, queues of `frames` frames, and `len` bytes of memory that hold a pattern
    pub(super) fn new(
        device: &AnyDevice,
        depth: u32,
        frames: u32,
        len: usize,
        pattern: u8,
    ) -> Result<Self, Error> {
        let memory = Filled::new(device, len, pattern)?;
        let cq = device.create_cq(depth)?;
        let qp = cq.create_qp(&QpInit::with_frames(frames))?;
        Ok(Self { qp, cq, memory })
    }

    pub(super) fn address(&self) -> QpAddress {
        self.qp.address()
    }

    pub(super) fn connect(&self, peer: &QpAddress) -> Result<(), Error> {
        self.qp.connect(peer)
    }

    pub(super) fn recv(&mut self, id: u64, range: Range<usize>) -> Result<(), Error> {
        let sgl = [self.memory.sge(&range)];
        // SAFETY: `&mut self` excludes another post. The memory stays registered until the queue pair is destroyed, and `Filled` gives
        // access to it only after that.
        unsafe { self.qp.post_recv(&RecvRequest { id: WrId(id), sgl: &sgl }) }
    }

    pub(super) fn send(&mut self, id: u64, range: Range<usize>) -> Result<(), Error> {
        let sgl = [self.memory.sge(&range)];
        let request = SendRequest { id: WrId(id), op: SendOp::Send, sgl: &sgl, signaled: true };
        // SAFETY: as above.
        unsafe { self.qp.post_send(&request) }
    }

    pub(super) fn poll(&self, out: &mut [Completion]) -> Result<usize, Error> {
        self.cq.poll(out)
    }

    /// Destroys the queue pair; returns its memory if the device is proven to have stopped: by that, or else by the end of the region
    pub(super) fn destroy(self) -> Option<Filled> {
        let Self { mut qp, cq, mut memory } = self;
        let is_over = qp.destroy() == Teardown::Quiesced || memory.region.deregister() == Teardown::Quiesced;
        drop((qp, cq));
        is_over.then_some(memory)
    }
}

/// Registered memory that holds a pattern at first
pub(super) struct Filled {
    region: AnyMemoryRegion,
    /// `None` once the device may touch it for ever, so that it is never unmapped.
    arena: Option<Arena>,
}

impl Filled {
    fn new(device: &AnyDevice, len: usize, pattern: u8) -> Result<Self, Error> {
        let arena = Arena::new(len)
            .map_err(|error| Error::new(Verb::RegMr, Cause::Os(error.raw_os_error().unwrap_or(22))))?;
        write(&arena, pattern);
        // SAFETY: `drop` unmaps the arena only after the region is gone. The program reads and writes the memory only by the methods
        // below, of which those that touch bytes are called after the end of the queue pair, and by no reference.
        let region = unsafe { device.register_local(arena.as_slice_ptr()) }?;
        Ok(Self { region, arena: Some(arena) })
    }

    fn arena(&self) -> &Arena {
        self.arena.as_ref().expect("memory is mapped until it is dropped")
    }

    fn sge(&self, range: &Range<usize>) -> Sge {
        assert!(
            range.start <= range.end && range.end <= self.arena().len(),
            "{range:?} is not in the memory"
        );
        Sge {
            addr: self.region.base() + range.start as u64,
            len: range.len() as u32,
            lkey: self.region.lkey(),
        }
    }

    /// Fills the memory with another pattern
    pub(super) fn fill(&mut self, pattern: u8) {
        write(self.arena(), pattern);
    }

    /// The offset of the first byte that deviates from a pattern
    pub(super) fn deviates_at(&self, pattern: u8) -> Option<usize> {
        let first = self.arena().as_ptr();
        (0..self.arena().len()).find(|at| {
            // SAFETY: the offset is inside of the mapping.
            let address = unsafe { first.add(*at) };
            // SAFETY: the byte is mapped. It is volatile because a device that breaks its promise may write it meanwhile.
            let found = unsafe { address.read_volatile() };
            found != byte(pattern, *at)
        })
    }
}

/// Fills an arena of which no range is posted
fn write(arena: &Arena, pattern: u8) {
    let bytes: Vec<_> = (0..arena.len()).map(|at| byte(pattern, at)).collect();
    let first = arena.as_ptr().as_ptr();
    // SAFETY: the mapping has so many bytes, and `bytes` is elsewhere; no queue pair uses them.
    unsafe { first.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
}

impl Drop for Filled {
    fn drop(&mut self) {
        if self.region.deregister() != Teardown::Quiesced {
            std::mem::forget(self.arena.take());
        }
    }
}
