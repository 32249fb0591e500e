use super::shapes::host_name;
use super::{MacModel, Port, Topology};
use crate::LineRate;

/// Picks, each modulo the number of its choices, so that every sequence makes a topology
#[derive(Debug)]
struct Plan {
    /// Of each Mac: its model, and the earlier Mac that it is joined to
    hosts: Vec<(MacModel, [u8; 2])>,
    /// Two Macs, two of their free ports, and a kind of cable; left out where it is not possible
    cables: Vec<[u8; 5]>,
    /// A Mac, one of its ports, and an unusual list of addresses
    addresses: Vec<[u8; 3]>,
}

/// How few and how many Macs there are
const HOSTS: std::ops::RangeInclusive<usize> = 2..=6;
/// A tree of generic Macs with two ports or more always has a free one.
const GENERIC_PORTS: std::ops::RangeInclusive<usize> = 2..=8;
const MOST_CABLES: usize = 12;
const MOST_ADDRESSES: usize = 4;

impl Plan {
    fn build(&self) -> Topology {
        let mut topology = Topology::new();
        for (index, (model, [parent, cable])) in self.hosts.iter().enumerate() {
            let name = host_name(index);
            topology.add_host(&name, *model).expect("names and numbers of ports are good");
            let with_room: Vec<_> =
                (0..index).filter(|host| !topology.free_ports(*host).is_empty()).collect();
            if let Some(parent) = pick(&with_room, *parent) {
                join(&mut topology, [*parent, index], [0, 0], *cable);
            }
        }
        for [a, b, port_a, port_b, kind] in &self.cables {
            let hosts = [a, b].map(|host| usize::from(*host) % self.hosts.len());
            if hosts[0] != hosts[1] {
                join(&mut topology, hosts, [*port_a, *port_b], *kind);
            }
        }
        for [host, port, kind] in &self.addresses {
            let host = usize::from(*host) % self.hosts.len();
            let port = usize::from(*port) % topology.hosts[host].ports.len();
            change(&mut topology, host, port, *kind);
        }
        topology
    }
}

fn pick<T>(items: &[T], number: u8) -> Option<&T> {
    items.get(usize::from(number).checked_rem(items.len())?)
}

/// Plugs a cable into free ports of two Macs, if both have one
fn join(topology: &mut Topology, [a, b]: [usize; 2], [port_a, port_b]: [u8; 2], kind: u8) {
    let (free_a, free_b) = (topology.free_ports(a), topology.free_ports(b));
    let (Some(device_a), Some(device_b)) = (pick(&free_a, port_a), pick(&free_b, port_b)) else {
        return;
    };
    let (name_a, name_b) = (host_name(a), host_name(b));
    let rate = if kind % 4 == 3 { LineRate::TB4 } else { LineRate::TB5 };
    topology
        .add_cable((name_a.as_str(), device_a.as_str()), (name_b.as_str(), device_b.as_str()), rate)
        .expect("the ports are free, and of two Macs");
}

/// Gives a port one of the address lists of the field reports
fn change(topology: &mut Topology, host: usize, port: usize, kind: u8) {
    let usual = Port::new(host, port, Topology::FIRST_INTERFACE);
    let [link_local, ipv4] = [usual.addresses()[0], usual.addresses()[1]];
    let secured = [0xfe80, 0, 0, 0, 0, 0, host as u16 + 1, port as u16 + 1].into();
    let addresses = match kind % 4 {
        0 => vec![link_local],
        1 => vec![link_local, secured, ipv4],
        2 => vec![link_local, ipv4, secured],
        _ => Vec::new(),
    };
    topology.set_addresses((host_name(host).as_str(), port), addresses).expect("they are all different");
}

/// Strategies of proptest
#[cfg(any(test, feature = "proptest"))]
pub mod strategies {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::{GENERIC_PORTS, HOSTS, MOST_ADDRESSES, MOST_CABLES, Plan};
    use crate::topology::{MacModel, Topology};

    /// Topologies of 2 to 6 Macs that are all connected, over several hops perhaps
    ///
    /// Some pairs have several cables, some cables are slow, and some ports have unusual addresses. They shrink
    /// towards two Macs with three ports and one cable.
    pub fn topologies() -> impl Strategy<Value = Topology> {
        let hosts = vec((models(), any::<[u8; 2]>()), HOSTS);
        let cables = vec(any::<[u8; 5]>(), 0..=MOST_CABLES);
        let addresses = vec(any::<[u8; 3]>(), 0..=MOST_ADDRESSES);
        (hosts, cables, addresses)
            .prop_map(|(hosts, cables, addresses)| Plan { hosts, cables, addresses }.build())
    }

    /// Any Mac that is sold, or a generic one
    pub fn models() -> impl Strategy<Value = MacModel> {
        prop_oneof![
            prop::sample::select(&MacModel::ALL[..]),
            GENERIC_PORTS.prop_map(|ports| MacModel::Generic { ports }),
        ]
    }
}

#[cfg(feature = "arbitrary")]
mod bytes {
    use arbitrary::{Arbitrary, Result, Unstructured};

    use super::{GENERIC_PORTS, HOSTS, MOST_ADDRESSES, MOST_CABLES, Plan};
    use crate::topology::{MacModel, Topology};

    /// Any Mac that is sold, or a generic one with 2 to 8 ports
    impl<'a> Arbitrary<'a> for MacModel {
        fn arbitrary(u: &mut Unstructured<'a>) -> Result<Self> {
            match u.ratio(1, 4)? {
                true => Ok(Self::Generic { ports: u.int_in_range(GENERIC_PORTS)? }),
                false => u.choose(&Self::ALL).copied(),
            }
        }
    }

    /// 2 to 6 Macs that are all connected, over several hops perhaps
    impl<'a> Arbitrary<'a> for Topology {
        fn arbitrary(u: &mut Unstructured<'a>) -> Result<Self> {
            let hosts = u.int_in_range(HOSTS)?;
            let hosts = (0..hosts).map(|_| u.arbitrary()).collect::<Result<_>>()?;
            let cables = u.int_in_range(0..=MOST_CABLES)?;
            let cables = (0..cables).map(|_| u.arbitrary()).collect::<Result<_>>()?;
            let addresses = u.int_in_range(0..=MOST_ADDRESSES)?;
            let addresses = (0..addresses).map(|_| u.arbitrary()).collect::<Result<_>>()?;
            Ok(Plan { hosts, cables, addresses }.build())
        }
    }
}
