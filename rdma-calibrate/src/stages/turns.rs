//! Two queue pairs that send at once: their turns at the transmitter
//!
//! Both have the same number of frames. If the first one sends N frames in a row for each frame of the second, the second one has sent 1 / N
//! of its frames when the first one ends. The others then take as long as they do alone, and N follows from that time.

use rdma_core::{Device as _, FRAME};

use super::streams::{Room, once};
use super::timing::median;
use crate::error::CalibrateError;
use crate::lab::Lab;
use crate::message::Flow;
const FIELD: &str = "timing.turns";
const RULE: &str = "turns";
const ROUNDS: usize = 5;
/// The length of a message, which is that of a row of goodput.
const LEN: usize = 16 * FRAME;
/// The messages of each queue pair: beside so many frames, the jitter of the last one is small.
const COUNT: usize = 128;
/// The fewest messages at once with which a queue pair always has something to send.
const LEAST: usize = 4;
/// The most frames in a row that such streams tell from all of them.
const MOST_IN_A_ROW: f64 = 10.0;
/// The second queue pair may end so much before the first, in parts of a stream.
const NOISE: f64 = 0.1;

pub(super) async fn run(lab: &mut Lab<'_>) -> Result<(), CalibrateError> {
    let goodput = lab.findings.goodput.iter().filter(|row| row.bytes == LEN);
    let Some(rate) = goodput.map(|row| row.one_way).reduce(f64::max) else {
        leave(lab, "no stream of long messages shows what a frame takes");
        return Ok(());
    };
    let (window, depth) = Room::of(lab).window(lab, LEN);
    if depth < LEAST || lab.device.caps().max_qp < 2 {
        leave(lab, "queues do not hold enough for two queue pairs that compete");
        return Ok(());
    }
    let flow = Flow { there: COUNT, back: 0, len: LEN, depth, window };
    // GB/s are bytes in a nanosecond.
    let alone = (COUNT * LEN) as f64 / rate;
    let mut behind = Vec::with_capacity(ROUNDS);
    for _ in 0..ROUNDS {
        let ends = once(lab, &flow, &[0, 0]).await?.ends;
        let [first, second] = ends[..] else { return Err(CalibrateError::NotCalibrate) };
        behind.push((second.as_nanos() as f64 - first.as_nanos() as f64) / alone);
    }
    let behind = median(&mut behind);
    match turns(behind) {
        Ok(turns) => {
            lab.findings.decide(FIELD, turns);
            lab.findings.rule(RULE, None);
        }
        Err(instead) => {
            lab.findings.leave(FIELD, &instead);
            lab.findings.rule(RULE, Some(instead));
        }
    }
    Ok(())
}

fn leave(lab: &mut Lab<'_>, why: &str) {
    lab.findings.leave(FIELD, why);
    lab.findings.leave_rule(RULE, why.to_owned());
}

/// The frames in a row of the first queue pair, where the second one ends later by `behind` of the time that a stream takes alone; an
/// account of the device if they take no turns
fn turns(behind: f64) -> Result<u64, String> {
    let in_a_row = 1.0 / (1.0 - behind);
    if behind < -NOISE {
        Err(format!("the second of two queue pairs ends first, by {:.2} of a stream alone", -behind))
    } else if behind >= 1.0 || in_a_row > MOST_IN_A_ROW + 0.5 {
        Err("the second of two queue pairs sends next to nothing before the first one has ended".to_owned())
    } else {
        Ok((in_a_row.round() as u64).max(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Catches a count that is off by one, and noise that counts as a turn.
    #[test]
    fn the_frames_in_a_row_follow_from_the_end_of_the_second_stream() {
        for frames in 1..=10_u32 {
            assert_eq!(turns(1.0 - 1.0 / f64::from(frames)), Ok(frames.into()));
        }
        assert_eq!([turns(-0.05), turns(0.2)], [Ok(1), Ok(1)]);
        for (behind, instead) in [(0.95, "before the first"), (1.2, "before the first"), (-0.5, "ends first")]
        {
            assert!(turns(behind).unwrap_err().contains(instead), "{behind}");
        }
    }
}
