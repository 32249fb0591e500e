//! A queue pair with memory that only the device touches, and what is known of its requests

use std::collections::VecDeque;
use std::future::poll_fn;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use rdma_async::time::timeout;
use rdma_core::{
    AnyCompletionQueue, AnyDevice, Cause, Completion, CompletionQueue as _, Device as _, Error, Invalid,
    QpAddress, QpCapacity, Qpn, QueuePair as _, Rkey, Runtime, SendOp, Status, Transition, Verb, WrId,
};

use crate::error::CalibrateError;
use crate::memory::Memory;
use crate::registered_qp::RegisteredQp;

/// The time that a request may take that has to complete.
pub(crate) const COMPLETION_TIMEOUT: Duration = Duration::from_secs(2);
/// The most memory of late receives of a queue pair, in bytes.
const MAX_LATE: usize = 1 << 20;

/// A queue pair with memory, and the requests that await their completion
pub(crate) struct Station {
    queue_pair: RegisteredQp,
    receives: Requests,
    sends: Requests,
    /// The most requests that may await their completion; `None` for as many as the device accepts
    most: Option<u64>,
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
        let cq = Arc::new(device.create_cq(completions(device))?);
        Self::on(runtime, device, cq, frames, len)
    }

    /// As [`new`](Self::new), but posts no more than the completion queue holds, also if a peer asks for more and the device accepts it
    pub(crate) fn bounded(
        runtime: &Arc<dyn Runtime>,
        device: &Arc<AnyDevice>,
        frames: u32,
        len: usize,
    ) -> Result<Self, Error> {
        let mut station = Self::new(runtime, device, frames, len)?;
        station.most = Some(completions(device).into());
        Ok(station)
    }

    /// Another one that completes to the same queue; completions are taken by either
    pub(crate) fn beside(&self, frames: u32, len: usize) -> Result<Self, Error> {
        Self::on(&self.runtime, &self.device, Arc::clone(self.queue_pair.cq()), frames, len)
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
        Ok(Self {
            queue_pair: RegisteredQp::new(cq, frames, memory)?,
            receives: Requests::default(),
            sends: Requests::default(),
            most: None,
            stashed: VecDeque::new(),
            device: Arc::clone(device),
            runtime: Arc::clone(runtime),
        })
    }

    pub(crate) fn address(&self) -> QpAddress {
        self.queue_pair.qp().address()
    }

    /// The bytes of the memory of its requests
    pub(crate) fn memory_len(&self) -> usize {
        self.queue_pair.memory_len()
    }

    pub(crate) fn capacity(&self) -> QpCapacity {
        self.queue_pair.qp().capacity()
    }

    pub(crate) fn modify(&self, to: Transition) -> Result<(), Error> {
        self.queue_pair.qp().modify(to)
    }

    pub(crate) fn connect(&self, peer: &QpAddress) -> Result<(), Error> {
        self.modify(Transition::ReadyToReceive { peer: *peer })?;
        self.modify(Transition::ReadyToSend)
    }

    pub(crate) fn recv(&mut self, range: Range<usize>) -> Result<(), Error> {
        let id = self.next_receive()?;
        self.queue_pair.post_recv(id, range)?;
        self.receives.posted += 1;
        Ok(())
    }

    /// Posts a receive into memory that is registered only now, of at most `most` bytes
    pub(crate) fn recv_late(&mut self, len: usize, most: usize) -> Result<(), Error> {
        let most = most.min(MAX_LATE);
        // One region more, which stays until the queue pair is destroyed: macOS 26.2 was reported to end a process that has too many.
        if len > most || self.queue_pair.late_count() > 0 {
            return Err(Error::new(Verb::RegMr, Invalid::OutsideRegion { addr: 0, len: most as u32 }.into()));
        }
        let id = self.next_receive()?;
        self.queue_pair.post_recv_late(id, Memory::local(&self.device, len)?, 0..len)?;
        self.receives.posted += 1;
        Ok(())
    }

    /// The name of the next receive, if there is room for it
    fn next_receive(&self) -> Result<WrId, Error> {
        require_room(Verb::PostRecv, self.awaited(), self.most)?;
        Ok(id_of(self.receives.next(), RECEIVE))
    }

    fn awaited(&self) -> u64 {
        self.receives.awaited() + self.sends.awaited()
    }

    pub(crate) fn send(&mut self, len: usize) -> Result<WrId, Error> {
        self.post_one(SendOp::Send, 0..len, true)
    }

    /// Posts a send that makes no completion
    pub(crate) fn send_unsignaled(&mut self, len: usize) -> Result<WrId, Error> {
        self.post_one(SendOp::Send, 0..len, false)
    }

    /// Posts a send with two elements
    pub(crate) fn send_two(&mut self, len: usize) -> Result<WrId, Error> {
        self.post(SendOp::Send, [0..len, len..2 * len], true)
    }

    /// Posts a WRITE that names no memory of the peer
    pub(crate) fn write(&mut self, len: usize) -> Result<WrId, Error> {
        self.post_one(SendOp::Write { remote_addr: 0, rkey: Rkey(0) }, 0..len, true)
    }

    fn post_one(&mut self, op: SendOp, range: Range<usize>, signaled: bool) -> Result<WrId, Error> {
        self.post(op, [range], signaled)
    }

    fn post<const PARTS: usize>(
        &mut self,
        op: SendOp,
        ranges: [Range<usize>; PARTS],
        signaled: bool,
    ) -> Result<WrId, Error> {
        require_room(Verb::PostSend, self.awaited(), self.most)?;
        let id = id_of(self.sends.next(), SEND);
        self.queue_pair.post_send(id, op, ranges, signaled)?;
        self.sends.posted += 1;
        Ok(id)
    }

    /// Polls the completion queue once, which must be empty
    pub(crate) fn poll(&self) -> Result<(), Error> {
        let mut out = [Completion::default()];
        self.queue_pair.poll(&mut out).map(drop)
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
        let completion = self.completion(|id| !is_receive(id)).await?;
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
        Ok(self.completion(is_receive).await?.status)
    }

    /// The queue pair that the next completion names
    pub(crate) async fn next_named(&mut self) -> Result<Qpn, CalibrateError> {
        let completion = self.completion(|_| true).await?;
        succeeded(completion.status)?;
        Ok(completion.qpn)
    }

    /// Whether the request that completes next, with success, is a receive
    pub(crate) async fn next_is_receive(&mut self) -> Result<bool, CalibrateError> {
        let completion = self.completion(|_| true).await?;
        succeeded(completion.status)?;
        Ok(is_receive(completion.id))
    }

    /// Whether the request that has completed with success is a receive, if one has
    pub(crate) fn receive_completed_now(&mut self) -> Result<Option<bool>, CalibrateError> {
        let mut out = [Completion::default()];
        let completion = match self.stashed.pop_front() {
            Some(completion) => completion,
            None => match self.queue_pair.poll(&mut out)? {
                0 => return Ok(None),
                _ => self.note(out[0]),
            },
        };
        succeeded(completion.status)?;
        Ok(Some(is_receive(completion.id)))
    }

    pub(crate) fn runtime(&self) -> &Arc<dyn Runtime> {
        &self.runtime
    }

    /// Counts a completion that was polled
    fn note(&mut self, completion: Completion) -> Completion {
        let requests = if is_receive(completion.id) { &mut self.receives } else { &mut self.sends };
        requests.completed = requests.completed.max(completion.id.0 >> 1);
        completion
    }

    async fn completion(&mut self, is_wanted: fn(WrId) -> bool) -> Result<Completion, CalibrateError> {
        if let Some(at) = self.stashed.iter().position(|completion| is_wanted(completion.id)) {
            return Ok(self.stashed.remove(at).expect("it was just found"));
        }
        let runtime = Arc::clone(&self.runtime);
        loop {
            let mut out = [Completion::default()];
            let polled = poll_fn(|cx| self.queue_pair.cq().poll_completions(cx, &mut out));
            let Some(polled) = timeout(&*runtime, COMPLETION_TIMEOUT, polled).await else {
                return Err(CalibrateError::Silent(COMPLETION_TIMEOUT));
            };
            polled?;
            let completion = self.note(out[0]);
            if is_wanted(completion.id) {
                return Ok(completion);
            }
            self.stashed.push_back(completion);
        }
    }
}

impl Drop for Station {
    fn drop(&mut self) {
        // The regions are dropped afterwards, and prove that the device has stopped where the queue pair does not.
        let _ = self.queue_pair.end();
    }
}

/// Requests of one kind: those of each queue complete in the order of their posts, also for those that make no completion
#[derive(Default)]
struct Requests {
    posted: u64,
    /// The number of the latest that is known to have completed
    completed: u64,
}

impl Requests {
    /// The number of the next one, from 1 on
    fn next(&self) -> u64 {
        self.posted + 1
    }

    fn awaited(&self) -> u64 {
        // Another queue pair at the same completion queue may have posted more.
        self.posted.saturating_sub(self.completed)
    }
}

/// The lowest bit of a name: a completion with an error names no kind of its request (libibverbs manual, ibv_poll_cq)
const RECEIVE: u64 = 1;
const SEND: u64 = 0;

/// The name of the request of a kind that has this number
fn id_of(number: u64, kind: u64) -> WrId {
    WrId(number << 1 | kind)
}

fn is_receive(id: WrId) -> bool {
    id.0 & RECEIVE != 0
}

/// The depth of the completion queue of a queue pair: an adapter may have queues of millions
pub(crate) fn completions(device: &AnyDevice) -> u32 {
    device.caps().max_cqe.min(4096)
}

/// Fails as a full queue does, if `awaited` requests await their completion and no more than `most` may
pub(crate) fn require_room(verb: Verb, awaited: u64, most: Option<u64>) -> Result<(), Error> {
    match most {
        Some(most) if awaited >= most => Err(Error::new(verb, Cause::QueueFull)),
        _ => Ok(()),
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
