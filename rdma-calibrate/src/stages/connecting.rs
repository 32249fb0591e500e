//! Connecting, and from when on receives are accepted

use std::sync::Arc;

use rdma_core::{Device, Gid, Transition};

use crate::error::CalibrateError;
use crate::lab::Lab;
use crate::station::slot;

/// The rate of a Thunderbolt 4 link.
const TB4: u64 = 40_000_000_000;

pub(super) async fn run(lab: &mut Lab<'_>) -> Result<(), CalibrateError> {
    let device = Arc::clone(&lab.device);
    let (mut station, peer) = lab.half_pair(&device, 64, 1 << 16).await?;
    let accepts = |station: &mut crate::station::Station, number| station.recv(slot(number, 8)).is_ok();
    let at_init = accepts(&mut station, 0);
    station.modify(Transition::ReadyToReceive { peer })?;
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
