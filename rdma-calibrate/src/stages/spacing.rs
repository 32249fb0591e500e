//! By how much each further message of a batch makes that complete later: what a message occupies the transmitter for
//!
//! A batch is posted while earlier messages keep the transmitter busy, so that the times of its posts do not show. Where these do not keep it
//! busy for long enough, a message shows what it occupies the transmitter for only if that takes longer than a post.

use rdma_core::{Device as _, FRAME};
use rdma_sim::LineRate;

use super::samples::{median, ns};
use crate::error::CalibrateError;
use crate::findings::Findings;
use crate::lab::Lab;
use crate::message::Request;

/// A message that is short beside everything else.
pub(super) const SHORT: usize = 8;
/// The frames of a long message, of which queues hold two.
const LONG: usize = 64;
/// A part of a frame, of which a bound of the payload hides less than of a whole one.
pub(super) const PART: usize = 1024;
/// The most messages of a batch.
const QUEUED: usize = 16;
/// Rounds of batches, each with one message and with all.
const ROUNDS: usize = 9;
/// The part of the time of busy messages in which a batch is posted at most.
const MARGIN: f64 = 0.8;
/// The part of the time of a frame from which on the time of a message beside its bytes counts as hidden.
pub(super) const HIDDEN: f64 = 0.02;
/// A spacing of more than this many posts is that of messages, not of their posts.
const NOISE: f64 = 1.02;
const FIELD: &str = "timing.per_message_ns";

/// By how much further messages make a batch complete later, in nanoseconds
#[derive(Debug)]
pub(super) struct Spacings {
    /// Of 8 bytes
    pub(super) short: f64,
    /// Of [`PART`] bytes
    pub(super) part: f64,
    /// Of a frame
    pub(super) frame: f64,
    /// Of so many frames, in one piece
    pub(super) long: (usize, f64),
    /// The time of a post
    pub(super) post: f64,
    /// Whether busy messages hid the posts of `short`, `part` and `frame`
    pub(super) hide_posts: bool,
}

/// The time of a message beside its bytes, in nanoseconds
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum BesideBytes {
    /// It does not show, because a post takes longer
    AtMost(f64),
    /// By messages of `len` bytes
    Measured { ns: f64, len: usize },
}

impl Spacings {
    /// Measures them, where the longest messages have `long` bytes and a post takes `post`
    pub(super) async fn measure(lab: &mut Lab<'_>, long: usize, post: f64) -> Result<Self, CalibrateError> {
        let (frames, most) = (long / FRAME, most(lab));
        let long_ns = spacing(lab, (0, 0), long, (2 * most / frames).min(QUEUED)).await?;
        let before = most / frames;
        let behind = lab.queue_room.saturating_sub(before * frames);
        let batch = batch(before as f64 * (long_ns - post), post).filter(|_| behind >= 2);
        // Posts without a time hide themselves.
        let hide_posts = batch.is_some() || post <= 0.0;
        let alone = QUEUED.min(lab.queue_room).max(2);
        let (busy, batch) = batch.map_or(((0, 0), alone), |batch| ((before, long), batch.min(behind)));
        Ok(Self {
            part: spacing(lab, busy, PART, batch).await?,
            short: spacing(lab, busy, SHORT, batch).await?,
            frame: spacing(lab, busy, FRAME, batch).await?,
            long: (frames, long_ns),
            post,
            hide_posts,
        })
    }

    /// The time of a frame, where busy messages hid the posts
    pub(super) fn frame_ns(&self) -> f64 {
        match self.long {
            // Of longer messages, because the time of a message before its first frame may be hidden.
            (frames @ 2.., long) => (long - self.frame) / (frames - 1) as f64,
            _ if self.is_bounded() => self.frame,
            _ => (self.frame - self.short) / (1.0 - share_of_frame(SHORT)),
        }
    }

    /// Whether a bound of the payload hides what a message of a frame takes beside its bytes: a part of a frame takes less than its share of what
    /// a frame takes more than a short message
    fn is_bounded(&self) -> bool {
        let [short, part] = [SHORT, PART].map(share_of_frame);
        let in_line = self.short + (self.frame - self.short) * (part - short) / (1.0 - short);
        in_line - self.part > HIDDEN * self.frame
    }

    /// The time of a message beside its bytes, where a frame takes `frame_ns` and 8 bytes take `short_ns`
    pub(super) fn beside_bytes(&self, frame_ns: f64, short_ns: f64) -> BesideBytes {
        let Self { short, part, frame, long: (frames, long), post, hide_posts } = *self;
        if hide_posts {
            return BesideBytes::Measured { ns: (short - short_ns).max(0.0), len: SHORT };
        }
        let mut most = post;
        let part_of_frame = share_of_frame(PART) * frame_ns;
        let lens = [
            (SHORT, short, short_ns),
            (PART, part, part_of_frame),
            (FRAME, frame, frame_ns),
            (frames * FRAME, long, frames as f64 * frame_ns),
        ];
        for (len, spacing, bytes_ns) in lens {
            if spacing > post * NOISE {
                return BesideBytes::Measured { ns: (spacing - bytes_ns).clamp(0.0, most), len };
            }
            most = (post - bytes_ns).clamp(0.0, most);
        }
        BesideBytes::AtMost(most)
    }
}

impl BesideBytes {
    /// The least that it is
    pub(super) fn least(self) -> f64 {
        match self {
            Self::AtMost(_) => 0.0,
            Self::Measured { ns, .. } => ns,
        }
    }

    /// Enters it, and returns what the profile has then
    pub(super) fn enter(self, findings: &mut Findings) -> f64 {
        let stated = findings.profile.model.timing.per_message_ns as f64;
        match self {
            Self::Measured { ns, len } => {
                findings.decide(FIELD, ns.round() as u64);
                if len > SHORT {
                    let why = format!("of messages of {len} bytes: a post takes longer than a shorter one");
                    findings.profile.remark(FIELD, &why);
                }
                ns
            }
            Self::AtMost(ns) => {
                let why =
                    format!("at most {ns:.0}: a post takes longer than a message, and no message is longer");
                if stated <= ns {
                    findings.leave(FIELD, &why);
                    return stated;
                }
                let ns = ns.floor();
                findings.decide(FIELD, ns as u64);
                findings.profile.remark(FIELD, &why);
                ns
            }
        }
    }
}

/// The frames of a long message: as many as the device takes, and half of what its queues hold
pub(super) fn longest(lab: &Lab<'_>) -> usize {
    most(lab).min(lab.device.caps().max_message as usize / FRAME).max(1)
}

/// The frames of which queues hold twice as many
fn most(lab: &Lab<'_>) -> usize {
    LONG.min(lab.queue_room / 2).max(1)
}

/// The bytes of a message of `len` bytes on the wire, in frames
pub(super) fn share_of_frame(len: usize) -> f64 {
    let wire = |len| LineRate::TB5.wire_bytes(len) as f64;
    wire(len) / wire(FRAME)
}

/// The number of messages that are posted within `busy_ns` at `post` each; `None` if they are too few
fn batch(busy_ns: f64, post: f64) -> Option<usize> {
    let posted = if post > 0.0 { (busy_ns * MARGIN / post) as usize } else { QUEUED };
    (posted >= 2).then_some(posted.min(QUEUED))
}

/// By how much each further message of a batch makes that complete later, behind `busy` messages of a length that keep the cable busy
///
/// Only the last message completes: completions between would keep the program busy, which then sees the last one late.
async fn spacing(
    lab: &mut Lab<'_>,
    busy: (usize, usize),
    len: usize,
    batch: usize,
) -> Result<f64, CalibrateError> {
    let (before, long) = busy;
    let frames = before * rdma_core::frames(long) + batch * rdma_core::frames(len);
    // Receives of the batch lie behind those of the messages before it.
    let size = len.next_multiple_of(FRAME);
    let first = ((before + 1) * long).div_ceil(size);
    let mut station = lab.pair(frames.max(64) as u32, (first + batch + 2) * size.max(long)).await?;
    let mut times = [Vec::new(), Vec::new()];
    for _ in 0..ROUNDS {
        for (times, count) in times.iter_mut().zip([1, batch]) {
            if before > 0 {
                lab.recv(before, long).await?;
            }
            lab.ask(Request::Recv { first, count, len }).await?;
            let start = lab.now();
            for _ in 0..before {
                station.send_unsignaled(long)?;
            }
            let last = station.send_in_a_row(count, len)?;
            station.sent_until(last).await?;
            times.push(ns(start, lab.now()));
            lab.ask(Request::Received { count: before + count }).await?;
        }
    }
    let [one, all] = times.each_mut().map(|times| median(times));
    Ok((all - one) / (batch - 1) as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Catches a batch of which the posts take longer than the messages before it, and posts without a time that leave no batch.
    #[test]
    fn a_batch_is_posted_while_the_messages_before_it_keep_the_cable_busy() {
        assert_eq!(batch(28_000.0, 0.0), Some(QUEUED));
        assert_eq!(batch(28_000.0, 499.0), Some(QUEUED));
        assert_eq!(batch(28_000.0, 4_000.0), Some(5));
        assert_eq!(batch(28_000.0, 14_000.0), None);
        assert_eq!(batch(0.0, 499.0), None);
    }

    /// Regression: on a device of which messages have one frame at most, a bound of the payload was taken for the rate of the cable, which made
    /// a stream of short messages 5 % longer.
    #[test]
    fn a_part_of_a_frame_shows_a_bound_of_the_payload() {
        let [short, part] = [SHORT, PART].map(share_of_frame);
        let spacings = |bound: f64| {
            let spacing = |share: f64, of_frame: f64| (153.0 + 894.0 * share).max(bound * of_frame);
            let [short, part, frame] = [spacing(short, 0.002), spacing(part, 0.25), spacing(1.0, 1.0)];
            Spacings { short, part, frame, long: (1, frame), post: 0.0, hide_posts: true }
        };
        assert!((893.0..895.0).contains(&spacings(0.0).frame_ns()));
        assert_eq!(spacings(1638.0).frame_ns(), 1638.0);
    }

    /// Catches the time of a post that is taken for that of a message.
    #[test]
    fn a_message_shows_where_it_takes_longer_than_a_post() {
        let spacings = |frame, post| Spacings {
            short: post,
            part: post,
            frame,
            long: (1, frame),
            post,
            hide_posts: false,
        };
        assert_eq!(
            spacings(545.0, 500.0).beside_bytes(445.0, 3.0),
            BesideBytes::Measured { ns: 100.0, len: FRAME }
        );
        assert_eq!(spacings(500.0, 500.0).beside_bytes(445.0, 3.0), BesideBytes::AtMost(55.0));
        assert_eq!(spacings(400.0, 400.0).beside_bytes(445.0, 3.0), BesideBytes::AtMost(0.0));
    }
}
