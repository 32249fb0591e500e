//! A queue pair of this side without the bookkeeping of [`BareQp`](rdma_bare::BareQp): its completion queue is polled directly, and its
//! memory outlives it
#![allow(unsafe_code, reason = "writing memory needs a promise that no request names it")]

use std::ops::Range;
use std::sync::Arc;

use rdma_core::{AnyDevice, Completion, Device as _, Error, QpAddress, QueuePair as _, SendOp, WrId};

use super::acts::byte;
use crate::memory::Memory;
use crate::registered_qp::RegisteredQp;

pub(super) struct Raw(RegisteredQp);

impl Raw {
    /// One with a completion queue of `depth` entries, queues of `frames` frames, or as much as the device has, and `len` bytes of memory
    /// that hold a pattern
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
        let caps = device.caps();
        let cq = Arc::new(device.create_cq(depth.min(caps.max_cqe))?);
        RegisteredQp::new(cq, frames.min(caps.max_queue_frames), memory).map(Self)
    }

    pub(super) fn address(&self) -> QpAddress {
        self.0.qp().address()
    }

    pub(super) fn connect(&self, peer: &QpAddress) -> Result<(), Error> {
        self.0.qp().connect(peer)
    }

    pub(super) fn recv(&mut self, id: u64, range: Range<usize>) -> Result<(), Error> {
        self.0.post_recv(WrId(id), range)
    }

    pub(super) fn send(&mut self, id: u64, range: Range<usize>) -> Result<(), Error> {
        self.0.post_send(WrId(id), SendOp::Send, [range], true)
    }

    pub(super) fn poll(&self, out: &mut [Completion]) -> Result<usize, Error> {
        self.0.poll(out)
    }

    /// Destroys the queue pair; returns its memory if the device is proven to have stopped
    pub(super) fn destroy(self) -> Option<Unposted> {
        self.0.destroy().map(Unposted)
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
