//! What can be asked for

#[cfg(unix)]
use std::ffi::OsString;
use std::ops::Range;
use std::path::PathBuf;

use clap::{Parser, Subcommand};

use crate::report::Output;
#[cfg(unix)]
use crate::sim::Period;

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
    /// Start programs as the hosts of a simulated fabric: any verbs program, without a Mac
    #[cfg(unix)]
    #[command(
        after_help = "A lone ':' separates the commands of different hosts; the last one is for the rest. The first program \
                      gets up to 3 s to listen before the others start. Programs read nothing from standard input. When one \
                      fails, the others are ended after --grace; a host that a fault kills has not failed, and is not started \
                      again.\n\n\
                      Exit codes: that of the program that failed first, 128 and the signal if one ended it; 0 if none failed, \
                      124 after --timeout, 1 if something could not be started, 2 usage."
    )]
    Run(Run),
    /// List the simulated fabrics of this machine, look at one, or have something happen to it
    #[cfg(unix)]
    #[command(
        after_help = "Examples: tb5 fabric; tb5 fabric NAME; tb5 fabric NAME unplug a:rdma_en2; tb5 fabric NAME \
                            'corrupt a:rdma_en2 3; pause b'.\n\n\
                            Exit codes: 0 done, 1 there is no such fabric or it refuses, 2 usage."
    )]
    Fabric(Fabric),
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

#[cfg(unix)]
#[derive(Debug, clap::Args)]
pub(crate) struct Run {
    /// How many hosts there are; what the topology says, or else 2
    #[arg(long, value_name = "N")]
    pub(crate) hosts: Option<usize>,
    /// How they are cabled: mesh, ring, line, star, pair, or a file (a topology in TOML, a device matrix of MLX in JSON)
    #[arg(long, default_value = "mesh", value_name = "SHAPE|FILE")]
    pub(crate) topology: String,
    /// What the devices do: tb5, tb5-macos-26.2, tb5-lenient or roce
    #[arg(long, default_value = "tb5")]
    pub(crate) profile: String,
    /// How fast the cables are
    #[arg(long, value_enum, default_value_t)]
    pub(crate) pace: Pace,
    /// What goes wrong, such as 'at 2s a:rdma_en2 unplug'; times count from the beginning
    #[arg(long, value_name = "PLAN")]
    pub(crate) fault: Vec<String>,
    /// Seed of what the simulator leaves to chance
    #[arg(long, default_value_t = 0)]
    pub(crate) seed: u64,
    /// What the fabric is called, for tb5 fabric; a fresh name otherwise
    #[arg(long, value_name = "FABRIC")]
    pub(crate) name: Option<String>,
    /// What ports say of their link
    #[arg(long, value_enum)]
    pub(crate) link_layer: Option<LinkLayer>,
    /// Time between the starts of two hosts
    #[arg(long, value_name = "TIME", value_parser = period)]
    pub(crate) stagger: Option<Period>,
    /// End everything after so long
    #[arg(long, value_name = "TIME", value_parser = period)]
    pub(crate) timeout: Option<Period>,
    /// How long programs may go on once another has failed, and once they were asked to end
    #[arg(long, default_value = "2s", value_name = "TIME", value_parser = period)]
    pub(crate) grace: Period,
    /// The program of all hosts, or several with a ':' between them
    #[arg(trailing_var_arg = true, required = true, value_name = "PROG")]
    pub(crate) program: Vec<OsString>,
}

/// How fast cables are
#[cfg(unix)]
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, clap::ValueEnum)]
pub(crate) enum Pace {
    /// As fast as this machine allows
    #[default]
    None,
    /// As fast as the model says
    Tb5,
}

#[cfg(unix)]
#[derive(Clone, Copy, Debug, Eq, PartialEq, clap::ValueEnum)]
pub(crate) enum LinkLayer {
    Ethernet,
    Infiniband,
    Thunderbolt,
}

#[cfg(unix)]
impl LinkLayer {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Ethernet => "ethernet",
            Self::Infiniband => "infiniband",
            Self::Thunderbolt => "thunderbolt",
        }
    }
}

#[cfg(unix)]
fn period(text: &str) -> Result<Period, String> {
    let why = "write a whole number of h, m, s, ms, us or ns up to a day, such as 300ms";
    Period::parse(text).ok_or_else(|| why.to_owned())
}

#[cfg(unix)]
#[derive(Debug, clap::Args)]
pub(crate) struct Fabric {
    /// The fabric to look at; without one, all are listed
    pub(crate) name: Option<String>,
    /// What happens to it now, such as `unplug a:rdma_en2`; or at a time that counts from its beginning: `at 5s pause a`
    #[arg(value_name = "FAULT")]
    pub(crate) fault: Vec<String>,
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
