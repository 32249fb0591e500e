//! Ends under load

use rdma_core::{QpState, QueuePair};

use super::{Arm, assert_silent, pair, received};

pub(super) fn posted_receives_go_with_their_queue_pair<A: Arm>(arm: &A) {
    let [mut a, mut b] = pair(arm);
    for slot in 0..20 {
        b.recv(slot, slot as usize * 64..slot as usize * 64 + 64).unwrap();
    }
    drop(b);
    // Later messages of the peer must not change the released memory.
    a.send(1, 0..64).unwrap();
    arm.rest(std::time::Duration::from_millis(1));
}

pub(super) fn sends_under_way_go_with_their_queue_pair<A: Arm>(arm: &A) {
    let [mut a, mut b] = pair(arm);
    b.recv(1, 0..200_000).unwrap();
    a.send(1, 0..200_000).unwrap();
    drop(a);
    arm.rest(std::time::Duration::from_millis(1));
    drop(b);
}

pub(super) fn a_peer_that_goes_is_silence<A: Arm>(arm: &A) {
    let [mut a, mut b] = pair(arm);
    a.recv(1, 0..64).unwrap();
    a.recv(2, 64..128).unwrap();
    // Over a connection that is still being made, TCP may say that the peer is lost.
    b.send(1, 0..64).unwrap();
    received(arm, &mut a);
    drop(b);
    assert_silent(arm, &mut a);
}

pub(super) fn many_pairs_come_and_go_under_load<A: Arm>(arm: &A) {
    for round in 0..20 {
        let [mut a, mut b] = pair(arm);
        for slot in 0..8 {
            b.recv(slot, slot as usize * 10_000..slot as usize * 10_000 + 9000).unwrap();
            a.send(slot, slot as usize * 10_000..slot as usize * 10_000 + 9000).unwrap();
        }
        for _ in 0..round % 8 {
            received(arm, &mut b);
        }
        drop(a);
        assert!(matches!(b.qp().state(), QpState::ReadyToSend | QpState::Error));
        b.poll().unwrap();
    }
}
