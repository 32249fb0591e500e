//! The plans of a group, made when they are first needed

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use super::blocks::Blocks;
use super::call::{Call, OperationKind};
use super::counts::Counts;
use super::options::GroupOptions;
use super::recent::Recent;
use super::schedule::{Schedule, parts};
use crate::predict::Forecast;
use crate::{Algorithm, AllReducePlans, Cabling, Costs, Operation, Plan, PlanError, Ratio, Tree, planner};

/// The costs of a block beside its bytes, between flooding and trees: measured over simulated sessions.
const COSTS: Costs = Costs { block_ns: 1_000 };
/// Vectors above this are never flooded, in bytes.
const MAX_FLOOD: u64 = 1 << 20;
/// A plan, and how its blocks follow each other
#[derive(Debug)]
pub(crate) struct Planned {
    plan: Plan,
    forecast: Forecast,
    /// The most channels into a rank
    channels: usize,
}

impl Planned {
    fn new(cabling: &Cabling, plan: Plan) -> Result<Self, PlanError> {
        let channels = |rank| Schedule::new(&plan, rank, &Counts::Even(1 << 32), 1).ins.len();
        let most = (0..plan.hosts.len()).map(channels).max().unwrap_or(0);
        Ok(Self { forecast: plan.forecast(cabling)?, channels: most, plan })
    }

    /// The payload of the plan, in elements
    fn payload(&self, counts: &Counts) -> u64 {
        counts.total(match &self.plan.operation {
            Operation::AllReduce
            | Operation::AllReduceAmong { .. }
            | Operation::Broadcast { .. }
            | Operation::Reduce { .. } => 1,
            Operation::AllGather { amounts }
            | Operation::Gather { amounts, .. }
            | Operation::ReduceScatter { amounts }
            | Operation::Scatter { amounts, .. } => amounts.iter().sum(),
            Operation::AllToAll { amounts } => amounts.iter().flatten().sum(),
        })
    }

    /// How `rank` carries out the operation for elements of `size` bytes
    fn prepare(&self, rank: usize, counts: &Counts, size: usize, options: GroupOptions) -> Prepared {
        let payload = self.payload(counts).saturating_mul(size as u64);
        let lens =
            parts(&self.plan, counts).into_iter().map(|(_, [start, end])| (end - start).saturating_mul(size));
        let blocks =
            Blocks::best(&lens.collect::<Vec<_>>(), &self.forecast, payload, options.block_bytes, size);
        let window = options.window(self.channels, blocks.longest());
        let schedule = Schedule::new(&self.plan, rank, counts, size);
        Prepared { schedule, blocks, window, following: Mutex::default() }
    }
}

/// How a rank carries out an operation
#[derive(Debug)]
pub(crate) struct Prepared {
    pub(crate) schedule: Schedule,
    pub(crate) blocks: Blocks,
    /// How many blocks of a channel may be under way, or held by the receiver
    pub(crate) window: u32,
    following: Mutex<Following>,
}

/// The operation that has followed another one last
#[derive(Debug, Default)]
struct Following {
    /// Nothing, if its schedule is not kept
    prepared: Weak<Prepared>,
    /// Whether it is likely to follow again: it has twice in a row, or it is the same as the other one, and no other has followed yet
    is_likely: bool,
}

impl Prepared {
    /// How a rank carries an operation out that needs no other: its input becomes its output
    pub(crate) fn alone(call: &Call, options: GroupOptions) -> Self {
        let size = call.element.size();
        let schedule = Schedule::alone(call.count as usize * size);
        Self {
            schedule,
            blocks: Blocks::new(0, 1, options.block_bytes, size),
            window: 1,
            following: Mutex::default(),
        }
    }

    /// Notes that another operation has followed this one
    pub(crate) fn note_follower(&self, other: &Arc<Self>) {
        let prepared = Arc::downgrade(other);
        let mut following = self.following.lock().unwrap_or_else(PoisonError::into_inner);
        let is_repeated = std::ptr::eq(self, &**other) && following.prepared.ptr_eq(&Weak::new());
        let is_likely = is_repeated || following.prepared.ptr_eq(&prepared);
        *following = Following { prepared, is_likely };
    }

    /// The operation that is likely to follow this one
    pub(crate) fn following(&self) -> Option<Arc<Self>> {
        let following = self.following.lock().unwrap_or_else(PoisonError::into_inner);
        following.prepared.upgrade().filter(|_| following.is_likely)
    }
}

/// Names a plan: the kind of an operation, its root, and the receiver of a transfer
type PlanKey = (OperationKind, usize, usize);
/// Names a schedule: its plan, and the numbers and the size of elements
type ScheduleKey = (PlanKey, Counts, usize);

/// All plans over a cabling, and the schedules of one rank
#[derive(Debug)]
pub(crate) struct Plans {
    pub(crate) cabling: Cabling,
    /// `None` for a single host
    pub(crate) trees: Option<Plan>,
    /// The longest vector that is flooded, in bytes
    most_flooded: u64,
    /// Of operations whose parts have equal lengths
    planned: BTreeMap<PlanKey, Planned>,
    /// Of others, by their scaled counts
    varying: Recent<(PlanKey, Counts), Planned>,
    prepared: Recent<ScheduleKey, Arc<Prepared>>,
}

impl Plans {
    pub(crate) fn new(cabling: Cabling) -> Result<Self, PlanError> {
        let (planned, varying, prepared) = (BTreeMap::new(), Recent::default(), Recent::default());
        let mut plans = Self { cabling, trees: None, most_flooded: 0, planned, varying, prepared };
        if plans.cabling.hosts().len() > 1 {
            let all_reduce = AllReducePlans::new(&plans.cabling)?;
            plans.most_flooded = plans.crossover(&all_reduce)?;
            let AllReducePlans { mut trees, flood } = all_reduce;
            balance(&mut trees);
            plans.trees = Some(trees.clone());
            // A barrier floods one byte, and a flood is an operation of its own here.
            for (kind, plan) in [(OperationKind::AllReduce, trees), (OperationKind::Barrier, flood)] {
                let planned = Planned::new(&plans.cabling, plan)?;
                plans.planned.insert((kind, 0, 0), planned);
            }
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

    /// Whether an all_reduce of so many bytes floods
    pub(crate) fn floods(&self, bytes: usize) -> bool {
        self.trees.is_some() && bytes as u64 <= self.most_flooded
    }

    /// How `rank` carries out an operation, as often as it is called with the same numbers of elements
    pub(crate) fn prepare(
        &mut self,
        rank: usize,
        call: &Call,
        counts: &Counts,
        options: GroupOptions,
    ) -> Result<Arc<Prepared>, PlanError> {
        let size = call.element.size();
        let kind = match call.operation {
            OperationKind::AllReduce if self.floods(call.count as usize * size) => OperationKind::Barrier,
            OperationKind::Duplicate | OperationKind::Replan => OperationKind::Barrier,
            kind => kind,
        };
        let plan = (kind, call.root.unwrap_or(0), call.to.unwrap_or(0));
        let key = (plan, counts.clone(), size);
        if let Some(prepared) = self.prepared.get(&key) {
            return Ok(Arc::clone(prepared));
        }
        let prepared = Arc::new(self.planned(plan, counts)?.prepare(rank, counts, size, options));
        self.prepared.insert(key, Arc::clone(&prepared));
        Ok(prepared)
    }

    fn planned(&mut self, key: PlanKey, counts: &Counts) -> Result<&Planned, PlanError> {
        let amounts = counts.scaled();
        let make = |cabling: &Cabling| {
            Planned::new(cabling, planner::plan(cabling, &operation(key, cabling.hosts().len(), &amounts))?)
        };
        if let Counts::Even(_) = counts {
            if !self.planned.contains_key(&key) {
                let planned = make(&self.cabling)?;
                self.planned.insert(key, planned);
            }
            return Ok(&self.planned[&key]);
        }
        let key = (key, amounts.clone());
        if self.varying.get(&key).is_none() {
            let planned = make(&self.cabling)?;
            self.varying.insert(key.clone(), planned);
        }
        Ok(self.varying.get(&key).expect("it was inserted if it was not there"))
    }
}

/// The operation to plan
///
/// One that moves nothing is planned as if each rank had something to send: the ranks then find out whether they agree.
fn operation((kind, root, _): PlanKey, ranks: usize, amounts: &Counts) -> Operation {
    let pair = |from, to| amounts.pair([from, to]) as u64;
    let each = || {
        let amounts: Vec<_> = (0..ranks).map(|rank| amounts.part(rank) as u64).collect();
        let is_rooted =
            matches!(kind, OperationKind::Gather | OperationKind::Scatter | OperationKind::Transfer);
        let moves = (0..ranks).any(|rank| amounts[rank] > 0 && !(is_rooted && rank == root));
        if moves { amounts } else { vec![1; ranks] }
    };
    match kind {
        OperationKind::AllGather
        | OperationKind::Barrier
        | OperationKind::Duplicate
        | OperationKind::Replan
        | OperationKind::Split => Operation::AllGather { amounts: each() },
        OperationKind::AllReduce => Operation::AllReduce,
        OperationKind::AllToAll => {
            let moves = (0..ranks).any(|from| (0..ranks).any(|to| from != to && pair(from, to) > 0));
            let amount = |from, to| if moves { pair(from, to) } else { 1 };
            let from = |from| (0..ranks).map(|to| amount(from, to)).collect();
            Operation::AllToAll { amounts: (0..ranks).map(from).collect() }
        }
        OperationKind::Broadcast => Operation::Broadcast { root },
        OperationKind::Gather => Operation::Gather { root, amounts: each() },
        OperationKind::Reduce => Operation::Reduce { root },
        OperationKind::ReduceScatter => Operation::ReduceScatter { amounts: each() },
        OperationKind::Scatter | OperationKind::Transfer => Operation::Scatter { root, amounts: each() },
    }
}

/// Divides the one tree of two hosts between both roots: both directions of the cable then carry blocks from the beginning to the end
fn balance(plan: &mut Plan) {
    if let [tree] = &mut plan.trees[..]
        && let [(parent, child)] = tree.arcs[..]
        && let Some(share) = Ratio::new(1, 2).and_then(|half| tree.share.checked_mul(half))
    {
        tree.share = share;
        plan.trees.push(Tree { share, root: child, arcs: vec![(child, parent)] });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ElementType;

    const RATE: u64 = 9_200_000_000;

    fn call(operation: OperationKind, count: u64) -> Call {
        Call {
            operation,
            element: ElementType::U8,
            reduction: None,
            root: None,
            to: None,
            count,
            counts: None,
        }
    }

    /// Catches a plan of two hosts that takes longer than the bound, or has another way for a part.
    #[test]
    fn two_hosts_combine_half_of_the_vector_each() {
        let cabling = Cabling::line(2, RATE);
        let plan = Plans::new(cabling.clone()).unwrap().trees.unwrap();
        assert_eq!(crate::verify(&cabling, &plan).unwrap(), Ratio::ONE);
        assert_eq!(plan.trees.iter().map(|tree| tree.root).collect::<Vec<_>>(), [0, 1]);
    }

    /// Regression: floods and all_to_all were divided as if only one rank had data, so that their blocks were too long.
    #[test]
    fn blocks_suit_the_payload_of_the_plan() {
        let pairs = (0..6).flat_map(|left| (0..left).map(move |right| (right, left)));
        let cabling = Cabling::of_pairs(6, pairs, RATE);
        let mut plans = Plans::new(cabling.clone()).unwrap();
        let flood = crate::flood(&cabling).unwrap();
        let all_to_all = crate::all_to_all(&cabling, &vec![vec![1; 6]; 6]).unwrap();
        let bytes = plans.most_flooded;
        assert!(bytes > 8000, "{bytes}");
        for (kind, plan, bytes, parts) in
            [(OperationKind::AllReduce, flood, bytes, 6), (OperationKind::AllToAll, all_to_all, 1 << 20, 36)]
        {
            let lens = super::parts(&plan, &Counts::Even(bytes as usize)).into_iter();
            let lens = lens.map(|(_, [start, end])| end - start).collect::<Vec<_>>();
            let forecast = plan.forecast(&cabling).unwrap();
            let expected = Blocks::best(&lens, &forecast, bytes * parts, 256 << 10, 1);
            let counts = Counts::Even(bytes as usize);
            let prepared = plans.prepare(0, &call(kind, bytes), &counts, GroupOptions::new()).unwrap();
            assert_eq!(prepared.blocks, expected, "{kind}");
        }
    }

    /// Catches a plan or a schedule that is made again for each call, and one that is taken for another.
    #[test]
    fn schedules_are_kept_by_operation_length_and_root() {
        let mut plans = Plans::new(Cabling::ring(5, RATE)).unwrap();
        let mut prepare = |call: &Call| {
            plans.prepare(1, call, &Counts::Even(call.count as usize), GroupOptions::new()).unwrap()
        };
        let calls = [
            call(OperationKind::AllReduce, 1 << 20),
            call(OperationKind::AllReduce, 1),
            call(OperationKind::Barrier, 1),
            Call { element: ElementType::U16, ..call(OperationKind::AllReduce, 1 << 20) },
            Call { root: Some(0), ..call(OperationKind::Broadcast, 1 << 20) },
            Call { root: Some(2), ..call(OperationKind::Broadcast, 1 << 20) },
            Call { root: Some(0), to: Some(3), ..call(OperationKind::Transfer, 1 << 20) },
        ];
        let first = calls.each_ref().map(&mut prepare);
        for (call, prepared) in calls.iter().zip(&first) {
            assert!(Arc::ptr_eq(prepared, &prepare(call)), "{call}");
        }
        let distinct = |at: usize, other: usize| first[at].schedule != first[other].schedule;
        assert!(distinct(0, 1) && distinct(0, 3) && distinct(4, 5) && distinct(5, 6));
        // The one that was not used for the longest time is given up.
        for count in 1..Recent::<(), ()>::MAX as u64 {
            prepare(&call(OperationKind::AllGather, count));
            assert!(Arc::ptr_eq(&first[0], &prepare(&calls[0])), "{count}");
        }
        assert!(!Arc::ptr_eq(&first[6], &prepare(&calls[6])));
    }
}
