use std::fmt;
use std::time::Duration;

/// How often something took how long, in buckets that are an eighth wide at most
///
/// Of fixed size, and nothing is allocated: durations up to 8 ns have buckets of their own, those above 68 s share one.
///
/// ```
/// use std::time::Duration;
/// use rdma_core::Histogram;
///
/// let mut histogram = Histogram::default();
/// for micros in 1..=100 {
///     histogram.record(Duration::from_micros(micros));
/// }
/// let median = histogram.quantile(0.5).unwrap();
/// assert!((50_000..57_000).contains(&median.as_nanos()), "{median:?}");
/// assert_eq!(histogram.count(), 100);
/// ```
#[derive(Clone, Eq, PartialEq)]
pub struct Histogram {
    counts: [u32; BUCKETS],
    count: u64,
    max: Duration,
}

/// Buckets for each power of two.
const PER_OCTAVE: usize = 8;
/// From 8 ns to 2^36 ns.
const OCTAVES: usize = 33;
const BUCKETS: usize = PER_OCTAVE * (OCTAVES + 1);

/// The bucket of a duration in nanoseconds
fn bucket(nanos: u64) -> usize {
    if nanos < PER_OCTAVE as u64 {
        return nanos as usize;
    }
    let octave = nanos.ilog2() - PER_OCTAVE.ilog2();
    let step = (nanos >> octave) as usize - PER_OCTAVE;
    (PER_OCTAVE * (octave as usize + 1) + step).min(BUCKETS - 1)
}

/// The longest duration of a bucket, in nanoseconds
fn upper(bucket: usize) -> u64 {
    if bucket < PER_OCTAVE {
        return bucket as u64;
    }
    let (octave, step) = (bucket / PER_OCTAVE - 1, bucket % PER_OCTAVE);
    ((PER_OCTAVE + step + 1) as u64 * (1 << octave)) - 1
}

impl Histogram {
    /// Counts a duration
    #[inline]
    pub fn record(&mut self, duration: Duration) {
        let nanos = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        let count = &mut self.counts[bucket(nanos)];
        *count = count.saturating_add(1);
        self.count += 1;
        self.max = self.max.max(duration);
    }

    /// How many durations were counted
    pub fn count(&self) -> u64 {
        self.count
    }

    /// The longest one; zero before the first
    pub fn max(&self) -> Duration {
        self.max
    }

    /// A duration that at least the part `quantile` of all does not exceed, up to an eighth too long; `None` before the first
    ///
    /// # Panics
    ///
    /// Unless `quantile` is between 0 and 1.
    pub fn quantile(&self, quantile: f64) -> Option<Duration> {
        assert!((0.0..=1.0).contains(&quantile), "{quantile} is no quantile");
        let mut left = ((self.count as f64 * quantile).ceil() as u64).clamp(1, self.count.max(1));
        for (bucket, count) in self.counts.iter().enumerate() {
            let count = u64::from(*count);
            if count >= left {
                return Some(Duration::from_nanos(upper(bucket)).min(self.max));
            }
            left -= count;
        }
        // Nothing was counted, or more in one bucket than it holds.
        (self.count > 0).then_some(self.max)
    }
}

impl Default for Histogram {
    fn default() -> Self {
        Self { counts: [0; BUCKETS], count: 0, max: Duration::ZERO }
    }
}

impl fmt::Display for Histogram {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.quantile(0.5), self.quantile(0.99)) {
            (Some(median), Some(most)) => {
                write!(f, "median {median:?}, 99 % {most:?}, most {:?} of {}", self.max, self.count)
            }
            _ => f.write_str("none"),
        }
    }
}

impl fmt::Debug for Histogram {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Histogram({self})")
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Catches buckets that overlap, leave a gap, or are wider than an eighth.
        #[test]
        fn a_bucket_holds_what_is_near_its_upper_end(nanos in prop_oneof![0..1000u64, 0..1u64 << 36]) {
            let bucket = bucket(nanos);
            prop_assert!(nanos <= upper(bucket));
            prop_assert!(bucket == 0 || nanos > upper(bucket - 1));
            prop_assert!(upper(bucket) as f64 <= nanos as f64 * 1.125 + 1.0);
        }

        /// Catches a quantile that is off by one, or beyond the longest duration.
        #[test]
        fn quantiles_are_those_of_a_sorted_list(mut nanos in prop::collection::vec(0..1u64 << 40, 1..200), at in 0.0..=1.0f64) {
            let mut histogram = Histogram::default();
            nanos.iter().for_each(|nanos| histogram.record(Duration::from_nanos(*nanos)));
            nanos.sort_unstable();
            let rank = ((nanos.len() as f64 * at).ceil() as usize).clamp(1, nanos.len());
            let (exact, found) = (nanos[rank - 1], histogram.quantile(at).unwrap().as_nanos() as u64);
            prop_assert!(found <= *nanos.last().unwrap());
            prop_assert!(found >= exact.min(upper(BUCKETS - 1)) && found as f64 <= (exact as f64 * 1.125 + 1.0).max(upper(BUCKETS - 1) as f64));
        }
    }

    #[test]
    fn nothing_has_no_quantile() {
        let histogram = Histogram::default();
        assert_eq!(
            (histogram.quantile(0.5), histogram.max(), histogram.to_string()),
            (None, Duration::ZERO, "none".into())
        );
    }
}
