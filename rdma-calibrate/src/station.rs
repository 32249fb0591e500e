//! A queue pair with memory that only the device touches

use std::collections::VecDeque;
use std::future::poll_fn;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use rdma_async::time::timeout;
use rdma_core::{
    AnyCompletionQueue, AnyDevice, AnyQueuePair, Completion, CompletionQueue as _, Device as _, Error,
    Invalid, Opcode, QpAddress, QpCapacity, QpInit, Qpn, QueuePair as _, RecvRequest, Rkey, Runtime, SendOp,
    SendRequest, Sge, Status, Transition, Verb, WrId,
};

use crate::error::CalibrateError;
use crate::memory::Memory;

/// The time that a request may take that has to complete.
pub(crate) const PATIENCE: Duration = Duration::from_secs(2);
/// The most memory of late receives of a queue pair, in bytes.
const MAX_LATE: usize = 1 << 20;

/// A queue pair, its completion queue and its memory
///
/// The fields are dropped in this order: the memory outlives the queue pair.
pub(crate) struct Station {
    qp: AnyQueuePair,
    cq: Arc<AnyCompletionQueue>,
    memory: Vec<Memory>,
    next: u64,
    stashed: VecDeque<Completion>,
    device: Arc<AnyDevice>,
    runtime: Arc<dyn Runtime>,
}

impl Station {
    pub(crate) fn new(
        runtime: &Arc<dyn Runtime>,
        device: &Arc<AnyDevice>,
        frames: u32,
        len: usize,
    ) -> Result<Self, Error> {
        let depth = device.caps().max_cqe.min(4096);
        let cq = Arc::new(device.create_cq(depth)?);
        Self::on(runtime, device, cq, frames, len)
    }

    /// Another one that completes to the same queue; completions are taken by either
    pub(crate) fn beside(&self, frames: u32, len: usize) -> Result<Self, Error> {
        Self::on(&self.runtime, &self.device, Arc::clone(&self.cq), frames, len)
    }

    fn on(
        runtime: &Arc<dyn Runtime>,
        device: &Arc<AnyDevice>,
        cq: Arc<AnyCompletionQueue>,
        frames: u32,
        len: usize,
    ) -> Result<Self, Error> {
        let memory = Memory::local(device, len)?;
        let frames = frames.min(device.caps().max_queue_frames);
        let qp = cq.create_qp(&QpInit::with_frames(frames))?;
        Ok(Self {
            qp,
            cq,
            memory: vec![memory],
            next: 0,
            stashed: VecDeque::new(),
            device: Arc::clone(device),
            runtime: Arc::clone(runtime),
        })
    }

    pub(crate) fn address(&self) -> QpAddress {
        self.qp.address()
    }

    /// The bytes of the memory of its requests
    pub(crate) fn memory_len(&self) -> usize {
        self.memory[0].len()
    }

    pub(crate) fn capacity(&self) -> QpCapacity {
        self.qp.capacity()
    }

    pub(crate) fn modify(&self, to: Transition) -> Result<(), Error> {
        self.qp.modify(to)
    }

    pub(crate) fn connect(&self, peer: &QpAddress) -> Result<(), Error> {
        self.modify(Transition::ReadyToReceive { peer: *peer })?;
        self.modify(Transition::ReadyToSend)
    }

    pub(crate) fn recv(&mut self, range: Range<usize>) -> Result<(), Error> {
        let sgl = [self.memory[0].sge(Verb::PostRecv, &range)?];
        self.post_recv(&sgl)
    }

    /// Posts a receive into memory that is registered only now
    pub(crate) fn recv_late(&mut self, len: usize) -> Result<(), Error> {
        // One region more, which stays until the queue pair is destroyed: macOS 26.2 was reported to end a process that has too many.
        if len > MAX_LATE || self.memory.len() > 1 {
            return Err(Error::new(
                Verb::RegMr,
                Invalid::OutsideRegion { addr: 0, len: MAX_LATE as u32 }.into(),
            ));
        }
        let late = Memory::local(&self.device, len)?;
        let sgl = [late.sge(Verb::PostRecv, &(0..len))?];
        // Also if the post fails: it is dropped after the queue pair.
        self.memory.push(late);
        self.post_recv(&sgl)
    }

    fn post_recv(&mut self, sgl: &[Sge]) -> Result<(), Error> {
        self.next += 1;
        let request = RecvRequest { id: WrId(self.next), sgl };
        // SAFETY: `&mut self` excludes another post. The memory stays registered until the queue pair is destroyed, and only the device
        // touches it; if the queue pair does not prove that the device has stopped, the region does, or the memory stays mapped.
        unsafe { self.qp.post_recv(&request) }
    }

    pub(crate) fn send(&mut self, len: usize) -> Result<WrId, Error> {
        let sgl = [self.memory[0].sge(Verb::PostSend, &(0..len))?];
        self.post_send(SendOp::Send, &sgl)
    }

    /// Posts a send that makes no completion
    pub(crate) fn send_unsignaled(&mut self, len: usize) -> Result<WrId, Error> {
        let sgl = [self.memory[0].sge(Verb::PostSend, &(0..len))?];
        self.post(SendOp::Send, &sgl, false)
    }

    /// Posts a send with two elements
    pub(crate) fn send_two(&mut self, len: usize) -> Result<WrId, Error> {
        let sgl = [
            self.memory[0].sge(Verb::PostSend, &(0..len))?,
            self.memory[0].sge(Verb::PostSend, &(len..2 * len))?,
        ];
        self.post_send(SendOp::Send, &sgl)
    }

    /// Posts a WRITE that names no memory of the peer
    pub(crate) fn write(&mut self, len: usize) -> Result<WrId, Error> {
        let sgl = [self.memory[0].sge(Verb::PostSend, &(0..len))?];
        self.post_send(SendOp::Write { remote_addr: 0, rkey: Rkey(0) }, &sgl)
    }

    fn post_send(&mut self, op: SendOp, sgl: &[Sge]) -> Result<WrId, Error> {
        self.post(op, sgl, true)
    }

    fn post(&mut self, op: SendOp, sgl: &[Sge], signaled: bool) -> Result<WrId, Error> {
        self.next += 1;
        let id = WrId(self.next);
        let request = SendRequest { id, op, sgl, signaled };
        // SAFETY: as for receives; sends may share memory, which nothing writes.
        unsafe { self.qp.post_send(&request) }?;
        Ok(id)
    }

    /// Polls the completion queue once, which must be empty
    pub(crate) fn poll(&self) -> Result<(), Error> {
        let mut out = [Completion::default()];
        self.cq.poll(&mut out).map(drop)
    }

    /// Sends without completions, and one with, of which the name is returned
    pub(crate) fn send_in_a_row(&mut self, count: usize, len: usize) -> Result<WrId, Error> {
        for _ in 1..count {
            self.send_unsignaled(len)?;
        }
        self.send(len)
    }

    /// Waits until the send `id` completes; those before it may complete, too
    pub(crate) async fn sent_until(&mut self, id: WrId) -> Result<(), CalibrateError> {
        while self.sent_name().await? != id {}
        Ok(())
    }

    /// The next send that completes
    pub(crate) async fn sent(&mut self) -> Result<(), CalibrateError> {
        self.sent_name().await.map(drop)
    }

    /// The next send that completes, by the name under which it was posted
    pub(crate) async fn sent_name(&mut self) -> Result<WrId, CalibrateError> {
        let completion = self.completion(|opcode| opcode != Opcode::Recv).await?;
        succeeded(completion.status)?;
        Ok(completion.id)
    }

    /// The next receive that completes, which must have succeeded
    pub(crate) async fn received(&mut self) -> Result<(), CalibrateError> {
        let status = self.receive_status().await?;
        succeeded(status)
    }

    /// The status of the next receive that completes
    pub(crate) async fn receive_status(&mut self) -> Result<Status, CalibrateError> {
        Ok(self.completion(|opcode| opcode == Opcode::Recv).await?.status)
    }

    /// The queue pair that the next completion names
    pub(crate) async fn next_named(&mut self) -> Result<Qpn, CalibrateError> {
        let completion = self.completion(|_| true).await?;
        succeeded(completion.status)?;
        Ok(completion.qpn)
    }

    /// The kind of the request that completes next, with success
    pub(crate) async fn next_completed(&mut self) -> Result<Opcode, CalibrateError> {
        let completion = self.completion(|_| true).await?;
        succeeded(completion.status)?;
        Ok(completion.opcode)
    }

    /// The kind of the request that has completed with success, if one has
    pub(crate) fn completed_now(&mut self) -> Result<Option<Opcode>, CalibrateError> {
        let mut out = [Completion::default()];
        let completion = match self.stashed.pop_front() {
            Some(completion) => completion,
            None => match self.cq.poll(&mut out)? {
                0 => return Ok(None),
                _ => out[0],
            },
        };
        succeeded(completion.status)?;
        Ok(Some(completion.opcode))
    }

    pub(crate) fn runtime(&self) -> &Arc<dyn Runtime> {
        &self.runtime
    }

    async fn completion(&mut self, is_wanted: fn(Opcode) -> bool) -> Result<Completion, CalibrateError> {
        if let Some(at) = self.stashed.iter().position(|completion| is_wanted(completion.opcode)) {
            return Ok(self.stashed.remove(at).expect("it was just found"));
        }
        let runtime = Arc::clone(&self.runtime);
        loop {
            let mut out = [Completion::default()];
            let polled = poll_fn(|cx| self.cq.poll_completions(cx, &mut out));
            let Some(polled) = timeout(&*runtime, PATIENCE, polled).await else {
                return Err(CalibrateError::Silent(PATIENCE));
            };
            polled?;
            if is_wanted(out[0].opcode) {
                return Ok(out[0]);
            }
            self.stashed.push_back(out[0]);
        }
    }
}

impl Drop for Station {
    fn drop(&mut self) {
        // The regions are dropped afterwards, and prove that the device has stopped where the queue pair does not.
        let _ = self.qp.destroy();
    }
}

fn succeeded(status: Status) -> Result<(), CalibrateError> {
    if status == Status::Success { Ok(()) } else { Err(CalibrateError::Status(status)) }
}

/// The memory of receive `number` of `len` bytes; the first frames are for sends
pub(crate) fn slot(number: usize, len: usize) -> Range<usize> {
    let size = len.max(1).checked_next_multiple_of(rdma_core::FRAME).unwrap_or(usize::MAX);
    // A range that no memory has is refused where it is used.
    let start = number.saturating_add(1).saturating_mul(size);
    start..start.saturating_add(len)
}
