//! Percentiles of round trips

use serde::Serialize;

use crate::report::micros;

/// Percentiles of round trips, in nanoseconds
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Distribution {
    pub(crate) min: u64,
    pub(crate) p50: u64,
    pub(crate) p99: u64,
    pub(crate) max: u64,
}

impl Distribution {
    /// Nearest-rank percentiles of at least one sample
    pub(crate) fn of(mut samples: Vec<u64>) -> Self {
        samples.sort_unstable();
        let rank = |percent: usize| samples[(samples.len() * percent).div_ceil(100).max(1) - 1];
        Self { min: rank(0), p50: rank(50), p99: rank(99), max: rank(100) }
    }

    pub(crate) fn rows(&self) -> [(&'static str, String); 4] {
        let &Self { min, p50, p99, max } = self;
        [("min", micros(min)), ("p50", micros(p50)), ("p99", micros(p99)), ("max", micros(max))]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_nearest_ranks() {
        let hundred = Distribution::of((1..=100).rev().collect());
        assert_eq!((hundred.min, hundred.p50, hundred.p99, hundred.max), (1, 50, 99, 100));
        let one = Distribution::of(vec![7]);
        assert_eq!((one.min, one.p50, one.p99, one.max), (7, 7, 7, 7));
    }
}
