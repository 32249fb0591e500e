//! Schedules: what comes first of that which may come in any order, and what comes late

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

use crate::Choices;

/// How a simulation orders what may happen in any order
///
/// Ready tasks, timers and events that are due at one instant, completions of several queues and frames that race have no order
/// of their own, and a woken task may have to wait for its turn on a real machine. [`Check`](crate::Check) explores such schedules;
/// a [`Sim`](crate::Sim) takes the plain one unless another is set.
///
/// ```
/// use rdma_sim::{Scheduler, Sim};
///
/// let order = |scheduler, seed| {
///     let run = Sim::new().scheduler(scheduler).seed(seed).run(async |net| {
///         let order = std::sync::Arc::new(std::sync::Mutex::new(String::new()));
///         for name in ["a", "b", "c"] {
///             let order = order.clone();
///             net.spawn(async move { order.lock().unwrap().push_str(name) });
///         }
///         net.sleep(std::time::Duration::from_millis(10)).await;
///         order.lock().unwrap().clone()
///     });
///     run.value
/// };
/// assert!((0..10).all(|seed| order(Scheduler::Fifo, seed) == "abc"));
/// assert!((0..10).any(|seed| order(Scheduler::Random, seed) == "cab"));
/// ```
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub enum Scheduler {
    /// Any order, and nothing late; frames have no jitter
    ///
    /// What [`Check::exhaustive`](crate::Check::exhaustive) enumerates.
    Every,
    /// Everything in the order in which it became ready, and nothing late: the plain case
    #[default]
    Fifo,
    /// Any order, each as likely as the others; tasks, doorbells and deliveries are late, and verbs of set-up and teardown take longer, as
    /// often and by as much as the run draws
    ///
    /// A receive is there when its post returns, as on a device: what the program posts or sends afterwards cannot overtake it.
    Random,
    /// Random priorities, and `depth - 1` tasks that are interrupted at random steps: probabilistic concurrency testing
    ///
    /// A bug that needs `depth` steps in a certain order is found with a known probability (S. Burckhardt et al., "A randomized
    /// scheduler with probabilistic guarantees of finding bugs", ASPLOS 2010).
    Pct {
        /// How many ordered steps a bug may need, 1 to 9
        depth: u32,
        /// About how many steps a run has; [`check`](crate::check()) measures it if it is zero
        steps: u32,
    },
}

impl fmt::Display for Scheduler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Every => f.write_str("every"),
            Self::Fifo => f.write_str("fifo"),
            Self::Random => f.write_str("random"),
            Self::Pct { depth, steps } => write!(f, "pct:{depth}/{steps}"),
        }
    }
}

/// A text is no scheduler
#[derive(Clone, Eq, PartialEq, thiserror::Error)]
#[error("{0:?} is no scheduler: write every, fifo, random or pct:DEPTH/STEPS, such as pct:3/1000")]
pub struct SchedulerError(String);

impl FromStr for Scheduler {
    type Err = SchedulerError;

    /// Reads what [`Display`](fmt::Display) writes
    ///
    /// # Errors
    ///
    /// [`SchedulerError`] with any other text.
    fn from_str(text: &str) -> Result<Self, SchedulerError> {
        match text {
            "every" => Ok(Self::Every),
            "fifo" => Ok(Self::Fifo),
            "random" => Ok(Self::Random),
            _ => parse_pct(text).ok_or_else(|| SchedulerError(text.to_owned())),
        }
    }
}

fn parse_pct(text: &str) -> Option<Scheduler> {
    let (depth, steps) = text.strip_prefix("pct:")?.split_once('/')?;
    let depth = depth.parse().ok().filter(|depth| (1..=9).contains(depth))?;
    Some(Scheduler::Pct { depth, steps: steps.parse().ok()? })
}

/// How often something is late, and by how much; drawn once for a run
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Lateness {
    /// Once in so many times; never, if zero
    one_in: u32,
    /// The delay is below two to this power, in nanoseconds
    bits: u32,
}

/// Delays have at least so many bits: less than 256 ns is within the jitter of any machine
const LEAST_BITS: u32 = 8;
/// Those of verbs have at most so many, which is 131 µs: the faults `slow-verb` and `hang` stand for devices that take longer
const VERB_BITS: u32 = 17;

impl Lateness {
    pub(crate) fn draw(scheduler: Scheduler, choices: &mut dyn Choices) -> Self {
        // A quarter of the runs have no delays: order alone is easier to understand.
        if scheduler != Scheduler::Random || choices.pick(4) == 0 {
            return Self::default();
        }
        let pick = |from: [u32; 3], choices: &mut dyn Choices| from[choices.pick(3) as usize];
        Self { one_in: pick([64, 8, 2], choices), bits: pick([13, 17, 20], choices) }
    }

    /// By how many nanoseconds something is late; zero is the plain case
    pub(crate) fn ns(self, choices: &mut dyn Choices) -> u64 {
        if self.one_in == 0 || choices.pick(self.one_in) + 1 < self.one_in {
            return 0;
        }
        delay_ns(self.bits, choices)
    }

    /// As [`ns`](Self::ns), for a verb of set-up or teardown: connecting calls many, one after another
    pub(crate) fn verb_ns(self, choices: &mut dyn Choices) -> u64 {
        Self { bits: self.bits.min(VERB_BITS), ..self }.ns(choices)
    }
}

/// A delay below two to the power of `bits`; its order of magnitude is as likely as any other
fn delay_ns(bits: u32, choices: &mut dyn Choices) -> u64 {
    let scale = 1 << (LEAST_BITS + choices.pick(bits - LEAST_BITS));
    u64::from(scale + choices.pick(scale))
}

/// What a task waits for beside its turn
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct TaskTraits {
    is_known: bool,
    /// Whether its wake-ups may be late in this run
    is_prone: bool,
    priority: u32,
}

/// The order of tasks in one run
#[derive(Debug)]
pub(crate) struct Order {
    scheduler: Scheduler,
    lateness: Lateness,
    tasks: Vec<TaskTraits>,
    /// The priority of the events of this very moment
    of_events: u32,
    /// The steps at which the task that runs is interrupted, last first
    interruptions: Vec<u64>,
    steps: u64,
    /// Tasks that were polled one after another, as numbers, if they are kept
    sequences: Option<BTreeSet<u64>>,
    /// The last task
    last: usize,
}

/// Longest interruption: about a millisecond, as when a process loses its core
const INTERRUPTION_BITS: u32 = 20;
/// Priorities are drawn below this; those of interrupted tasks are lower than all others
const PRIORITIES: u32 = 1 << 16;

/// What the executor does next
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum NextAction {
    /// The task at this position of the ready ones runs
    Task(usize),
    /// The task at this position is interrupted for so many nanoseconds
    Interrupt(usize, u64),
    /// An event that is due now fires
    Event,
}

impl Order {
    pub(crate) fn new(scheduler: Scheduler, choices: &mut dyn Choices) -> Self {
        let lateness = Lateness::draw(scheduler, choices);
        let (mut of_events, mut interruptions) = (0, Vec::new());
        if let Scheduler::Pct { depth, steps } = scheduler {
            of_events = choices.pick(PRIORITIES);
            // The plain case is not to interrupt.
            let steps = (1..depth).map(|_| u64::from(choices.pick(steps.saturating_add(1))));
            interruptions = steps.filter_map(|step| step.checked_sub(1)).collect();
            interruptions.sort_by_key(|step| std::cmp::Reverse(*step));
        }
        Self {
            scheduler,
            lateness,
            tasks: Vec::new(),
            of_events,
            interruptions,
            steps: 0,
            sequences: None,
            last: 0,
        }
    }

    /// Whether each step is chosen, of tasks and of events
    pub(crate) fn is_every(&self) -> bool {
        self.scheduler == Scheduler::Every
    }

    pub(crate) fn is_fifo(&self) -> bool {
        self.scheduler == Scheduler::Fifo
    }

    /// How many times a task was polled
    pub(crate) fn steps(&self) -> u64 {
        self.steps
    }

    /// Counts the poll of a task, one of `ready` that could have been
    #[inline(always)]
    pub(crate) fn count_step(&mut self, task: usize, ready: usize) {
        self.steps += 1;
        if self.sequences.is_some() {
            self.note_step(task, ready);
        }
    }

    fn note_step(&mut self, task: usize, ready: usize) {
        if let Some(sequences) = &mut self.sequences {
            // Which task overtook how many others behind which one.
            let sequence = [self.last, task, ready.min(8)].map(|part| part as u64 & 0xffff);
            sequences.insert(sequence[0] << 32 | sequence[1] << 16 | sequence[2]);
            self.last = task;
        }
    }

    /// Keeps which tasks are polled one after another from now on, unless that is the plain order
    pub(crate) fn keep_sequences(&mut self) {
        self.sequences = (!self.is_fifo()).then(BTreeSet::new);
    }

    /// Which tasks were polled one after another, as numbers; none, if they were not kept
    pub(crate) fn sequences(self) -> BTreeSet<u64> {
        self.sequences.unwrap_or_default()
    }

    /// By how many nanoseconds the task that was woken runs late
    pub(crate) fn late_ns(&mut self, task: usize, choices: &mut dyn Choices) -> u64 {
        if self.lateness.one_in == 0 || !self.task(task, choices).is_prone {
            return 0;
        }
        self.lateness.ns(choices)
    }

    fn task(&mut self, task: usize, choices: &mut dyn Choices) -> &mut TaskTraits {
        if self.tasks.len() <= task {
            self.tasks.resize(task + 1, TaskTraits::default());
        }
        let traits = &mut self.tasks[task];
        if !traits.is_known {
            traits.is_known = true;
            match self.scheduler {
                Scheduler::Every | Scheduler::Fifo => (),
                Scheduler::Random => traits.is_prone = choices.pick(2) == 1,
                // The plain case is that all are equal, and then the first is next.
                Scheduler::Pct { .. } => traits.priority = 16 + choices.pick(PRIORITIES),
            }
        }
        traits
    }

    /// A task has ended, and another one may get its number
    pub(crate) fn forget(&mut self, task: usize) {
        if let Some(traits) = self.tasks.get_mut(task) {
            traits.is_known = false;
        }
    }

    /// What is next of the ready tasks, of which there is at least one, and of the events that are due now, if there are any
    pub(crate) fn next(
        &mut self,
        ready: impl ExactSizeIterator<Item = usize>,
        has_event: bool,
        choices: &mut dyn Choices,
    ) -> NextAction {
        match self.scheduler {
            // The executor asks the choices themselves.
            Scheduler::Every | Scheduler::Fifo => NextAction::Task(0),
            Scheduler::Random => {
                let tasks = ready.len();
                let choice = choices.pick((tasks + usize::from(has_event)) as u32) as usize;
                // In the plain case events come before tasks, as they do without exploring.
                match choice.checked_sub(usize::from(has_event)) {
                    Some(task) => NextAction::Task(task),
                    None => NextAction::Event,
                }
            }
            Scheduler::Pct { .. } => self.by_priority(ready, has_event, choices),
        }
    }

    fn by_priority(
        &mut self,
        ready: impl Iterator<Item = usize>,
        has_event: bool,
        choices: &mut dyn Choices,
    ) -> NextAction {
        let mut first = None;
        for (position, task) in ready.enumerate() {
            let priority = self.task(task, choices).priority;
            if first.is_none_or(|(_, _, best)| priority > best) {
                first = Some((position, task, priority));
            }
        }
        let Some((position, task, priority)) = first else { return NextAction::Event };
        if has_event && self.of_events >= priority {
            return NextAction::Event;
        }
        let Some(_) = self.interruptions.pop_if(|step| *step <= self.steps) else {
            return NextAction::Task(position);
        };
        self.tasks[task].priority = self.interruptions.len() as u32;
        NextAction::Interrupt(position, delay_ns(INTERRUPTION_BITS, choices))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Recorded, Seeded};

    #[test]
    fn a_scheduler_reads_as_it_is_written() {
        for scheduler in
            [Scheduler::Every, Scheduler::Fifo, Scheduler::Random, Scheduler::Pct { depth: 3, steps: 120 }]
        {
            assert_eq!(scheduler.to_string().parse(), Ok(scheduler));
        }
        for text in ["", "rand", "pct", "pct:0/5", "pct:10/5", "pct:3", "pct:3/x"] {
            assert_eq!(text.parse::<Scheduler>(), Err(SchedulerError(text.to_owned())));
        }
    }

    #[test]
    fn the_plain_choices_are_the_plain_schedule() {
        for scheduler in [Scheduler::Fifo, Scheduler::Random, Scheduler::Pct { depth: 3, steps: 1 }] {
            let choices = &mut Recorded::new([]);
            let mut order = Order::new(scheduler, choices);
            assert_eq!(order.next([4, 2].into_iter(), false, choices), NextAction::Task(0), "{scheduler}");
            assert_eq!(order.late_ns(4, choices), 0, "{scheduler}");
        }
    }

    #[test]
    fn a_task_with_the_highest_priority_runs_until_it_is_interrupted() {
        let choices = &mut Seeded::new(5);
        let mut order = Order::new(Scheduler::Pct { depth: 2, steps: 8 }, choices);
        let mut seen = Vec::new();
        for _ in 0..20 {
            seen.push(order.next([1, 2, 3].into_iter(), false, choices));
            order.count_step(1, 3);
        }
        let interrupted = seen.iter().position(|next| matches!(next, NextAction::Interrupt(..))).unwrap();
        assert!(interrupted < 8, "{seen:?}");
        let (before, after) = (seen[0], seen[19]);
        assert_ne!(before, after, "an interrupted task has the lowest priority");
        assert!(seen[..interrupted].iter().all(|next| *next == before), "{seen:?}");
        assert!(seen[interrupted + 1..].iter().all(|next| *next == after), "{seen:?}");
    }

    /// Catches priorities that are the same for all tasks, and those that change from poll to poll.
    #[test]
    fn each_of_several_tasks_comes_first_under_some_seeds_and_then_stays_first() {
        let mut first = [0; 3];
        for seed in 0..300 {
            let choices = &mut Seeded::new(seed);
            // Without interruptions.
            let mut order = Order::new(Scheduler::Pct { depth: 1, steps: 8 }, choices);
            let mut next = || order.next([1, 2, 3].into_iter(), false, choices);
            let NextAction::Task(position) = next() else { panic!("nothing is interrupted") };
            assert!((0..20).all(|_| next() == NextAction::Task(position)), "seed {seed}");
            first[position] += 1;
        }
        assert!(first.iter().all(|seeds| (60..140).contains(seeds)), "{first:?}");
    }
}
