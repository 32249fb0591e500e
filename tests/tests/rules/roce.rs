//! Where network adapters that speak RoCE differ

use std::time::Duration;

use rdma_core::{
    Access, FRAME, MemoryRegion, Opcode, QpInit, QpType, QueuePair, Rkey, SendOp, Status, Transition,
};
use rdma_sim::{Model, Net, Sim};
use rdma_tests::{DEVICE, Raw};

use super::{errno, happen, rest};
use crate::counting::Simulate;

const ALL: Access =
    Access::LOCAL_WRITE.union(Access::REMOTE_READ).union(Access::REMOTE_WRITE).union(Access::REMOTE_ATOMIC);

/// Runs `program` with two connected queue pairs of adapters
fn on_roce(qp_type: QpType, program: impl AsyncFnOnce(Net, [Raw; 2])) {
    Sim::new().model(Model::roce()).simulate(async |net| {
        let init = QpInit { qp_type, ..QpInit::with_frames(1023) };
        let pair = Raw::pair(&net, &init, ALL, 4 << 20);
        program(net, pair).await;
    });
}

/// Where `raw` has its memory, for its peer
fn remote(raw: &Raw, at: usize) -> (u64, Rkey) {
    (raw.region().base() + at as u64, raw.region().rkey().unwrap())
}

#[test]
fn roce_drops_a_send_without_a_receive() {
    on_roce(QpType::Uc, async |net, [a, b]| {
        a.post(1, SendOp::Send, &[a.sge(0..8)]).unwrap();
        assert_eq!(a.completion().await.status, Status::Success);
        b.recv(1, &[b.sge(0..8)]).unwrap();
        rest(&net, Duration::from_secs(10)).await;
        assert_eq!(b.poll(), None);
    });
}

#[test]
fn roce_waits_on_reliable_queue_pairs() {
    on_roce(QpType::Rc, async |net, [a, b]| {
        a.post(1, SendOp::Send, &[a.sge(0..8)]).unwrap();
        rest(&net, Duration::from_secs(10)).await;
        assert_eq!(a.poll(), None);
        b.recv(1, &[b.sge(0..8)]).unwrap();
        let received = b.completion().await;
        assert_eq!(received.status, Status::Success);
        assert_eq!(a.poll(), None, "the acknowledgement has yet to come back");
        assert_eq!(a.completion().await.status, Status::Success);
    });
}

/// Regression: writes of unreliable queue pairs never arrived.
#[test]
fn roce_writes_without_a_receive() {
    for qp_type in [QpType::Uc, QpType::Rc] {
        on_roce(qp_type, async |_, [a, b]| {
            a.write(0, b"written");
            let (remote_addr, rkey) = remote(&b, 4096);
            a.post(1, SendOp::Write { remote_addr, rkey }, &[a.sge(0..7)]).unwrap();
            let done = a.completion().await;
            assert_eq!((done.opcode, done.status), (Opcode::Write, Status::Success));
            assert_eq!(b.read(4096..4103), b"written", "{qp_type:?}");
            assert_eq!(b.poll(), None);
        });
    }
}

#[test]
fn roce_reads_and_operates_on_reliable_queue_pairs() {
    on_roce(QpType::Rc, async |_, [a, b]| {
        b.write(0, &40_u64.to_le_bytes());
        let (remote_addr, rkey) = remote(&b, 0);
        let here = [a.sge(64..72)];
        let number = |raw: &Raw, at| u64::from_le_bytes(raw.read(at..at + 8).try_into().unwrap());
        let table = [
            (SendOp::Read { remote_addr, rkey }, Opcode::Read, 40, 40),
            (SendOp::FetchAdd { remote_addr, rkey, add: 2 }, Opcode::Atomic, 40, 42),
            (SendOp::CompareSwap { remote_addr, rkey, compare: 42, swap: 7 }, Opcode::Atomic, 42, 7),
            (SendOp::CompareSwap { remote_addr, rkey, compare: 42, swap: 8 }, Opcode::Atomic, 7, 7),
        ];
        for (op, opcode, was, is) in table {
            a.post(1, op, &here).unwrap();
            let done = a.completion().await;
            assert_eq!((done.opcode, done.status), (opcode, Status::Success));
            assert_eq!((number(&a, 64), number(&b, 0)), (was, is), "{op:?}");
        }
    });
    on_roce(QpType::Uc, async |_, [a, b]| {
        let (remote_addr, rkey) = remote(&b, 0);
        assert_eq!(errno(a.post(1, SendOp::Read { remote_addr, rkey }, &[a.sge(0..8)])), 102);
    });
}

/// Regression: the first request waited for the retry timer after the peer had become ready, and those behind it for ever.
#[test]
fn requests_that_arrive_early_take_place_when_the_peer_is_ready() {
    Sim::new().model(Model::roce()).simulate(async |net| {
        let init = QpInit { qp_type: QpType::Rc, ..QpInit::with_frames(1023) };
        let [a, b] = ["a", "b"].map(|host| Raw::new(net.open(host, DEVICE).unwrap(), &init, ALL, 1 << 20));
        a.connect_to(&b);
        a.write(0, b"written");
        let (remote_addr, rkey) = remote(&b, 0);
        a.post(1, SendOp::Write { remote_addr, rkey }, &[a.sge(0..7)]).unwrap();
        a.post(2, SendOp::Read { remote_addr, rkey }, &[a.sge(64..71)]).unwrap();
        rest(&net, Duration::from_secs(1)).await;
        assert_eq!(a.poll(), None);
        let ready = net.now();
        b.connect_to(&a);
        for id in [1, 2] {
            let done = a.completion().await;
            assert_eq!((done.id.0, done.status), (id, Status::Success));
        }
        assert!(net.now() - ready < Duration::from_micros(20));
        assert_eq!(a.read(64..71), b"written");
    });
}

/// Regression: a long read completed as soon as a short send behind it.
#[test]
fn a_read_takes_as_long_as_its_bytes_and_those_behind_it_wait() {
    on_roce(QpType::Rc, async |net, [a, b]| {
        b.recv(1, &[b.sge(0..8)]).unwrap();
        let (remote_addr, rkey) = remote(&b, 1 << 20);
        a.post(1, SendOp::Read { remote_addr, rkey }, &[a.sge(1 << 20..2 << 20)]).unwrap();
        a.post(2, SendOp::Send, &[a.sge(0..8)]).unwrap();
        let line_ns = 256 * rdma_sim::LineRate::TB5.frame_ns(FRAME);
        assert_eq!(a.completion().await.id.0, 1);
        assert!(net.now().as_nanos() > line_ns);
        assert_eq!(a.completion().await.id.0, 2);
    });
}

/// Regression: the oldest request was blamed for the failure of a later one.
#[test]
fn the_failing_request_is_the_one_that_failed() {
    on_roce(QpType::Rc, async |_, [a, b]| {
        b.recv(1, &[b.sge(0..8)]).unwrap();
        let (remote_addr, _) = remote(&b, 0);
        let write = SendOp::Write { remote_addr, rkey: Rkey(0xbad) };
        a.post(1, SendOp::Send, &[a.sge(0..8)]).unwrap();
        a.post(2, write, &[a.sge(0..8)]).unwrap();
        a.post(3, SendOp::Send, &[a.sge(0..8)]).unwrap();
        let mut ends = Vec::new();
        for _ in 0..3 {
            let done = a.completion().await;
            ends.push((done.id.0, done.status));
        }
        assert_eq!(ends, [(1, Status::Success), (2, Status::RemoteAccess), (3, Status::Flushed)]);
        assert_eq!(b.completion().await.status, Status::Success);
    });
}

#[test]
fn a_peer_that_is_gone_makes_a_reliable_queue_pair_give_up() {
    on_roce(QpType::Rc, async |net, [a, b]| {
        drop(b);
        a.post(1, SendOp::Send, &[a.sge(0..8)]).unwrap();
        a.post(2, SendOp::Send, &[a.sge(0..8)]).unwrap();
        let done = a.completion().await;
        assert_eq!((done.status, done.status.code()), (Status::RetryExceeded, 12));
        assert!(net.now().as_nanos() > 3_500_000_000);
        assert_eq!(a.completion().await.status, Status::Flushed);
        a.post(3, SendOp::Send, &[a.sge(0..8)]).unwrap();
        assert_eq!(a.completion().await.status, Status::Flushed);
    });
}

/// Regression: a reliable queue pair that waited for a receive never noticed that its peer died meanwhile.
#[test]
fn a_reliable_queue_pair_gives_up_while_it_waits_for_a_receive() {
    on_roce(QpType::Rc, async |net, [a, b]| {
        a.post(1, SendOp::Send, &[a.sge(0..8)]).unwrap();
        rest(&net, Duration::from_secs(10)).await;
        drop(b);
        rest(&net, Duration::from_secs(10)).await;
        assert_eq!(a.poll().map(|done| done.status), Some(Status::RetryExceeded));
    });
}

#[test]
fn memory_of_a_peer_needs_its_key_and_its_right() {
    Sim::new().model(Model::roce()).simulate(async |net| {
        for access in [Access::LOCAL_WRITE, ALL] {
            let init = QpInit { qp_type: QpType::Rc, ..QpInit::with_frames(7) };
            let [a, b] = Raw::pair(&net, &init, access, FRAME);
            let (remote_addr, rkey) = remote(&b, 0);
            a.post(1, SendOp::Write { remote_addr, rkey }, &[a.sge(0..8)]).unwrap();
            let expected = if access == ALL { Status::Success } else { Status::RemoteAccess };
            assert_eq!(a.completion().await.status, expected);
        }
    });
}

#[test]
fn roce_flushes_on_error() {
    on_roce(QpType::Rc, async |_, [a, _b]| {
        a.recv(1, &[a.sge(0..8)]).unwrap();
        a.qp.modify(Transition::Error).unwrap();
        assert_eq!(a.completion().await.status.code(), 5);
    });
}

/// Regression: frames of one-sided operations were counted, and no fault that waited for them happened.
#[test]
fn faults_count_the_frames_of_one_sided_operations() {
    on_roce(QpType::Rc, async |net, [a, b]| {
        net.inject("after 2 frames a:rdma_en2 corrupt 1".parse().unwrap());
        let (remote_addr, rkey) = remote(&b, 0);
        a.post(1, SendOp::Write { remote_addr, rkey }, &[a.sge(0..3 * FRAME)]).unwrap();
        a.completion().await;
        b.recv(1, &[b.sge(0..8)]).unwrap();
        a.post(2, SendOp::Send, &[a.sge(0..8)]).unwrap();
        assert_eq!(b.completion().await.status, Status::BadResponse);
    });
}

#[test]
fn roce_is_roomy_and_not_particular() {
    let model = Model::roce();
    assert!(model.caps.max_qp > 10 && model.caps.max_mr > 100 && model.caps.max_message > 16 << 20);
    on_roce(QpType::Uc, async |net, [a, b]| {
        // A short message in a long receive, and memory that begins anywhere, is late and lies over a boundary.
        happen(&net, "b:rdma_en2 boundary").await;
        let region = b.register_again(ALL).unwrap();
        let middle = region.base() + (2 << 20);
        b.recv(1, &[rdma_core::Sge { addr: middle - 8, len: 3 * 4096, lkey: region.lkey() }]).unwrap();
        rest(&net, Duration::from_micros(10)).await;
        a.write(0, &[7; 16]);
        a.post(1, SendOp::Send, &[a.sge(0..16)]).unwrap();
        let done = b.completion().await;
        assert_eq!((done.status, done.byte_len), (Status::Success, 16));
        assert_eq!(b.read((2 << 20) - 8..(2 << 20) + 8), [7; 16]);
    });
}
