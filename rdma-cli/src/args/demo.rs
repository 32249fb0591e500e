//! Arguments of `tb5 demo`

use std::path::PathBuf;

#[derive(Debug, clap::Args)]
pub(crate) struct Demo {
    /// Where the report goes; an existing file is replaced
    #[arg(long, default_value = DEFAULT_REPORT, value_name = "FILE")]
    pub(crate) out: PathBuf,
    /// Seed of all random choices of the simulator
    #[arg(long, default_value_t = 0)]
    pub(crate) seed: u64,
}

const DEFAULT_REPORT: &str = "tb5-demo.html";

impl Default for Demo {
    fn default() -> Self {
        Self { out: DEFAULT_REPORT.into(), seed: 0 }
    }
}
