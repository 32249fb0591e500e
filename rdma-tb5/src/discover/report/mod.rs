use std::net::{Ipv4Addr, Ipv6Addr};

use serde::{Deserialize, Serialize};

mod lookup;
mod thunderbolt;
mod verbs;

pub use thunderbolt::{Bus, HardwarePort, IpLink, LinkSpeed, LiveLinks, Peer};
pub use verbs::{Gid, KernelObjects, Port, VerbsDevice};

/// A host as it was found
///
/// `None` means that nobody looked or that looking failed; an empty list means that there was nothing. Reads and writes as
/// JSON with one stable key per field: keys may be missing, and unknown ones are ignored. It holds neither the name of the
/// host nor its users.
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
    /// What `rdma_ctl status` says
    pub rdma_ctl: RdmaCtl,
    /// How far loading the verbs provider came
    pub provider: Provider,
    /// Thunderbolt buses with a receptacle
    pub thunderbolt: Option<Vec<Bus>>,
    /// Which interface belongs to which receptacle
    pub hardware_ports: Option<Vec<HardwarePort>>,
    /// Network interfaces, bridges among them
    pub interfaces: Option<Vec<Interface>>,
    /// Verbs devices
    pub devices: Option<Vec<VerbsDevice>>,
    /// Objects that live in the kernel
    pub kernel_objects: KernelObjects,
    /// What the I/O Registry says of links
    pub live_links: Option<LiveLinks>,
    /// Minutes until the host sleeps by itself; 0 is never
    pub idle_sleep_minutes: Option<u32>,
    /// How the tools fared
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
    /// Something else, or not said
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

/// State of RDMA as `rdma_ctl status` tells it
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
    /// Not asked, or the answer was not understood
    #[default]
    #[serde(other)]
    Unknown,
}

/// How far loading the verbs provider came
///
/// An absent library, a failing list and an empty list have different remedies (F6, F80). Whoever loads the library fills
/// this in; the tools do not tell.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[non_exhaustive]
#[serde(rename_all = "snake_case")]
pub enum Provider {
    /// There is no library to load
    Absent,
    /// `ibv_get_device_list` returned a list, empty or not
    Listed,
    /// The library was loaded, `ibv_get_device_list` returned NULL
    ListFailed,
    /// There is a library, and it is no verbs provider or one of another ABI
    Unusable,
    /// Not tried, or it did not answer
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
    /// Whether a link is there
    pub fn is_active(&self) -> bool {
        self.status.as_deref() == Some("active")
    }

    /// Whether it is switched on
    pub fn is_up(&self) -> bool {
        self.flags.iter().any(|flag| flag == "UP")
    }

    /// Whether it is a bridge
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
}

/// How a tool fared
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[non_exhaustive]
#[serde(default)]
pub struct ToolRun {
    /// The tool with its arguments
    pub tool: String,
    /// What came of it
    pub outcome: Outcome,
    /// What it said about that, if anything
    pub detail: String,
}

/// What came of running a tool
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
    fn words_from_the_future_are_not_errors() {
        let report: HostReport = serde_json::from_str(
            r#"{"platform": "plan9", "rdma_ctl": "paused", "provider": "?", "new": [1],
                "tools": [{"outcome": "exploded", "why": {}}]}"#,
        )
        .unwrap();
        assert_eq!(report.platform, Platform::Other);
        assert_eq!(report.rdma_ctl, RdmaCtl::Unknown);
        assert_eq!(report.provider, Provider::Unknown);
        assert_eq!(report.tools[0].outcome, Outcome::Unknown);
    }
}
