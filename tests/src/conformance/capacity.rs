//! Queues: how much they hold, counted in frames

use rdma_core::{Cause, CompletionQueue, Device, FRAME, QpInit, QueuePair};

use super::{Arm, Outcome, completion, pair_of, received};

pub(super) fn as_much_is_granted_as_was_asked_for<A: Arm>(arm: &A) {
    let cq = arm.open(0).unwrap().create_cq(16).unwrap();
    for frames in [1, 2, 5, 31, 64, 200] {
        let granted = cq.create_qp(&QpInit::with_frames(frames)).unwrap().capacity();
        assert!(granted.recv_frames >= frames && granted.send_frames >= frames, "{frames}: {granted:?}");
    }
}

pub(super) fn queues_deeper_than_the_device_are_refused<A: Arm>(arm: &A) {
    let device = arm.open(0).unwrap();
    let deeper = device.caps().max_queue_frames + 1;
    let refused = device.create_cq(16).unwrap().create_qp(&QpInit::with_frames(deeper)).err().unwrap();
    assert!(matches!(refused.cause, Cause::Invalid(_)), "{refused:?}");
}

pub(super) fn long_and_short_receives_share_the_queue<A: Arm>(arm: &A) {
    let [_a, mut b] = pair_of(arm, 7, 64 * FRAME);
    let capacity = b.qp().capacity().recv_frames as usize;
    b.recv(1, 0..(capacity - 1) * FRAME).unwrap();
    let full = b.recv(2, 32 * FRAME..34 * FRAME).err().unwrap();
    assert_eq!(full.cause, Cause::QueueFull);
    b.recv(3, 32 * FRAME..33 * FRAME).unwrap();
}

pub(super) fn a_receive_longer_than_the_queue_is_refused<A: Arm>(arm: &A) {
    let [_a, mut b] = pair_of(arm, 7, 64 * FRAME);
    let capacity = b.qp().capacity().recv_frames as usize;
    let refused = b.recv(1, 0..capacity * FRAME + 1).err().unwrap();
    assert!(matches!(refused.cause, Cause::MessageTooLong { .. }), "{refused:?}");
}

pub(super) fn a_send_longer_than_the_queue_is_refused<A: Arm>(arm: &A) {
    let [mut a, _b] = pair_of(arm, 7, 64 * FRAME);
    let capacity = a.qp().capacity().send_frames as usize;
    let refused = a.send(1, 0..capacity * FRAME + 1).err().unwrap();
    assert!(matches!(refused.cause, Cause::MessageTooLong { .. }), "{refused:?}");
}

pub(super) fn a_full_queue_takes_more_after_a_completion<A: Arm>(arm: &A) {
    let [mut a, mut b] = pair_of(arm, 7, 64 * FRAME);
    let capacity = b.qp().capacity().recv_frames as usize;
    for number in 0..capacity {
        b.recv(number as u64, number * FRAME..number * FRAME + 8).unwrap();
    }
    let refused = b.recv(99, 60 * FRAME..60 * FRAME + 8).err().unwrap();
    assert_eq!(refused.cause, Cause::QueueFull);
    a.send(1, 0..8).unwrap();
    received(arm, &mut b);
    b.recv(99, 60 * FRAME..60 * FRAME + 8).unwrap();
}

pub(super) fn a_send_queue_fills_up<A: Arm>(arm: &A) -> Outcome {
    if !arm.expectations().send_waits {
        return Err("sends leave whether or not there is a receive");
    }
    let [mut a, mut b] = pair_of(arm, 7, 64 * FRAME);
    let capacity = a.qp().capacity().send_frames as usize;
    for number in 0..capacity {
        a.send(number as u64, 0..8).unwrap();
    }
    assert_eq!(a.send(99, 0..8).err().unwrap().cause, Cause::QueueFull);
    b.recv(1, 0..8).unwrap();
    received(arm, &mut b);
    assert_eq!(completion(arm, &mut a).id.0, 0);
    a.send(99, 0..8).unwrap();
    Ok(())
}
