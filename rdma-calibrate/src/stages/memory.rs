//! Registering memory

use std::collections::BTreeSet;

use rdma_core::{Access, Cause, Device, Error, Status, Transition};

use crate::error::CalibrateError;
use crate::lab::Lab;
use crate::memory::{ALL_ACCESS, Memory};
use crate::message::Request;
use crate::station::{Station, slot};

/// The mapping begins at a page of 16 KiB: no coarser alignment shows.
const COARSEST: usize = 16 << 10;

/// The number of keys among which one may come back: a device that cycles through more keys counts as one that
/// never reuses a key.
const KEYS: usize = 16;

/// Decides the alignment, which rights memory needs, and if keys are given again
pub(super) async fn run(lab: &mut Lab<'_>) -> Result<(), CalibrateError> {
    let register =
        |lab: &Lab<'_>, offset, access| Memory::register(&lab.device, offset, 4096, access).map(drop);
    let alone = register(lab, 0, Access::LOCAL_WRITE);
    if alone.is_err() {
        register(lab, 0, ALL_ACCESS)?;
    }
    lab.findings.decide("rules.local_write_alone", alone.is_ok());
    let access = if alone.is_ok() { Access::LOCAL_WRITE } else { ALL_ACCESS };
    let mut keys = BTreeSet::new();
    for _ in 0..KEYS {
        keys.insert(Memory::register(&lab.device, 0, 4096, access)?.lkey());
    }
    lab.findings.decide("rules.reuses_keys", keys.len() < KEYS);
    let offsets =
        std::iter::successors(Some(1), |offset| Some(offset * 2)).take_while(|offset| *offset < COARSEST);
    for offset in offsets.chain([COARSEST]) {
        lab.keep_alive().await?;
        match register(lab, offset, access) {
            Ok(()) => {
                lab.findings.decide("rules.alignment", offset);
                return Ok(());
            }
            Err(Error { cause: Cause::Invalid(_) | Cause::Os(_), .. }) => (),
            Err(error) => return Err(error.into()),
        }
    }
    lab.findings.leave("rules.alignment", "memory at no offset up to 16 KiB was accepted");
    Ok(())
}

/// Decides if the error state of a queue pair keeps mappings, of which one region may stay counted, and if it flushes posted requests
pub(super) async fn after_error(lab: &mut Lab<'_>) -> Result<(), CalibrateError> {
    lab.ask(Request::Drop).await?;
    let max = lab.device.caps().max_mr as usize;
    let before = fitting(lab, max + 1).await?;
    fail_one(lab).await?;
    if before > max {
        let why = "the device has more regions than it states: one that stays counted does not show";
        lab.findings.leave("rules.error_keeps_mappings", why);
        return Ok(());
    }
    // If mappings are kept, the region of `fail_one` still counts, so that one registration fewer fits.
    let after = fitting(lab, before).await?;
    lab.findings.decide("rules.error_keeps_mappings", after < before);
    Ok(())
}

/// The number of regions that the device has at once, at most `most`
async fn fitting(lab: &mut Lab<'_>, most: usize) -> Result<usize, CalibrateError> {
    let register = |lab: &Lab<'_>| Memory::register(&lab.device, 0, 4096, ALL_ACCESS);
    let (regions, _) = lab.make_most(most, register).await?;
    let count = regions.len();
    lab.destroy_all(regions).await?;
    Ok(count)
}

/// Decides nothing: the port connects no queue pairs
pub(super) fn skip(lab: &mut Lab<'_>) {
    for field in ["rules.error_keeps_mappings", "caps.flush_on_error"] {
        lab.findings.leave(field, "the port was spoiled by idleness before");
    }
}

/// Sets a queue pair with a posted receive to the error state, waits for the end of the receive, and destroys the queue pair
async fn fail_one(lab: &mut Lab<'_>) -> Result<(), CalibrateError> {
    const FIELD: &str = "caps.flush_on_error";
    let is_early = lab.findings.profile.value("rules.early_receives").as_deref() == Some("from-init");
    let mut station = if is_early || lab.findings.wedged.is_some() {
        Station::new(&lab.runtime, &lab.device, 16, 1 << 14)?
    } else {
        lab.pair(16, 1 << 14).await?
    };
    let posted = station.recv(slot(0, 8));
    station.modify(Transition::Error)?;
    if let Err(error) = posted {
        lab.findings.leave(FIELD, &format!("no receive could be posted before: {error}"));
        return Ok(());
    }
    match station.receive_status().await {
        Ok(Status::Success) => lab.findings.leave(FIELD, "a receive for which no message came succeeded"),
        Ok(_) => lab.findings.decide(FIELD, true),
        Err(CalibrateError::Silent(_)) => lab.findings.decide(FIELD, false),
        Err(error) => return Err(error),
    }
    Ok(())
}
