//! Completions: number, order and contents
#![allow(unsafe_code, reason = "posting is unsafe in the traits")]

use rdma_core::{
    Completion, CompletionQueue, Device, FRAME, MemoryRegion, Opcode, QpInit, QueuePair, SendOp, SendRequest,
    Sge, Status, WrId,
};

use super::memory::Memory;
use super::{Arm, Outcome, PAUSE, TIMEOUT, assert_silent, completion, pair, received};

pub(super) fn a_send_completes_under_its_name<A: Arm>(arm: &A) {
    let [mut a, mut b] = pair(arm);
    b.recv(1, 0..64).unwrap();
    a.send(0xfeed_f00d_dead_beef, 0..64).unwrap();
    let sent = completion(arm, &mut a);
    assert_eq!((sent.id.0, sent.opcode, sent.status), (0xfeed_f00d_dead_beef, Opcode::Send, Status::Success));
    assert_eq!(sent.qpn, a.qp().address().qpn);
}

pub(super) fn a_receive_completes_with_name_length_and_number<A: Arm>(arm: &A) {
    let [mut a, mut b] = pair(arm);
    b.recv(u64::MAX, 0..100).unwrap();
    a.send(1, 0..77).unwrap();
    let arrived = received(arm, &mut b);
    assert_eq!((arrived.id.0, arrived.byte_len, arrived.qpn), (u64::MAX, 77, b.qp().address().qpn));
}

pub(super) fn an_unsignaled_send_is_silent<A: Arm>(arm: &A) -> Outcome {
    let [mut a, mut b] = pair(arm);
    let memory = Memory::new();
    let Ok(region) = memory.register(a.device()) else { return Err("no second region") };
    let sgl = [Sge { addr: region.base(), len: 16, lkey: region.lkey() }];
    for id in [1, 2] {
        b.recv(id, id as usize * 64..id as usize * 64 + 16).unwrap();
    }
    let request = SendRequest { id: WrId(1), op: SendOp::Send, sgl: &sgl, signaled: false };
    // SAFETY: memory and region live until the end of this function, after both messages have arrived; no bytes are accessed.
    unsafe { a.qp().post_send(&request) }.unwrap();
    a.send(2, 0..16).unwrap();
    received(arm, &mut b);
    received(arm, &mut b);
    assert_eq!(completion(arm, &mut a).id.0, 2, "the first one has no completion");
    assert_silent(arm, &mut a);
    drop((a, b));
    drop(region);
    Ok(())
}

pub(super) fn sends_complete_in_order<A: Arm>(arm: &A) {
    let [mut a, mut b] = pair(arm);
    let lens = [5000, 1, 20_000, 64];
    let mut at = 0;
    for (number, len) in lens.into_iter().enumerate() {
        b.recv(number as u64, at..at + len).unwrap();
        a.send(number as u64, at..at + len).unwrap();
        at += len;
    }
    for number in 0..lens.len() {
        assert_eq!(completion(arm, &mut a).id.0, number as u64);
    }
}

pub(super) fn polling_returns_at_most_what_fits<A: Arm>(arm: &A) {
    let device = arm.open(0).unwrap();
    let cq = device.create_cq(64).unwrap();
    let mut out = [Completion::default(); 4];
    assert_eq!(cq.poll(&mut out).unwrap(), 0);
    assert_eq!(cq.poll(&mut []).unwrap(), 0);
}

pub(super) fn an_empty_queue_returns_nothing<A: Arm>(arm: &A) {
    let [mut a, mut b] = pair(arm);
    assert_silent(arm, &mut a);
    assert_silent(arm, &mut b);
}

pub(super) fn names_may_repeat<A: Arm>(arm: &A) {
    let [mut a, mut b] = pair(arm);
    for slot in 0..3 {
        b.recv(7, slot * 64..slot * 64 + 64).unwrap();
    }
    for _ in 0..3 {
        a.send(7, 0..64).unwrap();
    }
    for _ in 0..3 {
        assert_eq!(received(arm, &mut b).id.0, 7);
    }
}

pub(super) fn a_receive_that_is_too_short_fails<A: Arm>(arm: &A) {
    let [mut a, mut b] = pair(arm);
    b.recv(1, 0..FRAME).unwrap();
    a.send(1, 0..3 * FRAME).unwrap();
    let failed = loop {
        let completion = completion(arm, &mut b);
        if completion.opcode == Opcode::Recv || completion.status != Status::Success {
            break completion;
        }
    };
    assert_ne!(failed.status, Status::Success, "its data must not be taken for the message");
    assert_eq!(failed.id.0, 1);
}

pub(super) fn a_receive_that_is_too_long<A: Arm>(arm: &A) {
    let [mut a, mut b] = pair(arm);
    b.recv(1, 0..4 * FRAME).unwrap();
    a.send(1, 0..FRAME).unwrap();
    let arrived = completion(arm, &mut b);
    if arm.expectations().frames_match {
        assert_ne!(arrived.status, Status::Success, "both sides must span the same frames");
    } else {
        assert_eq!((arrived.status, arrived.byte_len), (Status::Success, FRAME as u32));
    }
}

pub(super) fn one_queue_serves_two_queue_pairs<A: Arm>(arm: &A) {
    let [device, peer] = [arm.open(0).unwrap(), arm.open(1).unwrap()];
    let (cq, peer_cq) = (device.create_cq(64).unwrap(), peer.create_cq(64).unwrap());
    let [memory, peer_memory] = [Memory::new(), Memory::new()];
    let (region, peer_region) = (memory.register(&device).unwrap(), peer_memory.register(&peer).unwrap());
    let ours: Vec<_> = (0..2).map(|_| cq.create_qp(&QpInit::with_frames(16)).unwrap()).collect();
    let theirs: Vec<_> = (0..2).map(|_| peer_cq.create_qp(&QpInit::with_frames(16)).unwrap()).collect();
    for (one, other) in ours.iter().zip(&theirs) {
        one.connect(&other.address()).unwrap();
        other.connect(&one.address()).unwrap();
    }
    for (number, (one, other)) in ours.iter().zip(&theirs).enumerate() {
        let at = number as u64 * 4096;
        let sgl = [Sge { addr: region.base() + at, len: 64, lkey: region.lkey() }];
        // SAFETY: the memory of both lives until the queue pairs are gone, and is not accessed in between.
        unsafe { one.post_recv(&rdma_core::RecvRequest { id: WrId(number as u64), sgl: &sgl }) }.unwrap();
        let sgl = [Sge { addr: peer_region.base() + at, len: 64, lkey: peer_region.lkey() }];
        let request = SendRequest { id: WrId(number as u64), op: SendOp::Send, sgl: &sgl, signaled: true };
        // SAFETY: as above.
        unsafe { other.post_send(&request) }.unwrap();
    }
    let mut numbers = Vec::new();
    let mut waited = std::time::Duration::ZERO;
    while numbers.len() < 2 {
        let mut out = [Completion::default(); 8];
        let n = cq.poll(&mut out).unwrap();
        numbers.extend(out[..n].iter().map(|completion| completion.qpn));
        assert!(waited < TIMEOUT, "both arrive");
        arm.rest(PAUSE);
        waited += PAUSE;
    }
    numbers.sort();
    let mut expected: Vec<_> = ours.iter().map(|qp| qp.address().qpn).collect();
    expected.sort();
    assert_eq!(numbers, expected);
    drop((ours, theirs));
    drop((region, peer_region));
}
