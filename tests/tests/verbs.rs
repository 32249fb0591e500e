//! Bare verbs on simulated devices

#![allow(unsafe_code, reason = "tests name memory and call the verbs themselves")]

use rdma_bare::BareQp;
use rdma_core::{
    Cause, CompletionQueue, Device, Invalid, Opcode, QpInit, QueuePair, SendOp, SendRequest, Status,
    Transition, Verb, WrId,
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

/// Regression: a waiting sender never learned of receives that its peer had posted before it was ready to receive.
#[test]
fn receives_posted_early_are_found() {
    Sim::new().run(async |net| {
        let new = |host| BareQp::new(net.open(host, DEVICE).unwrap(), &QpInit::with_frames(4), 4096).unwrap();
        let (mut a, mut b) = (new("a"), new("b"));
        a.qp().connect(&b.qp().address()).unwrap();
        b.recv(1, 0..4096).unwrap();
        a.send(2, 0..9).unwrap();
        rdma_async::time::sleep(&*net.runtime(), std::time::Duration::from_secs(1)).await;
        b.qp().connect(&a.qp().address()).unwrap();
        let completion = b.completion().await.unwrap();
        assert_eq!((completion.opcode, completion.status), (Opcode::Recv, Status::Success));
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
    let Err(RunError::Stalled(Stalled::Deadlock { at })) = stalled else { panic!("{stalled:?}") };
    assert!(at.as_nanos() < 1_000_000, "{at}");
}
