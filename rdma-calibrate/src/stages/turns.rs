//! Two queue pairs that send at once: their turns at the transmitter
//!
//! Both have the same number of frames. If the first one sends N frames in a row for each frame of the second, the second one has sent 1 / N
//! of its frames when the first one ends. The others then take as long as they do alone, which is half of the time of both, and N follows
//! from that time. The streams become longer until the jitter of their ends and the times of the programs leave one whole number. The longest
//! tell about a hundred frames in a row from more: beyond, and if the second one sends nothing before the first one ends, the number is not
//! decided.

use std::time::Duration;

use rdma_core::{Device as _, FRAME};
use rdma_sim::Timing;

use super::samples::median;
use super::streams::{Room, once};
use crate::error::CalibrateError;
use crate::lab::Lab;
use crate::message::Flow;

const FIELD: &str = "timing.turns";
const RULE: &str = "turns";
const ROUNDS: usize = 5;
/// The length of a message, which is that of a row of goodput.
const MESSAGE_LEN: usize = 16 * FRAME;
/// The messages of each queue pair in the first streams, and in the longest, of which all rounds take a second or two on a cable.
const COUNTS: [usize; 2] = [128, 16_384];
/// By how much longer streams are than those before.
const LONGER: usize = 4;
/// The time of the posts with which a stream begins, unless more are needed to keep the cable busy.
const POSTS: Duration = Duration::from_micros(10);
/// The fewest messages at once with which a queue pair always has something to send.
const LEAST: usize = 4;
/// The second queue pair may end so much before the first, in parts of a stream.
const NOISE: f64 = 0.1;

pub(super) async fn run(lab: &mut Lab<'_>) -> Result<(), CalibrateError> {
    let goodput = lab.findings.goodput.iter().filter(|row| row.bytes == MESSAGE_LEN);
    let Some(rate) = goodput.map(|row| row.one_way).reduce(f64::max) else {
        leave(lab, "no stream of long messages shows what a frame takes");
        return Ok(());
    };
    let (window, depth) = Room::of(lab).window(lab, MESSAGE_LEN);
    if depth < LEAST || lab.device.caps().max_qp < 2 {
        leave(lab, "queues do not hold enough for two queue pairs that compete");
        return Ok(());
    }
    // GB/s are bytes in a nanosecond.
    let message_ns = MESSAGE_LEN as f64 / rate;
    let program = Program::of(&lab.findings.profile.model.timing);
    let depth = program.depth(depth, message_ns);
    let mut count = COUNTS[0];
    loop {
        let flow = Flow { there: count, back: 0, len: MESSAGE_LEN, depth, window };
        let mut rounds = Vec::with_capacity(ROUNDS);
        for _ in 0..ROUNDS {
            let ends = once(lab, &flow, &[0, 0]).await?.ends;
            let [first, second] = ends[..] else { return Err(CalibrateError::NotCalibrate) };
            if second.is_zero() {
                leave(lab, "the second of two streams took no time, by the clock of the peer");
                return Ok(());
            }
            rounds.push(behind(count as f64, [first, second].map(|end| end.as_nanos() as f64)));
        }
        let behind = median(&mut rounds);
        // The rounds are in order now.
        let spread = rounds[ROUNDS - 2] - rounds[1];
        let noise_ns = program.noise_ns + program.begins_ns(depth) * (1.0 - behind) + 2.0 * message_ns / 16.0;
        let error = spread.max(noise_ns / (count as f64 * message_ns));
        let frames = count * MESSAGE_LEN / FRAME;
        match Turns::between(behind - error, behind + error) {
            Turns::Exactly(turns) => {
                lab.findings.decide(FIELD, turns);
                lab.findings.rule(RULE, None);
            }
            Turns::SecondEndsFirst => {
                let instead =
                    format!("the second of two queue pairs ends first, by {:.2} of a stream alone", -behind);
                lab.findings.leave(FIELD, &instead);
                lab.findings.rule(RULE, Some(instead));
            }
            Turns::Between(..) | Turns::MoreThan(_) | Turns::SecondPauses if count < COUNTS[1] => {
                count = (count * LONGER).min(COUNTS[1]);
                continue;
            }
            Turns::Between(least, most) => {
                leave(lab, &format!("between {least} and {most}: streams of {frames} frames show no more"));
            }
            Turns::SecondPauses => leave(lab, "the second of two streams ends later than both take together"),
            Turns::MoreThan(least) => {
                let why = format!(
                    "more than {least}: streams of {frames} frames do not show how many, or whether the second of two queue pairs sends \
                     anything before the first one has ended"
                );
                leave(lab, &why);
            }
        }
        return Ok(());
    }
}

/// The times of the programs beside those of the cable, in nanoseconds
struct Program {
    post_ns: f64,
    /// From the post of a send until the program that has seen its completion posts another one
    again_ns: f64,
    /// By how much the end of a stream varies
    noise_ns: f64,
}

impl Program {
    fn of(timing: &Timing) -> Self {
        let &Timing { post_ns, poll_ns, wake_ns, wake_tail_ns, jitter_ns, .. } = timing;
        let [post, poll, wake, tail] = match timing.cpu {
            true => [post_ns, poll_ns, wake_ns, wake_tail_ns.into()].map(|ns| ns as f64),
            false => [0.0; 4],
        };
        let completes = (timing.doorbell_ns + timing.send_completion_ns) as f64;
        Self {
            post_ns: post,
            again_ns: completes + wake + tail + 2.0 * (post + poll),
            noise_ns: f64::from(jitter_ns) + wake + 2.0 * (post + poll),
        }
    }

    /// The number of messages at once that keeps the cable busy, at most `most`
    fn depth(&self, most: usize, message_ns: f64) -> usize {
        let needed = 2 + (2.0 * self.again_ns / message_ns) as usize;
        let posted = (POSTS.as_nanos() as f64 / self.post_ns.max(1.0)) as usize;
        needed.max(posted).max(LEAST).min(most)
    }

    /// The time of the posts with which the first stream begins, before the second one does
    fn begins_ns(&self, depth: usize) -> f64 {
        depth as f64 * self.post_ns
    }
}

fn leave(lab: &mut Lab<'_>, why: &str) {
    lab.findings.leave(FIELD, why);
    lab.findings.leave_rule(RULE, why.to_owned());
}

/// By how much the second of two streams of `count` messages ends later, as a part of the time that one takes alone
///
/// The times of both ends begin with the first message that has arrived, which takes its part of both streams.
fn behind(count: f64, [first, second]: [f64; 2]) -> f64 {
    let later = second - first;
    later * (2.0 * count - 2.0) / (second * count - later)
}

/// The frames in a row that the first queue pair sends for each frame of the second one, as far as streams show it
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Turns {
    Between(u64, u64),
    Exactly(u64),
    MoreThan(u64),
    /// It takes longer than both streams together
    SecondPauses,
    /// They take no turns
    SecondEndsFirst,
}

impl Turns {
    /// Where the second one ends later by between `least` and `most` of the time that a stream takes alone
    fn between(least: f64, most: f64) -> Self {
        if most < -NOISE {
            return Self::SecondEndsFirst;
        }
        let in_a_row = |behind: f64| (behind < 1.0).then(|| ((1.0 / (1.0 - behind)).round() as u64).max(1));
        match [least, most].map(in_a_row) {
            [Some(least), Some(most)] if least == most => Self::Exactly(least),
            [Some(least), Some(most)] => Self::Between(least, most),
            [Some(least), None] => Self::MoreThan(least - 1),
            [None, _] => Self::SecondPauses,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Catches a first message of which the time is left out of one stream only.
    #[test]
    fn the_time_that_a_stream_takes_alone_follows_from_both() {
        for turns in 1..=10 {
            // In times of a message: the first stream takes its frames and those that the second one sends between them.
            let (count, part) = (128.0, 1.0 / f64::from(turns));
            let first_message = 1.0 + part;
            let ends = [count * (1.0 + part) - first_message, 2.0 * count - first_message];
            assert!((behind(count, ends) - (1.0 - part)).abs() < 1e-9, "{turns}");
        }
    }

    /// Catches streams that pause while the program waits for completions, and those that begin long after each other.
    #[test]
    fn as_many_messages_are_posted_as_keep_the_cable_busy() {
        let program = |post_ns, again_ns| Program { post_ns, again_ns, noise_ns: 0.0 };
        assert_eq!(program(0.0, 2_000.0).depth(64, 7_000.0), 64);
        assert_eq!(program(1_300.0, 2_000.0).depth(64, 7_000.0), 7);
        assert_eq!(program(1_300.0, 30_000.0).depth(64, 7_000.0), 10);
        assert_eq!(program(1_300.0, 30_000.0).depth(8, 7_000.0), 8);
    }

    /// Catches a count that is off by one, noise that counts as a turn, and a number beyond the longest streams that is said to be known.
    #[test]
    fn the_frames_in_a_row_follow_from_the_end_of_the_second_stream() {
        let exactly = |behind: f64| Turns::between(behind - 1e-6, behind + 1e-6);
        for frames in [1, 2, 3, 10, 11, 16, 64, 100_u32] {
            assert_eq!(exactly(1.0 - 1.0 / f64::from(frames)), Turns::Exactly(frames.into()));
        }
        assert_eq!([exactly(-0.05), exactly(0.2)], [Turns::Exactly(1), Turns::Exactly(1)]);
        assert_eq!(Turns::between(0.89, 0.91), Turns::Between(9, 11));
        for most in [1.0, 1.1] {
            assert_eq!(Turns::between(0.99, most), Turns::MoreThan(99), "{most}");
        }
        assert_eq!([Turns::between(1.1, 1.2), Turns::between(f64::NAN, f64::NAN)], [Turns::SecondPauses; 2]);
        assert_eq!(Turns::between(-0.6, -0.4), Turns::SecondEndsFirst);
        assert_eq!(Turns::between(-0.5, 0.1), Turns::Exactly(1), "it may end at the same time");
    }
}
