//! Arguments of `tb5 sim`

use std::ops::Range;
use std::path::PathBuf;

use clap::Subcommand;
use rdma_sim::{Replay, ReplayError};

#[derive(Debug, Subcommand)]
pub(crate) enum SimCommand {
    /// Try a scenario in other orders of events, and shrink the first run that fails
    #[command(
        after_help = "The faults are those of the scenario; tasks, timers and messages come in other orders, and late, with each \
                      seed. A run that fails is printed as the line for `tb5 sim replay` that repeats it, with as few faults and \
                      choices as were found to suffice. Verbs and wake-ups come late in these orders, so that bounds of time and goodput \
                      may fail in them without a mistake of the program.\n\n\
                      Examples: tb5 sim check rdma-sim/scenarios/one-lost-message.toml --runs 1000.\n\n\
                      Exit codes: 0 all runs passed, 1 a run failed or the scenario cannot be read, 2 usage, 130 after Ctrl-C."
    )]
    Check(SimCheck),
    /// Repeat a run that `tb5 sim check` has found
    #[command(
        after_help = "The line is the one that the check has printed; it holds for the topology and the device model of the scenario \
                      only.\n\n\
                      Examples: tb5 sim replay scenario.toml '2 seed=7 faults=at 5ms a:rdma_en2 lose 1' --html run.html.\n\n\
                      Exit codes: 0 the run passed, 1 it failed or a file cannot be read or written, 2 usage, 130 after Ctrl-C."
    )]
    Replay(SimReplay),
    /// Run a scenario with one or more seeds, and compare with what it expects
    #[command(
        after_help = "Examples: tb5 sim run rdma-sim/scenarios/one-lost-message.toml; tb5 sim run scenario.toml --seeds 0..20 --json.\n\n\
                      Exit codes: 0 all seeds passed, 1 a seed failed or the scenario cannot be read, 2 usage, 130 after Ctrl-C."
    )]
    Run(SimRun),
    /// Print the trace of a scenario, one record a line
    #[command(
        after_help = "Examples: tb5 sim trace rdma-sim/scenarios/one-lost-message.toml | head; tb5 sim trace scenario.toml --seed 7 --html \
                      run.html.\n\n\
                      Exit codes: 0 done, 1 a file cannot be read or written, 2 usage, 130 after Ctrl-C."
    )]
    Trace(SimTrace),
}

#[derive(Debug, clap::Args)]
pub(crate) struct SimCheck {
    /// The scenario file, or `-` for standard input; examples are in rdma-sim/scenarios
    pub(crate) scenario: PathBuf,
    /// Number of seeds to try, after one run in the plain order
    #[arg(long, default_value_t = 100, value_name = "N", value_parser = super::number::within(1..=MAX_SEEDS), allow_negative_numbers = true)]
    pub(crate) runs: u64,
    /// The first of the seeds
    #[arg(long, default_value_t = 0, value_parser = super::number::seed, allow_negative_numbers = true)]
    pub(crate) seed: u64,
}

#[derive(Debug, clap::Args)]
pub(crate) struct SimReplay {
    /// The scenario file, or `-` for standard input
    pub(crate) scenario: PathBuf,
    /// The line that `tb5 sim check` has printed, in quotes
    #[arg(value_name = "LINE", value_parser = replay)]
    pub(crate) replay: Replay,
    #[command(flatten)]
    pub(crate) files: TraceFiles,
}

#[derive(Debug, clap::Args)]
pub(crate) struct SimRun {
    /// The scenario file, or `-` for standard input; examples are in rdma-sim/scenarios
    pub(crate) scenario: PathBuf,
    /// Seed of all random choices of the simulator
    #[arg(long, default_value_t = 0, value_parser = super::number::seed, allow_negative_numbers = true, conflicts_with = "seeds")]
    pub(crate) seed: u64,
    /// Run all seeds from A to B, without B
    #[arg(long, value_name = "A..B", value_parser = seeds)]
    pub(crate) seeds: Option<Range<u64>>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct SimTrace {
    /// The scenario file, or `-` for standard input; examples are in rdma-sim/scenarios
    pub(crate) scenario: PathBuf,
    /// Seed of all random choices of the simulator
    #[arg(long, default_value_t = 0, value_parser = super::number::seed, allow_negative_numbers = true)]
    pub(crate) seed: u64,
    #[command(flatten)]
    pub(crate) files: TraceFiles,
}

/// Files that show a run
#[derive(Debug, clap::Args)]
pub(crate) struct TraceFiles {
    /// Write the trace to a file for chrome://tracing and Perfetto; an existing file is replaced; `-` is standard output
    #[arg(long, value_name = "FILE")]
    pub(crate) chrome: Option<PathBuf>,
    /// Write the run to a file as a page for a browser, which needs no network; an existing file is replaced; `-` is standard output
    #[arg(long, value_name = "FILE")]
    pub(crate) html: Option<PathBuf>,
}

/// Bounds the time of a command that was mistyped.
const MAX_SEEDS: u64 = 1_000_000;

fn seeds(text: &str) -> Result<Range<u64>, String> {
    let ends = text.split_once("..").and_then(|(a, b)| Some(a.parse().ok()?..b.parse().ok()?));
    let Some(seeds) = ends else {
        return Err(format!("write A..B, such as 0..20, with numbers from 0 to {}", u64::MAX));
    };
    if seeds.is_empty() {
        return Err(format!("there are no seeds in {text}: write the smaller number first, such as 0..20"));
    }
    if seeds.end - seeds.start > MAX_SEEDS {
        return Err(format!("{text} are {} seeds: write at most {MAX_SEEDS} seeds", seeds.end - seeds.start));
    }
    Ok(seeds)
}

/// Reads the line that a check has printed
fn replay(line: &str) -> Result<Replay, String> {
    line.parse().map_err(|error: ReplayError| error.to_string())
}
