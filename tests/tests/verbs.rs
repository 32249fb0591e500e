//! Bare verbs on simulated devices

#![allow(unsafe_code, reason = "tests name memory and call the verbs themselves")]

use rdma_core::{
    Cause, CompletionQueue, Device, Invalid, QpInit, QueuePair, SendOp, SendRequest, Transition, Verb, WrId,
};
use rdma_sim::{RunError, Sim, Stalled};
use rdma_tests::{DEVICE, bare_pair};

/// Regression: of two posts with the same name, the completion of the first freed the memory of the last.
#[test]
fn completions_free_posts_of_one_name_in_their_order() {
    Sim::new().run(async |net| {
        let [mut a, mut b] = bare_pair(&net, 3 * 4096);
        for at in [0, 4096, 8192] {
            b.recv(1, at..at + 4096).unwrap();
        }
        for message in [b"one", b"two"] {
            a.write(0, message);
            a.send(1, 0..3).unwrap();
            assert_eq!(b.completion().await.unwrap().byte_len, 3);
            a.completion().await.unwrap();
        }
        let second = b.read(4096..4099);
        assert_eq!(second, *b"two");
    });
}

/// Regression: verbs on a destroyed queue pair were a panic.
#[test]
fn a_destroyed_queue_pair_refuses() {
    Sim::new().run(async |net| {
        let device = net.open("a", DEVICE).unwrap();
        let cq = device.create_cq(8).unwrap();
        let mut qp = cq.create_qp(&QpInit::default()).unwrap();
        let _ = qp.destroy();
        let destroyed = Cause::Invalid(Invalid::Destroyed);
        let refused = qp.modify(Transition::Init).unwrap_err();
        assert_eq!((refused.verb, refused.cause), (Verb::ModifyQp, destroyed));
        let request = SendRequest { id: WrId(0), op: SendOp::Send, sgl: &[], signaled: true };
        // SAFETY: a request without memory.
        let refused = unsafe { qp.post_send(&request) }.unwrap_err();
        assert_eq!((refused.verb, refused.cause), (Verb::PostSend, destroyed));
    });
}

/// Regression: a deadlock after the last event was reported for the end of the time limit.
#[test]
fn a_deadlock_says_when_everything_came_to_rest() {
    let stalled = Sim::new().try_run(async |net| {
        let [mut a, mut b] = bare_pair(&net, 4096);
        a.send(1, 0..1).unwrap();
        b.completion().await.unwrap();
    });
    let Err(RunError::Stalled(Stalled::Deadlock { at, .. })) = stalled else { panic!("{stalled:?}") };
    assert!(at.as_nanos() < 1_000_000, "{at}");
}
