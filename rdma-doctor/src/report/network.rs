//! IP on the ports: neighbours, routes, network settings, the firewall

use std::net::{IpAddr, Ipv4Addr};

use serde::{Deserialize, Serialize};

/// An entry of the neighbour cache: ARP for IPv4, neighbour discovery for IPv6
///
/// The transition to ready-to-receive looks the GID of the peer up here.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Neighbour {
    /// Address of the neighbour
    pub address: IpAddr,
    /// Its hardware address, such as `02:00:00:00:00:84`; `None` if the system asked and got no answer
    #[serde(default)]
    pub ether: Option<String>,
    /// The interface, such as `en3`
    pub interface: String,
}

impl Neighbour {
    pub(crate) fn new(address: IpAddr, ether: Option<String>, interface: String) -> Self {
        Self { address, ether, interface }
    }
}

/// The way to an address, by `route -n get`
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Route {
    /// The address
    pub destination: Ipv4Addr,
    /// The interface, such as `en3`; `None` if there is no route
    #[serde(default)]
    pub interface: Option<String>,
}

impl Route {
    pub(crate) fn new(destination: Ipv4Addr, interface: Option<String>) -> Self {
        Self { destination, interface }
    }
}

/// Network settings that survive a restart
///
/// Source: `preferences.plist` of SystemConfiguration, the current location only.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[non_exhaustive]
#[serde(default)]
pub struct NetworkSettings {
    /// Name of the location, such as `Automatic`
    pub location: Option<String>,
    /// Services of the location that are switched on
    pub services: Vec<NetworkService>,
    /// Virtual bridges, which take their members at every start
    pub bridges: Vec<VirtualBridge>,
}

impl NetworkSettings {
    /// The service of an interface
    pub fn service(&self, interface: &str) -> Option<&NetworkService> {
        self.services.iter().find(|service| service.interface == interface)
    }
}

/// A network service
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[non_exhaustive]
#[serde(default)]
pub struct NetworkService {
    /// Its interface, such as `en3`
    pub interface: String,
    /// How it gets its IPv4 address: `Manual`, `DHCP`, `LinkLocal`
    pub ipv4_method: Option<String>,
    /// Fixed IPv4 addresses
    pub ipv4: Vec<Ipv4Addr>,
}

/// A bridge of the network settings
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[non_exhaustive]
#[serde(default)]
pub struct VirtualBridge {
    /// Name, such as `bridge0`
    pub name: String,
    /// Its members, such as `en3`
    pub members: Vec<String>,
}

/// A job of launchd, by `launchctl print`
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[non_exhaustive]
#[serde(default)]
pub struct LaunchDaemon {
    /// Whether launchd knows it
    pub is_loaded: bool,
    /// Seconds between its runs
    pub interval_seconds: Option<u64>,
    /// Runs since the host started
    pub runs: Option<u64>,
}

/// State of the application firewall
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[non_exhaustive]
#[serde(rename_all = "snake_case")]
pub enum Firewall {
    /// Off
    Off,
    /// On: each program that listens needs a permission
    On,
    /// On, and no program may listen
    BlocksAll,
    /// A state that is not understood
    #[serde(other)]
    Unknown,
}
