//! The cables to move from one cabling to another

use anyhow::{Context as _, Result};
use rdma_collectives::Cabling;
use rdma_sim::LineRate;
use rdma_sim::topology::{Host, Topology};
use serde::Serialize;

/// A cable to move, by the host and the device at both ends
#[derive(Debug, Serialize)]
pub(super) struct Move {
    /// Where it is; `null` for a further cable
    pub(super) from: Option<[[String; 2]; 2]>,
    /// Where it belongs; `null` if it is to be removed, for other cables or a faster one
    pub(super) to: Option<[[String; 2]; 2]>,
}

/// A cable by the positions of its hosts and of their ports
#[derive(Clone, Copy)]
struct Placed {
    hosts: [usize; 2],
    ports: [usize; 2],
}

/// Hosts of a topology, and which of their ports have cables
struct Ports<'a> {
    hosts: &'a [Host],
    used: Vec<Vec<bool>>,
}

/// The same Macs with the cables of `wanted`, each of `rate`, and the cables to move for it
///
/// Cables that both cablings have stay in their ports; of the others, as many ends as the order of the cables allows. Those of another rate
/// are removed.
pub(super) fn move_cables(
    topology: &Topology,
    wanted: &Cabling,
    rate: LineRate,
) -> Result<(Topology, Vec<Move>)> {
    let mut ports = Ports::of(topology);
    let mut missing: Vec<_> = wanted.cables().iter().map(|cable| cable.ends).collect();
    let (mut kept, mut loose, mut removed) = (Vec::new(), Vec::new(), Vec::new());
    for link in topology.links() {
        let cable = ports.find(link.ends.map(|end| (end.host, end.device)))?;
        if link.rate != rate {
            removed.push(cable);
            continue;
        }
        match missing.iter().position(|pair| shared_hosts(*pair, cable.hosts) == 2) {
            Some(place) => {
                missing.remove(place);
                ports.take(cable);
                kept.push(cable);
            }
            None => loose.push(cable),
        }
    }
    let pairs = pair_up(&mut loose, missing);
    let placed: Vec<_> = {
        let stay = pairs.iter().map(|(from, to)| ports.ends_that_stay(*from, *to)).collect::<Vec<_>>();
        let placed = pairs.iter().zip(stay);
        placed.map(|((from, to), stay)| Ok((*from, ports.place(*to, stay)?))).collect::<Result<_>>()?
    };
    let mut moves: Vec<_> = placed
        .iter()
        .map(|(from, to)| Move { from: from.map(|cable| ports.names(cable)), to: Some(ports.names(*to)) })
        .collect();
    moves.extend(
        loose.into_iter().chain(removed).map(|cable| Move { from: Some(ports.names(cable)), to: None }),
    );
    let cables: Vec<_> = kept.into_iter().chain(placed.iter().map(|(_, to)| *to)).collect();
    Ok((with_cables(topology, &cables, rate)?, moves))
}

/// The cable that moves to each of the missing pairs: one with an end at one of these hosts, then any
fn pair_up(loose: &mut Vec<Placed>, missing: Vec<[usize; 2]>) -> Vec<(Option<Placed>, [usize; 2])> {
    let mut from = vec![None; missing.len()];
    for shared in [1, 0] {
        for (from, to) in from.iter_mut().zip(&missing).filter(|(from, _)| from.is_none()) {
            let place = loose.iter().position(|cable| shared_hosts(cable.hosts, *to) >= shared);
            *from = place.map(|place| loose.remove(place));
        }
    }
    from.into_iter().zip(missing).collect()
}

fn shared_hosts(one: [usize; 2], other: [usize; 2]) -> usize {
    one.iter().filter(|host| other.contains(host)).count()
}

fn with_cables(topology: &Topology, cables: &[Placed], rate: LineRate) -> Result<Topology> {
    let mut made = Topology::new();
    for host in topology.hosts() {
        let first = host.ports().first().and_then(|port| port.interface().strip_prefix("en")?.parse().ok());
        made.add_host_from(host.name(), host.mac(), first.unwrap_or(Topology::FIRST_INTERFACE))?;
        for port in host.ports() {
            made.set_addresses((host.name(), port.device()), port.addresses().iter().copied())?;
        }
    }
    for cable in cables {
        let [left, right] = [0, 1].map(|end| (topology.hosts()[cable.hosts[end]].name(), cable.ports[end]));
        made.add_cable(left, right, rate)?;
    }
    Ok(made)
}

impl<'a> Ports<'a> {
    fn of(topology: &'a Topology) -> Self {
        let hosts = topology.hosts();
        Self { hosts, used: hosts.iter().map(|host| vec![false; host.ports().len()]).collect() }
    }

    /// The cable with these ends, each a host and a device
    fn find(&self, ends: [(&str, &str); 2]) -> Result<Placed> {
        let place = |(name, device): (&str, &str)| {
            let host = self.hosts.iter().position(|host| host.name() == name)?;
            Some((host, self.hosts[host].ports().iter().position(|port| port.device() == device)?))
        };
        let [left, right] = ends.map(place);
        let (left, right) = left.zip(right).context("a cable ends at no port")?;
        Ok(Placed { hosts: [left.0, right.0], ports: [left.1, right.1] })
    }

    fn take(&mut self, cable: Placed) {
        for (host, port) in cable.hosts.into_iter().zip(cable.ports) {
            self.used[host][port] = true;
        }
    }

    /// Takes the ports in which the ends of a cable stay when it moves from one place to another
    fn ends_that_stay(&mut self, from: Option<Placed>, to: [usize; 2]) -> [Option<usize>; 2] {
        to.map(|host| {
            let from = from?;
            let end = from.hosts.iter().position(|other| *other == host)?;
            self.used[host][from.ports[end]] = true;
            Some(from.ports[end])
        })
    }

    /// Takes the first free port for each end that does not stay
    fn place(&mut self, hosts: [usize; 2], stay: [Option<usize>; 2]) -> Result<Placed> {
        let mut port = |end: usize| {
            let used = &mut self.used[hosts[end]];
            let free = stay[end].or_else(|| used.iter().position(|is_used| !is_used));
            let port = free.context("a host has more cables than ports")?;
            used[port] = true;
            anyhow::Ok(port)
        };
        let ports = [port(0)?, port(1)?];
        Ok(Placed { hosts, ports })
    }

    fn names(&self, cable: Placed) -> [[String; 2]; 2] {
        [0, 1].map(|end| {
            let host = &self.hosts[cable.hosts[end]];
            [host.name(), host.ports()[cable.ports[end]].device()].map(str::to_owned)
        })
    }
}
