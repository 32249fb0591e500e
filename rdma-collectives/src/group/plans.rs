//! How a rank carries out the operations of a group

use std::sync::{Arc, Mutex, PoisonError, Weak};

use super::blocks::Blocks;
use super::cabling_plans::{CablingPlans, PlanKey, Planned};
use super::call::{Call, OperationKind};
use super::counts::Counts;
use super::options::GroupOptions;
use super::recent::Recent;
use super::schedule::{Schedule, parts};
use crate::{Cabling, PlanError};

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

/// Names a schedule: its plan, and the numbers and the size of elements
type ScheduleKey = (PlanKey, Counts, usize);

/// All plans over a cabling, and the schedules of one rank
#[derive(Debug)]
pub(crate) struct Plans {
    pub(crate) over: Arc<CablingPlans>,
    prepared: Recent<ScheduleKey, Arc<Prepared>>,
}

impl Plans {
    pub(crate) fn new(cabling: Cabling) -> Result<Self, PlanError> {
        Ok(Self { over: CablingPlans::of(cabling)?, prepared: Recent::default() })
    }

    /// Whether an all_reduce of so many bytes floods
    pub(crate) fn floods(&self, bytes: usize) -> bool {
        self.over.trees.is_some() && self.over.can_flood() && bytes as u64 <= self.over.most_flooded
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
            OperationKind::Duplicate => OperationKind::Barrier,
            OperationKind::Replan if self.over.can_flood() => OperationKind::Barrier,
            kind => kind,
        };
        let plan = (kind, call.root.unwrap_or(0), call.to.unwrap_or(0));
        let key = (plan, counts.clone(), size);
        if let Some(prepared) = self.prepared.get(&key) {
            return Ok(Arc::clone(prepared));
        }
        let prepared = Arc::new(prepare(&*self.over.planned(plan, counts)?, rank, counts, size, options));
        self.prepared.insert(key, Arc::clone(&prepared));
        Ok(prepared)
    }
}

/// How `rank` carries out the operation for elements of `size` bytes
fn prepare(planned: &Planned, rank: usize, counts: &Counts, size: usize, options: GroupOptions) -> Prepared {
    let payload = planned.payload(counts).saturating_mul(size as u64);
    let lens =
        parts(&planned.plan, counts).into_iter().map(|(_, [start, end])| (end - start).saturating_mul(size));
    let blocks =
        Blocks::best(&lens.collect::<Vec<_>>(), &planned.forecast, payload, options.block_bytes, size);
    let window = options.window(planned.channels, blocks.longest());
    let schedule = Schedule::new(&planned.plan, rank, counts, size);
    Prepared { schedule, blocks, window, following: Mutex::default() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ElementType, Ratio};

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
        let plan = Plans::new(cabling.clone()).unwrap().over.trees.clone().unwrap();
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
        let bytes = plans.over.most_flooded;
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
