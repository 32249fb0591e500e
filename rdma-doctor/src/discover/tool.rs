//! The tools of macOS that are run, and what is kept of a run

use std::fmt;
use std::time::Duration;

use crate::report::Outcome;

/// A tool of macOS whose output is read
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
#[non_exhaustive]
pub enum Tool {
    /// `ibv_devices`: opens no device, so it answers when `ibv_devinfo` hangs
    IbvDevices,
    /// `ibv_devinfo -v`: opens every device, and hangs when the driver is wedged (F53)
    IbvDevinfo,
    /// `ifconfig -a`
    Ifconfig,
    /// `ioclasscount` of the driver's classes
    Ioclasscount,
    /// `networksetup -listallhardwareports`
    Networksetup,
    /// `pmset -g`
    Pmset,
    /// `rdma_ctl status`
    RdmaCtl,
    /// `sw_vers`
    SwVers,
    /// `sysctl -n hw.model`
    Sysctl,
    /// `system_profiler SPThunderboltDataType -json`
    SystemProfiler,
    /// `system_profiler SPThunderboltDataType`: only the text form lists the services of peers
    SystemProfilerText,
}

impl Tool {
    /// All tools, in the order in which they are run
    pub const ALL: [Self; 11] = [
        Self::SwVers,
        Self::Sysctl,
        Self::RdmaCtl,
        Self::SystemProfiler,
        Self::SystemProfilerText,
        Self::Networksetup,
        Self::Ifconfig,
        Self::IbvDevices,
        Self::IbvDevinfo,
        Self::Ioclasscount,
        Self::Pmset,
    ];

    /// The program and its arguments
    pub const fn command(self) -> &'static [&'static str] {
        match self {
            Self::IbvDevices => &["ibv_devices"],
            Self::IbvDevinfo => &["ibv_devinfo", "-v"],
            Self::Ifconfig => &["ifconfig", "-a"],
            Self::Ioclasscount => {
                &["ioclasscount", "AppleThunderboltRDMAProtectionDomain", "AppleThunderboltRDMAQueuePair"]
            }
            Self::Networksetup => &["networksetup", "-listallhardwareports"],
            Self::Pmset => &["pmset", "-g"],
            Self::RdmaCtl => &["rdma_ctl", "status"],
            Self::SwVers => &["sw_vers"],
            Self::Sysctl => &["sysctl", "-n", "hw.model"],
            Self::SystemProfiler => &["system_profiler", "SPThunderboltDataType", "-json"],
            Self::SystemProfilerText => &["system_profiler", "SPThunderboltDataType"],
        }
    }

    /// The time after which a run is given up as hung
    pub const fn timeout(self) -> Duration {
        match self {
            Self::SystemProfiler | Self::SystemProfilerText => Duration::from_secs(15),
            _ => Duration::from_secs(5),
        }
    }
}

impl fmt::Display for Tool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.command().join(" "))
    }
}

/// The outputs of a tool, and how it ended
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Captured {
    /// How it ended
    pub outcome: Outcome,
    /// Standard output
    pub stdout: String,
    /// Standard error, or why the tool could not be started
    pub stderr: String,
}
