//! Which cables the baseline can use: those of a mesh, and those of a ring

use anyhow::{Context as _, Result};
use rdma_bare::BareQp;
use rdma_sim::Net;
use rdma_sim::topology::{LinkEnd, Topology};

use super::wire::{WIRE_BYTES, Wire};

/// The most hosts of a mesh or a ring.
const MAX_HOSTS: usize = 8;
/// The most cables between neighbours of a ring.
const MAX_WIRES: usize = 4;

#[derive(Clone, Copy, Debug)]
struct Cable<'a> {
    ends: [LinkEnd<'a>; 2],
    /// Bits per second
    rate: u64,
}

/// The cables from each host to each other one, by the positions of both, fastest first
pub(super) struct Cables<'a>(Vec<Vec<Vec<Cable<'a>>>>);

/// Hosts in the order of a ring, and how many cables are used between neighbours
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct RingOrder {
    pub(super) hosts: Vec<usize>,
    pub(super) wires: usize,
}

impl<'a> Cables<'a> {
    pub(super) fn new(topology: &'a Topology) -> Self {
        let hosts = topology.hosts().len();
        let position = |name: &str| topology.hosts().iter().position(|host| host.name() == name);
        let mut cables = vec![vec![Vec::new(); hosts]; hosts];
        for link in topology.links() {
            let [left, right] = link.ends;
            if let (Some(from), Some(to)) = (position(left.host), position(right.host)) {
                let rate = link.rate.bits_per_second;
                cables[from][to].push(Cable { ends: [left, right], rate });
                cables[to][from].push(Cable { ends: [right, left], rate });
            }
        }
        cables.iter_mut().flatten().for_each(|between| between.sort_by_key(|cable| u64::MAX - cable.rate));
        Self(cables)
    }

    /// The cables from one host to another
    fn between(&self, from: usize, to: usize) -> &[Cable<'a>] {
        &self.0[from][to]
    }

    /// Whether each host has a cable to each other one
    pub(super) fn are_mesh(&self) -> bool {
        let hosts = self.0.len();
        let mut pairs = (0..hosts).flat_map(|to| (0..to).map(move |from| (from, to)));
        (2..=MAX_HOSTS).contains(&hosts) && pairs.all(|(from, to)| !self.between(from, to).is_empty())
    }

    /// The wires of each rank of a mesh: one to each other rank, in their order
    pub(super) fn mesh_wires(&self, net: &Net) -> Result<Vec<Vec<Wire>>> {
        let ranks = self.0.len();
        let mut wires: Vec<Vec<_>> = (0..ranks).map(|_| Vec::new()).collect();
        for to in 0..ranks {
            for from in 0..to {
                let [a, b] = self.wire(net, [from, to], 0)?;
                wires[from].push(a);
                wires[to].push(b);
            }
        }
        Ok(wires)
    }

    /// The wires of each rank of a ring: those to the next rank, then those to the one before
    pub(super) fn ring_wires(&self, net: &Net, order: &RingOrder) -> Result<Vec<Vec<Wire>>> {
        let ranks = order.hosts.len();
        let mut wires: Vec<[Vec<_>; 2]> = (0..ranks).map(|_| [Vec::new(), Vec::new()]).collect();
        for (rank, ends) in neighbours(&order.hosts).enumerate() {
            for number in 0..order.wires {
                let [a, b] = self.wire(net, ends, number)?;
                wires[rank][0].push(a);
                wires[(rank + 1) % ranks][1].push(b);
            }
        }
        Ok(wires.into_iter().map(|both| both.into_iter().flatten().collect()).collect())
    }

    /// Both ends of a wire over one of the cables between two hosts
    fn wire(&self, net: &Net, [from, to]: [usize; 2], number: usize) -> Result<[Wire; 2]> {
        let cable = self.between(from, to).get(number).context("the schedule has no such cable")?;
        let [a, b] = cable.ends.map(|end| net.open(end.host, end.device));
        Ok(BareQp::pair(a?, b?, WIRE_BYTES)?)
    }

    /// The fastest ring of all hosts
    pub(super) fn ring(&self) -> Option<RingOrder> {
        if !(2..=MAX_HOSTS).contains(&self.0.len()) {
            return None;
        }
        let mut best = None;
        self.extend(&mut vec![0], &mut best);
        best.map(|(_, order)| order)
    }

    /// Finds the fastest ring that begins with these hosts
    fn extend(&self, hosts: &mut Vec<usize>, best: &mut Option<(u64, RingOrder)>) {
        if hosts.len() == self.0.len() {
            let found = self.fastest(hosts);
            if found.as_ref().map(|(rate, _)| rate) > best.as_ref().map(|(rate, _)| rate) {
                *best = found;
            }
            return;
        }
        let last = hosts[hosts.len() - 1];
        for next in 0..self.0.len() {
            if !hosts.contains(&next) && !self.between(last, next).is_empty() {
                hosts.push(next);
                self.extend(hosts, best);
                hosts.pop();
            }
        }
    }

    /// The rate of a ring with the best number of cables, which has to be the same everywhere
    fn fastest(&self, hosts: &[usize]) -> Option<(u64, RingOrder)> {
        let between = || neighbours(hosts).map(|[from, to]| self.between(from, to));
        let fewest = between().map(<[_]>::len).min()?.min(MAX_WIRES);
        let rings = (1..=fewest).map(|wires| {
            let slowest = between().map(|cables| cables[wires - 1].rate).min().unwrap_or(0);
            (wires as u64 * slowest, RingOrder { hosts: hosts.to_vec(), wires })
        });
        rings.max_by_key(|(rate, _)| *rate)
    }
}

/// Each host of a ring with the next one
fn neighbours(hosts: &[usize]) -> impl Iterator<Item = [usize; 2]> {
    hosts.iter().zip(hosts.iter().cycle().skip(1)).map(|(from, to)| [*from, *to])
}

#[cfg(test)]
mod tests {
    use rdma_sim::LineRate;
    use rdma_sim::topology::Shape;

    use super::*;

    fn ring(topology: &Topology) -> Option<(Vec<usize>, usize)> {
        Cables::new(topology).ring().map(|order| (order.hosts, order.wires))
    }

    #[test]
    fn rings_and_meshes_are_recognised() {
        let mesh = Topology::mesh(4, 3).unwrap();
        assert!(Cables::new(&mesh).are_mesh());
        assert_eq!(ring(&mesh), Some((vec![0, 1, 2, 3], 1)));
        let line = Topology::line(3, 3).unwrap();
        assert!(!Cables::new(&line).are_mesh());
        assert_eq!(ring(&line), None);
        // Not in the order of the names.
        let crossed = Topology::graph(4, 3, &[(0, 2), (2, 1), (1, 3), (3, 0)]).unwrap();
        assert_eq!(ring(&crossed), Some((vec![0, 2, 1, 3], 1)));
        for (hosts, runs) in [(8, true), (9, false)] {
            assert_eq!(ring(&Topology::ring(hosts, 3).unwrap()).is_some(), runs, "{hosts}");
        }
    }

    /// Catches a ring that uses a cable that its slowest neighbours lack, and one that leaves cables unused.
    #[test]
    fn a_ring_has_equally_many_cables_everywhere() {
        let double = Topology::shaped(Shape::Ring, 3, 4, 2, LineRate::TB5).unwrap();
        assert_eq!(ring(&double), Some((vec![0, 1, 2], 2)));
        let uneven = Topology::graph(3, 4, &[(0, 1), (0, 1), (1, 2), (2, 0)]).unwrap();
        assert_eq!(ring(&uneven), Some((vec![0, 1, 2], 1)));
        let pair = Topology::new().host("a", 3).host("b", 3);
        let pair = pair.cable(("a", 0), ("b", 0), LineRate { bits_per_second: 10_000_000_000 });
        let pair = pair.cable(("a", 1), ("b", 1), LineRate::TB5);
        assert_eq!(ring(&pair), Some((vec![0, 1], 1)), "the fast cable alone");
        assert_eq!(Cables::new(&pair).between(1, 0)[0].ends.map(|end| end.device), ["rdma_en3"; 2]);
    }
}
