//! Judge of round trips and rates: those of a calibration are those of the device

use rdma_calibrate::{Findings, Goodput};
use rdma_sim::Model;
use rdma_sim::profile::Decided;
use rdma_sim::rules::SendCompletion;

use crate::devices::cables;
use crate::transmitter::occupied;

/// By how much a figure may differ
const CLOSE: f64 = 0.05;

/// Fails unless both are the same within 5 %
#[track_caller]
pub(crate) fn assert_within(what: &str, truth: f64, found: f64) {
    assert!((found / truth - 1.0).abs() < CLOSE, "{what} is {truth}, found {found}");
}

/// Fails unless the rates are those that follow from the constants of `secret`, which are independent of what was measured, within 5 %
#[track_caller]
pub(crate) fn assert_figures(seed: u64, secret: &Model, found: &Findings) {
    let (t, rate) = (&secret.timing, cables(seed).rate);
    let way = t.doorbell_ns + t.propagation_ns + t.delivery_ns;
    let latency = (2 * (way + u64::from(t.jitter_ns) + t.send_completion_ns)) as f64;
    let program = t.post_ns + t.wake_ns + t.poll_ns;
    let (post, program, tail) = if t.cpu { (t.post_ns, program, tail_ns(secret)) } else { (0, 0, 0.0) };
    let rows = |bytes| found.goodput.iter().filter(move |row| row.bytes == bytes);
    for bytes in [4096, 16_384, 65_536, 262_144, 1_048_576] {
        let is_missing = found.goodput_missing.iter().any(|(missing, _)| *missing == bytes);
        assert_ne!(
            rows(bytes).count() > 0,
            is_missing,
            "seed {seed}: {bytes} bytes: {:?}",
            found.goodput_missing
        );
        let message = occupied(rate, secret, bytes) as f64;
        // Receives are posted as deep as sends at most, so that the stream waits for none of these.
        let deepest = rows(bytes).map(|row| row.depth).max().unwrap_or(0) as f64;
        for row in rows(bytes) {
            let one = (t.doorbell_ns + t.send_completion_ns + program) as f64 + message + tail;
            let hands_off = secret.rules.send_completion == SendCompletion::HandOff;
            let expected = match row.depth {
                // The program receives meanwhile, which takes time, too.
                1 if !hands_off && t.cpu && row.both_ways > 0.0 => continue,
                1 if !hands_off && deepest * one > 2.0 * (latency + message) => one,
                // The program keeps up.
                _ if message < 8.0 * (program as f64 + tail) => continue,
                depth
                    if depth as f64 * message
                        > 2.0 * (latency + message + program as f64) + late_ns(secret) =>
                {
                    message
                }
                _ => continue,
            };
            for found in [row.one_way, row.back, row.both_ways] {
                let what = format!("seed {seed}: GB/s of {} messages of {bytes} bytes at once", row.depth);
                assert_within(&what, bytes as f64 / expected, found);
            }
        }
    }
    assert_eq!(found.round_trips[0].bytes, 8, "seed {seed}");
    for trips in &found.round_trips {
        assert!(trips.ns.is_sorted(), "seed {seed}: {trips:?}");
        let message = occupied(rate, secret, trips.bytes) as f64;
        let least = 2.0 * (way as f64 + message + program as f64) + post as f64;
        // A completion of a send keeps the program busy for a moment.
        let busy = if t.cpu { (t.wake_ns + 3 * t.poll_ns) as f64 } else { 0.0 };
        let jitter = f64::from(t.jitter_ns);
        let [shortest, .., longest] = trips.ns;
        // Each has the jitter of two deliveries.
        let is_shortest = (least - busy - 1.0..=least + jitter / 4.0 + busy + 1.0).contains(&shortest);
        let is_longest = (least + 1.5 * jitter - busy - 1.0
            ..=least + 2.0 * jitter + 4.0 * (busy + late_ns(secret)) + 1.0)
            .contains(&longest);
        assert!(is_shortest && is_longest, "seed {seed}: {trips:?}, at least {least}");
    }
}

/// The time that the latest wake-up takes in addition
fn late_ns(model: &Model) -> f64 {
    let t = &model.timing;
    if t.cpu && t.wake_tail_one_in > 0 { f64::from(t.wake_tail_ns) } else { 0.0 }
}

/// The time that late wake-ups take in addition, on average of all
fn tail_ns(model: &Model) -> f64 {
    late_ns(model) / 2.0 / f64::from(model.timing.wake_tail_one_in.max(1))
}

/// Fails unless both have the same figures, within 5 %
#[track_caller]
pub(crate) fn assert_same_figures(seed: u64, device: &Findings, simulated: &Findings) {
    // A device whose queues refuse nothing does not show how much they hold, so that other depths are measured.
    for truth in &device.goodput {
        let is_same = |row: &&Goodput| (row.bytes, row.depth) == (truth.bytes, truth.depth);
        let Some(found) = simulated.goodput.iter().find(is_same) else {
            assert_ne!(device.profile.decided("rules.queue_grant"), Some(Decided::Measured), "seed {seed}");
            continue;
        };
        let what = format!("seed {seed}: {truth:?}");
        let rates =
            [(truth.one_way, found.one_way), (truth.back, found.back), (truth.both_ways, found.both_ways)];
        for (truth, found) in rates {
            assert_within(&what, truth, found);
        }
    }
    assert_eq!(device.round_trips.len(), simulated.round_trips.len(), "seed {seed}");
    for (truth, found) in device.round_trips.iter().zip(&simulated.round_trips) {
        // Few round trips are late, each by another time.
        let has_tail = device.profile.model.timing.cpu && device.profile.model.timing.wake_tail_one_in > 0;
        for (truth, found) in truth.ns.into_iter().zip(found.ns).take(if has_tail { 2 } else { 5 }) {
            assert_within(
                &format!("seed {seed}: a round trip of {} bytes", device.round_trips[0].bytes),
                truth,
                found,
            );
        }
    }
}
