//! Questions that a report answers

use std::net::{IpAddr, Ipv4Addr};

use super::{Address, Bus, DeviceSummary, HostReport, Interface, Neighbour, Outcome, Platform, ToolRun};

impl HostReport {
    /// Whether the host is a Mac
    pub fn is_mac(&self) -> bool {
        self.platform == Platform::Macos
    }

    /// The interface of this name
    pub fn interface(&self, name: &str) -> Option<&Interface> {
        self.interfaces.as_deref()?.iter().find(|interface| interface.name == name)
    }

    /// The interface of the hardware port `Thunderbolt N` of a bus
    pub fn interface_of(&self, bus: &Bus) -> Option<&str> {
        let ports = self.hardware_ports.as_deref()?;
        ports.iter().find(|port| Some(port.receptacle) == bus.receptacle).map(|port| port.interface.as_str())
    }

    /// The bus whose interface a device is named after
    pub fn bus_of(&self, device: &DeviceSummary) -> Option<&Bus> {
        let interface = device.interface()?;
        self.thunderbolt.as_deref()?.iter().find(|bus| self.interface_of(bus) == Some(interface))
    }

    /// The device that is named after the interface of a bus
    pub fn device_of(&self, bus: &Bus) -> Option<&DeviceSummary> {
        let interface = self.interface_of(bus)?;
        self.devices.as_deref()?.iter().find(|device| device.interface() == Some(interface))
    }

    /// Names of the interfaces of Thunderbolt ports
    pub fn thunderbolt_interfaces(&self) -> impl Iterator<Item = &str> {
        self.hardware_ports.iter().flatten().map(|port| port.interface.as_str())
    }

    /// Buses with another computer at the other end of the cable
    pub fn cabled_buses(&self) -> impl Iterator<Item = &Bus> {
        self.thunderbolt.iter().flatten().filter(|bus| bus.hosts().next().is_some())
    }

    /// The bridge that an interface is a member of
    pub fn bridge_of(&self, interface: &str) -> Option<&Interface> {
        let interfaces = self.interfaces.as_deref()?;
        interfaces.iter().find(|bridge| bridge.members.iter().any(|member| member == interface))
    }

    /// The entries of the ARP table on an interface
    pub fn ipv4_neighbours_on(&self, interface: &str) -> impl Iterator<Item = &Neighbour> {
        self.ipv4_neighbours.iter().flatten().filter(move |neighbour| neighbour.interface == interface)
    }

    /// The Ethernet address of another host that answers over IPv6 on an interface
    pub fn ipv6_peer_on(&self, interface: &str) -> Option<&str> {
        let own = self.interface(interface)?.ether.as_deref();
        let here = self.ipv6_neighbours.iter().flatten().filter(|neighbour| neighbour.interface == interface);
        here.filter_map(|neighbour| neighbour.ether.as_deref()).find(|ether| Some(*ether) != own)
    }

    /// The IPv4 addresses that the other end of the cable at an interface can have: those of neighbours in a network of the
    /// interface, and the other one of a network of two
    pub fn peer_addresses(&self, interface: &str) -> Vec<Ipv4Addr> {
        let own = self.interface(interface).map_or(&[][..], |interface| &interface.ipv4);
        peer_addresses(own, self.ipv4_neighbours_on(interface))
    }

    /// The run of a tool, by the first word of its command line
    pub fn tool(&self, name: &str) -> Option<&ToolRun> {
        self.tools.iter().find(|run| run.tool.split(' ').next() == Some(name))
    }

    /// Whether a tool did not end in time, by the first word of its command line
    pub fn hung(&self, name: &str) -> bool {
        self.tool(name).is_some_and(|run| run.outcome == Outcome::Hung)
    }

    /// Major and minor version of macOS
    pub fn macos_release(&self) -> Option<(u32, u32)> {
        let mut numbers = self.macos_version.as_deref()?.trim().split('.');
        let major = numbers.next()?.parse().ok()?;
        let minor = numbers.next().map_or(Some(0), |minor| minor.parse().ok())?;
        Some((major, minor))
    }
}

fn peer_addresses<'a>(own: &[Address], neighbours: impl Iterator<Item = &'a Neighbour>) -> Vec<Ipv4Addr> {
    let is_near = |address: Ipv4Addr| {
        let host = Address { address, prefix_len: 32 };
        own.iter().any(|net| net.overlaps(&host)) && !own.iter().any(|net| net.is_broadcast(address))
    };
    let mut peers: Vec<_> = neighbours
        .filter_map(|neighbour| match neighbour.address {
            IpAddr::V4(address) => Some(address),
            IpAddr::V6(_) => None,
        })
        .filter(|&address| is_near(address))
        .chain(own.iter().filter_map(Address::only_other))
        .filter(|&address| own.iter().all(|net| net.address != address))
        .collect();
    peers.sort_unstable();
    peers.dedup();
    peers
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn peers_are_neighbours_of_the_network_and_the_other_address_of_two() {
        let net = |address: [u8; 4], prefix_len| Address { address: address.into(), prefix_len };
        let near = |address: [u8; 4]| Neighbour::new(Ipv4Addr::from(address).into(), None, "en4".to_owned());
        let cases = [
            (net([192, 168, 30, 1], 30), vec![], vec![[192, 168, 30, 2]]),
            (net([192, 168, 30, 2], 31), vec![], vec![[192, 168, 30, 3]]),
            (net([192, 168, 30, 1], 24), vec![], vec![]),
            (net([192, 168, 30, 1], 24), vec![near([192, 168, 30, 7])], vec![[192, 168, 30, 7]]),
            (net([192, 168, 30, 1], 24), vec![near([192, 168, 30, 255]), near([224, 0, 0, 251])], vec![]),
            (net([192, 168, 30, 1], 30), vec![near([192, 168, 30, 1])], vec![[192, 168, 30, 2]]),
            (net([10, 0, 0, 3], 30), vec![], vec![]),
            (net([10, 0, 0, 3], 32), vec![], vec![]),
            (net([10, 0, 0, 3], 200), vec![], vec![]),
        ];
        for (own, neighbours, expected) in cases {
            let expected: Vec<_> = expected.into_iter().map(Ipv4Addr::from).collect();
            assert_eq!(peer_addresses(&[own], neighbours.iter()), expected, "{own:?}");
        }
    }
}
