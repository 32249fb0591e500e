use std::fmt;
use std::str::FromStr;

use crate::fault::{FaultError, FaultPlan};

/// One run: everything that determines it beside the test
///
/// Written as text, which begins with the version of the format. The whole [`line`](Self::line) is read as well as its value:
///
/// ```
/// use rdma_sim::Replay;
///
/// let replay: Replay = "1 seed=17 draws=0 faults=at 5ms a:rdma_en2 unplug".parse()?;
/// assert_eq!((replay.seed, replay.draws, replay.faults.0.len()), (17, Some(0), 1));
/// assert_eq!(replay.line(), "RDMA_SIM_REPLAY='1 seed=17 draws=0 faults=at 5ms a:rdma_en2 unplug'");
/// assert_eq!(replay.line().parse(), Ok(replay));
/// # Ok::<(), rdma_sim::ReplayError>(())
/// ```
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Replay {
    /// Seed of the choices
    pub seed: u64,
    /// How many choices the seed makes before the rest are the plain case; all, if `None`
    pub draws: Option<u64>,
    /// The faults
    pub faults: FaultPlan,
}

/// Why a text is not a run that this version can repeat
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum ReplayError {
    /// A fault cannot be read
    #[error(transparent)]
    Fault(#[from] FaultError),
    /// No seed is in it
    #[error("the replay has no seed: write {FORM}")]
    NoSeed,
    /// A part is neither a seed, nor draws, nor faults
    #[error("{0:?} is not seed=NUMBER, draws=NUMBER or faults=PLAN: write {FORM}, with numbers up to {max}", max = u64::MAX)]
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
const VERSION: u32 = 1;

const FORM: &str = "`1 seed=NUMBER`, then perhaps `draws=NUMBER` and `faults=PLAN`";

/// The environment variable that makes [`check`](crate::check()) repeat a run
pub(super) const VARIABLE: &str = "RDMA_SIM_REPLAY";

impl Replay {
    /// The environment variable that makes [`check`](crate::check()) repeat the run
    pub fn line(&self) -> String {
        format!("{VARIABLE}='{self}'")
    }
}

impl fmt::Display for Replay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{VERSION} seed={}", self.seed)?;
        if let Some(draws) = self.draws {
            write!(f, " draws={draws}")?;
        }
        if self.faults.is_empty() { Ok(()) } else { write!(f, " faults={}", self.faults) }
    }
}

impl FromStr for Replay {
    type Err = ReplayError;

    /// Reads a replay
    ///
    /// # Errors
    ///
    /// * [`ReplayError::Version`] if another version of the simulator wrote it;
    /// * [`ReplayError::NoSeed`] if it has none;
    /// * [`ReplayError::Part`] if a part is neither a seed, nor draws, nor faults;
    /// * [`ReplayError::Fault`] if a fault cannot be read.
    fn from_str(text: &str) -> Result<Self, ReplayError> {
        let text = value_of(text.trim());
        let (version, rest) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
        if version != VERSION.to_string() {
            return Err(ReplayError::Version { theirs: version.to_owned() });
        }
        let (parts, faults) = rest.split_once("faults=").unwrap_or((rest, ""));
        let mut replay = Self { faults: faults.parse()?, ..Self::default() };
        let mut seed = None;
        for part in parts.split_whitespace() {
            let wrong = || ReplayError::Part(part.to_owned());
            let (name, value) = part.split_once('=').ok_or_else(wrong)?;
            let number = value.parse().map_err(|_| wrong())?;
            match name {
                "seed" => seed = Some(number),
                "draws" => replay.draws = Some(number),
                _ => return Err(wrong()),
            }
        }
        replay.seed = seed.ok_or(ReplayError::NoSeed)?;
        Ok(replay)
    }
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
            Replay { seed: u64::MAX, draws: Some(0), faults: faults.clone() },
            Replay { seed: 7, draws: None, faults },
        ] {
            assert_eq!(replay.to_string().parse(), Ok(replay.clone()));
            assert_eq!(replay.line().parse(), Ok(replay.clone()));
            assert_eq!(format!(" \"{replay}\"\n").parse(), Ok(replay));
        }
    }

    #[test]
    fn a_text_that_is_not_a_run_is_refused_with_the_reason() {
        let refused = |text: &str| text.parse::<Replay>().unwrap_err().to_string();
        assert!(refused("2 seed=1").contains("version \"2\" of the format and this is version 1"));
        assert!(refused("'1 seed=1").contains("version \"'1\""));
        assert!(refused("seed=1").contains("write `1 seed=NUMBER`"));
        assert!(refused("1").contains("no seed: write `1 seed=NUMBER`"));
        assert!(refused("1 draws=3").contains("no seed"));
        assert!(refused("1 seed=-1").contains("with numbers up to 18446744073709551615"));
        assert!(refused("").contains("run the test again"));
        assert!(refused("1 seed=x").contains("seed=x"));
        assert!(refused("1 sead=1").contains("sead=1"));
        assert!(refused("1 seed=1 faults=at noon").contains("\"noon\" is not a time"));
    }
}
