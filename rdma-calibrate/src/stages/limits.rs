//! The numbers of objects of a device, and the limits that it states

use rdma_core::{Caps, Cause, CompletionQueue as _, Device, Error, FRAME, QpInit};
use rdma_sim::profile::{Decided, Profile};

use crate::error::CalibrateError;
use crate::lab::Lab;
use crate::machine::Path;
use crate::memory::{ALL_ACCESS, Memory};
use crate::message::Request;
use crate::plan::{How, NOT_RISKED, PLAN};

/// The most that are made: a program does not reach a limit beyond.
const MOST: usize = 64;
/// As above, of regions: Apple's device has a hundred.
const MOST_REGIONS: usize = 256;

/// Counts objects until there are no more; protection domains and more regions than the device states only if `risks`: they were
/// reported to leak, and to end the system
pub(super) async fn run(lab: &mut Lab<'_>, risks: bool) -> Result<(), CalibrateError> {
    lab.ask(Request::Drop).await?;
    let cq = lab.device.create_cq(16)?;
    let pairs = count(lab, MOST, |_| cq.create_qp(&QpInit::with_frames(1))).await?;
    enter(lab, "caps.max_qp", pairs);
    drop(cq);
    let cqs = count(lab, MOST, |lab| lab.device.create_cq(16)).await?;
    enter(lab, "caps.max_cq", cqs);
    let stated = lab.device.caps().max_mr as usize;
    // Other processes may have some of them.
    let most = if risks { MOST_REGIONS } else { MOST_REGIONS.min(stated / 2) };
    let regions = count(lab, most, |lab| Memory::register(&lab.device, 0, FRAME, ALL_ACCESS)).await?;
    enter(lab, "caps.max_mr", regions);
    if risks {
        // The calibration has a protection domain of its own.
        let domains = count(lab, MOST - 1, |lab| lab.open(Path::default())).await?.map(|count| count + 1);
        enter(lab, "caps.max_pd", domains);
    } else {
        lab.findings.leave("caps.max_pd", NOT_RISKED);
    }
    state(lab);
    let Caps { max_cqe, max_queue_frames, .. } = *lab.device.caps();
    let accepted = largest(lab, max_cqe, |lab, depth| lab.device.create_cq(depth).map(drop)).await?;
    confirm(lab, "caps.max_cqe", max_cqe, accepted);
    let cq = lab.device.create_cq(16)?;
    let create = |_: &Lab<'_>, frames| cq.create_qp(&QpInit::with_frames(frames)).map(drop);
    let accepted = largest(lab, max_queue_frames, create).await?;
    confirm(lab, "caps.max_queue_frames", max_queue_frames, accepted);
    Ok(())
}

/// The largest number up to the one that is `stated` with which `make` succeeds; the error if it fails with one
///
/// The error around that is the end of the calibration.
async fn largest(
    lab: &mut Lab<'_>,
    stated: u32,
    make: impl Fn(&Lab<'_>, u32) -> Result<(), Error>,
) -> Result<Result<u32, Error>, CalibrateError> {
    if make(lab, stated).is_ok() {
        return Ok(Ok(stated));
    }
    let (mut fits, mut beyond) = (1, stated);
    if let Err(error) = make(lab, fits) {
        return Ok(Err(error));
    }
    while beyond.saturating_sub(fits) > 1 {
        lab.keep_alive().await?;
        let middle = fits + (beyond - fits) / 2;
        match make(lab, middle) {
            Ok(()) => fits = middle,
            Err(_) => beyond = middle,
        }
    }
    Ok(Ok(fits))
}

/// Enters a stated limit as the device keeps to it
pub(super) fn confirm(lab: &mut Lab<'_>, field: &'static str, stated: u32, accepted: Result<u32, Error>) {
    let why = match accepted {
        Ok(accepted) if accepted == stated => {
            "the device states it, and accepts as much; the library asks for no more".to_owned()
        }
        Ok(accepted) => {
            lab.findings.decide(field, accepted);
            format!("the device states {stated}, and refuses more than {accepted}")
        }
        Err(error) => format!("the device states it, and fails with less: {error}"),
    };
    lab.findings.profile.remark(field, &why);
}

/// Enters the limits that no experiment looks for as the device states them, and remarks where a count is another one
fn state(lab: &mut Lab<'_>) {
    let mut device =
        Profile::named(lab.findings.profile.base()).expect("the base is a profile of the simulator");
    device.model.caps = lab.device.caps().clone();
    for plan in PLAN.iter().filter(|plan| plan.field.starts_with("caps.")) {
        let stated = device.value(plan.field).unwrap_or_default();
        let findings = &mut lab.findings;
        let before = findings.profile.value(plan.field).unwrap_or_default();
        match plan.how {
            How::Unseen(_) | How::Optional(_) if before != stated && device.model.caps.one_sided => {
                findings.decide(plan.field, stated);
                findings.profile.remark(plan.field, "the library states it, by the kind of the device");
            }
            How::Decided | How::Optional(_) => match findings.profile.decided(plan.field) {
                // Such as more than were counted.
                Some(Decided::Undecided) => {
                    let why = findings.profile.why(plan.field).unwrap_or_default();
                    let why = format!("the device states it; {why}");
                    findings.decide(plan.field, stated);
                    findings.profile.remark(plan.field, &why);
                }
                _ if before != stated => {
                    findings.profile.remark(plan.field, &format!("the device states {stated}"));
                }
                _ => (),
            },
            How::Stated => {
                findings.decide(plan.field, stated);
                findings.profile.remark(plan.field, "the device states it");
            }
            How::Unseen(_) if before != stated => {
                findings.decide(plan.field, stated);
                findings.profile.remark(plan.field, "the library states it, by the kind of the device");
            }
            _ => (),
        }
    }
}

/// Makes at most `most` objects; returns how many there are when the device has no more of them
///
/// The error around that is the end of the calibration.
async fn count<T>(
    lab: &mut Lab<'_>,
    most: usize,
    make: impl Fn(&Lab<'_>) -> Result<T, Error>,
) -> Result<Result<usize, String>, CalibrateError> {
    let (made, refused) = lab.make_most(most, make).await?;
    let counted = match refused {
        None => Err(format!("there are at least {most}")),
        Some(Error { cause: Cause::Exhausted { .. }, .. }) => Ok(made.len()),
        Some(error) => Err(format!("after {}, another one failed otherwise: {error}", made.len())),
    };
    lab.destroy_all(made).await?;
    Ok(counted)
}

fn enter(lab: &mut Lab<'_>, field: &'static str, counted: Result<usize, String>) {
    match counted {
        Ok(count) => lab.findings.decide(field, count),
        Err(why) => lab.findings.leave(field, &why),
    }
}
