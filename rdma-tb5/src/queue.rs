//! Completion queues and queue pairs of a verbs provider

#![allow(unsafe_code, reason = "calls the provider")]

use std::cell::UnsafeCell;
use std::ffi::c_int;
use std::fmt;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use rdma_core::{
    Caps, Cause, Completion, CompletionQueue, Error, Invalid, Lid, Opcode, Psn, QpAddress, QpCapacity,
    QpInit, QpState, QpType, Qpn, QueuePair, RecvRequest, Resource, SendOp, SendRequest, Status, Teardown,
    Transition, Verb, WrId, frames,
};

use crate::account::Account;
use crate::device::Open;
use crate::modify;
use crate::verbs::{cause, clear_errno, creation_cause, errno};
use crate::wait::Waiter;
use crate::watch::SILENCE;
use rdma_verbs_abi::{Cq, Qp, QpCap, QpInitAttr, RecvWr, SendWr, Sge, Wc, constants};

pub use crate::wait::PollPolicy;

/// A completion queue of a [`VerbsDevice`](crate::VerbsDevice)
pub struct VerbsCompletionQueue {
    inner: Arc<Inner>,
    caps: Caps,
    path_mtu: u32,
    trusts_destroy: bool,
}

struct Inner {
    open: Arc<Open>,
    cq: NonNull<Cq>,
    waiter: Waiter,
    /// Held by whoever polls or uses `guarded`.
    is_busy: AtomicBool,
    guarded: UnsafeCell<Guarded>,
}

#[derive(Default)]
struct Guarded {
    /// Queue pairs that complete here.
    accounts: Vec<Arc<Accounts>>,
    /// Polls without a completion since the last one.
    silent: u32,
}

// SAFETY: the completion queue and `guarded` are used only by whoever holds `is_busy`.
unsafe impl Send for Inner {}
// SAFETY: as above.
unsafe impl Sync for Inner {}

/// Both queues of a queue pair
struct Accounts {
    qpn: u32,
    send: Account,
    recv: Account,
}

/// Completions that are asked for at once.
const BATCH: usize = 32;

impl VerbsCompletionQueue {
    pub(crate) fn new(
        open: Arc<Open>,
        caps: &Caps,
        depth: u32,
        poll: PollPolicy,
        path_mtu: u32,
        trusts_destroy: bool,
    ) -> Result<Self, Error> {
        if depth == 0 || depth > caps.max_cqe {
            return Err(Error::new(Verb::CreateCq, Invalid::CqDepth { depth, max: caps.max_cqe }.into()));
        }
        clear_errno();
        let (none, no_channel) = (std::ptr::null_mut(), std::ptr::null_mut());
        // SAFETY: the context is open; no completion channel is used.
        let cq =
            unsafe { (open.provider.ibv_create_cq)(open.context(), depth as c_int, none, no_channel, 0) };
        let Some(cq) = NonNull::new(cq) else {
            let cause = creation_cause(errno(), Resource::CompletionQueues, caps.max_cq);
            return Err(Error::new(Verb::CreateCq, cause));
        };
        let inner = Inner {
            open,
            cq,
            waiter: Waiter::new(poll),
            is_busy: AtomicBool::new(false),
            guarded: UnsafeCell::new(Guarded::default()),
        };
        Ok(Self { inner: Arc::new(inner), caps: caps.clone(), path_mtu, trusts_destroy })
    }
}

impl Inner {
    /// Runs `f` with what is guarded, alone
    #[inline]
    fn alone<R>(&self, f: impl FnOnce(&mut Guarded) -> R) -> R {
        while self.is_busy.swap(true, Ordering::Acquire) {
            std::hint::spin_loop();
        }
        // SAFETY: `is_busy` is held.
        let result = f(unsafe { &mut *self.guarded.get() });
        self.is_busy.store(false, Ordering::Release);
        result
    }

    #[inline]
    fn poll(&self, out: &mut [Completion]) -> Result<usize, Error> {
        let mut wcs = [const { std::mem::MaybeUninit::<Wc>::uninit() }; BATCH];
        let wanted = out.len().min(BATCH);
        self.alone(|guarded| {
            // SAFETY: the queue exists as long as `self`, and nobody else polls it now; there is space for so many.
            let n =
                unsafe { (self.open.poll_cq)(self.cq.as_ptr(), wanted as c_int, wcs.as_mut_ptr().cast()) };
            let Ok(n) = usize::try_from(n) else {
                self.open.watch.doubt();
                return Err(Error::new(Verb::PollCq, cause(n)));
            };
            if n == 0 {
                guarded.silent += 1;
                if guarded.silent == SILENCE {
                    guarded.silent = 0;
                    self.open.watch.doubt();
                }
                return Ok(0);
            }
            guarded.silent = 0;
            for (slot, wc) in out.iter_mut().zip(&wcs[..n.min(wanted)]) {
                // SAFETY: the provider has filled so many.
                let wc = unsafe { wc.assume_init_ref() };
                let is_receive = wc.opcode & constants::WC_RECV != 0;
                if wc.status == 0 {
                    self.open.watch.completed();
                } else {
                    self.open.watch.doubt();
                }
                let mut accounts = guarded.accounts.iter();
                if let Some(accounts) = accounts.find(|accounts| accounts.qpn == wc.qp_num) {
                    if is_receive { accounts.recv.retire() } else { accounts.send.retire() }
                }
                *slot = completion(wc, is_receive);
            }
            Ok(n.min(wanted))
        })
    }
}

#[inline]
fn completion(wc: &Wc, is_receive: bool) -> Completion {
    let status = match wc.status {
        0 => Status::Success,
        failed => Status::from_code(failed),
    };
    let opcode = match wc.opcode {
        _ if is_receive => Opcode::Recv,
        constants::WC_SEND => Opcode::Send,
        other => opcode(other),
    };
    let byte_len = if is_receive { wc.byte_len } else { 0 };
    Completion { id: WrId(wc.wr_id), status, opcode, byte_len, qpn: Qpn(wc.qp_num) }
}

fn opcode(number: u32) -> Opcode {
    match number {
        constants::WC_RDMA_WRITE => Opcode::Write,
        constants::WC_RDMA_READ => Opcode::Read,
        constants::WC_COMP_SWAP | constants::WC_FETCH_ADD => Opcode::Atomic,
        _ => Opcode::Send,
    }
}

impl CompletionQueue for VerbsCompletionQueue {
    type Qp = VerbsQueuePair;

    fn create_qp(&self, init: &QpInit) -> Result<VerbsQueuePair, Error> {
        let open = &self.inner.open;
        let fail = |cause| Err(Error::new(Verb::CreateQp, cause));
        let qp_type = match init.qp_type {
            QpType::Uc => constants::QPT_UC,
            QpType::Rc => constants::QPT_RC,
            _ => constants::QPT_UD,
        };
        let QpCapacity { recv_frames, send_frames } = init.capacity;
        let (frames, max) = (recv_frames.max(send_frames), self.caps.max_queue_frames);
        if frames > max {
            return fail(Invalid::QueueFrames { frames, max }.into());
        }
        let asked = QpCap {
            max_send_wr: send_frames.max(1),
            max_recv_wr: recv_frames.max(1),
            max_send_sge: 1,
            max_recv_sge: 1,
            max_inline_data: 0,
        };
        let cq = self.inner.cq.as_ptr();
        let none = std::ptr::null_mut();
        let mut attr = QpInitAttr {
            qp_context: none,
            send_cq: cq,
            recv_cq: cq,
            srq: none,
            cap: asked,
            qp_type,
            sq_sig_all: 0,
        };
        clear_errno();
        // SAFETY: the protection domain and the completion queue exist, and the structure is complete.
        let qp = unsafe { (open.provider.ibv_create_qp)(open.pd.as_ptr(), &raw mut attr) };
        let Some(qp) = NonNull::new(qp) else {
            return fail(creation_cause(errno(), Resource::QueuePairs, self.caps.max_qp));
        };
        let cap = modify::granted(open, qp, attr.cap);
        let at_most = |wr: u32| wr.min(self.caps.max_queue_frames);
        // SAFETY: the queue pair was just created.
        let qpn = unsafe { (*qp.as_ptr()).qp_num };
        let accounts = Arc::new(Accounts {
            qpn,
            send: Account::new(at_most(cap.max_send_wr)),
            recv: Account::new(at_most(cap.max_recv_wr)),
        });
        self.inner.alone(|guarded| guarded.accounts.push(Arc::clone(&accounts)));
        let port = open.port()?;
        let (sgid_index, gid) = open.source_gid().unwrap_or_default();
        let address = QpAddress { gid, lid: Lid(port.lid), psn: Psn(7), qpn: Qpn(qpn) };
        let mut pair = VerbsQueuePair {
            inner: Arc::clone(&self.inner),
            qp: Some(qp),
            accounts,
            address,
            sgid_index,
            path_mtu: self.path_mtu,
            qp_type: init.qp_type,
            trusts_destroy: self.trusts_destroy,
            teardown: Teardown::Unknown,
        };
        if let Err(error) = pair.modify(Transition::Init) {
            let _ = pair.destroy();
            return Err(error);
        }
        Ok(pair)
    }

    #[inline]
    fn poll(&self, out: &mut [Completion]) -> Result<usize, Error> {
        self.inner.poll(out)
    }

    fn poll_completions(&self, cx: &mut Context<'_>, out: &mut [Completion]) -> Poll<Result<usize, Error>> {
        let n = self.inner.poll(out)?;
        if n == out.len() && n > 0 {
            self.inner.waiter.found();
            return Poll::Ready(Ok(n));
        }
        if self.inner.waiter.wait(cx, n > 0) {
            self.inner.open.watch.doubt();
        }
        if n == 0 { Poll::Pending } else { Poll::Ready(Ok(n)) }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        // SAFETY: its queue pairs hold this and are gone; it is destroyed once.
        let failed = unsafe { (self.open.provider.ibv_destroy_cq)(self.cq.as_ptr()) };
        if failed != 0 {
            tracing::warn!(errno = failed, "a completion queue could not be destroyed");
        }
    }
}

impl fmt::Debug for VerbsCompletionQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("VerbsCompletionQueue").finish_non_exhaustive()
    }
}

/// A queue pair of a [`VerbsDevice`](crate::VerbsDevice)
///
/// After its cable was pulled, posting has been seen to crash inside of Apple's provider. So the state of the port is asked before
/// each batch of posts: before the first one on the device, and before the first one after 1024 polls in a row that found nothing, or after a task
/// was parked.
/// On a port that is down nothing is posted: on Apple's device the error is [`Cause::DeviceGone`] from then on, because what was
/// open then stays dead when the cable is back; on others it is [`Cause::PortDown`] as long as the port is down.
///
/// What cannot be defended: a cable that is pulled in the middle of a batch, or between the question and the post, meets a post
/// that is under way; and so does one that was pulled while the program neither polled nor posted. If the provider crashes then,
/// it takes the process with it.
pub struct VerbsQueuePair {
    inner: Arc<Inner>,
    /// `None` once destroyed.
    qp: Option<NonNull<Qp>>,
    accounts: Arc<Accounts>,
    address: QpAddress,
    sgid_index: u8,
    path_mtu: u32,
    qp_type: QpType,
    trusts_destroy: bool,
    teardown: Teardown,
}

// SAFETY: the verbs of a queue pair may be called from any thread; who posts promises not to do so from two at once.
unsafe impl Send for VerbsQueuePair {}
// SAFETY: as above.
unsafe impl Sync for VerbsQueuePair {}

impl VerbsQueuePair {
    #[inline]
    fn alive(&self, verb: Verb) -> Result<NonNull<Qp>, Error> {
        self.qp.ok_or(Error { verb, cause: Cause::Invalid(Invalid::Destroyed) })
    }

    /// Something can be posted
    #[inline]
    fn ready(&self, verb: Verb) -> Result<NonNull<Qp>, Error> {
        let qp = self.alive(verb)?;
        let open = &self.inner.open;
        open.watch.check(verb, || open.is_up())?;
        Ok(qp)
    }
}

#[cold]
fn full(account: &Account, span: u32, verb: Verb) -> Error {
    if span > account.capacity() {
        let bytes = |frames: u32| u64::from(frames) * rdma_core::FRAME as u64;
        return Error::new(verb, Cause::MessageTooLong { len: bytes(span), max: bytes(account.capacity()) });
    }
    Error::new(verb, Cause::QueueFull)
}

impl QueuePair for VerbsQueuePair {
    fn address(&self) -> QpAddress {
        self.address
    }

    fn capacity(&self) -> QpCapacity {
        QpCapacity { recv_frames: self.accounts.recv.capacity(), send_frames: self.accounts.send.capacity() }
    }

    fn state(&self) -> QpState {
        self.qp.map_or(QpState::Error, |qp| modify::state(&self.inner.open, qp))
    }

    fn modify(&self, to: Transition) -> Result<(), Error> {
        let qp = self.alive(Verb::ModifyQp)?;
        modify::step(&self.inner.open, qp, to, &self.address, self.sgid_index, self.path_mtu, self.qp_type)
    }

    #[inline]
    unsafe fn post_send(&self, request: &SendRequest<'_>) -> Result<(), Error> {
        let qp = self.ready(Verb::PostSend)?;
        let [sge] = request.sgl else {
            let count = request.sgl.len();
            return Err(Error::new(Verb::PostSend, Invalid::SgeCount { count, max: 1 }.into()));
        };
        let span = frames(sge.len as usize) as u32;
        let account = &self.accounts.send;
        if !account.fits(span) {
            return Err(full(account, span, Verb::PostSend));
        }
        let mut element = Sge { addr: sge.addr, length: sge.len, lkey: sge.lkey.0 };
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
            next: std::ptr::null_mut(),
            sg_list: &raw mut element,
            num_sge: 1,
            opcode,
            send_flags: if request.signaled { constants::SEND_SIGNALED } else { 0 },
            imm_data: 0,
            wr,
            qp_type: 0,
            rest: [0; 6],
        };
        account.post(span, request.send_flags != 0);
        let mut bad = std::ptr::null_mut();
        // SAFETY: the queue pair exists, the request is complete, and the caller answers for the memory that it names. One
        // request at a time: what of a list was taken before a failure cannot be known from Apple's provider.
        let failed = unsafe { (self.inner.open.post_send)(qp.as_ptr(), &raw mut request, &raw mut bad) };
        if failed == 0 {
            return Ok(());
        }
        account.withdraw(span);
        Err(Error::new(Verb::PostSend, cause(failed)))
    }

    #[inline]
    unsafe fn post_recv(&self, request: &RecvRequest<'_>) -> Result<(), Error> {
        let qp = self.ready(Verb::PostRecv)?;
        let [sge] = request.sgl else {
            let count = request.sgl.len();
            return Err(Error::new(Verb::PostRecv, Invalid::SgeCount { count, max: 1 }.into()));
        };
        let span = frames(sge.len as usize) as u32;
        let account = &self.accounts.recv;
        if !account.fits(span) {
            return Err(full(account, span, Verb::PostRecv));
        }
        let mut element = Sge { addr: sge.addr, length: sge.len, lkey: sge.lkey.0 };
        let mut request =
            RecvWr { wr_id: request.id.0, next: std::ptr::null_mut(), sg_list: &raw mut element, num_sge: 1 };
        account.post(span, true);
        let mut bad = std::ptr::null_mut();
        // SAFETY: as in `post_send`.
        let failed = unsafe { (self.inner.open.post_recv)(qp.as_ptr(), &raw mut request, &raw mut bad) };
        if failed == 0 {
            return Ok(());
        }
        account.withdraw(span);
        Err(Error::new(Verb::PostRecv, cause(failed)))
    }

    fn destroy(&mut self) -> Teardown {
        if let Some(qp) = self.qp.take() {
            // Never to the error state first: Apple's provider then fails to unmap memory (llama.cpp pull request 27908).
            // SAFETY: the queue pair exists and is destroyed once.
            let failed = unsafe { (self.inner.open.provider.ibv_destroy_qp)(qp.as_ptr()) };
            let qpn = self.accounts.qpn;
            self.inner.alone(|guarded| guarded.accounts.retain(|accounts| accounts.qpn != qpn));
            if failed == 0 && self.trusts_destroy {
                self.teardown = Teardown::Quiesced;
            }
        }
        self.teardown
    }
}

impl Drop for VerbsQueuePair {
    fn drop(&mut self) {
        let _ = self.destroy();
    }
}

impl fmt::Debug for VerbsQueuePair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("VerbsQueuePair").field("qpn", &self.address.qpn).finish_non_exhaustive()
    }
}
