use std::fmt;
use std::str::FromStr;

use crate::fault::{FaultError, FaultPlan};
use crate::{Choices, Recorded, Scheduler, Seeded};

/// One run: everything that determines it beside the test
///
/// Written as text, which begins with the version of the format. The whole [`line`](Self::line) is read as well as its value:
///
/// ```
/// use rdma_sim::{Replay, Scheduler};
///
/// let replay: Replay = "2 test=two_phase seed=17 scheduler=random draws=0 faults=at 5ms a:rdma_en2 unplug".parse()?;
/// assert_eq!((replay.seed, replay.draws, replay.faults.0.len()), (17, Some(0), 1));
/// assert_eq!(replay.scheduler, Scheduler::Random);
/// assert_eq!(replay.line().parse(), Ok(replay));
/// # Ok::<(), rdma_sim::ReplayError>(())
/// ```
#[derive(Clone, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub struct Replay {
    /// The name of the test; any, if empty
    pub test: String,
    /// The fingerprint of the topology and the model; any, if `None`
    pub setup: Option<u32>,
    /// Seed of the choices
    pub seed: u64,
    /// Other seeds that take over after so many choices, in order
    pub branches: Vec<Branch>,
    /// Choices that are written down, instead of those of the seed; the plain case follows them
    pub choices: Option<Vec<u32>>,
    /// How many choices are made before the rest are the plain case; all, if `None`
    pub draws: Option<u64>,
    /// What orders tasks and events
    pub scheduler: Scheduler,
    /// The faults
    pub faults: FaultPlan,
}

/// A point of a run at which another seed takes over
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Branch {
    /// How many choices were made before
    pub at: u64,
    /// The seed of the choices after it
    pub seed: u64,
}

/// Why a text is not a run that this version can repeat
#[derive(Clone, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum ReplayError {
    /// A fault cannot be read
    #[error(transparent)]
    Fault(#[from] FaultError),
    /// No seed is in it
    #[error("the replay has no seed: write {FORM}")]
    NoSeed,
    /// It does not begin with a version
    #[error("{0:?} is no replay line: take the one that a failure has printed, or write {FORM}")]
    NotALine(String),
    /// The run is one of another topology or model
    #[error(
        "the replay is of another topology or model ({theirs:08x}, and this is {ours:08x}): check with the same, or remove `setup=` \
         to try the run here"
    )]
    OtherSetup {
        /// The fingerprint in the replay
        theirs: u32,
        /// The fingerprint of the check that was to repeat it
        ours: u32,
    },
    /// A part is not one of a replay
    #[error("{0:?} is no part of a replay: write {FORM}, with numbers up to {max}", max = u64::MAX)]
    Part(String),
    /// Another version of the simulator wrote it, and its seeds mean other runs
    #[error(
        "the replay has version {theirs:?} of the format and this is version {VERSION}: run the test again to get a new one, \
         or write {FORM}"
    )]
    Version {
        /// The version that wrote it
        theirs: String,
    },
}

/// Changes whenever an old line would mean another run
const VERSION: u32 = 2;

const FORM: &str = "`2 seed=NUMBER`, and as needed before or behind it `test=NAME`, `setup=HEX`, `branch=AT:SEED,…`, \
                    `choices=NUMBER.…`, `scheduler=every|fifo|random|pct:DEPTH/STEPS`, `draws=NUMBER`, and at the end `faults=PLAN`";

/// The environment variable that makes [`check`](crate::check()) repeat a run
pub(super) const VARIABLE: &str = "RDMA_SIM_REPLAY";

impl Replay {
    /// The environment variable that makes [`check`](crate::check()) repeat the run
    pub fn line(&self) -> String {
        format!("{VARIABLE}='{self}'")
    }

    /// Whether the run is one of this topology and model
    pub(super) fn check_setup(&self, ours: u32) -> Result<(), ReplayError> {
        match self.setup {
            Some(theirs) if theirs != ours => Err(ReplayError::OtherSetup { theirs, ours }),
            _ => Ok(()),
        }
    }

    /// The source of the run's choices
    pub(crate) fn source(&self) -> Box<dyn Choices> {
        let most = self.draws.unwrap_or(u64::MAX);
        match &self.choices {
            Some(choices) => {
                let count = usize::try_from(most).unwrap_or(usize::MAX).min(choices.len());
                Box::new(Recorded::new(&choices[..count]))
            }
            None => Box::new(Branching::new(self.seed, &self.branches, most)),
        }
    }
}

/// Choices of seeds that take over from each other
#[derive(Debug)]
struct Branching {
    seed: u64,
    seeded: Seeded,
    drawn: u64,
    /// Last first
    branches: Vec<Branch>,
    most: u64,
}

impl Branching {
    fn new(seed: u64, branches: &[Branch], most: u64) -> Self {
        let branches = branches.iter().rev().copied().collect();
        Self { seed, seeded: Seeded::new(seed), drawn: 0, branches, most }
    }
}

impl Choices for Branching {
    fn pick(&mut self, n: u32) -> u32 {
        if self.drawn >= self.most {
            return 0;
        }
        while let Some(Branch { seed, .. }) = self.branches.pop_if(|branch| branch.at <= self.drawn) {
            self.seeded = Seeded::new(seed);
        }
        self.drawn += 1;
        self.seeded.pick(n)
    }

    fn seed(&self) -> Option<u64> {
        Some(self.seed)
    }
}

impl fmt::Display for Replay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { test, setup, seed, branches, choices, draws, scheduler, faults } = self;
        write!(f, "{VERSION}")?;
        if !test.is_empty() {
            write!(f, " test={test}")?;
        }
        if let Some(setup) = setup {
            write!(f, " setup={setup:08x}")?;
        }
        write!(f, " seed={seed}")?;
        for (number, Branch { at, seed }) in branches.iter().enumerate() {
            write!(f, "{}{at}:{seed}", if number > 0 { "," } else { " branch=" })?;
        }
        if let Some(choices) = choices {
            let choices: Vec<_> = choices.iter().map(u32::to_string).collect();
            write!(f, " choices={}", choices.join("."))?;
        }
        if *scheduler != Scheduler::Fifo {
            write!(f, " scheduler={scheduler}")?;
        }
        if let Some(draws) = draws {
            write!(f, " draws={draws}")?;
        }
        if faults.is_empty() { Ok(()) } else { write!(f, " faults={faults}") }
    }
}

impl FromStr for Replay {
    type Err = ReplayError;

    /// Reads a replay
    ///
    /// # Errors
    ///
    /// * [`ReplayError::NotALine`] if it does not begin with a version;
    /// * [`ReplayError::Version`] if another version of the simulator wrote it;
    /// * [`ReplayError::NoSeed`] if it has none;
    /// * [`ReplayError::Part`] if a part is not one of a replay, or is there twice;
    /// * [`ReplayError::Fault`] if a fault cannot be read.
    fn from_str(text: &str) -> Result<Self, ReplayError> {
        let text = value_of(text.trim());
        let (version, rest) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
        if version.is_empty() || !version.bytes().all(|letter| letter.is_ascii_digit()) {
            return Err(ReplayError::NotALine(text.to_owned()));
        }
        if version != VERSION.to_string() {
            return Err(ReplayError::Version { theirs: version.to_owned() });
        }
        let (parts, faults) = rest.split_once(" faults=").unwrap_or((rest, ""));
        let mut replay = Self { faults: faults.parse()?, ..Self::default() };
        let mut seen = Vec::new();
        for part in parts.split_whitespace() {
            let wrong = || ReplayError::Part(part.to_owned());
            let (name, value) = part.split_once('=').ok_or_else(wrong)?;
            if seen.contains(&name) {
                return Err(wrong());
            }
            seen.push(name);
            replay.set(name, value).ok_or_else(wrong)?;
        }
        if seen.contains(&"seed") { Ok(replay) } else { Err(ReplayError::NoSeed) }
    }
}

impl Replay {
    /// Reads one part
    fn set(&mut self, name: &str, value: &str) -> Option<()> {
        match name {
            "test" => value.clone_into(&mut self.test),
            "setup" => self.setup = Some(u32::from_str_radix(value, 16).ok()?),
            "seed" => self.seed = value.parse().ok()?,
            "branch" => self.branches = value.split(',').map(branch).collect::<Option<_>>()?,
            "choices" if value.is_empty() => self.choices = Some(Vec::new()),
            "choices" => {
                self.choices = Some(value.split('.').map(|one| one.parse().ok()).collect::<Option<_>>()?)
            }
            "scheduler" => self.scheduler = value.parse().ok()?,
            "draws" => self.draws = Some(value.parse().ok()?),
            _ => return None,
        }
        Some(())
    }
}

fn branch(text: &str) -> Option<Branch> {
    let (at, seed) = text.split_once(':')?;
    Some(Branch { at: at.parse().ok()?, seed: seed.parse().ok()? })
}

/// The name of the test in a line; lines of other versions are read as well, as far as the name
pub(super) fn test_of(text: &str) -> Option<&str> {
    let text = value_of(text.trim());
    let parts = text.split_once(" faults=").map_or(text, |(parts, _)| parts);
    parts.split_whitespace().find_map(|part| part.strip_prefix("test=")).filter(|name| !name.is_empty())
}

/// What a shell would make of a pasted line: the value, without the name of the variable and without quotes
fn value_of(text: &str) -> &str {
    let named = text.strip_prefix(VARIABLE).and_then(|rest| rest.strip_prefix('='));
    let text = named.unwrap_or(text);
    let quoted = ['\'', '"'].iter().find_map(|quote| text.strip_prefix(*quote)?.strip_suffix(*quote));
    quoted.unwrap_or(text).trim()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_reads_as_it_is_written() {
        let faults: FaultPlan = "at 5ms a:rdma_en2 unplug; at 1s b kill".parse().unwrap();
        for replay in [
            Replay::default(),
            Replay { choices: Some(Vec::new()), ..Replay::default() },
            Replay { seed: u64::MAX, draws: Some(0), faults: faults.clone(), ..Replay::default() },
            Replay {
                test: "election::one_leader".to_owned(),
                setup: Some(0xbeef),
                branches: vec![Branch { at: 40, seed: 2 }, Branch { at: 90, seed: 0 }],
                scheduler: Scheduler::Pct { depth: 3, steps: 1200 },
                ..Replay::default()
            },
            Replay {
                choices: Some(vec![4, 0, 17]),
                scheduler: Scheduler::Random,
                faults,
                ..Replay::default()
            },
        ] {
            assert_eq!(replay.to_string().parse(), Ok(replay.clone()));
            assert_eq!(replay.line().parse(), Ok(replay.clone()));
            assert_eq!(format!(" \"{replay}\"\n").parse(), Ok(replay));
        }
    }

    #[test]
    fn a_text_that_is_not_a_run_is_refused_with_the_reason() {
        let refused = |text: &str| text.parse::<Replay>().unwrap_err().to_string();
        assert!(refused("1 seed=1").contains("version \"1\" of the format and this is version 2"));
        assert!(
            refused("'2 seed=1").starts_with("\"'2 seed=1\" is no replay line: take the one that a failure")
        );
        assert!(refused("seed=1").contains("write `2 seed=NUMBER`"));
        assert!(refused("2").contains("no seed: write `2 seed=NUMBER`"));
        assert!(refused("2 draws=3").contains("no seed"));
        assert!(refused("2 seed=-1").contains("with numbers up to 18446744073709551615"));
        // Regression: the replay was said to have version "".
        assert!(
            refused("").starts_with("\"\" is no replay line")
                && refused("").contains("write `2 seed=NUMBER`")
        );
        let parts =
            ["seed=x", "sead=1", "branch=4", "branch=4:x", "choices=1,2", "setup=xyz", "scheduler=lifo"];
        for part in parts {
            assert!(refused(&format!("2 {part}")).contains(&format!("{part:?} is no part")), "{part}");
        }
        assert!(refused("2 seed=1 seed=2").contains("\"seed=2\""), "a second seed");
        assert!(refused("2 seed=1 faults=at noon").contains("\"noon\" is not a time"));
    }

    #[test]
    fn a_branch_takes_over_after_its_choices() {
        let picks = |replay: &Replay, count| {
            let mut source = replay.source();
            (0..count).map(|_| source.pick(1000)).collect::<Vec<_>>()
        };
        let plain = |seed| Replay { seed, ..Replay::default() };
        let branched = Replay { branches: vec![Branch { at: 3, seed: 9 }], ..plain(7) };
        assert_eq!(picks(&branched, 6), [picks(&plain(7), 3), picks(&plain(9), 3)].concat());
        let few = Replay { draws: Some(4), ..branched.clone() };
        assert_eq!(picks(&few, 6), [&picks(&branched, 4)[..], &[0, 0]].concat());
        let recorded = Replay { choices: Some(vec![5, 6, 7]), draws: Some(2), ..plain(7) };
        assert_eq!(picks(&recorded, 4), [5, 6, 0, 0]);
    }
}
