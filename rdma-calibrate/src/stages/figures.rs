//! Round trips and goodput, by the size of messages

use std::time::Duration;

use rdma_core::{Device, FRAME};
use rdma_sim::profile::Decided;

use super::bound;
use super::streams::{LENS, Room, keeps_busy, rates};
use super::timing::{PINGS, ping};
use super::turns;
use crate::error::CalibrateError;
use crate::findings::{Goodput, RoundTrips};
use crate::lab::Lab;
use crate::message::Flow;

/// The lengths of messages there and back, beside the 8 bytes of the timing.
const PING_LENS: [usize; 3] = [1024, FRAME, 16 * FRAME];
/// The bytes of the first stream, after which a longer one may follow.
const BYTES: usize = 2 << 20;
/// The fewest messages of a stream.
const LEAST: usize = 8;

/// A direction that is slower by less carries at its full rate.
const NOISE: f64 = 0.1;

pub(super) async fn run(lab: &mut Lab<'_>, stream_time: Duration) -> Result<(), CalibrateError> {
    let room = Room::of(lab);
    for len in PING_LENS {
        if room.fits(lab, len, 2) {
            let times = ping(lab, len, PINGS).await?;
            lab.findings.round_trips.push(RoundTrips::of(len, times));
        }
    }
    for len in LENS {
        let (most, deepest) = room.window(lab, len);
        if len > lab.device.caps().max_message as usize {
            lab.findings.leave_goodput(len, "messages of the device are shorter");
            continue;
        }
        if !lab.findings.profile.model.timing.line_rate {
            lab.findings.leave_goodput(len, "bytes take no time");
            continue;
        }
        if most == 0 {
            lab.findings.leave_goodput(len, "the queues of the device do not hold one message");
            continue;
        }
        for depth in [1, deepest].into_iter().take(deepest.min(2)) {
            stream(lab, len, depth, most, stream_time).await?;
        }
    }
    sustained(lab);
    match full_duplex(&lab.findings.goodput) {
        Some(instead) => lab.findings.rule("full-duplex", instead),
        None => lab.findings.leave_rule("full-duplex", "no stream kept the cable busy".to_owned()),
    }
    turns::run(lab).await
}

/// Streams messages each way alone, and both ways at once, for at least `time` each
async fn stream(
    lab: &mut Lab<'_>,
    len: usize,
    depth: usize,
    window: usize,
    time: Duration,
) -> Result<(), CalibrateError> {
    let flow = Flow { there: 0, back: 0, len, depth, window };
    let count = (BYTES / len).max(LEAST);
    match rates(lab, &flow, count, &[0], time).await {
        Ok([one_way, back, both_ways]) => {
            lab.findings.goodput.push(Goodput { bytes: len, depth, one_way, back, both_ways });
            Ok(())
        }
        // What does not connect once does so no other time.
        Err(error) if !error.is_of_stage() => Err(error),
        Err(CalibrateError::Verb(error)) => {
            lab.findings.leave_goodput(len, &error.to_string());
            Ok(())
        }
        Err(CalibrateError::PeerFailed(why)) => {
            lab.findings.leave_goodput(len, &why.to_string());
            Ok(())
        }
        Err(error) => Err(error),
    }
}

/// The stream of the longest messages that keeps the cable busy
fn longest_busy(goodput: &[Goodput]) -> Option<Goodput> {
    goodput.iter().rfind(|row| keeps_busy(row.bytes, row.depth)).copied()
}

/// `None` if no stream kept the cable busy, `Some(None)` if both directions have the same rate, alone and at once; else their rates
fn full_duplex(goodput: &[Goodput]) -> Option<Option<String>> {
    let Goodput { bytes, one_way, back, both_ways, .. } = longest_busy(goodput)?;
    let is_less = |rate: f64, full: f64| rate < full * (1.0 - NOISE);
    let is_asymmetric = |row: &&Goodput| {
        let Goodput { bytes, depth, one_way, back, .. } = **row;
        keeps_busy(bytes, depth) && is_less(one_way.min(back), one_way.max(back))
    };
    if let Some(Goodput { bytes, depth, one_way, back, .. }) = goodput.iter().find(is_asymmetric) {
        return Some(Some(format!(
            "messages of {bytes} bytes, {depth} at once, travel at {one_way:.2} GB/s to the other side, and at {back:.2} back"
        )));
    }
    Some(is_less(both_ways, one_way.min(back)).then(|| {
        format!("messages of {bytes} bytes travel at {one_way:.2} GB/s one way, and at {both_ways:.2} each way at once")
    }))
}

/// Enters the time of a frame, or the bound of the payload, as it is in the longest messages, if their stream keeps the cable busy
fn sustained(lab: &mut Lab<'_>) {
    let findings = &mut lab.findings;
    let is_measured = |field| findings.profile.decided(field) == Some(Decided::Measured);
    let is_bounded = is_measured(bound::FIELD);
    if !is_bounded && !is_measured("timing.frame_ns") {
        return;
    }
    let Some(row) = longest_busy(&findings.goodput) else { return };
    let (took, frames) = (row.bytes as f64 / row.one_way, (row.bytes / FRAME) as f64);
    let why = format!(
        "sustained by messages of {} bytes, {} at once: {:.2} GB/s",
        row.bytes, row.depth, row.one_way
    );
    if is_bounded {
        bound::sustain(findings, took, frames);
        findings.figure("bound of the payload", why);
        return;
    }
    let message = findings.profile.model.timing.per_message_ns as f64;
    bound::enter_frame(findings, (took - message) / frames);
    findings.profile.remark("timing.frame_ns", &why);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Catches directions that share the rate of a cable and are said to carry at once.
    #[test]
    fn directions_that_share_a_rate_are_no_full_duplex() {
        let row = |both_ways| [Goodput { bytes: 1 << 20, depth: 4, one_way: 9.2, back: 9.1, both_ways }];
        assert_eq!(full_duplex(&row(9.0)), Some(None));
        let instead = full_duplex(&row(4.6)).flatten().unwrap();
        assert!(instead.contains("9.20 GB/s one way, and at 4.60 each way"), "{instead}");
        assert_eq!(full_duplex(&[]), None);
    }

    /// Catches a direction that is slower alone and is not named, and one that is blamed on both at once.
    #[test]
    fn directions_of_different_rates_are_no_full_duplex() {
        let instead = |one_way, back| {
            let row = Goodput { bytes: 65_536, depth: 16, one_way, back, both_ways: 4.6 };
            full_duplex(&[row, Goodput { bytes: 1 << 20, depth: 1, ..row }]).flatten().unwrap()
        };
        assert!(instead(9.2, 4.6).contains("at 9.20 GB/s to the other side, and at 4.60 back"));
        assert!(instead(4.6, 9.2).contains("at 4.60 GB/s to the other side, and at 9.20 back"));
    }
}
