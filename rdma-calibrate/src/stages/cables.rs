//! What several cables between the same two machines carry at once
//!
//! A bound of the machine shows only where the cables together carry less than the sum of what each carries alone.

use std::time::Duration;

use futures::future::{join, try_join_all};
use rdma_core::Device;

use super::figures::{FRAMES, LENS, Room, keeps_busy, longer};
use crate::error::CalibrateError;
use crate::findings::CableRates;
use crate::flow::span;
use crate::lab::Lab;
use crate::message::{Flow, Reply, Request};
use crate::station::Station;

const STAGE: &str = "several cables";
const FIELD: &str = "timing.mac_bytes_per_us";
/// The bytes of the first stream over each cable, after which a longer one may follow.
const BYTES: usize = 4 << 20;
/// Cables that carry less than this part of their sum are bounded by something else.
const BOUNDED: f64 = 0.95;

pub(super) async fn run(lab: &mut Lab<'_>, stream_time: Duration) -> Result<(), CalibrateError> {
    if lab.machine.cables() < 2 {
        lab.findings.leave(FIELD, "one cable; timing.frame_ns contains what the machine takes of it");
        return Ok(());
    }
    if !lab.findings.profile.model.timing.line_rate {
        lab.findings.leave(FIELD, "bytes take no time");
        return Ok(());
    }
    let Some(flow) = busy_flow(lab) else {
        lab.findings
            .leave(FIELD, "no queue holds enough to keep a cable busy, so that the processor bounds several");
        return Ok(());
    };
    let all: Vec<_> = (0..lab.machine.cables()).collect();
    let (mut one_way, mut alone) = (0.0, 0.0);
    // Each alone, then all at once.
    for cables in all.chunks(1).chain([&all[..]]) {
        alone += one_way;
        match rates(lab, &flow, cables, stream_time).await? {
            Ok(rates) => {
                one_way = rates.one_way;
                lab.findings.cables.push(rates);
            }
            Err(why) => {
                lab.findings.leave(FIELD, &why);
                return Ok(());
            }
        }
    }
    let is_bounded = one_way < BOUNDED * alone;
    // GB/s are thousands of bytes in a microsecond.
    lab.findings.decide(FIELD, if is_bounded { (one_way * 1000.0).round() as u64 } else { 0 });
    let why = format!("{} cables carry {one_way:.2} GB/s at once, of {alone:.2} GB/s alone", all.len());
    lab.findings.profile.remark(FIELD, &why);
    Ok(())
}

/// Messages that keep a cable busy, as long as there are
fn busy_flow(lab: &Lab<'_>) -> Option<Flow> {
    let room = Room::of(lab);
    LENS.into_iter().rev().find_map(|len| {
        let (window, depth) = room.window(lab, len);
        let is_busy = len <= lab.device.caps().max_message as usize && keeps_busy(len, depth);
        is_busy.then_some(Flow { count: BYTES / len, len, depth, window, is_both_ways: false })
    })
}

/// Streams over these cables at once, for at least `time`, one way and both ways; the sums of the rates in GB/s, or why there are none
async fn rates(
    lab: &mut Lab<'_>,
    flow: &Flow,
    cables: &[usize],
    time: Duration,
) -> Result<Result<CableRates, String>, CalibrateError> {
    let mut rates = [0.0; 2];
    lab.ask(Request::Drop).await?;
    for (rate, is_both_ways) in rates.iter_mut().zip([false, true]) {
        let mut flow = Flow { is_both_ways, ..*flow };
        loop {
            let rated = once(lab, &flow, cables).await;
            if rated.as_ref().err().is_none_or(CalibrateError::is_of_stage) {
                lab.ask(Request::Drop).await?;
            }
            match rated {
                Ok(sum) => *rate = sum,
                // The peer has fewer cables, or this one leads elsewhere: nothing else is in question.
                Err(CalibrateError::PeerFailed(why)) => return Ok(Err(of_cables(cables, &why.to_string()))),
                Err(CalibrateError::Verb { error, .. }) => {
                    return Ok(Err(of_cables(cables, &error.to_string())));
                }
                Err(error) => return Err(error),
            }
            match longer(flow.count, *rate / cables.len() as f64, flow.len, time) {
                Some(lasting) => flow.count = lasting,
                None => break,
            }
        }
    }
    let [one_way, both_ways] = rates;
    Ok(Ok(CableRates { cables: cables.to_vec(), one_way, both_ways }))
}

fn of_cables(cables: &[usize], why: &str) -> String {
    let numbers: Vec<_> = cables.iter().map(|cable| (cable + 1).to_string()).collect();
    format!("cable {}: {why}; name the devices of both machines in the same order", numbers.join(" and "))
}

async fn once(lab: &mut Lab<'_>, flow: &Flow, cables: &[usize]) -> Result<f64, CalibrateError> {
    let fail = |error| CalibrateError::Verb { stage: STAGE, error };
    let (frames, len) = (FRAMES, (flow.window + 1) * flow.len);
    let mut stations = Vec::new();
    for cable in cables {
        let peer = lab.make(*cable, frames, len).await?;
        let opened = lab.open_cable(*cable).map_err(fail)?;
        let station = Station::new(&lab.runtime, &opened, frames, len).map_err(fail)?;
        lab.ask(Request::Connect { address: station.address() }).await?;
        station.connect(&peer).map_err(fail)?;
        lab.ask(Request::Keep).await?;
        stations.push(station);
    }
    if flow.is_both_ways {
        stations.iter_mut().try_for_each(|station| flow.prepare(station)).map_err(fail)?;
    }
    lab.ask(Request::Flows(*flow)).await?;
    let here = try_join_all(stations.iter_mut().map(|station| flow.run(station, STAGE, true)));
    // Both to their ends: the reply is not left in the stream.
    let (here, there) = join(here, lab.reply()).await;
    let Reply::Took { nanoseconds } = there? else { return Err(CalibrateError::NotCalibrate) };
    let here = span(here?);
    // Without the first message of each cable: the time begins when one has arrived.
    let bytes = ((flow.count - 1) * flow.len * cables.len()) as f64;
    let there = bytes / nanoseconds.first().copied().unwrap_or_default().max(1) as f64;
    let here = bytes / (here.as_nanos() as f64).max(1.0);
    Ok(if flow.is_both_ways { there.min(here) } else { there })
}
