//! Paths for much data at once, each over the cables that carry least so far

use crate::network::Network;
use crate::program::{Demand, Way};
use crate::tree::MAX_TREES;

/// How often all data are divided, at most: each pair has at most so many paths, and all pairs together no more than [`MAX_TREES`]
const MAX_ROUNDS: usize = 8;
/// The logarithm of how much dearer a cable is at last that carries twice as much as the mean: the plans of rings, tori and cubes with 17 to
/// 64 hosts are the nearest to their bounds, of 3, 6, 12, 24 and 48
const STEEPNESS: f64 = 12.0;
/// What an arc costs that carries nothing, as a part of what the most loaded one costs
const FREE: f64 = 1e-9;

/// Paths of each pair of sender, receiver and amount, with the part of its amount that takes each, and the prices of the arcs
///
/// The pairs of a sender are next to each other. In each round, each sender in turn sends a part of all its data by the cheapest paths, where
/// the price of an arc grows exponentially with the time that it needs for what it carries: the prices come near to those of the linear program.
pub(crate) fn route(
    network: &Network,
    arcs: &[(usize, usize)],
    pairs: &[Demand],
) -> (Vec<Vec<(Way, f64)>>, Vec<f64>) {
    let capacities: Vec<_> = arcs.iter().map(|&(from, to)| network.capacity(from, to) as f64).collect();
    let mut paths = vec![Vec::new(); pairs.len()];
    let mut times = vec![0.0; arcs.len()];
    let mut prices: Vec<_> = capacities.iter().map(|capacity| capacity.recip()).collect();
    let rounds = MAX_ROUNDS.min(MAX_TREES / pairs.len().max(1));
    // What an arc carries at last, on average, if all paths are short.
    let mut full = 0.0;
    for round in 0..=rounds {
        let mut first = 0;
        for of_sender in pairs.chunk_by(|left, right| left.0 == right.0) {
            let last_arcs = cheapest(network.hosts(), arcs, &prices, of_sender[0].0);
            for (pair, &(from, to, amount)) in (first..).zip(of_sender) {
                let mut path = Vec::new();
                let mut host = to;
                while host != from {
                    let arc = last_arcs[host].expect("the hosts are connected");
                    times[arc] += amount as f64 / capacities[arc];
                    path.push(arcs[arc]);
                    host = arcs[arc].0;
                }
                path.reverse();
                if round > 0 {
                    add(&mut paths[pair], path);
                }
            }
            if round > 0 {
                prices = prices_of(&times, &capacities, full);
            }
            first += of_sender.len();
        }
        if round == 0 {
            full = rounds as f64 * times.iter().sum::<f64>() / arcs.len() as f64;
            times.fill(0.0);
        }
    }
    (paths, prices)
}

/// One more part of a pair's data takes `path`
fn add(paths: &mut Vec<(Way, f64)>, path: Way) {
    match paths.iter_mut().find(|(known, _)| *known == path) {
        Some((_, parts)) => *parts += 1.0,
        None => paths.push((path, 1.0)),
    }
}

/// The price of each arc, by float operations that have the same result on every machine: each rank makes the plan for itself
fn prices_of(times: &[f64], capacities: &[f64], full: f64) -> Vec<f64> {
    let most = times.iter().copied().fold(0.0, f64::max);
    let price = |time: f64| {
        // The power of e, nearly: that of `f64` differs between systems.
        let power = (1.0 + (time - most) * STEEPNESS / full / 1024.0).max(0.0);
        // Ten squares are the power of 1024. Among free arcs, few are better.
        (0..10).fold(power, |power, _| power * power) + FREE
    };
    times.iter().zip(capacities).map(|(&time, capacity)| price(time) / capacity).collect()
}

/// By host, the last arc of the cheapest path to it
fn cheapest(hosts: usize, arcs: &[(usize, usize)], prices: &[f64], sender: usize) -> Vec<Option<usize>> {
    let mut costs = vec![f64::INFINITY; hosts];
    let mut last_arcs = vec![None; hosts];
    let mut is_done = vec![false; hosts];
    costs[sender] = 0.0;
    loop {
        let open = (0..hosts).filter(|&host| !is_done[host] && costs[host].is_finite());
        let Some(host) = open.min_by(|&left, &right| costs[left].total_cmp(&costs[right])) else {
            return last_arcs;
        };
        is_done[host] = true;
        for (arc, &(_, to)) in arcs.iter().enumerate().filter(|(_, (from, _))| *from == host) {
            let cost = costs[host] + prices[arc];
            if cost < costs[to] {
                (costs[to], last_arcs[to]) = (cost, Some(arc));
            }
        }
    }
}
