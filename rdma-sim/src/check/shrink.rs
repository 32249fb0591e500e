//! Makes a failing run smaller: fewer faults, then fewer choices

use super::replay::Replay;

/// Most runs of a shrinking
const BUDGET: u32 = 300;

/// The smallest run that was found to fail, and how it fails
///
/// `run` returns how a run fails, if it fails in the way that counts.
pub(super) fn shrink<F>(case: Replay, failure: F, mut run: impl FnMut(&Replay) -> Option<F>) -> (Replay, F) {
    let mut best = (case, failure);
    let mut budget = BUDGET;
    let mut try_case = |case: Replay, best: &mut (Replay, F)| {
        if budget == 0 {
            return false;
        }
        budget -= 1;
        let Some(failure) = run(&case) else { return false };
        *best = (case, failure);
        true
    };
    // Remove halves first, then smaller pieces down to single faults.
    let mut chunk = best.0.faults.0.len().div_ceil(2);
    while chunk > 0 {
        let mut start = 0;
        while start < best.0.faults.0.len() {
            let mut case = best.0.clone();
            let end = (start + chunk).min(case.faults.0.len());
            case.faults.0.drain(start..end);
            if !try_case(case, &mut best) {
                start += chunk;
            }
        }
        chunk /= 2;
    }
    // No choices at all are the easiest to read; otherwise the fewest.
    let with_draws = |best: &(Replay, F), draws| Replay { draws: Some(draws), ..best.0.clone() };
    if !try_case(with_draws(&best, 0), &mut best) {
        let (mut passes, mut fails) = (0, 1_u64);
        while !try_case(with_draws(&best, fails), &mut best) {
            passes = fails;
            match fails.checked_mul(4) {
                Some(more) if more < 1 << 40 => fails = more,
                _ => return best,
            }
        }
        while passes + 1 < fails {
            let middle = passes + (fails - passes) / 2;
            if try_case(with_draws(&best, middle), &mut best) { fails = middle } else { passes = middle }
        }
    }
    best
}
