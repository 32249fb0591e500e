//! The state machine of queue pairs

use rdma_bare::BareQp;
use rdma_core::{Cause, Gid, QpAddress, QpInit, QpState, QueuePair, Transition};

use super::{Arm, Outcome, assert_silent, received};

fn single<A: Arm>(arm: &A, end: usize) -> BareQp<A::Device> {
    BareQp::new(arm.open(end).unwrap(), &QpInit::with_frames(64), 64 << 12).unwrap()
}

pub(super) fn connecting_goes_through_all_states<A: Arm>(arm: &A) {
    let (a, b) = (single(arm, 0), single(arm, 1));
    assert_eq!(a.qp().state(), QpState::Init);
    a.qp().modify(Transition::ReadyToReceive { peer: b.qp().address() }).unwrap();
    assert_eq!(a.qp().state(), QpState::ReadyToReceive);
    a.qp().modify(Transition::ReadyToSend).unwrap();
    assert_eq!(a.qp().state(), QpState::ReadyToSend);
}

pub(super) fn steps_cannot_be_skipped<A: Arm>(arm: &A) {
    let a = single(arm, 0);
    let refused = a.qp().modify(Transition::ReadyToSend).err().unwrap();
    assert!(matches!(refused.cause, Cause::Invalid(_)), "{refused:?}");
    assert_eq!(a.qp().state(), QpState::Init);
    a.qp().modify(Transition::Reset).unwrap();
    let refused = a.qp().modify(Transition::ReadyToSend).err().unwrap();
    assert!(matches!(refused.cause, Cause::Invalid(_)), "{refused:?}");
}

pub(super) fn steps_cannot_be_repeated_backwards<A: Arm>(arm: &A) {
    let (a, b) = (single(arm, 0), single(arm, 1));
    a.qp().connect(&b.qp().address()).unwrap();
    let refused = a.qp().modify(Transition::Init).err().unwrap();
    assert!(matches!(refused.cause, Cause::Invalid(_)), "{refused:?}");
    assert_eq!(a.qp().state(), QpState::ReadyToSend);
}

pub(super) fn a_send_before_ready_is_refused<A: Arm>(arm: &A) {
    let (mut a, b) = (single(arm, 0), single(arm, 1));
    assert!(matches!(a.send(1, 0..8).err().unwrap().cause, Cause::Invalid(_)));
    a.qp().modify(Transition::ReadyToReceive { peer: b.qp().address() }).unwrap();
    assert!(matches!(a.send(1, 0..8).err().unwrap().cause, Cause::Invalid(_)));
}

pub(super) fn a_receive_after_init_is_kept<A: Arm>(arm: &A) {
    let (mut a, mut b) = (single(arm, 0), single(arm, 1));
    b.recv(5, 0..64).unwrap();
    b.connect(&a).unwrap();
    a.send(1, 0..64).unwrap();
    assert_eq!(received(arm, &mut b).id.0, 5);
}

pub(super) fn a_queue_pair_can_begin_anew_after_reset<A: Arm>(arm: &A) {
    let (mut a, mut b) = (single(arm, 0), single(arm, 1));
    a.qp().connect(&b.qp().address()).unwrap();
    a.qp().modify(Transition::Reset).unwrap();
    assert_eq!(a.qp().state(), QpState::Reset);
    a.qp().modify(Transition::Init).unwrap();
    a.connect(&b).unwrap();
    b.recv(1, 0..8).unwrap();
    a.send(1, 0..8).unwrap();
    received(arm, &mut b);
}

pub(super) fn the_error_state_is_seen<A: Arm>(arm: &A) {
    let a = single(arm, 0);
    a.qp().modify(Transition::Error).unwrap();
    assert_eq!(a.qp().state(), QpState::Error);
}

pub(super) fn an_unknown_peer_is_not_found<A: Arm>(arm: &A) -> Outcome {
    if !arm.expectations().peer_checked_by_connect {
        return Err("connecting does not ask for the peer");
    }
    let (a, b) = (single(arm, 0), single(arm, 1));
    let unused = Gid::from_ipv4([203, 0, 113, 9].into());
    let peer = QpAddress { gid: unused, ..b.qp().address() };
    let refused = a.qp().modify(Transition::ReadyToReceive { peer }).err().unwrap();
    assert_eq!(refused.cause, Cause::PeerUnreachable);
    // Half begun: the next attempt fails for another reason.
    let refused = a.qp().modify(Transition::ReadyToReceive { peer: b.qp().address() }).err().unwrap();
    assert_eq!(refused.cause, Cause::Busy);
    Ok(())
}

pub(super) fn a_queue_pair_without_peer_sends_nothing<A: Arm>(arm: &A) {
    let (mut a, mut b) = (single(arm, 0), single(arm, 1));
    a.qp().connect(&b.qp().address()).unwrap();
    a.send(1, 0..8).unwrap();
    assert_silent(arm, &mut b);
}
