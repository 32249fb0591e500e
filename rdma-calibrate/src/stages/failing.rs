//! Transitions to RTR that may fail: few, and last, because some ports were reported to wedge after many

use std::sync::Arc;
use std::time::Duration;

use rdma_core::{Cause, Device, Gid, Transition};
use rdma_sim::profile::Decided;

use crate::error::CalibrateError;
use crate::lab::{Lab, nowhere};
use crate::machine::Path;

const STAGE: &str = "transitions that may fail";
const UNCLEAR: &str = "the transition failed otherwise";

pub(super) async fn run(lab: &mut Lab<'_>) -> Result<(), CalibrateError> {
    match connect(lab, Path { mtu: 4096, ..Path::default() }).await? {
        Ok(()) => lab.findings.decide("rules.large_mtu", true),
        Err(Cause::PeerUnreachable) => lab.findings.decide("rules.large_mtu", false),
        Err(_) => lab.findings.leave("rules.large_mtu", UNCLEAR),
    }
    let gids = lab.device.gids().map_err(|error| CalibrateError::Verb { stage: STAGE, error })?;
    let is_other = |gid: &Gid| !gid.is_zero() && gid.ipv4().is_none();
    match gids.iter().position(is_other) {
        None => lab.findings.leave("rules.source_gid", "the port has IPv4 addresses only"),
        Some(index) => match connect(lab, Path { source_index: Some(index as u8), ..Path::default() }).await?
        {
            Ok(()) => lab.findings.decide("rules.source_gid", "any"),
            Err(Cause::NoUsableGid | Cause::Invalid(_)) => lab.findings.decide("rules.source_gid", "ipv4"),
            Err(_) => lab.findings.leave("rules.source_gid", UNCLEAR),
        },
    }
    unresolved(lab).await
}

/// Connects over a path with other attributes, and says how that ended
async fn connect(lab: &mut Lab<'_>, path: Path) -> Result<Result<(), Cause>, CalibrateError> {
    let device = lab.open(path).map_err(|error| CalibrateError::Verb { stage: STAGE, error })?;
    let (station, peer) = lab.half_pair(STAGE, &device, 64, 1 << 16).await?;
    let connected = station.connect(&peer);
    // A call that fails may take a second, which must not be counted to the next.
    lab.rest(Duration::from_micros(1)).await;
    Ok(connected.map_err(|error| error.cause))
}

/// Decides how a transition to RTR ends if the peer is not there, and measures how long it takes
async fn unresolved(lab: &mut Lab<'_>) -> Result<(), CalibrateError> {
    let device = Arc::clone(&lab.device);
    let (station, peer) = lab.half_pair(STAGE, &device, 64, 1 << 16).await?;
    let peer = nowhere(&peer);
    let (connected, took) = lab.time(|| station.modify(Transition::ReadyToReceive { peer })).await;
    match connected.map_err(|error| error.cause) {
        Err(Cause::NoNeighbour) => lab.findings.decide("rules.unresolved", "not-permitted"),
        Err(Cause::PeerUnreachable) => lab.findings.decide("rules.unresolved", "timed-out"),
        Ok(()) => lab.findings.leave("rules.unresolved", "a peer that is not there was accepted"),
        Err(_) => lab.findings.leave("rules.unresolved", UNCLEAR),
    }
    // A transition that fails takes what each transition does, and waits beside that.
    let modify = match lab.findings.profile.decided("timing.modify_ns") {
        Some(Decided::Measured) => Duration::from_nanos(lab.findings.profile.model.timing.modify_ns),
        _ => Duration::ZERO,
    };
    let took = took.saturating_sub(modify);
    if took.is_zero() {
        lab.findings.leave("timing.unresolved_rtr_ns", "the clock did not move during the call");
    } else {
        lab.findings.decide("timing.unresolved_rtr_ns", took.as_nanos());
    }
    Ok(())
}
