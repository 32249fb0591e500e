//! What no cabling of some ports can be faster than

use crate::{Operation, Ratio};

/// Why no cabling of some hosts and their ports is faster
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum Limit {
    /// An all_reduce crosses between hosts so often that all cables that the ports allow are full
    Cables,
    /// The ports allow so few hosts at each distance that the ways of the data fill all cables
    Distances,
    /// What one host needs, or others need from it, fills all cables that its ports allow
    Ports {
        /// The host
        host: usize,
    },
}

/// The most cables between hosts with these numbers of ports: a cable has its ends at different hosts
pub(super) fn most_cables(ports: &[usize]) -> usize {
    let total: usize = ports.iter().sum();
    let most = ports.iter().copied().max().unwrap_or_default();
    (total / 2).min(total - most)
}

/// Seconds per byte of the payload below which the operation is over no cabling of these ports, `None` if it does not fit
///
/// `BOUNDS.md` of the package derives it.
pub(super) fn least(ports: &[usize], operation: &Operation, rate: u64) -> Option<(Ratio, Limit)> {
    let hosts = 0..ports.len();
    let cables = most_cables(ports) as u128;
    let over_ports = |host: usize, part: u128, whole: u128| {
        Some((Ratio::new(part, ports[host] as u128 * whole)?, Limit::Ports { host }))
    };
    let sum = |amounts: &[u64]| amounts.iter().map(|amount| u128::from(*amount)).sum::<u128>();
    let limits: Option<Vec<_>> = match operation {
        Operation::AllReduce => {
            let crossings = Ratio::new(ports.len() as u128 - 1, cables).map(|ratio| (ratio, Limit::Cables));
            hosts.map(|host| over_ports(host, 1, 1)).chain([crossings]).collect()
        }
        Operation::AllReduceAmong { members } => {
            members.iter().map(|member| over_ports(*member, 1, 1)).collect()
        }
        Operation::Broadcast { .. } | Operation::Reduce { .. } => {
            hosts.map(|host| over_ports(host, 1, 1)).collect()
        }
        Operation::AllGather { amounts } | Operation::ReduceScatter { amounts } => {
            let whole = sum(amounts);
            hosts.map(|host| over_ports(host, whole - u128::from(amounts[host]), whole)).collect()
        }
        Operation::Gather { root, amounts } | Operation::Scatter { root, amounts } => {
            let whole = sum(amounts);
            let part = |host| {
                let own = u128::from(amounts[host]);
                if host == *root { whole - own } else { own }
            };
            hosts.map(|host| over_ports(host, part(host), whole)).collect()
        }
        Operation::AllToAll { amounts } => {
            let whole = amounts.iter().map(|row| sum(row)).sum();
            let received = |host: usize| amounts.iter().map(|row| u128::from(row[host])).sum::<u128>();
            let part =
                |host: usize| sum(&amounts[host]).max(received(host)) - u128::from(amounts[host][host]);
            let ways = (0..ports.len()).map(|host| shortest_ways(ports, host, &amounts[host])).sum();
            let distances = Ratio::new(ways, 2 * cables * whole).map(|ratio| (ratio, Limit::Distances));
            hosts.map(|host| over_ports(host, part(host), whole)).chain([distances]).collect()
        }
    };
    let (ratio, limit) = limits?.into_iter().max_by_key(|(ratio, _)| *ratio)?;
    Some((ratio.checked_mul(Ratio::new(1, u128::from(rate))?)?, limit))
}

/// Bytes times hops of what a host sends, if as many hosts are near as the ports allow, and those that get most are nearest
fn shortest_ways(ports: &[usize], host: usize, amounts: &[u64]) -> u128 {
    let mut others: Vec<_> =
        amounts.iter().enumerate().filter(|(to, _)| *to != host).map(|(_, sent)| *sent).collect();
    others.sort_unstable_by(|one, other| other.cmp(one));
    let most = ports.iter().copied().max().unwrap_or_default();
    let (mut ways, mut hops, mut room) = (0, 1, ports[host]);
    let mut rest = others.as_slice();
    while !rest.is_empty() {
        let (near, further) = rest.split_at(room.min(rest.len()));
        ways += near.iter().map(|sent| u128::from(*sent)).sum::<u128>() * hops;
        rest = further;
        (hops, room) = (hops + 1, room.saturating_mul((most - 1).max(1)));
    }
    ways
}
