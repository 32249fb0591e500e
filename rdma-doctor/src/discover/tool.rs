//! The tools of macOS that are run, and what is kept of a run

use std::fmt;
use std::time::Duration;

use crate::report::Outcome;

/// The messages of the last hour that `log show` prints
const KERNEL_MESSAGES: &str = "process == 'kernel' AND (sender CONTAINS 'RDMA' OR sender CONTAINS 'Thunderbolt' \
                               OR eventMessage CONTAINS 'inet_arp_lookup' OR eventMessage CONTAINS 'InvalidSTE')";

/// The time after which a run of a tool is given up as hung
pub(super) const TIMEOUT: Duration = Duration::from_secs(5);

/// A tool of macOS whose output is read
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
#[non_exhaustive]
pub enum Tool {
    /// `arp -an`
    Arp,
    /// `socketfilterfw --getglobalstate`
    Firewall,
    /// `ibv_devices`: opens no device, so it answers when `ibv_devinfo` hangs
    IbvDevices,
    /// `ibv_devinfo -v`: opens every device, and hangs when the driver is wedged (F53)
    IbvDevinfo,
    /// `ifconfig -a`
    Ifconfig,
    /// `ioclasscount` of the driver's classes
    Ioclasscount,
    /// `ioreg` of the Thunderbolt ports and what is below them
    IoregPorts,
    /// `log show` of the last hour, what the kernel said about RDMA and Thunderbolt; needs an administrator
    KernelLog,
    /// `launchctl print` of the daemon of EXO
    Launchctl,
    /// `sysctl -n hw.memsize`
    Memory,
    /// `ndp -an`
    Ndp,
    /// `plutil` of the network settings
    NetworkSettings,
    /// `networksetup -listallhardwareports`
    Networksetup,
    /// `pmset -g`
    Pmset,
    /// `ps` of all processes
    Ps,
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
    /// `uptime`
    Uptime,
    /// `vm_stat`
    VmStat,
}

impl Tool {
    /// All tools, in the order in which they are run
    pub const ALL: [Self; 22] = [
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
        Self::Arp,
        Self::Ndp,
        Self::NetworkSettings,
        Self::Launchctl,
        Self::Firewall,
        Self::Ps,
        Self::IoregPorts,
        Self::Uptime,
        Self::Memory,
        Self::VmStat,
        Self::KernelLog,
    ];

    /// The program and its arguments
    pub const fn command(self) -> &'static [&'static str] {
        match self {
            Self::Arp => &["arp", "-an"],
            Self::Firewall => &["/usr/libexec/ApplicationFirewall/socketfilterfw", "--getglobalstate"],
            Self::IbvDevices => &["ibv_devices"],
            Self::IbvDevinfo => &["ibv_devinfo", "-v"],
            Self::Ifconfig => &["ifconfig", "-a"],
            Self::Ioclasscount => {
                &["ioclasscount", "AppleThunderboltRDMAProtectionDomain", "AppleThunderboltRDMAQueuePair"]
            }
            Self::IoregPorts => &["ioreg", "-r", "-l", "-w0", "-c", "AppleThunderboltIPPort"],
            Self::KernelLog => {
                &["log", "show", "--last", "1h", "--style", "compact", "--predicate", KERNEL_MESSAGES]
            }
            Self::Launchctl => &["launchctl", "print", "system/io.exo.networksetup"],
            Self::Memory => &["sysctl", "-n", "hw.memsize"],
            Self::Ndp => &["ndp", "-an"],
            Self::NetworkSettings => &[
                "plutil",
                "-convert",
                "json",
                "-o",
                "-",
                "/Library/Preferences/SystemConfiguration/preferences.plist",
            ],
            Self::Networksetup => &["networksetup", "-listallhardwareports"],
            Self::Pmset => &["pmset", "-g"],
            Self::Ps => &["ps", "-axo", "pid,stat,etime,comm"],
            Self::RdmaCtl => &["rdma_ctl", "status"],
            Self::SwVers => &["sw_vers"],
            Self::Sysctl => &["sysctl", "-n", "hw.model"],
            Self::SystemProfiler => &["system_profiler", "SPThunderboltDataType", "-json"],
            Self::SystemProfilerText => &["system_profiler", "SPThunderboltDataType"],
            Self::Uptime => &["uptime"],
            Self::VmStat => &["vm_stat"],
        }
    }

    /// The time after which a run is given up as hung
    pub const fn timeout(self) -> Duration {
        match self {
            Self::KernelLog | Self::SystemProfiler | Self::SystemProfilerText => Duration::from_secs(15),
            _ => TIMEOUT,
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

impl Captured {
    /// Whether an output contains these words, which are lower case
    pub(super) fn says(&self, words: &str) -> bool {
        [&self.stdout, &self.stderr].iter().any(|text| text.to_ascii_lowercase().contains(words))
    }
}
