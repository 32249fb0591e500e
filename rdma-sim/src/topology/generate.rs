use std::net::Ipv6Addr;

use super::shapes::host_name;
use super::{MacModel, Port, Topology};
use crate::{Choices, LineRate};

impl Topology {
    /// 2 to 6 Macs that are all connected, over several hops perhaps
    ///
    /// Some pairs have several cables, some cables are slow, and some ports have unusual addresses. The plain case is two Macs with
    /// three ports and one cable.
    ///
    /// ```
    /// use rdma_sim::{Seeded, Topology};
    ///
    /// let topology = Topology::random(&mut Seeded::new(7));
    /// assert!(topology.links().len() + 1 >= topology.hosts().len());
    /// ```
    pub fn random(choices: &mut dyn Choices) -> Self {
        let mut topology = Self::new();
        let hosts = 2 + choices.pick(5) as usize;
        for index in 0..hosts {
            let mac = MacModel::random(choices);
            topology.add_host(&host_name(index), mac).expect("names and numbers of ports are good");
            let with_room: Vec<_> =
                (0..index).filter(|host| !topology.free_ports(*host).is_empty()).collect();
            if index > 0 {
                // A tree of Macs with two ports or more always has a free one.
                let parent = *pick(choices, &with_room);
                topology.join_by_chance(choices, [parent, index]);
            }
        }
        for _ in 0..choices.pick(13) {
            let ends = [(); 2].map(|()| choices.pick(hosts as u32) as usize);
            if ends[0] != ends[1] {
                topology.join_by_chance(choices, ends);
            }
        }
        for _ in 0..choices.pick(5) {
            topology.readdress_by_chance(choices);
        }
        topology
    }

    /// Plugs a cable into free ports of two Macs, if both have one
    fn join_by_chance(&mut self, choices: &mut dyn Choices, ends: [usize; 2]) {
        let free = ends.map(|host| self.free_ports(host));
        if free.iter().any(Vec::is_empty) {
            return;
        }
        let [a, b] = ends.map(host_name);
        let [device_a, device_b] = free.each_ref().map(|devices| pick(choices, devices).as_str());
        let rate = if choices.pick(4) == 3 { LineRate::TB4 } else { LineRate::TB5 };
        self.add_cable((&*a, device_a), (&*b, device_b), rate).expect("the ports are free, and of two Macs");
    }

    /// Gives a port one of the address lists of the field reports
    fn readdress_by_chance(&mut self, choices: &mut dyn Choices) {
        let host = choices.pick(self.hosts.len() as u32) as usize;
        let port = choices.pick(self.hosts[host].ports.len() as u32) as usize;
        let usual = Port::new(host, port, Self::FIRST_INTERFACE, self.hosts[host].mac);
        let [link_local, ipv4, secured] = [0, 1, 2].map(|index| usual.addresses()[index]);
        let addresses = match choices.pick(4) {
            0 => vec![link_local],
            1 => vec![link_local, secured, ipv4],
            2 => vec![link_local, Ipv6Addr::UNSPECIFIED.into(), ipv4, secured],
            _ => Vec::new(),
        };
        self.set_addresses((host_name(host).as_str(), port), addresses).expect("they are all different");
    }
}

impl MacModel {
    /// Any Mac that is sold, or a generic one with 2 to 8 ports
    pub fn random(choices: &mut dyn Choices) -> Self {
        match choices.pick(4) {
            3 => Self::Generic { ports: 2 + choices.pick(7) as usize },
            _ => *pick(choices, &Self::ALL),
        }
    }
}

fn pick<'a, T>(choices: &mut dyn Choices, items: &'a [T]) -> &'a T {
    &items[choices.pick(items.len() as u32) as usize]
}

/// Strategies of proptest
#[cfg(any(test, feature = "proptest"))]
pub mod strategies {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use crate::{Bytes, MacModel, Topology};

    /// Topologies as [`Topology::random`] makes them, which shrink towards the plain case
    pub fn topologies() -> impl Strategy<Value = Topology> {
        vec(any::<u8>(), 0..=256).prop_map(|bytes| Topology::random(&mut Bytes::new(bytes)))
    }

    /// Models as [`MacModel::random`] makes them
    pub fn models() -> impl Strategy<Value = MacModel> {
        any::<[u8; 4]>().prop_map(|bytes| MacModel::random(&mut Bytes::new(bytes)))
    }
}

#[cfg(feature = "arbitrary")]
mod bytes {
    use arbitrary::{Arbitrary, Result, Unstructured};

    use crate::{Bytes, MacModel, Topology};

    /// As [`MacModel::random`]
    impl<'a> Arbitrary<'a> for MacModel {
        fn arbitrary(u: &mut Unstructured<'a>) -> Result<Self> {
            Ok(Self::random(&mut Bytes::new(u.arbitrary::<[u8; 4]>()?)))
        }
    }

    /// As [`Topology::random`]
    impl<'a> Arbitrary<'a> for Topology {
        fn arbitrary(u: &mut Unstructured<'a>) -> Result<Self> {
            Ok(Self::random(&mut Bytes::arbitrary(u)?))
        }
    }
}
