//! Verbs devices, their ports, and the objects of their driver

use std::net::{Ipv4Addr, Ipv6Addr};

use serde::{Deserialize, Serialize};

/// A verbs device, with the field names of `ibv_devinfo`
///
/// What was found out about a device without using it; `rdma_tb5::VerbsDevice` is an open one.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[non_exhaustive]
#[serde(default)]
pub struct DeviceSummary {
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

impl DeviceSummary {
    /// A device with nothing known but its name
    pub fn named(name: impl Into<String>) -> Self {
        Self { name: name.into(), ..Self::default() }
    }

    /// The network interface that the device is named after
    pub fn interface(&self) -> Option<&str> {
        self.name.strip_prefix("rdma_")
    }

    /// The ports that are active
    pub fn active_ports(&self) -> impl Iterator<Item = &Port> {
        self.ports.iter().filter(|port| port.is_active())
    }

    /// The name of one of its ports in findings
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
    /// The entries of the GID table that are set; `None` if the table is not known
    pub gids: Option<Vec<GidEntry>>,
}

impl Port {
    /// Whether the port can carry traffic
    pub fn is_active(&self) -> bool {
        self.state.as_deref().is_some_and(|state| state.contains("ACTIVE"))
    }
}

/// An entry of a GID table
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct GidEntry {
    /// Its index
    pub index: u32,
    /// The GID, as an IPv6 address
    pub gid: Ipv6Addr,
}

impl GidEntry {
    /// The IPv4 address that the GID maps, if it maps one
    pub fn ipv4(&self) -> Option<Ipv4Addr> {
        self.gid.to_ipv4_mapped()
    }

    /// The hardware address in a GID that was made from one by EUI-64, as the first entry of a port is
    ///
    /// ```
    /// use rdma_doctor::report::GidEntry;
    ///
    /// let first = GidEntry { index: 0, gid: "fe80::ff:fe00:84".parse()? };
    /// assert_eq!(first.ether().as_deref(), Some("02:00:00:00:00:84"));
    /// # Ok::<(), std::net::AddrParseError>(())
    /// ```
    pub fn ether(&self) -> Option<String> {
        let [.., a, b, c, 0xff, 0xfe, d, e, f] = self.gid.octets() else { return None };
        self.gid
            .is_unicast_link_local()
            .then(|| format!("{:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{f:02x}", a ^ 2))
    }
}

/// Objects of the RDMA driver in the kernel, of all processes and devices
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
        let gid = |text: &str| GidEntry { index: 0, gid: text.parse().unwrap() };
        assert_eq!(gid("fe80::ff:fe00:84").ether().as_deref(), Some("02:00:00:00:00:84"));
        assert_eq!(gid("fe80::1").ether(), None);
        assert_eq!(gid("2001:db8::ff:fe00:84").ether(), None);
        assert_eq!(gid("::ffff:169.254.12.7").ipv4(), Some(Ipv4Addr::new(169, 254, 12, 7)));
    }
}
