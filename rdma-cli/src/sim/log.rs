//! Violations and measurements of the programs of a run

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// Shared by all programs of a run
#[derive(Debug, Default)]
pub(crate) struct Log(Mutex<Entries>);

#[derive(Debug, Default)]
struct Entries {
    violations: Vec<String>,
    /// Violations beyond the maximum.
    omitted: usize,
    measured: Measured,
}

/// Measurements in virtual time
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Measured {
    /// Of the slowest link
    pub(crate) goodput_bytes_per_second: Option<f64>,
    pub(crate) slowest_rtt: Option<Duration>,
}

/// Violations that are kept; later ones are counted.
const MAX_VIOLATIONS: usize = 20;

impl Log {
    fn change<T>(&self, change: impl FnOnce(&mut Entries) -> T) -> T {
        change(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Records a violation: behaviour that is never allowed
    pub(crate) fn violation(&self, what: String) {
        self.change(|entries| {
            if entries.violations.len() < MAX_VIOLATIONS {
                entries.violations.push(what);
            } else {
                entries.omitted += 1;
            }
        });
    }

    pub(crate) fn round_trip(&self, took: Duration) {
        self.change(|entries| {
            let slowest = &mut entries.measured.slowest_rtt;
            *slowest = (*slowest).max(Some(took));
        });
    }

    pub(crate) fn transfer(&self, bytes: u64, took: Duration) {
        if took.is_zero() {
            return;
        }
        let rate = bytes as f64 / took.as_secs_f64();
        self.change(|entries| {
            let goodput = &mut entries.measured.goodput_bytes_per_second;
            *goodput = Some(goodput.map_or(rate, |slowest| slowest.min(rate)));
        });
    }

    pub(crate) fn measured(&self) -> Measured {
        self.change(|entries| entries.measured)
    }

    /// The violations, and how many were omitted
    pub(crate) fn violations(&self) -> Vec<String> {
        self.change(|entries| {
            let mut violations = entries.violations.clone();
            if entries.omitted > 0 {
                violations.push(format!("and {} more", entries.omitted));
            }
            violations
        })
    }
}
