//! The time for which a queue pair lives without a message

use std::collections::VecDeque;
use std::time::Duration;

use rdma_core::{Cause, Device, Error};
use rdma_sim::profile::Decided;

use crate::error::{CalibrateError, PeerFailure};
use crate::findings::Findings;
use crate::lab::Lab;
use crate::message::Request;
use crate::station::{COMPLETION_TIMEOUT, Station};

/// Queue pairs that are idle at once, each for another time.
const PAIRS: u32 = 8;
/// The longest time without a message.
const LONGEST: Duration = Duration::from_mins(64);
/// The time is known to a share of one in this many, and its middle to half of that.
const RESOLUTION: u32 = 12;

pub(super) async fn run(lab: &mut Lab<'_>) -> Result<(), CalibrateError> {
    let (mut lives, mut dies) = (Duration::ZERO, None::<Duration>);
    loop {
        let beyond = dies.unwrap_or(LONGEST);
        match round(lab, lives, beyond).await? {
            (alive, None) => lives = alive,
            (alive, Some(dead)) => (lives, dies) = (alive.max(lives), Some(dead)),
        }
        let Some(dead) = dies else {
            lab.findings.leave("rules.idle_death", "every queue pair lived, for up to 64 minutes");
            lab.findings.leave("rules.idle_death_spoils", "no queue pair died");
            lab.findings.leave("rules.spoiled_rtr", "no queue pair died");
            return Ok(());
        };
        // Of both sides, the one that was asked first has refused.
        let refused = match lab.pair(16, 1 << 14).await {
            Ok(_) => None,
            // A cable that was pulled meanwhile says nothing of idleness.
            Err(error) if error.is_gone() => return Err(error),
            Err(
                ref error @ (CalibrateError::Verb(why) | CalibrateError::PeerFailed(PeerFailure::Verb(why))),
            ) => {
                lab.require_port().map_err(|_| error.clone())?;
                Some(why.cause)
            }
            Err(error) => return Err(error),
        };
        let is_spoiled = refused.is_some();
        match refused {
            Some(Cause::GidTableEmpty) => lab.findings.decide("rules.spoiled_rtr", "gid-table-empty"),
            Some(Cause::NoUsableGid) => lab.findings.decide("rules.spoiled_rtr", "no-usable-gid"),
            Some(_) => lab.findings.leave("rules.spoiled_rtr", "the transition to RTR failed otherwise"),
            None => lab.findings.leave("rules.spoiled_rtr", "no port was spoiled"),
        }
        lab.findings.decide("rules.idle_death_spoils", is_spoiled);
        let is_exact = (dead - lives) * RESOLUTION <= dead;
        if is_exact || is_spoiled {
            let middle = (lives + dead) / 2;
            lab.findings.decide("rules.idle_death", format_args!("{}s", middle.as_secs().max(1)));
            let between = format!("between {} s and {} s", lives.as_secs(), dead.as_secs());
            lab.findings.profile.remark("rules.idle_death", &between);
            lab.findings.know_between("rules.idle_death", lives.as_secs_f64(), dead.as_secs_f64());
            return Ok(());
        }
    }
}

/// True if the death of idle queue pairs has spoiled the port
pub(super) fn has_spoiled(findings: &Findings) -> bool {
    findings.profile.decided("rules.idle_death_spoils") == Some(Decided::Measured)
        && findings.profile.model.rules.idle_death_spoils
}

/// Decides nothing: the port connects no queue pairs
pub(super) fn skip(lab: &mut Lab<'_>) {
    for field in ["rules.idle_death", "rules.idle_death_spoils", "rules.spoiled_rtr"] {
        lab.findings.leave(field, "the port was wedged before");
    }
}

/// Lets queue pairs rest for times from `lives` to `dies`; returns the longest that one lived for, and the shortest that one died after
async fn round(
    lab: &mut Lab<'_>,
    lives: Duration,
    dies: Duration,
) -> Result<(Duration, Option<Duration>), CalibrateError> {
    let caps = lab.device.caps();
    let pairs = PAIRS.min(caps.max_qp.min(caps.max_cq).saturating_sub(2)).max(1);
    // The end of the interval was tried when one has died after it.
    let steps = if dies < LONGEST { pairs + 1 } else { pairs };
    let mut resting = VecDeque::new();
    for number in 1..=pairs {
        let mut station = lab.pair(16, 1 << 14).await?;
        lab.recv(2, 8).await?;
        // Its rest begins with a message.
        if !is_alive(lab, &mut station).await? {
            return Err(CalibrateError::Silent(COMPLETION_TIMEOUT));
        }
        lab.ask(Request::Keep).await?;
        resting.push_back((lives + (dies - lives) * number / steps, lab.now(), station));
    }
    let mut alive = lives;
    let mut dead = None;
    while let Some((rest, since, mut station)) = resting.pop_front() {
        lab.rest_for_long(rest.saturating_sub(lab.now() - since)).await?;
        lab.ask(Request::Take).await?;
        if is_alive(lab, &mut station).await? {
            alive = rest;
        } else {
            dead = Some(rest);
            break;
        }
    }
    lab.ask(Request::Drop).await?;
    Ok((alive, dead))
}

/// True if a message arrives
async fn is_alive(lab: &mut Lab<'_>, station: &mut Station) -> Result<bool, CalibrateError> {
    match station.send(8) {
        Ok(_) => (),
        Err(error @ Error { cause: Cause::DeviceGone | Cause::PortDown, .. }) => {
            return Err(error.into());
        }
        // It says itself that it has failed.
        Err(_) => return Ok(false),
    }
    match lab.ask(Request::Received { count: 1 }).await {
        Ok(_) => Ok(true),
        Err(CalibrateError::PeerFailed(why)) if why.is_loss() => Ok(false),
        Err(error) => Err(error),
    }
}
