//! The time of a frame by the cable, and a bound of the payload, which hides what messages take beside their bytes
//!
//! Such a bound, of the memory of a machine for example, lets the next message begin while bytes of the one before wait for it. Then a
//! message of one frame takes less time beside its bytes than a short one does, by what the bound takes longer than the cable.

use rdma_core::FRAME;
use rdma_sim::LineRate;

use super::spacing::{HIDDEN, PART, SHORT, Spacings, share_of_frame};
use crate::findings::Findings;

pub(super) const FIELD: &str = "timing.mac_bytes_per_us";
/// A frame that takes less than its time by the rate of the port, by this factor, was measured wrongly.
const TOO_FAST: f64 = 2.0;

/// A bound of the payload, as the time of a frame by it and by the cable, in nanoseconds
pub(super) struct PayloadBound {
    /// By the bound
    bound_ns: f64,
    /// By the cable
    pub(super) line_ns: f64,
    /// The most that it is by the cable
    most_ns: f64,
    /// Whether shorter messages show the time by the cable
    shows_line: bool,
}

impl PayloadBound {
    /// The bound, if a frame of a long message takes `frame_ns` and hides what others take beside their bytes
    ///
    /// `None` without the rate of the port, too: the time of a frame by the cable is not known then.
    pub(super) fn find(findings: &Findings, frame_ns: f64, spacings: &Spacings) -> Option<Self> {
        let rate = rate(findings);
        let [short, part] = [SHORT, PART].map(share_of_frame);
        let alone = (spacings.short - frame_ns * short).max(0.0);
        let of_frame = (spacings.frame - frame_ns).max(0.0);
        let is_hiding = alone - of_frame > HIDDEN * spacings.frame;
        if !spacings.hide_posts || rate == 0.0 || !is_hiding {
            return None;
        }
        let by_line = |ns: f64, share: f64| ((ns - spacings.short) / (share - short)).max(0.0);
        // A profile has at least a nanosecond.
        let most_ns = by_line(spacings.part, part).min(by_line(spacings.frame, 1.0)).max(1.0);
        let shows_line = spacings.part > frame_ns * PART as f64 / FRAME as f64 * (1.0 + HIDDEN);
        let stated = findings.profile.model.timing.frame_ns as f64 / rate;
        let line_ns = if shows_line { most_ns } else { stated.min(most_ns) };
        Some(Self { bound_ns: frame_ns, line_ns, most_ns, shows_line })
    }

    pub(super) fn enter(self, findings: &mut Findings) {
        let Self { bound_ns, line_ns, most_ns, shows_line } = self;
        enter_bytes_per_us(findings, bound_ns);
        let why = "one cable: something bounds its payload and hides what messages take beside their bytes; several cables would \
                   show whether it bounds each of them or the machine";
        findings.profile.remark(FIELD, why);
        let is_beside = format!("beside a bound of the payload, which takes {bound_ns:.0} ns for as much");
        if shows_line {
            decide_frame(findings, line_ns);
            findings
                .profile
                .remark("timing.frame_ns", &format!("of messages of a part of a frame, {is_beside}"));
            return;
        }
        let at_most = format!("at most {:.0} on a cable of 80 Gb/s, {is_beside}", most_ns * rate(findings));
        if line_ns < most_ns {
            findings.leave("timing.frame_ns", &at_most);
        } else {
            decide_frame(findings, line_ns);
            findings.profile.remark("timing.frame_ns", &at_most);
        }
    }
}

/// Enters the bound again, by long messages of so many frames that took so long each
pub(super) fn sustain(findings: &mut Findings, took: f64, frames: f64) {
    let timing = &findings.profile.model.timing;
    let bound_ns = FRAME as f64 * 1000.0 / timing.mac_bytes_per_us as f64;
    let first = timing.per_message_ns as f64 + timing.frame_ns as f64 / rate(findings);
    enter_bytes_per_us(findings, (took - (first - bound_ns).max(0.0)) / frames);
}

fn enter_bytes_per_us(findings: &mut Findings, ns: f64) {
    let why = findings.profile.why(FIELD).map(str::to_owned);
    findings.decide(FIELD, (FRAME as f64 * 1000.0 / ns).round() as u64);
    why.into_iter().for_each(|why| findings.profile.remark(FIELD, &why));
}

/// The rate of the port, to that of which the profile has the time of a frame
fn rate(findings: &Findings) -> f64 {
    findings.port.bits_per_second as f64 / LineRate::TB5.bits_per_second as f64
}

/// The reason for which no frame takes `frame_ns` on this cable, if the link would have to be that much faster than the port states
pub(super) fn too_fast(findings: &Findings, frame_ns: f64) -> Option<String> {
    let stated_ns = FRAME as f64 * 8.0 * 1e9 / findings.port.bits_per_second as f64;
    (findings.port.bits_per_second > 0 && frame_ns * TOO_FAST < stated_ns).then(|| {
        format!(
            "measured {frame_ns:.0} ns, where a frame takes {stated_ns:.0} by the rate that the port states: the machine was busy, or the port states a wrong \
             rate; calibrate again when no other program needs its processor"
        )
    })
}

/// Enters what a frame takes on this cable, unless no link is so fast
pub(super) fn enter_frame(findings: &mut Findings, frame_ns: f64) {
    match too_fast(findings, frame_ns) {
        Some(why) => findings.leave("timing.frame_ns", &why),
        None => decide_frame(findings, frame_ns),
    }
}

/// Enters what a frame takes by the cable alone, which beside a bound is the most that it may take, or what parts of frames show
fn decide_frame(findings: &mut Findings, frame_ns: f64) {
    match rate(findings) {
        0.0 => findings.leave("timing.frame_ns", "the port does not state the rate of its link"),
        rate => findings.decide("timing.frame_ns", (frame_ns * rate).round() as u64),
    }
}

#[cfg(test)]
mod tests {
    use rdma_core::{PortState, PortStatus};
    use rdma_sim::profile::Decided;

    use super::*;

    /// Regression: a frame of 1 ns was entered as measured, on a machine that was busy.
    ///
    /// Catches a limit that is not that of the link, and one where the port states no rate.
    #[test]
    fn a_frame_that_no_link_carries_so_fast_is_left_undecided() {
        for (gigabits, frame_ns, is_left) in [
            (80, 1.0, true),
            (80, 204.0, true),
            (80, 206.0, false),
            (40, 300.0, true),
            (40, 420.0, false),
            (0, 1.0, false),
        ] {
            let port = PortStatus::new(PortState::Active, gigabits * 1_000_000_000);
            let mut findings = Findings::new("rdma_en2", port);
            enter_frame(&mut findings, frame_ns);
            let why = findings.profile.why("timing.frame_ns").unwrap_or_default();
            assert_eq!(why.contains("the machine was busy"), is_left, "{gigabits}, {frame_ns}: {why}");
            let is_measured = findings.profile.decided("timing.frame_ns") == Some(Decided::Measured);
            assert_eq!(is_measured, !is_left && gigabits > 0, "{gigabits}, {frame_ns}");
        }
    }

    /// Catches a bound that is entered where none is, and one that hides a whole message and is not.
    #[test]
    fn only_what_hides_messages_is_a_bound() {
        let port = PortStatus::new(PortState::Active, LineRate::TB5.bits_per_second);
        let findings = Findings::new("rdma_en2", port);
        let find = |frame_ns: f64, frame: f64, hide_posts: bool| {
            let (short, part, long, post) = (63.0, 174.0, (16, 16.0 * frame_ns), 20.0);
            PayloadBound::find(&findings, frame_ns, &Spacings { short, part, frame, long, post, hide_posts })
        };
        // Messages of 8 bytes take 60 ns beside their bytes and those of a frame 505, of which the cable takes 445.
        assert!(find(445.0, 505.0, true).is_none());
        // A frame takes 683 ns by the bound, and so does a message of a frame.
        assert!(find(683.0, 683.0, true).is_some());
        assert!(find(683.0, 683.0, false).is_none(), "a spacing may be that of posts");
    }
}
