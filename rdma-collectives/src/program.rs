//! The linear program of trees or paths that carry as much as cables, and hosts with caps, let pass

use std::collections::BTreeMap;

use crate::arborescence::arborescence;
use crate::network::{Network, RECEIVE, SEND};
use crate::rounding::{FINE, common_denominator, exact_shares, fine_shares};
use crate::simplex::{Column, Simplex};
use crate::{PlanError, Price, Ratio, Resource, Tree};

/// Gains below this are taken for rounding errors.
const TOLERANCE: f64 = 1e-9;
/// Steps after which the method ends with the best that it has
const MAX_STEPS: usize = 20_000;

/// The arcs of a path, from the sender on, or of a tree, from the root on
pub(crate) type Way = Vec<(usize, usize)>;

/// What goes from a host to another one, or to all others if the two are the same
pub(crate) type Demand = (usize, usize, u64);

/// The largest common factor `f` such that `f` times all amounts fit through the cables and hosts at once
pub(crate) struct Program<'a> {
    pub(crate) network: &'a Network,
    pub(crate) arcs: Vec<(usize, usize)>,
    /// Paths to one host each, or trees to all
    pub(crate) demands: Vec<Demand>,
    /// Those of the arcs, in their order, and then those of the hosts with caps
    resources: Vec<(Resource, u128)>,
    /// By arc
    used: Vec<Vec<usize>>,
}

/// How the demands are met, and what that costs
pub(crate) struct Solution {
    /// By demand: ways, and how much of the demand's data takes each
    pub(crate) ways: Vec<Vec<(Way, f64)>>,
    /// Of the resources; only the first ones, if the others are free
    pub(crate) prices: Vec<f64>,
}

/// The cheapest ways at some prices
enum Cheapest {
    /// By sender and receiver, the cost of the path and the host after the sender
    Paths(Vec<Vec<f64>>, Vec<Vec<usize>>),
    /// By demand, the cost and the arcs
    Trees(Vec<(f64, Way)>),
}

impl<'a> Program<'a> {
    /// A program of demands that are not zero
    pub(crate) fn new(network: &'a Network, demands: Vec<Demand>) -> Self {
        let arcs: Vec<_> = network.arcs().collect();
        let of_arc =
            |&(from, to): &(usize, usize)| (Resource::Cables { from, to }, network.capacity(from, to));
        let mut resources: Vec<_> = arcs.iter().map(of_arc).collect();
        let mut used: Vec<_> = (0..arcs.len()).map(|arc| vec![arc]).collect();
        for (side, host) in
            [SEND, RECEIVE].into_iter().flat_map(|side| (0..network.hosts()).map(move |host| (side, host)))
        {
            let Some(cap) = network.cap(side, host) else { continue };
            let of_host = arcs.iter().zip(&mut used).filter(|((from, to), _)| [*from, *to][side] == host);
            of_host.for_each(|(_, used)| used.push(resources.len()));
            let of = if side == SEND { Resource::Send { host } } else { Resource::Receive { host } };
            resources.push((of, cap));
        }
        Self { network, arcs, demands, resources, used }
    }

    /// The row of a resource: those of the demands are between those of the arcs and those of the hosts
    fn row(&self, resource: usize) -> usize {
        if resource < self.arcs.len() { resource } else { resource + self.demands.len() }
    }

    /// The best ways
    pub(crate) fn solve(&self) -> Solution {
        let largest = self.arcs.iter().map(|&(from, to)| self.network.capacity(from, to)).max();
        let largest = largest.unwrap_or(1) as f64;
        let limit = |(_, capacity): &(Resource, u128)| *capacity as f64 / largest;
        let (of_arcs, of_hosts) = self.resources.split_at(self.arcs.len());
        let limits = of_arcs.iter().map(limit).chain(self.demands.iter().map(|_| 0.0));
        let limits: Vec<f64> = limits.chain(of_hosts.iter().map(limit)).collect();
        let most = self.demands.iter().map(|&(_, _, amount)| amount).max().unwrap_or(1) as f64;
        let index: BTreeMap<_, _> = self.arcs.iter().copied().zip(0..).collect();
        let mut simplex = Simplex::new(&limits);
        let rows = self.arcs.len()..;
        let amounts = rows.zip(&self.demands).map(|(row, &(_, _, amount))| (row, amount as f64 / most));
        simplex.enter(Column { entries: amounts.collect(), worth: 1.0 });
        // The column of the factor has no way.
        let mut ways = vec![(0, Vec::new())];
        for _ in 0..MAX_STEPS {
            let prices = simplex.prices();
            let cheapest = self.cheapest(&self.of_resources(&prices));
            let gain = |demand: usize| {
                prices[self.arcs.len() + demand] - cheapest.cost(self.demands[demand], demand)
            };
            let best = (0..self.demands.len()).max_by(|&left, &right| gain(left).total_cmp(&gain(right)));
            // A row whose limit does not bind any more gets its slack back.
            let slack = (0..prices.len()).min_by(|&left, &right| prices[left].total_cmp(&prices[right]));
            let slack = slack.filter(|&row| prices[row] < -best.map_or(0.0, gain).max(TOLERANCE));
            if let Some(row) = slack {
                if simplex.enter(Column { entries: vec![(row, 1.0)], worth: 0.0 }).is_none() {
                    break;
                }
                ways.push((0, Vec::new()));
                continue;
            }
            let Some(demand) = best.filter(|&demand| gain(demand) > TOLERANCE) else { break };
            let way = cheapest.way(self.demands[demand], demand);
            let used =
                way.iter().flat_map(|arc| &self.used[index[arc]]).map(|&resource| (self.row(resource), 1.0));
            let entries = used.chain([(self.arcs.len() + demand, -1.0)]).collect();
            if simplex.enter(Column { entries, worth: 0.0 }).is_none() {
                break;
            }
            ways.push((demand, way));
        }
        let mut by_demand = vec![Vec::new(); self.demands.len()];
        for (column, value) in simplex.values(&limits) {
            let (demand, way) = &ways[column];
            if value > TOLERANCE && !way.is_empty() {
                by_demand[*demand].push((way.clone(), value));
            }
        }
        Solution { ways: by_demand, prices: self.of_resources(&simplex.prices()) }
    }

    /// Prices of the resources of those of all rows
    fn of_resources(&self, prices: &[f64]) -> Vec<f64> {
        (0..self.resources.len()).map(|resource| prices[self.row(resource)]).collect()
    }

    /// The cheapest ways at these prices of the resources
    fn cheapest(&self, prices: &[f64]) -> Cheapest {
        // Among free ways, short ones; and rounding may make a price negative.
        let cost = |used: &Vec<usize>| -> f64 {
            let sum = used.iter().map(|&resource| prices.get(resource).map_or(0.0, |price| price.max(0.0)));
            sum.sum::<f64>() + TOLERANCE / 100.0
        };
        let costs: Vec<f64> = self.used.iter().map(cost).collect();
        match self.demands.iter().any(|(root, end, _)| root == end) {
            true => Cheapest::Trees(self.demands.iter().map(|&(root, ..)| self.tree(root, &costs)).collect()),
            false => self.paths(&costs),
        }
    }

    fn tree(&self, root: usize, costs: &[f64]) -> (f64, Way) {
        let hops: Vec<_> = self.network.distances_from(root).into_iter().map(|(_, hops)| hops).collect();
        // Among equally cheap trees, low ones.
        let detour = |&(from, to): &(usize, usize)| (hops[from] + 1).saturating_sub(hops[to]) as f64;
        let costs = self.arcs.iter().zip(costs).map(|(arc, cost)| cost + detour(arc) * TOLERANCE / 100.0);
        let costs: Vec<f64> = costs.collect();
        let chosen = arborescence(self.network.hosts(), root, &self.arcs, &costs);
        (chosen.iter().map(|&arc| costs[arc]).sum(), chosen.iter().map(|&arc| self.arcs[arc]).collect())
    }

    fn paths(&self, by_arc: &[f64]) -> Cheapest {
        let hosts = self.network.hosts();
        let mut costs = vec![vec![f64::INFINITY; hosts]; hosts];
        let mut next = vec![vec![0; hosts]; hosts];
        (0..hosts).for_each(|host| costs[host][host] = 0.0);
        for (&(from, to), &cost) in self.arcs.iter().zip(by_arc) {
            costs[from][to] = cost;
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
        Cheapest::Paths(costs, next)
    }

    /// The best one of the bounds by prices that are rounded coarsely, and finely
    pub(crate) fn best_bound(&self, prices: &[f64], total: u128) -> Result<(Ratio, Vec<Price>), PlanError> {
        let highest = prices.iter().copied().fold(0.0, f64::max);
        let relative: Vec<f64> = prices.iter().map(|price| (price / highest).max(0.0)).collect();
        let exact = common_denominator(&relative).map(|(whole, _)| whole);
        let fine = relative.iter().map(|price| (price * FINE as f64).round() as u64).collect();
        // A single price on every cable, if floats went astray.
        let flat = vec![1; self.arcs.len()];
        let bounds = exact
            .into_iter()
            .chain([fine, flat])
            .chain(self.ends_of_the_busiest())
            .filter_map(|whole| Some((self.bound(&whole, total)?, whole)));
        let best = bounds.reduce(|best, next| if next.0 > best.0 { next } else { best });
        let (bound, whole) = best.ok_or(PlanError::Overflow)?;
        let priced = self.resources.iter().zip(whole).filter(|(_, price)| *price > 0);
        Ok((bound, priced.map(|(&(of, _), price)| Price { of, price }).collect()))
    }

    /// Prices of the arcs out of the host that takes longest to send its data, and of those into the one that takes longest to receive them
    fn ends_of_the_busiest(&self) -> impl Iterator<Item = Vec<u64>> {
        let side = |is_end: fn((usize, usize), usize) -> bool| {
            let time = |host: usize| {
                let amounts = self.demands.iter().filter(|&&(from, to, _)| is_end((from, to), host));
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

    /// What the cheapest ways for all data cost at these prices, of which others do not count
    pub(crate) fn cost(&self, prices: &[Price]) -> Option<u128> {
        let given: BTreeMap<_, _> = prices.iter().map(|price| (price.of, price.price)).collect();
        let price = |(of, _): &(Resource, u128)| given.get(of).copied().unwrap_or_default();
        self.spent(&self.resources.iter().map(price).collect::<Vec<_>>())
    }

    /// The cheapest ways for all data, divided by the price of the whole capacity
    fn bound(&self, prices: &[u64], total: u128) -> Option<Ratio> {
        let price = |resource: usize| prices.get(resource).copied().unwrap_or_default();
        let mut whole = 0_u128;
        for (resource, &(_, capacity)) in self.resources.iter().enumerate() {
            whole = whole.checked_add(u128::from(price(resource)).checked_mul(capacity)?)?;
        }
        self.network.seconds(1, whole)?.checked_mul(Ratio::new(self.spent(prices)?, total)?)
    }

    fn spent(&self, prices: &[u64]) -> Option<u128> {
        let price = |resource: usize| prices.get(resource).copied().unwrap_or_default();
        // Rounded prices and their sums are whole numbers that floats hold exactly.
        let cheapest = self.cheapest(&prices.iter().map(|&price| price as f64).collect::<Vec<_>>());
        let index: BTreeMap<_, _> = self.arcs.iter().copied().zip(0..).collect();
        let mut spent = 0_u128;
        for (demand, &of) in self.demands.iter().enumerate() {
            let used = cheapest.way(of, demand).into_iter().flat_map(|arc| &self.used[index[&arc]]);
            let cost: u128 = used.map(|&resource| u128::from(price(resource))).sum();
            spent = spent.checked_add(cost.checked_mul(of.2.into())?)?;
        }
        Some(spent)
    }

    /// The better one of the plans by shares that are rounded coarsely, and finely
    pub(crate) fn best_trees(
        &self,
        solution: &Solution,
        total: u128,
    ) -> Result<(Ratio, Vec<Tree>), PlanError> {
        let rounded = [exact_shares as fn(&[f64]) -> Option<Vec<Ratio>>, fine_shares];
        let plans = rounded.into_iter().filter_map(|round| self.trees(solution, total, round));
        plans.reduce(|best, next| if next.0 < best.0 { next } else { best }).ok_or(PlanError::Overflow)
    }

    fn trees(
        &self,
        solution: &Solution,
        total: u128,
        round: fn(&[f64]) -> Option<Vec<Ratio>>,
    ) -> Option<(Ratio, Vec<Tree>)> {
        let mut trees = Vec::new();
        let mut loads: BTreeMap<(usize, usize), Ratio> = BTreeMap::new();
        for (&(root, _, amount), ways) in self.demands.iter().zip(&solution.ways) {
            let amount = Ratio::new(amount.into(), total)?;
            let shares = round(&ways.iter().map(|(_, value)| *value).collect::<Vec<_>>())?;
            for ((way, _), share) in ways.iter().zip(shares).filter(|(_, share)| *share != Ratio::ZERO) {
                let share = share.checked_mul(amount)?;
                for &arc in way {
                    let load = loads.entry(arc).or_insert(Ratio::ZERO);
                    *load = load.checked_add(share)?;
                }
                trees.push(Tree { share, root, arcs: way.clone() });
            }
        }
        Some((self.network.slowest(&loads)?, trees))
    }
}

impl Cheapest {
    fn cost(&self, (from, to, _): Demand, demand: usize) -> f64 {
        match self {
            Self::Paths(costs, _) => costs[from][to],
            Self::Trees(trees) => trees[demand].0,
        }
    }

    fn way(&self, (mut host, to, _): Demand, demand: usize) -> Way {
        match self {
            Self::Paths(_, next) => {
                let mut path = Vec::new();
                while host != to {
                    path.push((host, next[host][to]));
                    host = next[host][to];
                }
                path
            }
            Self::Trees(trees) => trees[demand].1.clone(),
        }
    }
}
