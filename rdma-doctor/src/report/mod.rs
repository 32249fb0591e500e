//! A report: what was found on one host, as plain data
//!
//! The types of one JSON file, from [`HostReport`] down.

use std::net::{Ipv4Addr, Ipv6Addr};

use serde::{Deserialize, Serialize};

mod device;
mod json;
mod lookup;
mod network;
mod peer_probe;
mod thunderbolt;
mod wear;

pub use device::{DeviceSummary, GidEntry, KernelObjects, Port};
pub use network::{Firewall, LaunchDaemon, Neighbour, NetworkService, NetworkSettings, Route, VirtualBridge};
pub use peer_probe::{PeerProbe, ProbeStep, QueuePairProbe, Reach};
pub use thunderbolt::{Bus, HardwarePort, IpLink, LinkSpeed, LiveLinks, Peer};
pub use wear::{Incident, KernelLog, PortOwners, Process, Uptime};

/// What was found on one host
///
/// `None` means not known: not looked at, or looking failed. An empty list means that there was nothing. Serializes as JSON with one
/// stable key per field; on reading, keys may be missing and unknown ones are ignored. It contains neither the name of the host
/// nor those of its users.
///
/// ```
/// use rdma_doctor::HostReport;
///
/// let report = HostReport::from_json(br#"{"platform": "linux", "devices": []}"#)?;
/// assert_eq!(report.devices, Some(Vec::new()));
/// assert_eq!(report.interfaces, None);
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[non_exhaustive]
#[serde(default)]
pub struct HostReport {
    /// Operating system
    pub platform: Platform,
    /// Version of macOS, such as `26.5.1`
    pub macos_version: Option<String>,
    /// Build of macOS, such as `25F80`
    pub macos_build: Option<String>,
    /// `hw.model`, such as `Mac16,11`
    pub hardware_model: Option<String>,
    /// State of RDMA by `rdma_ctl status`
    pub rdma_ctl: RdmaCtl,
    /// How far a probe of the verbs provider came
    pub provider: ProviderStatus,
    /// Thunderbolt buses with a receptacle
    pub thunderbolt: Option<Vec<Bus>>,
    /// The interface of each receptacle
    pub hardware_ports: Option<Vec<HardwarePort>>,
    /// Network interfaces, bridges among them
    pub interfaces: Option<Vec<Interface>>,
    /// Verbs devices
    pub devices: Option<Vec<DeviceSummary>>,
    /// Objects of the RDMA driver in the kernel
    pub kernel_objects: KernelObjects,
    /// Links by the I/O Registry
    pub live_links: Option<LiveLinks>,
    /// Minutes without input until the host sleeps; 0 is never
    pub idle_sleep_minutes: Option<u32>,
    /// The ARP table
    pub ipv4_neighbours: Option<Vec<Neighbour>>,
    /// The table of neighbour discovery
    pub ipv6_neighbours: Option<Vec<Neighbour>>,
    /// The way to each address that the other end of a cable can have
    pub routes: Option<Vec<Route>>,
    /// Network settings that survive a restart
    pub network_settings: Option<NetworkSettings>,
    /// The daemon with which EXO sets up the network
    pub exo_daemon: Option<LaunchDaemon>,
    /// The application firewall
    pub firewall: Option<Firewall>,
    /// Processes that wait in the kernel and cannot be interrupted
    pub waiting_processes: Option<Vec<Process>>,
    /// The processes that have the driver open, by port
    pub port_owners: Option<Vec<PortOwners>>,
    /// Panics and crashes that name RDMA or Thunderbolt
    pub incidents: Option<Vec<Incident>>,
    /// How many reports of panics and crashes were read
    pub incident_reports: Option<u32>,
    /// Uptime and memory
    pub uptime: Uptime,
    /// Messages of the kernel in the last hour
    pub kernel_log: Option<KernelLog>,
    /// Probes of peers; none unless the caller asked for them
    pub peer_probes: Vec<PeerProbe>,
    /// How each tool ended
    pub tools: Vec<ToolRun>,
}

/// Operating system of a host
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[non_exhaustive]
#[serde(rename_all = "snake_case")]
pub enum Platform {
    /// Linux
    Linux,
    /// macOS
    Macos,
    /// Another system, or not known
    #[default]
    #[serde(other)]
    Other,
}

impl Platform {
    /// The platform that this program was built for
    pub const fn current() -> Self {
        if cfg!(target_os = "macos") {
            Self::Macos
        } else if cfg!(target_os = "linux") {
            Self::Linux
        } else {
            Self::Other
        }
    }
}

/// State of RDMA by `rdma_ctl status`
///
/// Source: exo runs it with a timeout of 5 s and expects `enabled` or `disabled`; the tool came with macOS 26.2.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[non_exhaustive]
#[serde(rename_all = "snake_case")]
pub enum RdmaCtl {
    /// There is no such tool
    Absent,
    /// Off: the default
    Disabled,
    /// On since the last boot, or from the next one
    Enabled,
    /// The tool did not answer in time
    Hung,
    /// The tool was not run, or its output was not understood
    #[default]
    #[serde(other)]
    Unknown,
}

/// How far a probe of the verbs provider came
///
/// An absent library, a failing list and an empty list have different remedies (F6, F80). Only
/// [`provider_probe`](crate::discover) finds this out; the tools of the system do not show it.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[non_exhaustive]
#[serde(rename_all = "snake_case")]
pub enum ProviderStatus {
    /// There is no library to load
    Absent,
    /// `ibv_get_device_list` returned a list, empty or not
    Listed,
    /// The library was loaded, `ibv_get_device_list` returned NULL
    ListFailed,
    /// The library is no verbs provider, or one of another ABI
    Unusable,
    /// Not probed, or the probe did not answer
    #[default]
    #[serde(other)]
    Unknown,
}

/// A network interface, as `ifconfig` shows it
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[non_exhaustive]
#[serde(default)]
pub struct Interface {
    /// Name, such as `en3` or `bridge0`
    pub name: String,
    /// Flags, such as `UP`
    pub flags: Vec<String>,
    /// Hardware address, such as `02:00:00:00:00:84`
    pub ether: Option<String>,
    /// IPv4 addresses
    pub ipv4: Vec<Address>,
    /// IPv6 addresses
    pub ipv6: Vec<Ipv6Addr>,
    /// `active` or `inactive`
    pub status: Option<String>,
    /// Names of the members, if this is a bridge
    pub members: Vec<String>,
}

impl Interface {
    /// Whether the interface has a link
    pub fn is_active(&self) -> bool {
        self.status.as_deref() == Some("active")
    }

    /// Whether the interface is switched on
    pub fn is_up(&self) -> bool {
        self.flags.iter().any(|flag| flag == "UP")
    }

    /// Whether the interface is a bridge
    pub fn is_bridge(&self) -> bool {
        !self.members.is_empty() || self.name.starts_with("bridge")
    }
}

/// An IPv4 address and its network
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Address {
    /// The address
    pub address: Ipv4Addr,
    /// Bits of the network; 32 if unknown
    #[serde(default = "host_only")]
    pub prefix_len: u8,
}

fn host_only() -> u8 {
    32
}

impl Address {
    /// Whether some addresses belong to both networks
    pub fn overlaps(&self, other: &Self) -> bool {
        let shared = self.prefix_len.min(other.prefix_len).min(32);
        let differs = self.address.to_bits() ^ other.address.to_bits();
        shared == 0 || differs >> (32 - u32::from(shared)) == 0
    }

    /// Whether `address` is the one of all hosts of the network
    pub(crate) fn is_broadcast(&self, address: Ipv4Addr) -> bool {
        let hosts = u32::MAX.checked_shr(self.prefix_len.into()).unwrap_or(0);
        address.to_bits() == self.address.to_bits() | hosts
    }

    /// The other host of a network that has two
    pub(crate) fn only_other(&self) -> Option<Ipv4Addr> {
        let bits = self.address.to_bits();
        match (self.prefix_len, bits & 3) {
            (31, _) => Some((bits ^ 1).into()),
            (30, 1 | 2) => Some((bits ^ 3).into()),
            _ => None,
        }
    }
}

/// How the run of a tool ended
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[non_exhaustive]
#[serde(default)]
pub struct ToolRun {
    /// The tool with its arguments
    pub tool: String,
    /// The outcome
    pub outcome: Outcome,
    /// The first line of its standard error, or why its output could not be read
    pub detail: String,
}

/// The outcome of running a tool
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[non_exhaustive]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// There is no such tool
    Absent,
    /// It ended well
    Done,
    /// It ended with an error, or could not be started
    Failed,
    /// It did not end in time
    Hung,
    /// Not run
    #[default]
    #[serde(other)]
    Unknown,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn net(address: [u8; 4], prefix_len: u8) -> Address {
        Address { address: address.into(), prefix_len }
    }

    #[test]
    fn networks_overlap_where_the_shorter_prefix_agrees() {
        let cases = [
            (net([192, 168, 0, 1], 30), net([192, 168, 0, 2], 30), true),
            (net([192, 168, 0, 1], 30), net([192, 168, 0, 5], 30), false),
            (net([10, 0, 0, 1], 8), net([10, 9, 9, 9], 30), true),
            (net([10, 0, 0, 1], 32), net([10, 0, 0, 1], 32), true),
            (net([1, 2, 3, 4], 0), net([9, 9, 9, 9], 0), true),
            (net([1, 2, 3, 4], 200), net([1, 2, 3, 5], 255), false),
        ];
        for (a, b, expected) in cases {
            assert_eq!(a.overlaps(&b), expected, "{a:?} {b:?}");
            assert_eq!(b.overlaps(&a), expected, "{b:?} {a:?}");
        }
    }

    #[test]
    fn unknown_values_of_newer_versions_are_read_as_unknown() {
        let report: HostReport = serde_json::from_str(
            r#"{"platform": "plan9", "rdma_ctl": "paused", "provider": "?", "new": [1],
                "tools": [{"outcome": "exploded", "why": {}}]}"#,
        )
        .unwrap();
        assert_eq!(report.platform, Platform::Other);
        assert_eq!(report.rdma_ctl, RdmaCtl::Unknown);
        assert_eq!(report.provider, ProviderStatus::Unknown);
        assert_eq!(report.tools[0].outcome, Outcome::Unknown);
    }
}
