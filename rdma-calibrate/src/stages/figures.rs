//! Round trips and goodput, by the size of messages

use std::time::Duration;

use rdma_core::{Device, FRAME};
use rdma_sim::profile::Decided;
use rdma_sim::rules::{QueueGrant, QueueUnit, SendCompletion};

use super::timing::{PINGS, ping};
use crate::error::CalibrateError;
use crate::findings::{Goodput, RoundTrips};
use crate::flow::span;
use crate::lab::Lab;
use crate::message::{Flow, Reply, Request};

const STAGE: &str = "figures";
/// The lengths of messages there and back, beside the 8 bytes of the timing.
const PING_LENS: [usize; 3] = [1024, FRAME, 16 * FRAME];
/// The lengths of messages of streams.
pub(super) const LENS: [usize; 5] = [FRAME, 4 * FRAME, 16 * FRAME, 64 * FRAME, 256 * FRAME];
/// The frames for which queue pairs are asked, and the most that are posted in each direction.
pub(super) const FRAMES: u32 = 1024;
/// What each device is known to accept, if it does not show what it does.
const SAFE: u32 = 128;
/// The bytes of the first stream, after which a longer one may follow.
const BYTES: usize = 2 << 20;
/// The fewest and the most messages of a stream.
const LEAST: usize = 8;
const MOST: usize = 1 << 20;
/// The bytes in flight from which on the cable is always busy: more than what it carries while a message travels there and back.
const BUSY: usize = 512 << 10;

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
    Ok(())
}

/// How much a queue of [`FRAMES`] accepts
#[derive(Clone, Copy)]
pub(super) struct Room {
    frames: usize,
    unit: QueueUnit,
    completions: usize,
}

impl Room {
    pub(super) fn of(lab: &Lab<'_>) -> Self {
        let (max, profile) = (lab.device.caps().max_queue_frames, &lab.findings.profile);
        let is_measured = |field| profile.decided(field) == Some(Decided::Measured);
        let rules = &profile.model.rules;
        let frames = match rules.queue_grant {
            _ if !is_measured("rules.queue_grant") => SAFE,
            QueueGrant::Fixed(frames) => frames.min(FRAMES),
            _ => FRAMES,
        };
        let unit = if is_measured("rules.queue_unit") { rules.queue_unit } else { QueueUnit::Frames };
        let completions = lab.device.caps().max_cqe.min(4096) as usize / 2;
        Self { frames: frames.min(max) as usize, unit, completions }
    }

    /// How many messages of `len` bytes can be posted in each direction
    fn messages(self, len: usize) -> usize {
        let frames = rdma_core::frames(len);
        let of_memory = FRAMES as usize / frames;
        let of_queue = if self.unit == QueueUnit::Frames { self.frames / frames } else { self.frames };
        of_queue.min(of_memory).min(self.completions)
    }

    /// How many messages of `len` bytes may be received at once, and how many sent
    pub(super) fn window(self, lab: &Lab<'_>, len: usize) -> (usize, usize) {
        let hands_off = lab.findings.profile.model.rules.send_completion == SendCompletion::HandOff;
        let most = self.messages(len);
        // A send that completes before its message has left still takes its place in the queue.
        (most, (most - usize::from(hands_off && most > 0)).max(most.min(1)))
    }

    fn fits(self, lab: &Lab<'_>, len: usize, count: usize) -> bool {
        len <= lab.device.caps().max_message as usize && self.messages(len) >= count
    }
}

/// Streams messages one way, and both ways at once, for at least `time` each
async fn stream(
    lab: &mut Lab<'_>,
    len: usize,
    depth: usize,
    window: usize,
    time: Duration,
) -> Result<(), CalibrateError> {
    let mut rates = [0.0; 2];
    for (rate, is_both_ways) in rates.iter_mut().zip([false, true]) {
        let mut count = (BYTES / len).max(LEAST);
        loop {
            let flow = Flow { count, len, depth, window, is_both_ways };
            match once(lab, &flow).await? {
                Ok(found) => *rate = found,
                Err(why) => {
                    lab.findings.leave_goodput(len, &why);
                    return Ok(());
                }
            }
            match longer(count, *rate, len, time) {
                Some(lasting) => count = lasting,
                None => break,
            }
        }
    }
    let [one_way, both_ways] = rates;
    lab.findings.goodput.push(Goodput { bytes: len, depth, one_way, both_ways });
    Ok(())
}

/// How many messages a stream has that lasts about `time` at `rate` GB/s; `None` if `count` of them last half as long
pub(super) fn longer(count: usize, rate: f64, len: usize, time: Duration) -> Option<usize> {
    let lasting = ((rate * time.as_nanos() as f64 / len as f64) as usize).min(MOST);
    (count < lasting / 2).then_some(lasting)
}

/// The rate of a stream, of the slower way if there are two, in GB/s; the reason if the device does not carry it
async fn once(lab: &mut Lab<'_>, flow: &Flow) -> Result<Result<f64, String>, CalibrateError> {
    let mut station = lab.pair(STAGE, FRAMES, (flow.window + 1) * flow.len).await?;
    if flow.is_both_ways
        && let Err(error) = flow.prepare(&mut station)
    {
        return Ok(Err(error.to_string()));
    }
    match lab.ask(Request::Flow(*flow)).await {
        Err(CalibrateError::PeerFailed(why)) => return Ok(Err(why.to_string())),
        asked => drop(asked?),
    }
    let here = flow.run(&mut station, STAGE, true).await;
    let (here, nanoseconds) = match (here, lab.reply().await) {
        (Ok(here), Ok(Reply::Took { nanoseconds })) => (here, nanoseconds),
        (Err(CalibrateError::Verb { error, .. }), Ok(_) | Err(CalibrateError::PeerFailed(_))) => {
            return Ok(Err(error.to_string()));
        }
        (Ok(_), Err(CalibrateError::PeerFailed(why))) => return Ok(Err(why.to_string())),
        (_, Err(CalibrateError::PeerGone)) => return Err(CalibrateError::PeerGone),
        (Err(error), _) | (_, Err(error)) => return Err(error),
        (Ok(_), Ok(_)) => return Err(CalibrateError::NotCalibrate),
    };
    // Without the first message: the time begins when it has arrived.
    let bytes = ((flow.count - 1) * flow.len) as f64;
    let there = bytes / nanoseconds.first().copied().unwrap_or_default().max(1) as f64;
    let here = bytes / (span([here]).as_nanos() as f64).max(1.0);
    Ok(Ok(if flow.is_both_ways { there.min(here) } else { there }))
}

/// The stream of the longest messages that keeps the cable busy
fn longest_busy(goodput: &[Goodput]) -> Option<Goodput> {
    goodput.iter().rfind(|row| keeps_busy(row.bytes, row.depth)).copied()
}

/// Whether `depth` messages of `len` bytes at once keep the cable busy
pub(super) fn keeps_busy(len: usize, depth: usize) -> bool {
    len >= 16 * FRAME && depth * len >= BUSY
}

/// What the directions of a cable do instead of carrying at their full rate at once, if anything; `None` if no stream tells
fn full_duplex(goodput: &[Goodput]) -> Option<Option<String>> {
    let Goodput { bytes, one_way, both_ways, .. } = longest_busy(goodput)?;
    let is_less = both_ways < one_way * (1.0 - NOISE);
    Some(is_less.then(|| {
        format!("messages of {bytes} bytes travel at {one_way:.2} GB/s one way, and at {both_ways:.2} each way at once")
    }))
}

/// Enters the time of a frame as it is in the longest messages, if their stream keeps the cable busy
fn sustained(lab: &mut Lab<'_>) {
    let findings = &mut lab.findings;
    if findings.profile.decided("timing.frame_ns") != Some(Decided::Measured) {
        return;
    }
    let Some(row) = longest_busy(&findings.goodput) else { return };
    let message = findings.profile.model.timing.per_message_ns as f64;
    let frame_ns = (row.bytes as f64 / row.one_way - message) / (row.bytes / FRAME) as f64;
    super::timing::enter_frame(findings, frame_ns);
    let why = format!(
        "sustained by messages of {} bytes, {} at once: {:.2} GB/s",
        row.bytes, row.depth, row.one_way
    );
    findings.profile.remark("timing.frame_ns", &why);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Catches a stream that is as long as streams may be, and is asked for again without end.
    #[test]
    fn a_stream_grows_to_the_longest_and_no_further() {
        assert_eq!(longer(512, 9.2, FRAME, Duration::from_secs(1)), Some(MOST));
        assert_eq!(longer(MOST, 9.2, FRAME, Duration::from_secs(1)), None);
        assert_eq!(longer(8, f64::INFINITY, FRAME, Duration::from_millis(200)), Some(MOST));
        assert_eq!(longer(512, 9.2, FRAME, Duration::ZERO), None);
    }

    /// Catches directions that share the rate of a cable and are said to carry at once.
    #[test]
    fn directions_that_share_a_rate_are_no_full_duplex() {
        let row = |both_ways| [Goodput { bytes: 1 << 20, depth: 4, one_way: 9.2, both_ways }];
        assert_eq!(full_duplex(&row(9.0)), Some(None));
        let instead = full_duplex(&row(4.6)).flatten().unwrap();
        assert!(instead.contains("9.20 GB/s one way, and at 4.60 each way"), "{instead}");
        assert_eq!(full_duplex(&[]), None);
    }
}
