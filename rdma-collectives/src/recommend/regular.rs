//! Cablings of hosts with equal numbers of ports

use crate::Cabling;
use crate::spread::{from, spread};

/// The most ports per host for which all steps round a ring are tried.
const MAX_STEPS_OF: usize = 8;

/// How many of the cablings with the smallest spread are compared by the time of the operation.
const KEPT: usize = 8;

/// The number of ports of each host, if all have as many
pub(super) fn ports_of_each(ports: &[usize]) -> Option<usize> {
    let first = *ports.first()?;
    ports.iter().all(|other| *other == first).then_some(first)
}

/// The number of ports that all hosts have, if it is one for which regular cablings are known
pub(super) fn degree(ports: &[usize]) -> Option<usize> {
    // A host with one port ends a line, unless there are two.
    ports_of_each(ports).filter(|degree| *degree <= MAX_STEPS_OF && (*degree > 1 || ports.len() == 2))
}

/// Cablings in which each host has as many cables as ports, but for one port if hosts and ports are both odd; the smallest spread first
pub(super) fn cablings(hosts: usize, ports: usize, rate: u64) -> Vec<Cabling> {
    let mut known = Vec::new();
    if (hosts, ports) == (10, 3) {
        known.push(Cabling::petersen(rate));
    }
    if hosts == 1 << ports {
        known.push(Cabling::hypercube(ports as u32, rate));
    }
    let is_odd = hosts % 2 * (ports % 2) == 1;
    let of_steps = step_sets(hosts, ports).into_iter().filter_map(|steps| {
        let spread = match is_odd {
            true => spread(&circulant(hosts, &steps, is_odd, 1))?,
            // It looks the same from each host.
            false => {
                let (furthest, sum) = from(0, hosts, |host| {
                    steps.iter().flat_map(move |step| [(host + step) % hosts, (host + hosts - step) % hosts])
                })?;
                (furthest, sum * hosts as u64)
            }
        };
        Some((spread, steps))
    });
    let mut of_steps: Vec<_> = of_steps.collect();
    of_steps.sort();
    of_steps.truncate(KEPT);
    let of_steps = of_steps.into_iter().map(|(_, steps)| circulant(hosts, &steps, is_odd, rate));
    known.extend(of_steps);
    known.sort_by_cached_key(spread);
    known
}

/// Cables with these steps; all hosts but the last get one more if hosts and ports are both odd
fn circulant(hosts: usize, steps: &[usize], is_odd: bool, rate: u64) -> Cabling {
    let pairs = Cabling::circulant(hosts, steps, rate);
    let half = if is_odd { hosts / 2 } else { 0 };
    let pairs = pairs.cables().iter().map(|cable| (cable.ends[0], cable.ends[1]));
    Cabling::of_pairs(hosts, pairs.chain((0..half).map(|host| (host, host + half))), rate)
}

/// Steps round a ring that give each host so many cables, a step of half the ring giving one and others two
fn step_sets(hosts: usize, ports: usize) -> Vec<Vec<usize>> {
    fn extend(sets: &mut Vec<Vec<usize>>, steps: &mut Vec<usize>, from: usize, hosts: usize, ports: usize) {
        if ports == 0 || ports == 1 && hosts % 2 == 1 {
            sets.push(steps.clone());
            return;
        }
        for step in from..=hosts / 2 {
            let takes = if 2 * step == hosts { 1 } else { 2 };
            if takes <= ports {
                steps.push(step);
                extend(sets, steps, step, hosts, ports - takes);
                steps.pop();
            }
        }
    }
    let mut sets = Vec::new();
    extend(&mut sets, &mut Vec::new(), 1, hosts, ports);
    sets
}
