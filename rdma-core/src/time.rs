use std::fmt;
use std::ops::{Add, AddAssign, Sub};
use std::time::Duration;

/// A point in time, in nanoseconds since a [`Runtime`](crate::Runtime) started
///
/// Virtual in the simulator, monotonic wall time elsewhere. 64 bits hold 584 years; arithmetic saturates.
///
/// ```
/// use std::time::Duration;
/// use rdma_core::Time;
///
/// let later = Time::ZERO + Duration::from_micros(3);
/// assert_eq!(later - Time::ZERO, Duration::from_micros(3));
/// assert_eq!(Time::ZERO.since(later), Duration::ZERO);
/// assert_eq!(later.to_string(), "3.000 µs");
/// ```
#[derive(Clone, Copy, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Time(u64);

impl Time {
    /// The moment at which the runtime started
    pub const ZERO: Self = Self(0);
    /// The latest point in time
    pub const MAX: Self = Self(u64::MAX);

    /// The point `ns` nanoseconds after the start
    pub const fn from_nanos(ns: u64) -> Self {
        Self(ns)
    }

    /// Nanoseconds since the start
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// Seconds since the start
    pub fn as_secs_f64(self) -> f64 {
        self.0 as f64 / 1e9
    }

    /// The time from `earlier` to `self`, zero if `earlier` is in fact later
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

impl Add<Duration> for Time {
    type Output = Self;

    /// Saturates at [`Time::MAX`].
    #[inline]
    fn add(self, by: Duration) -> Self {
        let seconds = by.as_secs().saturating_mul(1_000_000_000);
        Self(self.0.saturating_add(seconds).saturating_add(by.subsec_nanos().into()))
    }
}

impl AddAssign<Duration> for Time {
    fn add_assign(&mut self, by: Duration) {
        *self = *self + by;
    }
}

impl Sub for Time {
    type Output = Duration;

    fn sub(self, earlier: Self) -> Duration {
        self.since(earlier)
    }
}

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:03} µs", self.0 / 1000, self.0 % 1000)
    }
}
