//! Registering memory

use rdma_core::CompletionQueue as _;
use rdma_core::{Access, Cause, Device, Error, QpInit, QueuePair, Transition};

use crate::error::CalibrateError;
use crate::lab::Lab;
use crate::memory::{ALL_ACCESS, Memory};

const STAGE: &str = "registering memory";
/// The mapping begins at a page of 16 KiB: no coarser alignment shows.
const COARSEST: usize = 16 << 10;

/// Decides the alignment, and which rights memory needs
pub(super) fn run(lab: &mut Lab<'_>) -> Result<(), CalibrateError> {
    let fail = |error| CalibrateError::Verb { stage: STAGE, error };
    let register =
        |lab: &Lab<'_>, offset, access| Memory::register(&lab.device, offset, 4096, access).map(drop);
    let alone = register(lab, 0, Access::LOCAL_WRITE);
    if alone.is_err() {
        register(lab, 0, ALL_ACCESS).map_err(fail)?;
    }
    if lab.is_hidden("rules.local_write_alone") {
        lab.findings.leave("rules.local_write_alone", "the library asks for more rights if it has to");
    } else {
        lab.findings.decide("rules.local_write_alone", alone.is_ok());
    }
    let access = if alone.is_ok() { Access::LOCAL_WRITE } else { ALL_ACCESS };
    let offsets =
        std::iter::successors(Some(1), |offset| Some(offset * 2)).take_while(|offset| *offset < COARSEST);
    for offset in offsets.chain([COARSEST]) {
        match register(lab, offset, access) {
            Ok(()) => {
                lab.findings.decide("rules.alignment", offset);
                return Ok(());
            }
            Err(Error { cause: Cause::Invalid(_) | Cause::Os(_), .. }) => (),
            Err(error) => return Err(fail(error)),
        }
    }
    lab.findings.leave("rules.alignment", "memory at no offset up to 16 KiB was accepted");
    Ok(())
}

/// Decides whether the error state of a queue pair keeps mappings: one region may stay counted
pub(super) fn after_error(lab: &mut Lab<'_>) -> Result<(), CalibrateError> {
    let fail = |error| CalibrateError::Verb { stage: "the error state", error };
    let max = lab.device.caps().max_mr as usize;
    let fit = |lab: &Lab<'_>| {
        let mut regions = Vec::new();
        while regions.len() < max + 1
            && let Ok(memory) = Memory::register(&lab.device, 0, 4096, ALL_ACCESS)
        {
            regions.push(memory);
        }
        regions.len()
    };
    let before = fit(lab);
    if before > max {
        let why = "the device has more regions than it states: one that stays counted does not show";
        lab.findings.leave("rules.error_keeps_mappings", why);
        return Ok(());
    }
    let cq = lab.device.create_cq(16).map_err(fail)?;
    let qp = cq.create_qp(&QpInit::with_frames(16)).map_err(fail)?;
    let region = Memory::register(&lab.device, 0, 4096, ALL_ACCESS).map_err(fail)?;
    qp.modify(Transition::Error).map_err(fail)?;
    drop((region, qp, cq));
    // Each registration of this count stays counted, too, if mappings are kept: the first one tells.
    let mut held = Vec::new();
    while held.len() < before
        && let Ok(memory) = Memory::register(&lab.device, 0, 4096, ALL_ACCESS)
    {
        held.push(memory);
    }
    lab.findings.decide("rules.error_keeps_mappings", held.len() < before);
    Ok(())
}
