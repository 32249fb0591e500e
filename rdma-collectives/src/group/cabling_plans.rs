//! The plans over a cabling, made when they are first needed: groups of a process over equal cablings share them

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use super::call::OperationKind;
use super::counts::Counts;
use super::ranks::Ranks;
use super::recent::Recent;
use super::schedule::{directions, parts};
use crate::predict::Forecast;
use crate::tree::MAX_TREES;
use crate::{Algorithm, AllReducePlans, Cabling, Costs, Operation, Plan, PlanError, Ratio, Tree, planner};

/// The costs of a block beside its bytes, between flooding and trees: measured over simulated sessions.
const COSTS: Costs = Costs { block_ns: 1_000 };
/// Vectors above this are never flooded, in bytes.
const MAX_FLOOD: u64 = 1 << 20;
/// Above so many ranks nothing is flooded: each rank would receive a message of each other one.
const MAX_FLOODED_RANKS: usize = 64;

/// So many plans with equal parts are kept: the most that take long, of the four operations with a root, from each of 64 ranks.
const MAX_EVEN: usize = 256;

/// A plan, and how its blocks follow each other
#[derive(Debug)]
pub(crate) struct Planned {
    pub(super) plan: Plan,
    pub(super) forecast: Forecast,
    /// The most channels into a rank
    pub(super) channels: usize,
}

impl Planned {
    fn new(cabling: &Cabling, plan: Plan) -> Result<Self, PlanError> {
        if plan.trees.len() > MAX_TREES {
            return Err(PlanError::TooManyTrees { trees: plan.trees.len(), most: MAX_TREES });
        }
        let mut channels = vec![0; plan.hosts.len()];
        let [up, down] = directions(&plan.operation);
        let is_used = |[start, end]: [usize; 2]| end > start;
        let trees = parts(&plan, &Counts::Even(1 << 32)).into_iter().filter(|(_, part)| is_used(*part));
        for &(parent, child) in trees.flat_map(|(tree, _)| &tree.arcs) {
            channels[parent] += usize::from(up);
            channels[child] += usize::from(down);
        }
        let channels = channels.into_iter().max().unwrap_or(0);
        Ok(Self { forecast: plan.forecast(cabling)?, channels, plan })
    }

    /// The payload of the plan, in elements
    pub(super) fn payload(&self, counts: &Counts) -> u64 {
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
}

/// Names a plan: the kind of an operation, its root, and the receiver of a transfer
pub(super) type PlanKey = (OperationKind, usize, usize);

/// All plans over a cabling
#[derive(Debug)]
pub(crate) struct CablingPlans {
    pub(crate) cabling: Cabling,
    /// The neighbours of each rank
    pub(crate) cabled: Arc<[Ranks]>,
    /// `None` for a single host
    pub(crate) trees: Option<Plan>,
    /// The longest vector that is flooded, in bytes
    pub(super) most_flooded: u64,
    /// Plans that are made at first, and not as others are
    first: BTreeMap<PlanKey, Arc<Planned>>,
    made: Mutex<Made>,
}

/// The plans that were needed of late: each rank makes the same ones again
#[derive(Debug, Default)]
struct Made {
    /// Plans of operations in which all parts are equally long
    even: Recent<PlanKey, Arc<Planned>, MAX_EVEN>,
    /// Plans of others, by their scaled counts
    varying: Recent<(PlanKey, Counts), Arc<Planned>>,
}

/// The plans of all cablings that groups of this process have
static KNOWN: Mutex<Vec<Weak<CablingPlans>>> = Mutex::new(Vec::new());

impl CablingPlans {
    /// The plans over `cabling`, which may be known
    pub(crate) fn of(cabling: Cabling) -> Result<Arc<Self>, PlanError> {
        let known = || KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(plans) = Self::find(&known(), &cabling) {
            return Ok(plans);
        }
        // Without the lock: groups over other cablings do not wait. Two threads may make the same plans, of which those of the first are kept.
        let plans = Arc::new(Self::new(cabling)?);
        let mut known = known();
        if let Some(first) = Self::find(&known, &plans.cabling) {
            return Ok(first);
        }
        known.retain(|plans| plans.strong_count() > 0);
        known.push(Arc::downgrade(&plans));
        Ok(plans)
    }

    fn find(known: &[Weak<Self>], cabling: &Cabling) -> Option<Arc<Self>> {
        known.iter().filter_map(Weak::upgrade).find(|plans| plans.cabling == *cabling)
    }

    fn new(cabling: Cabling) -> Result<Self, PlanError> {
        let cabled = Ranks::cabled(&cabling);
        let (first, made) = Default::default();
        let mut plans = Self { cabling, cabled, trees: None, most_flooded: 0, first, made };
        if plans.cabling.hosts().len() > 1 {
            let mut trees = crate::all_reduce(&plans.cabling)?;
            let mut flood = None;
            if plans.can_flood() {
                let both = AllReducePlans { trees, flood: crate::flood(&plans.cabling)? };
                plans.most_flooded = plans.crossover(&both)?;
                (trees, flood) = (both.trees, Some(both.flood));
            }
            balance(&mut trees);
            plans.trees = Some(trees.clone());
            // A barrier floods one byte, and a flood is an operation of its own here; without floods it reduces the byte.
            let flood = flood.unwrap_or_else(|| trees.clone());
            for (kind, plan) in [(OperationKind::AllReduce, trees), (OperationKind::Barrier, flood)] {
                plans.first.insert((kind, 0, 0), Arc::new(Planned::new(&plans.cabling, plan)?));
            }
        }
        Ok(plans)
    }

    /// Whether a short vector may go to all ranks as it is
    pub(super) fn can_flood(&self) -> bool {
        self.cabling.hosts().len() <= MAX_FLOODED_RANKS
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

    pub(super) fn planned(&self, key: PlanKey, counts: &Counts) -> Result<Arc<Planned>, PlanError> {
        let amounts = counts.scaled();
        let make = || {
            let operation = operation(key, self.cabling.hosts().len(), &amounts);
            Planned::new(&self.cabling, planner::plan(&self.cabling, &operation)?).map(Arc::new)
        };
        // Plans are made without the lock: a rank with a plan that is there does not wait.
        if let Counts::Even(_) = counts {
            let found = self.first.get(&key).map(Arc::clone);
            if let Some(planned) = found.or_else(|| self.made().even.get(&key).map(Arc::clone)) {
                return Ok(planned);
            }
            let planned = make()?;
            self.made().even.insert(key, Arc::clone(&planned));
            return Ok(planned);
        }
        let key = (key, amounts.clone());
        let found = self.made().varying.get(&key).map(Arc::clone);
        if let Some(planned) = found {
            return Ok(planned);
        }
        let planned = make()?;
        self.made().varying.insert(key, Arc::clone(&planned));
        Ok(planned)
    }

    fn made(&self) -> MutexGuard<'_, Made> {
        self.made.lock().unwrap_or_else(PoisonError::into_inner)
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
        OperationKind::Send => unreachable!("two ranks send and receive without a plan"),
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
    use super::super::schedule::Schedule;
    use super::*;

    const RATE: u64 = 9_200_000_000;

    /// Catches plans that are made for each rank, and those of a cabling that are kept when no group has it, or are taken for those of another.
    #[test]
    fn ranks_of_a_process_share_plans_until_the_last_is_gone() {
        let ring = |hosts| CablingPlans::of(Cabling::ring(hosts, RATE)).unwrap();
        let (one, other) = (ring(9), ring(9));
        assert!(Arc::ptr_eq(&one, &other));
        assert!(!Arc::ptr_eq(&one, &ring(8)));
        let gather = (OperationKind::AllGather, 0, 0);
        let planned = |plans: &CablingPlans, counts| plans.planned(gather, &counts).unwrap();
        assert!(Arc::ptr_eq(&planned(&one, Counts::Even(7)), &planned(&other, Counts::Even(70))));
        let (gone, planned) = (Arc::downgrade(&one), Arc::downgrade(&planned(&one, Counts::Even(7))));
        drop((one, other));
        assert_eq!((gone.strong_count(), planned.strong_count()), (0, 0));
    }

    /// Regression: the plans of all roots were kept for as long as a group was. Those that are made at first are kept: no rank could make them again.
    #[test]
    fn plans_of_many_roots_are_kept_up_to_a_bound() {
        const ROOTS: usize = 300;
        let plans = CablingPlans::of(Cabling::ring(ROOTS, RATE)).unwrap();
        let planned = |kind, root| plans.planned((kind, root, 0), &Counts::Even(1)).unwrap();
        let first = || [OperationKind::AllReduce, OperationKind::Barrier].map(|kind| planned(kind, 0));
        let before = first();
        let made: Vec<_> =
            (0..ROOTS).map(|root| Arc::downgrade(&planned(OperationKind::Broadcast, root))).collect();
        let kept: Vec<_> = (0..ROOTS).filter(|root| made[*root].strong_count() > 0).collect();
        assert_eq!(kept, (ROOTS - MAX_EVEN..ROOTS).collect::<Vec<_>>());
        for root in [0, ROOTS - 1] {
            let plan = &planned(OperationKind::Broadcast, root).plan;
            assert_eq!(plan.operation, Operation::Broadcast { root });
        }
        assert!(before.iter().zip(&first()).all(|(before, after)| Arc::ptr_eq(before, after)));
    }

    /// Regression: an all_to_all of 144 ranks had up to eight paths for each pair, more than messages have numbers for, and was refused.
    #[test]
    fn an_all_to_all_of_any_size_has_numbers_for_its_trees() {
        for (side, most) in [(12, 1.2), (16, 1.7)] {
            let at = |row: usize, column: usize| row % side * side + column % side;
            let hosts = (0..side).flat_map(|row| (0..side).map(move |column| (row, column)));
            let pairs = hosts.flat_map(|(row, column)| {
                [(at(row, column), at(row, column + 1)), (at(row, column), at(row + 1, column))]
            });
            let cabling = Cabling::of_pairs(side * side, pairs, RATE);
            let plans = CablingPlans::of(cabling.clone()).unwrap();
            let planned = plans.planned((OperationKind::AllToAll, 0, 0), &Counts::Even(1)).unwrap();
            let excess = crate::verify(&cabling, &planned.plan).unwrap().to_f64();
            assert!(excess <= most, "{} hosts: {excess}", cabling.hosts().len());
        }
    }

    /// Regression: the last numbers of trees overflowed while a rank made its schedule.
    #[test]
    fn plans_have_as_many_trees_as_messages_have_numbers() {
        let cabling = Cabling::line(2, RATE);
        let mut plan = crate::all_reduce(&cabling).unwrap();
        let tree = Tree { share: Ratio::new(1, MAX_TREES as u128).unwrap(), ..plan.trees.remove(0) };
        plan.trees = vec![tree.clone(); MAX_TREES];
        let planned = Planned::new(&cabling, plan.clone()).unwrap();
        let schedule = Schedule::new(&planned.plan, 0, &Counts::Even(MAX_TREES), 1);
        assert_eq!(schedule.ins.last().map(|last| last.channel.tree), Some(u16::MAX - 1));
        plan.trees.push(tree);
        let error = Planned::new(&cabling, plan).unwrap_err();
        assert_eq!(error, PlanError::TooManyTrees { trees: MAX_TREES + 1, most: MAX_TREES });
    }
}
