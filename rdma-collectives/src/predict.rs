use std::collections::BTreeSet;

use crate::large::MAX_EXACT_HOSTS;
use crate::network::Network;
use crate::shortest::Shortest;
use crate::tree::Distance;
use crate::{Cabling, Certificate, Operation, Plan, PlanError, Ratio, Tree, capped, forest, large};

/// The costs of a block beside the rates and latencies of the cables
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Costs {
    /// Nanoseconds that a host needs for each block that it passes on, whatever its size
    pub block_ns: u64,
}

/// How long an operation takes, by the model of [`Plan::predict`]
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Prediction {
    /// Seconds from the start to the end of the operation on the last host
    pub seconds: f64,
    /// Into how many blocks the share of each tree is best divided
    pub blocks: u64,
    /// Seconds below which no plan is: the latency of the furthest hosts, or [`Plan::bound`] times the payload, if that is more
    pub lower_bound: f64,
}

impl Plan {
    /// Predicts the time for a payload of so many bytes
    ///
    /// Blocks follow each other through the trees. Through a tree of latency `L` with `h` hops, on whose cables the payload
    /// takes `s` seconds, `k` blocks need `L + (h - 1 + k) (s / k + block_ns)`; an all_reduce goes up and down, so its `L` and `h`
    /// are twice the height. The best `k` is near the root of `(h - 1) s / block_ns`.
    ///
    /// The plan has to be for this cabling, as [`verify`](crate::verify()) finds.
    ///
    /// # Errors
    ///
    /// [`PlanError::OneHost`] or [`PlanError::Disconnected`] if the cabling can have no plan.
    pub fn predict(&self, cabling: &Cabling, payload: u64, costs: Costs) -> Result<Prediction, PlanError> {
        Ok(self.forecast(cabling)?.at(payload, costs))
    }

    /// As [`predict`](Self::predict), for many payloads
    pub(crate) fn forecast(&self, cabling: &Cabling) -> Result<Forecast, PlanError> {
        let network = Network::of(cabling)?;
        let both_ways = match self.operation {
            Operation::AllReduce | Operation::AllReduceAmong { .. } => 2,
            _ => 1,
        };
        let depths = self.trees.iter().map(|tree| height(tree, &network));
        let (latency, hops) =
            depths.fold((0, 0), |(latency, hops), height| (height.0.max(latency), height.1.max(hops)));
        Ok(Forecast {
            latency: nanoseconds(latency.saturating_mul(both_ways)),
            fill: (hops * both_ways).saturating_sub(1) as f64,
            time: self.time.to_f64(),
            is_shared: self.shares_cables(both_ways == 2),
            reach: nanoseconds(self.reach(&network)),
            bound: self.bound.to_f64(),
        })
    }

    /// Whether a cable carries blocks of several trees in one direction
    fn shares_cables(&self, both_ways: bool) -> bool {
        let arcs = self.trees.iter().flat_map(|tree| &tree.arcs);
        let mut used = BTreeSet::new();
        !arcs.copied().all(|(parent, child)| {
            let arc = if both_ways { (parent.min(child), parent.max(child)) } else { (parent, child) };
            used.insert(arc)
        })
    }

    /// The latency between the furthest hosts of which one needs data of the other, in nanoseconds
    fn reach(&self, network: &Network) -> u64 {
        let distances = network.distances();
        let needs = |from: usize, to: usize| match &self.operation {
            Operation::AllGather { amounts } => amounts.get(from).is_some_and(|&amount| amount > 0),
            Operation::AllReduce => true,
            Operation::AllReduceAmong { members } => members.contains(&from) && members.contains(&to),
            Operation::AllToAll { amounts } => {
                amounts.get(from).and_then(|row| row.get(to)).is_some_and(|&amount| amount > 0)
            }
            Operation::Broadcast { root } => from == *root,
            Operation::Gather { root, amounts } => {
                to == *root && amounts.get(from).is_some_and(|&amount| amount > 0)
            }
            Operation::Reduce { root } => to == *root,
            Operation::ReduceScatter { amounts } => amounts.get(to).is_some_and(|&amount| amount > 0),
            Operation::Scatter { root, amounts } => {
                from == *root && amounts.get(to).is_some_and(|&amount| amount > 0)
            }
        };
        let pairs = (0..network.hosts()).flat_map(|from| (0..network.hosts()).map(move |to| (from, to)));
        pairs.filter(|&(from, to)| needs(from, to)).map(|(from, to)| distances[from][to].0).max().unwrap_or(0)
    }
}

/// The parts of a prediction that do not depend on the payload; times are in seconds
#[derive(Clone, Copy, Debug)]
pub(crate) struct Forecast {
    pub(crate) latency: f64,
    /// How many blocks pass before the first one is at the end
    pub(crate) fill: f64,
    /// For each byte
    pub(crate) time: f64,
    /// Whether a cable carries blocks of several trees in one direction
    #[cfg_attr(not(feature = "groups"), expect(dead_code, reason = "only groups choose blocks by it"))]
    pub(crate) is_shared: bool,
    pub(crate) reach: f64,
    /// For each byte
    pub(crate) bound: f64,
}

impl Forecast {
    pub(crate) fn at(&self, payload: u64, costs: Costs) -> Prediction {
        let Self { latency, fill, time, reach, bound, .. } = *self;
        let transfer = payload as f64 * time;
        let block = nanoseconds(costs.block_ns);
        let blocks = (fill * transfer / block).sqrt().round();
        // The cast saturates, also from infinity.
        let blocks = (blocks as u64).clamp(1, payload.max(1));
        let seconds = latency + (fill + blocks as f64) * (transfer / blocks as f64 + block);
        Prediction { seconds, blocks, lower_bound: reach.max(payload as f64 * bound) }
    }
}

/// Latency and hops from the root to the host that is furthest from it
fn height(tree: &Tree, network: &Network) -> Distance {
    let mut depths = vec![(0, 0); network.hosts()];
    let mut height = (0, 0);
    let known = |host: &usize| *host < network.hosts();
    for &(parent, child) in tree.arcs.iter().filter(|(parent, child)| known(parent) && known(child)) {
        let (latency, hops): Distance = depths[parent];
        depths[child] = (latency.saturating_add(network.latency(parent, child)), hops + 1);
        height = height.max(depths[child]);
    }
    height
}

fn nanoseconds(nanoseconds: u64) -> f64 {
    nanoseconds as f64 / 1e9
}

/// How to do an all_reduce
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum Algorithm {
    /// Every host sends its vector to all others by the shortest ways, and each adds them up in the order of the hosts
    Flood,
    /// Partial sums go up the trees of the plan, and results down
    Trees,
}

/// The two ways to do an all_reduce over a cabling, of which [`choose`](Self::choose) takes the faster one for a size
#[derive(Clone, Debug, PartialEq)]
pub struct AllReducePlans {
    /// The plan of [`all_reduce`](crate::all_reduce()): for large vectors
    pub trees: Plan,
    /// The plan of [`flood`], an all_gather of whole vectors: for small ones
    pub flood: Plan,
}

impl AllReducePlans {
    /// Both plans for a cabling
    ///
    /// # Errors
    ///
    /// [`PlanError::OneHost`], [`PlanError::Disconnected`] or [`PlanError::Overflow`].
    pub fn new(cabling: &Cabling) -> Result<Self, PlanError> {
        Ok(Self { trees: crate::all_reduce(cabling)?, flood: flood(cabling)? })
    }

    /// The faster algorithm for vectors of so many bytes, with its prediction
    ///
    /// # Errors
    ///
    /// [`PlanError::OneHost`] or [`PlanError::Disconnected`] if the plans are not for this cabling.
    pub fn choose(
        &self,
        cabling: &Cabling,
        bytes: u64,
        costs: Costs,
    ) -> Result<(Algorithm, Prediction), PlanError> {
        let trees = self.trees.predict(cabling, bytes, costs)?;
        // The payload of an all_gather is what all hosts have.
        let payload = bytes.saturating_mul(cabling.hosts().len() as u64);
        let flood = self.flood.predict(cabling, payload, costs)?;
        Ok(match flood.seconds <= trees.seconds {
            true => (Algorithm::Flood, Prediction { lower_bound: trees.lower_bound, ..flood }),
            false => (Algorithm::Trees, trees),
        })
    }
}

/// An all_gather of equal amounts by the shortest ways: the lowest latency, and not the highest rate
///
/// Each host's data goes over the tree of its shortest paths, by latency and then by hops.
///
/// # Errors
///
/// [`PlanError::OneHost`], [`PlanError::Disconnected`] or [`PlanError::Overflow`].
pub fn flood(cabling: &Cabling) -> Result<Plan, PlanError> {
    let network = Network::of(cabling)?;
    let hosts = network.hosts();
    let amounts = vec![1; hosts];
    if hosts > MAX_EXACT_HOSTS {
        return large::plan(cabling, Operation::AllGather { amounts });
    }
    let (cut, bound) = forest::all_gather_bound(&network, &amounts)?;
    let operation = Operation::AllGather { amounts };
    let (bound, certificate) =
        capped::bound(&network, &operation, (bound, Certificate::Cut(cut.hosts(true))))?;
    let share = Ratio::new(1, hosts as u128).ok_or(PlanError::Overflow)?;
    let mut ways = Shortest::new(&network);
    let trees = (0..hosts).map(|root| Tree { share, root, arcs: ways.tree(root, 1) }).collect();
    let time = ways.seconds(hosts as u128).ok_or(PlanError::Overflow)?;
    Ok(Plan::new(cabling, operation, [time, bound], certificate, trees))
}

#[cfg(test)]
mod tests {
    use crate::{Cabling, Operation, plan};

    /// Catches two directions that are taken for one, and one for two: the blocks of an operation would be too long, or too short.
    #[test]
    fn trees_share_a_cable_in_the_directions_in_which_they_use_it() {
        let [pair, line, ring] = [Cabling::line(2, 1), Cabling::line(3, 1), Cabling::ring(4, 1)];
        let all_gather = Operation::AllGather { amounts: vec![1; 2] };
        for (cabling, operation, expected) in [
            (&pair, all_gather, false),
            (&pair, Operation::AllReduce, false),
            (&line, Operation::AllReduce, false),
            (&ring, Operation::AllReduce, true),
            (&ring, Operation::Broadcast { root: 0 }, false),
        ] {
            let forecast = plan(cabling, &operation).and_then(|plan| plan.forecast(cabling)).unwrap();
            assert_eq!(forecast.is_shared, expected, "{operation:?} of {cabling:?}");
        }
    }
}
