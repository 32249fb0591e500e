//! Which faults have happened, by what the fabric says of itself

use rdma::shared::SharedFabric;
use rdma_core::Time;
use rdma_sim::{Fault, Place, What, When};

use super::host::Host;

/// The faults of a fabric, and whether they have happened by now
pub(crate) fn of(fabric: &SharedFabric) -> Vec<(Fault, bool)> {
    let now = Time::from_nanos(fabric.now_ns());
    let happened = |fault: &Fault| match fault.when {
        When::At(time) => time <= now,
        When::AfterFrames(frames) => sent_from(fabric, &fault.place) >= frames.max(1),
        _ => false,
    };
    fabric.faults().into_iter().map(|fault| (fault.clone(), happened(&fault))).collect()
}

/// The frames that count for a fault at a place: of a host, those of its first port with a cable
fn sent_from(fabric: &SharedFabric, place: &Place) -> u64 {
    let topology = fabric.settings().topology();
    let ports = topology.hosts().iter().flat_map(|host| host.ports().iter().map(move |port| (host, port)));
    let is_there = |host: &str, device: &str| match place {
        Place::Port { host: wanted, device: port } => wanted == host && port == device,
        _ => {
            let mut ends = topology.links().flat_map(|link| link.ends);
            place.host() == host && ends.any(|end| end.host == host && end.device == device)
        }
    };
    let mut sent = ports.zip(fabric.sent());
    sent.find(|((host, port), _)| is_there(host.name(), port.device())).map_or(0, |(_, sent)| sent.frames)
}

/// The fault by which the program of a host was killed, if one can have done that
pub(super) fn that_killed(fabric: &SharedFabric, host: &Host) -> Option<Fault> {
    if host.ended_by() != Some(libc::SIGKILL) {
        return None;
    }
    let kills = |fault: &Fault| {
        fault.place.host() == host.name
            && matches!(fault.what, What::Kill | What::Reboot { .. } | What::Restart)
    };
    let mut faults = of(fabric).into_iter();
    // Who is killed does not say any more how much it has sent.
    faults
        .find(|(fault, happened)| kills(fault) && (*happened || matches!(fault.when, When::AfterFrames(_))))
        .map(|(fault, _)| fault)
}
