//! Arguments of commands between two machines

use std::net::IpAddr;
use std::path::PathBuf;

use crate::failure::Failure;

#[derive(Debug, clap::Args)]
pub(crate) struct Serve {
    /// Take copies into this directory; without it, copies are refused
    #[arg(long, value_name = "DIR")]
    pub(crate) into: Option<PathBuf>,
    /// The address to listen on [default: all of this machine]
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) bind: Option<IpAddr>,
    #[command(flatten)]
    pub(crate) machines: Machines,
}

/// Options of what goes on between two machines
#[derive(Debug, Default, clap::Args)]
pub(crate) struct Machines {
    /// The TCP port on which both machines meet [default: 7465]
    #[arg(long, value_parser = super::number::within(0..=u16::MAX), allow_negative_numbers = true)]
    pub(crate) port: Option<u16>,
    /// Carrier of the bytes between two machines [default: auto]
    #[arg(long)]
    pub(crate) carrier: Option<Carrier>,
    /// A file with the same secret on both machines: 64 hexadecimal digits
    #[arg(long, value_name = "FILE")]
    pub(crate) key: Option<PathBuf>,
}

impl Machines {
    /// Fails if an option was given although there is no other machine
    pub(crate) fn require_host(&self) -> Result<(), Failure> {
        let given = [
            ("--port", self.port.is_some()),
            ("--carrier", self.carrier.is_some()),
            ("--key", self.key.is_some()),
        ];
        let in_vain = given.iter().find(|(_, is_given)| *is_given);
        in_vain.map_or(Ok(()), |(option, _)| {
            Err(Failure::usage(format!("{option} is for two machines: write HOST:, or leave it out")))
        })
    }

    /// The port without `--port`
    pub(crate) const PORT: u16 = 7465;

    pub(crate) fn port(&self) -> u16 {
        self.port.unwrap_or(Self::PORT)
    }
}

/// Carrier of bytes between two machines
#[derive(Clone, Copy, Debug, Eq, PartialEq, clap::ValueEnum)]
pub(crate) enum Carrier {
    /// RDMA over all cables between the machines, and TCP while there is none
    Auto,
    /// RDMA only
    Rdma,
    /// TCP only
    Tcp,
}
