//! How fast a lane is

use std::time::Duration;

use crate::Time;

/// Bytes after which a rate is known: two parts of a long message
const WINDOW: u64 = 1 << 19;

/// Time that a packet and the answer to it take about on a lane that is not busy: within it, nothing says how fast the lane is
pub(super) const ROUND_TRIP: Duration = Duration::from_micros(20);

/// How long a measured rate counts, so that a path that carries little is tried again
const TRUST: Duration = Duration::from_secs(10);

/// How fast a lane is, in bytes per second: as its port reports, unless it is seen to be slower
///
/// A cable can carry less than its ports report: in an asymmetric mode, beside other traffic, or where packets are sent again below.
#[derive(Debug)]
pub(super) struct Rate {
    reported: u64,
    /// Of the last two windows, which count until `until`
    measured: [u64; 2],
    until: Time,
    /// The bytes of this window, and the time that they have taken
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
        // The faster window counts: what delays one alone is no property of the lane.
        let [last, before] = self.measured;
        if now < self.until { last.max(before) } else { self.reported }
    }

    /// How long `bytes` take, in nanoseconds, for comparisons
    pub(super) fn nanoseconds(&self, now: Time, bytes: u64) -> u64 {
        (u128::from(bytes) * 1_000_000_000 / u128::from(self.at(now))) as u64
    }

    /// Notes that the lane was busy with `bytes` for that time until `now`
    pub(super) fn note(&mut self, now: Time, bytes: u64, time: Duration) {
        self.bytes += bytes;
        self.time += time;
        if self.bytes < WINDOW {
            return;
        }
        let rate = u128::from(self.bytes) * 1_000_000_000 / self.time.as_nanos().max(1);
        let rate = u64::try_from(rate).unwrap_or(u64::MAX).clamp(1, self.reported);
        let before = if now < self.until { self.measured[0] } else { self.reported };
        self.measured = [rate, before];
        self.until = now + TRUST;
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

    /// Windows that take so many microseconds, one for each millisecond
    fn rate_after(windows: &[u64]) -> Rate {
        let mut rate = Rate::new(REPORTED);
        for (ended, &micros) in windows.iter().enumerate() {
            rate.note(at(ended as u64), WINDOW / 2, Duration::from_micros(micros / 2));
            rate.note(at(ended as u64), WINDOW / 2, Duration::from_micros(micros / 2));
        }
        rate
    }

    /// Catches a rate by one window, and one that is never faster again.
    #[test]
    fn a_lane_is_as_fast_as_the_faster_of_two_windows() {
        let quarter = WINDOW * 1_000_000 / 210;
        for (windows, expected) in [
            (&[][..], REPORTED),
            (&[210], REPORTED),
            (&[210, 210], quarter),
            (&[210, 210, 100_000], quarter),
            (&[210, 210, 0], REPORTED),
            (&[210, 210, 0, 210, 210], quarter),
            (&[10, 10], REPORTED),
        ] {
            assert_eq!(rate_after(windows).at(at(10)), expected, "{windows:?}");
        }
    }

    /// Catches a path that is never tried again.
    #[test]
    fn a_measured_rate_counts_for_ten_seconds() {
        let rate = rate_after(&[420, 420]);
        let end = at(1) + TRUST;
        let before = Time::from_nanos(end.as_nanos() - 1);
        assert_eq!([rate.at(before), rate.at(end)], [WINDOW * 1_000_000 / 420, REPORTED]);
        assert_eq!(rate.nanoseconds(end, 20), 2);
    }

    /// Catches a division by zero, and an overflow.
    #[test]
    fn a_port_that_reports_no_rate_has_one() {
        let mut rate = Rate::new(0);
        assert_eq!(rate.nanoseconds(Time::ZERO, 1 << 33), (1 << 33) * 1_000_000_000);
        rate.note(Time::ZERO, u64::MAX / 2, Duration::ZERO);
        assert_eq!(rate.at(Time::ZERO), 1);
    }
}
