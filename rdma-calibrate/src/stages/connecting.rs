//! Connecting, and from when on receives are accepted

use std::sync::Arc;

use rdma_core::{Cause, Device, Error, Gid, QpAddress, Transition};

use crate::error::{CalibrateError, PeerFailure};
use crate::lab::Lab;
use crate::message::Request;
use crate::station::{Station, slot};

/// The rate of a Thunderbolt 4 link.
const TB4: u64 = 40_000_000_000;

pub(super) async fn run(lab: &mut Lab<'_>) -> Result<(), CalibrateError> {
    let device = Arc::clone(&lab.device);
    let peer = lab.make(0, 64, 1 << 16).await?;
    let mut station = Station::new(&lab.runtime, &device, 64, 1 << 16)?;
    let connected = lab.ask(Request::Connect { address: station.address() }).await;
    connected.map_err(|error| with_source(error, &peer))?;
    let accepts = |station: &mut Station, number| station.recv(slot(number, 8)).is_ok();
    let at_init = accepts(&mut station, 0);
    let is_ready = station.modify(Transition::ReadyToReceive { peer });
    is_ready.map_err(|error| with_source(error.into(), &station.address()))?;
    let at_rtr = accepts(&mut station, 1);
    station.modify(Transition::ReadyToSend)?;
    let from = match (at_init, at_rtr) {
        (true, _) => "from-init",
        (false, true) => "from-rtr",
        (false, false) => "from-rts",
    };
    lab.findings.decide("rules.early_receives", from);
    match station.address().gid.ipv4() {
        Some(address) if address.is_link_local() => lab.findings.decide("rules.link_local_source", true),
        _ => lab.findings.leave("rules.link_local_source", "the port has no address of 169.254.0.0/16"),
    }
    if lab.findings.port.bits_per_second == TB4 {
        lab.findings.decide("rules.tb4_devices", true);
    } else {
        lab.findings.leave("rules.tb4_devices", "the link is not one of 40 Gb/s");
    }
    let gids = lab.device.gids()?;
    match gids.iter().position(|gid| gid.ipv4().is_some()) {
        Some(index @ 1..=2) if !gids[..index].iter().any(Gid::is_zero) => {
            lab.findings.decide("rules.ipv4_gid_index", index);
        }
        _ => lab
            .findings
            .leave("rules.ipv4_gid_index", "the IPv4 entry has moved, or the addresses were configured"),
    }
    lab.findings.figure("GID table", gids.iter().map(Gid::to_string).collect::<Vec<_>>().join(", "));
    Ok(())
}

/// The error of the first connection, with its source if that may be the cause
fn with_source(error: CalibrateError, source: &QpAddress) -> CalibrateError {
    let (CalibrateError::Verb(Error { cause, .. })
    | CalibrateError::PeerFailed(PeerFailure::Verb(Error { cause, .. }))) = &error
    else {
        return error;
    };
    match source.gid.ipv4().filter(|address| address.is_link_local()) {
        Some(source_address) if *cause == Cause::PeerUnreachable => {
            CalibrateError::LinkLocalSource { source_address, error: Box::new(error) }
        }
        _ => error,
    }
}
