//! How fast a lane is

use std::time::Duration;

use crate::Time;

/// Bytes of a sample, at least: two parts of a long message
const SAMPLE: u64 = 1 << 19;

/// Time that a packet and the answer to it take about on a lane that is not busy: within it, nothing says how fast the lane is
pub(super) const SHORT_ROUND_TRIP: Duration = Duration::from_micros(20);

/// How long a sample counts, so that a path that carries little is tried again
const LIFETIME: Duration = Duration::from_secs(10);

/// How fast a lane is, in bytes per second: as its port reports, unless it is seen to be slower
///
/// A cable can carry less than its ports report: in an asymmetric mode, beside other traffic, or where packets are sent again below.
#[derive(Debug)]
pub(super) struct Rate {
    reported: u64,
    /// The last two samples, which count until `until`
    measured: [u64; 2],
    until: Time,
    /// The bytes of the next sample, and the time that they have taken
    bytes: u64,
    time: Duration,
}

impl Rate {
    pub(super) fn new(reported: u64) -> Self {
        let reported = reported.max(1);
        Self { reported, measured: [reported; 2], until: Time::ZERO, bytes: 0, time: Duration::ZERO }
    }

    /// Bytes per second
    pub(super) fn at(&self, now: Time) -> u64 {
        // The faster one counts: what delays one alone is no property of the lane.
        let [last, before] = self.measured;
        if now < self.until { last.max(before) } else { self.reported }
    }

    /// What was measured, if it is [not as reported](Self::is_as_reported)
    pub(super) fn measured(&self, now: Time) -> Option<u64> {
        Some(self.at(now)).filter(|_| !self.is_as_reported(now))
    }

    /// How long `bytes` take, in nanoseconds, for comparisons; as the port reports, unless what was measured counts
    pub(super) fn nanoseconds(&self, now: Time, bytes: u64, counts_measured: bool) -> u64 {
        let rate = if counts_measured { self.at(now) } else { self.reported };
        (u128::from(bytes) * 1_000_000_000 / u128::from(rate)) as u64
    }

    /// Whether the lane is about as fast as its port reports, as far as this side knows
    pub(super) fn is_as_reported(&self, now: Time) -> bool {
        self.at(now) >= self.reported / 2
    }

    /// Notes that the lane was busy with `bytes` for that time until `now`
    pub(super) fn note(&mut self, now: Time, bytes: u64, time: Duration) {
        // What a host looks at together seems to take no time but for the first part: a sample ends before the next one that takes any.
        if self.bytes >= SAMPLE && !self.time.is_zero() && !time.is_zero() {
            self.take_sample(now);
        }
        self.bytes += bytes;
        self.time += time;
    }

    fn take_sample(&mut self, now: Time) {
        let rate = u128::from(self.bytes) * 1_000_000_000 / self.time.as_nanos();
        let rate = u64::try_from(rate).unwrap_or(u64::MAX).clamp(1, self.reported);
        let before = if now < self.until { self.measured[0] } else { self.reported };
        self.measured = [rate, before];
        self.until = now + LIFETIME;
        (self.bytes, self.time) = (0, Duration::ZERO);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const REPORTED: u64 = 10_000_000_000;

    fn at(milliseconds: u64) -> Time {
        Time::ZERO + Duration::from_millis(milliseconds)
    }

    /// Halves of samples that take so many microseconds, one for each millisecond, and one more that begins the next sample
    fn rate_after(halves: &[u64]) -> Rate {
        let mut rate = Rate::new(REPORTED);
        for (ended, &micros) in halves.iter().chain(&[1]).enumerate() {
            rate.note(at(ended as u64), SAMPLE / 2, Duration::from_micros(micros));
        }
        rate
    }

    /// Catches a rate by one sample, one that is never faster again, and a late look that hides how slow a lane is.
    #[test]
    fn a_lane_is_as_fast_as_the_faster_of_two_samples() {
        let slow = SAMPLE * 1_000_000 / 210;
        for (halves, expected) in [
            (&[][..], REPORTED),
            (&[105, 105], REPORTED),
            (&[105, 105, 105, 105], slow),
            (&[105, 105, 105, 105, 90_000, 90_000], slow),
            (&[105, 105, 105, 105, 10, 10], REPORTED),
            (&[105, 105, 105, 105, 10, 10, 105, 105, 105, 105], slow),
            (&[10, 10, 10, 10], REPORTED),
            (&[420, 0, 0, 0, 420, 0, 0, 0], slow),
            (&[105, 105, 105, 105, 420, 0, 0, 0], slow),
            (&[0, 0, 0, 0], REPORTED),
        ] {
            assert_eq!(rate_after(halves).at(at(20)), expected, "{halves:?}");
        }
    }

    /// Catches a path that is never tried again.
    #[test]
    fn a_measured_rate_counts_for_ten_seconds() {
        let rate = rate_after(&[210; 4]);
        let end = at(4) + LIFETIME;
        let before = Time::from_nanos(end.as_nanos() - 1);
        assert_eq!([rate.at(before), rate.at(end)], [SAMPLE * 1_000_000 / 420, REPORTED]);
        assert_eq!([rate.measured(before), rate.measured(end)], [Some(SAMPLE * 1_000_000 / 420), None]);
        assert_eq!([rate.is_as_reported(before), rate.is_as_reported(end)], [false, true]);
        assert_eq!([rate.nanoseconds(end, 20, true), rate.nanoseconds(before, 20, false)], [2, 2]);
        assert_eq!(rate.nanoseconds(before, SAMPLE, true), 420_000);
    }

    /// Catches a division by zero, and an overflow.
    #[test]
    fn a_port_that_reports_no_rate_has_one() {
        let mut rate = Rate::new(0);
        assert_eq!(rate.nanoseconds(Time::ZERO, 1 << 33, true), (1 << 33) * 1_000_000_000);
        rate.note(Time::ZERO, u64::MAX / 2, Duration::from_nanos(1));
        rate.note(Time::ZERO, 1, Duration::from_nanos(1));
        assert_eq!(rate.at(Time::ZERO), 1);
    }
}
