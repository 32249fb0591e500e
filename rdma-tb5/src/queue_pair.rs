//! Queue pairs behind the traits
#![allow(unsafe_code, reason = "calls the functions of the provider")]

use std::ffi::c_int;
use std::fmt;
use std::ptr::{NonNull, null_mut};

use rdma_core::{
    Cause, Error, Invalid, Lid, Psn, QpAddress, QpCapacity, QpInit, QpState, QpType, Qpn, QueuePair,
    RecvRequest, Resource, SendOp, SendRequest, Sge, Teardown, Transition, Verb, frames,
};
use rdma_verbs_abi::{Qp, QpCap, QpInitAttr, RecvWr, SendWr, constants};

use crate::call_watch::CallCounter;
use crate::errno;
use crate::polled_cq::{InFlight, PolledCq};
use crate::posted_frames::PostedFrames;
use crate::sync::Arc;
use crate::transition::{self, Local};

/// More frames than a queue holds anywhere.
const UNGUARDED: u32 = 1 << 14;
/// The most elements of a request, which an unguarded device passes on.
const MAX_SGE: usize = 2;

/// A queue pair of a [`VerbsDevice`](crate::VerbsDevice)
///
/// After its cable was pulled, posting has been reported to crash inside of Apple's provider. So the state of the port is queried
/// before the first post on a device, and before the first post after 1024 polls in a row without a completion, or after a task
/// has slept between polls. On a port that is down nothing is posted. On Apple's device the error is [`Cause::DeviceGone`] from then on,
/// because queue pairs that were open then stay dead when the cable is back; on others it is [`Cause::PortDown`] while the port is
/// down.
///
/// Another thread queries, which costs such a post about 11 µs (a machine with Linux), because some drivers never return from a query. The post
/// waits for 100 ms at most: a device that does not answer takes nothing ([`Cause::Busy`]) until it does.
///
/// A crash remains possible if the cable is pulled during a batch of posts or between the query and the post, or while the program neither polls
/// nor posts: if the provider crashes then, it takes the process with it.
pub struct VerbsQueuePair {
    cq: Arc<PolledCq>,
    /// `None` once destroyed.
    qp: Option<NonNull<Qp>>,
    in_flight: Arc<InFlight>,
    in_send: Arc<CallCounter>,
    in_recv: Arc<CallCounter>,
    /// The depths that the provider reports, if they are not counted here.
    reported: Option<QpCapacity>,
    address: QpAddress,
    qp_type: QpType,
    teardown: Teardown,
}

// SAFETY: verbs may be called on a queue pair from any thread. Posting from two threads at once is excluded by the contract of
// `post_send` and `post_recv`.
unsafe impl Send for VerbsQueuePair {}
// SAFETY: as above.
unsafe impl Sync for VerbsQueuePair {}

impl VerbsQueuePair {
    /// Creates a queue pair and moves it to [`QpState::Init`]
    pub(crate) fn new(cq: &Arc<PolledCq>, init: &QpInit) -> Result<Self, Error> {
        let device = &cq.device;
        let fail = |cause| Err(Error::new(Verb::CreateQp, cause));
        let QpCapacity { recv_frames, send_frames } = init.capacity;
        let (frames, max) = (recv_frames.max(send_frames), device.caps.max_queue_frames);
        if frames > max {
            return fail(Invalid::QueueFrames { frames, max }.into());
        }
        // All that may fail comes before the queue pair: from its creation on, `Self` owns it.
        let port = device.context.port()?;
        let (_, gid) = device.source_gid().unwrap_or_default();
        let asked = QpCap {
            max_send_wr: send_frames.max(1),
            max_recv_wr: recv_frames.max(1),
            max_send_sge: 1,
            max_recv_sge: 1,
            max_inline_data: 0,
        };
        let mut attr = QpInitAttr {
            send_cq: cq.as_ptr(),
            recv_cq: cq.as_ptr(),
            cap: asked,
            qp_type: match init.qp_type {
                QpType::Uc => constants::QPT_UC,
                QpType::Rc => constants::QPT_RC,
                _ => constants::QPT_UD,
            },
            ..QpInitAttr::default()
        };
        errno::clear();
        // SAFETY: the protection domain and the completion queue exist, and the structure is complete.
        let qp = unsafe { (device.context.provider.ibv_create_qp)(device.pd.as_ptr(), &raw mut attr) };
        let Some(qp) = NonNull::new(qp) else {
            return fail(errno::creation_cause(errno::last(), Resource::QueuePairs, device.caps.max_qp));
        };
        // SAFETY: the queue pair was just created, and its number does not change.
        let qpn = unsafe { (*qp.as_ptr()).qp_num };
        let granted = transition::granted(device, qp, attr.cap);
        // A device has been reported to accept less than it reports, and another to damage the data of what it does not hold:
        // what was asked for and reported is safe.
        let is_unguarded = device.options.is_unguarded;
        let limit = |granted: u32, asked: u32| if is_unguarded { UNGUARDED } else { granted.min(asked) };
        let in_flight = Arc::new(InFlight {
            qpn,
            send: PostedFrames::new(limit(granted.max_send_wr, asked.max_send_wr)),
            recv: PostedFrames::new(limit(granted.max_recv_wr, asked.max_recv_wr)),
        });
        let reported = is_unguarded
            .then_some(QpCapacity { recv_frames: granted.max_recv_wr, send_frames: granted.max_send_wr });
        cq.add(Arc::clone(&in_flight));
        let pair = Self {
            cq: Arc::clone(cq),
            qp: Some(qp),
            in_flight,
            in_send: device.call_watch.queue(Verb::PostSend),
            in_recv: device.call_watch.queue(Verb::PostRecv),
            reported,
            address: QpAddress { gid, lid: Lid(port.lid), psn: Psn(7), qpn: Qpn(qpn) },
            qp_type: init.qp_type,
            teardown: Teardown::Unknown,
        };
        pair.modify(Transition::Init)?;
        Ok(pair)
    }

    #[inline]
    fn alive(&self, verb: Verb) -> Result<NonNull<Qp>, Error> {
        self.qp.ok_or(Error { verb, cause: Cause::Invalid(Invalid::Destroyed) })
    }

    /// Prepares a post: the queue pair, the elements of the request, and the frames that it spans
    #[inline]
    fn prepare(
        &self,
        verb: Verb,
        queue: &PostedFrames,
        sgl: &[Sge],
    ) -> Result<(NonNull<Qp>, [rdma_verbs_abi::Sge; MAX_SGE], u32), Error> {
        let qp = self.alive(verb)?;
        let device = &self.cq.device;
        device.check_port(verb)?;
        let (elements, len) = match sgl {
            [sge] => ([abi_element(sge), rdma_verbs_abi::Sge::default()], u64::from(sge.len)),
            [first, second] if device.options.is_unguarded => {
                ([first, second].map(abi_element), u64::from(first.len) + u64::from(second.len))
            }
            _ => return Err(Error::new(verb, Invalid::SgeCount { count: sgl.len(), max: 1 }.into())),
        };
        let max = device.caps.max_message.into();
        if len > max {
            return Err(Error::new(verb, Cause::MessageTooLong { len, max }));
        }
        let span = frames(len as usize) as u32;
        if !queue.fits(span) {
            return Err(full(queue, span, verb));
        }
        Ok((qp, elements, span))
    }
}

#[inline]
fn abi_element(sge: &Sge) -> rdma_verbs_abi::Sge {
    rdma_verbs_abi::Sge { addr: sge.addr, length: sge.len, lkey: sge.lkey.0 }
}

#[cold]
fn full(queue: &PostedFrames, span: u32, verb: Verb) -> Error {
    if span > queue.capacity() {
        let bytes = |frames: u32| u64::from(frames) * rdma_core::FRAME as u64;
        return Error::new(verb, Cause::MessageTooLong { len: bytes(span), max: bytes(queue.capacity()) });
    }
    Error::new(verb, Cause::QueueFull)
}

/// A request that the provider refused is not in flight
#[cold]
fn refused(queue: &PostedFrames, span: u32, verb: Verb, failed: i32) -> Error {
    queue.withdraw(span);
    Error::new(verb, errno::cause(failed))
}

impl QueuePair for VerbsQueuePair {
    fn address(&self) -> QpAddress {
        self.address
    }

    fn capacity(&self) -> QpCapacity {
        let InFlight { send, recv, .. } = &*self.in_flight;
        self.reported
            .unwrap_or_else(|| QpCapacity { recv_frames: recv.capacity(), send_frames: send.capacity() })
    }

    fn state(&self) -> QpState {
        self.qp.map_or(QpState::Error, |qp| transition::state(&self.cq.device, qp))
    }

    fn modify(&self, to: Transition) -> Result<(), Error> {
        let qp = self.alive(Verb::ModifyQp)?;
        let local = Local { address: &self.address, qp_type: self.qp_type };
        transition::apply(&self.cq.device, qp, to, &local)
    }

    #[inline]
    unsafe fn post_send(&self, request: &SendRequest<'_>) -> Result<(), Error> {
        let _in_call = self.in_send.enter();
        let queue = &self.in_flight.send;
        let (qp, mut elements, span) = self.prepare(Verb::PostSend, queue, request.sgl)?;
        let (opcode, wr) = match request.op {
            SendOp::Write { remote_addr, rkey } => {
                (constants::WR_RDMA_WRITE, [remote_addr, rkey.0.into(), 0, 0])
            }
            SendOp::Read { remote_addr, rkey } => {
                (constants::WR_RDMA_READ, [remote_addr, rkey.0.into(), 0, 0])
            }
            SendOp::FetchAdd { remote_addr, rkey, add } => {
                (constants::WR_ATOMIC_FETCH_AND_ADD, [remote_addr, add, 0, rkey.0.into()])
            }
            SendOp::CompareSwap { remote_addr, rkey, compare, swap } => {
                (constants::WR_ATOMIC_CMP_AND_SWP, [remote_addr, compare, swap, rkey.0.into()])
            }
            _ => (constants::WR_SEND, [0; 4]),
        };
        let mut request = SendWr {
            wr_id: request.id.0,
            next: null_mut(),
            sg_list: elements.as_mut_ptr(),
            num_sge: request.sgl.len() as c_int,
            opcode,
            send_flags: if request.signaled { constants::SEND_SIGNALED } else { 0 },
            imm_data: 0,
            wr,
            qp_type: 0,
            rest: [0; 6],
        };
        queue.post(span, request.send_flags != 0);
        let mut bad = null_mut();
        // SAFETY: the queue pair exists and the request is complete; the caller promises that the memory is valid and that no other
        // thread posts. One request at a time: Apple's provider does not show which requests of a list it took before a failure.
        let failed = unsafe { (self.cq.device.post_send)(qp.as_ptr(), &raw mut request, &raw mut bad) };
        if failed != 0 {
            return Err(refused(queue, span, Verb::PostSend, failed));
        }
        self.cq.backoff.posted();
        Ok(())
    }

    #[inline]
    unsafe fn post_recv(&self, request: &RecvRequest<'_>) -> Result<(), Error> {
        let _in_call = self.in_recv.enter();
        let queue = &self.in_flight.recv;
        let (qp, mut elements, span) = self.prepare(Verb::PostRecv, queue, request.sgl)?;
        let mut request = RecvWr {
            wr_id: request.id.0,
            next: null_mut(),
            sg_list: elements.as_mut_ptr(),
            num_sge: request.sgl.len() as c_int,
        };
        queue.post(span, true);
        let mut bad = null_mut();
        // SAFETY: as in `post_send`.
        let failed = unsafe { (self.cq.device.post_recv)(qp.as_ptr(), &raw mut request, &raw mut bad) };
        if failed == 0 { Ok(()) } else { Err(refused(queue, span, Verb::PostRecv, failed)) }
    }

    fn destroy(&mut self) -> Teardown {
        if let Some(qp) = self.qp.take() {
            let device = &self.cq.device;
            // Never to the error state first: Apple's provider was reported not to unmap the memory then (llama.cpp pull request 27908).
            // SAFETY: the queue pair exists and is destroyed once.
            let failed = unsafe { (device.context.provider.ibv_destroy_qp)(qp.as_ptr()) };
            self.cq.remove(self.in_flight.qpn);
            if failed != 0 {
                tracing::warn!(errno = failed, "a queue pair could not be destroyed");
            } else if device.trusts_destroy() {
                self.teardown = Teardown::Quiesced;
            }
        }
        self.teardown
    }
}

impl Drop for VerbsQueuePair {
    fn drop(&mut self) {
        // How the queue pair ended matters only to a caller that reuses its memory: that caller uses `destroy`.
        let _ = self.destroy();
    }
}

impl fmt::Debug for VerbsQueuePair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("VerbsQueuePair").field("qpn", &self.address.qpn).finish_non_exhaustive()
    }
}
