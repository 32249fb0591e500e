//! The primitives under the structures that threads share
//!
//! The modules that loom checks name their primitives through `crate::sync`; `tests/loom.rs` compiles the same files against loom's.

pub(crate) use std::sync::{Arc, Condvar, Mutex, MutexGuard, atomic};
use std::sync::{LazyLock, PoisonError};
use std::time::{Duration, Instant};

/// Starts a thread that is not waited for
#[expect(clippy::disallowed_methods, reason = "a completion queue without events needs a timer of its own")]
pub(crate) fn spawn(work: impl FnOnce() + Send + 'static) {
    std::thread::spawn(work);
}

/// Shorter times would be too short if they ended together.
const SHORT: Duration = Duration::from_millis(1);

/// How long a nap that begins `now` lasts, so that all of the process that are as long end together
///
/// The timers of several queues then wake the task that polls them all once.
fn rest_of(nap: Duration, now: Duration) -> Duration {
    if nap < SHORT {
        return nap;
    }
    nap - Duration::from_nanos((now.as_nanos() % nap.as_nanos()) as u64)
}

/// The time of the process
#[expect(clippy::disallowed_methods, reason = "naps that end together need a common clock")]
fn now() -> Duration {
    static START: LazyLock<Instant> = LazyLock::new(Instant::now);
    START.elapsed()
}

/// Waits until `changed` is notified or `time` has passed; returns whether it has passed
///
/// Times of a millisecond and more end earlier, together with others that are as long.
pub(crate) fn wait_for<'a, T>(
    _: &'a Mutex<T>,
    changed: &Condvar,
    guard: MutexGuard<'a, T>,
    time: Duration,
) -> (MutexGuard<'a, T>, bool) {
    let (guard, ended) =
        changed.wait_timeout(guard, rest_of(time, now())).unwrap_or_else(PoisonError::into_inner);
    (guard, ended.timed_out())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Catches naps of which each ends at a time of its own: a task that polls four queues was woken for each of them.
    #[test]
    fn long_naps_that_are_as_long_end_together() {
        let [nap, now] = [10, 12_345].map(Duration::from_millis);
        for late in [0, 1, 4_999, 5_000, 9_999].map(Duration::from_micros) {
            let rest = rest_of(nap, now + late);
            assert!(rest > Duration::ZERO && rest <= nap);
            assert_eq!((now + late + rest).as_micros() % nap.as_micros(), 0, "{late:?}");
        }
        assert_eq!(rest_of(SHORT / 2, now), SHORT / 2);
    }
}
