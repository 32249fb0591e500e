//! What can be asked for

use std::path::PathBuf;

use clap::{Parser, Subcommand};

use crate::report::Output;

/// RDMA over Thunderbolt 5, real or simulated
///
/// Today everything runs on the simulator: two Macs, one cable, virtual time. The same seed always gives the same run.
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
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Copy a file from one Mac to another over the cable, and verify it
    Copy(Copy),
    /// Measure round trips between two Macs, beside bare verbs
    Ping(Ping),
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
