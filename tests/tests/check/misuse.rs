//! What the DMA sanitizer finds in a run of a check

use std::time::Duration;

use rdma_core::{Access, FRAME, QpInit, QpType, SendOp};
use rdma_sim::{Check, FailureKind, Net, try_check};
use rdma_tests::Raw;

/// Writes into a message that has left after a few microseconds, unless its cable is slow; panics if there is one fault alone
async fn writes_early(net: Net) {
    const LEN: usize = 15 * FRAME;
    let init = QpInit { qp_type: QpType::Uc, ..QpInit::with_frames(15) };
    let [a, b] = Raw::pair(&net, &init, Access::LOCAL_WRITE, 1 << 16);
    b.recv(1, &[b.sge(0..LEN)]).unwrap();
    a.post(7, SendOp::Send, &[a.sge(0..LEN)]).unwrap();
    net.sleep(Duration::from_micros(300)).await;
    a.write(LEN - 1, &[1]);
    b.completion().await;
    assert_ne!(net.faults().0.len(), 1, "another bug");
}

/// Catches a finding that is dropped, one that is reported as another kind of failure, and a smaller run that fails in another way.
#[test]
fn a_finding_of_the_sanitizer_is_a_failure_that_shrinks_to_the_same_finding() {
    let check = Check::new().runs(1);
    let plan = "at 0s a:rdma_en2 slow 1%; at 1us b:rdma_en2 delay 1us; at 2us b:rdma_en2 unresolvable";
    let failure = try_check(check.clone().faults(plan.parse().unwrap()), writes_early).unwrap_err();
    assert_eq!(failure.kind, FailureKind::Misuse, "{failure}");
    let finding =
        "the DMA sanitizer found: a posted send was written by the program before it had left (noticed at ";
    assert!(failure.reason.starts_with(finding), "{failure}");
    assert!(failure.reason.contains("request 7 posted at tests/tests/check/misuse.rs:"), "{failure}");
    let shrunk = failure.replay.faults.0.len();
    assert!(shrunk == 2 && failure.original.faults.0.len() == 3, "one fault less is another bug: {failure}");
    let again = try_check(check.replay(failure.replay.line().parse().unwrap()), writes_early).unwrap_err();
    assert_eq!((again.kind, again.reason), (failure.kind, failure.reason));
}
