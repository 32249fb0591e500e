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
    /// What may carry the bytes between two machines [default: auto]
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

    pub(crate) fn port(&self) -> u16 {
        self.port.unwrap_or(7465)
    }
}

/// What may carry bytes between two machines
#[derive(Clone, Copy, Debug, Eq, PartialEq, clap::ValueEnum)]
pub(crate) enum Carrier {
    /// RDMA over all cables between the machines, and TCP while there is none
    Auto,
    /// RDMA only
    Rdma,
    /// TCP only
    Tcp,
}

/// Reads the name of a machine, with the colon of `HOST:` or without
pub(super) fn host(text: &str) -> Result<String, String> {
    let host = text.strip_suffix(':').unwrap_or(text);
    let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    if let Some((name, port)) = host.split_once(':')
        && port.parse::<u16>().is_ok()
    {
        return Err(format!("write {name}: and --port {port}"));
    }
    let is_host = !host.is_empty() && !host.contains(['/', '[', ']']);
    is_host
        .then(|| host.to_owned())
        .ok_or_else(|| "write the name or the address of a machine, such as mini:".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_is_named_with_a_colon_or_without() {
        for (text, name) in [
            ("mini", "mini"),
            ("mini:", "mini"),
            ("10.0.0.2:", "10.0.0.2"),
            ("[::1]:", "::1"),
            ("fe80::1%en5", "fe80::1%en5"),
        ] {
            assert_eq!(host(text).as_deref(), Ok(name), "{text}");
        }
        assert_eq!(host("mini:7465").unwrap_err(), "write mini: and --port 7465");
        for text in ["", ":", "[]:", "a/b", "[a]b:"] {
            assert!(host(text).is_err(), "{text}");
        }
    }
}
