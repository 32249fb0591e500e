//! Round trips, and what they are made of
//!
//! A send takes the doorbell D until the transmitter begins, then M for the message and F for its bytes; it completes S later. It
//! reaches the other side P later, and completes there after V and the jitter. A receive is known to the sender P after its post.
//! Programs see the beginnings and the ends of closed ways only: D + S (a send), 2 P + V (a receive for a send that waits), P + S (such a
//! send that completes, whereupon its program posts a receive: twice); a round trip, of D + P + V, follows from these. Each contains
//! a post, a wake-up and a poll, which were measured before. On a device that loses sends which find no receive, round trips, D + S and F
//! are all that programs see: nothing tells P from V. Nothing tells D from S: if the transmitter were to begin later and report faster, with P and V to match, no
//! program would notice. So the profile keeps the S of its base, and the other constants follow from the sums.

use std::time::Duration;

use rdma_core::{Device, FRAME};
use rdma_sim::Timing;

use super::bound::{PayloadBound, enter_frame, too_fast};
use super::samples::{median, ns};
use super::spacing::{SHORT, Spacings, longest, share_of_frame};
use crate::Findings;
use crate::error::CalibrateError;
use crate::findings::RoundTrips;
use crate::lab::Lab;
use crate::message::{Reply, Request};
use crate::station::slot;

pub(super) const PINGS: usize = 400;
/// Where round trips alone show the jitter.
const MANY_PINGS: usize = 10_000;
const SENDS: usize = 50;
const RELAYS: usize = 30;
/// Sends that wait for receives.
const BATCH: usize = 32;
/// Rounds of waiting receives, each with `BATCH` of them where queues hold as many.
const CREDIT_ROUNDS: usize = 32;

/// The parts of the way of a message.
const PARTS: [&str; 4] =
    ["timing.doorbell_ns", "timing.propagation_ns", "timing.delivery_ns", "timing.send_completion_ns"];

/// What programs see of [`PARTS`] where a send completes once its message has left.
const SUMS: &str = "a part of a sum: measured are doorbell + send_completion, propagation + send_completion, and 2 propagation + delivery; no \
                    program sees more";

/// The same on a device that loses sends which find no receive.
const SUMS_WITHOUT_CREDIT: &str = "a part of a sum: measured are doorbell + send_completion, and doorbell + propagation + delivery; no program sees more of a device that \
     loses sends";

/// The measured times, in nanoseconds
#[derive(Debug)]
struct Measured {
    ping: f64,
    /// From the post to the completion of a send, short and long.
    send: [f64; 2],
    spacings: Spacings,
    /// The time of a frame, and its noise; `None` if the spacings show it.
    frame: Option<[f64; 2]>,
    credit: Option<Credit>,
    jitter: f64,
}

/// What sends show that wait for receives, in nanoseconds
#[derive(Debug)]
struct Credit {
    relay: f64,
    /// The shortest time of a receive for which a send waits: without jitter.
    shortest: f64,
}

pub(super) async fn run(lab: &mut Lab<'_>) -> Result<(), CalibrateError> {
    let waits = lab.device.caps().send_waits_for_receive;
    let mut pings = ping(lab, SHORT, if waits { PINGS } else { MANY_PINGS }).await?;
    lab.findings.round_trips.push(RoundTrips::of(SHORT, pings.clone()));
    let ping = median(&mut pings);
    let long = longest(lab) * FRAME;
    let trip = Duration::from_nanos(ping as u64);
    let send = [send(lab, SHORT, trip).await?, send(lab, long, trip).await?];
    let spacings = Spacings::measure(lab, long, Costs::of(&lab.findings).post).await?;
    lab.findings.figure("round trip of 8 bytes, median", micros(ping));
    lab.findings.figure("send of 8 bytes until its completion, median", micros(send[0]));
    let late = match lab.findings.profile.model.timing {
        Timing { cpu: true, wake_tail_one_in: one_in @ 1.., .. } => 1.0 / f64::from(one_in),
        _ => 0.0,
    };
    let short = 1.0 - share_of_frame(SHORT);
    let (credit, frame, jitter) = if waits {
        let (mut credits, relay) = (credits(lab, SHORT).await?, relay(lab).await?);
        let jitter = jitter(&mut credits, late);
        lab.findings.figure("receive for a send that waits, median", micros(median(&mut credits)));
        let shortest = credits[0];
        let frame = if spacings.hide_posts {
            None
        } else {
            let of_frame = self::credits(lab, FRAME).await?.into_iter().reduce(f64::min);
            // Each of both is the shortest of many, so that it has next to none of the jitter.
            of_frame.map(|of_frame| [(of_frame - shortest) / short, jitter / 100.0])
        };
        (Some(Credit { relay, shortest }), frame, jitter)
    } else {
        let jitter = jitter_of_pings(&mut pings, late);
        let frame = if spacings.hide_posts {
            None
        } else {
            let of_frame = median(&mut self::ping(lab, FRAME, MANY_PINGS).await?);
            Some([(of_frame - ping) / 2.0 / short, jitter / 20.0])
        };
        (None, frame, jitter)
    };
    lab.findings.decide("caps.send_waits_for_receive", waits);
    if !waits {
        lab.findings
            .profile
            .remark("caps.send_waits_for_receive", "the library states it, by the kind of the device");
    }
    enter(lab, &Measured { ping, send, spacings, frame, credit, jitter }, long);
    Ok(())
}

/// Enters the constants that follow from what was measured
fn enter(lab: &mut Lab<'_>, measured: &Measured, long: usize) {
    let Measured { ping, send, ref spacings, frame, ref credit, jitter } = *measured;
    let Costs { post, program } = Costs::of(&lab.findings);
    let short = share_of_frame(SHORT);
    let [frame_ns, noise] = frame.unwrap_or_else(|| [spacings.frame_ns(), 0.0]);
    // Each begins with a post and ends with a wake-up and a poll; a relay does so twice.
    let send = send.map(|ns| ns - program);
    let credit =
        credit.as_ref().map(|Credit { relay, shortest }| [relay / 2.0 - program, shortest - program]);
    let frame_ns = frame_ns.max(0.0);
    let is_timed = frame_ns > 1.0 + noise;
    let bound = PayloadBound::find(&lab.findings, frame_ns, spacings).filter(|_| is_timed);
    let short_ns = bound.as_ref().map_or(frame_ns, |bound| bound.line_ns) * short;
    let beside = spacings.beside_bytes(frame_ns, short_ns);
    let findings = &mut lab.findings;
    findings.decide("timing.line_rate", is_timed);
    if is_timed && too_fast(findings, frame_ns).is_none() {
        findings.figure("payload rate of full frames, GB/s", format_args!("{:.2}", FRAME as f64 / frame_ns));
    } else if !is_timed {
        findings.leave("timing.frame_ns", "bytes take no time");
    }
    let (message, is_bounded) = (beside.enter(findings), bound.is_some());
    match bound {
        Some(bound) => bound.enter(findings),
        None if is_timed => enter_frame(findings, frame_ns),
        None => (),
    }
    findings.decide("timing.jitter_ns", jitter.round() as u64);

    // The long message takes so much longer only if its send completes when it has left. A bound hides what it takes beside its bytes.
    let longer = (long / FRAME) as f64 * frame_ns - short_ns - if is_bounded { message } else { 0.0 };
    let departs = if is_timed {
        send[1] - send[0] > longer / 2.0
    } else {
        // No message leaves in less time than is between two.
        send[0].min(credit.map_or(f64::MAX, |[half_of_relay, _]| half_of_relay)) >= beside.least()
    };
    if is_timed || !departs {
        findings.decide("rules.send_completion", if departs { "departure" } else { "hand-off" });
    } else {
        findings.leave("rules.send_completion", "bytes take no time");
    }
    let Some([half_of_relay, credit]) = credit else {
        let way = (ping - post - jitter) / 2.0 - program - message - short_ns;
        let send = if departs { send[0] - message - short_ns } else { send[0] };
        return enter_without_credit(findings, way.max(0.0), send.max(0.0), departs);
    };
    let credit = credit - message - short_ns;
    if !departs {
        let (doorbell, propagation) = (send[0], half_of_relay);
        let shown = [
            ("timing.doorbell_ns", doorbell),
            ("timing.propagation_ns", propagation),
            ("timing.delivery_ns", credit - 2.0 * propagation),
        ];
        for (field, value) in shown {
            findings.decide(field, value.max(0.0).round() as u64);
        }
        findings.leave("timing.send_completion_ns", "sends complete before they have left");
        return;
    }
    let doorbell_and_completion = send[0] - message - short_ns;
    let propagation_and_completion = half_of_relay - message - short_ns;
    let way = doorbell_and_completion + credit - propagation_and_completion;
    // The answering side posts a receive before it answers.
    let predicted = 2.0 * (way + message + short_ns + program) + post + jitter;
    findings.figure("round trip of 8 bytes, by the constants", micros(predicted));
    if (ping - predicted).abs() > predicted / 5.0 {
        for field in PARTS {
            let why = format!("a round trip took {}, by the parts {}", micros(ping), micros(predicted));
            findings.leave(field, &why);
        }
        return;
    }
    findings.figure(
        "round trip of 8 bytes beyond that, in percent",
        format_args!("{:.1}", 100.0 * (ping / predicted - 1.0)),
    );
    let doorbell_and_completion =
        fitted(doorbell_and_completion, ping - predicted, predicted / 100.0 + jitter / 5.0);
    let base = findings.profile.model.timing.send_completion_ns as f64;
    // More of it leaves the delivery less than nothing.
    let least = propagation_and_completion - credit / 2.0;
    let completion = base.max(least).min(doorbell_and_completion).min(propagation_and_completion).max(0.0);
    let doorbell = doorbell_and_completion - completion;
    let propagation = propagation_and_completion - completion;
    for (field, value) in
        PARTS.into_iter().zip([doorbell, propagation, credit - 2.0 * propagation, completion])
    {
        findings.divide(field, value, SUMS);
    }
}

/// Enters the constants that follow from the way of a message and from a send alone, both without what the message takes
///
/// What nothing tells apart keeps the values of the base as far as possible.
fn enter_without_credit(findings: &mut Findings, way: f64, send: f64, departs: bool) {
    let base = &findings.profile.model.timing;
    let (base_completion, base_propagation) = (base.send_completion_ns as f64, base.propagation_ns as f64);
    // The doorbell is a part of the way.
    let completion = if departs { base_completion.min(send).max(send - way) } else { 0.0 };
    let doorbell = (send - completion).min(way);
    let propagation = base_propagation.min(way - doorbell);
    if departs {
        findings.divide("timing.doorbell_ns", doorbell, SUMS_WITHOUT_CREDIT);
        findings.divide("timing.send_completion_ns", completion, SUMS_WITHOUT_CREDIT);
    } else {
        findings.decide("timing.doorbell_ns", doorbell.round() as u64);
        findings.leave("timing.send_completion_ns", "sends complete before they have left");
    }
    findings.divide("timing.propagation_ns", propagation, SUMS_WITHOUT_CREDIT);
    findings.divide("timing.delivery_ns", way - doorbell - propagation, SUMS_WITHOUT_CREDIT);
}

/// The time of a send alone, with which a round trip takes `beyond` more than its parts do, if that is more than `noise`
///
/// A machine that does something else adds to some of the parts, and most to a send after a pause. The round trip counts for programs.
fn fitted(send: f64, beyond: f64, noise: f64) -> f64 {
    if beyond.abs() <= noise { send } else { (send + beyond / 2.0).max(0.0) }
}

/// The times of the program on the way of a message, in nanoseconds
struct Costs {
    post: f64,
    /// A post, a wake-up and a poll
    program: f64,
}

impl Costs {
    /// As the profile has them so far, with which the simulator lets them pass beside the ways of messages
    fn of(findings: &Findings) -> Self {
        let t = &findings.profile.model.timing;
        if !t.cpu {
            return Self { post: 0.0, program: 0.0 };
        }
        Self { post: t.post_ns as f64, program: (t.post_ns + t.wake_ns + t.poll_ns) as f64 }
    }
}

fn micros(ns: f64) -> String {
    format!("{:.3} µs", ns / 1000.0)
}

/// The upper bound of what is drawn evenly from 0 on, from samples of a constant plus that, of which the part `late` is late beside it
fn jitter(samples: &mut [f64], late: f64) -> f64 {
    samples.sort_by(f64::total_cmp);
    let n = samples.len() as f64;
    let in_time = n * (1.0 - late);
    let up_to = |part: f64| {
        let at = ((n - 1.0) * part) as usize;
        (samples[at] - samples[0]) * (in_time + 1.0) / (at as f64).max(1.0)
    };
    // Real hosts have a tail of their own. Where that stretches the bound, it follows from the three quarters below.
    let (all, most) = (up_to((0.99 - 3.0 * late).max(0.75)), up_to(0.75));
    if all > 1.5 * most + 10.0 { most } else { all }
}

/// The upper bound of what each way of a round trip has beside its constant time, of which the part `late` of the wake-ups is late
///
/// The sum of two such times is between two quantiles of it for a known part of the bound. Those below the middle of the longest ones are
/// taken, because late ones add to these.
fn jitter_of_pings(samples: &mut [f64], late: f64) -> f64 {
    const PARTS: [f64; 2] = [0.1, 0.6];
    samples.sort_by(f64::total_cmp);
    // A round trip has a wake-up on each side.
    let in_time = samples.len() as f64 * (1.0 - late).powi(2);
    let [low, high] = PARTS.map(|part| samples[((in_time * part) as usize).min(samples.len() - 1)]);
    let [low_sum, high_sum] = [(2.0 * PARTS[0]).sqrt(), 2.0 - (2.0 * (1.0 - PARTS[1])).sqrt()];
    (high - low) / (high_sum - low_sum)
}

/// Round trips of messages of `len` bytes
pub(super) async fn ping(lab: &mut Lab<'_>, len: usize, rounds: usize) -> Result<Vec<f64>, CalibrateError> {
    let mut station = lab.pair(64, 4 * len + (1 << 16)).await?;
    for number in 0..2 {
        station.recv(slot(number, len))?;
    }
    lab.ask(Request::Echo { rounds, len }).await?;
    let mut times = Vec::with_capacity(rounds);
    for round in 0..rounds {
        let start = lab.now();
        station.send(len)?;
        station.received().await?;
        times.push(ns(start, lab.now()));
        station.recv(slot(round % 2, len))?;
        station.sent().await?;
    }
    lab.reply().await?;
    Ok(times)
}

/// The median of the time from the post of a message until its send completes, where a round trip takes `trip`
async fn send(lab: &mut Lab<'_>, len: usize, trip: Duration) -> Result<f64, CalibrateError> {
    let mut station = lab.pair(512, 4 * len + (1 << 16)).await?;
    let mut times = Vec::with_capacity(SENDS);
    for _ in 0..SENDS {
        lab.recv(1, len).await?;
        // The stream between the sides may be faster than the cable, and the receive not known here yet.
        lab.rest(trip).await;
        let start = lab.now();
        station.send(len)?;
        station.sent().await?;
        times.push(ns(start, lab.now()));
        lab.ask(Request::Received { count: 1 }).await?;
    }
    Ok(median(&mut times))
}

/// The times of receives of the peer for which sends of `len` bytes, a frame at most, waited here
async fn credits(lab: &mut Lab<'_>, len: usize) -> Result<Vec<f64>, CalibrateError> {
    let mut station = lab.pair(64, 1 << 16).await?;
    let mut times = Vec::new();
    let batch = BATCH.min(lab.queue_room);
    for _ in 0..CREDIT_ROUNDS * BATCH / batch {
        for _ in 0..batch {
            station.send(len)?;
        }
        match lab.ask(Request::Credits { rounds: batch, len }).await? {
            Reply::Took { nanoseconds } if !nanoseconds.is_empty() => {
                times.extend(nanoseconds.into_iter().map(|ns| ns as f64));
            }
            _ => return Err(CalibrateError::NotCalibrate),
        }
        for _ in 0..batch {
            station.sent().await?;
        }
    }
    Ok(times)
}

/// The median of the time from a receive here, for which a send of the peer waits, until a send here completes, for which the peer posts a
/// receive then: without the time until that post
async fn relay(lab: &mut Lab<'_>) -> Result<f64, CalibrateError> {
    let mut station = lab.pair(64, 1 << 16).await?;
    let mut times = Vec::with_capacity(RELAYS);
    for _ in 0..RELAYS {
        station.send(SHORT)?;
        lab.ask(Request::Relay { len: SHORT }).await?;
        // Both sends wait by then.
        lab.rest(Duration::from_millis(1)).await;
        let start = lab.now();
        station.recv(slot(0, SHORT))?;
        station.sent().await?;
        let took = ns(start, lab.now());
        station.received().await?;
        let Reply::Took { nanoseconds } = lab.reply().await? else {
            return Err(CalibrateError::NotCalibrate);
        };
        let [pause] = nanoseconds[..] else { return Err(CalibrateError::NotCalibrate) };
        times.push(took - pause as f64);
    }
    Ok(median(&mut times))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bound_of_an_even_distribution_is_found() {
        let mut samples: Vec<_> = (0..512).map(|number| 5000.0 + f64::from(number * 37 % 512)).collect();
        let found = jitter(&mut samples, 0.0);
        assert!((505.0..520.0).contains(&found), "{found}");
        assert_eq!(jitter(&mut [7.0; 512], 0.0), 0.0);
        // One in ten comes a millisecond late.
        let mut late: Vec<_> =
            samples.iter().enumerate().map(|(at, ns)| if at % 10 == 0 { 1e6 } else { *ns }).collect();
        let found = jitter(&mut late, 0.1);
        assert!((505.0..600.0).contains(&found), "{found}");
    }

    /// Regression: sends that a machine delayed after a pause made the round trip of the profile 7 % longer than the one that was measured.
    #[test]
    fn the_round_trip_counts_where_its_parts_say_otherwise() {
        assert_eq!(fitted(75.0, -100.0, 40.0), 25.0);
        assert_eq!(fitted(75.0, 100.0, 40.0), 125.0);
        assert_eq!(fitted(75.0, -40.0, 40.0), 75.0);
        assert_eq!(fitted(75.0, -200.0, 40.0), 0.0);
    }
}
