//! Which faults of a fabric have fired

use rdma_core::Time;
use rdma_sim::{Fault, FaultKind, Trigger};
use rdma_sim_verbs::shared::SharedFabric;

use super::host::Host;

/// The faults of a fabric, each with whether it has fired
pub(crate) fn of(fabric: &SharedFabric) -> Vec<(Fault, bool)> {
    let now = Time::from_nanos(fabric.now_ns());
    let is_fired = |fault: &Fault| {
        has_fired(fault, now, || fabric.port_of(&fault.target).map_or(0, |port| fabric.sent()[port].frames))
    };
    fabric.faults().into_iter().map(|fault| (fault.clone(), is_fired(&fault))).collect()
}

/// Whether a fault has fired by `now`, if the port that it may wait for has sent as many frames as `sent` returns
pub(crate) fn has_fired(fault: &Fault, now: Time, sent: impl FnOnce() -> u64) -> bool {
    match fault.trigger {
        Trigger::At(time) => time <= now,
        Trigger::AfterFrames(frames) => sent() >= frames.max(1),
        _ => false,
    }
}

/// The fault that killed the program of a host, if there is one
pub(super) fn that_killed(fabric: &SharedFabric, host: &Host) -> Option<Fault> {
    if host.ended_by() != Some(libc::SIGKILL) {
        return None;
    }
    let kills = |fault: &Fault| {
        fault.target.host() == host.name
            && matches!(fault.kind, FaultKind::Kill | FaultKind::Reboot { .. } | FaultKind::Restart)
    };
    let mut faults = of(fabric).into_iter();
    // A process may be killed between a frame and its count, so assume that a frame-triggered kill fired.
    faults
        .find(|(fault, fired)| kills(fault) && (*fired || matches!(fault.trigger, Trigger::AfterFrames(_))))
        .map(|(fault, _)| fault)
}
