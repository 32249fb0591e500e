//! Plans and bounds of operations with a direction, if hosts have caps

use crate::network::Network;
use crate::program::{Demand, Program};
use crate::{Certificate, Operation, Plan, PlanError, Price, Ratio, Resource};

/// Up to how many hosts plans are the best ones, up to rounding, if some host has a [cap](crate::HostCap) that binds
///
/// Above, a plan has the trees and the bound of the cabling without caps, and a time that the caps allow: it says itself how far it may be
/// from the best one.
pub const MAX_EXACT_CAPPED_HOSTS: usize = 32;

/// The plan with a bound that counts caps, and other trees if they are faster
pub(crate) fn within_caps(network: &Network, plan: Plan) -> Result<Plan, PlanError> {
    if !network.has_caps() {
        return Ok(plan);
    }
    let along = Along::new(network, &plan.operation);
    let loads = plan.loads().ok_or(PlanError::Overflow)?;
    let taken = network.slowest(&loads).ok_or(PlanError::Overflow)?;
    let mut plan = Plan { time: plan.time.max(taken), ..plan };
    if network.hosts() > MAX_EXACT_CAPPED_HOSTS {
        return Ok(plan);
    }
    let (program, total) = along.program(&plan.operation);
    let solution = program.solve();
    let (bound, prices) = program.best_bound(&solution.prices, total)?;
    (plan.bound, plan.certificate) = along.larger((plan.bound, plan.certificate), bound, prices);
    match program.best_trees(&solution, total) {
        Ok((time, trees)) if time < plan.time => Ok(Plan { time, trees, ..plan }),
        _ => Ok(plan),
    }
}

/// The larger one of a bound that does not count caps, and one that does
pub(crate) fn bound(
    network: &Network,
    operation: &Operation,
    without: (Ratio, Certificate),
) -> Result<(Ratio, Certificate), PlanError> {
    if !network.has_caps() || network.hosts() > MAX_EXACT_CAPPED_HOSTS {
        return Ok(without);
    }
    let along = Along::new(network, operation);
    let (program, total) = along.program(operation);
    let (bound, prices) = program.best_bound(&program.solve().prices, total)?;
    Ok(along.larger(without, bound, prices))
}

/// The network in which the data of an operation goes over trees away from their roots
struct Along {
    network: Network,
    is_reversed: bool,
}

impl Along {
    fn new(network: &Network, operation: &Operation) -> Self {
        match operation {
            Operation::Gather { .. } | Operation::Reduce { .. } | Operation::ReduceScatter { .. } => {
                Self { network: network.reversed(), is_reversed: true }
            }
            _ => Self { network: network.clone(), is_reversed: false },
        }
    }

    /// The program of an operation that fits the hosts and sends something, and its whole payload
    fn program(&self, operation: &Operation) -> (Program<'_>, u128) {
        let each = |amounts: &[u64], root: Option<usize>| -> (Vec<Demand>, u128) {
            let ends = amounts.iter().enumerate().filter(|(end, amount)| root != Some(*end) && **amount > 0);
            let demands = ends.map(|(end, &amount)| (root.unwrap_or(end), end, amount)).collect();
            (demands, amounts.iter().copied().map(u128::from).sum())
        };
        let (demands, total) = match operation {
            Operation::AllGather { amounts } | Operation::ReduceScatter { amounts } => each(amounts, None),
            Operation::Gather { root, amounts } | Operation::Scatter { root, amounts } => {
                each(amounts, Some(*root))
            }
            Operation::Broadcast { root } | Operation::Reduce { root } => (vec![(*root, *root, 1)], 1),
            Operation::AllReduce | Operation::AllReduceAmong { .. } | Operation::AllToAll { .. } => {
                unreachable!("{operation:?} has a program of its own")
            }
        };
        (Program::new(&self.network, demands), total)
    }

    fn larger(
        &self,
        without: (Ratio, Certificate),
        bound: Ratio,
        prices: Vec<Price>,
    ) -> (Ratio, Certificate) {
        if bound <= without.0 {
            return without;
        }
        let prices = match self.is_reversed {
            true => prices.into_iter().map(reversed).collect(),
            false => prices,
        };
        (bound, Certificate::Prices(prices))
    }
}

/// The price in the network with each arc turned round
pub(crate) fn reversed(Price { of, price }: Price) -> Price {
    let of = match of {
        Resource::Cables { from, to } => Resource::Cables { from: to, to: from },
        Resource::Receive { host } => Resource::Send { host },
        Resource::Send { host } => Resource::Receive { host },
    };
    Price { of, price }
}
