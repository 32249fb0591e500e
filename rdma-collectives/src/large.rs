//! Plans for more hosts than the exact methods are fast for
//!
//! Bounds come from the cuts around single hosts and from partitions that packing trees has found, plans from a few spanning trees, or from
//! shortest ways. A plan says itself how far it is from its bound.

use std::collections::BTreeMap;

use crate::forests::Forests;
use crate::network::Network;
use crate::shortest::{Shortest, slowest};
use crate::tree::Distance;
use crate::{Cabling, Certificate, Operation, Plan, PlanError, Ratio, Tree};

/// Up to how many hosts plans are the best ones; above, they say how far from it they may be.
pub const MAX_EXACT_HOSTS: usize = 64;

/// Into how many copies, one for each tree, the capacity of a cable is divided
const DIVISIONS: [u128; 4] = [1, 2, 3, 4];
/// All trees together have no more arcs.
const MAX_ARCS: usize = 1 << 14;

/// The plan of any operation but all_to_all and all_reduce among some hosts
pub(crate) fn plan(cabling: &Cabling, operation: Operation) -> Result<Plan, PlanError> {
    let network = Network::of(cabling)?;
    let reversed;
    let along = match operation {
        Operation::Gather { .. } | Operation::Reduce { .. } | Operation::ReduceScatter { .. } => {
            reversed = network.reversed();
            &reversed
        }
        _ => &network,
    };
    let (bound, certificate, time, trees) = match &operation {
        Operation::AllReduce | Operation::Broadcast { .. } | Operation::Reduce { .. } => {
            let packing = Packing::of(&network)?;
            let (bound, certificate) = match &operation {
                Operation::AllReduce => (packing.bound, partition(&packing.parts)),
                _ => by_single_hosts(&network, &operation)?,
            };
            let (mut loads, mut trees) = (BTreeMap::new(), Vec::new());
            let share = Ratio::new(1, packing.trees.len() as u128).ok_or(PlanError::Overflow)?;
            for edges in &packing.trees {
                let tree = Undirected::new(&network, edges);
                let root = match operation {
                    Operation::Broadcast { root } | Operation::Reduce { root } => root,
                    _ => tree.middle(),
                };
                let arcs = tree.arcs_from(root);
                for &(parent, child) in &arcs {
                    *loads.entry((parent, child)).or_default() += 1;
                    if operation == Operation::AllReduce {
                        *loads.entry((child, parent)).or_default() += 1;
                    }
                }
                trees.push(Tree { share, root, arcs });
            }
            (bound, certificate, slowest(along, &loads, trees.len() as u128), trees)
        }
        Operation::AllGather { amounts } | Operation::ReduceScatter { amounts } => {
            let (bound, certificate) = by_single_hosts(&network, &operation)?;
            let total = total(amounts);
            let mut ways = Shortest::new(along);
            let roots = amounts.iter().copied().map(u128::from).enumerate().filter(|(_, amount)| *amount > 0);
            let tree = |(root, amount)| {
                let share = Ratio::new(amount, total).ok_or(PlanError::Overflow)?;
                Ok(Tree { share, root, arcs: ways.tree(root, amount) })
            };
            let trees: Vec<_> = roots.map(tree).collect::<Result<_, _>>()?;
            (bound, certificate, ways.seconds(total), trees)
        }
        Operation::Gather { root, amounts } | Operation::Scatter { root, amounts } => {
            let (bound, certificate) = by_single_hosts(&network, &operation)?;
            let (total, distances) = (total(amounts), along.distances_from(*root));
            let mut ways = Shortest::new(along);
            let ends = amounts.iter().copied().map(u128::from).enumerate();
            let path = |(end, amount)| {
                let share = Ratio::new(amount, total).ok_or(PlanError::Overflow)?;
                Ok(Tree { share, root: *root, arcs: ways.path(&distances, end, amount) })
            };
            let ends = ends.filter(|(end, amount)| end != root && *amount > 0);
            let trees: Vec<_> = ends.map(path).collect::<Result<_, _>>()?;
            (bound, certificate, ways.seconds(total), trees)
        }
        Operation::AllReduceAmong { .. } | Operation::AllToAll { .. } => {
            let hosts = network.hosts();
            return Err(PlanError::TooManyHosts { hosts, most: MAX_EXACT_HOSTS });
        }
    };
    let time = time.ok_or(PlanError::Overflow)?;
    Ok(Plan::new(cabling, operation, [time, bound], certificate, trees))
}

/// Seconds per byte of the payload below which no plan is, as its plan states them
pub(crate) fn bound(network: &Network, operation: &Operation) -> Result<(Ratio, Certificate), PlanError> {
    match operation {
        Operation::AllReduce => {
            let packing = Packing::of(network)?;
            Ok((packing.bound, partition(&packing.parts)))
        }
        _ => by_single_hosts(network, operation),
    }
}

fn total(amounts: &[u64]) -> u128 {
    amounts.iter().copied().map(u128::from).sum()
}

/// The slowest cut around a single host
fn by_single_hosts(network: &Network, operation: &Operation) -> Result<(Ratio, Certificate), PlanError> {
    let hosts = network.hosts();
    let (root, amounts) = match operation {
        Operation::Broadcast { root } | Operation::Reduce { root } => (Some(*root), None),
        Operation::AllGather { amounts } | Operation::ReduceScatter { amounts } => (None, Some(amounts)),
        Operation::Gather { root, amounts } | Operation::Scatter { root, amounts } => {
            (Some(*root), Some(amounts))
        }
        _ => (None, None),
    };
    if let Some(root) = root.filter(|root| *root >= hosts) {
        return Err(PlanError::Root { root, hosts });
    }
    if let Some(amounts) = amounts.filter(|amounts| amounts.len() != hosts) {
        return Err(PlanError::Amounts { amounts: amounts.len(), hosts });
    }
    let total = amounts.map_or(1, |amounts| total(amounts));
    let single = |host: usize, is_inside: bool| {
        let own = amounts.map_or(0, |amounts| u128::from(amounts[host]));
        let (inside, outside) = if is_inside { (own, total - own) } else { (total - own, own) };
        let has_root = root.is_some_and(|root| (root == host) == is_inside);
        let amount = match operation {
            Operation::AllGather { .. } => inside,
            Operation::ReduceScatter { .. } => outside,
            Operation::Broadcast { .. } => u128::from(has_root),
            Operation::Reduce { .. } => u128::from(!has_root),
            Operation::Gather { .. } if !has_root => inside,
            Operation::Scatter { .. } if has_root => outside,
            _ => 0,
        };
        let capacity =
            |other| if is_inside { network.capacity(host, other) } else { network.capacity(other, host) };
        let seconds = network.seconds(amount, network.neighbours(host).map(capacity).sum());
        Some((seconds?.checked_mul(Ratio::new(1, total)?)?, host, is_inside))
    };
    if total == 0 {
        return Err(PlanError::NothingToSend);
    }
    let cuts = (0..hosts).flat_map(|host| [single(host, true), single(host, false)]);
    let cuts = cuts.collect::<Option<Vec<_>>>().ok_or(PlanError::Overflow)?;
    let slowest = cuts.into_iter().reduce(|slowest, next| if next.0 > slowest.0 { next } else { slowest });
    let Some((bound, host, is_inside)) = slowest.filter(|(bound, ..)| *bound > Ratio::ZERO) else {
        return Err(PlanError::NothingToSend);
    };
    let inside = (0..hosts).filter(|other| (*other == host) == is_inside).collect();
    Ok((bound, Certificate::Cut(inside)))
}

fn partition(parts: &[usize]) -> Certificate {
    let mut members = BTreeMap::<_, Vec<_>>::new();
    parts.iter().enumerate().for_each(|(host, part)| members.entry(part).or_default().push(host));
    Certificate::Partition(members.into_values().collect())
}

/// Spanning trees that carry equal shares of the vector of an all_reduce
struct Packing {
    /// By tree, pairs of hosts
    trees: Vec<Vec<(usize, usize)>>,
    /// The slowest partition that was found
    bound: Ratio,
    parts: Vec<usize>,
}

impl Packing {
    /// The fastest of several packings of equal trees: those of some sizes of a copy
    fn of(network: &Network) -> Result<Self, PlanError> {
        let hosts = network.hosts();
        let capacity = |(left, right)| network.capacity(left, right).min(network.capacity(right, left));
        let centre =
            (0..hosts).min_by_key(|&host| network.distances_from(host).into_iter().max()).unwrap_or(0);
        let distances = network.distances_from(centre);
        let mut edges: Vec<_> = network.edges().collect();
        edges.sort_by_key(|&(left, right)| distances[left].min(distances[right]));
        let mut sizes: Vec<_> = edges.iter().map(|&edge| capacity(edge)).collect();
        sizes.sort_unstable();
        let apart: Vec<_> = (0..hosts).collect();
        let mut best = Self { trees: Vec::new(), bound: bound_by(network, &apart)?, parts: apart };
        let mut fastest: Option<Ratio> = None;
        let bases = [sizes[0], sizes[sizes.len() / 2]];
        for (base, parts) in bases.into_iter().flat_map(|base| DIVISIONS.map(|parts| (base, parts))) {
            let most = (MAX_ARCS / (hosts - 1)).max(1);
            let count = |edge| (capacity(edge) * parts / base).min(most as u128) as usize;
            let copies: Vec<_> =
                edges.iter().flat_map(|&edge| std::iter::repeat_n(edge, count(edge))).collect();
            let mut trees = most.min(copies.len() / (hosts - 1));
            while trees > 0 {
                let parts = match Forests::pack(hosts, copies.clone(), trees, centre) {
                    Ok(packed) => {
                        let time = time(network, &packed)?;
                        if fastest.is_none_or(|fastest| time < fastest) {
                            (fastest, best.trees) = (Some(time), packed);
                        }
                        break;
                    }
                    Err(parts) => parts,
                };
                let (count, between) = between(&parts, &copies);
                trees = (between / (count - 1)).min(trees - 1);
                let bound = bound_by(network, &parts)?;
                if bound > best.bound {
                    (best.bound, best.parts) = (bound, parts);
                }
            }
            if fastest == Some(best.bound) {
                break;
            }
        }
        Ok(best)
    }
}

/// How many parts a partition has, and how many of some pairs of hosts are between them
fn between(parts: &[usize], pairs: &[(usize, usize)]) -> (usize, usize) {
    let count = (0..parts.len()).filter(|&host| parts[host] == host).count();
    (count, pairs.iter().filter(|(left, right)| parts[*left] != parts[*right]).count())
}

/// Seconds per byte of an all_reduce that a partition proves
fn bound_by(network: &Network, parts: &[usize]) -> Result<Ratio, PlanError> {
    let (count, _) = between(parts, &[]);
    let crossing = network.arcs().filter(|(from, to)| parts[*from] != parts[*to]);
    let capacity = crossing.map(|(from, to)| network.capacity(from, to)).sum();
    network.seconds(2 * (count as u128 - 1), capacity).ok_or(PlanError::Overflow)
}

/// Seconds per byte of an all_reduce over trees with equal shares
fn time(network: &Network, trees: &[Vec<(usize, usize)>]) -> Result<Ratio, PlanError> {
    let mut loads = BTreeMap::new();
    for &(left, right) in trees.iter().flatten() {
        *loads.entry((left, right)).or_default() += 1;
        *loads.entry((right, left)).or_default() += 1;
    }
    slowest(network, &loads, trees.len() as u128).ok_or(PlanError::Overflow)
}

/// A tree whose root is not decided
struct Undirected {
    /// By host, neighbours and the latency to them, in the slower direction
    neighbours: Vec<Vec<(usize, u64)>>,
}

impl Undirected {
    fn new(network: &Network, edges: &[(usize, usize)]) -> Self {
        let mut neighbours = vec![Vec::new(); network.hosts()];
        for &(left, right) in edges {
            let latency = network.latency(left, right).max(network.latency(right, left));
            neighbours[left].push((right, latency));
            neighbours[right].push((left, latency));
        }
        Self { neighbours }
    }

    /// The arcs away from a host, level by level, and the distance of the head of each
    fn levels(&self, root: usize) -> Vec<((usize, usize), Distance)> {
        let mut levels: Vec<((usize, usize), Distance)> = Vec::with_capacity(self.neighbours.len());
        let extend = |levels: &mut Vec<_>, from: usize, above: usize, (latency, hops): Distance| {
            let below = self.neighbours[from].iter().filter(|(to, _)| *to != above);
            levels.extend(below.map(|&(to, next)| ((from, to), (latency.saturating_add(next), hops + 1))));
        };
        extend(&mut levels, root, root, (0, 0));
        let mut next = 0;
        while let Some(&((above, from), distance)) = levels.get(next) {
            extend(&mut levels, from, above, distance);
            next += 1;
        }
        levels
    }

    fn arcs_from(&self, root: usize) -> Vec<(usize, usize)> {
        self.levels(root).into_iter().map(|(arc, _)| arc).collect()
    }

    /// The host from which the furthest one is nearest: in the middle of the longest way of the tree
    fn middle(&self) -> usize {
        let furthest = |from: usize| {
            let levels = self.levels(from).into_iter();
            levels.max_by_key(|(_, distance)| *distance).map_or(from, |((_, to), _)| to)
        };
        let one = furthest(0);
        let levels = self.levels(one);
        let to: BTreeMap<_, _> =
            levels.iter().map(|&((above, host), distance)| (host, (above, distance))).collect();
        let mut at = furthest(one);
        let Some(&(_, whole)) = to.get(&at) else { return one };
        while let Some(&(above, distance)) = to.get(&at)
            && (2 * u128::from(distance.0), 2 * distance.1) > (u128::from(whole.0), whole.1 + 1)
        {
            at = above;
        }
        at
    }
}
