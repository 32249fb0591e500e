//! Variations of runs that have reached something new
//!
//! What a run has reached is a landmark, and a variation of the run goes on from there: its choices and its faults are the same up to
//! the landmark, and others behind it. So a bug behind several rare states is found one state after another, and not all at once (A. Ecoffet et
//! al., "First return, then explore", Nature 2021).

use std::time::Duration;

use rdma_core::Time;

use super::corpus::{Corpus, Entry};
use super::landmarks::Position;
use super::replay::{Branch, Replay};
use super::settings::Check;
use crate::fault::Trigger;
use crate::{Choices, FaultPlan, Seeded};

/// Most seeds that take over from each other in one run: its line stays short enough to read
const MOST_BRANCHES: usize = 32;

/// A variation of a run of `corpus`, with the choices and faults of `fresh` behind a landmark; none if nothing was reached
pub(super) fn vary(corpus: &mut Corpus, fresh: &Replay, check: &Check) -> Option<Replay> {
    let choices = &mut Seeded::new(fresh.seed ^ 0xc0_4905);
    let landmark = corpus.pick(choices)?;
    let (cut, run) = (cut(landmark, choices), &landmark.run);
    let mut child = run.replay.clone();
    child.draws = None;
    child.branches.retain(|branch| branch.at < cut.drawn);
    child.branches.push(Branch { at: cut.drawn, seed: fresh.seed });
    child.faults = faults(choices, check, &run.replay.faults, &fresh.faults, cut.time, run.end.time);
    (child.branches.len() <= MOST_BRANCHES).then_some(child)
}

/// Where a variation of the run that has reached `landmark` begins
fn cut(landmark: &Entry, choices: &mut dyn Choices) -> Position {
    let end = landmark.run.end;
    let between = |from: Position, to: Position, choices: &mut dyn Choices| {
        let part = u64::from(choices.pick(1 << 16));
        let between = |from: u64, to: u64| {
            from + ((u128::from(to.saturating_sub(from)) * u128::from(part)) >> 16) as u64
        };
        let time = between(from.time.as_nanos(), to.time.as_nanos());
        Position { drawn: between(from.drawn, to.drawn), time: Time::from_nanos(time) }
    };
    match (landmark.position, choices.pick(4)) {
        (None, _) => between(Position::default(), end, choices),
        // There may be another way to the landmark, from which more can be reached.
        (Some(position), 3) => between(Position::default(), position, choices),
        (Some(position), 2) => between(position, end, choices),
        (Some(position), _) => position,
    }
}

/// The faults of a variation that begins at `cut`: those of `parent` before it, and behind it those of either or of both
///
/// They are not more than `check` allows, and begin as early. `end` is when the parent ended.
fn faults(
    choices: &mut dyn Choices,
    check: &Check,
    parent: &FaultPlan,
    fresh: &FaultPlan,
    cut: Time,
    end: Time,
) -> FaultPlan {
    // All runs of a check begin with its plan, and its corpus has no others.
    let [old, new] = [parent, fresh]
        .map(|plan| FaultPlan(plan.0.strip_prefix(&check.faults.0[..]).unwrap_or(&plan.0).to_vec()));
    let mixture = choices.pick(4);
    let (keeps_old, adds_new) = (mixture < 2, mixture > 0);
    let mut groups = old.groups();
    groups.retain(|group| keeps_old || old.0[group[0]].time() < cut);
    if mixture == 3 && !groups.is_empty() {
        // Perhaps the landmark is reached without it.
        groups.remove(choices.pick(groups.len() as u32) as usize);
    }
    let mut found = check.faults.clone();
    let mut room = check.random_faults.most();
    for group in groups {
        if room > 0 {
            room -= 1;
            found.0.extend(group.into_iter().map(|position| old.0[position].clone()));
        }
    }
    if !adds_new {
        return found;
    }
    let latest =
        check.random_faults.horizon().map_or(Time::from_nanos(u64::MAX), |horizon| Time::ZERO + horizon);
    for group in new.groups() {
        let first = new.0[group[0]].time();
        // What begins before the cut would change what leads there.
        let start = if first < cut { cut + delay(choices, end.since(Time::ZERO)) } else { first };
        if room == 0 || start > latest {
            continue;
        }
        room -= 1;
        found.0.extend(group.into_iter().map(|position| {
            let mut fault = new.0[position].clone();
            fault.trigger = Trigger::At(start + fault.time().since(first));
            fault
        }));
    }
    found
}

/// A delay of at most about `longest`; its order of magnitude is as likely as any other
fn delay(choices: &mut dyn Choices, longest: Duration) -> Duration {
    let bits = u64::try_from(longest.as_nanos()).unwrap_or(u64::MAX).max(2).ilog2().min(31);
    let scale = 1 << choices.pick(bits);
    Duration::from_nanos(u64::from(scale + choices.pick(scale)))
}

#[cfg(test)]
mod tests {
    use super::super::landmarks::{Landmark, LandmarkKind};
    use super::super::run::FinishedRun;
    use super::*;

    /// Catches variations that begin at the start, or anywhere.
    #[test]
    fn half_of_the_variations_begin_at_the_landmark_and_the_others_before_and_behind() {
        let position = Position { drawn: 600, time: Time::from_nanos(6_000) };
        let landmark = Landmark { id: 1, kind: LandmarkKind::State, position: Some(position) };
        let time = Time::from_nanos(10_000);
        let finished = FinishedRun { drawn: 1000, time, landmarks: vec![landmark], ..FinishedRun::default() };
        let mut corpus = Corpus::default();
        corpus.add(&Replay { seed: 5, ..Replay::default() }, &finished, false);
        let mut count = [0; 3];
        for seed in 0..400 {
            let child = vary(&mut corpus, &Replay { seed, ..Replay::default() }, &Check::new()).unwrap();
            let [Branch { at, seed: other }] = child.branches[..] else { panic!("{child}") };
            assert_eq!(
                (child.seed, other),
                (5, seed),
                "the run up to the branch, and other choices behind it"
            );
            count[(at.cmp(&600) as i8 + 1) as usize] += 1;
        }
        let [before, at, behind] = count;
        assert!((160..240).contains(&at) && before > 60 && behind > 60, "{count:?}");
    }

    /// Catches faults that are injected before the variation begins, and those of the landmark's run that are dropped there.
    #[test]
    fn a_variation_has_the_faults_of_its_run_before_the_landmark_and_new_ones_only_behind() {
        let check = Check::new().random_faults(crate::RandomFaults::up_to(3));
        let plan = |text: &str| text.parse::<FaultPlan>().unwrap();
        let (parent, fresh) =
            (plan("at 2ms a sleep; at 8ms b sleep"), plan("at 1ms b kill; at 9ms b restart"));
        let [cut, end] = [5_000_000, 10_000_000].map(Time::from_nanos);
        for seed in 0..200 {
            let found = faults(&mut Seeded::new(seed), &check, &parent, &fresh, cut, end);
            let early: Vec<_> = found.0.iter().filter(|fault| fault.time() < cut).collect();
            assert!(early.iter().all(|fault| **fault == parent.0[0]), "{found}");
            assert!(found.0.len() <= 4 && found.groups().len() <= 3, "{found}");
        }
    }
}
