//! Cablings of hosts with different numbers of ports, and better ones than those that are known

use super::limit::most_cables;
use crate::advice::connected_bound;
use crate::spread::spread;
use crate::{Cable, Cabling, Operation, PlanError, Ratio};

/// How many cablings are tried, times the square of the number of hosts: planning takes longer with more hosts.
const EFFORT: usize = 20_000;

/// The most cablings that are tried.
const MAX_TRIES: usize = 2_000;

/// A cabling and how good it is
pub(super) struct Found {
    pub(super) time: Ratio,
    pub(super) spread: (u64, u64),
    pub(super) cabling: Cabling,
}

impl Found {
    /// The smallest is the best
    pub(super) fn key(&self) -> (Ratio, (u64, u64)) {
        (self.time, self.spread)
    }
}

/// Cablings of hosts with different numbers of ports
pub(super) fn cablings(ports: &[usize], rate: u64) -> Vec<Cabling> {
    let mut fewer = ports.to_vec();
    let is_odd = ports.iter().sum::<usize>() % 2 == 1;
    if let Some(most) = fewer.iter_mut().max().filter(|_| is_odd) {
        // One port stays free: on a host with few it may narrow the way there, on the one with most, if that is the root, the way out.
        *most -= 1;
    }
    let all = by_free_ports(ports, rate);
    if is_odd { vec![all, by_free_ports(&fewer, rate)] } else { vec![all] }
}

/// A connected cabling that uses as many of the ports as possible
///
/// The ports must be enough for a tree.
fn by_free_ports(ports: &[usize], rate: u64) -> Cabling {
    let hosts = ports.len();
    let mut free = ports.to_vec();
    let mut pairs: Vec<(usize, usize)> = Vec::new();
    let mut by_ports: Vec<_> = (0..hosts).collect();
    by_ports.sort_by_key(|host| (usize::MAX - ports[*host], *host));
    for (joined, &host) in by_ports.iter().enumerate().skip(1) {
        let to = by_ports[..joined].iter().max_by_key(|other| (free[**other], usize::MAX - **other));
        join(&mut pairs, &mut free, host, to.copied().unwrap_or_default());
    }
    while let Some(host) = (0..hosts).rev().max_by_key(|host| free[*host]).filter(|host| free[*host] > 0) {
        let others = (0..hosts).filter(|other| *other != host && free[*other] > 0);
        let between = |other: usize| {
            pairs
                .iter()
                .filter(|(left, right)| [(host, other), (other, host)].contains(&(*left, *right)))
                .count()
        };
        let next = others.min_by_key(|other| (between(*other), usize::MAX - free[*other], *other));
        match next {
            Some(other) => join(&mut pairs, &mut free, host, other),
            None if pairs.len() < most_cables(ports) => split(&mut pairs, &mut free, host),
            None => break,
        }
    }
    Cabling::of_pairs(hosts, pairs, rate)
}

fn join(pairs: &mut Vec<(usize, usize)>, free: &mut [usize], left: usize, right: usize) {
    pairs.push((left, right));
    free[left] -= 1;
    free[right] -= 1;
}

/// Puts a host with two free ports into a cable between others
fn split(pairs: &mut Vec<(usize, usize)>, free: &mut [usize], host: usize) {
    let between = pairs.iter().position(|(left, right)| *left != host && *right != host);
    // Fewer cables than there can be leave a cable between others.
    if let Some(pair) = between {
        let (left, right) = pairs.swap_remove(pair);
        pairs.extend([(host, left), (host, right)]);
    }
    free[host] = free[host].saturating_sub(2);
}

/// The cabling after exchanges of the ends of two cables, for as long as one makes it faster, or as fast with a smaller spread
///
/// # Errors
///
/// Those of [`bound`](crate::bound()).
pub(super) fn improved(mut best: Found, operation: &Operation, least: Ratio) -> Result<Found, PlanError> {
    let hosts = best.cabling.hosts().len();
    let mut tries = (EFFORT / (hosts * hosts)).clamp(1, MAX_TRIES);
    'again: while best.time > least {
        for (one, other, way) in exchanges(best.cabling.cables().len()) {
            let Some(cabling) = exchanged(&best.cabling, one, other, way) else { continue };
            let Some(spread) = spread(&cabling) else { continue };
            if tries == 0 {
                break 'again;
            }
            tries -= 1;
            let Some(time) = connected_bound(&cabling, operation)? else { continue };
            let found = Found { time, spread, cabling };
            if found.key() < best.key() {
                best = found;
                continue 'again;
            }
        }
        break;
    }
    Ok(best)
}

fn exchanges(cables: usize) -> impl Iterator<Item = (usize, usize, usize)> {
    (0..cables)
        .flat_map(move |one| (one + 1..cables).flat_map(move |other| [(one, other, 0), (one, other, 1)]))
}

/// The cabling after the second end of one cable and an end of another have changed places
fn exchanged(cabling: &Cabling, one: usize, other: usize, way: usize) -> Option<Cabling> {
    let mut cables = cabling.cables().to_vec();
    let ([a, b], [c, d]) = (cables[one].ends, cables[other].ends);
    let rate = cables[one].rates[0];
    let ends = if way == 0 { [[a, c], [b, d]] } else { [[a, d], [c, b]] };
    cables[one] = Cable::new(ends[0][0], ends[0][1], rate);
    cables[other] = Cable::new(ends[1][0], ends[1][1], rate);
    // A cable from a host to itself is none.
    Cabling::new(cabling.hosts().iter().cloned(), cables).ok()
}
