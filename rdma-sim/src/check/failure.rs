//! How a run fails, and whether two runs fail alike

use std::fmt;

use super::replay::Replay;
use crate::Scheduler;
use crate::caught::Panic;

/// In which way a run failed
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum FailureKind {
    /// The test returned an error
    Error,
    /// The test left objects behind
    Leak,
    /// A task that belongs to no host had not ended when the test did
    LeakedTask,
    /// The test or one of its tasks misused memory, as the DMA sanitizer found
    Misuse,
    /// What has to be reached, such as a statement that has to hold sometimes, was reached in no run
    NeverHeld,
    /// The faults had ended, and the test did not within the time that it has for that
    NoProgress,
    /// The test or one of its tasks panicked
    Panic,
    /// A task was polled without end at one instant
    Spin,
    /// The test waits for an event that will never come
    Stall,
    /// Tasks were polled more often than they may be: the test goes on without end
    StepLimit,
    /// There are more tasks at once than there may be
    TaskLimit,
    /// The test takes more virtual time than it may
    TimeLimit,
    /// The faults cannot be injected into this topology
    Unusable,
}

/// How a run failed
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct RunFailure {
    pub(super) kind: FailureKind,
    pub(super) reason: String,
    /// Where the panic was, if it was one
    pub(super) site: Option<String>,
    /// The panics that followed: of destructors, and of tasks that ended after the test
    pub(super) later: Vec<Panic>,
    /// Whether the run has called [`Net::pick`](crate::Net::pick)
    pub(super) has_picked: bool,
}

/// Most panics that are printed of those that followed
const MOST: usize = 8;

/// The place where a run has panicked, if it has, and the panics that followed, printed as lines behind the reason
pub(super) struct PanicSites<'a>(pub(super) Option<&'a str>, pub(super) &'a [Panic]);

impl fmt::Display for PanicSites<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(site, later) = self;
        site.map_or(Ok(()), |site| write!(f, "\nat {site}"))?;
        for Panic { text, site } in later.iter().take(MOST) {
            write!(f, "\nA panic followed: {text}{}", PanicSites(site.as_deref(), &[]))?;
        }
        match later.len().saturating_sub(MOST) {
            0 => Ok(()),
            more => write!(f, "\nand {more} further panics"),
        }
    }
}

impl RunFailure {
    pub(super) fn new(kind: FailureKind, reason: impl Into<String>) -> Self {
        Self { kind, reason: reason.into(), site: None, later: Vec::new(), has_picked: false }
    }

    /// Whether both are probably the same bug: the same but for numbers, whatever followed
    pub(super) fn is_like(&self, other: &Self) -> bool {
        self.kind == other.kind && self.site == other.site && self.words() == other.words()
    }

    /// The part of the reason that distinguishes one bug from another, without numbers
    fn words(&self) -> String {
        let text = match self.kind {
            // The main task's line; what other tasks wait for depends on the faults.
            FailureKind::Stall | FailureKind::NoProgress | FailureKind::TimeLimit => {
                self.reason.lines().find(|line| line.trim_start().starts_with("main waits for")).unwrap_or("")
            }
            // What the first task waits for depends on the faults.
            FailureKind::LeakedTask => {
                let task = self.reason.lines().nth(1).unwrap_or("");
                task.split_once(" waits for ").map_or(task, |(task, _)| task)
            }
            _ => &self.reason,
        };
        // How long a timer still takes depends on the faults, and its unit on that.
        let text = match text.split_once("its timer in ") {
            Some((before, after)) => {
                format!("{before}{}", after.split_once(',').map_or("", |(_, rest)| rest))
            }
            None => text.to_owned(),
        };
        text.replace(|letter: char| letter.is_ascii_digit(), "")
    }
}

/// A run that failed, from [`try_check`](super::try_check); its text ends with the lines that repeat it
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub struct CheckFailure {
    /// In which way it failed
    pub kind: FailureKind,
    /// The message of the test's panic, or what the run did wrong otherwise
    pub reason: String,
    /// Where the test panicked, as `FILE:LINE:COLUMN`, if it did
    pub site: Option<String>,
    /// The run that failed first, with as few faults and choices as were found to suffice for the same failure
    ///
    /// The same: of the same kind, at the same place, and with a reason in which only numbers differ.
    pub replay: Replay,
    /// The run as it was found, with all of its faults
    pub original: Replay,
    /// Whether it is the plain run, which comes first: without random faults, in the plain order, and each `Net::pick` is 0
    pub is_plain: bool,
    /// The panics that followed: of destructors, and of tasks that ended after the test
    pub(super) later: Vec<Panic>,
    /// Whether the run has called [`Net::pick`](crate::Net::pick)
    pub(super) has_picked: bool,
    /// How many runs it took, this one and the plain one included
    pub tried: u64,
    /// Whether the run failed in the same way when it was repeated; a test that is not deterministic has no smaller run
    pub is_deterministic: bool,
}

/// Why a run does not repeat
pub(super) const LIKELY_CAUSES: &str = "Likely causes, in the test or in what it calls: the clock of the machine (`Instant::now`, `SystemTime`), the order of a \
                                        `HashMap` or `HashSet` with `RandomState`, random numbers other than `Net::pick`, threads, and \
                                        `static`s that outlive a run.";

impl fmt::Display for CheckFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { reason, site, later, replay, original, tried, .. } = self;
        if self.kind == FailureKind::NeverHeld {
            return f.write_str(reason);
        }
        match self.is_plain {
            true => write!(f, "the plain run failed: {reason}")?,
            false => write!(f, "seed {} failed: {reason}", replay.seed)?,
        }
        write!(f, "{}", PanicSites(site.as_deref(), later))?;
        // The runs of a guided or exhaustive check depend on each other.
        let are_independent = original.branches.is_empty() && original.scheduler != Scheduler::Every;
        // The plain run, which is no seed, says nothing of the rate; nor does the first seed alone.
        let seeds = tried.saturating_sub(1);
        if seeds > 1 && are_independent {
            // (1 - 1/k)^n = 1 %
            let clean = (seeds as f64 * 100_f64.ln()).ceil();
            write!(
                f,
                "\nIt failed in 1 of {seeds} seeds. If that is its rate, a repair that does nothing passes {clean} other seeds with a chance of 1 %."
            )?;
        }
        if self.is_plain {
            f.write_str(
                "\nThe plain run comes before the seeds: without random faults, in the plain order, and each `Net::pick` is 0.",
            )?;
            if self.has_picked {
                f.write_str(
                    " If the test needs picks that differ, as delays of elections do, add a part that is not drawn.",
                )?;
            }
        }
        if !self.is_deterministic {
            write!(
                f,
                "\nThe test is not deterministic: this run, or a smaller one that had failed, did not fail in the same way when it was \
                 repeated, so that the line may pass. {LIKELY_CAUSES}"
            )?;
        }
        write!(f, "\nTo repeat it:\n\n{}\n", replay.line())?;
        if replay != original {
            write!(f, "\nAs it was found:\n\n{}\n", original.line())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_are_alike_if_only_numbers_differ() {
        let failed = |kind, reason: &str| RunFailure::new(kind, reason);
        let late = failed(FailureKind::Panic, "late by 5 ns");
        assert!(late.is_like(&failed(FailureKind::Panic, "late by 12 ns")));
        assert!(!late.is_like(&failed(FailureKind::Panic, "lost 5 ns")));
        assert!(!late.is_like(&failed(FailureKind::Error, "late by 5 ns")));
        let elsewhere = RunFailure { site: Some("a.rs:1:1".to_owned()), ..late.clone() };
        assert!(!late.is_like(&elsewhere));
    }

    #[test]
    fn stalls_are_alike_if_the_main_task_waits_for_the_same() {
        let stall = |reason: &str| RunFailure::new(FailureKind::Stall, reason);
        let one =
            stall("stalled after 5 ms\n  main waits for a message\n  a task waits for its timer in 3 s");
        assert!(
            one.is_like(&stall("stalled after 9 ms\n  main waits for a message\n  a task waits for nothing"))
        );
        assert!(!one.is_like(&stall("stalled after 5 ms\n  main waits for memory")));
        let late = stall("\n  main waits for its timer in 812.5 ms, or for memory");
        assert!(late.is_like(&stall("\n  main waits for its timer in 3 s, or for memory")));
        assert!(!late.is_like(&stall("\n  main waits for its timer in 3 s, or for a message")));
    }
}
