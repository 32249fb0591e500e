//! Runs that have reached something new, and variations of them
//!
//! What a run has reached is a landmark, and a variation of the run goes on from there: its choices and its faults are the same up to
//! the landmark, and others behind it. So a bug behind several rare states is found one state after another, and not all at once (A. Ecoffet et
//! al., "First return, then explore", Nature 2021). Landmarks that few runs have reached are varied more often (M. Böhme et al.,
//! "Coverage-based Greybox Fuzzing as Markov Chain", CCS 2016).

use std::cell::LazyCell;
use std::collections::{BTreeSet, HashMap};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

use rdma_core::Time;
use twox_hash::XxHash3_64;

use super::landmarks::{Landmark, LandmarkKind, Position};
use super::replay::{Branch, Replay, ReplayError};
use super::run::FinishedRun;
use super::settings::Check;
use crate::fault::{Fault, Trigger};
use crate::{Choices, FaultPlan, Seeded};

/// How the files of a corpus end
const EXTENSION: &str = "replay";
/// Most seeds that take over from each other in one run: its line stays short enough to read
const MOST_BRANCHES: usize = 32;
/// How often landmarks of each kind are varied, if there are any
const ODDS: [(LandmarkKind, u32); 4] = [
    (LandmarkKind::State, 8),
    (LandmarkKind::Succession, 4),
    (LandmarkKind::Behaviour, 2),
    (LandmarkKind::Order, 2),
];
/// After so many variations, another way to a landmark may be varied instead
const TRIALS: u32 = 32;
/// Of how many landmarks that were drawn the rarest one is varied
const DRAWN: u32 = 64;

/// A run that has reached something that none before had
#[derive(Debug)]
struct KeptRun {
    replay: Replay,
    end: Position,
    /// What it has reached beside orders of tasks
    reached: Vec<u64>,
    /// Whether it is one of the files of the corpus
    is_known: bool,
}

/// A landmark with the first run that has reached it
#[derive(Debug)]
struct Entry {
    run: Rc<KeptRun>,
    position: Option<Position>,
    /// How many runs have reached it
    seen: u32,
    /// How often it was varied
    varied: u32,
    /// How often since its run was another one
    tried: u32,
}

/// The landmarks of one kind
#[derive(Debug, Default)]
struct Entries {
    all: Vec<Entry>,
    by_id: HashMap<u64, usize>,
}

/// Runs that have reached something that none before had
#[derive(Debug, Default)]
pub(super) struct Corpus {
    kinds: [Entries; ODDS.len()],
    runs: Vec<Rc<KeptRun>>,
}

/// A corpus cannot be read or written
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(super) enum CorpusError {
    #[error("cannot use the corpus file {path}: {error}")]
    File { path: PathBuf, error: io::Error },
    #[error("the corpus file {path} cannot be replayed: {error}; remove it")]
    Replay { path: PathBuf, error: ReplayError },
}

impl Entries {
    /// One of the landmarks: the rarer, the more likely
    fn pick(&mut self, choices: &mut dyn Choices) -> Option<&Entry> {
        let count = self.all.len() as u32;
        let weight = |entry: &Entry| u64::from(u32::MAX / (entry.seen + entry.varied));
        let number = if count <= DRAWN {
            let sum = self.all.iter().map(weight).sum::<u64>();
            let mut left = ((u128::from(sum) * u128::from(choices.pick(u32::MAX))) >> 32) as u64;
            self.all.iter().position(|entry| {
                let is_it = left < weight(entry);
                left = left.saturating_sub(weight(entry));
                is_it
            })
        } else {
            (0..DRAWN).map(|_| choices.pick(count) as usize).max_by_key(|number| weight(&self.all[*number]))
        };
        let entry = &mut self.all[number?];
        entry.varied += 1;
        entry.tried += 1;
        Some(entry)
    }
}

impl Entry {
    /// Where a variation of the run begins
    fn cut(&self, choices: &mut dyn Choices) -> Position {
        let end = self.run.end;
        let between = |from: Position, to: Position, choices: &mut dyn Choices| {
            let part = u64::from(choices.pick(1 << 16));
            let between = |from: u64, to: u64| {
                from + ((u128::from(to.saturating_sub(from)) * u128::from(part)) >> 16) as u64
            };
            let time = between(from.time.as_nanos(), to.time.as_nanos());
            Position { drawn: between(from.drawn, to.drawn), time: Time::from_nanos(time) }
        };
        match (self.position, choices.pick(4)) {
            (None, _) => between(Position::default(), end, choices),
            // There may be another way to the landmark, from which more can be reached.
            (Some(position), 3) => between(Position::default(), position, choices),
            (Some(position), 2) => between(position, end, choices),
            (Some(position), _) => position,
        }
    }
}

impl Corpus {
    /// Keeps `case` if its run has reached something new
    pub(super) fn add(&mut self, case: &Replay, finished: &FinishedRun, is_known: bool) {
        let landmarks: Vec<_> = landmarks(finished).collect();
        let is_new =
            |landmark: &Landmark| !self.kinds[landmark.kind as usize].by_id.contains_key(&landmark.id);
        let is_new = landmarks.iter().any(is_new);
        // A line with recorded choices cannot be varied.
        if case.choices.is_some() {
            return;
        }
        let keep = LazyCell::new(|| {
            let drawn = finished.drawn.min(case.draws.unwrap_or(u64::MAX));
            let reached = landmarks.iter().filter(|landmark| landmark.kind != LandmarkKind::Order);
            let reached = reached.map(|landmark| landmark.id).collect();
            let end = Position { drawn, time: finished.time };
            Rc::new(KeptRun { replay: case.clone(), end, reached, is_known })
        });
        if is_new {
            self.runs.push(Rc::clone(&keep));
        }
        for Landmark { id, kind, position } in landmarks.iter().copied() {
            let entries = &mut self.kinds[kind as usize];
            let Some(number) = entries.by_id.get(&id) else {
                entries.by_id.insert(id, entries.all.len());
                entries.all.push(Entry { run: Rc::clone(&keep), position, seen: 1, varied: 0, tried: 0 });
                continue;
            };
            let entry = &mut entries.all[*number];
            entry.seen += 1;
            let (Some(new), Some(old)) = (position, entry.position) else { continue };
            let (new, old) = (Way::new(case, new), Way::new(&entry.run.replay, old));
            let is_cheaper = new.cost(entry.run.end.time) < old.cost(entry.run.end.time);
            if is_cheaper || (entry.tried >= TRIALS && new != old) {
                (entry.run, entry.position, entry.tried) = (Rc::clone(&keep), position, 0);
            }
        }
    }

    /// A variation of a run, with the choices and faults of `fresh` behind a landmark; none if nothing was reached
    pub(super) fn vary(&mut self, fresh: &Replay, check: &Check) -> Option<Replay> {
        let choices = &mut Seeded::new(fresh.seed ^ 0xc0_4905);
        let odds = ODDS.map(|(kind, odds)| if self.kinds[kind as usize].all.is_empty() { 0 } else { odds });
        let mut left = choices.pick(odds.iter().sum());
        let kind = odds.iter().position(|odds| {
            let is_it = left < *odds;
            left = left.saturating_sub(*odds);
            is_it
        })?;
        let landmark = self.kinds[kind].pick(choices)?;
        let (cut, run) = (landmark.cut(choices), &landmark.run);
        let mut child = run.replay.clone();
        child.draws = None;
        child.branches.retain(|branch| branch.at < cut.drawn);
        child.branches.push(Branch { at: cut.drawn, seed: fresh.seed });
        child.faults = faults(choices, check, &run.replay.faults, &fresh.faults, cut.time, run.end.time);
        (child.branches.len() <= MOST_BRANCHES).then_some(child)
    }

    /// The runs in the folder `path`, in the order of their names; none if it does not exist; `setup` is theirs, too
    pub(super) fn read(path: &Path, setup: u32) -> Result<Vec<Replay>, CorpusError> {
        let fail = |path: &Path| {
            let path = path.to_owned();
            move |error| CorpusError::File { path, error }
        };
        let entries = match fs::read_dir(path) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(fail(path)(error)),
        };
        let mut paths =
            entries.map(|entry| Ok(entry?.path())).collect::<Result<Vec<_>, _>>().map_err(fail(path))?;
        paths.retain(|path| path.extension().is_some_and(|extension| extension == EXTENSION));
        paths.sort();
        paths
            .into_iter()
            .map(|path| {
                let text = fs::read_to_string(&path).map_err(fail(&path))?;
                let replay =
                    text.parse().and_then(|replay: Replay| replay.check_setup(setup).map(|()| replay));
                replay.map_err(|error| CorpusError::Replay { path, error })
            })
            .collect()
    }

    /// Writes the runs that suffice for what no file has reached into the folder `path`
    pub(super) fn write(&self, path: &Path) -> Result<(), CorpusError> {
        for run in self.sufficient() {
            let text = format!("{run}\n");
            let path = path.join(format!("{:016x}.{EXTENSION}", XxHash3_64::oneshot(text.as_bytes())));
            let written =
                path.parent().map_or(Ok(()), fs::create_dir_all).and_then(|()| fs::write(&path, text));
            written.map_err(|error| CorpusError::File { path, error })?;
        }
        Ok(())
    }

    /// The fewest runs that reach what no file has
    fn sufficient(&self) -> Vec<&Replay> {
        let (known, new): (Vec<_>, Vec<_>) = self.runs.iter().partition(|run| run.is_known);
        let reached =
            |runs: &[&Rc<KeptRun>]| runs.iter().flat_map(|run| run.reached.iter().copied()).collect();
        let known: BTreeSet<_> = reached(&known);
        let mut left: BTreeSet<_> = reached(&new);
        left.retain(|id| !known.contains(id));
        let mut found = Vec::new();
        while !left.is_empty() {
            let gain = |run: &&Rc<KeptRun>| run.reached.iter().filter(|id| left.contains(id)).count();
            // Of those that reach the same, the first is the simplest.
            let Some(best) = new.iter().copied().rev().max_by_key(gain) else { break };
            best.reached.iter().for_each(|id| {
                left.remove(id);
            });
            found.push(&best.replay);
        }
        found
    }
}

/// What has brought a run to a landmark
#[derive(PartialEq)]
struct Way<'a> {
    seed: u64,
    branches: &'a [Branch],
    faults: Vec<&'a Fault>,
    time: Time,
}

impl<'a> Way<'a> {
    fn new(run: &'a Replay, to: Position) -> Self {
        let branches = run.branches.iter().take_while(|branch| branch.at < to.drawn).count();
        let faults = run.faults.0.iter().filter(|fault| fault.time() < to.time).collect();
        Self { seed: run.seed, branches: &run.branches[..branches], faults, time: to.time }
    }

    /// An early landmark leaves time for others, and one with few faults and branches leaves room
    fn cost(&self, end: Time) -> u64 {
        let parts = (self.faults.len() + self.branches.len()) as u64;
        self.time.as_nanos() + parts * (end.as_nanos() / 8)
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
    let [old, new] = [parent, fresh]
        .map(|plan| FaultPlan(plan.0.strip_prefix(&check.faults.0[..]).unwrap_or_default().to_vec()));
    let way = choices.pick(4);
    let (keeps_old, adds_new) = (way < 2, way > 0);
    let mut groups = old.groups();
    groups.retain(|group| keeps_old || old.0[group[0]].time() < cut);
    if way == 3 && !groups.is_empty() {
        // Perhaps the way to the landmark does without it.
        groups.remove(choices.pick(groups.len() as u32) as usize);
    }
    let mut found = check.faults.clone();
    let mut left = check.random_faults.most();
    for group in groups {
        if left > 0 {
            left -= 1;
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
        // What begins before the cut would change the way there.
        let start = if first < cut { cut + delay(choices, end.since(Time::ZERO)) } else { first };
        if left == 0 || start > latest {
            continue;
        }
        left -= 1;
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

/// What a run has reached
fn landmarks(finished: &FinishedRun) -> impl Iterator<Item = Landmark> {
    // States are landmarks of their own.
    let covered = finished.covered.iter().filter(|(name, count)| **count > 0 && !name.starts_with("state "));
    let covered = covered.map(|(name, count)| Landmark::behaviour(name, *count));
    let orders = finished.orders.iter().map(|id| Landmark::order(*id));
    finished.landmarks.iter().copied().chain(covered).chain(orders)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Catches a corpus that is written again because of what its files have reached.
    #[test]
    fn the_fewest_runs_that_reach_what_no_file_has_are_written() {
        let mut corpus = Corpus::default();
        let mut add = |seed, ids: &[u64], is_known| {
            let landmark = |id: &u64| Landmark { id: *id, kind: LandmarkKind::State, position: None };
            let finished =
                FinishedRun { landmarks: ids.iter().map(landmark).collect(), ..FinishedRun::default() };
            corpus.add(&Replay { seed, ..Replay::default() }, &finished, is_known);
        };
        add(1, &[1, 9], true);
        add(2, &[1, 2], false);
        add(3, &[9, 2, 3], false);
        let seeds: Vec<_> = corpus.sufficient().iter().map(|run| run.seed).collect();
        assert_eq!(seeds, [3]);
    }
}
