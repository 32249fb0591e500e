//! Its completion queues and queue pairs
#![allow(unsafe_code, reason = "posting is unsafe in the traits")]

use std::collections::VecDeque;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use rdma_core::{
    Cause, Completion, CompletionQueue, Error, FRAME, Gid, Invalid, Opcode, QpAddress, QpCapacity, QpInit,
    QpState, QpType, Qpn, QueuePair, RecvRequest, SendRequest, Sge, Status, Teardown, Transition, Verb, WrId,
};
use rdma_sim::{SimCompletionQueue, SimQueuePair};

use super::{Known, NO_KINDS, ONE_KEY, Region, STRAY_WRITE, Shared};

pub(super) struct DeviantCq {
    pub(super) cq: SimCompletionQueue,
    pub(super) broken: &'static str,
    pub(super) shared: Arc<Shared>,
    /// The numbers of its queue pairs
    pub(super) created: Mutex<Vec<Qpn>>,
}

pub(super) struct DeviantQp {
    /// `None` once it was said to be destroyed.
    qp: Option<SimQueuePair>,
    address: QpAddress,
    /// The frames of the send queue for which the program asked
    asked: u32,
    broken: &'static str,
    shared: Arc<Shared>,
    has_ended: bool,
}

/// The address of no host to which the calibration tries to connect
fn nowhere() -> Gid {
    Gid::from_ipv4([203, 0, 113, 77].into())
}

impl CompletionQueue for DeviantCq {
    type Qp = DeviantQp;

    fn create_qp(&self, init: &QpInit) -> Result<DeviantQp, Error> {
        let mut init = *init;
        match self.broken {
            "transports" => init.qp_type = QpType::Uc,
            "any queue is accepted" => {
                let QpCapacity { recv_frames, send_frames } = &mut init.capacity;
                (*recv_frames, *send_frames) = ((*recv_frames).min(4095), (*send_frames).min(4095));
            }
            _ => (),
        }
        let qp = self.cq.create_qp(&init)?;
        let address = qp.address();
        self.created.lock().unwrap().push(address.qpn);
        self.shared.queue_pairs().insert(address.qpn, Known::default());
        let shared = Arc::clone(&self.shared);
        let (asked, broken) = (init.capacity.send_frames, self.broken);
        Ok(DeviantQp { qp: Some(qp), address, asked, broken, shared, has_ended: false })
    }

    fn poll(&self, out: &mut [Completion]) -> Result<usize, Error> {
        let mut more = [Completion::default(); 4];
        let polled = match self.broken {
            "what does not fit is lost" if !out.is_empty() => {
                let n = self.cq.poll(&mut more)?.min(out.len());
                out[..n].copy_from_slice(&more[..n]);
                n
            }
            _ => self.cq.poll(out)?,
        };
        self.change(&mut out[..polled]);
        let is_full = polled > 0 && polled == out.len();
        Ok(polled + usize::from(is_full && self.broken == "more than fits"))
    }

    fn poll_completions(&self, cx: &mut Context<'_>, out: &mut [Completion]) -> Poll<Result<usize, Error>> {
        let polled = self.cq.poll_completions(cx, out);
        if polled.is_pending() && self.broken == "an empty queue completes" {
            let created = self.created.lock().unwrap();
            let known = self.shared.queue_pairs();
            let is_unused = |qpn: &Qpn| known.get(qpn).is_some_and(|known| known.posts == 0);
            if created.iter().all(is_unused) {
                out[0] = Completion::default();
                return Poll::Ready(Ok(1));
            }
        }
        polled.map_ok(|n| {
            self.change(&mut out[..n]);
            n
        })
    }
}

impl DeviantCq {
    /// Changes requests that have completed, and their memory, as the device does
    fn change(&self, completions: &mut [Completion]) {
        let last = self.shared.last_byte.load(Ordering::Relaxed);
        if self.broken == STRAY_WRITE && !completions.is_empty() && !last.is_null() {
            // SAFETY: the memory is registered, and this thread reads it only when it has polled.
            unsafe { last.write(7) };
        }
        for completion in completions {
            self.change_one(completion);
        }
    }

    fn change_one(&self, completion: &mut Completion) {
        let mut queue_pairs = self.shared.queue_pairs();
        let known = queue_pairs.entry(completion.qpn).or_default();
        let is_receive = completion.opcode == Opcode::Recv;
        let posted = if is_receive { &mut known.receives } else { &mut known.sends };
        let at = posted.iter().position(|(id, _)| *id == completion.id);
        let sge = at.and_then(|at| posted.remove(at)).map(|(_, sge)| sge).unwrap_or_default();
        let next = posted.front_mut().filter(|(id, _)| *id != completion.id);
        match (self.broken, is_receive) {
            // The names of two requests that are under way are exchanged.
            ("order", false) | ("peer: order of receives", true) => {
                if let Some((id, _)) = next {
                    std::mem::swap(id, &mut completion.id);
                }
            }
            ("names of sends are short", false) | ("peer: names of receives are short", true) => {
                completion.id.0 &= 0xffff_ffff;
            }
            ("peer: lengths", true) => completion.byte_len += 1,
            ("peer: parts of messages", true) | ("receive-access", true) => {
                completion.status = Status::Success
            }
            ("peer: the excess is lost", true)
                if completion.status != Status::Success
                    && std::mem::replace(&mut known.has_failed_receive, true) =>
            {
                completion.status = Status::Success;
            }
            (NO_KINDS, true) if completion.status != Status::Success => completion.opcode = Opcode::Send,
            (NO_KINDS, false) if completion.status != Status::Success => completion.opcode = Opcode::Recv,
            ("shared-cq", _) => completion.qpn = *self.created.lock().unwrap().last().unwrap(),
            ("qp-numbers", _) => completion.qpn.0 += 1,
            ("peer: data", true) if completion.byte_len > 0 => self.shared.scribble(sge.addr),
            ("peer: bytes behind", true) => self.shared.scribble(sge.addr + u64::from(completion.byte_len)),
            ("the memory of sends", false) if sge.len > 0 => self.shared.scribble(sge.addr),
            _ => (),
        }
    }
}

impl DeviantQp {
    fn qp(&self) -> Result<&SimQueuePair, Error> {
        let destroyed = || Error::new(Verb::ModifyQp, Invalid::Destroyed.into());
        self.qp.as_ref().ok_or_else(destroyed)
    }

    /// With the real keys of their regions
    fn with_keys(&self, sgl: &[Sge]) -> Vec<Sge> {
        let regions = self.shared.regions.lock().unwrap();
        let real = |sge: &Sge| match regions.iter().find(|region| region.has(sge.addr)) {
            Some(Region { lkey, .. }) if self.broken == "keys" && sge.lkey == ONE_KEY => {
                Sge { lkey: *lkey, ..*sge }
            }
            _ => *sge,
        };
        sgl.iter().map(real).collect()
    }

    /// True if a send is lost without an error
    fn loses(&self) -> bool {
        let queue_pairs = self.shared.queue_pairs();
        let own = &queue_pairs[&self.address.qpn];
        let mut others = queue_pairs.iter().filter(|(qpn, _)| **qpn != self.address.qpn);
        match self.broken {
            "no-loss" => own.posts == 20,
            "own-pace" => others.any(|(_, other)| !other.sends.is_empty()),
            "pairing" => others.any(|(_, other)| other.peer.is_some() && other.peer == own.peer),
            _ => false,
        }
    }

    /// The refusal of a request that the simulated device accepts
    fn refuses(&self, id: WrId, sgl: &[Sge], is_send: bool) -> Option<Cause> {
        let queue_pairs = self.shared.queue_pairs();
        let own = &queue_pairs[&self.address.qpn];
        let len: u32 = sgl.iter().map(|sge| sge.len).sum();
        let is_refused = match (self.broken, is_send) {
            ("post-failure", true) => own.has_refused > 0,
            ("a refused post takes space", true) => own.has_refused > 1000,
            ("a full queue stays full", false) => own.has_refused > 0,
            ("space returns with the poll", false) => {
                own.full_at.is_some_and(|count| own.receives.len() >= count)
            }
            ("shorter messages", false) => len > 1 << 20,
            ("names differ", _) => {
                let posted = if is_send { &own.sends } else { &own.receives };
                posted.iter().any(|(posted, _)| *posted == id)
            }
            ("one send at a time" | "peer: one send at a time", true) => !own.sends.is_empty(),
            ("one way at a time", true) => !own.receives.is_empty(),
            ("empty messages", true) => len == 0,
            ("messages of one byte", true) => len == 1,
            _ => false,
        };
        is_refused.then_some(Cause::QueueFull)
    }

    /// True if a refusal is not passed on, so that the request is lost
    fn swallows(&self, cause: &Cause, is_send: bool) -> bool {
        let is_early = self.qp().is_ok_and(|qp| qp.state() != QpState::ReadyToSend);
        match (self.broken, cause) {
            ("send-at-rts", _) => is_send && is_early,
            ("unregistered", Cause::Invalid(_)) => is_send && !is_early,
            ("operations", Cause::Unsupported) => true,
            ("long sends", Cause::MessageTooLong { .. }) => is_send,
            ("long receives", Cause::MessageTooLong { .. }) => !is_send,
            ("full send queues accept" | "peer: full send queues accept", Cause::QueueFull) => is_send,
            ("full receive queues accept", Cause::QueueFull) => !is_send,
            _ => false,
        }
    }

    fn post(
        &self,
        id: WrId,
        sgl: &[Sge],
        is_send: bool,
        post: impl FnOnce(&SimQueuePair, &[Sge]) -> Result<(), Error>,
    ) -> Result<(), Error> {
        if let Some(cause) = self.refuses(id, sgl, is_send) {
            return Err(Error::new(Verb::PostSend, cause));
        }
        let is_lost = is_send && self.loses();
        let posted = if is_lost { Ok(()) } else { post(self.qp()?, &self.with_keys(sgl)) };
        let mut queue_pairs = self.shared.queue_pairs();
        let known = queue_pairs.entry(self.address.qpn).or_default();
        match &posted {
            Err(error) => {
                known.has_refused += 1;
                let is_short = sgl.iter().all(|sge| sge.len as usize <= FRAME);
                if !is_send && is_short && error.cause == Cause::QueueFull {
                    known.full_at = Some(known.receives.len());
                }
                if self.swallows(&error.cause, is_send) { Ok(()) } else { posted }
            }
            Ok(()) => {
                known.posts += 1;
                let requests = if is_send { &mut known.sends } else { &mut known.receives };
                if !is_lost {
                    requests.push_back((id, sgl.first().copied().unwrap_or_default()));
                }
                posted
            }
        }
    }
}

impl QueuePair for DeviantQp {
    fn address(&self) -> QpAddress {
        match self.broken {
            "qp-numbers" => QpAddress { qpn: Qpn(self.address.qpn.0 + 1), ..self.address },
            "one number" => QpAddress { qpn: Qpn(9 * 256), ..self.address },
            _ => self.address,
        }
    }

    fn capacity(&self) -> QpCapacity {
        let capacity = self.qp().map_or_else(|_| QpCapacity::default(), QueuePair::capacity);
        if self.broken == "no capacity" { QpCapacity { recv_frames: 0, send_frames: 0 } } else { capacity }
    }

    fn state(&self) -> QpState {
        match (self.broken, self.qp().map_or(QpState::Error, QueuePair::state)) {
            ("RTR is not seen", QpState::ReadyToReceive) => QpState::Init,
            (_, state) => state,
        }
    }

    fn modify(&self, to: Transition) -> Result<(), Error> {
        let mut to = to;
        match (self.broken, &mut to, self.qp()?.state()) {
            ("rtr-neighbour", Transition::ReadyToReceive { peer }, _) if peer.gid == nowhere() => {
                return Ok(());
            }
            ("nothing connects" | "peer: nothing connects", Transition::ReadyToReceive { .. }, _) => {
                return Err(Error::new(Verb::ModifyQp, Cause::Busy));
            }
            // The body checks with a short queue whether the port still connects.
            ("long queues connect to nothing", Transition::ReadyToReceive { .. }, _) if self.asked > 16 => {
                return Err(Error::new(Verb::ModifyQp, Cause::PeerUnreachable));
            }
            ("steps", Transition::ReadyToSend, QpState::Init) => return Ok(()),
            ("steps backwards", Transition::Init, QpState::ReadyToSend) => return Ok(()),
            ("reset", Transition::Reset, _) => return Err(Error::new(Verb::ModifyQp, Cause::Busy)),
            ("the error state is not seen", Transition::Error, _) => return Ok(()),
            ("a destroyed queue pair changes", ..) if self.has_ended => return Ok(()),
            // Shown by the other side.
            ("qp-numbers", Transition::ReadyToReceive { peer }, _) => peer.qpn.0 &= !1,
            _ => (),
        }
        self.qp()?.modify(to)?;
        let mut queue_pairs = self.shared.queue_pairs();
        let known = queue_pairs.entry(self.address.qpn).or_default();
        if let Transition::ReadyToReceive { peer } = to {
            known.peer = Some(peer);
            let kept = if self.broken == "reset keeps receives" {
                std::mem::take(&mut known.receives)
            } else {
                VecDeque::new()
            };
            drop(queue_pairs);
            for (id, sge) in kept {
                // SAFETY: the memory stays registered as long as the queue pair, for which it was posted before.
                unsafe { self.post_recv(&RecvRequest { id, sgl: &[sge] }) }?;
            }
        }
        Ok(())
    }

    unsafe fn post_send(&self, request: &SendRequest<'_>) -> Result<(), Error> {
        let signaled = request.signaled || self.broken == "unsignaled";
        self.post(request.id, request.sgl, true, |qp, sgl| {
            // SAFETY: the caller keeps the same contract.
            unsafe { qp.post_send(&SendRequest { signaled, sgl, ..*request }) }
        })
    }

    unsafe fn post_recv(&self, request: &RecvRequest<'_>) -> Result<(), Error> {
        self.post(request.id, request.sgl, false, |qp, sgl| {
            // SAFETY: the caller keeps the same contract.
            unsafe { qp.post_recv(&RecvRequest { sgl, ..*request }) }
        })
    }

    fn destroy(&mut self) -> Teardown {
        let known = self.shared.queue_pairs().remove(&self.address.qpn).unwrap_or_default();
        let is_alive = match self.broken {
            "a destroyed queue pair sends" => !known.sends.is_empty(),
            "a destroyed queue pair receives" => !known.receives.is_empty(),
            _ => false,
        };
        if is_alive && let Some(qp) = self.qp.take() {
            *self.shared.alive.lock().unwrap() = Some(qp);
            return Teardown::Quiesced;
        }
        let answer = self.qp.as_mut().map_or(Teardown::Quiesced, QueuePair::destroy);
        let has_ended = std::mem::replace(&mut self.has_ended, true);
        if has_ended && self.broken == "destroying twice" { Teardown::Unknown } else { answer }
    }
}
