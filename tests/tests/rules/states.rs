//! The state machine of queue pairs

use std::time::Duration;

use rdma_bare::BareQp;
use rdma_core::{
    Access, AttrMask, Cause, Gid, Opcode, QpAttr, QpInit, QpState, Qpn, QueuePair, SendOp, Status, Transition,
};
use rdma_sim::rules::EarlyReceives;
use rdma_sim::{Model, Sim};
use rdma_tests::Raw;

use super::{bare, device, errno, on_pair, pair, passes, rest, under, within_a_second};
use crate::counting::{Simulate, value_of};

/// The masks of Apple TN3205, each bit of which is needed.
#[test]
fn every_step_needs_its_mask() {
    assert_eq!(
        [AttrMask::INIT, AttrMask::READY_TO_RECEIVE, AttrMask::READY_TO_SEND].map(|mask| mask.0),
        [0x39, 0x10_1181, 0x1_0001]
    );
    Sim::new().simulate(async |net| {
        let (a, b) = (bare(&net, "a"), bare(&net, "b"));
        let psn = a.qp().address().psn;
        let steps = [
            QpAttr::init(),
            QpAttr::ready_to_receive(&b.qp().address(), 1, 1024),
            QpAttr::ready_to_send(psn),
        ];
        for (attr, mask) in steps {
            let bits = (0..32).map(|bit| 1 << bit).filter(|bit| mask.0 & bit != 0);
            for bit in bits {
                let lacking = AttrMask(mask.0 & !bit);
                assert_eq!(errno(a.qp().modify_attr(&attr, lacking)), 22, "{attr:?} without {bit:#x}");
            }
            a.qp().modify_attr(&attr, mask).unwrap();
            assert_eq!(a.qp().state(), attr.state);
        }
    });
}

#[test]
fn every_access_is_accepted_at_init() {
    Sim::new().simulate(async |net| {
        let a = bare(&net, "a");
        let all = Access::LOCAL_WRITE.union(Access::REMOTE_READ).union(Access::REMOTE_WRITE);
        for access in [Access::NONE, Access::LOCAL_WRITE, all] {
            let (mut attr, mask) = QpAttr::init();
            attr.access = access;
            a.qp().modify_attr(&attr, mask).unwrap();
        }
    });
}

#[test]
fn the_port_is_1_and_the_partition_key_0() {
    Sim::new().simulate(async |net| {
        let a = bare(&net, "a");
        for (port, pkey_index) in [(0, 0), (2, 0), (1, 1)] {
            let (mut attr, mask) = QpAttr::init();
            (attr.port, attr.pkey_index) = (port, pkey_index);
            assert_eq!(errno(a.qp().modify_attr(&attr, mask)), 22);
        }
    });
}

#[test]
fn steps_out_of_order_are_refused() {
    use QpState::{Error, Init, ReadyToReceive, ReadyToSend, Reset};
    Sim::new().simulate(async |net| {
        let b = bare(&net, "b");
        let attr_to = |state| match state {
            Init => QpAttr::init(),
            ReadyToReceive => QpAttr::ready_to_receive(&b.qp().address(), 1, 1024),
            ReadyToSend => QpAttr::ready_to_send(b.qp().address().psn),
            other => QpAttr::plain(other),
        };
        // How to get there, and where one can go from there beside Reset and Error.
        let table = [
            (Reset, &[Reset][..], &[Init][..]),
            (Init, &[], &[Init, ReadyToReceive]),
            (ReadyToReceive, &[ReadyToReceive], &[ReadyToSend]),
            (ReadyToSend, &[ReadyToReceive, ReadyToSend], &[]),
            (Error, &[Error], &[]),
        ];
        for (from, path, next) in table {
            for to in [Reset, Init, ReadyToReceive, ReadyToSend, Error] {
                let a = bare(&net, "a");
                for step in path {
                    let (attr, mask) = attr_to(*step);
                    a.qp().modify_attr(&attr, mask).unwrap();
                }
                assert_eq!(a.qp().state(), from);
                let (attr, mask) = attr_to(to);
                let done = a.qp().modify_attr(&attr, mask);
                let is_step = matches!(to, Reset | Error) || next.contains(&to);
                assert_eq!(done.is_ok(), is_step, "{from:?} to {to:?}");
                assert_eq!(a.qp().state(), if is_step { to } else { from });
            }
        }
    });
}

#[test]
fn nothing_is_sent_before_ready_to_send() {
    Sim::new().simulate(async |net| {
        let (mut a, b) = (bare(&net, "a"), bare(&net, "b"));
        assert_eq!(errno(a.send(1, 0..1)), 22);
        a.qp().modify(Transition::ReadyToReceive { peer: b.qp().address() }).unwrap();
        assert_eq!(errno(a.send(1, 0..1)), 22);
        a.qp().modify(Transition::ReadyToSend).unwrap();
        a.send(1, 0..1).unwrap();
    });
}

#[test]
fn receives_are_taken_from_a_state_on() {
    let states = |early| {
        value_of(under(|rules| rules.early_receives = early), async |net| {
            let (mut a, b) = (bare(&net, "a"), bare(&net, "b"));
            a.qp().modify(Transition::Reset).unwrap();
            assert_eq!(errno(a.recv(0, 0..1)), 22);
            a.qp().modify(Transition::Init).unwrap();
            let init = a.recv(1, 8..9).is_ok();
            a.qp().modify(Transition::ReadyToReceive { peer: b.qp().address() }).unwrap();
            let ready = a.recv(2, 16..17).is_ok();
            a.qp().modify(Transition::ReadyToSend).unwrap();
            a.recv(3, 24..25).unwrap();
            [init, ready]
        })
    };
    assert_eq!(states(EarlyReceives::FromInit), [true, true]);
    assert_eq!(states(EarlyReceives::FromReadyToReceive), [false, true]);
    assert_eq!(states(EarlyReceives::FromReadyToSend), [false, false]);
}

/// Regression: a waiting sender never learned of receives that its peer had posted before it was ready to receive.
#[test]
fn a_sender_waits_for_a_peer_that_is_not_ready() {
    Sim::new().simulate(async |net| {
        let (mut a, mut b) = (bare(&net, "a"), bare(&net, "b"));
        b.recv(1, 0..8).unwrap();
        a.qp().connect(&b.qp().address()).unwrap();
        a.send(1, 0..8).unwrap();
        assert_eq!(within_a_second(&net, &mut a).await, []);
        b.qp().modify(Transition::ReadyToReceive { peer: a.qp().address() }).unwrap();
        assert_eq!(within_a_second(&net, &mut b).await, [(Opcode::Recv, Status::Success)]);
    });
}

#[test]
fn a_queue_pair_that_is_not_named_back_is_alone() {
    Sim::new().simulate(async |net| {
        let (mut a, mut b, c) = (bare(&net, "a"), bare(&net, "b"), bare(&net, "a"));
        a.qp().connect(&b.qp().address()).unwrap();
        b.qp().connect(&c.qp().address()).unwrap();
        assert!(!passes(&net, &mut a, &mut b).await);
        // Numbers of queue pairs are not checked by the step itself.
        let mut address = b.qp().address();
        address.qpn = Qpn(0x4200);
        c.qp().connect(&address).unwrap();
    });
}

#[test]
fn a_step_needs_the_gid_of_the_neighbour() {
    Sim::new().simulate(async |net| {
        let b = bare(&net, "b");
        for gid in [Gid::from_ipv4([10, 0, 0, 1].into()), Gid::default()] {
            let a = bare(&net, "a");
            let peer = rdma_core::QpAddress { gid, ..b.qp().address() };
            assert_eq!(a.qp().connect(&peer).unwrap_err().cause, Cause::PeerUnreachable);
        }
        let a = bare(&net, "a");
        let (mut attr, mask) = QpAttr::ready_to_receive(&b.qp().address(), 1, 1024);
        attr.dgid = None;
        assert_eq!(errno(a.qp().modify_attr(&attr, mask)), 22);
    });
}

#[test]
fn a_failed_queue_pair_does_not_flush() {
    let flushed = |flushes| {
        let mut model = Model::tb5();
        model.caps.flush_on_error = flushes;
        value_of(Sim::new().model(model), async |net| {
            let [mut a, mut b] = pair(&net);
            a.send(1, 0..8).unwrap();
            a.recv(2, 8..16).unwrap();
            a.qp().modify(Transition::Error).unwrap();
            let done = within_a_second(&net, &mut a).await;
            assert_eq!(a.send(3, 0..8).is_ok(), flushes);
            b.recv(1, 0..8).unwrap();
            assert_eq!(within_a_second(&net, &mut b).await, []);
            done
        })
    };
    assert_eq!(flushed(false), []);
    assert_eq!(flushed(true), [(Opcode::Send, Status::Flushed), (Opcode::Recv, Status::Flushed)]);
}

#[test]
fn the_error_state_keeps_mappings_or_not() {
    let left = |keeps| {
        value_of(under(|rules| rules.error_keeps_mappings = keeps), async |net| {
            let raw = Raw::new(device(&net, "a"), &QpInit::with_frames(7), Access::LOCAL_WRITE, 4096);
            raw.qp.modify(Transition::Error).unwrap();
            drop(raw);
            let raw = Raw::new(device(&net, "a"), &QpInit::with_frames(7), Access::LOCAL_WRITE, 4096);
            let mut regions = vec![];
            while let Ok(region) = raw.register_again(Access::LOCAL_WRITE) {
                regions.push(region);
            }
            regions.len() + 1
        })
    };
    assert_eq!(left(true), 99);
    assert_eq!(left(false), 100);
}

#[test]
fn a_reset_queue_pair_can_connect_again() {
    on_pair(async |net, [mut a, mut b]| {
        assert!(passes(&net, &mut a, &mut b).await);
        let _ = within_a_second(&net, &mut a).await;
        for (qp, peer) in [(&a, &b), (&b, &a)] {
            qp.qp().modify(Transition::Reset).unwrap();
            qp.qp().modify(Transition::Init).unwrap();
            qp.qp().connect(&peer.qp().address()).unwrap();
        }
        assert!(passes(&net, &mut a, &mut b).await);
    });
}

/// Regression: a queue pair that was reset while its turn at the transmitter was still to come made the simulator panic.
#[test]
fn a_reset_takes_a_queue_pair_out_of_the_round() {
    Sim::new().simulate(async |net| {
        let [a, b] = Raw::pair(&net, &QpInit::with_frames(511), Access::LOCAL_WRITE, 1 << 20);
        let half = 0..1 << 19;
        for id in 0..2 {
            b.recv(id, &[b.sge(id as usize * half.len()..(id as usize + 1) * half.len())]).unwrap();
            a.post(id, SendOp::Send, &[a.sge(half.clone())]).unwrap();
        }
        rest(&net, Duration::from_micros(20)).await;
        for raw in [&a, &b] {
            raw.qp.modify(Transition::Reset).unwrap();
            raw.qp.modify(Transition::Init).unwrap();
        }
        a.connect(&b);
        rest(&net, Duration::from_secs(1)).await;
        assert_eq!((a.poll(), b.poll()), (None, None));
        b.recv(7, &[b.sge(0..8)]).unwrap();
        a.post(7, SendOp::Send, &[a.sge(0..8)]).unwrap();
        assert_eq!(b.completion().await.byte_len, 8);
        assert_eq!(a.completion().await.id.0, 7);
    });
}

#[test]
fn memory_is_free_after_destroy() {
    on_pair(async |net, [mut a, mut b]| {
        a.write(0, &[9; 64]);
        b.recv(1, 0..64).unwrap();
        a.send(1, 0..64).unwrap();
        rest(&net, Duration::from_micros(3)).await;
        let peer = b.qp().address();
        let before = within_a_second(&net, &mut a).await.len();
        assert_eq!(before, 1);
        drop(b);
        // A successor with another number receives no message that was sent to its predecessor.
        let mut b = BareQp::new(device(&net, "b"), &QpInit::with_frames(255), 1 << 20).unwrap();
        assert_ne!(b.qp().address().qpn, peer.qpn);
        b.recv(1, 0..64).unwrap();
        b.qp().connect(&a.qp().address()).unwrap();
        assert_eq!(within_a_second(&net, &mut b).await, []);
    });
}
