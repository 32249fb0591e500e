//! Arguments of `tb5 demo`

use std::path::PathBuf;

use super::machines::Machines;
use crate::machines::Host;

#[derive(Debug, clap::Args)]
pub(crate) struct Demo {
    /// The machine where `tb5 serve --into DIR` runs; without it, four simulated Macs
    #[arg(value_name = "HOST:")]
    pub(crate) host: Option<Host>,
    /// Where the report goes; an existing file is replaced; `-` is standard output, and what else is printed goes to standard error then
    #[arg(long, default_value = DEFAULT_REPORT, value_name = "FILE")]
    pub(crate) out: PathBuf,
    /// Seed of all random choices of the simulator
    #[arg(long, default_value_t = 0, value_parser = super::number::seed, allow_negative_numbers = true, conflicts_with = "host")]
    pub(crate) seed: u64,
    #[command(flatten)]
    pub(crate) machines: Machines,
}

const DEFAULT_REPORT: &str = "tb5-demo.html";

impl Default for Demo {
    fn default() -> Self {
        Self { host: None, out: DEFAULT_REPORT.into(), seed: 0, machines: Machines::default() }
    }
}
