//! The bound that prices prove

use std::collections::{BTreeMap, BTreeSet};

use super::{Check, VerifyError, quotient};
use crate::{Operation, Price, Ratio, Resource};

/// By sender and receiver, what a byte costs from a host to a neighbour
type Costs = Vec<Vec<Option<u128>>>;

impl Check<'_> {
    /// What the cheapest ways of all data cost, divided by the price of all that cables and hosts carry in a second
    pub(super) fn prices(&self, prices: &[Price], total: u128) -> Result<Ratio, VerifyError> {
        let overflow = || VerifyError::Overflow;
        let mut whole = 0_u128;
        let mut given: BTreeMap<Resource, u128> = BTreeMap::new();
        for &Price { of, price } in prices {
            let capacity = match of {
                Resource::Cables { from, to } => self.rates.get(&(from, to)).copied(),
                Resource::Receive { host } => self.cabling.cap(host).receive.map(u128::from),
                Resource::Send { host } => self.cabling.cap(host).send.map(u128::from),
            };
            let (Some(capacity), None) = (capacity, given.insert(of, price.into())) else {
                return Err(VerifyError::Certificate {
                    reason: "a price is for hosts without a cable, for a host without a cap, or there twice",
                });
            };
            let cost = u128::from(price).checked_mul(capacity);
            whole = cost.and_then(|cost| whole.checked_add(cost)).ok_or_else(overflow)?;
        }
        let price = |of: Resource| given.get(&of).copied().unwrap_or_default();
        let mut costs = vec![vec![None; self.hosts]; self.hosts];
        for &(from, to) in self.rates.keys() {
            // A sum of three prices of 64 bits.
            let ends = price(Resource::Send { host: from }) + price(Resource::Receive { host: to });
            costs[from][to] = Some(price(Resource::Cables { from, to }) + ends);
        }
        let mut spent = 0_u128;
        for (amount, cost) in self.cheapest(&costs) {
            let cost = cost.unwrap_or_default().checked_mul(amount);
            spent = cost.and_then(|cost| spent.checked_add(cost)).ok_or_else(overflow)?;
        }
        quotient(spent, total, whole)
    }

    /// For each group of trees, what it has to carry, and what the cheapest tree costs
    fn cheapest(&self, costs: &Costs) -> Vec<(u128, Option<u128>)> {
        let reversed =
            || (0..self.hosts).map(|from| (0..self.hosts).map(|to| costs[to][from]).collect()).collect();
        let along: Costs = match self.directions() {
            (false, true) => reversed(),
            _ => costs.clone(),
        };
        let ways = if self.paths() { cheapest_paths(along.clone()) } else { Costs::new() };
        let cost = |group| match group {
            (Some(root), Some(end)) => {
                let ways: &Vec<Option<u128>> = &ways[root];
                ways[end]
            }
            (Some(root), None) => cheapest_arborescence(&along, root),
            _ => {
                let joined = self.joined(costs);
                match self.plan.operation {
                    // The data of a host goes to all others, and those of all others to it.
                    Operation::AllReduce => {
                        let reversed = reversed();
                        let trees = (0..self.hosts).flat_map(|root| {
                            [costs, &reversed].map(|costs| cheapest_arborescence(costs, root))
                        });
                        trees.fold(joined, Ord::max)
                    }
                    _ => joined,
                }
            }
        };
        let demands = self.demands().into_iter().filter(|(_, amount)| *amount > 0);
        demands.map(|(group, amount)| (amount, cost(group))).collect()
    }

    /// What each element of an all_reduce costs at least, if both directions of a pair cost no more than the cheaper one
    ///
    /// For each price, the hosts that cheaper pairs join are a partition, between whose parts with members an element crosses twice for each part
    /// but one. Added up over all prices, these are the pairs of a minimum spanning tree that join two parts with members.
    fn joined(&self, costs: &Costs) -> Option<u128> {
        let mut pairs: Vec<_> = self.rates.keys().filter(|(from, to)| from < to).collect();
        pairs.sort_by_key(|(from, to)| costs[*from][*to].min(costs[*to][*from]));
        let mut parts: Vec<usize> = (0..self.hosts).collect();
        let mut with_members: BTreeSet<usize> =
            (0..self.hosts).filter(|&host| self.takes_part(host)).collect();
        let mut sum = 0;
        for &(from, to) in pairs {
            let [kept, merged] = [parts[from], parts[to]];
            if kept == merged {
                continue;
            }
            match (with_members.contains(&kept), with_members.remove(&merged)) {
                (true, true) => sum += 2 * costs[from][to].min(costs[to][from]).unwrap_or_default(),
                (false, true) => drop(with_members.insert(kept)),
                _ => (),
            }
            parts.iter_mut().filter(|part| **part == merged).for_each(|part| *part = kept);
        }
        (with_members.len() == 1).then_some(sum)
    }
}

fn cheapest_paths(mut costs: Costs) -> Costs {
    let hosts = costs.len();
    (0..hosts).for_each(|host| costs[host][host] = Some(0));
    for via in 0..hosts {
        for from in 0..hosts {
            for to in 0..hosts {
                // Sums of at most 1,024 costs of 66 bits.
                let path = costs[from][via].zip(costs[via][to]).map(|(first, second)| first + second);
                costs[from][to] = match (costs[from][to], path) {
                    (Some(old), Some(new)) => Some(old.min(new)),
                    (old, new) => old.or(new),
                };
            }
        }
    }
    costs
}

/// The cheapest tree away from a host to all others (Chu and Liu, Edmonds): the cheapest arcs into all nodes, circles of which become one node
fn cheapest_arborescence(costs: &Costs, root: usize) -> Option<u128> {
    let mut arcs: Vec<(usize, usize, u128)> = Vec::new();
    for (from, row) in costs.iter().enumerate() {
        let row = row.iter().enumerate().filter(|(to, _)| *to != root && *to != from);
        arcs.extend(row.filter_map(|(to, cost)| Some((from, to, (*cost)?))));
    }
    let (mut nodes, mut root) = (costs.len(), root);
    let mut sum = 0;
    loop {
        let mut into: Vec<Option<(u128, usize)>> = vec![None; nodes];
        for &(from, to, cost) in &arcs {
            into[to] = Some(into[to].map_or((cost, from), |cheapest| cheapest.min((cost, from))));
        }
        let mut contracted: Vec<Option<usize>> = vec![None; nodes];
        let mut count = 0;
        for node in (0..nodes).filter(|&node| node != root) {
            sum += into[node]?.0;
        }
        for start in 0..nodes {
            // Back from each node, until the root or a node that was seen.
            let mut seen = BTreeSet::new();
            let mut node = start;
            while node != root && contracted[node].is_none() && seen.insert(node) {
                node = into[node]?.1;
            }
            if node != root && contracted[node].is_none() {
                let first = node;
                while contracted[node].is_none() {
                    contracted[node] = Some(count);
                    node = into[node]?.1;
                }
                debug_assert_eq!(node, first, "the nodes are a circle");
                count += 1;
            }
        }
        if count == 0 {
            return Some(sum);
        }
        for node in &mut contracted {
            node.get_or_insert_with(|| {
                count += 1;
                count - 1
            });
        }
        let number = |node: usize| contracted[node].unwrap_or_default();
        let remaining = arcs.iter().filter(|(from, to, _)| number(*from) != number(*to));
        let cheaper = remaining.map(|&(from, to, cost)| {
            (number(from), number(to), cost - into[to].map_or(0, |(cheapest, _)| cheapest))
        });
        arcs = cheaper.filter(|(_, to, _)| *to != number(root)).collect();
        (nodes, root) = (count, number(root));
    }
}
