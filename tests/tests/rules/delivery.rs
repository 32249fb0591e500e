//! How messages travel and complete

#![allow(unsafe_code, reason = "tests name memory and call the verbs themselves")]

use std::time::Duration;

use futures::future::join;
use rdma_core::{Completion, Device, FRAME, Opcode, QpInit, QueuePair, Status, Time};
use rdma_sim::rules::{FrameMatch, SendCompletion};
use rdma_sim::{LineRate, Model, Net, Sim};
use rdma_tests::DEVICE;

use super::{
    Bare, bare, device, errno, happen, on_pair, pair, pair_of, passes, rest, shallow, under, within_a_second,
};
use crate::counting::{Simulate, value_of};

#[test]
fn a_short_message_costs_a_whole_frame_of_credit_and_few_bytes() {
    on_pair(async |net, [mut a, mut b]| {
        // The example of the source: 64 bytes of header and 16 KiB of payload are five frames.
        b.recv(1, 0..64).unwrap();
        b.recv(2, 4096..20_480).unwrap();
        a.send(1, 0..64).unwrap();
        a.send(2, 4096..20_480).unwrap();
        b.completion().await.unwrap();
        b.completion().await.unwrap();
        let [sent, received] = net.cable_stats("a", DEVICE).unwrap();
        assert_eq!((sent.frames, sent.messages, sent.payload_bytes), (5, 2, 16_448));
        assert_eq!(received.frames, 0);
    });
}

#[test]
fn a_send_waits_for_its_receive_or_is_dropped() {
    let received = |waits| {
        let mut model = Model::tb5();
        model.caps.send_waits_for_receive = waits;
        value_of(Sim::new().model(model), async |net| {
            let [mut a, mut b] = pair(&net);
            a.send(1, 0..8).unwrap();
            rest(&net, Duration::from_hours(1) / 4).await;
            assert_eq!(a.poll().unwrap().is_some(), !waits, "a dropped send completes as well");
            b.recv(1, 0..8).unwrap();
            within_a_second(&net, &mut b).await.len()
        })
    };
    assert_eq!(received(true), 1);
    assert_eq!(received(false), 0);
}

#[test]
fn messages_and_receives_span_the_same_frames() {
    use Status::{LocalLength, Success};
    const K: usize = 1024;
    // Bytes of the message and of the receive, and how the receive ends; the first rows are Apple's examples.
    let table = [
        (16 * K, 4 * K, LocalLength, LocalLength),
        (16 * K, 32 * K, LocalLength, Success),
        (16 * K, 16 * K, Success, Success),
        (1, 4 * K, Success, Success),
        (4 * K + 1, 8 * K, Success, Success),
        (8 * K, 4 * K + 1, LocalLength, LocalLength),
        (4 * K, 8 * K, LocalLength, Success),
        (0, 1, Success, Success),
        (0, 5 * K, LocalLength, Success),
    ];
    for (message, receive, exact, fits) in table {
        for (rule, expected) in [(FrameMatch::Exact, exact), (FrameMatch::Fits, fits)] {
            under(|rules| rules.frame_match = rule).simulate(async |net| {
                let [mut a, mut b] = pair(&net);
                a.write(0, &vec![7; message]);
                b.write(0, &vec![0; 64 * K]);
                b.recv(1, 0..receive).unwrap();
                a.send(1, 0..message).unwrap();
                let done = b.completion().await.unwrap();
                assert_eq!(done.status, expected, "{message} into {receive}, {rule:?}");
                if expected == Success {
                    assert_eq!(done.byte_len as usize, message);
                }
                let beyond = b.read(receive..64 * K);
                assert!(beyond.iter().all(|byte| *byte == 0), "nothing is written beyond a receive");
            });
        }
    }
}

#[test]
fn the_excess_of_a_message_spoils_the_next_receive() {
    on_pair(async |net, [mut a, mut b]| {
        for at in [0, FRAME] {
            b.recv(at as u64, at..at + FRAME).unwrap();
        }
        a.send(1, 0..2 * FRAME).unwrap();
        let failed = (Opcode::Recv, Status::LocalLength);
        assert_eq!(within_a_second(&net, &mut b).await, [failed; 2]);
        let sent = within_a_second(&net, &mut a).await;
        assert_eq!(sent, [(Opcode::Send, Status::Success)], "the sender gets no error");
        assert!(passes(&net, &mut a, &mut b).await);
    });
}

#[test]
fn messages_keep_their_order() {
    on_pair(async |_, [mut a, mut b]| {
        let length = |number: usize| number * 977 % 9000;
        for number in 0..30 {
            let (at, message) = (number * 3 * FRAME, length(number));
            b.recv(number as u64, at..at + message).unwrap();
            a.send(100 + number as u64, at..at + message).unwrap();
        }
        for number in 0..30 {
            let done = b.completion().await.unwrap();
            assert_eq!((done.id.0, done.byte_len as usize), (number as u64, length(number)));
            assert_eq!(done.qpn, b.qp().address().qpn);
        }
        for number in 0..30 {
            assert_eq!(a.completion().await.unwrap().id.0, 100 + number);
        }
    });
}

#[test]
fn a_send_completes_at_departure_or_at_hand_off() {
    let times = |send_completion| {
        value_of(under(|rules| rules.send_completion = send_completion), async |net| {
            let [mut a, mut b] = pair(&net);
            b.recv(1, 0..1 << 20).unwrap();
            rest(&net, Duration::from_micros(10)).await;
            a.send(1, 0..1 << 20).unwrap();
            let since = |done: Result<_, _>| done.map(|_: Completion| net.now().as_nanos() - 10_000).unwrap();
            let sent = async { since(a.completion().await) };
            let received = async { since(b.completion().await) };
            join(sent, received).await
        })
    };
    let frames_ns = 256 * LineRate::TB5.frame_ns(FRAME);
    let (sent, received) = times(SendCompletion::Departure);
    assert_eq!(sent, 1400 + 60 + frames_ns + 300);
    assert!(received > sent, "a completed send may not have arrived");
    let (sent, again) = times(SendCompletion::HandOff);
    assert_eq!(sent, 1400);
    assert_eq!(again, received);
}

#[test]
fn a_waiting_queue_pair_does_not_hold_up_others() {
    on_pair(async |net, [mut a, _b]| {
        let [mut c, mut d] = pair(&net);
        a.send(1, 0..8).unwrap();
        a.send(2, 0..8).unwrap();
        assert!(passes(&net, &mut c, &mut d).await);
        assert_eq!(a.poll().unwrap(), None);
    });
}

/// When a megabyte has arrived over each of `pairs`
async fn a_megabyte_over_each(net: &Net, pairs: &mut [(Bare, Bare)]) -> Vec<Time> {
    for (from, to) in pairs.iter_mut() {
        to.recv(1, 0..1 << 20).unwrap();
        from.send(1, 1 << 20..1 << 21).unwrap();
    }
    let mut arrivals = Vec::new();
    for (_, to) in pairs {
        to.received().await.unwrap();
        arrivals.push(net.now());
    }
    arrivals
}

#[test]
fn queue_pairs_take_turns() {
    Sim::new().simulate(async |net| {
        let mut pairs: Vec<_> = [(); 2].map(|()| pair(&net)).into_iter().map(|[a, b]| (a, b)).collect();
        let arrivals = a_megabyte_over_each(&net, &mut pairs).await;
        let both = 2 * 256 * LineRate::TB5.frame_ns(FRAME);
        assert!((arrivals[1] - arrivals[0]).as_nanos() < 1_000, "they end together");
        assert!(arrivals[0].as_nanos() > both, "and take twice the time");
    });
}

#[test]
fn both_directions_carry_at_once() {
    let arrival = |both: bool| {
        let run = Sim::new().simulate(async |net| {
            let [a, b] = pair(&net);
            let mut pairs = vec![(a, b)];
            if both {
                let [c, d] = pair(&net);
                pairs.push((d, c));
            }
            a_megabyte_over_each(&net, &mut pairs).await[0]
        });
        run.value.as_nanos()
    };
    assert!(arrival(true).abs_diff(arrival(false)) <= 200, "no more than the jitter");
}

#[test]
fn a_ping_takes_twelve_microseconds() {
    on_pair(async |net, [mut a, mut b]| {
        a.recv(1, 0..8).unwrap();
        b.recv(1, 0..8).unwrap();
        rest(&net, Duration::from_micros(10)).await;
        a.send(2, 8..16).unwrap();
        b.received().await.unwrap();
        b.send(2, 8..16).unwrap();
        a.received().await.unwrap();
        let took = net.now().as_nanos() - 10_000;
        assert!((11_700..=12_200).contains(&took), "{took}");
    });
}

#[test]
fn a_damaged_frame_fails_its_receive() {
    on_pair(async |net, [mut a, mut b]| {
        happen(&net, "a:rdma_en2 corrupt 1").await;
        for id in 0..2 {
            b.recv(id, id as usize * FRAME..id as usize * FRAME + 8).unwrap();
            a.send(id, 0..8).unwrap();
        }
        let ends = within_a_second(&net, &mut b).await;
        assert_eq!(ends, [Status::BadResponse, Status::Success].map(|status| (Opcode::Recv, status)));
        assert_eq!(within_a_second(&net, &mut a).await, [(Opcode::Send, Status::Success); 2]);
    });
}

/// Catches an excess that goes on into the next receives where the device drops it.
#[test]
fn the_excess_of_a_message_is_lost_where_receives_may_be_longer() {
    under(|rules| rules.frame_match = FrameMatch::Fits).simulate(async |net| {
        let [mut a, mut b] = pair(&net);
        for at in [0, FRAME] {
            b.recv(at as u64, at..at + FRAME).unwrap();
        }
        a.send(1, 0..3 * FRAME).unwrap();
        assert_eq!(within_a_second(&net, &mut b).await, [(Opcode::Recv, Status::LocalLength)]);
        a.send(2, 0..8).unwrap();
        assert_eq!(within_a_second(&net, &mut b).await, [(Opcode::Recv, Status::Success)]);
    });
}

#[test]
fn a_refused_post_takes_nothing() {
    shallow().simulate(async |net| {
        let [mut a, mut b] = pair_of(&net, 3, 1 << 16);
        for id in 0..2 {
            a.send(id, 0..8).unwrap();
        }
        assert_eq!(errno(a.send(2, 0..2 * FRAME)), 12);
        a.send(3, 0..8).unwrap();
        for id in 0..3 {
            b.recv(id, id as usize * 8..id as usize * 8 + 8).unwrap();
        }
        assert_eq!(within_a_second(&net, &mut b).await.len(), 3);
        let ids: Vec<_> = std::iter::from_fn(|| a.poll().unwrap()).map(|done| done.id.0).collect();
        assert_eq!(ids, [0, 1, 3]);
    });
}

#[test]
fn completions_of_several_queue_pairs_share_a_queue() {
    use rdma_core::{Access, CompletionQueue, SendOp};
    use rdma_tests::Raw;
    Sim::new().simulate(async |net| {
        let [a, b] = ["a", "b"]
            .map(|host| Raw::new(device(&net, host), &QpInit::with_frames(7), Access::LOCAL_WRITE, FRAME));
        let second = Raw::new(device(&net, "b"), &QpInit::with_frames(7), Access::LOCAL_WRITE, FRAME);
        let extra = a.cq.create_qp(&QpInit::with_frames(7)).unwrap();
        a.connect(&b);
        extra.connect(&second.qp.address()).unwrap();
        second.qp.connect(&extra.address()).unwrap();
        for (raw, to) in [(&b, &a.qp), (&second, &extra)] {
            let sgl = [a.sge(to.address().qpn.0 as usize % 1024..to.address().qpn.0 as usize % 1024 + 8)];
            let request = rdma_core::RecvRequest { id: rdma_core::WrId(1), sgl: &sgl };
            // SAFETY: the memory of `a` outlives both queue pairs, and is not accessed.
            unsafe { to.post_recv(&request) }.unwrap();
            raw.post(1, SendOp::Send, &[raw.sge(0..8)]).unwrap();
        }
        let numbers = [a.completion().await.qpn, a.completion().await.qpn];
        assert_eq!(numbers, [a.qp.address().qpn, extra.address().qpn]);
    });
}

/// Source: mesh-flow, whose queue pairs have a completion queue for sends and one for receives.
#[test]
fn sends_and_receives_complete_to_queues_of_their_own() {
    use rdma_core::{Access, CompletionQueue, QpAttr, RecvRequest, SendOp, SendRequest, WrId};
    use rdma_tests::Raw;
    Sim::new().simulate(async |net| {
        let init = QpInit::with_frames(7);
        let [a, b] = ["a", "b"].map(|host| Raw::new(device(&net, host), &init, Access::LOCAL_WRITE, FRAME));
        let [sends, receives] = [4096; 2].map(|depth| a.device.create_cq(depth).unwrap());
        let qp = a.device.create_qp_between(&sends, &receives, &init).unwrap();
        let (attr, mask) = QpAttr::init();
        qp.modify_attr(&attr, mask).unwrap();
        qp.connect(&b.qp.address()).unwrap();
        b.qp.connect(&qp.address()).unwrap();
        let sgl = [a.sge(0..8)];
        // SAFETY: the memory of `a` outlives the queue pair, and is not accessed.
        unsafe { qp.post_recv(&RecvRequest { id: WrId(1), sgl: &sgl }) }.unwrap();
        b.recv(2, &[b.sge(0..8)]).unwrap();
        b.post(3, SendOp::Send, &[b.sge(8..16)]).unwrap();
        let sgl = [a.sge(8..16)];
        let request = SendRequest { id: WrId(4), op: SendOp::Send, sgl: &sgl, signaled: true };
        // SAFETY: as above.
        unsafe { qp.post_send(&request) }.unwrap();
        rest(&net, Duration::from_secs(1)).await;
        for (cq, expected) in [(&sends, (Opcode::Send, 4)), (&receives, (Opcode::Recv, 1))] {
            let mut done = [Completion::default(); 2];
            assert_eq!(cq.poll(&mut done).unwrap(), 1);
            assert_eq!((done[0].opcode, done[0].id.0), expected);
        }
        assert!(a.poll().is_none(), "the queue of another queue pair is empty");
    });
}

/// Catches a damaged message that arrives unchanged, and a first byte that is set instead of inverted.
#[test]
fn the_first_byte_of_a_damaged_message_is_inverted() {
    on_pair(async |net, [mut a, mut b]| {
        happen(&net, "a:rdma_en2 corrupt 1").await;
        a.write(0, &[0xa5; 8]);
        b.write(0, &[7; 8]);
        b.recv(1, 0..8).unwrap();
        a.send(1, 0..3).unwrap();
        assert_eq!(within_a_second(&net, &mut b).await, [(Opcode::Recv, Status::BadResponse)]);
        assert_eq!(b.read(0..3), [0x5a, 0xa5, 0xa5]);
    });
}

#[test]
fn a_credit_takes_as_long_as_the_cable() {
    Sim::new().simulate(async |net| {
        let (mut a, mut b) = (bare(&net, "a"), bare(&net, "b"));
        a.connect(&b).unwrap();
        a.send(1, 0..8).unwrap();
        rest(&net, Duration::from_micros(100)).await;
        b.recv(1, 0..8).unwrap();
        a.completion().await.unwrap();
        // The credit's way, the message, its completion.
        assert_eq!(net.now().as_nanos(), 100_000 + 2_900 + 60 + 3 + 300);
        assert!(a.device().caps().send_waits_for_receive);
    });
}
