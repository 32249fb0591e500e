use std::collections::BTreeMap;

use crate::arborescences::pack;
use crate::capped::{MAX_EXACT_CAPPED_HOSTS, reversed};
use crate::cut::Cut;
use crate::flow::{Flow, INFINITE};
use crate::large::MAX_EXACT_HOSTS;
use crate::low::low_trees;
use crate::network::Network;
use crate::packing::{Packing, Rates};
use crate::program::Program;
use crate::rounding::{FINE, common_denominator};
use crate::strength::Strength;
use crate::tree::{Distance, SpanningTree};
use crate::{Cabling, Certificate, Operation, Plan, PlanError, Price, Ratio, Tree, large};

/// From so many hosts, the most central ones, trees are packed; the lowest and fewest are taken.
const ROOTS: usize = 8;

/// The best plan of an all_reduce
///
/// With equal rates in both directions between each two hosts, the plan is optimal among algorithms that send inputs, partial sums
/// and results. Otherwise each pair is used as if both directions had the lower rate, and [`Plan::bound`] may be below
/// [`Plan::time`]; so it is with caps that differ in both directions. Above [`MAX_EXACT_HOSTS`] hosts, the plan is near its bound, and says how near.
///
/// # Errors
///
/// [`PlanError::OneHost`], [`PlanError::Disconnected`] with the hosts that cannot reach each other, or [`PlanError::Overflow`].
pub fn all_reduce(cabling: &Cabling) -> Result<Plan, PlanError> {
    if cabling.hosts().len() > MAX_EXACT_HOSTS {
        return large::plan(cabling, Operation::AllReduce);
    }
    let network = Network::of(cabling)?;
    let slower = network.map(|from, to| network.capacity(from, to).min(network.capacity(to, from)));
    let preferred = central_first(&slower);
    let strength = Strength::of(&slower, &preferred);
    let time = slower.seconds(strength.scale, strength.trees).ok_or(PlanError::Overflow)?;
    let (bound, certificate) = match network.is_symmetric() {
        true => (time, partition(&strength.parts)),
        false => asymmetric_bound(&network)?,
    };
    let trees = trees(&slower, &strength)?;
    let plan = Plan::new(cabling, Operation::AllReduce, [time, bound], certificate, trees);
    if network.has_caps() { within_caps(cabling, &network, &slower, plan) } else { Ok(plan) }
}

/// Seconds per byte of the vector below which no all_reduce is, with the proof
pub(crate) fn bound(cabling: &Cabling, network: &Network) -> Result<(Ratio, Certificate), PlanError> {
    let without = bound_without_caps(network)?;
    match network.has_caps() && network.hosts() <= MAX_EXACT_CAPPED_HOSTS {
        true => bound_with_caps(&Rates::of(cabling), network, without),
        false => Ok(without),
    }
}

/// The plan with the time and the bound that caps leave, and other trees if they are faster
fn within_caps(
    cabling: &Cabling,
    network: &Network,
    slower: &Network,
    plan: Plan,
) -> Result<Plan, PlanError> {
    let rates = Rates::of(cabling);
    let slowest = |trees: &[Tree]| rates.slowest(trees).ok_or(PlanError::Overflow);
    let plan = Plan { time: plan.time.max(slowest(&plan.trees)?), ..plan };
    if network.hosts() > MAX_EXACT_CAPPED_HOSTS {
        return Ok(plan);
    }
    let (bound, certificate) = bound_with_caps(&rates, network, (plan.bound, plan.certificate))?;
    let plan = Plan { bound, certificate, ..plan };
    if plan.time == plan.bound {
        return Ok(plan);
    }
    // What the best trees use of each pair is a cabling without caps, for which trees are packed.
    let everyone: Vec<_> = (0..network.hosts()).collect();
    let (packed, _) = Packing::new(&rates, &everyone, u128::min).solve();
    let mut loads: BTreeMap<(usize, usize), f64> = BTreeMap::new();
    for (tree, weight) in &packed {
        tree.edges().iter().for_each(|&edge| *loads.entry(edge).or_default() += weight);
    }
    let most = loads.values().copied().fold(0.0, f64::max);
    let (edges, loads): (Vec<_>, Vec<f64>) =
        loads.into_iter().map(|(edge, load)| (edge, load / most)).unzip();
    let exact = common_denominator(&loads).map(|(whole, _)| whole);
    let fine = loads.iter().map(|load| (load * FINE as f64).round() as u64).collect();
    exact.into_iter().chain([fine]).try_fold(plan, |plan, used| {
        let used: BTreeMap<_, _> = edges.iter().copied().zip(used).collect();
        let used = |from: usize, to: usize| used.get(&(from.min(to), from.max(to))).copied().unwrap_or(0);
        let used = slower.map(|from, to| used(from, to).into());
        let trees = trees(&used, &Strength::of(&used, &central_first(&used)))?;
        let time = slowest(&trees)?;
        Ok(if time < plan.time { Plan { time, trees, ..plan } } else { plan })
    })
}

/// The larger one of a bound that does not count caps, and those by prices
fn bound_with_caps(
    rates: &Rates,
    network: &Network,
    without: (Ratio, Certificate),
) -> Result<(Ratio, Certificate), PlanError> {
    let everyone: Vec<_> = (0..network.hosts()).collect();
    let packing = Packing::new(rates, &everyone, |there, back| there + back);
    let mut candidates = rates.rounded(&packing, &packing.solve().1);
    // If both directions are alike, no tree in one direction costs more.
    let roots = if network.is_symmetric() { 0..0 } else { 0..network.hosts() };
    let turned = network.reversed();
    let of_root = |root| [network, &turned].map(|network| Program::new(network, vec![(root, root, 1)]));
    // The data of a host goes to all others, and those of all others to it.
    let programs: Vec<_> = roots.map(of_root).collect();
    let all_reversed = |prices: &[Price]| prices.iter().copied().map(reversed).collect::<Vec<_>>();
    for [out, into] in &programs {
        candidates.push(out.best_bound(&out.solve().prices, 1)?.1);
        candidates.push(all_reversed(&into.best_bound(&into.solve().prices, 1)?.1));
    }
    let bounds = candidates.into_iter().filter_map(|prices| {
        let turned = all_reversed(&prices);
        let spent = programs.iter().try_fold(rates.joined(&prices, &everyone), |spent, [out, into]| {
            Some(spent.max(out.cost(&prices)?).max(into.cost(&turned)?))
        });
        Some((Ratio::new(spent?, rates.whole(&prices)?)?, Certificate::Prices(prices)))
    });
    Ok(bounds.fold(without, |best, next| if next.0 > best.0 { next } else { best }))
}

fn bound_without_caps(network: &Network) -> Result<(Ratio, Certificate), PlanError> {
    if !network.is_symmetric() {
        return asymmetric_bound(network);
    }
    let strength = Strength::of(network, &central_first(network));
    let bound = network.seconds(strength.scale, strength.trees).ok_or(PlanError::Overflow)?;
    Ok((bound, partition(&strength.parts)))
}

/// The larger one of the bound by partitions, which counts both directions together, and that by cuts in one direction
fn asymmetric_bound(network: &Network) -> Result<(Ratio, Certificate), PlanError> {
    let both = network.map(|from, to| network.capacity(from, to) + network.capacity(to, from));
    let strength = Strength::of(&both, &central_first(&both));
    let by_partition = both.seconds(2 * strength.scale, strength.trees).ok_or(PlanError::Overflow)?;
    let reversed = network.reversed();
    let (out, into) = (Cut::narrowest(network, 0), Cut::narrowest(&reversed, 0));
    let (capacity, cut) = match out.capacity <= into.capacity {
        true => (out.capacity, out.hosts(true)),
        false => (into.capacity, into.hosts(false)),
    };
    let by_cut = network.seconds(1, capacity).ok_or(PlanError::Overflow)?;
    Ok(match by_cut > by_partition {
        true => (by_cut, Certificate::Cut(cut)),
        false => (by_partition, partition(&strength.parts)),
    })
}

fn partition(parts: &[usize]) -> Certificate {
    let members = |part| (0..parts.len()).filter(|&host| parts[host] == part).collect();
    Certificate::Partition((0..parts.len()).filter(|&host| parts[host] == host).map(members).collect())
}

/// Pairs of hosts with a cable, those with low latency and near the centre first: trees of such pairs are low
fn central_first(network: &Network) -> Vec<(usize, usize)> {
    let eccentricities = network.eccentricities();
    let mut edges: Vec<_> = network.edges().collect();
    edges.sort_by_key(|&(left, right)| {
        let near = eccentricities[left].min(eccentricities[right]);
        (network.latency(left, right), near, eccentricities[left].max(eccentricities[right]))
    });
    edges
}

/// Spanning trees that use each pair of hosts as often as the strength permits, the lowest and fewest that were found
fn trees(network: &Network, strength: &Strength) -> Result<Vec<Tree>, PlanError> {
    let eccentricities = network.eccentricities();
    let mut roots: Vec<_> = (0..network.hosts()).collect();
    roots.sort_by_key(|&root| eccentricities[root]);
    roots.truncate(ROOTS);
    let packed = roots.into_iter().map(|root| rooted(network, packed_from(network, strength, root)?));
    let packed = packed.collect::<Result<Vec<_>, _>>()?;
    let best = packed.into_iter().min_by_key(|(height, trees)| (*height, trees.len()));
    let (height, trees) = best.ok_or(PlanError::OneHost)?;
    match low_trees(network, strength, height) {
        Some(lower) => Ok(rooted(network, lower)?.1),
        None => Ok(trees),
    }
}

/// Trees and their shares, packed from one root
fn packed_from(
    network: &Network,
    strength: &Strength,
    root: usize,
) -> Result<Vec<(SpanningTree, Ratio)>, PlanError> {
    let oriented = orient(network, strength, root);
    let mut packed: BTreeMap<SpanningTree, u128> = BTreeMap::new();
    for tree in pack(&oriented, &[(root, strength.trees)]) {
        *packed.entry(SpanningTree::new(tree.arcs)).or_default() += tree.count;
    }
    let share = |count| Ratio::new(count, strength.trees).ok_or(PlanError::Overflow);
    packed.into_iter().map(|(tree, count)| Ok((tree, share(count)?))).collect()
}

/// Gives each tree the root that makes it lowest; also the height of the highest
fn rooted(network: &Network, trees: Vec<(SpanningTree, Ratio)>) -> Result<(Distance, Vec<Tree>), PlanError> {
    let mut work = vec![Ratio::ZERO; network.hosts()];
    let mut highest = (0, 0);
    let mut rooted = Vec::new();
    for (tree, share) in trees {
        let candidates = (0..network.hosts()).map(|root| {
            let (arcs, height) = tree.rooted(root, |from, to| network.latency(from, to));
            (height, work[root], root, arcs)
        });
        // Among equally good roots, the one that has summed least so far.
        let Some((height, _, root, arcs)) = candidates.min() else { continue };
        work[root] = work[root].checked_add(share).ok_or(PlanError::Overflow)?;
        highest = highest.max(height);
        rooted.push(Tree { share, root, arcs });
    }
    Ok((highest, rooted))
}

/// Gives the uses of each pair of hosts directions, so that each host but the root has `strength.trees` into it
///
/// Then each set of `s` hosts without the root has at least that many into it from outside, because at most
/// `strength.trees * (s - 1)` are within: arborescences can be packed. Uses lead away from the root where possible.
fn orient(network: &Network, strength: &Strength, root: usize) -> Network {
    let hosts = network.hosts();
    let distances = &network.distances()[root];
    let uses = |left: usize, right: usize| strength.uses[left * hosts + right];
    let edges: Vec<_> = network.edges().filter(|&(left, right)| uses(left, right) > 0).collect();
    let (source, sink) = (hosts + edges.len(), hosts + edges.len() + 1);
    let mut flow = Flow::new(hosts + edges.len() + 2);
    for host in (0..hosts).filter(|&host| host != root) {
        flow.add(host, sink, strength.trees, 0);
    }
    let mut arcs = Vec::new();
    for (node, &(left, right)) in (hosts..).zip(&edges) {
        flow.add(source, node, uses(left, right), 0);
        for (from, to) in [(left, right), (right, left)] {
            let outward = distances[from] <= distances[to];
            let arc = flow.add(node, to, if outward { INFINITE } else { 0 }, 0);
            arcs.push(((from, to), arc, outward));
        }
    }
    flow.send(source, sink, INFINITE);
    for (_, arc, _) in arcs.iter().filter(|(_, _, outward)| !outward) {
        flow.raise(*arc, INFINITE);
    }
    flow.send(source, sink, INFINITE);
    let mut directed = vec![0; hosts * hosts];
    arcs.iter().for_each(|&((from, to), arc, _)| directed[from * hosts + to] = flow.through(arc));
    network.map(|from, to| directed[from * hosts + to])
}
