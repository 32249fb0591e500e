use std::net::{Ipv4Addr, Ipv6Addr};

use serde::{Deserialize, Serialize};

/// A verbs device, with the field names of `ibv_devinfo`
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[non_exhaustive]
#[serde(default)]
pub struct VerbsDevice {
    /// Name, such as `rdma_en3`
    pub name: String,
    /// GUID of the node
    pub node_guid: Option<String>,
    /// Transport, such as `Thunderbolt (100)`
    pub transport: Option<String>,
    /// Queue pairs
    pub max_qp: Option<u64>,
    /// Completion queues
    pub max_cq: Option<u64>,
    /// Protection domains
    pub max_pd: Option<u64>,
    /// Memory regions
    pub max_mr: Option<u64>,
    /// Bytes in a memory region
    pub max_mr_size: Option<u64>,
    /// Scatter-gather elements
    pub max_sge: Option<u64>,
    /// Its ports; one on Thunderbolt
    pub ports: Vec<Port>,
}

impl VerbsDevice {
    /// A device of which only the name is known
    pub fn named(name: impl Into<String>) -> Self {
        Self { name: name.into(), ..Self::default() }
    }

    /// The network interface that the device is named after
    pub fn interface(&self) -> Option<&str> {
        self.name.strip_prefix("rdma_")
    }

    /// The ports that can carry traffic
    pub fn active_ports(&self) -> impl Iterator<Item = &Port> {
        self.ports.iter().filter(|port| port.is_active())
    }

    /// What to call one of its ports
    pub fn label(&self, port: &Port) -> String {
        if self.ports.len() > 1 { format!("{} port {}", self.name, port.number) } else { self.name.clone() }
    }
}

/// A port of a verbs device
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[non_exhaustive]
#[serde(default)]
pub struct Port {
    /// Number, from 1
    pub number: u32,
    /// State, such as `PORT_ACTIVE`
    pub state: Option<String>,
    /// Largest path MTU in bytes
    pub max_mtu: Option<u32>,
    /// Path MTU in use in bytes
    pub active_mtu: Option<u32>,
    /// Bytes in a message
    pub max_msg_sz: Option<u64>,
    /// Lanes, such as `8X (4)`
    pub active_width: Option<String>,
    /// Rate of a lane, such as `10.0 Gbps (4)`
    pub active_speed: Option<String>,
    /// Link layer, such as `Thunderbolt`
    pub link_layer: Option<String>,
    /// Set entries of the GID table; nobody looked if `None`
    pub gids: Option<Vec<Gid>>,
}

impl Port {
    /// Whether it can carry traffic
    pub fn is_active(&self) -> bool {
        self.state.as_deref().is_some_and(|state| state.contains("ACTIVE"))
    }
}

/// An entry of a GID table
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Gid {
    /// Its index
    pub index: u32,
    /// The address that it is
    pub gid: Ipv6Addr,
}

impl Gid {
    /// The IPv4 address that it maps, if it maps one
    pub fn ipv4(&self) -> Option<Ipv4Addr> {
        self.gid.to_ipv4_mapped()
    }

    /// The hardware address that it was made from, if it was: EUI-64, as the first entry of a port
    pub fn ether(&self) -> Option<String> {
        let [.., a, b, c, 0xff, 0xfe, d, e, f] = self.gid.octets() else { return None };
        self.gid
            .is_unicast_link_local()
            .then(|| format!("{:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{f:02x}", a ^ 2))
    }
}

/// Objects of the RDMA driver that live in the kernel, of all processes and devices
///
/// Source: `ioclasscount`, which field notes use as a leak detector.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[non_exhaustive]
#[serde(default)]
pub struct KernelObjects {
    /// Protection domains
    pub protection_domains: Option<u64>,
    /// Queue pairs
    pub queue_pairs: Option<u64>,
    /// Processes that have the driver open, such as `pid 412, python3`
    pub owners: Option<Vec<String>>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gid_tells_the_hardware_address_it_was_made_from() {
        let gid = |text: &str| Gid { index: 0, gid: text.parse().unwrap() };
        assert_eq!(gid("fe80::ff:fe00:84").ether().as_deref(), Some("02:00:00:00:00:84"));
        assert_eq!(gid("fe80::1").ether(), None);
        assert_eq!(gid("2001:db8::ff:fe00:84").ether(), None);
        assert_eq!(gid("::ffff:169.254.12.7").ipv4(), Some(Ipv4Addr::new(169, 254, 12, 7)));
    }
}
