//! Thunderbolt cables between network namespaces, which faults of the fabric pull and plug

use std::io;
use std::net::IpAddr;

use anyhow::{Context as _, Result};
use rdma_sim_verbs::shared::{Interfaces, SharedFabric};

use super::namespace::Namespace;
use super::netlink::{Assigned, End, Netlink};

/// The index of the interface of the first port of a host
const FIRST_PORT: u32 = 110;
/// The indices in the namespace in the middle: of the ends of the ports, and of the cables between them.
const FIRST_END: u32 = 1000;
const FIRST_CABLE: u32 = 10_000;

/// The ports of all hosts and the cables between them
///
/// Each port is joined to a namespace in the middle, where a bridge is the cable between two of them. A pulled cable is a port
/// without a carrier, whose addresses and routes stay, and which no program within a host can plug in again.
pub(super) struct Cables<'a> {
    interfaces: Interfaces<'a>,
    ports: Vec<Port>,
}

struct Port {
    host: usize,
    /// The name of the host, and of the device.
    name: (String, String),
    index: u32,
    neighbour: Option<usize>,
    addresses: Vec<Assigned>,
    /// Whether the bridge exists that is a cable from this port to a later one.
    has_cable: bool,
}

impl<'a> Cables<'a> {
    /// Adds the ports of all hosts, without cables
    pub(super) fn new(
        fabric: &'a SharedFabric,
        middle: &mut Netlink,
        namespaces: &[Namespace],
        hosts: &mut [Netlink],
    ) -> Result<Self> {
        let mut ports = Vec::new();
        for (host, found) in fabric.settings().topology().hosts().iter().enumerate() {
            for (position, port) in found.ports().iter().enumerate() {
                let (number, index) = (ports.len() as u32, FIRST_PORT + position as u32);
                let (end, name) = (format!("p{number}"), port.interface());
                let here = End { index: FIRST_END + number, name: &end, hardware_address: None };
                let there = End { index, name, hardware_address: Some(port.mac_address().0) };
                namespaces[host]
                    .join(&mut hosts[host], there, middle, here)
                    .with_context(|| format!("interface {name} of host {}", found.name()))?;
                let name = (found.name().to_owned(), port.device().to_owned());
                ports.push(Port {
                    host,
                    name,
                    index,
                    neighbour: None,
                    addresses: Vec::new(),
                    has_cable: false,
                });
            }
        }
        Ok(Self { interfaces: Interfaces::new(fabric), ports })
    }

    /// Lets the faults that have fired take effect
    pub(super) fn update(&mut self, middle: &mut Netlink, hosts: &mut [Netlink]) -> Result<()> {
        if self.interfaces.update() { self.apply(middle, hosts) } else { Ok(()) }
    }

    /// Makes cables and addresses as they are in the fabric now
    pub(super) fn apply(&mut self, middle: &mut Netlink, hosts: &mut [Netlink]) -> Result<()> {
        let found: Vec<_> =
            self.ports.iter().map(|port| self.interfaces.of(&port.name.0, &port.name.1)).collect();
        let number = |name: &(String, String)| self.ports.iter().position(|port| port.name == *name);
        let neighbours: Vec<_> =
            found.iter().map(|found| number(found.as_ref()?.neighbour.as_ref()?)).collect();
        let changed: Vec<_> =
            (0..neighbours.len()).filter(|port| self.ports[*port].neighbour != neighbours[*port]).collect();
        for port in &changed {
            middle.set_up(FIRST_END + *port as u32, false).context("a cable cannot be pulled")?;
        }
        let addresses = |port: usize| found[port].as_ref().map_or(&[][..], |found| &found.addresses);
        for (number, port) in self.ports.iter_mut().enumerate() {
            // An interface without a carrier keeps what it has.
            if neighbours[number].is_some() || port.addresses.is_empty() {
                let wanted = assigned(addresses(number), neighbours[number].map_or(&[], addresses));
                let readdressed = port.readdress(&wanted, &mut hosts[port.host]);
                readdressed.with_context(|| format!("the addresses of {}:{}", port.name.0, port.name.1))?;
            }
        }
        for port in changed {
            self.ports[port].neighbour = neighbours[port];
            if let Some(there) = neighbours[port] {
                self.plug(port, there, middle).context("a cable cannot be plugged in")?;
            }
        }
        Ok(())
    }

    /// Joins a port to the cable that leads to the port `there`
    fn plug(&mut self, port: usize, there: usize, middle: &mut Netlink) -> io::Result<()> {
        let (cable, end) = (port.min(there), FIRST_END + port as u32);
        let index = FIRST_CABLE + cable as u32;
        if !std::mem::replace(&mut self.ports[cable].has_cable, true) {
            middle.add_bridge(index, &format!("c{cable}"))?;
            middle.disable_own_addresses(index)?;
            middle.set_up(index, true)?;
        }
        middle.attach(end, index)?;
        middle.set_up(end, true)
    }
}

impl Port {
    /// Replaces the addresses of each family of which there are new ones
    fn readdress(&mut self, wanted: &[Assigned], links: &mut Netlink) -> io::Result<()> {
        let has_family = |old: &Assigned| wanted.iter().any(|new| new.local.is_ipv4() == old.local.is_ipv4());
        let is_over = |old: &Assigned| has_family(old) && !wanted.contains(old);
        for old in self.addresses.extract_if(.., |old| is_over(old)) {
            links.remove_address(self.index, old)?;
        }
        for new in wanted {
            if !self.addresses.contains(new) {
                links.add_address(self.index, *new)?;
                self.addresses.push(*new);
            }
        }
        Ok(())
    }
}

/// The addresses of an interface with `own`, whose cable leads to one with `others`
///
/// Several interfaces of a Mac have IPv4 addresses of one block: each reaches the address of its neighbour alone.
fn assigned(own: &[IpAddr], others: &[IpAddr]) -> Vec<Assigned> {
    let peer = others.iter().copied().find(IpAddr::is_ipv4);
    let assigned = |local: &IpAddr| match local {
        IpAddr::V4(_) => Assigned { local: *local, peer, prefix_length: 32 },
        IpAddr::V6(_) => Assigned { local: *local, peer: None, prefix_length: 64 },
    };
    own.iter().map(assigned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Catches interfaces that claim the whole block of self-assigned addresses: a Mac with two cables would send all packets over one.
    #[test]
    fn an_interface_reaches_the_ipv4_address_of_its_neighbour_alone() {
        let address = |text: &str| text.parse::<IpAddr>().unwrap();
        let own = [address("fe80::1"), address("169.254.1.1")];
        let v6 = Assigned { local: own[0], peer: None, prefix_length: 64 };
        let v4 = |peer| Assigned { local: own[1], peer, prefix_length: 32 };
        let there = address("169.254.2.1");
        assert_eq!(assigned(&own, &[address("fe80::2"), there]), [v6, v4(Some(there))]);
        assert_eq!(assigned(&own, &[]), [v6, v4(None)]);
    }
}
