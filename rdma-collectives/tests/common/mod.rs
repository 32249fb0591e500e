//! What the tests of plans share: cablings by the hundred, and oracles that try everything
#![allow(dead_code, reason = "each test uses some of it")]

use std::collections::BTreeSet;

use rdma_collectives::{Cable, Cabling, Ratio};

/// The pairs of hosts of each connected graph with 3 to `most` nodes, one of each shape; 994 for 7
pub(crate) fn connected_graphs(most: usize) -> Vec<(usize, Vec<(usize, usize)>)> {
    let mut found = Vec::new();
    let mut all: BTreeSet<Vec<u32>> = BTreeSet::from([vec![0]]);
    for nodes in 2..=most {
        let mut larger = BTreeSet::new();
        for graph in &all {
            for neighbours in 0..1_u32 << (nodes - 1) {
                let mut rows = graph.clone();
                rows.push(neighbours);
                (0..nodes - 1).for_each(|node| rows[node] |= (neighbours >> node & 1) << (nodes - 1));
                larger.insert(canonical(&rows));
            }
        }
        all = larger;
        for rows in all.iter().filter(|_| nodes >= 3) {
            let pairs = (0..nodes).flat_map(|a| (a + 1..nodes).map(move |b| (a, b)));
            let edges: Vec<_> = pairs.filter(|&(a, b)| rows[a] >> b & 1 == 1).collect();
            if Cabling::of_pairs(nodes, edges.iter().copied(), 1).components().len() == 1 {
                found.push((nodes, edges));
            }
        }
    }
    found
}

/// The smallest of all orders of the nodes in which a simple invariant ascends
fn canonical(rows: &[u32]) -> Vec<u32> {
    let degree = |node: usize| rows[node].count_ones();
    let invariant = |node: usize| {
        let near = (0..rows.len()).filter(|other| rows[node] >> other & 1 == 1);
        let mut degrees: Vec<_> = near.clone().map(degree).collect();
        degrees.sort_unstable();
        let triangles: u32 = near.map(|other| (rows[node] & rows[other]).count_ones()).sum();
        (degree(node), triangles, degrees)
    };
    let invariants: Vec<_> = (0..rows.len()).map(invariant).collect();
    let mut sorted = invariants.clone();
    sorted.sort();
    let mut best = None;
    place(rows, &invariants, &sorted, &mut Vec::new(), &mut best);
    best.expect("an order")
}

fn place<I: PartialEq>(
    rows: &[u32],
    invariants: &[I],
    sorted: &[I],
    order: &mut Vec<usize>,
    best: &mut Option<Vec<u32>>,
) {
    if order.len() == rows.len() {
        let bit = |a: usize, b: usize| rows[order[a]] >> order[b] & 1;
        let renamed: Vec<u32> =
            (0..rows.len()).map(|a| (0..rows.len()).map(|b| bit(a, b) << b).sum()).collect();
        if best.as_ref().is_none_or(|best| renamed < *best) {
            *best = Some(renamed);
        }
        return;
    }
    for node in 0..rows.len() {
        if !order.contains(&node) && invariants[node] == sorted[order.len()] {
            order.push(node);
            place(rows, invariants, sorted, order, best);
            order.pop();
        }
    }
}

/// Calls `visit` with each partition of so many hosts: the part of each
pub(crate) fn partitions(hosts: usize, visit: &mut impl FnMut(&[usize], usize)) {
    fn extend(parts: &mut Vec<usize>, count: usize, hosts: usize, visit: &mut impl FnMut(&[usize], usize)) {
        if parts.len() == hosts {
            return visit(parts, count);
        }
        for part in 0..=count {
            parts.push(part);
            extend(parts, count.max(part + 1), hosts, visit);
            parts.pop();
        }
    }
    extend(&mut Vec::new(), 0, hosts, visit);
}

/// The largest bound of an all_reduce over all partitions, in seconds per byte
pub(crate) fn best_partition_bound(cabling: &Cabling) -> Ratio {
    let mut best = Ratio::ZERO;
    partitions(cabling.hosts().len(), &mut |parts, count| {
        let crossing = cabling.cables().iter().filter(|cable| parts[cable.ends[0]] != parts[cable.ends[1]]);
        let rate: u128 = crossing.map(|cable| u128::from(cable.rates[0]) + u128::from(cable.rates[1])).sum();
        if count > 1 {
            best = best.max(Ratio::new(2 * (count as u128 - 1), rate).expect("a connected cabling"));
        }
    });
    best
}

/// A reproducible source of numbers (SplitMix64)
pub(crate) struct Numbers(pub(crate) u64);

impl Numbers {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number from 0 to `end - 1`
    pub(crate) fn below(&mut self, end: usize) -> usize {
        (self.next() % end as u64) as usize
    }
}

/// A connected cabling of 2 to `most` hosts: a random tree, further cables, also parallel ones, and rates from `rates`
pub(crate) fn random_cabling(numbers: &mut Numbers, most: usize, rates: &[u64]) -> Cabling {
    let hosts = 2 + numbers.below(most - 1);
    let mut pairs: Vec<_> = (1..hosts).map(|host| (numbers.below(host), host)).collect();
    for _ in 0..numbers.below(2 * hosts) {
        let left = numbers.below(hosts);
        pairs.push((left, (left + 1 + numbers.below(hosts - 1)) % hosts));
    }
    let cables: Vec<_> =
        pairs.into_iter().map(|(a, b)| Cable::new(a, b, rates[numbers.below(rates.len())])).collect();
    Cabling::new((0..hosts).map(|host| format!("m{host}")), cables).expect("a cabling")
}
