//! A queue pair with memory that stays registered as long as requests may name it: its posts are safe

use std::ops::Range;
use std::sync::Arc;

use rdma_core::{
    AnyCompletionQueue, AnyQueuePair, Completion, CompletionQueue as _, Error, QpInit, QueuePair as _,
    RecvRequest, SendOp, SendRequest, Sge, Teardown, Verb, WrId,
};

use crate::memory::Memory;

/// A queue pair, its completion queue and its memory
///
/// The fields are dropped in this order: the memory outlives the queue pair. Only the device touches it, until [`destroy`](Self::destroy)
/// returns it.
pub(crate) struct RegisteredQp {
    qp: AnyQueuePair,
    cq: Arc<AnyCompletionQueue>,
    memory: Memory,
    /// That of late receives
    late: Vec<Memory>,
}

impl RegisteredQp {
    /// One that completes to `cq`, with queues of `frames` frames; `memory` must be registered
    pub(crate) fn new(cq: Arc<AnyCompletionQueue>, frames: u32, memory: Memory) -> Result<Self, Error> {
        let qp = cq.create_qp(&QpInit::with_frames(frames))?;
        Ok(Self { qp, cq, memory, late: Vec::new() })
    }

    pub(crate) fn qp(&self) -> &AnyQueuePair {
        &self.qp
    }

    pub(crate) fn cq(&self) -> &Arc<AnyCompletionQueue> {
        &self.cq
    }

    /// The bytes of its memory, with that of late receives
    pub(crate) fn memory_len(&self) -> usize {
        self.memory.len() + self.late.iter().map(Memory::len).sum::<usize>()
    }

    /// The number of late receives
    pub(crate) fn late_count(&self) -> usize {
        self.late.len()
    }

    /// Posts a receive into a part of its memory
    pub(crate) fn post_recv(&mut self, id: WrId, range: Range<usize>) -> Result<(), Error> {
        let sgl = [self.memory.sge(Verb::PostRecv, &range)?];
        // SAFETY: `&mut self` excludes another post. The memory stays registered until the queue pair is destroyed, and only the device
        // touches it; if the queue pair does not prove that the device has stopped, the region does, or the memory stays mapped.
        unsafe { self.qp.post_recv(&RecvRequest { id, sgl: &sgl }) }
    }

    /// Posts a receive into `memory`, which must be registered
    pub(crate) fn post_recv_late(
        &mut self,
        id: WrId,
        memory: Memory,
        range: Range<usize>,
    ) -> Result<(), Error> {
        let sgl = [memory.sge(Verb::PostRecv, &range)?];
        // Also if the post fails: it is dropped after the queue pair.
        self.late.push(memory);
        // SAFETY: as above.
        unsafe { self.qp.post_recv(&RecvRequest { id, sgl: &sgl }) }
    }

    /// Posts a send of parts of its memory
    pub(crate) fn post_send<const PARTS: usize>(
        &mut self,
        id: WrId,
        op: SendOp,
        ranges: [Range<usize>; PARTS],
        signaled: bool,
    ) -> Result<(), Error> {
        let mut sgl = [Sge::default(); PARTS];
        for (sge, range) in sgl.iter_mut().zip(&ranges) {
            *sge = self.memory.sge(Verb::PostSend, range)?;
        }
        // SAFETY: as for receives; sends may share memory, which nothing writes.
        unsafe { self.qp.post_send(&SendRequest { id, op, sgl: &sgl, signaled }) }
    }

    pub(crate) fn poll(&self, out: &mut [Completion]) -> Result<usize, Error> {
        self.cq.poll(out)
    }

    /// Destroys the queue pair, and keeps its memory: posts fail from now on
    pub(crate) fn end(&mut self) -> Teardown {
        self.qp.destroy()
    }

    /// Destroys the queue pair; returns its memory if the device is proven to have stopped: by that, or else by the end of the region
    pub(crate) fn destroy(mut self) -> Option<Memory> {
        let is_quiesced = self.end() == Teardown::Quiesced;
        let Self { qp, cq, mut memory, late } = self;
        let is_over = is_quiesced || memory.deregister();
        drop((qp, cq, late));
        is_over.then_some(memory)
    }
}
