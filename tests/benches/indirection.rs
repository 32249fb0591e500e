//! What the traits cost over the ABI: a post and a poll of [`VerbsDevice`] against the same calls through `context->ops`
//!
//! Over a provider that does almost nothing, so that its cost does not hide the difference. Both paths in turn, thousands of calls at a
//! time; of the times per call the median.

#![allow(unsafe_code, reason = "tests name memory and call the verbs themselves")]

use std::hint::black_box;
use std::ptr::{NonNull, null_mut};

use rdma_core::{
    Completion, CompletionQueue, Device, Lkey, QpInit, QueuePair, RecvRequest, SendOp, SendRequest, Sge, WrId,
};
use rdma_tb5::{OpenOptions, VerbsCompletionQueue, VerbsDevice, VerbsQueuePair};
use rdma_tests::{median, now, stub};
use rdma_verbs_abi::{ContextOps, Cq, Qp, RecvWr, SendWr, Wc, constants};

const BATCH: u32 = 4000;
const ROUNDS: usize = 401;
const NAMES: [&str; 5] = ["post_send", "poll, a send", "post_recv", "poll, a receive", "poll, nothing"];

/// The same calls, one way or the other
trait Calls {
    fn post_send(&mut self, id: u64);
    fn post_recv(&mut self, id: u64);
    /// How many completions there were, at most one, and the sum of their names.
    fn poll(&mut self) -> (u32, u64);
}

/// As a program in C does
struct Bare {
    qp: NonNull<Qp>,
    cq: NonNull<Cq>,
}

impl Bare {
    fn ops(&self) -> &ContextOps {
        // SAFETY: the queue pair of the stub is there, and has a context.
        let context = unsafe { (*self.qp.as_ptr()).context };
        // SAFETY: as above.
        unsafe { &(*context).ops }
    }
}

impl Calls for Bare {
    fn post_send(&mut self, id: u64) {
        let mut element = rdma_verbs_abi::Sge { addr: 4096, length: 64, lkey: 0x101 };
        let mut request = SendWr {
            wr_id: id,
            next: null_mut(),
            sg_list: &raw mut element,
            num_sge: 1,
            opcode: constants::WR_SEND,
            send_flags: constants::SEND_SIGNALED,
            imm_data: 0,
            wr: [0; 4],
            qp_type: 0,
            rest: [0; 6],
        };
        let mut bad = null_mut();
        let post = self.ops().post_send.expect("the stub has it");
        // SAFETY: the request is complete, and the stub does not look at the memory.
        assert_eq!(unsafe { post(self.qp.as_ptr(), &raw mut request, &raw mut bad) }, 0);
    }

    fn post_recv(&mut self, id: u64) {
        let mut element = rdma_verbs_abi::Sge { addr: 4096, length: 64, lkey: 0x101 };
        let mut request = RecvWr { wr_id: id, next: null_mut(), sg_list: &raw mut element, num_sge: 1 };
        let mut bad = null_mut();
        let post = self.ops().post_recv.expect("the stub has it");
        // SAFETY: the request is complete, and the stub does not look at the memory.
        assert_eq!(unsafe { post(self.qp.as_ptr(), &raw mut request, &raw mut bad) }, 0);
    }

    fn poll(&mut self) -> (u32, u64) {
        let mut wc = Wc::default();
        let poll = self.ops().poll_cq.expect("the stub has it");
        // SAFETY: there is space for one completion.
        let n = unsafe { poll(self.cq.as_ptr(), 1, &raw mut wc) };
        assert!(n >= 0 && wc.status == 0);
        (n as u32, wc.wr_id)
    }
}

struct Traits {
    qp: VerbsQueuePair,
    cq: VerbsCompletionQueue,
}

impl Calls for Traits {
    fn post_send(&mut self, id: u64) {
        let sgl = [Sge { addr: 4096, len: 64, lkey: Lkey(0x101) }];
        let request = SendRequest { id: WrId(id), op: SendOp::Send, sgl: &sgl, signaled: true };
        // SAFETY: the stub does not look at the memory.
        unsafe { self.qp.post_send(&request) }.expect("there is space");
    }

    fn post_recv(&mut self, id: u64) {
        let sgl = [Sge { addr: 4096, len: 64, lkey: Lkey(0x101) }];
        // SAFETY: the stub does not look at the memory.
        unsafe { self.qp.post_recv(&RecvRequest { id: WrId(id), sgl: &sgl }) }.expect("there is space");
    }

    fn poll(&mut self) -> (u32, u64) {
        let mut out = [Completion::default()];
        let n = self.cq.poll(&mut out).expect("polling works");
        (n as u32, out[0].id.0)
    }
}

fn time<C: Calls>(calls: &mut C, mut call: impl FnMut(&mut C, u64)) -> f64 {
    let start = now();
    for id in 0..BATCH {
        call(calls, black_box(u64::from(id)));
    }
    start.elapsed().as_nanos() as f64 / f64::from(BATCH)
}

/// Nanoseconds per call, in the order of [`NAMES`]
#[inline(never)]
fn round(calls: &mut impl Calls) -> [f64; 5] {
    let poll = |calls: &mut _, expected| {
        time(calls, |calls, _| assert_eq!(black_box(Calls::poll(calls)).0, expected))
    };
    [
        time(calls, Calls::post_send),
        poll(calls, 1),
        time(calls, Calls::post_recv),
        poll(calls, 1),
        poll(calls, 0),
    ]
}

#[expect(clippy::print_stdout, reason = "a benchmark prints its figures")]
fn main() {
    let provider = stub::provider();
    let device = VerbsDevice::open(&provider, stub::DEVICE, OpenOptions::new()).expect("the stub has it");
    let cq = device.create_cq(64).expect("the stub refuses nothing");
    let qp = cq.create_qp(&QpInit::with_frames(4095)).expect("the stub refuses nothing");
    let mut traits = Traits { qp, cq };
    let (mut raw_cq, mut raw_qp) = stub::bare();
    let mut bare = Bare { qp: NonNull::from(&mut *raw_qp), cq: NonNull::from(&mut *raw_cq) };
    let rounds: Vec<_> = (0..ROUNDS).map(|_| (round(&mut bare), round(&mut traits))).collect();
    let (bare, traits): (Vec<_>, Vec<_>) = rounds.into_iter().unzip();
    for (at, name) in NAMES.into_iter().enumerate() {
        let of = |rounds: &[[f64; 5]]| median(rounds.iter().map(|round| round[at]).collect());
        let (bare, traits) = (of(&bare), of(&traits));
        println!(
            "{name:16} ABI {bare:5.2} ns, traits {traits:5.2} ns, difference {:5.2} ns (at most 5)",
            traits - bare
        );
    }
}
