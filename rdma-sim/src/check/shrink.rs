//! Makes a failing run smaller: fewer faults, then fewer choices

use super::replay::Replay;
use crate::{FaultPlan, Scheduler};

/// Most runs of a shrinking
const BUDGET: u32 = 300;

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
    shrinking.best
}
