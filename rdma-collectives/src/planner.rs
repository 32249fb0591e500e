use crate::cut::Cut;
use crate::large::MAX_EXACT_HOSTS;
use crate::network::Network;
use crate::{Cabling, Certificate, Operation, PlanError, Ratio};
use crate::{all_reduce, all_to_all, capped, forest, large, paths, subgroup};

/// Seconds per byte of the payload below which no plan of the operation is, with the proof, and without a plan
///
/// Faster than planning; the plan of the same operation has the same bound.
///
/// # Errors
///
/// Those of planning the operation: [`PlanError::OneHost`], [`PlanError::Disconnected`], [`PlanError::Root`],
/// [`PlanError::Amounts`], [`PlanError::Members`], [`PlanError::NothingToSend`],
/// [`PlanError::TooManyHosts`] or [`PlanError::Overflow`].
pub fn bound(cabling: &Cabling, operation: &Operation) -> Result<(Ratio, Certificate), PlanError> {
    if let Operation::AllReduceAmong { members } = operation {
        // The other hosts need not be connected.
        return subgroup::bound(cabling, members);
    }
    let network = Network::of(cabling)?;
    if network.hosts() > MAX_EXACT_HOSTS && !matches!(operation, Operation::AllToAll { .. }) {
        return large::bound(&network, operation);
    }
    let cut = |(cut, bound): (Cut, Ratio), inside| (bound, Certificate::Cut(cut.hosts(inside)));
    let narrowest = |network: &Network, root| {
        forest::checked_root(network, root)?;
        let narrowest = Cut::narrowest(network, root);
        let bound = narrowest.seconds(network, 1)?;
        Ok((narrowest, bound))
    };
    let without = match operation {
        Operation::AllGather { amounts } => cut(forest::all_gather_bound(&network, amounts)?, true),
        Operation::AllReduce => return all_reduce::bound(cabling, &network),
        Operation::AllReduceAmong { members } => return subgroup::bound(cabling, members),
        Operation::AllToAll { amounts } => {
            let (bound, prices) = all_to_all::bound(&network, amounts)?;
            return Ok((bound, Certificate::Prices(prices)));
        }
        Operation::Broadcast { root } => cut(narrowest(&network, *root)?, true),
        Operation::Gather { root, amounts } => {
            cut(paths::scatter_bound(&network.reversed(), *root, amounts)?, true)
        }
        Operation::Reduce { root } => cut(narrowest(&network.reversed(), *root)?, false),
        Operation::ReduceScatter { amounts } => {
            cut(forest::all_gather_bound(&network.reversed(), amounts)?, false)
        }
        Operation::Scatter { root, amounts } => cut(paths::scatter_bound(&network, *root, amounts)?, false),
    };
    capped::bound(&network, operation, without)
}

/// The best plan of an operation
///
/// Of up to [`MAX_EXACT_HOSTS`] hosts; above, the plan is within a proven factor of the best one.
///
/// # Errors
///
/// Those of the function for the operation: [`PlanError::OneHost`], [`PlanError::Disconnected`], [`PlanError::Root`],
/// [`PlanError::Amounts`], [`PlanError::Members`], [`PlanError::NothingToSend`],
/// [`PlanError::TooManyHosts`] or [`PlanError::Overflow`].
pub fn plan(cabling: &Cabling, operation: &Operation) -> Result<crate::Plan, PlanError> {
    match operation {
        Operation::AllGather { amounts } => forest::all_gather(cabling, amounts),
        Operation::AllReduce => all_reduce::all_reduce(cabling),
        Operation::AllReduceAmong { members } => subgroup::all_reduce_among(cabling, members),
        Operation::AllToAll { amounts } => all_to_all::all_to_all(cabling, amounts),
        Operation::Broadcast { root } => forest::broadcast(cabling, *root),
        Operation::Gather { root, amounts } => paths::gather(cabling, *root, amounts),
        Operation::Reduce { root } => forest::reduce(cabling, *root),
        Operation::ReduceScatter { amounts } => forest::reduce_scatter(cabling, amounts),
        Operation::Scatter { root, amounts } => paths::scatter(cabling, *root, amounts),
    }
}
