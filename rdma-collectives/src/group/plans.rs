//! The plans of a group, made when they are first needed

use std::collections::BTreeMap;
use std::sync::Arc;

use super::blocks::Blocks;
use super::call::{Call, OperationKind};
use super::error::GroupError;
use super::options::GroupOptions;
use super::schedule::Schedule;
use crate::{Algorithm, AllReducePlans, Cabling, Costs, Operation, Plan, PlanError, planner};

/// What a block costs beside its bytes: measured over simulated sessions.
const COSTS: Costs = Costs { block_ns: 1_000 };
/// Vectors above this are never flooded, in bytes.
const MAX_FLOOD: u64 = 1 << 20;

/// A plan, and how its blocks follow each other
#[derive(Debug)]
pub(crate) struct Planned {
    pub(crate) plan: Plan,
    /// The most channels into a rank
    channels: usize,
    largest_share: f64,
}

impl Planned {
    fn new(plan: Plan) -> Self {
        let channels = |rank| Schedule::new(&plan, rank, 1 << 32, 1).ins.len();
        let most = (0..plan.hosts.len()).map(channels).max().unwrap_or(0);
        let largest_share = plan.trees.iter().map(|tree| tree.share.to_f64()).fold(0.0, f64::max);
        Self { channels: most, largest_share, plan }
    }

    /// How the parts of an operation are divided into blocks
    pub(crate) fn blocks(
        &self,
        cabling: &Cabling,
        call: Call,
        options: GroupOptions,
    ) -> Result<(Blocks, u32), PlanError> {
        let size = call.element.size();
        let ranks = if call.has_parts() { cabling.hosts().len() as u64 } else { 1 };
        let payload = call.count.saturating_mul(size as u64).saturating_mul(ranks);
        let best = self.plan.predict(cabling, payload, COSTS)?.blocks;
        let largest = (payload as f64 * self.largest_share).ceil() as usize;
        let blocks = Blocks::new(largest, best, options.block_bytes, size);
        Ok((blocks, options.window(self.channels, blocks.longest())))
    }
}

/// All plans over a cabling
#[derive(Debug)]
pub(crate) struct Plans {
    pub(crate) cabling: Cabling,
    /// `None` for a single host
    pub(crate) all_reduce: Option<[Arc<Planned>; 2]>,
    /// The longest vector that is flooded, in bytes
    most_flooded: u64,
    others: BTreeMap<(u8, usize, usize), Arc<Planned>>,
}

impl Plans {
    pub(crate) fn new(cabling: Cabling) -> Result<Self, PlanError> {
        let mut plans = Self { cabling, all_reduce: None, most_flooded: 0, others: BTreeMap::new() };
        if plans.cabling.hosts().len() > 1 {
            let all_reduce = AllReducePlans::new(&plans.cabling)?;
            plans.most_flooded = plans.crossover(&all_reduce)?;
            let AllReducePlans { trees, flood } = all_reduce;
            plans.all_reduce = Some([trees, flood].map(|plan| Arc::new(Planned::new(plan))));
        }
        Ok(plans)
    }

    /// The longest vector for which flooding is faster, by bisection
    fn crossover(&self, plans: &AllReducePlans) -> Result<u64, PlanError> {
        let (mut low, mut high) = (0, MAX_FLOOD);
        while low < high {
            let middle = (low + high).div_ceil(2);
            match plans.choose(&self.cabling, middle, COSTS)?.0 {
                Algorithm::Flood => low = middle,
                Algorithm::Trees => high = middle - 1,
            }
        }
        Ok(low)
    }

    /// The plan of an all_reduce of so many bytes, and whether it floods; `None` for a single host
    pub(crate) fn all_reduce(&self, bytes: u64) -> Option<(Arc<Planned>, bool)> {
        let [trees, flood] = self.all_reduce.as_ref()?;
        Some(match bytes <= self.most_flooded {
            true => (Arc::clone(flood), true),
            false => (Arc::clone(trees), false),
        })
    }

    /// The plan of another operation
    pub(crate) fn of(&mut self, call: &Call) -> Result<Arc<Planned>, GroupError> {
        let ranks = self.cabling.hosts().len();
        let (root, to) = (call.root.unwrap_or(0), call.to.unwrap_or(0));
        let key = (call.operation as u8, root, to);
        if let Some(planned) = self.others.get(&key) {
            return Ok(Arc::clone(planned));
        }
        let amounts = vec![1; ranks];
        let operation = match call.operation {
            OperationKind::AllGather => Operation::AllGather { amounts },
            OperationKind::AllReduce | OperationKind::Barrier => Operation::AllReduce,
            OperationKind::AllToAll => Operation::AllToAll { amounts: vec![amounts; ranks] },
            OperationKind::Broadcast => Operation::Broadcast { root },
            OperationKind::Gather => Operation::Gather { root, amounts },
            OperationKind::Reduce => Operation::Reduce { root },
            OperationKind::ReduceScatter => Operation::ReduceScatter { amounts },
            OperationKind::Scatter => Operation::Scatter { root, amounts },
            OperationKind::Transfer => {
                Operation::Scatter { root, amounts: (0..ranks).map(|rank| u64::from(rank == to)).collect() }
            }
        };
        let plan = planner::plan(&self.cabling, &operation)?;
        let planned = Arc::new(Planned::new(plan));
        self.others.insert(key, Arc::clone(&planned));
        Ok(planned)
    }
}
