//! Bounds of a run, in counts: one that passes them never ends

use std::time::Duration;

use rdma_core::Time;

/// Most polls at one instant: no program needs so many, and they take less than a second
pub(super) const MOST_POLLS: u64 = 1_000_000;

/// How far a run may go
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    pub(crate) time: Time,
    /// Polls of tasks, of all together
    pub(crate) steps: u64,
    /// Tasks at once, beside the main one
    pub(crate) tasks: usize,
}

impl Default for Limits {
    fn default() -> Self {
        let day = Time::ZERO + Duration::from_hours(24);
        Self { time: day, steps: 1_000_000_000, tasks: 100_000 }
    }
}
