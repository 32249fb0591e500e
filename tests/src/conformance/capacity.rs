//! Queues: how much they hold, counted in frames
//!
//! Devices accept more than was asked for, less, or exactly that, and report the one or the other. So the body finds out how
//! much a queue takes, and requires only that it takes the lesser of what was asked for and what is reported: programs that
//! keep to that are right on every device.

use rdma_bare::BareQp;
use rdma_core::{Cause, CompletionQueue, Device, FRAME, QpCapacity, QpInit, QueuePair};

use super::{Arm, Outcome, completion, pair_of, received};

/// What the body asks for where it fills a queue
const ASKED: u32 = 7;

/// The frames that `device` may accept for one queue, and one more: an arena of so many holds everything that is posted
fn most<D: Device>(device: &D) -> usize {
    device.caps().max_queue_frames as usize + 1
}

/// Two connected queue pairs for which [`ASKED`] was asked, with arenas in which nothing that fits a queue overlaps
fn filled_pair<A: Arm>(arm: &A) -> [BareQp<A::Device>; 2] {
    let most = most(&arm.open(0).unwrap());
    pair_of(arm, ASKED, most * FRAME)
}

/// Posts with `post`, one frame each, until the queue is full; returns how many it took
fn fill(most: usize, mut post: impl FnMut(usize) -> Result<(), rdma_core::Error>) -> usize {
    for number in 0..most {
        match post(number) {
            Ok(()) => (),
            Err(error) if error.cause == Cause::QueueFull => return number,
            Err(error) => panic!("frame {number}: {error}"),
        }
    }
    panic!("the queue took {most} frames, more than the limit of the device");
}

fn fill_receives<D: Device>(qp: &mut BareQp<D>) -> usize {
    fill(most(qp.device()), |number| qp.recv(number as u64, number * FRAME..number * FRAME + 8))
}

/// How many frames of receives a queue accepts
fn accepted<A: Arm>(arm: &A) -> usize {
    let [_a, mut b] = filled_pair(arm);
    fill_receives(&mut b)
}

pub(super) fn what_was_asked_for_or_reported_fits<A: Arm>(arm: &A) {
    for asked in [1, 2, 5, 31, 64, 200] {
        let [mut a, mut b] = pair_of(arm, asked, asked as usize * FRAME);
        let QpCapacity { recv_frames, send_frames } = b.qp().capacity();
        assert!(recv_frames > 0 && send_frames > 0, "{asked}: {:?}", b.qp().capacity());
        for number in 0..recv_frames.min(asked) as usize {
            let posted = b.recv(number as u64, number * FRAME..(number + 1) * FRAME);
            assert_eq!(posted, Ok(()), "asked for {asked}, reported {recv_frames}");
        }
        for number in 0..a.qp().capacity().send_frames.min(asked) as usize {
            let posted = a.send(number as u64, number * FRAME..number * FRAME + 8);
            assert_eq!(posted, Ok(()), "asked for {asked}, reported {send_frames}");
        }
    }
}

pub(super) fn queues_deeper_than_the_device_are_refused<A: Arm>(arm: &A) {
    let device = arm.open(0).unwrap();
    let deeper = device.caps().max_queue_frames + 1;
    let refused = device.create_cq(16).unwrap().create_qp(&QpInit::with_frames(deeper)).err().unwrap();
    assert!(matches!(refused.cause, Cause::Invalid(_)), "{refused:?}");
}

pub(super) fn long_and_short_receives_share_the_queue<A: Arm>(arm: &A) -> Outcome {
    let accepted = accepted(arm);
    let [_a, mut b] = filled_pair(arm);
    let longest = b.device().caps().max_message as usize / FRAME;
    if longest < 2 {
        return Err("every message is one frame");
    }
    // As few as make the queue one frame short of full.
    let mut number = 0;
    let mut at = 0;
    while at < accepted - 1 {
        let frames = longest.min(accepted - 1 - at);
        b.recv(number, at * FRAME..(at + frames) * FRAME).unwrap();
        (number, at) = (number + 1, at + frames);
    }
    let full = b.recv(number, at * FRAME..(at + 2) * FRAME).err().unwrap();
    assert_eq!(full.cause, Cause::QueueFull);
    b.recv(number, at * FRAME..(at + 1) * FRAME).unwrap();
    Ok(())
}

pub(super) fn a_receive_longer_than_the_queue_is_refused<A: Arm>(arm: &A) {
    let accepted = accepted(arm);
    let [_a, mut b] = filled_pair(arm);
    let refused = b.recv(1, 0..accepted * FRAME + 1).err().unwrap();
    assert!(matches!(refused.cause, Cause::MessageTooLong { .. }), "{refused:?}");
}

pub(super) fn a_send_longer_than_the_queue_is_refused<A: Arm>(arm: &A) {
    let accepted = accepted(arm);
    let [mut a, _b] = filled_pair(arm);
    let refused = a.send(1, 0..accepted * FRAME + 1).err().unwrap();
    assert!(matches!(refused.cause, Cause::MessageTooLong { .. }), "{refused:?}");
}

pub(super) fn a_full_queue_takes_more_after_a_completion<A: Arm>(arm: &A) {
    let [mut a, mut b] = filled_pair(arm);
    let filled = fill_receives(&mut b);
    a.send(1, 0..8).unwrap();
    received(arm, &mut b);
    b.recv(99, filled * FRAME..filled * FRAME + 8).unwrap();
}

pub(super) fn a_send_queue_fills_up<A: Arm>(arm: &A) -> Outcome {
    if !arm.expectations().send_waits {
        return Err("sends leave whether or not there is a receive");
    }
    let [mut a, mut b] = filled_pair(arm);
    fill(most(a.device()), |number| a.send(number as u64, 0..8));
    b.recv(1, 0..8).unwrap();
    received(arm, &mut b);
    assert_eq!(completion(arm, &mut a).id.0, 0);
    a.send(99, 0..8).unwrap();
    Ok(())
}
