//! Pools, and what a simulated device knows of them

use std::io::Write as _;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use bytes::BufMut;
use rdma_core::FRAME;
use rdma_sim::Sim;

use super::*;
use crate::wake_count::WakeCount;

const ZONES: [u32; 4] = [4, 2, 3, 1];

/// Runs `test` with a pool of [`ZONES`]
fn with_pool(test: impl FnOnce(Pool)) {
    test(Pool::new(ZONES, 0, 0).unwrap());
}

/// The number of frames that are free for sending, and for receiving
fn free_frames(pool: &Pool) -> (usize, usize) {
    let PoolStats { send, receive, .. } = pool.stats();
    (send.free_bytes / FRAME, receive.free_bytes / FRAME)
}

fn poll(alloc: &mut Alloc, waker: &Waker) -> Poll<Result<Lease, AllocError>> {
    pin!(alloc).poll(&mut Context::from_waker(waker))
}

#[test]
fn a_message_takes_whole_frames_and_no_more_than_its_zone_has() {
    with_pool(|pool| {
        for (len, frames) in [(0, 1), (1, 1), (FRAME, 1), (FRAME + 1, 2), (4 * FRAME, 4)] {
            assert_eq!(pool.frames(Zone::Send, len), Ok(frames));
        }
        for (zone, frames) in [(Zone::Send, 4), (Zone::Eager, 2), (Zone::Bulk, 3)] {
            let max = frames as usize * FRAME;
            assert_eq!(pool.frames(zone, max), Ok(frames));
            assert_eq!(pool.frames(zone, max + 1), Err(AllocError::TooLarge { len: max + 1, max }));
        }
    });
}

/// Catches zones that overlap, and a device that is given another place than where the bytes are.
#[test]
fn zones_lie_behind_each_other_in_one_registration() {
    Sim::new().run(async |net| {
        let pool = Pool::new(ZONES, 0, 0).unwrap();
        let registration = pool.register(&net.open("a", "rdma_en2").unwrap()).unwrap();
        let zones = [(Zone::Send, 4), (Zone::Eager, 2), (Zone::Bulk, 3)];
        let [send, eager, bulk] = zones.map(|(zone, frames)| {
            let mut lease = pool.try_lease(zone, frames).unwrap();
            lease.resize(lease.capacity(), zone as u8 + 1);
            lease
        });
        let sge = |lease: &Lease| registration.sge(lease, 3, 5);
        let place = |lease: &Lease| lease.as_ref().as_ptr().addr();
        for (lease, zone, frames_before) in [(&send, 0, 0), (&eager, 1, 4), (&bulk, 2, 6)] {
            assert!(lease.iter().all(|byte| *byte == zone + 1), "no other zone has written here");
            assert_eq!(sge(lease).addr - sge(&send).addr, (frames_before * FRAME) as u64);
            assert_eq!(place(lease) - place(&send), frames_before * FRAME);
            assert_eq!((sge(lease).len, sge(lease).lkey), (5, sge(&send).lkey));
        }
        drop(send);
        let [first, second] = [(); 2].map(|()| pool.try_lease(Zone::Send, 1).unwrap());
        assert_eq!(sge(&second).addr - sge(&first).addr, FRAME as u64);
    });
}

/// Catches memory of one run of a check that the next one finds: a zone, or an end of one, that is taken for untouched.
#[cfg(target_os = "linux")]
#[test]
fn memory_that_is_used_again_is_zero() {
    let _reuse = rdma_arena::Reuse::on_this_thread();
    const FRAMES: u32 = 300;
    let mut place = None;
    for (single, run) in [(1, 2), (70, 3), (0, 0), (1, FRAMES - 1), (FRAMES, 0)] {
        let pool = Pool::new([FRAMES; 4], 0, 0).unwrap();
        let mut leases = Vec::new();
        for zone in [Zone::Send, Zone::Eager, Zone::Bulk, Zone::Transmit] {
            leases.extend(pool.try_leases(zone, single).unwrap());
            leases.extend(pool.try_lease(zone, run));
        }
        for lease in &mut leases {
            lease.resize(lease.capacity(), 7);
        }
        drop((leases, pool));
        let arena = rdma_arena::Arena::new(4 * FRAMES as usize * FRAME).unwrap();
        assert_eq!(*place.get_or_insert(arena.as_ptr()), arena.as_ptr(), "the mapping is the same");
        #[expect(unsafe_code, reason = "an arena is accessed by pointer")]
        // SAFETY: no device and no lease uses the arena.
        let bytes = unsafe { arena.as_slice_ptr().as_ref() };
        assert!(bytes.iter().all(|byte| *byte == 0), "after {single} frames and a run of {run} in each zone");
    }
}

#[test]
fn the_statistics_count_what_is_leased() {
    with_pool(|pool| {
        let whole = pool.stats();
        assert_eq!((whole.send.total_bytes, whole.receive.total_bytes), (4 * FRAME, 5 * FRAME));
        assert!(whole.is_whole());
        for (zone, frames, free) in [
            (Zone::Send, 1, (3, 5)),
            (Zone::Send, 4, (0, 5)),
            (Zone::Eager, 1, (4, 4)),
            (Zone::Bulk, 2, (4, 3)),
        ] {
            let lease = pool.try_lease(zone, frames).unwrap();
            assert_eq!(free_frames(&pool), free);
            assert!(!pool.stats().is_whole());
            drop(lease);
            assert_eq!(pool.stats(), whole);
        }
    });
}

#[test]
fn memory_of_one_zone_does_not_stand_in_for_another() {
    with_pool(|pool| {
        let all = pool.try_lease(Zone::Eager, 2).unwrap();
        assert!(pool.try_lease(Zone::Eager, 1).is_none());
        assert!(pool.try_lease(Zone::Bulk, 3).is_some());
        assert!(pool.try_alloc(4 * FRAME).is_ok());
        drop(all);
        assert!(pool.try_lease(Zone::Eager, 2).is_some());
    });
}

#[test]
fn an_allocation_waits_for_its_turn_and_none_overtakes_it() {
    with_pool(|pool| {
        let ((count, waker), leased) = (WakeCount::new(), pool.try_alloc(1).unwrap());
        let mut alloc = Alloc::new(&pool, 4 * FRAME);
        assert!(poll(&mut alloc, &waker).is_pending());
        assert_eq!(pool.try_alloc(1).err(), Some(AllocError::WouldBlock), "3 frames are free");
        drop(leased);
        assert_eq!(count.get(), 1);
        let Poll::Ready(Ok(lease)) = poll(&mut alloc, &waker) else { panic!("the memory is free") };
        assert_eq!((lease.capacity(), lease.len()), (4 * FRAME, 0));
    });
}

#[test]
fn an_allocation_that_is_dropped_gives_up_its_place() {
    with_pool(|pool| {
        let (count, waker) = WakeCount::new();
        let leased = pool.try_alloc(1).unwrap();
        let [mut first, mut second] = [4, 1].map(|frames| Alloc::new(&pool, frames * FRAME));
        assert!(poll(&mut first, Waker::noop()).is_pending());
        assert!(poll(&mut second, &waker).is_pending(), "behind the first");
        drop(first);
        assert_eq!(count.get(), 1);
        assert!(poll(&mut second, &waker).is_ready());
        assert!(pool.try_alloc(1).is_ok());
        drop(leased);
    });
}

/// Catches a length that is cast to 32 bits before it is compared.
#[test]
fn an_allocation_that_can_never_succeed_fails_at_once() {
    with_pool(|pool| {
        for len in [4 * FRAME + 1, (1 << 32) + 100, (1 << 44) + 100, usize::MAX] {
            let Poll::Ready(Err(error)) = poll(&mut Alloc::new(&pool, len), Waker::noop()) else {
                panic!("an error")
            };
            assert_eq!(error, AllocError::TooLarge { len, max: 4 * FRAME });
            assert_eq!(pool.try_alloc(len).err(), Some(error));
        }
    });
}

#[test]
fn a_pool_knows_its_own_leases() {
    with_pool(|pool| {
        let other = Pool::new(ZONES, 0, 0).unwrap();
        let lease = pool.try_alloc(1).unwrap();
        assert!(pool.owns(&lease) && pool.clone().owns(&lease) && !other.owns(&lease));
    });
}

#[test]
fn memory_that_a_device_may_still_touch_is_never_leased_again() {
    with_pool(|pool| {
        std::mem::forget(pool.try_alloc(2 * FRAME).unwrap());
        assert_eq!(free_frames(&pool), (2, 5));
        assert_eq!(pool.try_alloc(3 * FRAME).err(), Some(AllocError::WouldBlock));
    });
}

#[test]
fn a_lease_is_a_vector_of_fixed_capacity() {
    with_pool(|pool| {
        let mut lease = pool.try_alloc(FRAME + 1).unwrap();
        assert_eq!((lease.capacity(), &*lease), (2 * FRAME, &[][..]));
        lease.extend_from_slice(b"abc");
        lease.extend_from_slice(b"de");
        assert_eq!((&*lease, lease.as_ref()), (&b"abcde"[..], &b"abcde"[..]));
        lease.truncate(9);
        assert_eq!(*lease, *b"abcde");
        lease.truncate(4);
        lease.resize(6, b'x');
        assert_eq!(*lease, *b"abcdxx");
        lease[0] = b'A';
        lease.resize(2, b'y');
        assert_eq!(*lease, *b"Ab");
        lease.write_at(1, b"BCD");
        assert_eq!(*lease, *b"AB", "the length stays");
        lease.set_received(5);
        assert_eq!(*lease, *b"ABCDx");
        lease.clear();
        assert!(lease.is_empty());
        lease.resize(2 * FRAME, 1);
        lease.clear();
        lease.extend_from_slice(&[2; 2 * FRAME]);
        assert!(lease.iter().all(|byte| *byte == 2));
    });
}

/// Catches a length that is not checked, which would reach the memory of the next lease.
#[test]
fn a_lease_refuses_bytes_beyond_its_capacity() {
    with_pool(|pool| {
        let mut lease = pool.try_alloc(1).unwrap();
        lease.extend_from_slice(b"abc");
        let beyond: [&dyn Fn(&mut Lease); 3] = [
            &|lease| lease.resize(FRAME + 1, 0),
            &|lease| lease.extend_from_slice(&[0; FRAME - 2]),
            &|lease| lease.write_at(FRAME, &[0]),
        ];
        for write in beyond {
            assert!(catch_unwind(AssertUnwindSafe(|| write(&mut lease))).is_err());
            assert_eq!(*lease, *b"abc");
        }
        lease.write_at(FRAME - 1, &[0]);
    });
}

#[test]
fn writers_fill_a_lease_and_no_more() {
    with_pool(|pool| {
        let mut lease = pool.try_alloc(FRAME).unwrap();
        assert_eq!(lease.write(b"abc").unwrap(), 3);
        assert_eq!(lease.remaining_mut(), FRAME - 3);
        lease.put_slice(b"de");
        assert_eq!(*lease, *b"abcde");
        assert_eq!(lease.write(&[0; FRAME]).unwrap(), FRAME - 5);
        assert_eq!((lease.len(), lease.remaining_mut()), (FRAME, 0));
        assert_eq!(lease.write(b"f").unwrap(), 0);
        assert_eq!(lease.write_all(b"f").unwrap_err().kind(), std::io::ErrorKind::WriteZero);
    });
}
