//! Runs that have reached something new, and variations of them

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use twox_hash::XxHash3_64;

use super::replay::{Branch, Replay, ReplayError};
use super::run::Finished;
use crate::{Choices, FaultPlan, Seeded};

/// How the files of a corpus end
const EXTENSION: &str = "replay";
/// Most seeds that take over from each other in one run: its line stays short enough to read
const MOST_BRANCHES: usize = 12;

/// Runs that have reached something that none before had
#[derive(Clone, Debug, Default)]
pub(super) struct Corpus {
    /// Each run with the number of its choices
    entries: Vec<(Replay, u64)>,
    seen: BTreeSet<u64>,
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

impl Corpus {
    /// Adds `case` if its run has reached something new
    pub(super) fn add(&mut self, case: &Replay, finished: &Finished) -> bool {
        let before = self.seen.len();
        self.seen.extend(features(finished));
        let is_new = self.seen.len() > before;
        if is_new {
            self.entries.push((case.clone(), finished.drawn));
        }
        is_new
    }

    /// A variation of a run, which `fresh` is instead if there is none; all runs have the faults of `plan`
    pub(super) fn vary(&self, fresh: Replay, plan: &FaultPlan) -> Replay {
        let choices = &mut Seeded::new(fresh.seed ^ 0xc0_4905);
        // A quarter of the runs begin anew: what was found so far may be far from everything else.
        if self.entries.is_empty() || choices.pick(4) == 0 {
            return fresh;
        }
        // The later one of two: newer runs have been varied less.
        let count = self.entries.len() as u32;
        let number = choices.pick(count).max(choices.pick(count));
        let (parent, drawn) = &self.entries[number as usize];
        let mut child = parent.clone();
        let (new_choices, new_faults) = match choices.pick(4) {
            0 if parent.faults != fresh.faults => (false, true),
            1 => (true, true),
            _ => (true, false),
        };
        if new_faults {
            let drawn = [parent, &fresh].map(|run| {
                let faults = run.faults.0.strip_prefix(&plan.0[..]).unwrap_or_default();
                FaultPlan(faults.to_vec())
            });
            child.faults = plan.clone();
            child.faults.0.extend(mix(choices, &drawn).0);
        }
        if new_choices {
            let at = u64::from(choices.pick(u32::try_from(*drawn).unwrap_or(u32::MAX).max(1)));
            child.branches.retain(|branch| branch.at < at);
            child.branches.push(Branch { at, seed: fresh.seed });
        }
        if child.branches.len() > MOST_BRANCHES { fresh } else { child }
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

    /// Writes `case` into the folder `path`
    pub(super) fn write(path: &Path, case: &Replay) -> Result<(), CorpusError> {
        let text = format!("{case}\n");
        let path = path.join(format!("{:016x}.{EXTENSION}", XxHash3_64::oneshot(text.as_bytes())));
        let written = path.parent().map_or(Ok(()), fs::create_dir_all).and_then(|()| fs::write(&path, text));
        written.map_err(|error| CorpusError::File { path, error })
    }
}

/// Faults of two plans: each group of either with even odds, at most as many as the larger one has
fn mix(choices: &mut dyn Choices, plans: &[FaultPlan; 2]) -> FaultPlan {
    let mut all = FaultPlan::none();
    let mut left = plans.iter().map(|plan| plan.groups().len()).max().unwrap_or(0);
    for plan in plans {
        for group in plan.groups() {
            if left > 0 && choices.pick(2) == 0 {
                left -= 1;
                all.0.extend(group.into_iter().map(|position| plan.0[position].clone()));
            }
        }
    }
    all
}

/// What a run has reached, each thing as a number: how often it was, to the power of two
fn features(finished: &Finished) -> impl Iterator<Item = u64> {
    let hash = |name: &str, count: u64| XxHash3_64::oneshot(format!("{name} {}", count.ilog2()).as_bytes());
    let covered = finished.covered.iter().filter(|(_, count)| **count > 0);
    let covered = covered.map(move |(name, count)| hash(name, *count));
    let held = finished.statements.iter().filter(|(_, count)| count.held > 0);
    let held = held.map(move |(statement, count)| hash(statement.label, count.held));
    let successions = finished.successions.iter().map(move |pair| hash(&format!("{pair:?}"), 1));
    covered.chain(held).chain(successions).chain(finished.orders.iter().copied())
}
