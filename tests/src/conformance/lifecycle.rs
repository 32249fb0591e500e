//! Devices and their objects: how they come and go, and how many there can be

use rdma_bare::BareQp;
use rdma_core::{
    Cause, CompletionQueue, Device, PortState, QpInit, QpState, QpType, QueuePair, Resource, Transition,
};

use super::{Arm, Outcome};

pub(super) fn a_device_has_a_name_and_caps<A: Arm>(arm: &A) {
    let device = arm.open(0).unwrap();
    assert!(!device.name().is_empty());
    let caps = device.caps();
    assert!(
        caps.max_qp >= 1 && caps.max_cq >= 1 && caps.max_mr >= 1 && caps.max_pd >= 1 && caps.max_sge >= 1
    );
    assert!(caps.max_cqe >= 16 && caps.max_queue_frames >= 16 && caps.max_message >= 4096);
}

pub(super) fn a_port_with_a_cable_is_active<A: Arm>(arm: &A) {
    for end in [0, 1] {
        assert_eq!(arm.open(end).unwrap().port().unwrap().state, PortState::Active);
    }
}

pub(super) fn the_gid_table_has_an_ipv4_entry<A: Arm>(arm: &A) {
    let gids = arm.open(0).unwrap().gids().unwrap();
    assert!(gids.iter().any(|gid| gid.ipv4().is_some()), "{gids:?}");
    assert!(!gids.last().unwrap().is_zero(), "unset entries at the end are left out");
}

pub(super) fn a_device_opens_twice<A: Arm>(arm: &A) {
    let (one, two) = (arm.open(0).unwrap(), arm.open(0).unwrap());
    assert_eq!(one.name(), two.name());
    drop(one);
    two.create_cq(4).unwrap();
}

pub(super) fn a_completion_queue_of_depth_one_works<A: Arm>(arm: &A) {
    arm.open(0).unwrap().create_cq(1).unwrap();
}

pub(super) fn a_completion_queue_without_depth_is_refused<A: Arm>(arm: &A) {
    let refused = arm.open(0).unwrap().create_cq(0).err().unwrap();
    assert!(matches!(refused.cause, Cause::Invalid(_)), "{refused:?}");
}

pub(super) fn a_completion_queue_too_deep_is_refused<A: Arm>(arm: &A) {
    let device = arm.open(0).unwrap();
    let refused = device.create_cq(device.caps().max_cqe + 1).err().unwrap();
    assert!(matches!(refused.cause, Cause::Invalid(_)), "{refused:?}");
}

pub(super) fn queue_pairs_have_different_numbers<A: Arm>(arm: &A) {
    let cq = arm.open(0).unwrap().create_cq(16).unwrap();
    let pairs: Vec<_> = (0..4).map(|_| cq.create_qp(&QpInit::with_frames(8)).unwrap()).collect();
    let mut numbers: Vec<_> = pairs.iter().map(|qp| qp.address().qpn).collect();
    numbers.sort();
    numbers.dedup();
    assert_eq!(numbers.len(), pairs.len());
}

pub(super) fn an_address_is_in_the_gid_table<A: Arm>(arm: &A) {
    let device = arm.open(0).unwrap();
    let qp = device.create_cq(16).unwrap().create_qp(&QpInit::with_frames(8)).unwrap();
    assert!(device.gids().unwrap().contains(&qp.address().gid));
    assert!(qp.address().gid.ipv4().is_some());
}

pub(super) fn objects_can_be_made_again_and_again<A: Arm>(arm: &A) {
    for _ in 0..50 {
        drop(BareQp::new(arm.open(0).unwrap(), &QpInit::with_frames(8), 4096).unwrap());
    }
}

pub(super) fn a_destroyed_queue_pair_refuses_everything<A: Arm>(arm: &A) {
    let cq = arm.open(0).unwrap().create_cq(16).unwrap();
    let mut qp = cq.create_qp(&QpInit::with_frames(8)).unwrap();
    let _ = qp.destroy();
    assert_eq!(qp.state(), QpState::Error);
    assert!(matches!(qp.modify(Transition::Reset).err().unwrap().cause, Cause::Invalid(_)));
}

pub(super) fn destroying_twice_says_the_same<A: Arm>(arm: &A) {
    let cq = arm.open(0).unwrap().create_cq(16).unwrap();
    let mut qp = cq.create_qp(&QpInit::with_frames(8)).unwrap();
    assert_eq!(qp.destroy(), qp.destroy());
}

/// Makes objects until there are `limit`, sees the next one refused, and that one can be made when another is gone
fn assert_limited<A: Arm, T>(
    arm: &A,
    limit: u32,
    resource: Resource,
    make: impl Fn() -> Result<T, rdma_core::Error>,
) -> Outcome {
    if !arm.expectations().limits_are_small {
        return Err("the limits are too high to be reached");
    }
    let mut made: Vec<_> =
        (0..limit).map(|number| make().unwrap_or_else(|e| panic!("{number}: {e}"))).collect();
    let refused = make().err().unwrap();
    assert_eq!(refused.cause, Cause::Exhausted { resource, limit });
    made.pop();
    made.push(make().unwrap());
    Ok(())
}

pub(super) fn queue_pairs_are_limited<A: Arm>(arm: &A) -> Outcome {
    let device = arm.open(0).unwrap();
    let cq = device.create_cq(16).unwrap();
    assert_limited(arm, device.caps().max_qp, Resource::QueuePairs, || cq.create_qp(&QpInit::with_frames(8)))
}

pub(super) fn completion_queues_are_limited<A: Arm>(arm: &A) -> Outcome {
    let device = arm.open(0).unwrap();
    assert_limited(arm, device.caps().max_cq, Resource::CompletionQueues, || device.create_cq(4))
}

pub(super) fn regions_are_limited<A: Arm>(arm: &A) -> Outcome {
    let (device, memory) = (arm.open(0).unwrap(), super::memory::Memory::new());
    assert_limited(arm, device.caps().max_mr, Resource::MemoryRegions, || memory.register(&device))
}

pub(super) fn protection_domains_are_limited<A: Arm>(arm: &A) -> Outcome {
    let limit = arm.open(0).unwrap().caps().max_pd;
    assert_limited(arm, limit, Resource::ProtectionDomains, || arm.open(0))
}

pub(super) fn reliable_queue_pairs_are_for_others<A: Arm>(arm: &A) {
    let cq = arm.open(0).unwrap().create_cq(16).unwrap();
    let made = cq.create_qp(&QpInit { qp_type: QpType::Rc, ..QpInit::with_frames(8) });
    if arm.expectations().is_unreliable_only {
        assert_eq!(made.err().unwrap().cause, Cause::Unsupported);
    } else {
        made.unwrap();
    }
}

pub(super) fn datagram_queue_pairs_are_refused<A: Arm>(arm: &A) -> Outcome {
    if !arm.expectations().is_unreliable_only {
        return Err("datagram queue pairs exist, and these traits do not use them");
    }
    let cq = arm.open(0).unwrap().create_cq(16).unwrap();
    let refused = cq.create_qp(&QpInit { qp_type: QpType::Ud, ..QpInit::with_frames(8) }).err().unwrap();
    assert_eq!(refused.cause, Cause::Unsupported);
    Ok(())
}
