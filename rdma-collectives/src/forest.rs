use crate::arborescences::{Arborescence, pack};
use crate::capped::within_caps;
use crate::cut::Cut;
use crate::large::MAX_EXACT_HOSTS;
use crate::network::Network;
use crate::ratio::gcd;
use crate::{Cabling, Certificate, Operation, Plan, PlanError, Ratio, Tree, large};

/// The best plan of a broadcast: as many trees from the root as its smallest cut permits
///
/// Of up to [`MAX_EXACT_HOSTS`] hosts; above, the plan is within a proven factor of the best one.
///
/// # Errors
///
/// [`PlanError::OneHost`], [`PlanError::Disconnected`], [`PlanError::Root`] or [`PlanError::Overflow`].
pub fn broadcast(cabling: &Cabling, root: usize) -> Result<Plan, PlanError> {
    if cabling.hosts().len() > MAX_EXACT_HOSTS {
        return large::plan(cabling, Operation::Broadcast { root });
    }
    let network = Network::of(cabling)?;
    let (cut, trees) = from_root(&network, root)?;
    let time = cut.seconds(&network, 1)?;
    within_caps(
        &network,
        Plan::new(
            cabling,
            Operation::Broadcast { root },
            [time; 2],
            Certificate::Cut(cut.hosts(true)),
            trees,
        ),
    )
}

/// The best plan of a reduce: the trees of a broadcast over the cables in the other direction
///
/// Of up to [`MAX_EXACT_HOSTS`] hosts; above, the plan is within a proven factor of the best one.
///
/// # Errors
///
/// [`PlanError::OneHost`], [`PlanError::Disconnected`], [`PlanError::Root`] or [`PlanError::Overflow`].
pub fn reduce(cabling: &Cabling, root: usize) -> Result<Plan, PlanError> {
    if cabling.hosts().len() > MAX_EXACT_HOSTS {
        return large::plan(cabling, Operation::Reduce { root });
    }
    let network = Network::of(cabling)?;
    let (cut, trees) = from_root(&network.reversed(), root)?;
    let time = cut.seconds(&network, 1)?;
    within_caps(
        &network,
        Plan::new(cabling, Operation::Reduce { root }, [time; 2], Certificate::Cut(cut.hosts(false)), trees),
    )
}

/// The best plan of an all_gather, in which host `v` contributes `amounts[v]`
///
/// Of up to [`MAX_EXACT_HOSTS`] hosts; above, the plan is within a proven factor of the best one.
///
/// # Errors
///
/// [`PlanError::OneHost`], [`PlanError::Disconnected`], [`PlanError::Amounts`], [`PlanError::NothingToSend`] or
/// [`PlanError::Overflow`].
pub fn all_gather(cabling: &Cabling, amounts: &[u64]) -> Result<Plan, PlanError> {
    if cabling.hosts().len() > MAX_EXACT_HOSTS {
        return large::plan(cabling, Operation::AllGather { amounts: amounts.to_vec() });
    }
    let network = Network::of(cabling)?;
    let (cut, time, trees) = from_all(&network, amounts)?;
    let operation = Operation::AllGather { amounts: amounts.to_vec() };
    within_caps(&network, Plan::new(cabling, operation, [time; 2], Certificate::Cut(cut.hosts(true)), trees))
}

/// The best plan of a reduce_scatter, in which host `v` gets `amounts[v]` of the sum: the trees of an all_gather over the cables
/// in the other direction
///
/// Of up to [`MAX_EXACT_HOSTS`] hosts; above, the plan is within a proven factor of the best one.
///
/// # Errors
///
/// [`PlanError::OneHost`], [`PlanError::Disconnected`], [`PlanError::Amounts`], [`PlanError::NothingToSend`] or
/// [`PlanError::Overflow`].
pub fn reduce_scatter(cabling: &Cabling, amounts: &[u64]) -> Result<Plan, PlanError> {
    if cabling.hosts().len() > MAX_EXACT_HOSTS {
        return large::plan(cabling, Operation::ReduceScatter { amounts: amounts.to_vec() });
    }
    let network = Network::of(cabling)?;
    let (cut, time, trees) = from_all(&network.reversed(), amounts)?;
    let operation = Operation::ReduceScatter { amounts: amounts.to_vec() };
    within_caps(&network, Plan::new(cabling, operation, [time; 2], Certificate::Cut(cut.hosts(false)), trees))
}

/// Amounts as wide numbers, one for each host
pub(crate) fn checked_amounts(network: &Network, amounts: &[u64]) -> Result<Vec<u128>, PlanError> {
    if amounts.len() != network.hosts() {
        return Err(PlanError::Amounts { amounts: amounts.len(), hosts: network.hosts() });
    }
    Ok(amounts.iter().copied().map(u128::from).collect())
}

pub(crate) fn checked_root(network: &Network, root: usize) -> Result<(), PlanError> {
    if root >= network.hosts() {
        return Err(PlanError::Root { root, hosts: network.hosts() });
    }
    Ok(())
}

/// The narrowest cut on the way from the root, and the trees that fill it
fn from_root(network: &Network, root: usize) -> Result<(Cut, Vec<Tree>), PlanError> {
    checked_root(network, root)?;
    let cut = Cut::narrowest(network, root);
    // Fewer and equal trees are as good if the capacities have a common divisor with their number.
    let unit = network.arcs().fold(cut.capacity, |unit, (from, to)| gcd(unit, network.capacity(from, to)));
    let network = network.map(|from, to| network.capacity(from, to) / unit);
    let trees = pack(&network, &[(root, cut.capacity / unit)]);
    let trees = shares(trees, cut.capacity / unit)?;
    Ok((cut, trees))
}

/// The cut that bounds the time, the time, and the trees
fn from_all(network: &Network, amounts: &[u64]) -> Result<(Cut, Ratio, Vec<Tree>), PlanError> {
    let (cut, time) = all_gather_bound(network, amounts)?;
    // In the time of the cut, each cable carries `capacity * amount / cut.capacity`: times `cut.capacity`, all are whole.
    let scaled = network.map(|from, to| network.capacity(from, to) * cut.amount);
    let counts = amounts.iter().map(|&amount| u128::from(amount) * cut.capacity);
    let unit = counts.clone().chain(scaled.arcs().map(|(from, to)| scaled.capacity(from, to))).fold(0, gcd);
    let scaled = scaled.map(|from, to| scaled.capacity(from, to) / unit);
    let roots: Vec<_> = counts.map(|count| count / unit).enumerate().collect();
    let total: u128 = roots.iter().map(|(_, count)| count).sum();
    let trees = shares(pack(&scaled, &roots), total)?;
    Ok((cut, time, trees))
}

/// Seconds per byte of the payload that the worst cut for trees from all hosts takes
pub(crate) fn all_gather_bound(network: &Network, amounts: &[u64]) -> Result<(Cut, Ratio), PlanError> {
    let amounts = checked_amounts(network, amounts)?;
    let everyone: Vec<_> = (0..network.hosts()).collect();
    let cut = Cut::worst(network, &amounts, &everyone)?;
    let bound = cut.seconds(network, amounts.iter().sum())?;
    Ok((cut, bound))
}

fn shares(trees: Vec<Arborescence>, total: u128) -> Result<Vec<Tree>, PlanError> {
    let mut shared: Vec<Tree> = Vec::new();
    for Arborescence { root, count, mut arcs } in trees {
        let share = Ratio::new(count, total).ok_or(PlanError::Overflow)?;
        sort_from_root(root, &mut arcs);
        match shared.iter_mut().find(|tree| tree.root == root && tree.arcs == arcs) {
            Some(tree) => tree.share = tree.share.checked_add(share).ok_or(PlanError::Overflow)?,
            None => shared.push(Tree { share, root, arcs }),
        }
    }
    Ok(shared)
}

/// One order for equal trees: level by level
fn sort_from_root(root: usize, arcs: &mut [(usize, usize)]) {
    let mut depths = std::collections::BTreeMap::from([(root, 0)]);
    for &(parent, child) in arcs.iter() {
        let depth = depths.get(&parent).map_or(0, |depth| depth + 1);
        depths.insert(child, depth);
    }
    arcs.sort_by_key(|&(parent, child)| (depths.get(&child).copied(), parent, child));
}
