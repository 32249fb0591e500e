//! Arguments of `tb5 calibrate`

use std::net::IpAddr;
use std::path::PathBuf;

/// What the help says at its end
pub(crate) const HELP: &str = "On two Macs: tb5 calibrate --listen on one, tb5 calibrate HOST on the other, while no program uses the ports. It takes some \
     minutes, changes no setting and leaves nothing behind. Every machine that reaches the port of --listen may have queue pairs made \
     there, until one calibration is over.\n\n\
     Without HOST and --listen, two simulated Macs are calibrated, in virtual time.\n\n\
     Examples: tb5 calibrate; tb5 calibrate --profile tb5-strict --out strict.toml; tb5 calibrate --listen, and on the other Mac \
     tb5 calibrate mini:.\n\n\
     Exit codes: 0 done, 1 failed, 2 usage.";

#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// The machine at the other end of the cable, where tb5 calibrate --listen runs, by default on port 7466; without it, two simulated Macs are calibrated
    #[arg(value_name = "HOST[:PORT]", value_parser = peer, conflicts_with_all = ["listen", "profile", "seed"])]
    pub(super) peer: Option<Meeting>,
    /// Answer one calibration, on this address, by default 0.0.0.0:7466
    #[arg(long, value_name = "ADDRESS[:PORT]", num_args = 0..=1, default_missing_value = "0.0.0.0", value_parser = address,
        conflicts_with_all = ["out", "profile", "seed", "idle_death", "error_state"])]
    pub(super) listen: Option<Meeting>,
    /// The device with the cable; by default the only one whose port is active
    #[arg(long, value_name = "DEVICE", conflicts_with_all = ["profile", "seed"])]
    pub(super) device: Option<String>,
    /// The profile file to write; the page for people goes beside it, with the extension .md; existing files are replaced; `-` is standard output, without a page
    #[arg(long, value_name = "FILE", default_value = "calibration.toml")]
    pub(super) out: PathBuf,
    /// Also wait until queue pairs die of idleness, which takes up to two hours
    #[arg(long)]
    pub(super) idle_death: bool,
    /// Also set a queue pair to the error state, after which a region may stay counted until the process ends, or longer
    #[arg(long)]
    pub(super) error_state: bool,
    /// The profile of the simulated Macs, or its file: what the calibration should find
    #[arg(long, value_name = "PROFILE|FILE")]
    pub(super) profile: Option<String>,
    /// Seed of all random choices of the simulator [default: 0]
    #[arg(long, value_parser = crate::args::number::seed, allow_negative_numbers = true)]
    pub(super) seed: Option<u64>,
}

/// The TCP port on which both machines meet
const PORT: u16 = 7466;

/// A machine, and the TCP port on which both meet
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Meeting {
    pub(super) host: String,
    pub(super) port: u16,
}

/// Reads a host with or without its port; the colon of `HOST:`, as other commands write it, may end the host
fn host_and_port(text: &str) -> Result<Meeting, String> {
    let meeting = |host: &str, port| Meeting { host: host.to_owned(), port };
    // An IPv6 address without brackets has colons, and no port.
    let is_address = |text: &str| text.parse::<IpAddr>().is_ok();
    let bare = if is_address(text) { text } else { text.strip_suffix(':').unwrap_or(text) };
    if is_address(bare) {
        return Ok(meeting(bare, PORT));
    }
    let bracketed = bare.strip_prefix('[').and_then(|rest| rest.split_once(']'));
    let (host, port) = match bracketed {
        Some((host, "")) => (host, None),
        Some((host, rest)) => (host, Some(rest.strip_prefix(':').unwrap_or_default())),
        None => bare.split_once(':').map_or((bare, None), |(host, port)| (host, Some(port))),
    };
    if host.is_empty() || host.contains(['/', '[', ']']) || (bracketed.is_some() && !is_address(host)) {
        return Err("write the name or the address of a machine, such as mini or mini:7466".to_owned());
    }
    match port.map(str::parse) {
        None => Ok(meeting(host, PORT)),
        Some(Ok(port)) => Ok(meeting(host, port)),
        Some(Err(_)) => Err(format!("the port is a whole number up to 65535, such as {host}:{PORT}")),
    }
}

/// Reads the machine to ask
fn peer(text: &str) -> Result<Meeting, String> {
    match host_and_port(text)? {
        Meeting { port: 0, host } => {
            Err(format!("write the port of `tb5 calibrate --listen`, such as {host}:{PORT}"))
        }
        peer => Ok(peer),
    }
}

/// Reads the address to listen on
fn address(text: &str) -> Result<Meeting, String> {
    let address = host_and_port(text)?;
    let is_address = address.host.parse::<IpAddr>().is_ok();
    is_address
        .then_some(address)
        .ok_or_else(|| "write an address of this machine, such as 10.0.0.1 or [::]:7466".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_may_follow_a_host() {
        for (text, host, port) in [
            ("mini", "mini", 7466),
            ("mini:", "mini", 7466),
            ("mini:70", "mini", 70),
            ("10.0.0.2:8000", "10.0.0.2", 8000),
            ("::1", "::1", 7466),
            ("::1:", "::1", 7466),
            ("::", "::", 7466),
            ("[::1]:9", "::1", 9),
            ("[::1]", "::1", 7466),
            ("[::1]:", "::1", 7466),
            ("fe80::1", "fe80::1", 7466),
        ] {
            assert_eq!(peer(text), Ok(Meeting { host: host.to_owned(), port }), "{text}");
        }
    }

    #[test]
    fn a_wrong_host_or_port_is_refused() {
        for (text, why) in [
            ("mini:99999", "the port is a whole number up to 65535, such as mini:7466"),
            ("mini:x", "the port is a whole number up to 65535"),
            ("[::1]x", "the port is a whole number up to 65535"),
            ("mini:0", "write the port of `tb5 calibrate --listen`, such as mini:7466"),
            ("", "write the name or the address of a machine"),
            (":7466", "write the name or the address of a machine"),
            ("[mini]:7466", "write the name or the address of a machine"),
            ("a/b", "write the name or the address of a machine"),
        ] {
            let refused = peer(text).unwrap_err();
            assert!(refused.starts_with(why), "{text}: {refused}");
        }
        assert_eq!(address("[::]:0"), Ok(Meeting { host: "::".to_owned(), port: 0 }));
        assert!(address("mini").unwrap_err().starts_with("write an address of this machine"));
    }
}
