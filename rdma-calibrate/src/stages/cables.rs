//! The rates of several cables at once between the same two machines
//!
//! A bound of the machine shows only where the cables together carry less than the sum of what each carries alone.

use std::time::Duration;

use rdma_core::Device;
use rdma_sim::profile::Decided;

use super::bound::FIELD;
use super::streams::{LENS, Room, keeps_busy, rates};
use crate::error::CalibrateError;
use crate::findings::CableRates;
use crate::lab::Lab;
use crate::message::{Flow, Request};

/// The bytes of the first stream over each cable, after which a longer one may follow.
const BYTES: usize = 4 << 20;
/// Cables that carry less than this part of their sum are bounded by something else.
const BOUNDED: f64 = 0.95;

pub(super) async fn run(lab: &mut Lab<'_>, stream_time: Duration) -> Result<(), CalibrateError> {
    if lab.machine.cables() < 2 {
        if !has_shown_bound(lab) {
            lab.findings.leave(FIELD, "one cable; timing.frame_ns contains what the machine takes of it");
        }
        return Ok(());
    }
    if !lab.findings.profile.model.timing.line_rate {
        leave(lab, "bytes take no time");
        return Ok(());
    }
    let Some(flow) = busy_flow(lab) else {
        leave(lab, "no queue holds enough to keep a cable busy, so that the processor bounds several");
        return Ok(());
    };
    let all: Vec<_> = (0..lab.machine.cables()).collect();
    let (mut one_way, mut alone) = (0.0, 0.0);
    // Each alone, then all at once.
    for cables in all.chunks(1).chain([&all[..]]) {
        alone += one_way;
        lab.ask(Request::Drop).await?;
        let why = match rates(lab, &flow, BYTES / flow.len, cables, stream_time).await {
            Ok([there, back, both_ways]) => {
                one_way = there;
                lab.findings.cables.push(CableRates { cables: cables.to_vec(), one_way, back, both_ways });
                continue;
            }
            // The peer has fewer cables, or this one leads elsewhere: nothing else is in question.
            Err(CalibrateError::PeerFailed(why)) => why.to_string(),
            Err(CalibrateError::Verb(error)) => error.to_string(),
            Err(error) => return Err(error),
        };
        leave(lab, &of_cables(cables, &why));
        return Ok(());
    }
    let is_bounded = one_way < BOUNDED * alone;
    // GB/s are thousands of bytes in a microsecond.
    lab.findings.decide(FIELD, if is_bounded { (one_way * 1000.0).round() as u64 } else { 0 });
    let why = format!("{} cables carry {one_way:.2} GB/s at once, of {alone:.2} GB/s alone", all.len());
    lab.findings.profile.remark(FIELD, &why);
    Ok(())
}

/// Says why the bound is undecided, or why only one cable has shown it
fn leave(lab: &mut Lab<'_>, why: &str) {
    if has_shown_bound(lab) {
        let of_one = lab.findings.profile.why(FIELD).unwrap_or_default();
        let why = format!("{of_one}; they were not measured: {why}");
        lab.findings.profile.remark(FIELD, &why);
    } else {
        lab.findings.leave(FIELD, why);
    }
}

/// True if messages over one cable have shown the bound
fn has_shown_bound(lab: &Lab<'_>) -> bool {
    lab.findings.profile.decided(FIELD) == Some(Decided::Measured)
}

/// Messages that keep a cable busy, as long as there are
fn busy_flow(lab: &Lab<'_>) -> Option<Flow> {
    let room = Room::of(lab);
    LENS.into_iter().rev().find_map(|len| {
        let (window, depth) = room.window(lab, len);
        let is_busy = len <= lab.device.caps().max_message as usize && keeps_busy(len, depth);
        is_busy.then_some(Flow { there: 0, back: 0, len, depth, window })
    })
}

fn of_cables(cables: &[usize], why: &str) -> String {
    let numbers: Vec<_> = cables.iter().map(|cable| (cable + 1).to_string()).collect();
    format!("cable {}: {why}; name the devices of both machines in the same order", numbers.join(" and "))
}
