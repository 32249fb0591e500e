//! Streams of messages: their size, their depth, and their rates

use std::time::Duration;

use futures::future::try_join_all;
use rdma_core::{Device, FRAME};
use rdma_sim::profile::Decided;
use rdma_sim::rules::{QueueGrant, QueueUnit, SendCompletion};

use crate::error::CalibrateError;
use crate::flow::arrivals;
use crate::lab::Lab;
use crate::message::{Flow, Reply, Request};
use crate::station::Station;

/// The lengths of messages of streams.
pub(super) const LENS: [usize; 5] = [FRAME, 4 * FRAME, 16 * FRAME, 64 * FRAME, 256 * FRAME];
/// The frames for which queue pairs are asked, and the most that are posted in each direction.
const FRAMES: u32 = 1024;
/// The frames that each device is known to accept, if it does not show what it does.
const SAFE: u32 = 128;
/// The most messages of a stream.
const MOST: usize = 1 << 20;
/// In GB/s: no cable is faster, and a peer that says so makes no stream of hours.
const FASTEST: f64 = 125.0;
/// The bytes in flight from which on the cable is always busy: more than what it carries while a message travels there and back.
const BUSY: usize = 512 << 10;

/// The capacity of a queue of [`FRAMES`]
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

    /// The number of messages of `len` bytes that can be posted in each direction
    fn messages(self, len: usize) -> usize {
        let frames = rdma_core::frames(len);
        let of_memory = FRAMES as usize / frames;
        let of_queue = if self.unit == QueueUnit::Frames { self.frames / frames } else { self.frames };
        of_queue.min(of_memory).min(self.completions)
    }

    /// The numbers of messages of `len` bytes that may be received at once, and sent
    pub(super) fn window(self, lab: &Lab<'_>, len: usize) -> (usize, usize) {
        let hands_off = lab.findings.profile.model.rules.send_completion == SendCompletion::HandOff;
        let most = self.messages(len);
        // A send that completes before its message has left still takes its place in the queue.
        (most, (most - usize::from(hands_off && most > 0)).max(most.min(1)))
    }

    pub(super) fn fits(self, lab: &Lab<'_>, len: usize, count: usize) -> bool {
        len <= lab.device.caps().max_message as usize && self.messages(len) >= count
    }
}

/// The ways of a stream, as the numbers of messages there and back of `count` ones: there alone, back alone, and both ways at once
///
/// Also a stream back begins with a message there.
const WAYS: [fn(usize) -> [usize; 2]; 3] = [|count| [count, 0], |count| [1, count], |count| [count, count]];

/// Streams over these cables at once, for at least `time` each way; the sums of their rates in GB/s, in the order of [`WAYS`], and of the
/// slower way of two
///
/// The first stream has `count` messages.
///
/// # Errors
///
/// [`CalibrateError::Verb`] and [`CalibrateError::PeerFailed`] if the device does not carry it; nothing of it is left then.
pub(super) async fn rates(
    lab: &mut Lab<'_>,
    flow: &Flow,
    count: usize,
    cables: &[usize],
    time: Duration,
) -> Result<[f64; WAYS.len()], CalibrateError> {
    let mut rates = [0.0; WAYS.len()];
    for (rate, way) in rates.iter_mut().zip(WAYS) {
        let mut count = count;
        loop {
            let counts @ [there, back] = way(count);
            let streamed = once(lab, &Flow { there, back, ..*flow }, cables).await?;
            let is_stream = |(_, count): &(f64, usize)| *count > 1;
            let ways = streamed.rates.into_iter().zip(counts).filter(is_stream).map(|(rate, _)| rate);
            *rate = ways.fold(f64::INFINITY, f64::min);
            match longer(count, *rate / cables.len() as f64, flow.len, time) {
                Some(lasting) => count = lasting,
                None => break,
            }
        }
    }
    Ok(rates)
}

/// The number of messages of a stream that lasts about `time` at `rate` GB/s; `None` if `count` of them last half as long
fn longer(count: usize, rate: f64, len: usize, time: Duration) -> Option<usize> {
    let lasting = ((rate.min(FASTEST) * time.as_nanos() as f64 / len as f64) as usize).min(MOST);
    (count < lasting / 2).then_some(lasting)
}

/// Streams that have ended
pub(super) struct Streamed {
    /// The sums of the rates there and back, in GB/s
    rates: [f64; 2],
    /// The time from the first message that arrived there to the last of each stream
    pub(super) ends: Vec<Duration>,
}

/// One stream over each of these cables at once, each with queue pairs of its own
///
/// # Errors
///
/// [`CalibrateError::Verb`] and [`CalibrateError::PeerFailed`] if the device does not carry them; nothing of them is left then.
pub(super) async fn once(
    lab: &mut Lab<'_>,
    flow: &Flow,
    cables: &[usize],
) -> Result<Streamed, CalibrateError> {
    let streamed = attempt(lab, flow, cables).await;
    if let Ok(_) | Err(CalibrateError::Verb(_) | CalibrateError::PeerFailed(_)) = streamed {
        lab.ask(Request::Drop).await?;
    }
    streamed
}

async fn attempt(lab: &mut Lab<'_>, flow: &Flow, cables: &[usize]) -> Result<Streamed, CalibrateError> {
    let len = (flow.window + 1) * flow.len;
    let mut stations = Vec::new();
    for cable in cables {
        let peer = lab.make(*cable, FRAMES, len).await?;
        let device = lab.device_of(*cable)?;
        let station = Station::new(&lab.runtime, &device, FRAMES, len)?;
        lab.ask(Request::Connect { address: station.address() }).await?;
        station.connect(&peer)?;
        lab.ask(Request::Keep).await?;
        stations.push(station);
    }
    stations.iter_mut().try_for_each(|station| flow.prepare(station, true))?;
    lab.ask(Request::Flow(*flow)).await?;
    let here = try_join_all(stations.iter_mut().map(|station| flow.run(station, true))).await;
    // Also if this side has failed: the reply is not left in the stream.
    match (here, lab.reply().await) {
        (_, Err(gone @ (CalibrateError::PeerGone | CalibrateError::PeerSilent(_)))) => Err(gone),
        (Err(error), _) | (Ok(_), Err(error)) => Err(error),
        (Ok(here), Ok(Reply::Took { nanoseconds })) if nanoseconds.len() == cables.len() => {
            let ends: Vec<_> = nanoseconds.into_iter().map(Duration::from_nanos).collect();
            let last = |ends: &[Duration]| ends.iter().max().copied().unwrap_or_default();
            let rates = flow.rates(cables.len(), [last(&ends), last(&arrivals(&here))]);
            Ok(Streamed { rates, ends })
        }
        (Ok(_), Ok(_)) => Err(CalibrateError::NotCalibrate),
    }
}

/// True if `depth` messages of `len` bytes at once keep the cable busy
pub(super) fn keeps_busy(len: usize, depth: usize) -> bool {
    len >= 16 * FRAME && depth * len >= BUSY
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
        assert_eq!(longer(8, f64::INFINITY, 1 << 20, Duration::from_millis(200)), Some(23_841));
        assert_eq!(longer(512, 9.2, FRAME, Duration::ZERO), None);
    }
}
