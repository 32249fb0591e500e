//! Messages: that they arrive, whole and in order

use std::time::Duration;

use rdma_bare::BareQp;
use rdma_core::{Device as _, FRAME, QpCapacity, QueuePair as _, Status};

use super::{Arm, assert_silent, completion, pair, pair_of, received};

fn content(number: usize, len: usize) -> Vec<u8> {
    (0..len).map(|at| (number * 17 + at * 3 + at / 255) as u8).collect()
}

/// Sends a message of `len` bytes and looks at what arrives
fn transfer<A: Arm>(
    arm: &A,
    a: &mut BareQp<A::Device>,
    b: &mut BareQp<A::Device>,
    number: usize,
    len: usize,
) {
    b.recv(number as u64, 0..len).unwrap();
    a.write(0, &content(number, len));
    a.send(number as u64, 0..len).unwrap();
    let arrived = received(arm, b);
    assert_eq!(
        (arrived.status, arrived.byte_len, arrived.id.0),
        (Status::Success, len as u32, number as u64)
    );
    let found = b.read(0..len);
    assert!(found == content(number, len), "{len} bytes arrive as they were sent");
    assert_eq!(completion(arm, a).status, Status::Success);
}

pub(super) fn messages_around_every_boundary_arrive<A: Arm>(arm: &A) {
    let around = [FRAME, 2 * FRAME].map(|frames| [frames - 1, frames, frames + 1]).concat();
    for len in [1, 64].into_iter().chain(around).chain([100_000, 1 << 20]) {
        let [mut a, mut b] = pair_of(arm, 511, len.next_multiple_of(FRAME));
        let depth = [&a, &b].map(|qp| qp.qp().capacity());
        let frames = depth.map(|QpCapacity { recv_frames, send_frames }| recv_frames.min(send_frames));
        if len > frames[0].min(frames[1]) as usize * FRAME || len > a.device().caps().max_message as usize {
            continue;
        }
        transfer(arm, &mut a, &mut b, 5, len);
        transfer(arm, &mut b, &mut a, 6, len);
    }
}

pub(super) fn nothing_arrives_as_nothing<A: Arm>(arm: &A) {
    let [mut a, mut b] = pair(arm);
    b.recv(1, 0..64).unwrap();
    a.send(1, 0..0).unwrap();
    let arrived = received(arm, &mut b);
    assert_eq!((arrived.status, arrived.byte_len), (Status::Success, 0));
}

pub(super) fn both_directions_work_at_once<A: Arm>(arm: &A) {
    let [mut a, mut b] = pair(arm);
    for (qp, number) in [(&mut a, 1), (&mut b, 2)] {
        qp.recv(9, 0..50_000).unwrap();
        qp.write(50_000, &content(number, 50_000));
    }
    a.send(1, 50_000..100_000).unwrap();
    b.send(1, 50_000..100_000).unwrap();
    for (qp, number) in [(&mut a, 2), (&mut b, 1)] {
        assert_eq!(received(arm, qp).byte_len, 50_000);
        let found = qp.read(0..50_000);
        assert!(found == content(number, 50_000));
    }
}

pub(super) fn a_hundred_messages_keep_their_order<A: Arm>(arm: &A) {
    let [mut a, mut b] = pair(arm);
    for batch in 0..10 {
        for slot in 0..10 {
            b.recv(batch * 10 + slot, slot as usize * 64..slot as usize * 64 + 8).unwrap();
        }
        for slot in 0..10 {
            let at = slot as usize * 64;
            a.write(at, &(batch * 10 + slot).to_le_bytes());
            a.send(batch * 10 + slot, at..at + 8).unwrap();
        }
        for slot in 0..10 {
            let number = batch * 10 + slot;
            assert_eq!(received(arm, &mut b).id.0, number);
            let found = b.read(slot as usize * 64..slot as usize * 64 + 8);
            assert_eq!(found, number.to_le_bytes());
        }
        for slot in 0..10 {
            assert_eq!(completion(arm, &mut a).id.0, batch * 10 + slot);
        }
    }
}

pub(super) fn sizes_may_change_from_message_to_message<A: Arm>(arm: &A) {
    let [mut a, mut b] = pair(arm);
    for (number, len) in [1, 60_000, 4096, 2, 8193, 4095, 64, 12_288].into_iter().enumerate() {
        transfer(arm, &mut a, &mut b, number, len);
    }
}

pub(super) fn two_queue_pairs_do_not_mix<A: Arm>(arm: &A) {
    let [mut a, mut b] = pair(arm);
    let [mut c, mut d] = pair(arm);
    for (qp, fill) in [(&mut a, 1), (&mut c, 2)] {
        qp.write(0, &[fill; 64]);
    }
    for qp in [&mut b, &mut d] {
        qp.recv(1, 0..64).unwrap();
    }
    c.send(1, 0..64).unwrap();
    a.send(1, 0..64).unwrap();
    for (qp, fill) in [(&mut b, 1), (&mut d, 2)] {
        received(arm, qp);
        let found = qp.read(0..64);
        assert_eq!(found, [fill; 64]);
    }
}

pub(super) fn receives_are_used_in_order<A: Arm>(arm: &A) {
    let [mut a, mut b] = pair(arm);
    b.recv(30, 0..64).unwrap();
    b.recv(10, 64..128).unwrap();
    b.recv(20, 128..192).unwrap();
    for _ in 0..3 {
        a.send(1, 0..64).unwrap();
    }
    for id in [30, 10, 20] {
        assert_eq!(received(arm, &mut b).id.0, id);
    }
}

pub(super) fn a_send_before_its_receive<A: Arm>(arm: &A) {
    if arm.expectations().send_waits {
        let [mut a, mut b] = pair(arm);
        a.write(0, &[9; 64]);
        a.send(1, 0..64).unwrap();
        assert_silent(arm, &mut a);
        b.recv(1, 0..64).unwrap();
        assert_eq!(received(arm, &mut b).byte_len, 64);
        assert_eq!(completion(arm, &mut a).status, Status::Success);
        return;
    }
    let mut time = Duration::from_millis(1);
    loop {
        let [mut a, mut b] = pair(arm);
        a.send(1, 0..64).unwrap();
        assert_eq!(completion(arm, &mut a).status, Status::Success);
        arm.rest(time);
        // The message is lost without an error; the next one arrives.
        b.recv(1, 0..64).unwrap();
        a.send(2, 0..32).unwrap();
        if received(arm, &mut b).byte_len == 32 {
            return;
        }
        // It may have been on its way that long, where time is that of the wall.
        assert!(time < Duration::from_secs(1), "the message has waited for its receive");
        time *= 4;
    }
}

pub(super) fn a_second_send_does_not_overtake<A: Arm>(arm: &A) {
    let [mut a, mut b] = pair(arm);
    b.recv(1, 0..20_000).unwrap();
    b.recv(2, 20_000..20_001).unwrap();
    a.send(1, 0..20_000).unwrap();
    a.send(2, 0..1).unwrap();
    assert_eq!(received(arm, &mut b).byte_len, 20_000);
    assert_eq!(received(arm, &mut b).byte_len, 1);
}
