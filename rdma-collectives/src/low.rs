use std::collections::BTreeMap;

use crate::Ratio;
use crate::network::Network;
use crate::rounding::exact_shares;
use crate::simplex::{Column, Simplex};
use crate::strength::Strength;
use crate::tree::{Distance, SpanningTree};

/// Above so many hosts, trees are not searched: the linear program takes long.
const MOST_HOSTS: usize = 32;
/// Steps after which the search gives up
const MAX_STEPS: usize = 3_000;
/// Gains below this are taken for rounding errors.
const TOLERANCE: f64 = 1e-9;

/// Trees of shortest paths that together reach the strength of a network, if there are some with less height than `below`
///
/// A linear program in floats packs shortest-path trees of the most central hosts; each host takes its cheapest parent, so the
/// cheapest tree of a root is easy to find. The result counts only if its shares are simple fractions that are exactly
/// optimal, which is checked in whole numbers.
pub(crate) fn low_trees(
    network: &Network,
    strength: &Strength,
    below: Distance,
) -> Option<Vec<(SpanningTree, Ratio)>> {
    if network.hosts() > MOST_HOSTS {
        return None;
    }
    let eccentricities = network.eccentricities();
    let mut heights: Vec<_> = eccentricities.iter().copied().filter(|height| *height < below).collect();
    heights.sort_unstable();
    heights.dedup();
    heights.into_iter().find_map(|height| {
        let roots = (0..network.hosts()).filter(|&root| eccentricities[root] <= height);
        Search::new(network, strength, roots.collect()).solve()
    })
}

struct Search<'a> {
    network: &'a Network,
    strength: &'a Strength,
    edges: BTreeMap<(usize, usize), usize>,
    /// By root and host, the neighbours one step nearer to the root
    parents: Vec<Vec<Vec<usize>>>,
}

impl<'a> Search<'a> {
    fn new(network: &'a Network, strength: &'a Strength, roots: Vec<usize>) -> Self {
        let distances = network.distances();
        let edges = network.edges().zip(0..).collect();
        let nearer = |root: usize, host: usize| {
            let before = |&parent: &usize| {
                let (latency, hops): Distance = distances[root][parent];
                let step = network.latency(parent, host);
                network.capacity(parent, host) > 0
                    && (latency.saturating_add(step), hops + 1) == distances[root][host]
            };
            (0..network.hosts()).filter(before).collect()
        };
        let parents =
            roots.into_iter().map(|root| (0..network.hosts()).map(|host| nearer(root, host)).collect());
        Self { network, strength, edges, parents: parents.collect() }
    }

    fn solve(&self) -> Option<Vec<(SpanningTree, Ratio)>> {
        let unit = self.strength.scale as f64 / self.strength.trees as f64;
        // Of the strength, so that all weights together are 1 at most.
        let limits: Vec<f64> = self
            .edges
            .keys()
            .map(|&(left, right)| self.network.capacity(left, right) as f64 * unit)
            .collect();
        let mut simplex = Simplex::new(&limits);
        let mut trees: Vec<Option<SpanningTree>> = Vec::new();
        for _ in 0..MAX_STEPS {
            let prices = simplex.prices();
            if let Some(edge) = (0..prices.len()).find(|&edge| prices[edge] < -TOLERANCE) {
                simplex.enter(Column { entries: vec![(edge, 1.0)], worth: 0.0 })?;
                trees.push(None);
                continue;
            }
            let candidates = self.parents.iter().map(|parents| self.cheapest(parents, &prices));
            let (cost, tree) = candidates.min_by(|(left, _), (right, _)| left.total_cmp(right))?;
            if cost > 1.0 - TOLERANCE {
                let values = simplex.values(&limits).into_iter().filter(|(_, value)| *value > TOLERANCE);
                let packed = values.filter_map(|(column, value)| Some((trees[column].clone()?, value)));
                return self.exact(packed.collect());
            }
            simplex.enter(Column {
                entries: tree.iter().map(|&arc| (self.edge(arc), 1.0)).collect(),
                worth: 1.0,
            })?;
            trees.push(Some(SpanningTree::new(tree)));
        }
        None
    }

    fn edge(&self, (from, to): (usize, usize)) -> usize {
        self.edges.get(&(from.min(to), from.max(to))).copied().unwrap_or_default()
    }

    fn cheapest(&self, parents: &[Vec<usize>], prices: &[f64]) -> (f64, Vec<(usize, usize)>) {
        let price = |arc| prices[self.edge(arc)];
        let arcs = parents.iter().enumerate().filter_map(|(host, parents)| {
            let arcs = parents.iter().map(|&parent| (parent, host));
            arcs.min_by(|&left, &right| price(left).total_cmp(&price(right)))
        });
        let arcs: Vec<_> = arcs.collect();
        (arcs.iter().map(|&arc| price(arc)).sum(), arcs)
    }

    /// The trees with exact shares, if these fit into the capacities at the strength
    fn exact(&self, packed: Vec<(SpanningTree, f64)>) -> Option<Vec<(SpanningTree, Ratio)>> {
        let (trees, weights): (Vec<_>, Vec<f64>) = packed.into_iter().unzip();
        if (weights.iter().sum::<f64>() - 1.0).abs() > 1e-6 {
            return None;
        }
        let shares = exact_shares(&weights)?;
        let mut loads = vec![Ratio::ZERO; self.edges.len()];
        for (tree, share) in trees.iter().zip(&shares) {
            for &edge in tree.edges() {
                let load = &mut loads[self.edge(edge)];
                *load = load.checked_add(*share)?;
            }
        }
        let fits = self.edges.iter().all(|(&(left, right), &edge)| {
            let capacity = self.network.capacity(left, right) * self.strength.scale;
            Ratio::new(capacity, self.strength.trees).is_some_and(|limit| loads[edge] <= limit)
        });
        fits.then(|| trees.into_iter().zip(shares).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Cabling;

    /// Floats may be wrong: catches shares that are taken without adding up the loads.
    #[test]
    fn trees_that_overload_a_cable_are_not_taken() {
        let network = Network::of(&Cabling::mesh(3, 1)).unwrap();
        let strength = Strength::of(&network, &[(0, 1), (0, 2), (1, 2)]);
        let search = Search::new(&network, &strength, vec![0, 1, 2]);
        let star =
            |centre| SpanningTree::new((0..3).filter(|&host| host != centre).map(|host| (centre, host)));
        assert_eq!(search.exact(vec![(star(0), 1.0)]), None);
        let all: Vec<_> = (0..3).map(|centre| (star(centre), 1.0 / 3.0)).collect();
        assert_eq!(search.exact(all).map(|trees| trees.len()), Some(3));
    }
}
