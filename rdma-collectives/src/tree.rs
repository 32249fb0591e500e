use std::collections::BTreeSet;

use crate::Ratio;

/// A tree of hosts, and the share of the payload that goes over it
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Tree {
    /// The part of the payload, of which the parts of all trees of the plan are disjoint
    pub share: Ratio,
    /// The host from which the arcs lead away
    pub root: usize,
    /// Parent and child, as indices of hosts; each arc comes after the one into its parent
    ///
    /// Which way data goes over an arc depends on the [`Operation`](crate::Operation).
    pub arcs: Vec<(usize, usize)>,
}

/// The most trees of a plan that a group carries out: a message has 16 bits for the number of a tree
pub(crate) const MAX_TREES: usize = u16::MAX as usize;

/// Latency and hops, compared in this order
pub(crate) type Distance = (u64, u64);

/// An undirected tree, for which any of its hosts can be the root
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) struct SpanningTree {
    /// Sorted, the smaller index of each first
    edges: Vec<(usize, usize)>,
}

impl SpanningTree {
    pub(crate) fn new(arcs: impl IntoIterator<Item = (usize, usize)>) -> Self {
        let mut edges: Vec<_> = arcs.into_iter().map(|(a, b)| (a.min(b), a.max(b))).collect();
        edges.sort_unstable();
        Self { edges }
    }

    pub(crate) fn edges(&self) -> &[(usize, usize)] {
        &self.edges
    }

    /// The hosts that it has
    pub(crate) fn hosts(&self) -> BTreeSet<usize> {
        self.edges.iter().flat_map(|&(left, right)| [left, right]).collect()
    }

    /// The arcs away from a root, and the distance of the host that is furthest from it
    pub(crate) fn rooted(
        &self,
        root: usize,
        latency: impl Fn(usize, usize) -> u64,
    ) -> (Vec<(usize, usize)>, Distance) {
        let mut arcs = Vec::with_capacity(self.edges.len());
        let mut height = (0, 0);
        let mut waiting: Vec<(usize, usize, Distance)> = vec![(root, root, (0, 0))];
        while let Some((host, parent, distance)) = waiting.pop() {
            height = height.max(distance);
            for &(a, b) in self.edges.iter().filter(|&&(a, b)| a == host || b == host) {
                let child = if a == host { b } else { a };
                if child != parent {
                    arcs.push((host, child));
                    // Results go down and partial sums up: the slower direction counts.
                    let slower = latency(host, child).max(latency(child, host));
                    waiting.push((child, host, (distance.0.saturating_add(slower), distance.1 + 1)));
                }
            }
        }
        (arcs, height)
    }
}
