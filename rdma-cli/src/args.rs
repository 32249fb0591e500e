//! What can be asked for

use std::ops::Range;
use std::path::PathBuf;

use clap::{Parser, Subcommand};

use crate::report::Output;

/// RDMA over Thunderbolt 5, real or simulated
///
/// Today `copy` and `ping` run on the simulator: two Macs, one cable, virtual time. The same seed always gives the same run.
/// `devices` and `doctor` look at this machine, or at what was recorded on another.
#[derive(Debug, Parser)]
#[command(name = "tb5", version, after_help = "Exit codes: 0 done, 1 failed, 2 usage.")]
pub(crate) struct Args {
    /// What to do
    #[command(subcommand)]
    pub(crate) command: Command,
    /// Print one JSON object instead of text
    #[arg(long, global = true)]
    json: bool,
    /// Use the simulator even where there is a device
    #[arg(long, global = true)]
    sim: bool,
}

impl Args {
    pub(crate) fn output(&self) -> Output {
        if self.json { Output::Json } else { Output::Text }
    }

    pub(crate) fn forces_simulator(&self) -> bool {
        self.sim
    }
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Copy a file from one Mac to another over the cable, and verify it
    Copy(Copy),
    /// List the RDMA devices, their ports and what is connected to them
    Devices(Devices),
    /// Say what keeps RDMA from working, and what to do about it
    #[command(after_help = "Exit codes: 0 nothing failed, 1 a check failed or a file is wrong, 2 usage.")]
    Doctor(Doctor),
    /// Measure round trips between two Macs, beside bare verbs
    Ping(Ping),
    /// Ask the verbs provider in a process that may hang or crash; `devices` and `doctor` run this
    #[command(hide = true)]
    Provider,
    /// Run what went wrong in the field again, on the simulator
    #[command(subcommand)]
    Sim(SimCommand),
}

#[derive(Debug, Subcommand)]
pub(crate) enum SimCommand {
    /// Run a scenario with one seed or many, and say whether it went as the scenario expects
    #[command(
        after_help = "Exit codes: 0 all seeds passed, 1 one failed or the scenario cannot be read, 2 usage."
    )]
    Run(SimRun),
    /// Print what happens in a scenario, record by record
    #[command(after_help = "Exit codes: 0 done, 1 something cannot be read or written, 2 usage.")]
    Trace(SimTrace),
}

#[derive(Debug, clap::Args)]
pub(crate) struct SimRun {
    /// A scenario, such as those in rdma-sim/scenarios
    pub(crate) scenario: PathBuf,
    /// Seed of everything that the simulator leaves to chance
    #[arg(long, default_value_t = 0, conflicts_with = "seeds")]
    pub(crate) seed: u64,
    /// All seeds from A up to, but without B
    #[arg(long, value_name = "A..B", value_parser = seeds)]
    pub(crate) seeds: Option<Range<u64>>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct SimTrace {
    /// A scenario, such as those in rdma-sim/scenarios
    pub(crate) scenario: PathBuf,
    /// Seed of everything that the simulator leaves to chance
    #[arg(long, default_value_t = 0)]
    pub(crate) seed: u64,
    /// Write what happens for chrome://tracing and Perfetto, too: to a file, replaced if it exists
    #[arg(long, value_name = "FILE")]
    pub(crate) chrome: Option<PathBuf>,
}

/// More seeds than anybody waits for.
const MOST_SEEDS: u64 = 1_000_000;

fn seeds(text: &str) -> Result<Range<u64>, String> {
    let ends = text.split_once("..").and_then(|(a, b)| Some(a.parse().ok()?..b.parse().ok()?));
    let Some(seeds) = ends else { return Err("write A..B, such as 0..20".to_owned()) };
    if seeds.is_empty() {
        return Err("there is no seed in between: write the smaller number first, such as 0..20".to_owned());
    }
    if seeds.end - seeds.start > MOST_SEEDS {
        return Err(format!("these are more than {MOST_SEEDS} seeds"));
    }
    Ok(seeds)
}

#[derive(Debug, clap::Args)]
pub(crate) struct Copy {
    /// The file to copy
    pub(crate) src: PathBuf,
    /// Where it should arrive: a file name, replaced if it exists
    pub(crate) dst: PathBuf,
    /// Seed of everything that the simulator leaves to chance
    #[arg(long, default_value_t = 0)]
    pub(crate) seed: u64,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Devices {
    /// A report of `tb5 doctor --record` to read instead of looking at this machine
    #[arg(long, value_name = "FILE")]
    pub(crate) from: Option<PathBuf>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Doctor {
    /// A report of `tb5 doctor --record` to diagnose instead of this machine; with several, their cables are compared
    #[arg(long, value_name = "FILE")]
    pub(crate) from: Vec<PathBuf>,
    /// Write what was found on this machine to a file, replaced if it exists
    #[arg(long, value_name = "FILE", conflicts_with = "from")]
    pub(crate) record: Option<PathBuf>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Ping {
    /// Bytes in each message
    #[arg(long, default_value_t = 64, value_name = "BYTES")]
    pub(crate) size: usize,
    /// Round trips
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    pub(crate) count: u32,
    /// Seed of everything that the simulator leaves to chance
    #[arg(long, default_value_t = 0)]
    pub(crate) seed: u64,
}
