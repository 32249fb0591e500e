//! What the programs of a run write down: violations and measurements

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// Shared by all programs of a run
#[derive(Debug, Default)]
pub(crate) struct Log(Mutex<Entries>);

#[derive(Debug, Default)]
struct Entries {
    violations: Vec<String>,
    /// What is not in `violations`, because there are too many.
    unwritten: usize,
    measured: Measured,
}

/// What was measured, in virtual units
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Measured {
    /// How often links were connected
    pub(crate) connections: u32,
    /// Of the slowest link
    pub(crate) goodput_bytes_per_second: Option<f64>,
    pub(crate) slowest_rtt: Option<Duration>,
}

/// More of them tell nothing more.
const MOST_VIOLATIONS: usize = 20;

impl Log {
    fn change<T>(&self, change: impl FnOnce(&mut Entries) -> T) -> T {
        change(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Something happened that must never happen
    pub(crate) fn violation(&self, what: String) {
        self.change(|entries| {
            if entries.violations.len() < MOST_VIOLATIONS {
                entries.violations.push(what);
            } else {
                entries.unwritten += 1;
            }
        });
    }

    pub(crate) fn connected(&self) {
        self.change(|entries| entries.measured.connections += 1);
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

    /// Everything that must never happen and did
    pub(crate) fn violations(&self) -> Vec<String> {
        self.change(|entries| {
            let mut violations = entries.violations.clone();
            if entries.unwritten > 0 {
                violations.push(format!("and {} more", entries.unwritten));
            }
            violations
        })
    }
}
