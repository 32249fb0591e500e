//! Runs that have reached something new, in memory and in a folder
//!
//! What a run has reached is a landmark. Landmarks that few runs have reached are [varied](super::variation) more often (M. Böhme et
//! al., "Coverage-based Greybox Fuzzing as Markov Chain", CCS 2016).

use std::cell::LazyCell;
use std::collections::{BTreeSet, HashMap};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use rdma_core::Time;
use twox_hash::XxHash3_64;

use super::landmarks::{Landmark, LandmarkKind, Position};
use super::replay::{Branch, Replay, ReplayError};
use super::run::FinishedRun;
use super::settings::Check;
use crate::fault::Fault;
use crate::{Choices, FaultPlan};

/// How the files of a corpus end
const EXTENSION: &str = "replay";
/// How often landmarks of each kind are varied, if there are any
const ODDS: [(LandmarkKind, u32); 4] = [
    (LandmarkKind::State, 8),
    (LandmarkKind::Succession, 4),
    (LandmarkKind::Behaviour, 2),
    (LandmarkKind::Order, 2),
];
/// After so many variations, another run that has reached the landmark may be varied instead
const TRIALS: u32 = 32;
/// Of how many landmarks that were drawn the rarest one is varied
const DRAWN: u32 = 64;

/// A run that has reached something that none before had
#[derive(Debug)]
pub(super) struct KeptRun {
    pub(super) replay: Replay,
    pub(super) end: Position,
    /// What it has reached beside orders of tasks
    reached: Vec<u64>,
    /// Whether it is one of the files of the corpus
    is_known: bool,
}

/// A landmark with the first run that has reached it
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) run: Rc<KeptRun>,
    pub(super) position: Option<Position>,
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
    #[error("the corpus file {path} cannot be replayed: {error}; {}", self.remedy())]
    Replay { path: PathBuf, error: ReplayError },
    #[error(
        "the corpus file {path} is stale: the check does not inject the faults \"{faults}\" any more; {}", self.remedy()
    )]
    Stale { path: PathBuf, faults: FaultPlan },
}

impl CorpusError {
    fn remedy(&self) -> &'static str {
        match self.is_stale() {
            true => "check once with RDMA_SIM_UPDATE_CORPUS=1 to replace the file, or remove it",
            false => "remove it",
        }
    }

    /// Whether the file was one of a corpus of other settings, or of another version
    fn is_stale(&self) -> bool {
        match self {
            Self::Stale { .. } => true,
            Self::Replay { error, .. } => {
                matches!(error, ReplayError::OtherSetup { .. } | ReplayError::Version { .. })
            }
            Self::File { .. } => false,
        }
    }
}

/// The run that a file holds, if `check` could still try it
fn fresh(text: &str, path: &Path, check: &Check) -> Result<Replay, CorpusError> {
    let replay = text
        .parse()
        .and_then(|replay: Replay| replay.check_setup(check.setup()).map(|()| replay))
        .map_err(|error| CorpusError::Replay { path: path.to_owned(), error })?;
    if check.injects(&replay.faults) {
        Ok(replay)
    } else {
        Err(CorpusError::Stale { path: path.to_owned(), faults: replay.faults })
    }
}

impl Entries {
    /// One of the landmarks: the rarer, the more likely
    fn pick(&mut self, choices: &mut dyn Choices) -> Option<&Entry> {
        let count = self.all.len() as u32;
        let weight = |entry: &Entry| u64::from(u32::MAX / (entry.seen + entry.varied));
        let number = if count <= DRAWN {
            let sum = self.all.iter().map(weight).sum::<u64>();
            let drawn = ((u128::from(sum) * u128::from(choices.pick(u32::MAX))) >> 32) as u64;
            position_of(drawn, self.all.iter().map(weight))
        } else {
            (0..DRAWN).map(|_| choices.pick(count) as usize).max_by_key(|number| weight(&self.all[*number]))
        };
        let entry = &mut self.all[number?];
        entry.varied += 1;
        entry.tried += 1;
        Some(entry)
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
            let (new, old) = (Prefix::new(case, new), Prefix::new(&entry.run.replay, old));
            let is_cheaper = new.cost(entry.run.end.time) < old.cost(entry.run.end.time);
            if is_cheaper || (entry.tried >= TRIALS && new != old) {
                (entry.run, entry.position, entry.tried) = (Rc::clone(&keep), position, 0);
            }
        }
    }

    /// A landmark to vary: the rarer, the more likely; none if nothing was reached
    pub(super) fn pick(&mut self, choices: &mut dyn Choices) -> Option<&Entry> {
        let odds = ODDS.map(|(kind, odds)| if self.kinds[kind as usize].all.is_empty() { 0 } else { odds });
        let drawn = choices.pick(odds.iter().sum());
        let kind = position_of(drawn.into(), odds.into_iter().map(u64::from))?;
        self.kinds[kind].pick(choices)
    }

    /// The runs in the folder `path`, in the order of their names; none if it does not exist
    ///
    /// With `removes_stale`, the files of runs that `check` would not try any more are removed.
    pub(super) fn read(path: &Path, check: &Check, removes_stale: bool) -> Result<Vec<Replay>, CorpusError> {
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
        let mut runs = Vec::new();
        for path in paths {
            let text = fs::read_to_string(&path).map_err(fail(&path))?;
            match fresh(&text, &path, check) {
                Ok(replay) => runs.push(replay),
                Err(error) if removes_stale && error.is_stale() => {
                    fs::remove_file(&path).map_err(fail(&path))?;
                }
                Err(error) => return Err(error),
            }
        }
        Ok(runs)
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
        let mut missing: BTreeSet<_> = reached(&new);
        missing.retain(|id| !known.contains(id));
        let mut found = Vec::new();
        while !missing.is_empty() {
            let gain = |run: &&Rc<KeptRun>| run.reached.iter().filter(|id| missing.contains(id)).count();
            // Of those that reach the same, the first is the simplest.
            let Some(best) = new.iter().copied().rev().max_by_key(gain) else { break };
            best.reached.iter().for_each(|id| {
                missing.remove(id);
            });
            found.push(&best.replay);
        }
        found
    }
}

/// The position of the weight that `drawn`, a number below the sum, falls on if the weights lie end to end
fn position_of(drawn: u64, mut weights: impl Iterator<Item = u64>) -> Option<usize> {
    let mut rest = drawn;
    weights.position(|weight| {
        let is_in = rest < weight;
        rest = rest.saturating_sub(weight);
        is_in
    })
}

/// The part of a run up to a landmark
#[derive(PartialEq)]
struct Prefix<'a> {
    seed: u64,
    branches: &'a [Branch],
    faults: Vec<&'a Fault>,
    time: Time,
}

impl<'a> Prefix<'a> {
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

/// What a run has reached
fn landmarks(finished: &FinishedRun) -> impl Iterator<Item = Landmark> {
    // States are landmarks of their own, and have a position.
    let is_state = |name: &str| name.starts_with("state ") || name.starts_with("protocol ");
    let covered = finished.covered.iter().filter(move |(name, count)| **count > 0 && !is_state(name));
    let covered = covered.map(|(name, count)| Landmark::behaviour(name, *count));
    let orders = finished.orders.iter().map(|id| Landmark::order(*id));
    finished.landmarks.iter().copied().chain(covered).chain(orders)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Regression: states of the protocol were landmarks without a position.
    #[test]
    fn what_is_covered_is_a_landmark_unless_it_is_a_state() {
        let covered = ["fault unplug", "protocol path proven", "state leader"];
        let covered = covered.into_iter().map(|name| (name.to_owned(), 3)).collect();
        let finished = FinishedRun { covered, ..FinishedRun::default() };
        let found: Vec<_> = landmarks(&finished).map(|landmark| landmark.id).collect();
        assert_eq!(found, [Landmark::behaviour("fault unplug", 3).id]);
    }

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

    /// Catches landmarks that are varied equally often, in short lists and in long ones.
    #[test]
    fn the_rarest_landmark_is_varied_most_often() {
        for (others, least) in [(20, 200), (300, 100)] {
            let mut corpus = Corpus::default();
            let mut add = |ids: &[u64]| {
                let landmark = |id: &u64| Landmark { id: *id, kind: LandmarkKind::State, position: None };
                let finished =
                    FinishedRun { landmarks: ids.iter().map(landmark).collect(), ..FinishedRun::default() };
                corpus.add(&Replay::default(), &finished, false);
            };
            let all: Vec<_> = (0..others).collect();
            (0..1000).for_each(|_| add(&all));
            add(&[9999]);
            let choices = &mut crate::Seeded::new(3);
            for _ in 0..1000 {
                corpus.pick(choices);
            }
            let entries = &corpus.kinds[LandmarkKind::State as usize];
            let varied = entries.all[entries.by_id[&9999]].varied;
            assert!((least..1000).contains(&varied), "{varied} of 1000, beside {others} others");
        }
    }
}
