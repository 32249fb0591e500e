//! The linear program of trees that carry an all_reduce, with a row for each pair of hosts and each host with a cap

use std::collections::{BTreeMap, BTreeSet};

use crate::rounding::{FINE, common_denominator};
use crate::simplex::{Column, Simplex};
use crate::tree::SpanningTree;
use crate::{Cabling, Price, Ratio, Resource, Tree};

/// Up to so many other hosts, all sets of relays are tried for each tree.
const ALL_RELAYS: usize = 8;
/// Gains below this are taken for rounding errors.
const TOLERANCE: f64 = 1e-9;
/// Trees after which the method ends with the best that it has
const MAX_STEPS: usize = 5_000;

/// What pairs of hosts carry in both directions, and what hosts send and receive, in bytes per second
pub(crate) struct Rates {
    /// From the smaller index to the larger one, and back
    pairs: BTreeMap<(usize, usize), [u128; 2]>,
    /// By host, what all of its cables carry
    whole: Vec<[u128; 2]>,
    /// By host, where that is more
    caps: Vec<[Option<u128>; 2]>,
}

impl Rates {
    pub(crate) fn of(cabling: &Cabling) -> Self {
        let mut pairs = BTreeMap::new();
        let mut whole = vec![[0; 2]; cabling.hosts().len()];
        for cable in cabling.cables() {
            let ([mut left, mut right], [mut there, mut back]) = (cable.ends, cable.rates.map(u128::from));
            if left > right {
                ((left, right), (there, back)) = ((right, left), (back, there));
            }
            for (host, rates) in [(left, [there, back]), (right, [back, there])] {
                (0..2).for_each(|side| whole[host][side] += rates[side]);
            }
            let pair = pairs.entry((left, right)).or_insert([0; 2]);
            *pair = [pair[0] + there, pair[1] + back];
        }
        let cap = |(host, whole): (usize, &[u128; 2])| {
            let cap = cabling.cap(host);
            let below = |cap: Option<u64>, whole| cap.map(u128::from).filter(|cap| *cap < whole);
            [below(cap.send, whole[0]), below(cap.receive, whole[1])]
        };
        let caps = whole.iter().enumerate().map(cap).collect();
        Self { pairs, whole, caps }
    }

    /// Whether some host sends or receives less than all its cables carry
    pub(crate) fn has_caps(&self) -> bool {
        self.caps.iter().flatten().any(Option::is_some)
    }

    /// Seconds per byte over the slowest cable, or the slowest host, each tree being used in both directions
    pub(crate) fn slowest(&self, trees: &[Tree]) -> Option<Ratio> {
        let mut of_pairs: BTreeMap<(usize, usize), Ratio> = BTreeMap::new();
        let mut of_hosts = vec![Ratio::ZERO; self.whole.len()];
        for tree in trees {
            for &(parent, child) in &tree.arcs {
                let load = of_pairs.entry((parent.min(child), parent.max(child))).or_insert(Ratio::ZERO);
                *load = load.checked_add(tree.share)?;
                for host in [parent, child] {
                    of_hosts[host] = of_hosts[host].checked_add(tree.share)?;
                }
            }
        }
        let pairs = of_pairs.into_iter().filter_map(|(pair, load)| Some((load, *self.pairs.get(&pair)?)));
        let pairs = pairs.map(|(load, [there, back])| (load, there.min(back)));
        let hosts = of_hosts.into_iter().zip(&self.caps);
        let hosts = hosts.filter_map(|(load, cap)| Some((load, cap.iter().flatten().min().copied()?)));
        pairs.chain(hosts).try_fold(Ratio::ZERO, |slowest, (load, rate)| {
            Some(slowest.max(load.checked_mul(Ratio::new(1, rate)?)?))
        })
    }

    /// Prices for both directions of those of a packing, rounded coarsely and finely
    ///
    /// The price of a host that sends or receives without a cap is that of its cables in this direction.
    pub(crate) fn rounded(&self, packing: &Packing<'_>, prices: &[f64]) -> Vec<Vec<Price>> {
        let highest = prices.iter().copied().fold(0.0, f64::max);
        let relative: Vec<f64> = prices.iter().map(|price| (price / highest).max(0.0)).collect();
        let exact = common_denominator(&relative).map(|(whole, _)| whole);
        let fine = relative.iter().map(|price| (price * FINE as f64).round() as u64).collect();
        exact.into_iter().chain([fine]).map(|whole| self.both_ways(packing, &whole)).collect()
    }

    fn both_ways(&self, packing: &Packing<'_>, prices: &[u64]) -> Vec<Price> {
        let of_host = |host: usize| packing.rows.get(&host).map_or(0, |&row| prices[row]);
        let uncapped =
            |side: usize, host: usize| if self.caps[host][side].is_none() { of_host(host) } else { 0 };
        let mut both = Vec::new();
        for (&(left, right), price) in packing.edges.iter().zip(prices) {
            for (from, to) in [(left, right), (right, left)] {
                let price = price + uncapped(0, from) + uncapped(1, to);
                both.push(Price { of: Resource::Cables { from, to }, price });
            }
        }
        for (host, caps) in self.caps.iter().enumerate() {
            let of = [Resource::Send { host }, Resource::Receive { host }];
            let capped = of.into_iter().zip(caps).filter(|(_, cap)| cap.is_some());
            both.extend(capped.map(|(of, _)| Price { of, price: of_host(host) }));
        }
        both.retain(|price| price.price > 0);
        both
    }

    /// What all that has a price carries in a second costs
    pub(crate) fn whole(&self, prices: &[Price]) -> Option<u128> {
        prices.iter().try_fold(0_u128, |sum, &Price { of, price }| {
            let capacity = match of {
                Resource::Cables { from, to } => {
                    self.pairs.get(&(from.min(to), from.max(to)))?[usize::from(from > to)]
                }
                Resource::Receive { host } => self.caps[host][1]?,
                Resource::Send { host } => self.caps[host][0]?,
            };
            sum.checked_add(capacity.checked_mul(price.into())?)
        })
    }

    /// What an element of an all_reduce among these hosts costs at least: by the pairs of a minimum spanning tree that join parts with members
    pub(crate) fn joined(&self, prices: &[Price], members: &[usize]) -> u128 {
        let given: BTreeMap<_, _> = prices.iter().map(|price| (price.of, u128::from(price.price))).collect();
        let price = |of: Resource| given.get(&of).copied().unwrap_or_default();
        let cost = |from, to| {
            price(Resource::Cables { from, to })
                + price(Resource::Send { host: from })
                + price(Resource::Receive { host: to })
        };
        let costs =
            self.pairs.keys().map(|&(left, right)| (cost(left, right).min(cost(right, left)), left, right));
        let mut costs: Vec<_> = costs.collect();
        costs.sort_unstable();
        let mut parts: Vec<_> = (0..self.whole.len()).map(|host| BTreeSet::from([host])).collect();
        let mut sum = 0;
        for (cost, left, right) in costs {
            let [one, other] = [left, right].map(|host| parts.iter().position(|part| part.contains(&host)));
            let (Some(one), Some(other)) = (one, other) else { continue };
            if one == other {
                continue;
            }
            let has_members = |part: &BTreeSet<usize>| members.iter().any(|member| part.contains(member));
            if has_members(&parts[one]) && has_members(&parts[other]) {
                sum += 2 * cost;
            }
            let merged = std::mem::take(&mut parts[other]);
            parts[one].extend(merged);
        }
        sum
    }
}

/// The largest sum of weights of trees that span the members, with at most the rate of each pair and of each host with a cap
pub(crate) struct Packing<'a> {
    members: &'a [usize],
    relays: Vec<usize>,
    edges: Vec<(usize, usize)>,
    /// By host with a cap, the row after those of the edges
    rows: BTreeMap<usize, usize>,
    limits: Vec<f64>,
}

impl<'a> Packing<'a> {
    /// A packing into rates that `both` makes of those of both directions
    pub(crate) fn new(rates: &Rates, members: &'a [usize], both: fn(u128, u128) -> u128) -> Self {
        let hosts = rates.whole.len();
        let (edges, mut limits): (Vec<_>, Vec<_>) =
            rates.pairs.iter().map(|(pair, [there, back])| (*pair, both(*there, *back))).unzip();
        let largest = limits.iter().copied().max().unwrap_or(1) as f64;
        let mut rows = BTreeMap::new();
        for (host, (caps, whole)) in rates.caps.iter().zip(&rates.whole).enumerate() {
            if caps.iter().any(Option::is_some) {
                rows.insert(host, limits.len());
                limits.push(both(caps[0].unwrap_or(whole[0]), caps[1].unwrap_or(whole[1])));
            }
        }
        let limits = limits.into_iter().map(|rate| rate as f64 / largest).collect();
        let relays = (0..hosts).filter(|host| !members.contains(host)).collect();
        Self { members, relays, edges, rows, limits }
    }

    /// Column generation: the cheapest tree at the prices enters, until none costs less than it is worth
    ///
    /// The trees with their weights, and the prices of the edges and then of the hosts with caps.
    pub(crate) fn solve(&self) -> (Vec<(SpanningTree, f64)>, Vec<f64>) {
        let mut simplex = Simplex::new(&self.limits);
        // By column; those of slacks have none.
        let mut trees: Vec<Option<SpanningTree>> = Vec::new();
        for _ in 0..MAX_STEPS {
            let prices = simplex.prices();
            let slack = (0..prices.len()).find(|&edge| prices[edge] < -TOLERANCE);
            let (entries, tree) = match slack {
                Some(edge) => (vec![edge], None),
                None => match self.cheapest(&prices) {
                    Some((cost, tree)) if cost < 1.0 - TOLERANCE => (self.entries(&tree), Some(tree)),
                    _ => break,
                },
            };
            let worth = if tree.is_some() { 1.0 } else { 0.0 };
            let entries = entries.into_iter().map(|edge| (edge, 1.0)).collect();
            if simplex.enter(Column { entries, worth }).is_none() {
                break;
            }
            trees.push(tree.map(|edges| SpanningTree::new(edges.into_iter().map(|edge| self.edges[edge]))));
        }
        let values = simplex.values(&self.limits).into_iter().filter(|(_, value)| *value > TOLERANCE);
        let trees = values.filter_map(|(column, value)| Some((trees[column].clone()?, value))).collect();
        (trees, simplex.prices())
    }

    /// The rows of a tree: its edges, and hosts with caps, once for each edge at them
    fn entries(&self, tree: &[usize]) -> Vec<usize> {
        let hosts = tree.iter().flat_map(|&edge| <[usize; 2]>::from(self.edges[edge]));
        tree.iter().copied().chain(hosts.filter_map(|host| self.rows.get(&host).copied())).collect()
    }

    /// The price and the edges of the cheapest tree that spans the members: a minimum spanning tree for each set of relays
    fn cheapest(&self, prices: &[f64]) -> Option<(f64, Vec<usize>)> {
        let of_host = |host: usize| self.rows.get(&host).map_or(0.0, |&row| prices[row]);
        let cost =
            |(edge, &(left, right)): (usize, &(usize, usize))| prices[edge] + of_host(left) + of_host(right);
        let prices: Vec<f64> = self.edges.iter().enumerate().map(cost).collect();
        let mut order: Vec<_> = (0..self.edges.len()).collect();
        order.sort_by(|&left, &right| prices[left].total_cmp(&prices[right]));
        let sets: Vec<u64> = match self.relays.len() <= ALL_RELAYS {
            true => (0..1 << self.relays.len()).collect(),
            false => vec![0, u64::MAX],
        };
        let trees = sets.into_iter().filter_map(|set| self.spanning(&order, set));
        let costs = trees.map(|tree| (tree.iter().map(|&edge| prices[edge].max(0.0)).sum::<f64>(), tree));
        costs.min_by(|(left, a), (right, b)| left.total_cmp(right).then(a.len().cmp(&b.len())))
    }

    /// The tree of the first possible edges in this order among the members and a set of relays, without useless relays
    fn spanning(&self, order: &[usize], set: u64) -> Option<Vec<usize>> {
        let hosts = self.members.len() + self.relays.len();
        let member = |host: usize| self.members.contains(&host);
        let mut used: Vec<bool> = (0..hosts).map(member).collect();
        self.relays.iter().enumerate().for_each(|(bit, &relay)| used[relay] = set >> bit & 1 == 1);
        let mut blocks: Vec<usize> = (0..hosts).collect();
        let mut tree = Vec::new();
        for &edge in order {
            let (left, right) = self.edges[edge];
            let (kept, merged) = (blocks[left], blocks[right]);
            if used[left] && used[right] && kept != merged {
                blocks.iter_mut().filter(|block| **block == merged).for_each(|block| *block = kept);
                tree.push(edge);
            }
        }
        let touches = |edge: usize, host: usize| self.edges[edge].0 == host || self.edges[edge].1 == host;
        while let Some(&useless) =
            self.relays.iter().find(|&&relay| tree.iter().filter(|&&edge| touches(edge, relay)).count() == 1)
        {
            tree.retain(|&edge| !touches(edge, useless));
        }
        let whole = self.members.iter().all(|&member| blocks[member] == blocks[self.members[0]]);
        whole.then_some(tree)
    }
}
