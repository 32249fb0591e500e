//! The DMA sanitizer: findings, and the source line of the post

use std::time::Duration;

use rdma_core::{Access, CompletionQueue, Device, FRAME, MemoryRegion, Opcode, QpInit, QpType, SendOp};
use rdma_sim::{Finding, FindingKind, Model, Net, Sim};
use rdma_tests::Raw;

const ALL: Access = Access::LOCAL_WRITE.union(Access::REMOTE_READ).union(Access::REMOTE_WRITE);

fn raws(net: &Net, qp_type: QpType) -> [Raw; 2] {
    Raw::pair(net, &QpInit { qp_type, ..QpInit::with_frames(15) }, ALL, 1 << 16)
}

async fn rest(net: &Net) {
    rdma_async::time::sleep(&*net.runtime(), Duration::from_secs(1)).await;
}

/// The findings of a program, and the line of the offending post, which it returns
fn find(sim: Sim, qp_type: QpType, program: impl AsyncFnOnce(&Net, [Raw; 2]) -> u32) -> (Vec<Finding>, u32) {
    let run = sim.try_run(async |net| program(&net, raws(&net, qp_type)).await).unwrap();
    (run.findings, run.value)
}

#[track_caller]
fn assert_found((findings, line): (Vec<Finding>, u32), kind: FindingKind, id: u64) {
    let [finding] = &findings[..] else { panic!("{findings:?}") };
    assert_eq!(finding.kind, kind);
    let (request, site) = finding.post.expect("the post is known");
    assert_eq!((request.0, site.file(), site.line()), (id, file!(), line));
    let text = finding.to_string();
    assert!(text.contains(&format!("request {id} posted at {}:{line}:", file!())), "{text}");
}

/// A program that writes into a send that waits for its receive
async fn writes_into_a_send(net: &Net, [a, b]: [Raw; 2]) -> u32 {
    let line = line!() + 1;
    a.post(7, SendOp::Send, &[a.sge(0..64)]).unwrap();
    rest(net).await;
    a.write(63, &[1]);
    b.recv(1, &[b.sge(0..64)]).unwrap();
    b.completion().await;
    line
}

#[test]
fn a_send_that_is_written_while_it_is_posted_is_found() {
    assert_found(find(Sim::new(), QpType::Uc, writes_into_a_send), FindingKind::SendWritten, 7);
}

/// Catches a check of only the frames that leave, and one of only the whole message with its first frame.
#[test]
fn a_long_send_that_is_written_while_it_leaves_is_found() {
    const LEN: usize = 15 * FRAME;
    for at in [0, LEN - 1] {
        // A frame takes 45 µs.
        let slow = "at 0s a:rdma_en2 slow 1%".parse().unwrap();
        let found = find(Sim::new().faults(slow), QpType::Uc, async |net, [a, b]| {
            b.recv(1, &[b.sge(0..LEN)]).unwrap();
            let line = line!() + 1;
            a.post(7, SendOp::Send, &[a.sge(0..LEN)]).unwrap();
            rdma_async::time::sleep(&*net.runtime(), Duration::from_micros(300)).await;
            a.write(at, &[1]);
            b.completion().await;
            line
        });
        assert_found(found, FindingKind::SendWritten, 7);
    }
}

#[test]
#[should_panic(
    expected = "the DMA sanitizer found: a posted send was written by the program before it had left"
)]
fn a_run_with_a_finding_panics() {
    Sim::new().run(async |net| writes_into_a_send(&net, raws(&net, QpType::Uc)).await);
}

#[test]
fn a_disabled_sanitizer_finds_nothing() {
    let (findings, _) = find(Sim::new().sanitize(false), QpType::Uc, writes_into_a_send);
    assert_eq!(findings, []);
}

#[test]
fn a_receive_that_is_written_while_it_is_posted_is_found() {
    let found = find(Sim::new(), QpType::Uc, async |net, [a, b]| {
        let line = line!() + 1;
        b.recv(3, &[b.sge(4096..4160)]).unwrap();
        rest(net).await;
        b.write(4100, &[1]);
        a.post(1, SendOp::Send, &[a.sge(0..4)]).unwrap();
        b.completion().await;
        line
    });
    assert_found(found, FindingKind::ReceiveWritten, 3);
}

#[test]
fn posts_that_overlap_are_found() {
    let receive = |raw: &Raw, id, range| raw.recv(id, &[raw.sge(range)]).unwrap();
    let send = |raw: &Raw, id, range| raw.post(id, SendOp::Send, &[raw.sge(range)]).unwrap();
    let over_a_receive = find(Sim::new(), QpType::Uc, async |_, [a, _b]| {
        receive(&a, 1, 0..64);
        let line = line!() + 1;
        a.recv(2, &[a.sge(63..100)]).unwrap();
        line
    });
    assert_found(over_a_receive, FindingKind::OverlappingPosts, 2);
    let over_a_send = find(Sim::new(), QpType::Uc, async |_, [a, _b]| {
        send(&a, 1, 0..64);
        let line = line!() + 1;
        a.recv(2, &[a.sge(0..1)]).unwrap();
        line
    });
    assert_found(over_a_send, FindingKind::OverlappingPosts, 2);
    let send_over_a_receive = find(Sim::new(), QpType::Uc, async |_, [a, _b]| {
        receive(&a, 1, 9..64);
        let line = line!() + 1;
        a.post(2, SendOp::Send, &[a.sge(0..10)]).unwrap();
        line
    });
    assert_found(send_over_a_receive, FindingKind::OverlappingPosts, 2);
    let send_over_a_send = find(Sim::new(), QpType::Uc, async |_, [a, _b]| {
        send(&a, 1, 0..64);
        send(&a, 2, 0..64);
        0
    });
    assert_eq!(send_over_a_send.0, []);
}

#[test]
fn neighbours_do_not_overlap() {
    let (findings, _) = find(Sim::new(), QpType::Uc, async |_, [a, _b]| {
        for at in [64, 0, 128] {
            a.recv(at as u64, &[a.sge(at..at + 64)]).unwrap();
        }
        0
    });
    assert_eq!(findings, []);
}

#[test]
fn memory_that_is_deregistered_under_a_request_is_found() {
    let found = find(Sim::new(), QpType::Uc, async |_, [_a, mut b]| {
        let line = line!() + 1;
        b.recv(5, &[b.sge(0..64)]).unwrap();
        b.region = None;
        line
    });
    assert_found(found, FindingKind::DeregisteredUnderWork, 5);
}

#[test]
fn memory_is_deregistered_once_its_requests_have_ended() {
    let (findings, _) = find(Sim::new(), QpType::Uc, async |_, [a, mut b]| {
        b.recv(5, &[b.sge(0..64)]).unwrap();
        a.post(1, SendOp::Send, &[a.sge(0..64)]).unwrap();
        b.completion().await;
        b.region = None;
        0
    });
    assert_eq!(findings, []);
}

#[test]
fn a_completion_queue_that_overflows_is_found() {
    let (findings, _) = find(Sim::new(), QpType::Uc, async |net, [mut a, mut b]| {
        let cq = b.device.create_cq(2).unwrap();
        let init = QpInit::with_frames(15);
        b.qp = cq.create_qp(&init).unwrap();
        b.cq = cq;
        a.qp = a.cq.create_qp(&init).unwrap();
        a.connect(&b);
        for id in 0..3 {
            b.recv(id, &[b.sge(id as usize * 8..id as usize * 8 + 8)]).unwrap();
            a.post(id, SendOp::Send, &[a.sge(0..8)]).unwrap();
        }
        rest(net).await;
        0
    });
    let [finding] = &findings[..] else { panic!("{findings:?}") };
    assert_eq!((finding.kind, finding.post), (FindingKind::CqOverflow { depth: 2 }, None));
    assert!(finding.to_string().contains("the 2 entries"), "{finding}");
}

/// Regression: writes into the memory of the peer were not checked, and reads from there were not treated as writes here.
#[test]
fn one_sided_operations_are_checked() {
    let roce = || Sim::new().model(Model::roce());
    let written = find(roce(), QpType::Rc, async |net, [a, b]| {
        let (remote_addr, rkey) = (b.region().base(), b.region().rkey().unwrap());
        let line = line!() + 1;
        a.post(1, SendOp::Write { remote_addr, rkey }, &[a.sge(0..FRAME)]).unwrap();
        a.write(9, &[1]);
        rest(net).await;
        line
    });
    assert_found(written, FindingKind::SendWritten, 1);
    let overlapping = find(roce(), QpType::Rc, async |net, [a, b]| {
        let (remote_addr, rkey) = (b.region().base(), b.region().rkey().unwrap());
        a.post(1, SendOp::Read { remote_addr, rkey }, &[a.sge(0..8)]).unwrap();
        let line = line!() + 1;
        a.post(2, SendOp::Read { remote_addr, rkey }, &[a.sge(4..12)]).unwrap();
        rest(net).await;
        line
    });
    assert_found(overlapping, FindingKind::OverlappingPosts, 2);
}

#[test]
fn a_clean_program_has_no_findings() {
    let run = Sim::new().run(async |net| {
        for _ in 0..2 {
            let [a, b] = raws(&net, QpType::Uc);
            for round in 0..20 {
                let at = round as usize * 64;
                a.write(at, &[round; 64]);
                b.recv(round.into(), &[b.sge(at..at + 64)]).unwrap();
                a.post(round.into(), SendOp::Send, &[a.sge(at..at + usize::from(round))]).unwrap();
                let done = b.completion().await;
                assert_eq!((done.opcode, done.byte_len), (Opcode::Recv, round.into()));
                assert_eq!(b.read(at..at + usize::from(round)), vec![round; round.into()]);
                // The memory of a completed request belongs to the program again.
                b.write(at, &[0; 64]);
                a.completion().await;
                a.write(at, &[0; 64]);
            }
        }
    });
    assert!(run.findings.is_empty());
    assert!(run.leaks.is_empty(), "{:?}", run.leaks);
}
