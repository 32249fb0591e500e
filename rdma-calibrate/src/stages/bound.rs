//! The time of a frame by the cable, and a bound of the payload, which hides what messages take beside their bytes
//!
//! Such a bound, of the memory of a machine for example, lets the next message begin while bytes of the one before wait for it. Then a
//! message of one frame takes less time beside its bytes than a short one does, by what the bound takes longer than the cable.

use rdma_core::FRAME;
use rdma_sim::LineRate;

use crate::Findings;

pub(super) const FIELD: &str = "timing.mac_bytes_per_us";
/// The part of the time of a frame from which on the time of a message beside its bytes counts as hidden.
const HIDDEN: f64 = 0.02;

/// The time of a frame in long messages, where they hide what others take beside their bytes; all in nanoseconds
pub(super) struct Hiding {
    bound_ns: f64,
    /// By how much further messages of 8 bytes and of a frame make a batch longer
    spacing: [f64; 2],
    /// The part of a frame that 8 bytes are on the wire
    short: f64,
}

/// The times of a frame, in nanoseconds
pub(super) struct Bound {
    /// By the bound
    bound_ns: f64,
    /// By the cable
    pub(super) line_ns: f64,
    /// The most that it is by the cable
    most_ns: f64,
    /// Whether shorter messages show the time by the cable
    shows_line: bool,
}

impl Hiding {
    /// The bound, and the time by the cable where further messages of `len` bytes take `spacing`, which are the part `share` of a frame
    pub(super) fn with_line(self, findings: &Findings, spacing: f64, share: f64, len: usize) -> Bound {
        let Self { bound_ns, spacing: [short_ns, frame_ns], short } = self;
        let by_line = |ns: f64, share: f64| ((ns - short_ns) / (share - short)).max(0.0);
        // A profile has at least a nanosecond.
        let most_ns = by_line(spacing, share).min(by_line(frame_ns, 1.0)).max(1.0);
        let shows_line = spacing > bound_ns * len as f64 / FRAME as f64 * (1.0 + HIDDEN);
        let stated = findings.profile.model.timing.frame_ns as f64 / rate(findings);
        Bound {
            bound_ns,
            line_ns: if shows_line { most_ns } else { stated.min(most_ns) },
            most_ns,
            shows_line,
        }
    }
}

impl Bound {
    /// The bound where a frame of a long message takes `bound_ns`, if it hides anything
    pub(super) fn hiding(bound_ns: f64, spacing: [f64; 2], short: f64) -> Option<Hiding> {
        let alone = (spacing[0] - bound_ns * short).max(0.0);
        let of_frame = (spacing[1] - bound_ns).max(0.0);
        (alone - of_frame > HIDDEN * spacing[1]).then_some(Hiding { bound_ns, spacing, short })
    }

    pub(super) fn enter(self, findings: &mut Findings) {
        let Self { bound_ns, line_ns, most_ns, shows_line } = self;
        enter_bytes_per_us(findings, bound_ns);
        let why = "one cable: something bounds its payload and hides what messages take beside their bytes; several cables would \
                   show whether it bounds each of them or the machine";
        findings.profile.remark(FIELD, why);
        let is_beside = format!("beside a bound of the payload, which takes {bound_ns:.0} ns for as much");
        if shows_line {
            enter_frame(findings, line_ns);
            findings
                .profile
                .remark("timing.frame_ns", &format!("of messages of a part of a frame, {is_beside}"));
            return;
        }
        let at_most = format!("at most {:.0} on a cable of 80 Gb/s, {is_beside}", most_ns * rate(findings));
        if line_ns < most_ns {
            findings.leave("timing.frame_ns", &at_most);
        } else {
            enter_frame(findings, line_ns);
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

/// Enters what a frame takes on this cable
pub(super) fn enter_frame(findings: &mut Findings, frame_ns: f64) {
    match rate(findings) {
        0.0 => findings.leave("timing.frame_ns", "the port does not state the rate of its link"),
        rate => findings.decide("timing.frame_ns", (frame_ns * rate).round() as u64),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Catches a bound that is entered where none is, and one that hides a whole message and is not.
    #[test]
    fn only_what_hides_messages_is_a_bound() {
        // Messages of 8 bytes take 60 ns and those of a frame 505, of which the cable takes 445.
        assert!(Bound::hiding(445.0, [63.0, 505.0], 0.007).is_none());
        // A frame takes 683 ns by the bound, and so does a message of a frame.
        assert!(Bound::hiding(683.0, [63.0, 683.0], 0.007).is_some());
    }
}
