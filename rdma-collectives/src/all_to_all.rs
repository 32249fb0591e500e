use crate::congestion;
use crate::network::Network;
use crate::program::{Program, Solution};
use crate::tree::MAX_TREES;
use crate::{Cabling, Certificate, Operation, Plan, PlanError, Price, Ratio};

/// Up to how many hosts the plan of an all_to_all is the best one; above, the plan says how far from it it may be.
pub const MAX_EXACT_ALL_TO_ALL_HOSTS: usize = 16;

/// How many hosts an all_to_all may have: each two of them have a path, and more are not told apart in messages.
pub const MAX_ALL_TO_ALL_HOSTS: usize = 256;
const _: () = assert!(MAX_ALL_TO_ALL_HOSTS * (MAX_ALL_TO_ALL_HOSTS - 1) <= MAX_TREES);

/// The best plan of an all_to_all, in which host `s` sends `amounts[s][t]` to host `t`
///
/// The paths come from a linear program in floats, and are then rounded to fractions; time and bound are computed from the fractions
/// exactly. The plan is exactly optimal if the optimum has fractions with small denominators, as with rates that have a common
/// unit; otherwise the time is above the bound by rounding, and [`verify`](crate::verify()) says by how much. For more than
/// [`MAX_EXACT_ALL_TO_ALL_HOSTS`] hosts, the program is not solved: data take paths that carry little so far. Equal amounts over equal cables are within
/// 10 % of the bound on the cablings of up to 91 hosts that are tested; above, pairs have fewer paths. How far others may be, the plan says.
///
/// # Errors
///
/// [`PlanError::OneHost`], [`PlanError::Disconnected`], [`PlanError::Amounts`], [`PlanError::NothingToSend`],
/// [`PlanError::TooManyHosts`] above [`MAX_ALL_TO_ALL_HOSTS`], or [`PlanError::Overflow`].
pub fn all_to_all(cabling: &Cabling, amounts: &[Vec<u64>]) -> Result<Plan, PlanError> {
    let network = Network::of(cabling)?;
    let (program, total) = program(&network, amounts)?;
    let solution = solve(&program);
    let (bound, prices) = program.best_bound(&solution.prices, total)?;
    let (time, trees) = program.best_trees(&solution, total)?;
    Ok(Plan::new(
        cabling,
        Operation::AllToAll { amounts: amounts.to_vec() },
        [time, bound],
        Certificate::Prices(prices),
        trees,
    ))
}

/// Seconds per byte of the payload below which no all_to_all is
pub(crate) fn bound(network: &Network, amounts: &[Vec<u64>]) -> Result<(Ratio, Vec<Price>), PlanError> {
    let (program, total) = program(network, amounts)?;
    program.best_bound(&solve(&program).prices, total)
}

/// The program of the paths, and the whole payload
fn program<'a>(network: &'a Network, amounts: &[Vec<u64>]) -> Result<(Program<'a>, u128), PlanError> {
    let hosts = network.hosts();
    if hosts > MAX_ALL_TO_ALL_HOSTS {
        return Err(PlanError::TooManyHosts { hosts, most: MAX_ALL_TO_ALL_HOSTS });
    }
    let lengths = [amounts.len()].into_iter().chain(amounts.iter().map(Vec::len));
    if let Some(wrong) = lengths.into_iter().find(|&len| len != hosts) {
        return Err(PlanError::Amounts { amounts: wrong, hosts });
    }
    let hosts = 0..hosts;
    let pairs = hosts.clone().flat_map(|from| hosts.clone().map(move |to| (from, to)));
    let pairs = pairs.filter(|&(from, to)| from != to && amounts[from][to] > 0);
    let pairs: Vec<_> = pairs.map(|(from, to)| (from, to, amounts[from][to])).collect();
    if pairs.is_empty() {
        return Err(PlanError::NothingToSend);
    }
    let total = amounts.iter().flatten().copied().map(u128::from).sum();
    Ok((Program::new(network, pairs), total))
}

fn solve(program: &Program<'_>) -> Solution {
    if program.network.hosts() <= MAX_EXACT_ALL_TO_ALL_HOSTS {
        return program.solve();
    }
    let (ways, prices) = congestion::route(program.network, &program.arcs, &program.demands);
    Solution { ways, prices }
}
