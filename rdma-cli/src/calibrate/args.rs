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
    /// The machine at the other end of the cable, where tb5 calibrate --listen runs; without it, two simulated Macs are calibrated
    #[arg(value_name = "HOST[:PORT]", conflicts_with_all = ["listen", "profile", "seed"])]
    pub(super) peer: Option<String>,
    /// Answer one calibration, on this address
    #[arg(long, value_name = "ADDRESS[:PORT]", num_args = 0..=1, default_missing_value = "0.0.0.0",
        conflicts_with_all = ["out", "profile", "seed", "idle_death", "error_state"])]
    pub(super) listen: Option<String>,
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

/// A host or an address, with its port; the colon of `HOST:`, as other commands write it, may end the host
pub(super) fn host_and_port(text: &str) -> (String, u16) {
    // An IPv6 address without brackets has colons, and no port.
    let is_address = |text: &str| text.parse::<IpAddr>().is_ok();
    let text = if is_address(text) { text } else { text.strip_suffix(':').unwrap_or(text) };
    if is_address(text) {
        return (text.to_owned(), PORT);
    }
    let (host, port) = match text.rsplit_once(':') {
        Some((host, port)) => (host, port.parse().ok()),
        None => (text, Some(PORT)),
    };
    let host = host.trim_start_matches('[').trim_end_matches(']');
    match port {
        Some(port) => (host.to_owned(), port),
        None => (text.to_owned(), PORT),
    }
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
            ("fe80::1", "fe80::1", 7466),
        ] {
            assert_eq!(host_and_port(text), (host.to_owned(), port), "{text}");
        }
    }
}
