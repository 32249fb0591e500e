//! What the work of programs costs the task that is polled

use std::cell::Cell;

use rdma_core::Work;

use crate::choices::Choices;
use crate::model::Timing;
use crate::verb_time;

thread_local! {
    static IS_POLLING: Cell<bool> = const { Cell::new(false) };
    static SHARE: Cell<Share> = const { Cell::new(Share::WHOLE) };
}

/// The part of its host's cores that the task which is polled has
#[derive(Clone, Copy, Debug)]
pub(crate) struct Share {
    /// Tasks that share the cores equally
    pub(crate) tasks: u64,
    pub(crate) cores: u64,
}

impl Share {
    /// A core of its own
    pub(crate) const WHOLE: Self = Self { tasks: 1, cores: 1 };

    /// How long work takes that takes `ns` on a core of its own
    fn stretch(self, ns: u64) -> u64 {
        let Self { tasks, cores } = self;
        if tasks <= cores { ns } else { ns.saturating_mul(tasks) / cores }
    }
}

/// Runs `poll` of a task that has this share; returns whether the task waits for completions: then it polls until one comes, as programs on
/// a Mac do
pub(crate) fn with_share(share: Share, poll: impl FnOnce()) -> bool {
    /// Ends the share even if the task panics: the next run of this thread is another one.
    struct Restore;
    impl Drop for Restore {
        fn drop(&mut self) {
            SHARE.set(Share::WHOLE);
        }
    }
    let _restore = Restore;
    IS_POLLING.set(false);
    SHARE.set(share);
    poll();
    IS_POLLING.replace(false)
}

/// The task that is polled begins to wait for completions
#[inline]
pub(crate) fn note_polling() {
    IS_POLLING.set(true);
}

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
            verb_time::add(SHARE.get().stretch(ns));
        }
    }

    /// The task, or the thread, is so many nanoseconds in a verb of set-up or teardown
    pub(crate) fn spend_in_verb(self, ns: u64) {
        if self.is_on || self.verbs_take_time {
            verb_time::add(SHARE.get().stretch(ns));
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

/// How long a processor takes to come to a task that was woken
#[inline]
pub(crate) fn wake_up_ns(timing: &Timing, choices: &mut dyn Choices) -> u64 {
    let Timing { cpu, wake_ns, wake_tail_one_in, wake_tail_ns, .. } = *timing;
    if !cpu {
        return 0;
    }
    // The first choice is the plain one.
    let is_late = wake_tail_one_in > 0 && choices.pick(wake_tail_one_in) + 1 == wake_tail_one_in;
    let tail = if is_late { choices.pick(wake_tail_ns.saturating_add(1)) } else { 0 };
    wake_ns + u64::from(tail)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Catches a share that a task which panics leaves to the next run of its thread.
    #[test]
    fn a_share_ends_with_the_poll_of_its_task() {
        let cpu = Cpu::new(&Timing { cpu: true, ..Timing::default() });
        let spent = || {
            cpu.spend(100);
            verb_time::take()
        };
        let half = Share { tasks: 2, cores: 1 };
        let mut in_poll = 0;
        assert!(with_share(half, || {
            in_poll = spent();
            note_polling();
        }));
        assert_eq!((in_poll, spent()), (200, 100));
        assert!(!with_share(half, || ()), "the task waits for nothing");
        let panicked =
            std::panic::catch_unwind(|| with_share(half, || std::panic::resume_unwind(Box::new(()))));
        assert!(panicked.is_err());
        assert_eq!(spent(), 100);
    }
}
