//! Arguments of `tb5 calibrate`

use std::net::IpAddr;
use std::path::PathBuf;

use rdma_calibrate::Options;

use crate::machines::Host;

/// End of the help
pub(crate) const HELP: &str = "On two Macs: tb5 calibrate --listen on one, tb5 calibrate HOST: on the other, while no program uses the ports. It takes some \
     minutes, changes no setting and destroys each object that it makes. Every machine that reaches the port of --listen may have queue pairs made \
     there, until one calibration is over.\n\n\
     Without HOST: and --listen, two simulated Macs are calibrated, in virtual time.\n\n\
     Examples: tb5 calibrate; tb5 calibrate --profile tb5-strict --out strict.toml; tb5 calibrate --listen, and on the other Mac \
     tb5 calibrate mini:.\n\n\
     If it ends early, or experiments stop because the device answers as none of them expects, the files have what was found; they are written after each kind of experiments.\n\n\
     Exit codes: 0 done, 1 failed, experiments have stopped or, with --conformance, the device lacks a behaviour, 2 usage, 130 after Ctrl-C.";

#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// The machine at the other end of the cable, where tb5 calibrate --listen runs; without it, two simulated Macs are calibrated
    #[arg(value_name = "HOST:", conflicts_with_all = ["listen", "profile", "seed"])]
    pub(super) host: Option<Host>,
    /// Answer one calibration
    #[arg(long, conflicts_with_all = ["out", "profile", "seed", "idle_death", "risk_reboot"])]
    pub(super) listen: bool,
    /// With --listen, the address to listen on [default: all of this machine]
    #[arg(long, value_name = "ADDRESS", requires = "listen")]
    pub(super) bind: Option<IpAddr>,
    /// The TCP port on which both machines meet [default: 7466]
    #[arg(long, value_parser = crate::args::number::within(0..=u16::MAX), allow_negative_numbers = true)]
    pub(super) port: Option<u16>,
    /// The device with the cable; by default the only one whose port is active. Where several cables lead to the other machine, write
    /// --device once for each cable, in the same order on both machines: the rules are found at the first one, and then what all carry at once
    #[arg(long, value_name = "DEVICE", conflicts_with_all = ["profile", "seed"])]
    pub(super) device: Vec<String>,
    /// Cables between the two simulated Macs: 1 to 3 [default: 1]
    #[arg(long, value_name = "N", value_parser = crate::args::number::within(1..=crate::mac::PORTS), allow_negative_numbers = true, conflicts_with_all = ["host", "listen"])]
    pub(super) cables: Option<u8>,
    /// The profile file to write; the page for people goes beside it, with the extension .md; existing files are replaced; `-` is standard output, without a page
    #[arg(long, value_name = "FILE", default_value = "calibration.toml")]
    pub(super) out: PathBuf,
    /// Only try the behaviours that programs rely on, which a calibration tries too: on any device with verbs, without a profile and a page. What is
    /// expected follows from the rules in which devices differ, which are found first
    #[arg(long, conflicts_with_all = ["listen", "idle_death", "cables", "out"])]
    pub(super) conformance: bool,
    /// Also wait until queue pairs die of idleness, which takes up to two hours
    #[arg(long)]
    pub(super) idle_death: bool,
    /// Also try what some Macs were reported to need a reboot after: up to three transitions to RTR that fail, protection domains until there
    /// are no more, more regions than the device states, and a queue pair in the error state
    #[arg(long)]
    pub(super) risk_reboot: bool,
    #[arg(long, help = crate::args::names::profile("Profile of the simulated Macs, which the calibration should find") + " [default: tb5]", value_name = "PROFILE|FILE")]
    pub(super) profile: Option<String>,
    /// Seed of all random choices of the simulator [default: 0]
    #[arg(long, value_parser = crate::args::number::seed, allow_negative_numbers = true)]
    pub(super) seed: Option<u64>,
}

impl Arguments {
    /// The port without `--port`
    pub(super) const PORT: u16 = 7466;

    pub(super) fn options(&self) -> Options {
        Options::default().with_idle_death(self.idle_death).with_risk_reboot(self.risk_reboot)
    }

    pub(super) fn port(&self) -> u16 {
        self.port.unwrap_or(Self::PORT)
    }
}
