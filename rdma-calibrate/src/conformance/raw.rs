//! A queue pair of this side without the bookkeeping of [`BareQp`](rdma_bare::BareQp): its completion queue is polled directly, and its
//! memory outlives it
#![allow(unsafe_code, reason = "posting needs a promise about the memory")]

use std::ops::Range;

use rdma_core::{
    AnyCompletionQueue, AnyDevice, AnyQueuePair, Completion, CompletionQueue as _, Device as _, Error,
    QpAddress, QpInit, QueuePair as _, RecvRequest, SendOp, SendRequest, Teardown, Verb, WrId,
};

use super::acts::byte;
use crate::memory::Memory;

/// The fields are dropped in this order: the memory outlives the queue pair.
pub(super) struct Raw {
    qp: AnyQueuePair,
    cq: AnyCompletionQueue,
    memory: Memory,
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
        let mut memory = Memory::mapped(len)?;
        // SAFETY: no request names memory that is not registered.
        unsafe { memory.fill(|at| byte(pattern, at)) };
        memory.register_local(device)?;
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
        let sgl = [self.memory.sge(Verb::PostRecv, &range)?];
        // SAFETY: `&mut self` excludes another post. The memory stays registered until the queue pair is destroyed, and `Unposted` gives
        // access to its bytes only after that.
        unsafe { self.qp.post_recv(&RecvRequest { id: WrId(id), sgl: &sgl }) }
    }

    pub(super) fn send(&mut self, id: u64, range: Range<usize>) -> Result<(), Error> {
        let sgl = [self.memory.sge(Verb::PostSend, &range)?];
        let request = SendRequest { id: WrId(id), op: SendOp::Send, sgl: &sgl, signaled: true };
        // SAFETY: as above.
        unsafe { self.qp.post_send(&request) }
    }

    pub(super) fn poll(&self, out: &mut [Completion]) -> Result<usize, Error> {
        self.cq.poll(out)
    }

    /// Destroys the queue pair; returns its memory if the device is proven to have stopped: by that, or else by the end of the region
    pub(super) fn destroy(self) -> Option<Unposted> {
        let Self { mut qp, cq, mut memory } = self;
        let is_over = qp.destroy() == Teardown::Quiesced || memory.deregister();
        drop((qp, cq));
        is_over.then_some(Unposted(memory))
    }
}

/// The memory of a queue pair that was destroyed: no request names it
pub(super) struct Unposted(Memory);

impl Unposted {
    /// Fills the memory with another pattern
    pub(super) fn fill(&mut self, pattern: u8) {
        // SAFETY: the only queue pair that used the memory is destroyed.
        unsafe { self.0.fill(|at| byte(pattern, at)) };
    }

    /// The offset of the first byte that deviates from a pattern
    pub(super) fn deviates_at(&self, pattern: u8) -> Option<usize> {
        // SAFETY: as above.
        unsafe { self.0.find(|at, found| found != byte(pattern, at)) }
    }
}
