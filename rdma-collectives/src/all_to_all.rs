use std::collections::BTreeMap;

use crate::congestion::{self, Path};
use crate::network::Network;
use crate::rounding::{FINE, common_denominator, exact_shares, fine_shares};
use crate::simplex::{Column, Simplex};
use crate::{Cabling, Certificate, Operation, Plan, PlanError, Price, Ratio, Tree};

/// Up to how many hosts the plan of an all_to_all is the best one; above, the plan says how far from it it may be.
pub const MAX_EXACT_ALL_TO_ALL_HOSTS: usize = 16;

/// How many hosts an all_to_all may have: each two of them have a path, and more are not told apart in messages.
pub const MAX_ALL_TO_ALL_HOSTS: usize = 256;

/// Gains below this are taken for rounding errors.
const TOLERANCE: f64 = 1e-9;
/// Steps after which the method ends with the best that it has
const MAX_STEPS: usize = 20_000;

/// The best plan of an all_to_all, in which host `s` sends `amounts[s][t]` to host `t`
///
/// The paths come from a linear program in floats, and are then rounded to fractions; time and bound are computed from the fractions
/// exactly. The plan is exactly optimal if the optimum has fractions with small denominators, as with rates that have a common
/// unit; otherwise the time is above the bound by rounding, and [`verify`](crate::verify()) says by how much. For more than
/// [`MAX_EXACT_ALL_TO_ALL_HOSTS`] hosts, the program is not solved: data take paths that carry little so far. Equal amounts over equal cables are within
/// 10 % of the bound on the cablings that are tested; how far others may be, the plan says.
///
/// # Errors
///
/// [`PlanError::OneHost`], [`PlanError::Disconnected`], [`PlanError::Amounts`], [`PlanError::NothingToSend`],
/// [`PlanError::TooManyHosts`] above [`MAX_ALL_TO_ALL_HOSTS`], or [`PlanError::Overflow`].
pub fn all_to_all(cabling: &Cabling, amounts: &[Vec<u64>]) -> Result<Plan, PlanError> {
    let network = Network::of(cabling)?;
    let (program, total) = Program::checked(&network, amounts)?;
    let solution = program.solve();
    let (bound, prices) = program.best_bound(&solution.prices, total)?;
    let (time, trees) = program.best_paths(&solution, total)?;
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
    let (program, total) = Program::checked(network, amounts)?;
    program.best_bound(&program.solve().prices, total)
}

/// The largest common factor `f` such that `f` times all amounts fit through the cables at once, by paths
struct Program<'a> {
    network: &'a Network,
    arcs: Vec<(usize, usize)>,
    /// Sender, receiver and amount, where it is not zero
    pairs: Vec<(usize, usize, u64)>,
}

struct Solution {
    /// By pair: paths, and how much of the pair's data takes each
    paths: Vec<Vec<(Path, f64)>>,
    /// By arc
    prices: Vec<f64>,
}

impl<'a> Program<'a> {
    /// The program, and the whole payload
    fn checked(network: &'a Network, amounts: &[Vec<u64>]) -> Result<(Self, u128), PlanError> {
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
        Ok((Self { network, arcs: network.arcs().collect(), pairs }, total))
    }

    fn solve(&self) -> Solution {
        if self.network.hosts() <= MAX_EXACT_ALL_TO_ALL_HOSTS {
            return self.solve_exactly();
        }
        let (paths, prices) = congestion::route(self.network, &self.arcs, &self.pairs);
        Solution { paths, prices }
    }

    /// Rows: the capacity of each arc, and for each pair that its paths carry `f` times its amount
    fn solve_exactly(&self) -> Solution {
        let largest = self.arcs.iter().map(|&(from, to)| self.network.capacity(from, to)).max();
        let largest = largest.unwrap_or(1) as f64;
        let capacities = self.arcs.iter().map(|&(from, to)| self.network.capacity(from, to) as f64 / largest);
        let limits: Vec<f64> = capacities.chain(self.pairs.iter().map(|_| 0.0)).collect();
        let most = self.pairs.iter().map(|&(_, _, amount)| amount).max().unwrap_or(1) as f64;
        let index: BTreeMap<_, _> = self.arcs.iter().copied().zip(0..).collect();
        let mut simplex = Simplex::new(&limits);
        let pair_rows = self.arcs.len()..;
        let amounts = pair_rows.zip(&self.pairs).map(|(row, &(_, _, amount))| (row, amount as f64 / most));
        simplex.enter(Column { entries: amounts.collect(), worth: 1.0 });
        // The column of the factor has no path.
        let mut paths = vec![(0, Vec::new())];
        for _ in 0..MAX_STEPS {
            let prices = simplex.prices();
            let (costs, next) = self.cheapest(&prices);
            let gain = |pair: usize| {
                let (from, to, _) = self.pairs[pair];
                prices[self.arcs.len() + pair] - costs[from][to]
            };
            let best = (0..self.pairs.len()).max_by(|&left, &right| gain(left).total_cmp(&gain(right)));
            // A row whose limit does not bind any more gets its slack back.
            let slack = (0..prices.len()).min_by(|&left, &right| prices[left].total_cmp(&prices[right]));
            let slack = slack.filter(|&row| prices[row] < -best.map_or(0.0, gain).max(TOLERANCE));
            if let Some(row) = slack {
                if simplex.enter(Column { entries: vec![(row, 1.0)], worth: 0.0 }).is_none() {
                    break;
                }
                paths.push((0, Vec::new()));
                continue;
            }
            let Some(pair) = best.filter(|&pair| gain(pair) > TOLERANCE) else { break };
            let (mut host, to, _) = self.pairs[pair];
            let mut path = Vec::new();
            while host != to {
                path.push((host, next[host][to]));
                host = next[host][to];
            }
            let entries = path.iter().map(|arc| (index[arc], 1.0)).chain([(self.arcs.len() + pair, -1.0)]);
            if simplex.enter(Column { entries: entries.collect(), worth: 0.0 }).is_none() {
                break;
            }
            paths.push((pair, path));
        }
        let mut by_pair = vec![Vec::new(); self.pairs.len()];
        for (column, value) in simplex.values(&limits) {
            let (pair, path) = &paths[column];
            if value > TOLERANCE && !path.is_empty() {
                by_pair[*pair].push((path.clone(), value));
            }
        }
        Solution { paths: by_pair, prices: simplex.prices()[..self.arcs.len()].to_vec() }
    }

    /// The price of the cheapest path between each two hosts, and its first step
    fn cheapest(&self, prices: &[f64]) -> (Vec<Vec<f64>>, Vec<Vec<usize>>) {
        let hosts = self.network.hosts();
        let mut costs = vec![vec![f64::INFINITY; hosts]; hosts];
        let mut next = vec![vec![0; hosts]; hosts];
        (0..hosts).for_each(|host| costs[host][host] = 0.0);
        for (&(from, to), price) in self.arcs.iter().zip(prices) {
            // Among free paths, short ones; and rounding may make a price negative.
            costs[from][to] = price.max(0.0) + TOLERANCE / 100.0;
            next[from][to] = to;
        }
        for via in 0..hosts {
            for from in 0..hosts {
                for to in 0..hosts {
                    let cost = costs[from][via] + costs[via][to];
                    if cost < costs[from][to] {
                        costs[from][to] = cost;
                        next[from][to] = next[from][via];
                    }
                }
            }
        }
        (costs, next)
    }

    /// The better one of the bounds by prices that are rounded coarsely, and finely
    fn best_bound(&self, prices: &[f64], total: u128) -> Result<(Ratio, Vec<Price>), PlanError> {
        let highest = prices.iter().copied().fold(0.0, f64::max);
        let relative: Vec<f64> = prices.iter().map(|price| (price / highest).max(0.0)).collect();
        let exact = common_denominator(&relative).map(|(whole, _)| whole);
        let fine = relative.iter().map(|price| (price * FINE as f64).round() as u64).collect();
        // A single price on everything, if floats went astray.
        let flat = vec![1; prices.len()];
        let bounds = exact
            .into_iter()
            .chain([fine, flat])
            .chain(self.ends_of_the_busiest())
            .filter_map(|whole| Some((self.bound(&whole, total)?, whole)));
        let best = bounds.reduce(|best, next| if next.0 > best.0 { next } else { best });
        let (bound, whole) = best.ok_or(PlanError::Overflow)?;
        let priced = self.arcs.iter().zip(whole).filter(|(_, price)| *price > 0);
        Ok((bound, priced.map(|(&(from, to), price)| Price { from, to, price }).collect()))
    }

    /// Prices of the arcs out of the host that takes longest to send its data, and of those into the one that takes longest to receive them
    fn ends_of_the_busiest(&self) -> impl Iterator<Item = Vec<u64>> {
        let side = |is_end: fn((usize, usize), usize) -> bool| {
            let time = |host: usize| {
                let amounts = self.pairs.iter().filter(|&&(from, to, _)| is_end((from, to), host));
                let amount: f64 = amounts.map(|&(_, _, amount)| amount as f64).sum();
                let arcs = self.arcs.iter().filter(|arc| is_end(**arc, host));
                amount / arcs.map(|&(from, to)| self.network.capacity(from, to) as f64).sum::<f64>()
            };
            let busiest =
                (0..self.network.hosts()).max_by(|&left, &right| time(left).total_cmp(&time(right)));
            busiest.map(|host| self.arcs.iter().map(|arc| u64::from(is_end(*arc, host))).collect())
        };
        [side(|(from, _), host| from == host), side(|(_, to), host| to == host)].into_iter().flatten()
    }

    /// The cheapest paths for all data, divided by the price of the whole capacity
    fn bound(&self, prices: &[u64], total: u128) -> Option<Ratio> {
        let hosts = self.network.hosts();
        let mut costs = vec![vec![u128::MAX / 4; hosts]; hosts];
        (0..hosts).for_each(|host| costs[host][host] = 0);
        let mut whole = 0_u128;
        for (&(from, to), &price) in self.arcs.iter().zip(prices) {
            costs[from][to] = price.into();
            whole = whole.checked_add(u128::from(price).checked_mul(self.network.capacity(from, to))?)?;
        }
        for via in 0..hosts {
            for from in 0..hosts {
                for to in 0..hosts {
                    costs[from][to] = costs[from][to].min(costs[from][via] + costs[via][to]);
                }
            }
        }
        let spent = self.pairs.iter().try_fold(0_u128, |spent, &(from, to, amount)| {
            spent.checked_add(costs[from][to].checked_mul(amount.into())?)
        })?;
        self.network.seconds(1, whole)?.checked_mul(Ratio::new(spent, total)?)
    }

    /// The better one of the plans by shares that are rounded coarsely, and finely
    fn best_paths(&self, solution: &Solution, total: u128) -> Result<(Ratio, Vec<Tree>), PlanError> {
        let rounded = [exact_shares as fn(&[f64]) -> Option<Vec<Ratio>>, fine_shares];
        let plans = rounded.into_iter().filter_map(|round| self.paths(solution, total, round));
        plans.reduce(|best, next| if next.0 < best.0 { next } else { best }).ok_or(PlanError::Overflow)
    }

    fn paths(
        &self,
        solution: &Solution,
        total: u128,
        round: fn(&[f64]) -> Option<Vec<Ratio>>,
    ) -> Option<(Ratio, Vec<Tree>)> {
        let mut trees = Vec::new();
        let mut loads: BTreeMap<(usize, usize), Ratio> = BTreeMap::new();
        for (&(root, _, amount), paths) in self.pairs.iter().zip(&solution.paths) {
            let amount = Ratio::new(amount.into(), total)?;
            let shares = round(&paths.iter().map(|(_, value)| *value).collect::<Vec<_>>())?;
            for ((path, _), share) in paths.iter().zip(shares).filter(|(_, share)| *share != Ratio::ZERO) {
                let share = share.checked_mul(amount)?;
                for &arc in path {
                    let load = loads.entry(arc).or_insert(Ratio::ZERO);
                    *load = load.checked_add(share)?;
                }
                trees.push(Tree { share, root, arcs: path.clone() });
            }
        }
        let mut time = Ratio::ZERO;
        for ((from, to), load) in loads {
            time = time.max(self.network.seconds(1, self.network.capacity(from, to))?.checked_mul(load)?);
        }
        Some((time, trees))
    }
}
