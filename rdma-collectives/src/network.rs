use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::sync::Arc;

use crate::ratio::gcd;
use crate::tree::Distance;
use crate::{Cabling, PlanError, Ratio};

/// The capacities between hosts, all cables of a pair in a direction together, and the caps of hosts, in a common unit
///
/// Algorithms of the planner work on it; the verifier does not.
#[derive(Clone, Debug)]
pub(crate) struct Network {
    arcs: Arc<Arcs>,
    /// By arc
    capacities: Vec<u128>,
    latencies: Vec<u64>,
    /// What each host sends over all arcs at most, and what it receives, where all arcs together have more capacity
    caps: [Vec<Option<u128>>; 2],
    /// Bytes per second of one unit of capacity
    unit: u128,
}

/// The side of an arc on which a host sends
pub(crate) const SEND: usize = 0;
/// The side of an arc on which a host receives
pub(crate) const RECEIVE: usize = 1;

/// The pairs of hosts with a cable, each direction by itself, in ascending order
#[derive(Debug)]
struct Arcs {
    /// By host, the first arc away from it; one more for the end
    first: Vec<usize>,
    ends: Vec<(usize, usize)>,
}

impl Network {
    /// The network of a connected cabling of at least two hosts
    pub(crate) fn of(cabling: &Cabling) -> Result<Self, PlanError> {
        let hosts = cabling.hosts().len();
        if hosts < 2 {
            return Err(PlanError::OneHost);
        }
        let components = cabling.components();
        if components.len() > 1 {
            let names =
                |members: Vec<usize>| members.iter().map(|&host| cabling.hosts()[host].clone()).collect();
            return Err(PlanError::Disconnected { parts: components.into_iter().map(names).collect() });
        }
        let both_ways = |[left, right]: [usize; 2]| [(left, right), (right, left)];
        let mut ends: Vec<_> = cabling.cables().iter().flat_map(|cable| both_ways(cable.ends)).collect();
        ends.sort_unstable();
        ends.dedup();
        let first = (0..=hosts).map(|host| ends.partition_point(|(from, _)| *from < host)).collect();
        let (capacities, latencies) = (vec![0; ends.len()], vec![u64::MAX; ends.len()]);
        let caps = [vec![None; hosts], vec![None; hosts]];
        let mut network = Self { arcs: Arc::new(Arcs { first, ends }), capacities, latencies, caps, unit: 1 };
        for cable in cabling.cables() {
            for ((from, to), rate) in both_ways(cable.ends).into_iter().zip(cable.rates) {
                let Some(arc) = network.arc(from, to) else { continue };
                network.capacities[arc] += u128::from(rate);
                // Data uses all cables of the pair, so the slowest counts.
                let slowest = match network.latencies[arc] {
                    u64::MAX => cable.latency_ns,
                    other => other.max(cable.latency_ns),
                };
                network.latencies[arc] = slowest;
            }
        }
        for host in 0..hosts {
            let cap = cabling.cap(host);
            for (side, cap) in [cap.send, cap.receive].into_iter().enumerate() {
                let cap = cap.map(u128::from).filter(|cap| *cap < network.whole(side, host));
                network.caps[side][host] = cap;
            }
        }
        let caps = network.caps.iter().flatten().flatten();
        network.unit = network.capacities.iter().chain(caps).copied().fold(0, gcd);
        let caps = network.caps.iter_mut().flatten().flatten();
        network.capacities.iter_mut().chain(caps).for_each(|capacity| *capacity /= network.unit);
        Ok(network)
    }

    /// What all arcs out of a host carry together, or all into it
    pub(crate) fn whole(&self, side: usize, host: usize) -> u128 {
        let ends = self.arcs.ends.iter().zip(&self.capacities);
        let of_host = ends.filter(|((from, to), _)| [*from, *to][side] == host);
        of_host.map(|(_, capacity)| capacity).sum()
    }

    /// What a host sends at most, if [`SEND`], or receives, if [`RECEIVE`]; `None` if that is no less than all its arcs carry
    pub(crate) fn cap(&self, side: usize, host: usize) -> Option<u128> {
        self.caps[side][host]
    }

    /// Whether some host sends or receives less than all its arcs carry
    pub(crate) fn has_caps(&self) -> bool {
        self.caps.iter().flatten().any(Option::is_some)
    }

    pub(crate) fn hosts(&self) -> usize {
        self.arcs.first.len() - 1
    }

    fn arc(&self, from: usize, to: usize) -> Option<usize> {
        let Arcs { first, ends } = &*self.arcs;
        ends[first[from]..first[from + 1]].binary_search(&(from, to)).ok().map(|at| first[from] + at)
    }

    pub(crate) fn capacity(&self, from: usize, to: usize) -> u128 {
        self.arc(from, to).map_or(0, |arc| self.capacities[arc])
    }

    /// Nanoseconds from a host to a neighbour
    pub(crate) fn latency(&self, from: usize, to: usize) -> u64 {
        self.arc(from, to).map_or(u64::MAX, |arc| self.latencies[arc])
    }

    /// Pairs of hosts `(from, to)` with a cable, each direction by itself
    pub(crate) fn arcs(&self) -> impl Iterator<Item = (usize, usize)> + '_ {
        self.arcs
            .ends
            .iter()
            .zip(&self.capacities)
            .filter(|(_, capacity)| **capacity > 0)
            .map(|(ends, _)| *ends)
    }

    /// The hosts with a cable to this one
    pub(crate) fn neighbours(&self, host: usize) -> impl Iterator<Item = usize> + '_ {
        let arcs = self.arcs.first[host]..self.arcs.first[host + 1];
        arcs.filter(|&arc| self.capacities[arc] > 0).map(|arc| self.arcs.ends[arc].1)
    }

    /// Pairs of hosts with a cable, the smaller index first
    pub(crate) fn edges(&self) -> impl Iterator<Item = (usize, usize)> + '_ {
        self.arcs().filter(|(from, to)| from < to)
    }

    pub(crate) fn is_symmetric(&self) -> bool {
        self.caps[SEND] == self.caps[RECEIVE]
            && self.edges().all(|(left, right)| self.capacity(left, right) == self.capacity(right, left))
    }

    /// The same network with `capacity(from, to)` for each pair with a cable
    pub(crate) fn map(&self, mut capacity: impl FnMut(usize, usize) -> u128) -> Self {
        let capacities = self.arcs.ends.iter().map(|&(from, to)| capacity(from, to)).collect();
        Self { capacities, ..self.clone() }
    }

    /// The network with each arc turned round
    pub(crate) fn reversed(&self) -> Self {
        let latencies = self.arcs.ends.iter().map(|&(from, to)| self.latency(to, from)).collect();
        let [send, receive] = self.caps.clone();
        Self { latencies, caps: [receive, send], ..self.map(|from, to| self.capacity(to, from)) }
    }

    /// Seconds per byte, of an amount of bytes over a capacity of this network; `None` if it does not fit
    pub(crate) fn seconds(&self, amount: u128, capacity: u128) -> Option<Ratio> {
        Ratio::new(amount, capacity)?.checked_mul(Ratio::new(1, self.unit)?)
    }

    /// Seconds per byte of a payload of which each arc carries this part: those of the slowest arc, or host with a cap; `None` if it does not fit
    pub(crate) fn slowest(&self, loads: &BTreeMap<(usize, usize), Ratio>) -> Option<Ratio> {
        let mut slowest = Ratio::ZERO;
        let mut of_hosts = BTreeMap::new();
        for (&(from, to), &load) in loads {
            slowest = slowest.max(self.seconds(1, self.capacity(from, to))?.checked_mul(load)?);
            for (side, host) in [from, to].into_iter().enumerate() {
                if let Some(cap) = self.caps[side][host] {
                    let (_, sum) = of_hosts.entry((side, host)).or_insert((cap, Ratio::ZERO));
                    *sum = sum.checked_add(load)?;
                }
            }
        }
        for (cap, load) in of_hosts.into_values() {
            slowest = slowest.max(self.seconds(1, cap)?.checked_mul(load)?);
        }
        Some(slowest)
    }

    /// By host, latency and hops to the host that is furthest from it
    pub(crate) fn eccentricities(&self) -> Vec<Distance> {
        let rows = self.distances();
        rows.iter().map(|row| row.iter().copied().max().unwrap_or_default()).collect()
    }

    /// Latency and hops of the fastest path between each two hosts
    pub(crate) fn distances(&self) -> Vec<Vec<Distance>> {
        (0..self.hosts()).map(|host| self.distances_from(host)).collect()
    }

    /// Latency and hops of the fastest path to each host
    pub(crate) fn distances_from(&self, host: usize) -> Vec<Distance> {
        let mut distances = vec![(u64::MAX, u64::MAX); self.hosts()];
        distances[host] = (0, 0);
        let mut pending = BinaryHeap::from([Reverse((distances[host], host))]);
        while let Some(Reverse((distance, from))) = pending.pop() {
            if distance > distances[from] {
                continue;
            }
            for to in self.neighbours(from) {
                let next = (distance.0.saturating_add(self.latency(from, to)), distance.1 + 1);
                if next < distances[to] {
                    distances[to] = next;
                    pending.push(Reverse((next, to)));
                }
            }
        }
        distances
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::Cable;

    proptest! {
        /// Catches a path that is not the fastest, by trying all hosts as the one on the way.
        #[test]
        fn distances_are_those_of_the_fastest_paths(
            cables in prop::collection::vec((0..7_usize, 0..7_usize, 0..5_u64), 0..12),
        ) {
            let line = (0..6).map(|host| (host, host + 1, 3));
            let cables = cables.into_iter().filter(|(left, right, _)| left != right).chain(line);
            let cables: Vec<_> =
                cables.map(|(left, right, latency)| Cable::new(left, right, 1).latency_ns(latency)).collect();
            let cabling = Cabling::new((0..7).map(|host| host.to_string()), cables).unwrap();
            let network = Network::of(&cabling).unwrap();
            let mut rows = vec![vec![(u64::MAX, u64::MAX); 7]; 7];
            (0..7).for_each(|host| rows[host][host] = (0, 0));
            network.arcs().for_each(|(from, to)| rows[from][to] = (network.latency(from, to), 1));
            for (via, from, to) in (0..343).map(|all| (all / 49, all / 7 % 7, all % 7)) {
                let (first, second): (Distance, Distance) = (rows[from][via], rows[via][to]);
                let path = (first.0.saturating_add(second.0), first.1.saturating_add(second.1));
                rows[from][to] = rows[from][to].min(path);
            }
            prop_assert_eq!(network.distances(), rows);
        }
    }
}
