use std::collections::BTreeMap;

use crate::Ratio;
use crate::network::Network;
use crate::tree::Distance;

/// What each arc carries
type Loads = BTreeMap<(usize, usize), u128>;

/// Ways of the lowest latency, and then of the fewest hops; among equally short ones, over the cables that carry least so far
pub(crate) struct Shortest<'a> {
    network: &'a Network,
    loads: Loads,
}

impl<'a> Shortest<'a> {
    pub(crate) fn new(network: &'a Network) -> Self {
        Self { network, loads: Loads::new() }
    }

    /// The arcs of a tree from `root` to all hosts, each of which carries `amount`
    pub(crate) fn tree(&mut self, root: usize, amount: u128) -> Vec<(usize, usize)> {
        let distances = self.network.distances_from(root);
        let mut order: Vec<_> = (0..distances.len()).filter(|&host| host != root).collect();
        order.sort_by_key(|&host| distances[host]);
        order.into_iter().filter_map(|child| self.last_arc(&distances, child, amount)).collect()
    }

    /// The arcs of a way, over which goes `amount`, by the distances of all hosts from where it begins
    pub(crate) fn path(&mut self, distances: &[Distance], to: usize, amount: u128) -> Vec<(usize, usize)> {
        let mut arcs = Vec::new();
        let mut child = to;
        while let Some(arc) = self.last_arc(distances, child, amount) {
            arcs.push(arc);
            child = arc.0;
        }
        arcs.reverse();
        arcs
    }

    /// The arc by which a way reaches a host, and which carries `amount` more from now on
    fn last_arc(&mut self, distances: &[Distance], child: usize, amount: u128) -> Option<(usize, usize)> {
        let network = self.network;
        let before = |&parent: &usize| {
            let (latency, hops) = distances[parent];
            (latency.saturating_add(network.latency(parent, child)), hops + 1) == distances[child]
        };
        let load = |&parent: &usize| {
            let load = self.loads.get(&(parent, child)).copied().unwrap_or_default() + amount;
            Ratio::new(load, network.capacity(parent, child))
        };
        let parents = network.neighbours(child).filter(|&parent| network.capacity(parent, child) > 0);
        let parent = parents.filter(before).min_by_key(|parent| load(parent).unwrap_or(Ratio::ZERO))?;
        *self.loads.entry((parent, child)).or_default() += amount;
        Some((parent, child))
    }
}

/// Seconds per byte of a payload of `total` of which each arc carries so much; `None` if it does not fit
pub(crate) fn slowest(network: &Network, loads: &Loads, total: u128) -> Option<Ratio> {
    let parts = loads.iter().map(|(&arc, &load)| Some((arc, Ratio::new(load, total)?)));
    network.slowest(&parts.collect::<Option<_>>()?)
}

impl Shortest<'_> {
    /// As [`slowest`], for all ways together
    pub(crate) fn seconds(&self, total: u128) -> Option<Ratio> {
        slowest(self.network, &self.loads, total)
    }
}
