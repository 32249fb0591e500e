//! How far the hosts of a cabling are from each other, in hops

use crate::Cabling;

/// Hops between the furthest hosts, and between all together; `None` if some hosts cannot reach others
pub(crate) fn spread(cabling: &Cabling) -> Option<(u64, u64)> {
    let hosts = cabling.hosts().len();
    let mut neighbours = vec![Vec::new(); hosts];
    for [left, right] in cabling.cables().iter().map(|cable| cable.ends) {
        neighbours[left].push(right);
        neighbours[right].push(left);
    }
    let mut all = (0, 0);
    for host in 0..hosts {
        let (furthest, sum) = from(host, hosts, |host| neighbours[host].iter().copied())?;
        all = (all.0.max(furthest), all.1 + sum);
    }
    Some(all)
}

/// Hops to the furthest host from `first`, and to all together; `None` if some cannot be reached
pub(crate) fn from<N: Iterator<Item = usize>>(
    first: usize,
    hosts: usize,
    neighbours: impl Fn(usize) -> N,
) -> Option<(u64, u64)> {
    let mut hops = vec![u64::MAX; hosts];
    hops[first] = 0;
    let mut reached = vec![first];
    let mut next = 0;
    while let Some(&host) = reached.get(next) {
        next += 1;
        for other in neighbours(host) {
            if hops[other] == u64::MAX {
                hops[other] = hops[host] + 1;
                reached.push(other);
            }
        }
    }
    (reached.len() == hosts).then(|| (hops[reached[hosts - 1]], hops.iter().sum()))
}
