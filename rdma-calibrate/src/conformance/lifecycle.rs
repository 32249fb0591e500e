//! Devices and their objects: how they come and go, and how many there can be

use std::sync::Arc;

use rdma_core::{
    AnyQueuePair, Cause, CompletionQueue, Device, Error, PortState, QpInit, QpState, QpType, Qpn, QueuePair,
    Resource, Status, Transition,
};

use super::body::Body;
use super::raw::Raw;
use super::verdict::{Outcome, refused, skip};
use crate::lab::Lab;
use crate::machine::Path;
use crate::memory::{ALL_ACCESS, Memory};

pub(super) async fn a_device_has_a_name_and_caps(body: &mut Body<'_, '_>) -> Outcome {
    ensure!(!body.device().name().is_empty(), "the device has no name");
    let caps = body.caps();
    let objects = [caps.max_qp, caps.max_cq, caps.max_mr, caps.max_pd];
    let entries = [caps.max_cqe, caps.max_queue_frames, caps.max_sge];
    ensure!(objects.iter().chain(&entries).all(|count| *count >= 1) && caps.max_message >= 4096, "{caps:?}");
    Ok(())
}

const THUNDERBOLT: &str = "the device is no Thunderbolt port";

pub(super) async fn a_device_is_named_after_its_interface(body: &mut Body<'_, '_>) -> Outcome {
    if !body.expectations.is_thunderbolt {
        return skip(THUNDERBOLT);
    }
    let device = body.device();
    let number = device.name().strip_prefix("rdma_en").unwrap_or_default();
    ensure!(
        number.starts_with(|first: char| first.is_ascii_digit()),
        "the device is called {}",
        device.name()
    );
    Ok(())
}

pub(super) async fn a_port_with_a_cable_is_active(body: &mut Body<'_, '_>) -> Outcome {
    for end in [0, 1] {
        ensure_eq!(body.port(end).await?, PortState::Active, "the port of end {end}");
    }
    Ok(())
}

pub(super) async fn the_gid_table_has_an_ipv4_entry(body: &mut Body<'_, '_>) -> Outcome {
    let gids = body.device().gids()?;
    ensure!(gids.iter().any(|gid| gid.ipv4().is_some()), "{gids:?}");
    ensure!(gids.last().is_some_and(|gid| !gid.is_zero()), "the last entry is unset: {gids:?}");
    Ok(())
}

pub(super) async fn the_first_of_three_gids_is_an_eui_64(body: &mut Body<'_, '_>) -> Outcome {
    if !body.expectations.is_thunderbolt {
        return skip(THUNDERBOLT);
    }
    let gids = body.device().gids()?;
    let is_eui_64 =
        gids.first().is_some_and(|gid| gid.0[..2] == [0xfe, 0x80] && gid.0[11..13] == [0xff, 0xfe]);
    ensure!(is_eui_64 && gids.iter().filter(|gid| !gid.is_zero()).count() == 3, "{gids:?}");
    Ok(())
}

pub(super) async fn a_device_opens_twice(body: &mut Body<'_, '_>) -> Outcome {
    let (one, two) = (body.lab.open(Path::default())?, body.lab.open(Path::default())?);
    ensure_eq!(one.name(), two.name(), "the names of two");
    drop(one);
    two.create_cq(4)?;
    Ok(())
}

pub(super) async fn a_completion_queue_of_depth_one_works(body: &mut Body<'_, '_>) -> Outcome {
    let peer = body.make(1, 16, 4096).await?;
    let mut raw = Raw::new(&body.device(), 1, 1, 64, 0)?;
    body.connect_beside(|| raw.connect(&peer.address))?;
    body.connect_to_address(peer, raw.address()).await?;
    for id in 1..=3 {
        raw.recv(id, 0..8)?;
        body.send(peer, id, 0..8).await?;
        ensure_eq!(body.polled(&raw).await?, (id, Status::Success), "the receive that completed");
    }
    Ok(())
}

/// Stops unless an error says that the arguments are invalid
pub(super) fn invalid(error: Error) -> Outcome {
    ensure!(matches!(error.cause, Cause::Invalid(_)), "refused otherwise: {error}");
    Ok(())
}

pub(super) async fn a_completion_queue_without_depth_is_refused(body: &mut Body<'_, '_>) -> Outcome {
    invalid(refused(body.device().create_cq(0), "a depth of 0")?)
}

pub(super) async fn a_completion_queue_too_deep_is_refused(body: &mut Body<'_, '_>) -> Outcome {
    let max = body.caps().max_cqe;
    let Some(deeper) = max.checked_add(1) else { return skip("the device states no limit") };
    invalid(refused(body.device().create_cq(deeper), "a depth beyond the limit")?)
}

pub(super) async fn queue_pairs_have_different_numbers(body: &mut Body<'_, '_>) -> Outcome {
    let cq = body.device().create_cq(16)?;
    let count = body.caps().max_qp.min(4);
    let made: Result<Vec<_>, _> = (0..count).map(|_| cq.create_qp(&init(body))).collect();
    let made = made?;
    let mut numbers: Vec<_> = made.iter().map(|qp| qp.address().qpn).collect();
    numbers.sort();
    numbers.dedup();
    ensure_eq!(numbers.len(), made.len(), "different numbers");
    Ok(())
}

pub(super) async fn queue_pair_numbers_are_hops(body: &mut Body<'_, '_>) -> Outcome {
    if !body.expectations.is_thunderbolt {
        return skip(THUNDERBOLT);
    }
    let cq = body.device().create_cq(16)?;
    let create = || cq.create_qp(&init(body));
    let (one, other) = (create()?, create()?);
    for Qpn(number) in [one.address().qpn, other.address().qpn] {
        let is_hop = number.is_multiple_of(256) && number >= 9 * 256;
        ensure!(is_hop, "{number} is no multiple of 256 from 9 * 256 on");
    }
    Ok(())
}

/// A queue pair of few frames
fn init(body: &Body<'_, '_>) -> QpInit {
    QpInit::with_frames(body.caps().max_queue_frames.min(8))
}

/// A queue pair of this side
fn one(body: &Body<'_, '_>) -> Result<AnyQueuePair, Error> {
    body.device().create_cq(16)?.create_qp(&init(body))
}

pub(super) async fn an_address_is_in_the_gid_table(body: &mut Body<'_, '_>) -> Outcome {
    let gid = one(body)?.address().gid;
    ensure!(body.device().gids()?.contains(&gid), "{gid} is not in the table");
    ensure!(gid.ipv4().is_some(), "{gid} is no IPv4 address");
    Ok(())
}

pub(super) async fn objects_can_be_made_again_and_again(body: &mut Body<'_, '_>) -> Outcome {
    for _ in 0..50 {
        let made = body.make(0, 8, 4096).await?;
        body.close(made).await?;
    }
    for _ in 0..10 {
        drop(body.lab.open(Path::default())?);
        body.lab.keep_alive().await?;
    }
    Ok(())
}

pub(super) async fn a_destroyed_queue_pair_refuses_everything(body: &mut Body<'_, '_>) -> Outcome {
    let mut qp = one(body)?;
    let _ = qp.destroy();
    ensure_eq!(qp.state(), QpState::Error, "its state");
    invalid(refused(qp.modify(Transition::Reset), "a transition")?)
}

pub(super) async fn destroying_twice_says_the_same(body: &mut Body<'_, '_>) -> Outcome {
    let mut qp = one(body)?;
    ensure_eq!(qp.destroy(), qp.destroy(), "the second answer");
    Ok(())
}

/// Makes objects until one is refused, which have to be `least`, and sees that one can be made when another is gone
///
/// More are no failure: the library states no more than what Apple's device has.
async fn limited<T>(
    body: &mut Body<'_, '_>,
    least: u32,
    resource: Resource,
    make: impl Fn(&Lab<'_>) -> Result<T, Error>,
) -> Outcome {
    if !body.expectations.limits_are_small {
        return skip("the limits are too high to be reached");
    }
    let (mut made, refused) = body.lab.make_most(MOST, &make).await?;
    match refused {
        Some(Error { cause: Cause::Exhausted { resource: of, .. }, .. }) if of == resource => (),
        None => (),
        Some(error) => return Err(error.into()),
    }
    ensure!(made.len() >= least as usize, "{} could be made, of {least}", made.len());
    made.pop();
    make(body.lab)?;
    Ok(body.lab.destroy_all(made).await?)
}

/// More objects than any limit of Apple's device
const MOST: usize = 256;

pub(super) async fn queue_pairs_are_limited(body: &mut Body<'_, '_>) -> Outcome {
    let cq = body.device().create_cq(16)?;
    let limit = body.caps().max_qp;
    // Apple's device states 11 and has 10.
    let init = init(body);
    limited(body, limit.saturating_sub(1), Resource::QueuePairs, |_| cq.create_qp(&init)).await
}

pub(super) async fn completion_queues_are_limited(body: &mut Body<'_, '_>) -> Outcome {
    let (device, limit) = (body.device(), body.caps().max_cq);
    limited(body, limit, Resource::CompletionQueues, |_| device.create_cq(4)).await
}

pub(super) async fn regions_are_limited(body: &mut Body<'_, '_>) -> Outcome {
    // Under macOS 26.2, one too many was reported to end the process.
    body.mode.exhaustion.or_else(skip)?;
    let (device, limit) = (body.device(), body.caps().max_mr);
    limited(body, limit, Resource::MemoryRegions, |_| Memory::register(&device, 0, 4096, ALL_ACCESS)).await
}

pub(super) async fn protection_domains_are_limited(body: &mut Body<'_, '_>) -> Outcome {
    // Some Macs were reported to lose protection domains until they are rebooted.
    body.mode.exhaustion.or_else(skip)?;
    let limit = body.caps().max_pd;
    // The calibration has one of its own.
    limited(body, limit.saturating_sub(1), Resource::ProtectionDomains, |lab| lab.open(Path::default())).await
}

pub(super) async fn reliable_queue_pairs_are_for_others(body: &mut Body<'_, '_>) -> Outcome {
    let made = of_type(body, QpType::Rc);
    if body.expectations.is_unreliable_only {
        ensure_eq!(refused(made, "a reliable one")?.cause, Cause::Unsupported, "the refusal");
    } else {
        made?;
    }
    Ok(())
}

pub(super) async fn datagram_queue_pairs_are_refused(body: &mut Body<'_, '_>) -> Outcome {
    if !body.expectations.is_unreliable_only {
        return skip("datagram queue pairs exist, and this library does not use them");
    }
    let made = of_type(body, QpType::Ud);
    ensure_eq!(refused(made, "one for datagrams")?.cause, Cause::Unsupported, "the refusal");
    Ok(())
}

fn of_type(body: &Body<'_, '_>, qp_type: QpType) -> Result<AnyQueuePair, Error> {
    let device = Arc::clone(&body.lab.device);
    device.create_cq(16)?.create_qp(&QpInit { qp_type, ..init(body) })
}
