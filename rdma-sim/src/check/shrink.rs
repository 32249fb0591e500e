//! Makes a failing run smaller: fewer faults, then fewer choices, then rounder times

use std::time::Duration;

use rdma_core::Time;

use super::replay::Replay;
use crate::fault::{Fault, Trigger};
use crate::{FaultPlan, Scheduler};

/// Most runs of a shrinking
pub(super) const BUDGET: u32 = 300;
/// Most of them that try rounder times
const ROUNDINGS: u32 = 40;
/// Units of rounder times in nanoseconds, from a millisecond down to a microsecond
const UNITS: [u64; 4] = [1_000_000, 100_000, 10_000, 1000];

/// The multiple of `unit` that is nearest to `ns`, unless that is `ns`
fn rounded(ns: u64, unit: u64) -> Option<u64> {
    let above = (!ns.is_multiple_of(unit)).then(|| ns.checked_next_multiple_of(unit)).flatten()?;
    Some(if ns % unit < unit / 2 { above - unit } else { above })
}

/// Tries smaller runs
struct Shrinking<F, R> {
    best: (Replay, F),
    budget: u32,
    run: R,
}

impl<F, R: FnMut(&Replay) -> Option<F>> Shrinking<F, R> {
    /// Takes `case` if it fails in the way that counts
    fn attempt(&mut self, case: Replay) -> bool {
        if self.budget == 0 {
            return false;
        }
        self.budget -= 1;
        let Some(failure) = (self.run)(&case) else { return false };
        self.best = (case, failure);
        true
    }

    /// Removes halves of the faults first, then smaller pieces down to single ones; what belongs together goes together
    fn remove_faults(&mut self) {
        let mut chunk = self.best.0.faults.groups().len().div_ceil(2);
        while chunk > 0 {
            let mut start = 0;
            loop {
                let faults = &self.best.0.faults;
                let groups = faults.groups();
                if start >= groups.len() {
                    break;
                }
                let removed = groups[start..(start + chunk).min(groups.len())].concat();
                let kept = faults.0.iter().enumerate().filter(|(position, _)| !removed.contains(position));
                let faults = FaultPlan(kept.map(|(_, fault)| fault.clone()).collect());
                if !self.attempt(Replay { faults, ..self.best.0.clone() }) {
                    start += chunk;
                }
            }
            chunk /= 2;
        }
    }

    /// Moves each fault to the nearest time that is a multiple of the largest unit with which the run still fails, and rounds how long the
    /// fault lasts
    fn round_times(&mut self) {
        self.budget = self.budget.min(ROUNDINGS);
        for position in 0..self.best.0.faults.0.len() {
            self.round(position, |fault, round| match &mut fault.trigger {
                Trigger::At(time) => round(time.as_nanos()).map(|ns| *time = Time::from_nanos(ns)),
                Trigger::AfterFrames(_) => None,
            });
            self.round(position, |fault, round| {
                let duration = fault.kind.duration_mut()?;
                // Without a duration, a fault would be another one.
                let ns = round(u64::try_from(duration.as_nanos()).ok()?).filter(|ns| *ns > 0)?;
                *duration = Duration::from_nanos(ns);
                Some(())
            });
        }
    }

    /// Tries larger units first; `change` rounds a time of a fault, or returns `None` if there is nothing to round
    fn round(
        &mut self,
        position: usize,
        change: impl Fn(&mut Fault, &dyn Fn(u64) -> Option<u64>) -> Option<()>,
    ) {
        for unit in UNITS {
            let mut case = self.best.0.clone();
            let changed = change(&mut case.faults.0[position], &|ns| rounded(ns, unit));
            if changed.is_some() && self.attempt(case) {
                return;
            }
        }
    }

    fn attempt_draws(&mut self, draws: u64) -> bool {
        let mut case = self.best.0.clone();
        match &mut case.choices {
            Some(choices) => choices.truncate(usize::try_from(draws).unwrap_or(usize::MAX)),
            None => case.draws = Some(draws),
        }
        case.branches.retain(|branch| branch.at < draws);
        self.attempt(case)
    }

    /// No choices at all are the easiest to read; otherwise the fewest
    fn remove_choices(&mut self) {
        if self.attempt_draws(0) {
            return;
        }
        let (mut passes, mut fails) = (0, 1_u64);
        while !self.attempt_draws(fails) {
            passes = fails;
            match fails.checked_mul(4) {
                Some(more) if more < 1 << 40 => fails = more,
                _ => return,
            }
        }
        while passes + 1 < fails {
            let middle = passes + (fails - passes) / 2;
            if self.attempt_draws(middle) { fails = middle } else { passes = middle }
        }
    }
}

/// The smallest run that was found to fail, and how it fails
///
/// `run` returns how a run fails, if it fails in the way that counts.
pub(super) fn shrink<F>(case: Replay, failure: F, run: impl FnMut(&Replay) -> Option<F>) -> (Replay, F) {
    let mut shrinking = Shrinking { best: (case, failure), budget: BUDGET, run };
    shrinking.remove_faults();
    if shrinking.best.0.scheduler != Scheduler::Fifo {
        let plain = Replay { scheduler: Scheduler::Fifo, ..shrinking.best.0.clone() };
        shrinking.attempt(plain);
    }
    shrinking.remove_choices();
    shrinking.round_times();
    shrinking.best
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Shrinks a run with `faults` that fails if `fails` says so of its faults; how many runs that takes
    fn shrunk(faults: &str, fails: impl Fn(&str) -> bool) -> (String, u32) {
        let case = Replay { faults: faults.parse().unwrap(), draws: Some(0), ..Replay::default() };
        let mut runs = 0;
        let (replay, ()) = shrink(case, (), |case| {
            runs += 1;
            fails(&case.faults.to_string()).then_some(())
        });
        (replay.faults.to_string(), runs)
    }

    /// Catches a unit that is not tried, a smaller unit that is tried first, and a rounder time that is kept though the run passes.
    #[test]
    fn times_of_faults_are_as_round_as_the_failure_lets_them() {
        let time_of = |text: &str| text.parse::<FaultPlan>().unwrap().0[0].clone();
        for (low, high, expected) in [
            (0, u64::MAX, "7ms"),
            (7_000_001, u64::MAX, "7300us"),
            (7_340_001, 7_399_000, "7350us"),
            (7_345_100, 7_349_000, "7346us"),
            (7_345_600, 7_345_700, "7345678ns"),
        ] {
            let (faults, _) = shrunk("at 7345678ns a:rdma_en2 unplug", |text| {
                let Trigger::At(time) = (if text.is_empty() { return false } else { time_of(text).trigger })
                else {
                    return false;
                };
                (low..=high).contains(&time.as_nanos())
            });
            assert_eq!(faults, format!("at {expected} a:rdma_en2 unplug"));
        }
    }

    /// Regression: `flap 2345678ns` stayed as it was drawn. Catches a duration that becomes zero, too.
    #[test]
    fn durations_of_faults_are_as_round_as_the_failure_lets_them() {
        let down_of = |text: &str| text.parse::<FaultPlan>().unwrap().0[0].kind.duration_mut().copied();
        for (given, low, expected) in [
            ("flap 2345678ns", 0, "flap 2ms"),
            ("flap 2345678ns", 2_300_001, "flap 2350us"),
            ("reboot 345678ns", 0, "reboot 300us"),
            ("delay 2345678ns", 2_345_678, "delay 2350us"),
        ] {
            let target = if given.starts_with("reboot") { "a" } else { "a:rdma_en2" };
            let (faults, _) = shrunk(&format!("at 7ms {target} {given}"), |text| {
                !text.is_empty() && down_of(text).is_some_and(|down| down.as_nanos() >= low)
            });
            assert_eq!(faults, format!("at 7ms {target} {expected}"));
        }
    }

    /// Catches rounding without a bound: each of these times stays as it is.
    #[test]
    fn times_of_many_faults_take_a_bounded_number_of_runs() {
        let many: Vec<_> = (0..100).map(|number| format!("at {}ns b lose 1", 1_234_567 + number)).collect();
        let all = many.join("; ").replace("b lose", "b:rdma_en2 lose");
        let (faults, runs) = shrunk(&all, |text| text == all);
        assert_eq!(faults, all);
        assert!(runs <= BUDGET, "{runs}");
        let two = "at 1234567ns b:rdma_en2 lose 1; after 3 frames b:rdma_en2 lose 1";
        let (faults, _) = shrunk(two, |text| text.contains(';'));
        assert_eq!(faults, two.replace("1234567ns", "1ms"));
    }
}
