//! Registered memory

#![allow(unsafe_code, reason = "tests name memory and call the verbs themselves")]

use std::ptr::NonNull;
use std::time::Duration;

use rdma_arena::Arena;
use rdma_core::{
    Access, Cause, Device, FRAME, Invalid, Lkey, MemoryRegion, QpInit, QueuePair, SendOp, Sge, Status,
    Transition,
};
use rdma_sim::{Net, Sim};
use rdma_tests::Raw;

use super::{device, errno, happen, rest, under};
use crate::counting::{Simulate, value_of};

const ALL: Access = Access::LOCAL_WRITE.union(Access::REMOTE_READ).union(Access::REMOTE_WRITE);

fn raws(net: &Net) -> [Raw; 2] {
    Raw::pair(net, &QpInit::with_frames(63), Access::LOCAL_WRITE, 1 << 17)
}

#[test]
fn memory_begins_at_a_page() {
    let register = |alignment, offset| {
        value_of(under(|rules| rules.alignment = alignment), async |net| {
            let arena = Arena::new(1 << 16).unwrap();
            let device = device(&net, "a");
            // SAFETY: the offset is inside the arena.
            let start = unsafe { arena.as_ptr().add(offset) };
            // SAFETY: the region is gone before the arena, and nothing is posted.
            let region = unsafe { device.register(NonNull::slice_from_raw_parts(start, 100), ALL) };
            region.map(|_| ()).map_err(|error| error.errno())
        })
    };
    for (offset, expected) in [(0, Ok(())), (4096, Err(22)), (8, Err(22)), (16_384, Ok(()))] {
        assert_eq!(register(16_384, offset), expected, "{offset}");
    }
    assert_eq!(register(1, 8), Ok(()));
}

#[test]
fn memory_of_any_length_can_be_registered() {
    Sim::new().simulate(async |net| {
        let device = device(&net, "a");
        // Far beyond the advertised 16 MB; not one page of it is touched.
        for len in [1, 4097, 1 << 30] {
            let arena = Arena::new(len).unwrap();
            // SAFETY: the region is gone before the arena, and nothing is posted.
            drop(unsafe { device.register(arena.as_slice_ptr(), ALL) }.unwrap());
        }
        let nothing = NonNull::slice_from_raw_parts(Arena::new(1).unwrap().as_ptr(), 0);
        // SAFETY: no memory at all.
        assert_eq!(errno(unsafe { device.register(nothing, ALL) }), 22);
    });
}

#[test]
fn local_writing_alone_is_refused_or_not() {
    let register = |local_write_alone, access| {
        value_of(under(|rules| rules.local_write_alone = local_write_alone), async |net| {
            let raw = Raw::new(device(&net, "a"), &QpInit::with_frames(7), ALL, FRAME);
            raw.register_again(access).map(|_| ()).map_err(|error| error.errno())
        })
    };
    assert_eq!(register(true, Access::LOCAL_WRITE), Ok(()));
    assert_eq!(register(false, Access::LOCAL_WRITE), Err(22));
    assert_eq!(register(false, ALL), Ok(()));
}

#[test]
fn data_beyond_a_4_gib_boundary_is_lost_or_not() {
    let arrived = |boundary| {
        value_of(under(|rules| rules.boundary = boundary), async |net| {
            happen(&net, "b:rdma_en2 boundary").await;
            let [a, b] = raws(&net);
            let base = b.region().base();
            assert_ne!(base >> 32, (base + (1 << 17) - 1) >> 32, "the region crosses");
            let half = 1 << 16;
            a.write(0, &[7; 2 * FRAME]);
            b.recv(1, &[b.sge(half - FRAME..half + FRAME)]).unwrap();
            a.post(1, SendOp::Send, &[a.sge(0..2 * FRAME)]).unwrap();
            let done = b.completion().await;
            assert_eq!((done.status, done.byte_len), (Status::Success, 8192), "no error is reported");
            let is_sent = |bytes: Vec<u8>| bytes == [7; FRAME];
            [is_sent(b.read(half - FRAME..half)), is_sent(b.read(half..half + FRAME))]
        })
    };
    assert_eq!(arrived(true), [true, false]);
    assert_eq!(arrived(false), [true, true]);
    // The fault concerns one region; others never cross.
    Sim::new().simulate(async |net| {
        happen(&net, "a:rdma_en2 boundary").await;
        let [a, _b] = raws(&net);
        let next = a.register_again(ALL).unwrap().base();
        assert_eq!(next >> 32, (next + (1 << 17) - 1) >> 32);
    });
}

#[test]
fn a_sender_does_not_read_beyond_the_boundary() {
    Sim::new().simulate(async |net| {
        happen(&net, "a:rdma_en2 boundary").await;
        let [a, b] = raws(&net);
        let half = 1 << 16;
        a.write(half - 2, &[7; 4]);
        b.recv(1, &[b.sge(0..4)]).unwrap();
        a.post(1, SendOp::Send, &[a.sge(half - 2..half + 2)]).unwrap();
        assert_eq!(b.completion().await.status, Status::Success);
        assert_eq!(b.read(0..4), [7, 7, 0, 0]);
    });
}

#[test]
fn late_memory_receives_nothing_or_does() {
    let receive = |late| {
        value_of(under(|rules| rules.late_registration = late), async |net| {
            let [a, b] = raws(&net);
            a.write(0, b"late");
            let region = b.register_again(Access::LOCAL_WRITE).unwrap();
            let sge = Sge { addr: region.base() + 4096, len: 4, lkey: region.lkey() };
            b.recv(1, &[sge]).unwrap();
            a.post(1, SendOp::Send, &[a.sge(0..4)]).unwrap();
            // Sending from such memory works either way.
            let done = b.completion().await;
            a.recv(2, &[a.sge(8192..8196)]).unwrap();
            b.post(2, SendOp::Send, &[sge]).unwrap();
            assert_eq!(a.completion().await.status, Status::Success);
            assert_eq!(a.completion().await.status, Status::Success);
            (done.status, b.read(4096..4100) == b"late")
        })
    };
    assert_eq!(receive(false), (Status::LocalProtection, false));
    assert_eq!(receive(true), (Status::Success, true));
}

/// Regression: memory that was registered between two connections of a queue pair counted as late for the second.
#[test]
fn memory_registered_before_a_reconnection_is_not_late() {
    Sim::new().simulate(async |net| {
        let [a, b] = raws(&net);
        let region = b.register_again(Access::LOCAL_WRITE).unwrap();
        for raw in [&a, &b] {
            raw.qp.modify(Transition::Reset).unwrap();
            raw.qp.modify(Transition::Init).unwrap();
        }
        b.recv(1, &[Sge { addr: region.base(), len: 4, lkey: region.lkey() }]).unwrap();
        a.connect(&b);
        a.post(1, SendOp::Send, &[a.sge(0..4)]).unwrap();
        assert_eq!(b.completion().await.status, Status::Success);
    });
}

#[test]
fn a_receive_needs_the_right_to_write() {
    Sim::new().simulate(async |net| {
        let [a, b] = Raw::pair(&net, &QpInit::with_frames(7), Access::REMOTE_READ, FRAME);
        b.recv(1, &[b.sge(0..4)]).unwrap();
        a.post(1, SendOp::Send, &[a.sge(0..4)]).unwrap();
        assert_eq!(b.completion().await.status.code(), 4);
        assert_eq!(a.completion().await.status, Status::Success);
    });
}

#[test]
fn keys_begin_at_0x101_and_are_unique() {
    Sim::new().simulate(async |net| {
        let raw = Raw::new(device(&net, "a"), &QpInit::with_frames(7), ALL, FRAME);
        assert_eq!((raw.region().lkey(), raw.region().rkey()), (Lkey(0x101), None));
        let next = raw.register_again(ALL).unwrap().lkey();
        assert_ne!(next, Lkey(0x101));
        assert_ne!(
            raw.register_again(ALL).unwrap().lkey(),
            next,
            "a key that was given back is not given again"
        );
        let other = Raw::new(device(&net, "b"), &QpInit::with_frames(7), ALL, FRAME);
        assert_eq!(other.region().lkey(), Lkey(0x101));
    });
}

/// Catches a simulator that gives no key again under the rule, and an old key that reaches the region which was deregistered.
#[test]
fn a_key_that_was_given_back_is_given_again_or_not() {
    let old_key = |reuses| {
        value_of(under(|rules| rules.reuses_keys = reuses), async |net| {
            let [a, b] = raws(&net);
            let old = a.register_again(ALL).unwrap();
            let before = Sge { addr: old.base(), len: 4, lkey: old.lkey() };
            drop(old);
            let new = a.register_again(ALL).unwrap();
            let other = a.register_again(ALL).unwrap();
            assert_ne!(new.lkey(), other.lkey(), "a key has one region at a time");
            b.recv(1, &[b.sge(0..4)]).unwrap();
            let accepted = [before.addr, new.base()]
                .map(|addr| a.post(1, SendOp::Send, &[Sge { addr, ..before }]).is_ok());
            if accepted[1] {
                assert_eq!(a.completion().await.status, Status::Success);
            }
            accepted
        })
    };
    assert_eq!(old_key(false), [false, false], "a program that keeps an old key is refused");
    assert_eq!(old_key(true), [false, true], "an old key passes for the new one");
}

#[test]
fn memory_that_is_not_registered_is_refused() {
    Sim::new().simulate(async |net| {
        let [a, b] = raws(&net);
        let whole = a.sge(0..1 << 17);
        let unknown = Sge { lkey: Lkey(0x999), len: 4, ..whole };
        let outside = [
            Sge { len: whole.len + 1, ..whole },
            Sge { addr: whole.addr - 1, len: 4, ..whole },
            Sge { addr: whole.addr + (1 << 17) - 3, len: 4, ..whole },
        ];
        for sge in [unknown].into_iter().chain(outside) {
            let refused = a.post(1, SendOp::Send, &[sge]).unwrap_err();
            let is_right = match refused.cause {
                Cause::Invalid(Invalid::Lkey { .. }) => sge.lkey == unknown.lkey,
                Cause::Invalid(Invalid::OutsideRegion { .. }) => sge.lkey == whole.lkey,
                _ => false,
            };
            assert!(is_right, "{refused}");
            assert_eq!(errno(a.recv(1, &[sge])), 22);
        }
        // A refused post takes nothing: neither space nor a receive.
        b.recv(1, &[b.sge(0..4)]).unwrap();
        a.post(2, SendOp::Send, &[a.sge(0..4)]).unwrap();
        assert_eq!(b.completion().await.status, Status::Success);
        assert_eq!(a.completion().await.id.0, 2);
        rest(&net, Duration::from_secs(1)).await;
        assert_eq!((a.poll(), b.poll()), (None, None));
    });
}

#[test]
fn memory_that_is_gone_ends_in_a_protection_error() {
    // The sanitizer would call it what it is.
    Sim::new().sanitize(false).simulate(async |net| {
        let [a, mut b] = raws(&net);
        b.recv(1, &[b.sge(0..4)]).unwrap();
        b.region = None;
        a.post(1, SendOp::Send, &[a.sge(0..4)]).unwrap();
        assert_eq!(b.completion().await.status, Status::LocalProtection);
        assert_eq!(a.completion().await.status, Status::Success);
        let [mut a, b] = raws(&net);
        a.post(1, SendOp::Send, &[a.sge(0..4)]).unwrap();
        a.region = None;
        b.recv(1, &[b.sge(0..4)]).unwrap();
        assert_eq!(a.completion().await.status, Status::LocalProtection);
    });
}
