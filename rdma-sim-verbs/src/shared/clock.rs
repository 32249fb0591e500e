//! The clock that all processes of a machine share

use rustix::time::{ClockId, clock_gettime};

/// Nanoseconds of the system's monotonic clock
pub(super) fn now_ns() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}
