use std::fmt;
use std::str::FromStr;

use crate::fault::{FaultError, FaultPlan};

/// One run: everything that determines it beside the test
///
/// Written as text, which begins with the version of the format:
///
/// ```
/// use rdma_sim::Replay;
///
/// let replay: Replay = "1 seed=17 draws=0 faults=at 5ms a:rdma_en2 unplug".parse()?;
/// assert_eq!((replay.seed, replay.draws, replay.faults.0.len()), (17, Some(0), 1));
/// assert_eq!(replay.line(), "RDMA_SIM_REPLAY='1 seed=17 draws=0 faults=at 5ms a:rdma_en2 unplug'");
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
    /// A part is neither a seed, nor draws, nor faults
    #[error("{0:?} is not seed=NUMBER, draws=NUMBER or faults=PLAN")]
    Part(String),
    /// Another version of the simulator wrote it, and its seeds mean other runs
    #[error(
        "the replay has version {theirs:?} of the format and this is version {VERSION}: run the test again to get a new one"
    )]
    Version {
        /// The version that wrote it
        theirs: String,
    },
}

/// Changes whenever an old line would mean another run
const VERSION: u32 = 1;

impl Replay {
    /// The environment variable that makes [`check`](crate::check()) repeat the run
    pub fn line(&self) -> String {
        format!("RDMA_SIM_REPLAY='{self}'")
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
    /// * [`ReplayError::Part`] if a part is neither a seed, nor draws, nor faults;
    /// * [`ReplayError::Fault`] if a fault cannot be read.
    fn from_str(text: &str) -> Result<Self, ReplayError> {
        let (version, rest) = text.trim().split_once(' ').unwrap_or_else(|| (text.trim(), ""));
        if version != VERSION.to_string() {
            return Err(ReplayError::Version { theirs: version.to_owned() });
        }
        let (parts, faults) = rest.split_once("faults=").unwrap_or((rest, ""));
        let mut replay = Self { faults: faults.parse()?, ..Self::default() };
        for part in parts.split_whitespace() {
            let wrong = || ReplayError::Part(part.to_owned());
            let (name, value) = part.split_once('=').ok_or_else(wrong)?;
            let number = value.parse().map_err(|_| wrong())?;
            match name {
                "seed" => replay.seed = number,
                "draws" => replay.draws = Some(number),
                _ => return Err(wrong()),
            }
        }
        Ok(replay)
    }
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
            assert_eq!(replay.to_string().parse(), Ok(replay));
        }
    }

    #[test]
    fn a_text_that_is_not_a_run_is_refused_with_the_reason() {
        let refused = |text: &str| text.parse::<Replay>().unwrap_err().to_string();
        assert!(refused("2 seed=1").contains("version \"2\""));
        assert!(refused("").contains("run the test again"));
        assert!(refused("1 seed=x").contains("seed=x"));
        assert!(refused("1 sead=1").contains("sead=1"));
        assert!(refused("1 seed=1 faults=at noon").contains("at noon"));
    }
}
