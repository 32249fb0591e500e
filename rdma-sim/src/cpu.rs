//! What the work of programs costs the task that is polled

use rdma_core::Work;

use crate::model::Timing;
use crate::verb_time;

/// How far the task that is polled is ahead of the simulation
///
/// A task does everything of one poll at one instant of the simulation. What it does takes time nevertheless: its clock runs
/// ahead, its posts reach the device by that clock, and it does not run again before the simulation has caught up. The time is noted where
/// that of [verbs](verb_time) is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cpu {
    is_on: bool,
    /// Whether verbs of set-up and teardown take time although the processor does not
    verbs_take_time: bool,
    /// Bytes that are copied in a microsecond
    copy_rate: u64,
    /// Bytes that are combined in a microsecond
    reduce_rate: u64,
}

impl Cpu {
    pub(crate) fn new(timing: &Timing) -> Self {
        let Timing { copy_bytes_per_us, reduce_bytes_per_us, .. } = *timing;
        Self {
            is_on: timing.cpu,
            verbs_take_time: timing.verbs_take_time,
            copy_rate: copy_bytes_per_us,
            reduce_rate: reduce_bytes_per_us,
        }
    }

    /// Whether processors take time at all
    #[inline]
    pub(crate) fn is_on(self) -> bool {
        self.is_on
    }

    /// The task does something that takes so many nanoseconds
    #[inline]
    pub(crate) fn spend(self, ns: u64) {
        if self.is_on {
            verb_time::add(ns);
        }
    }

    /// The task, or the thread, is so many nanoseconds in a verb of set-up or teardown
    pub(crate) fn spend_in_verb(self, ns: u64) {
        if self.is_on || self.verbs_take_time {
            verb_time::add(ns);
        }
    }

    /// The task copies or combines memory
    pub(crate) fn work(self, work: Work) {
        let (bytes, rate) = match work {
            Work::Copy { bytes } => (bytes, self.copy_rate),
            Work::Reduce { bytes } => (bytes, self.reduce_rate),
            _ => return,
        };
        self.spend((bytes as u64).saturating_mul(1_000).checked_div(rate).unwrap_or(0));
    }

    /// By how many nanoseconds the task is ahead
    #[inline]
    pub(crate) fn ahead_ns(self) -> u64 {
        if self.is_on { verb_time::so_far() } else { 0 }
    }
}
