//! Transitions to RTR that may fail: few, and last, because some ports were reported to wedge after many
//!
//! After each that has failed, a usual connection shows whether the port is wedged; then no more are tried. Without
//! [`Options::risk_reboot`](crate::Options::risk_reboot), the only one is that which most sources expect to succeed.

use std::sync::Arc;
use std::time::Duration;

use rdma_core::{Cause, Device, Gid, Transition};
use rdma_sim::profile::Decided;

use crate::error::CalibrateError;
use crate::lab::{Lab, nowhere};
use crate::machine::Path;
use crate::plan::NOT_RISKED;

const UNCLEAR: &str = "the transition failed otherwise";

/// A transition to RTR that may fail
#[derive(Clone, Copy)]
enum Attempt {
    LargeMtu,
    SourceGid,
    Unresolved,
}

impl Attempt {
    const ALL: [Self; 3] = [Self::LargeMtu, Self::SourceGid, Self::Unresolved];

    /// The fields that it decides
    fn fields(self) -> &'static [&'static str] {
        match self {
            Self::LargeMtu => &["rules.large_mtu"],
            Self::SourceGid => &["rules.source_gid"],
            Self::Unresolved => &["rules.unresolved", "timing.unresolved_rtr_ns"],
        }
    }

    /// True if most sources expect it to succeed: the only attempt without `--risk-reboot`
    fn is_safe(self) -> bool {
        matches!(self, Self::LargeMtu)
    }

    /// Leaves the fields of the attempt undecided, for this reason
    fn leave(self, lab: &mut Lab<'_>, why: &str) {
        self.fields().iter().for_each(|field| lab.findings.leave(field, why));
        if let Self::Unresolved = self {
            lab.findings.leave_rule("rtr-neighbour", why.to_owned());
        }
    }

    /// Tries it, and returns whether a transition has failed
    async fn run(self, lab: &mut Lab<'_>) -> Result<bool, CalibrateError> {
        match self {
            Self::LargeMtu => large_mtu(lab).await,
            Self::SourceGid => source_gid(lab).await,
            Self::Unresolved => unresolved(lab).await,
        }
    }
}

pub(super) async fn run(lab: &mut Lab<'_>, risks: bool) -> Result<(), CalibrateError> {
    for attempt in Attempt::ALL {
        if !risks && !attempt.is_safe() {
            attempt.leave(lab, NOT_RISKED);
            continue;
        }
        let wedged = lab.findings.wedged.is_some();
        let wedged =
            wedged.then(|| format!("the port was wedged after {}", transitions(lab.transitions.failed())));
        // The behaviours may have made some fail.
        if let Some(why) = wedged.or_else(|| lab.transitions.require().err().map(|error| error.to_string())) {
            attempt.leave(lab, &why);
        } else if attempt.run(lab).await? {
            lab.transitions.count_failed();
            if let Err(why) = usual(lab).await? {
                wedge(lab, &why);
            }
        }
    }
    if lab.findings.wedged.is_none() {
        let why = match lab.transitions.failed() {
            0 => "no transition to RTR has failed".to_owned(),
            failed => {
                format!("after {} the port connects; more may wedge it until a reboot", transitions(failed))
            }
        };
        let why = if risks { why } else { format!("{why}; {NOT_RISKED}") };
        lab.findings.leave("rules.failed_rtr_wedges", &why);
    }
    Ok(())
}

fn transitions(failed: u32) -> String {
    if failed == 1 {
        "1 failed transition to RTR".to_owned()
    } else {
        format!("{failed} failed transitions to RTR")
    }
}

/// Connects as usual; the reason if that fails on this side
///
/// If the peer fails, that is an error: it shows nothing of the port of this side.
async fn usual(lab: &mut Lab<'_>) -> Result<Result<(), String>, CalibrateError> {
    match lab.pair(64, 1 << 16).await {
        Ok(_) => Ok(Ok(())),
        Err(error) if error.is_gone() => Err(error),
        // Some wedged ports make no objects.
        Err(error @ CalibrateError::Verb(_)) => Ok(Err(error.to_string())),
        Err(error) => Err(error),
    }
}

fn wedge(lab: &mut Lab<'_>, why: &str) {
    let failed = lab.transitions.failed();
    let findings = &mut lab.findings;
    findings.decide("rules.failed_rtr_wedges", failed);
    findings
        .profile
        .remark("rules.failed_rtr_wedges", "fewer if transitions had failed since the last reboot");
    findings.wedged = Some(format!(
        "the port of {} is wedged after {} ({why}): reboot this Mac, because no program connects over the port until then",
        findings.device,
        transitions(failed),
    ));
}

async fn large_mtu(lab: &mut Lab<'_>) -> Result<bool, CalibrateError> {
    let connected = connect(lab, Path { mtu: 4096, ..Path::default() }).await?;
    match connected {
        Ok(()) => lab.findings.decide("rules.large_mtu", true),
        Err(Cause::PeerUnreachable) => lab.findings.decide("rules.large_mtu", false),
        Err(_) => lab.findings.leave("rules.large_mtu", UNCLEAR),
    }
    Ok(connected.is_err())
}

async fn source_gid(lab: &mut Lab<'_>) -> Result<bool, CalibrateError> {
    let gids = lab.device.gids()?;
    let is_other = |gid: &Gid| !gid.is_zero() && gid.ipv4().is_none();
    let Some(index) = gids.iter().position(is_other) else {
        lab.findings.leave("rules.source_gid", "the port has IPv4 addresses only");
        return Ok(false);
    };
    let connected = connect(lab, Path { source_index: Some(index as u8), ..Path::default() }).await?;
    match connected {
        Ok(()) => lab.findings.decide("rules.source_gid", "any"),
        Err(Cause::NoUsableGid | Cause::Invalid(_)) => lab.findings.decide("rules.source_gid", "ipv4"),
        Err(_) => lab.findings.leave("rules.source_gid", UNCLEAR),
    }
    Ok(connected.is_err())
}

/// Connects over a path with other attributes, and says how that ended
async fn connect(lab: &mut Lab<'_>, path: Path) -> Result<Result<(), Cause>, CalibrateError> {
    let device = lab.open(path)?;
    let (station, peer) = lab.half_pair(&device, 64, 1 << 16).await?;
    let connected = station.connect(&peer);
    // A call that fails may take a second, which must not be counted to the next.
    lab.rest(Duration::from_micros(1)).await;
    Ok(connected.map_err(|error| error.cause))
}

/// Decides how a transition to RTR ends if the peer is not there, and measures how long it takes
async fn unresolved(lab: &mut Lab<'_>) -> Result<bool, CalibrateError> {
    let device = Arc::clone(&lab.device);
    let (station, peer) = lab.half_pair(&device, 64, 1 << 16).await?;
    let peer = nowhere(&peer);
    let (connected, took) = lab.time(|| station.modify(Transition::ReadyToReceive { peer })).await;
    let has_failed = connected.is_err();
    let instead = (!has_failed).then(|| "a peer that is not there was accepted".to_owned());
    lab.findings.rule("rtr-neighbour", instead);
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
    Ok(has_failed)
}
