//! Registered memory
#![allow(unsafe_code, reason = "registering and posting are unsafe in the traits")]

use rdma_arena::Arena;
use rdma_core::{Access, Device, Error, MemoryRegion, QueuePair, SendOp, SendRequest, Sge, Status, WrId};

use super::{Arm, completion, pair, received};

/// Memory to register, of four pages
pub(super) struct Memory(Arena);

impl Memory {
    pub(super) fn new() -> Self {
        Self(Arena::new(4 * 16 * 1024).expect("the system has memory"))
    }

    pub(super) fn register<D: Device>(&self, device: &D) -> Result<D::Mr, Error> {
        // SAFETY: the memory outlives the regions of a behaviour, which does not access posted memory.
        unsafe { device.register(self.0.as_slice_ptr(), Access::LOCAL_WRITE) }
    }
}

pub(super) fn a_region_has_the_length_of_its_memory<A: Arm>(arm: &A) {
    let [mut a, mut b] = pair(arm);
    // The last byte is inside.
    let end = 64 << 12;
    b.recv(1, end - 1..end).unwrap();
    a.send(1, end - 1..end).unwrap();
    assert_eq!(received(arm, &mut b).byte_len, 1);
}

pub(super) fn regions_have_different_keys<A: Arm>(arm: &A) {
    let device = arm.open(0).unwrap();
    let memory = Memory::new();
    let (one, two) = (memory.register(&device).unwrap(), memory.register(&device).unwrap());
    assert_ne!(one.lkey(), two.lkey());
}

pub(super) fn regions_come_and_go<A: Arm>(arm: &A) {
    let device = arm.open(0).unwrap();
    let memory = Memory::new();
    for _ in 0..300 {
        drop(memory.register(&device).unwrap());
    }
}

pub(super) fn a_region_of_one_byte_works<A: Arm>(arm: &A) {
    let arena = Arena::new(1).expect("the system has memory");
    let device = arm.open(0).unwrap();
    // SAFETY: the arena outlives the region, and nothing is posted.
    drop(unsafe { device.register(arena.as_slice_ptr(), Access::LOCAL_WRITE) }.unwrap());
}

/// Posts a send with an element outside of registered memory: the post or the completion fails
fn assert_bad_element<A: Arm>(arm: &A, change: impl Fn(&mut Sge, u64)) {
    let [mut a, b] = pair(arm);
    let memory = Memory::new();
    let region = memory.register(a.device()).unwrap();
    let mut sge = Sge { addr: region.base(), len: 64, lkey: region.lkey() };
    change(&mut sge, 4 * 16 * 1024);
    let request = SendRequest { id: WrId(9), op: SendOp::Send, sgl: &[sge], signaled: true };
    // SAFETY: the device must not access unregistered memory; `memory` outlives the request.
    let posted = unsafe { a.qp().post_send(&request) };
    if arm.expectations().keys_checked_by_post {
        assert!(matches!(posted.err().unwrap().cause, rdma_core::Cause::Invalid(_)));
    } else {
        posted.unwrap();
        let failed = completion(arm, &mut a);
        assert_ne!(failed.status, Status::Success);
        assert_eq!(failed.id, WrId(9));
    }
    drop((a, b));
}

pub(super) fn an_unknown_key_is_an_error<A: Arm>(arm: &A) {
    assert_bad_element(arm, |sge, _| sge.lkey.0 ^= 0x5555_0000);
}

pub(super) fn memory_beyond_the_region_is_an_error<A: Arm>(arm: &A) {
    assert_bad_element(arm, |sge, len| sge.addr += len - 63);
}

pub(super) fn memory_before_the_region_is_an_error<A: Arm>(arm: &A) {
    assert_bad_element(arm, |sge, _| sge.addr -= 1);
}

pub(super) fn remote_keys_are_for_others<A: Arm>(arm: &A) {
    let region = Memory::new();
    let device = arm.open(0).unwrap();
    let region = region.register(&device).unwrap();
    if arm.expectations().is_unreliable_only {
        assert_eq!(region.rkey(), None);
    }
}

pub(super) fn bytes_behind_a_message_stay<A: Arm>(arm: &A) {
    let [mut a, mut b] = pair(arm);
    b.write(0, &[7; 128]);
    a.write(0, &[1; 64]);
    b.recv(1, 0..64).unwrap();
    a.send(1, 0..64).unwrap();
    assert_eq!(received(arm, &mut b).byte_len, 64);
    let found = b.read(0..128);
    assert_eq!((&found[..64], &found[64..]), (&[1; 64][..], &[7; 64][..]));
}

pub(super) fn the_memory_of_a_send_stays<A: Arm>(arm: &A) {
    let [mut a, mut b] = super::pair_of(arm, 64, 64 << 12);
    a.write(0, &[3; 5000]);
    b.recv(1, 0..5000).unwrap();
    a.send(1, 0..5000).unwrap();
    received(arm, &mut b);
    let found = a.read(0..5000);
    assert_eq!(found, [3; 5000]);
}
