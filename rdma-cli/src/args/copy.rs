//! Arguments of `tb5 copy`

use std::net::IpAddr;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};

use super::machines::Machines;
use crate::failure::{Failure, is_standard};
use crate::mac::PORTS;
use crate::machines::RemotePath;

#[derive(Debug, clap::Args)]
pub(crate) struct Copy {
    /// The file to copy, with -r the directory, or `-` for standard input
    #[arg(required_unless_present = "listen")]
    src: Option<PathBuf>,
    /// The name of the copy, HOST:NAME on another machine, or `-` for standard output; an existing file is replaced and keeps its
    /// mode, an existing directory keeps what else is in it
    #[arg(required_unless_present = "listen")]
    dst: Option<PathBuf>,
    /// Copy a directory with everything in it
    #[arg(short, long)]
    pub(crate) recursive: bool,
    /// Receive one copy from another machine into this directory
    #[arg(long, value_name = "DIR", conflicts_with_all = ["src", "dst", "recursive", "cables", "fault", "seed"])]
    pub(crate) listen: Option<PathBuf>,
    /// With --listen, the address to listen on [default: all of this machine]
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) bind: Option<IpAddr>,
    #[command(flatten)]
    pub(crate) machines: Machines,
    /// Cables between the two simulated Macs: 1 to 3 [default: 1]
    #[arg(long, value_name = "N", value_parser = super::number::within(1..=PORTS), allow_negative_numbers = true)]
    pub(crate) cables: Option<u8>,
    /// Faults of the simulated cables, such as 'at 2ms a:rdma_en2 unplug; at 8ms a:rdma_en2 replug': a sends, b receives, and the first
    /// cable joins rdma_en2 of both, the next one rdma_en3; in short, unplug@2ms,replug@8ms for the first cable
    #[arg(long, value_name = "PLAN")]
    pub(crate) fault: Vec<String>,
    /// Seed of all random choices of the simulator [default: 0]
    #[arg(long, value_parser = super::number::seed, allow_negative_numbers = true)]
    pub(crate) seed: Option<u64>,
}

impl Copy {
    /// The file or directory to copy
    pub(crate) fn source(&self) -> anyhow::Result<&Path> {
        self.src.as_deref().context("SRC is missing")
    }

    /// The destination, if it is on another machine
    pub(crate) fn remote(&self) -> Option<RemotePath> {
        RemotePath::parse(self.dst.as_deref()?)
    }

    /// The name of the copy
    pub(crate) fn destination(&self) -> anyhow::Result<&Path> {
        self.dst.as_deref().context("DST is missing")
    }

    /// Fails if `-` stands beside an option or a destination that excludes it
    pub(crate) fn require_valid_pipes(&self, src: &Path, dst: &Path) -> Result<(), Failure> {
        let (is_input, is_output) = (is_standard(src), is_standard(dst));
        let is_unnamed = self.remote().is_some_and(|remote| remote.path.as_os_str().is_empty());
        let conflicts = [
            (is_input && self.recursive, "standard input is one file, and no directory: leave -r out"),
            (is_output && self.recursive, "standard output takes one file, and no directory: leave -r out"),
            (is_input && is_unnamed, "standard input has no name: write HOST:NAME"),
            (
                is_input && !is_output && self.remote().is_none() && dst.is_dir(),
                "standard input has no name: write DIR/NAME instead of a directory",
            ),
        ];
        match conflicts.iter().find(|(is_conflict, _)| *is_conflict) {
            Some((_, why)) => Err(Failure::usage(why)),
            None => Ok(()),
        }
    }

    /// Fails if an option was given that has no effect here: between two machines, or between two simulated Macs
    pub(crate) fn require_effect(&self, between_machines: bool) -> anyhow::Result<()> {
        let Machines { port, carrier, key } = &self.machines;
        let simulated = "is for two simulated Macs: leave it out";
        let machines =
            "is for two machines: write HOST:NAME instead of the name of the copy, or leave it out";
        let given = [
            ("--cables", self.cables.is_some() && between_machines, simulated),
            ("--fault", !self.fault.is_empty() && between_machines, simulated),
            ("--seed", self.seed.is_some() && between_machines, simulated),
            ("--port", port.is_some() && !between_machines, machines),
            ("--carrier", carrier.is_some() && !between_machines, machines),
            ("--key", key.is_some() && !between_machines, machines),
            ("--bind", self.bind.is_some(), "is for the side with --listen"),
        ];
        match given.iter().find(|(_, is_in_vain, _)| *is_in_vain) {
            Some((option, _, why)) => bail!(Failure::usage(format!("{option} {why}"))),
            None => Ok(()),
        }
    }
}
