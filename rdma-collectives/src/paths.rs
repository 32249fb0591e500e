use std::collections::VecDeque;

use crate::capped::within_caps;
use crate::cut::Cut;
use crate::flow::{Flow, INFINITE};
use crate::forest::{checked_amounts, checked_root};
use crate::large::MAX_EXACT_HOSTS;
use crate::network::Network;
use crate::ratio::gcd;
use crate::{Cabling, Certificate, Operation, Plan, PlanError, Ratio, Tree, large};

/// The best plan of a scatter, in which host `v` gets `amounts[v]` from the root: a flow, cut into paths
///
/// Of up to [`MAX_EXACT_HOSTS`] hosts; above, the plan is within a proven factor of the best one.
///
/// # Errors
///
/// [`PlanError::OneHost`], [`PlanError::Disconnected`], [`PlanError::Root`], [`PlanError::Amounts`],
/// [`PlanError::NothingToSend`] or [`PlanError::Overflow`].
pub fn scatter(cabling: &Cabling, root: usize, amounts: &[u64]) -> Result<Plan, PlanError> {
    if cabling.hosts().len() > MAX_EXACT_HOSTS {
        return large::plan(cabling, Operation::Scatter { root, amounts: amounts.to_vec() });
    }
    let network = Network::of(cabling)?;
    let (cut, time, trees) = from_root(&network, root, amounts)?;
    let operation = Operation::Scatter { root, amounts: amounts.to_vec() };
    within_caps(&network, Plan::new(cabling, operation, [time; 2], Certificate::Cut(cut.hosts(false)), trees))
}

/// The best plan of a gather, in which the root gets `amounts[v]` from host `v`: that of a scatter over the cables in the
/// other direction
///
/// Of up to [`MAX_EXACT_HOSTS`] hosts; above, the plan is within a proven factor of the best one.
///
/// # Errors
///
/// [`PlanError::OneHost`], [`PlanError::Disconnected`], [`PlanError::Root`], [`PlanError::Amounts`],
/// [`PlanError::NothingToSend`] or [`PlanError::Overflow`].
pub fn gather(cabling: &Cabling, root: usize, amounts: &[u64]) -> Result<Plan, PlanError> {
    if cabling.hosts().len() > MAX_EXACT_HOSTS {
        return large::plan(cabling, Operation::Gather { root, amounts: amounts.to_vec() });
    }
    let network = Network::of(cabling)?;
    let (cut, time, trees) = from_root(&network.reversed(), root, amounts)?;
    let operation = Operation::Gather { root, amounts: amounts.to_vec() };
    within_caps(&network, Plan::new(cabling, operation, [time; 2], Certificate::Cut(cut.hosts(true)), trees))
}

/// The hosts into which the least capacity leads for what they get, as a cut of the reversed network, and the time that it takes
pub(crate) fn scatter_bound(
    network: &Network,
    root: usize,
    amounts: &[u64],
) -> Result<(Cut, Ratio), PlanError> {
    checked_root(network, root)?;
    let mut amounts = checked_amounts(network, amounts)?;
    let total = amounts.iter().sum();
    amounts[root] = 0;
    let cut = Cut::worst(&network.reversed(), &amounts, &[root])?;
    let bound = cut.seconds(network, total)?;
    Ok((cut, bound))
}

/// The cut that bounds the time, the time, and the paths
fn from_root(network: &Network, root: usize, amounts: &[u64]) -> Result<(Cut, Ratio, Vec<Tree>), PlanError> {
    let (cut, time) = scatter_bound(network, root, amounts)?;
    let total: u128 = amounts.iter().copied().map(u128::from).sum();
    let mut amounts = checked_amounts(network, amounts)?;
    amounts[root] = 0;
    let sink = network.hosts();
    let mut flow = Flow::new(sink + 1);
    let arcs: Vec<_> = network
        .arcs()
        .filter(|&(_, to)| to != root)
        .map(|(from, to)| ((from, to), flow.add(from, to, network.capacity(from, to) * cut.amount, 0)))
        .collect();
    let mut wanted: Vec<_> = amounts.iter().map(|amount| amount * cut.capacity).collect();
    wanted.iter().enumerate().for_each(|(host, &amount)| {
        flow.add(host, sink, amount, 0);
    });
    flow.send(root, sink, INFINITE);
    let mut used = vec![vec![0; network.hosts()]; network.hosts()];
    arcs.iter().for_each(|&((from, to), arc)| used[from][to] = flow.through(arc));
    let mut trees = Vec::new();
    while let Some((path, count)) = take_path(root, &mut used, &mut wanted) {
        let divisor = gcd(count, cut.capacity);
        let below = (cut.capacity / divisor).checked_mul(total).ok_or(PlanError::Overflow)?;
        let share = Ratio::new(count / divisor, below).ok_or(PlanError::Overflow)?;
        trees.push(Tree { share, root, arcs: path });
    }
    Ok((cut, time, trees))
}

/// Takes as much as possible of a shortest path of the flow to a host that still wants some
fn take_path(
    root: usize,
    used: &mut [Vec<u128>],
    wanted: &mut [u128],
) -> Option<(Vec<(usize, usize)>, u128)> {
    let mut parents = vec![None; used.len()];
    let mut queue = VecDeque::from([root]);
    while let Some(host) = queue.pop_front() {
        if wanted[host] > 0 {
            let mut path = Vec::new();
            let mut child = host;
            while let Some(parent) = parents[child] {
                path.push((parent, child));
                child = parent;
            }
            path.reverse();
            let count = path.iter().map(|&(from, to)| used[from][to]).fold(wanted[host], u128::min);
            wanted[host] -= count;
            path.iter().for_each(|&(from, to)| used[from][to] -= count);
            return Some((path, count));
        }
        for next in 0..used.len() {
            if used[host][next] > 0 && parents[next].is_none() && next != root {
                parents[next] = Some(host);
                queue.push_back(next);
            }
        }
    }
    None
}
