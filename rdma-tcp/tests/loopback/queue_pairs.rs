//! Queue pairs without sessions: limits, errors, and ends

use std::net::{Ipv4Addr, Ipv6Addr};
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Wake};
use std::time::Duration;

use rdma_arena::Arena;
use rdma_bare::BareQp;
use rdma_core::{
    Access, AnyDevice, Cause, CompletionQueue as _, Device as _, FRAME, Gid, Invalid, MemoryRegion as _,
    Opcode, Psn, QpAddress, QpInit, QpState, Qpn, QueuePair as _, RecvRequest, Resource, Sge, Status,
    Teardown, Transition, Verb, WrId,
};
use rdma_tcp::{TcpDevice, TcpOptions};

use super::{completion, open, run};

fn single(timeout: Duration) -> BareQp<TcpDevice> {
    let options = TcpOptions::new().connect_timeout(timeout);
    let device = TcpDevice::bind((Ipv4Addr::LOCALHOST, 0).into(), options).unwrap();
    BareQp::new(device, &QpInit::with_frames(64), 64 * FRAME).unwrap()
}

/// Catches limits that are not kept, and objects that count after they are gone.
#[test]
fn objects_are_limited() {
    let device = open().unwrap();
    let (caps, arena) = (device.caps().clone(), Arena::new(FRAME).unwrap());
    let exhausted = |resource, limit| Cause::Exhausted { resource, limit };

    let mut queues: Vec<_> = (0..caps.max_cq).map(|_| device.create_cq(4).unwrap()).collect();
    let refused = device.create_cq(4).unwrap_err();
    assert_eq!(refused.cause, exhausted(Resource::CompletionQueues, caps.max_cq));
    queues.truncate(1);
    drop(device.create_cq(4).unwrap());

    let init = QpInit::with_frames(8);
    let mut pairs: Vec<_> = (0..caps.max_qp).map(|_| queues[0].create_qp(&init).unwrap()).collect();
    let refused = queues[0].create_qp(&init).unwrap_err();
    assert_eq!(refused.cause, exhausted(Resource::QueuePairs, caps.max_qp));
    pairs.pop();
    drop(queues[0].create_qp(&init).unwrap());

    // SAFETY: the arena outlives the regions, and nothing is posted.
    #[allow(unsafe_code, reason = "registering is unsafe")]
    let register = || unsafe { device.register(arena.as_slice_ptr(), Access::LOCAL_WRITE) };
    let mut regions: Vec<_> = (0..caps.max_mr).map(|_| register().unwrap()).collect();
    assert_eq!(register().unwrap_err().cause, exhausted(Resource::MemoryRegions, caps.max_mr));
    regions.pop();
    drop(register().unwrap());
}

/// Catches queue pairs that wait for ever for a peer that is not there, on the side that dials and on the one that listens.
#[test]
fn a_peer_that_does_not_answer_is_an_error_within_the_timeout() {
    run(async {
        let nowhere = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap();
        for gid in [[127, 0, 0, 0], [127, 0, 0, 2]] {
            let mut a = single(Duration::from_millis(50));
            let peer = QpAddress {
                gid: Gid::from_ipv4(gid.into()),
                psn: Psn(nowhere.port().into()),
                ..a.qp().address()
            };
            a.recv(1, 0..64).unwrap();
            a.qp().connect(&peer).unwrap();
            a.send(2, 64..128).unwrap();
            for (id, opcode) in [(1, Opcode::Recv), (2, Opcode::Send)] {
                let flushed = completion(&mut a).await;
                assert_eq!((flushed.id.0, flushed.opcode, flushed.status), (id, opcode, Status::Flushed));
            }
            assert_eq!(a.qp().state(), QpState::Error);
            a.send(3, 0..64).unwrap();
            assert_eq!(
                completion(&mut a).await.status,
                Status::Flushed,
                "as the verbs do in the error state"
            );
        }
    });
}

/// Catches a side that dials once, and a listener that answers before it knows its peer.
#[test]
fn both_sides_may_connect_in_any_order_and_late() {
    run(async {
        for is_first in [true, false] {
            let [mut a, mut b] = [single(Duration::from_secs(10)), single(Duration::from_secs(10))];
            let (first, second) = if is_first { (&a, &b) } else { (&b, &a) };
            first.qp().connect(&second.qp().address()).unwrap();
            tokio::time::sleep(Duration::from_millis(50)).await;
            second.qp().connect(&first.qp().address()).unwrap();
            b.recv(1, 0..64).unwrap();
            a.recv(1, 0..64).unwrap();
            a.send(2, FRAME..FRAME + 64).unwrap();
            b.send(2, FRAME..FRAME + 64).unwrap();
            for qp in [&mut a, &mut b] {
                let completions = [completion(qp).await, completion(qp).await];
                assert!(completions.iter().all(|completion| completion.status == Status::Success));
            }
        }
    });
}

/// Catches addresses of other devices that are taken for peers, and a queue pair that is connected to itself.
#[test]
fn impossible_peers_are_refused() {
    let a = single(Duration::from_secs(1));
    let own = a.qp().address();
    for peer in [own, QpAddress { psn: Psn(0xff_0000), ..own }, QpAddress { gid: Gid::default(), ..own }] {
        let refused = a.qp().connect(&peer).unwrap_err();
        assert_eq!((refused.verb, refused.cause), (Verb::ModifyQp, Cause::PeerUnreachable));
        assert_eq!(a.qp().state(), QpState::Init);
    }
}

/// Catches a transition to the error state that keeps requests, and one that the peer notices.
#[test]
fn the_error_state_flushes_requests_and_the_peer_sees_silence() {
    run(async {
        let [mut a, mut b] = BareQp::pair(open().unwrap(), open().unwrap(), 64 * FRAME).unwrap();
        b.recv(1, 0..64).unwrap();
        a.send(1, 0..64).unwrap();
        assert_eq!(completion(&mut b).await.status, Status::Success);
        assert_eq!(completion(&mut a).await.status, Status::Success);
        for id in 1..4 {
            a.recv(id, id as usize * FRAME..id as usize * FRAME + 8).unwrap();
        }
        b.recv(9, 0..64).unwrap();
        a.qp().modify(Transition::Error).unwrap();
        for id in 1..4 {
            let flushed = completion(&mut a).await;
            assert_eq!((flushed.id.0, flushed.status), (id, Status::Flushed));
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
        assert_eq!(b.poll().unwrap(), None);
        // As on an adapter, a message without a receiver is lost.
        b.send(2, FRAME..2 * FRAME).unwrap();
        assert_eq!(completion(&mut b).await.status, Status::Success);
    });
}

/// Catches a thread that writes into memory which is not registered any more.
#[test]
#[allow(unsafe_code, reason = "posting is unsafe")]
fn deregistered_memory_is_not_touched() {
    run(async {
        let [mut a, b] = BareQp::pair(open().unwrap(), open().unwrap(), 64 * FRAME).unwrap();
        let arena = Arena::new(FRAME).unwrap();
        // SAFETY: the arena outlives the region.
        let mut region = unsafe { b.device().register(arena.as_slice_ptr(), Access::LOCAL_WRITE) }.unwrap();
        let sgl = [Sge { addr: region.base(), len: 64, lkey: region.lkey() }];
        let request = RecvRequest { id: WrId(7), sgl: &sgl };
        // SAFETY: the arena outlives the queue pair's use of it, which the test is about; it is read after the end only.
        unsafe { b.qp().post_recv(&request) }.unwrap();
        assert_eq!(region.deregister(), Teardown::Quiesced);
        // SAFETY: as above; a key that is gone is refused.
        let refused = unsafe { b.qp().post_recv(&request) }.unwrap_err();
        assert_eq!(refused.cause, Invalid::Lkey { lkey: sgl[0].lkey }.into());
        a.write(0, &[5; 64]);
        a.send(1, 0..64).unwrap();
        let mut b = b;
        let failed = completion(&mut b).await;
        assert_eq!((failed.id.0, failed.status), (7, Status::LocalProtection));
        assert_eq!(b.qp().state(), QpState::Error);
        drop(b);
        // SAFETY: no request names the memory any more.
        assert_eq!(unsafe { arena.as_ptr().read() }, 0);
    });
}

/// Catches memory that is written after `destroy` returned: the peer sends as fast as it can meanwhile.
#[test]
#[allow(unsafe_code, reason = "posting is unsafe")]
fn memory_stays_as_it_was_when_destroy_returned() {
    run(async {
        for _ in 0..50 {
            let [mut a, b] = BareQp::pair(open().unwrap(), open().unwrap(), 512 * FRAME).unwrap();
            let arena = Arena::new(512 * FRAME).unwrap();
            // SAFETY: the arena outlives the region.
            let region = unsafe { b.device().register(arena.as_slice_ptr(), Access::LOCAL_WRITE) }.unwrap();
            let cq = b.device().create_cq(16).unwrap();
            let mut qp = cq.create_qp(&QpInit::with_frames(512)).unwrap();
            a.qp().modify(Transition::Reset).unwrap();
            a.qp().modify(Transition::Init).unwrap();
            a.qp().connect(&qp.address()).unwrap();
            qp.connect(&a.qp().address()).unwrap();
            let sgl = [Sge { addr: region.base(), len: 512 * FRAME as u32, lkey: region.lkey() }];
            // SAFETY: the arena is not accessed before the queue pair was destroyed.
            unsafe { qp.post_recv(&RecvRequest { id: WrId(1), sgl: &sgl }) }.unwrap();
            a.write(0, &vec![0xff; 512 * FRAME]);
            a.send(1, 0..512 * FRAME).unwrap();
            // Long enough for some bytes to arrive, short enough for others to be under way.
            tokio::time::sleep(Duration::from_micros(300)).await;
            assert_eq!(qp.destroy(), Teardown::Quiesced);
            let snapshot = || {
                // SAFETY: the device has stopped.
                let bytes = unsafe { std::slice::from_raw_parts(arena.as_ptr().as_ptr(), arena.len()) };
                bytes.iter().filter(|byte| **byte == 0xff).count()
            };
            let before = snapshot();
            tokio::time::sleep(Duration::from_millis(2)).await;
            assert_eq!(snapshot(), before);
        }
    });
}

/// Catches a queue whose frames are not freed, or are freed twice.
#[test]
fn queues_stay_usable_over_many_messages() {
    run(async {
        let init = QpInit::with_frames(5);
        let [mut a, mut b] = BareQp::pair_of(open().unwrap(), open().unwrap(), &init, 64 * FRAME).unwrap();
        for number in 0..200 {
            b.recv(number, 0..2 * FRAME).unwrap();
            b.recv(number, 2 * FRAME..5 * FRAME).unwrap();
            assert_eq!(b.recv(number, 6 * FRAME..7 * FRAME).unwrap_err().cause, Cause::QueueFull);
            a.send(number, 0..2 * FRAME).unwrap();
            a.send(number, 2 * FRAME..5 * FRAME).unwrap();
            for len in [2 * FRAME, 3 * FRAME] {
                assert_eq!(completion(&mut b).await.byte_len as usize, len);
                assert_eq!(completion(&mut a).await.status, Status::Success);
            }
        }
    });
}

/// Catches a receiver that stops reading for want of receives: both sides would block each other.
#[test]
fn messages_without_receives_are_lost_and_block_nothing() {
    run(async {
        let [mut a, mut b] = BareQp::pair(open().unwrap(), open().unwrap(), 256 * FRAME).unwrap();
        for number in 0..64 {
            a.send(number, 0..256 * FRAME).unwrap();
            b.send(number, 0..256 * FRAME).unwrap();
        }
        for number in 0..64 {
            for qp in [&mut a, &mut b] {
                let sent = completion(qp).await;
                assert_eq!((sent.id.0, sent.opcode, sent.status), (number, Opcode::Send, Status::Success));
            }
        }
        // The peer may still be reading messages that are lost; one of them may take the receive.
        a.write(0, &[7; 64]);
        let arrived = loop {
            b.recv(1, 0..64).unwrap();
            a.send(2, 0..64).unwrap();
            assert_eq!(completion(&mut a).await.status, Status::Success);
            let received = completion(&mut b).await;
            if received.status == Status::Success {
                break received;
            }
            assert_eq!(received.status, Status::LocalLength);
        };
        assert_eq!((arrived.byte_len, b.read(0..64)), (64, vec![7; 64]));
    });
}

/// Catches a message that overflows its receive, and one that damages those behind it.
#[test]
fn a_message_that_is_too_long_fails_its_receive_alone() {
    run(async {
        let [mut a, mut b] = BareQp::pair(open().unwrap(), open().unwrap(), 64 * FRAME).unwrap();
        b.write(0, &[1; 3 * FRAME]);
        a.write(0, &[2; 3 * FRAME]);
        b.recv(1, 0..FRAME).unwrap();
        b.recv(2, 2 * FRAME..3 * FRAME).unwrap();
        a.send(1, 0..FRAME + 1).unwrap();
        a.send(2, 0..FRAME).unwrap();
        let (failed, arrived) = (completion(&mut b).await, completion(&mut b).await);
        assert_eq!((failed.id.0, failed.status), (1, Status::LocalLength));
        assert_eq!((arrived.id.0, arrived.status, arrived.byte_len), (2, Status::Success, FRAME as u32));
        assert_eq!(b.read(0..2 * FRAME), [1; 2 * FRAME]);
        assert_eq!(b.read(2 * FRAME..3 * FRAME), [2; FRAME]);
    });
}

/// Catches GIDs that lose IPv6 addresses.
#[test]
fn ipv6_addresses_work() {
    run(async {
        let open = || TcpDevice::bind((Ipv6Addr::LOCALHOST, 0).into(), TcpOptions::new());
        let Ok(device) = open() else { return };
        assert_eq!(device.gids().unwrap()[0].to_string(), "::1");
        let [mut a, mut b] = BareQp::pair(device, open().unwrap(), 64 * FRAME).unwrap();
        b.recv(1, 0..64).unwrap();
        a.send(1, 0..64).unwrap();
        assert_eq!(completion(&mut b).await.status, Status::Success);
    });
}

struct Panics;

impl Wake for Panics {
    fn wake(self: Arc<Self>) {
        panic!("a waker that panics, as the test wants");
    }
}

/// Catches an I/O thread that dies of the panic of a task, with every queue pair of the device.
#[test]
fn the_panic_of_a_waker_ends_nothing() {
    run(async {
        let options = TcpOptions::new().connect_timeout(Duration::from_secs(1));
        let device = TcpDevice::bind((Ipv4Addr::LOCALHOST, 0).into(), options).unwrap();
        let device = AnyDevice::new(device);
        let mut a = BareQp::new(device.clone(), &QpInit::with_frames(8), FRAME).unwrap();
        let waker = Arc::new(Panics).into();
        // The request is flushed by the I/O thread, because the peer does not answer.
        a.recv(1, 0..8).unwrap();
        a.qp().connect(&QpAddress { qpn: Qpn(1), ..a.qp().address() }).unwrap();
        {
            let mut completion = pin!(a.completion());
            assert!(completion.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        }
        while a.qp().state() != QpState::Error {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        assert_eq!(a.completion().await.unwrap().status, Status::Flushed);
        let [c, mut d] =
            [(); 2].map(|()| BareQp::new(device.clone(), &QpInit::with_frames(8), FRAME).unwrap());
        d.connect(&c).unwrap();
        d.send(1, 0..8).unwrap();
        assert_eq!(d.completion().await.unwrap().status, Status::Success);
        drop(a);
        assert!(device.port().is_ok());
    });
}

/// Catches the connection of an earlier attempt that is used for a later one: the message would go to the wrong peer.
#[test]
fn a_reset_queue_pair_connects_to_another_peer() {
    run(async {
        for pause in 0..100 {
            let [mut a, mut b, mut c] = [(); 3].map(|()| single(Duration::from_secs(10)));
            a.connect(&b).unwrap();
            b.recv(1, 0..64).unwrap();
            c.recv(1, 0..64).unwrap();
            // Up to the middle of the handshake, and beyond.
            let until = tokio::time::Instant::now() + Duration::from_micros(5 * pause);
            while tokio::time::Instant::now() < until {
                std::hint::spin_loop();
            }
            a.qp().modify(Transition::Reset).unwrap();
            a.qp().modify(Transition::Init).unwrap();
            a.connect(&c).unwrap();
            a.send(1, 0..64).unwrap();
            assert_eq!(completion(&mut c).await.status, Status::Success);
            // A handshake that was under way is dropped, or the peer sees silence, or a connection that is cut.
            assert!(b.poll().unwrap().is_none_or(|completion| completion.status == Status::Flushed));
        }
    });
}

/// Regression: the I/O thread panicked when it added the timeout to the time.
#[test]
fn a_peer_may_be_waited_for_without_a_bound() {
    run(async {
        let [mut a, mut b] = [(); 2].map(|()| single(Duration::MAX));
        b.recv(1, 0..64).unwrap();
        a.connect(&b).unwrap();
        a.send(1, 0..64).unwrap();
        assert_eq!(completion(&mut b).await.status, Status::Success);
    });
}
