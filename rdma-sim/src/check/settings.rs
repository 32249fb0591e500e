//! What a check varies, and how often

use std::collections::BTreeSet;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::time::Duration;

use rdma_core::Time;
use twox_hash::XxHash3_64;

use super::replay::{Replay, ReplayError};
use crate::fault::FaultPlan;
use crate::{Model, RandomFaults, Rules, Scheduler, Seeded, Timing, Topology};

/// What [`check`](super::check()) varies, and how often
///
/// ```
/// use rdma_sim::{Check, RandomFaults, Topology, check};
///
/// // Three Macs with four ports each, in a ring.
/// let settings = Check::new().runs(20).topology(Topology::ring(3, 4)?).random_faults(RandomFaults::up_to(3));
/// check(settings, async |net| {
///     // The test: whatever the faults did, the devices of the other Macs are there.
///     assert!(net.gids("c", "rdma_en2").is_ok());
/// });
/// # Ok::<(), rdma_sim::TopologyError>(())
/// ```
#[derive(Clone, Debug)]
#[must_use = "nothing happens before it is checked"]
pub struct Check {
    pub(super) name: Option<String>,
    pub(super) runs: u64,
    pub(super) first_seed: u64,
    pub(super) threads: Option<NonZeroUsize>,
    pub(super) topology: Topology,
    pub(super) model: Model,
    pub(super) faults: FaultPlan,
    pub(super) random_faults: RandomFaults,
    /// The one of each run, unless it is given
    pub(super) scheduler: Option<Scheduler>,
    pub(super) time_limit: Time,
    pub(super) step_limit: u64,
    pub(super) task_limit: usize,
    pub(super) liveness: Option<Duration>,
    pub(super) patience: Duration,
    /// Between two lines about a long check
    pub(super) progress_interval: Duration,
    pub(super) shrinks: bool,
    pub(super) allows_leaked_tasks: bool,
    /// What has to be reached
    pub(super) reaches: Vec<String>,
    pub(super) is_guided: bool,
    pub(super) is_exhaustive: bool,
    pub(super) corpus: Option<PathBuf>,
    pub(super) page: Option<PathBuf>,
    pub(super) replay: Option<Replay>,
}

/// How long a run may take, in virtual time: one that waits for ever over live sessions simulates their heartbeats for so long
const TIME_LIMIT: Duration = Duration::from_mins(10);
/// How often tasks may be polled in one run: a day of two servers and their sessions takes eight million
const STEP_LIMIT: u64 = 50_000_000;
/// How many tasks may be there at once, beside the test itself
const TASK_LIMIT: usize = 10_000;
/// How long a task may keep its thread, in real time
const PATIENCE: Duration = Duration::from_mins(1);
/// Between two lines about a long check
const PROGRESS_INTERVAL: Duration = Duration::from_secs(10);

impl Default for Check {
    fn default() -> Self {
        Self::new()
    }
}

impl Check {
    /// A hundred seeds on two Macs and a cable, without faults
    pub fn new() -> Self {
        Self {
            name: None,
            runs: 100,
            first_seed: 0,
            threads: None,
            topology: Topology::pair(),
            model: Model::default(),
            faults: FaultPlan::none(),
            random_faults: RandomFaults::up_to(0),
            scheduler: None,
            time_limit: Time::ZERO + TIME_LIMIT,
            step_limit: STEP_LIMIT,
            task_limit: TASK_LIMIT,
            liveness: None,
            patience: PATIENCE,
            progress_interval: PROGRESS_INTERVAL,
            shrinks: true,
            allows_leaked_tasks: false,
            reaches: Vec::new(),
            is_guided: false,
            is_exhaustive: false,
            corpus: None,
            page: None,
            replay: None,
        }
    }

    /// Calls the test `name` in replays; otherwise it has the name of its thread, as `cargo test` gives it, or of its function
    pub fn name(self, name: &str) -> Self {
        Self {
            name: Some(name.replace(|letter: char| letter.is_whitespace() || "'\"".contains(letter), "_")),
            ..self
        }
    }

    /// Tries this many seeds; a check of none panics
    pub fn runs(self, runs: u64) -> Self {
        Self { runs, ..self }
    }

    /// Begins with this seed; 0 follows the last one
    pub fn first_seed(self, first_seed: u64) -> Self {
        Self { first_seed, ..self }
    }

    /// Runs this many seeds at once, one on each thread; as many as the machine has cores, if not set
    ///
    /// What is found does not depend on it.
    pub fn threads(self, threads: NonZeroUsize) -> Self {
        Self { threads: Some(threads), ..self }
    }

    /// Simulates these Macs and cables
    pub fn topology(self, topology: Topology) -> Self {
        Self { topology, ..self }
    }

    /// Simulates devices that behave like this
    pub fn model(self, model: Model) -> Self {
        Self { model, ..self }
    }

    /// Injects these faults in each run, beside [random ones](Self::random_faults)
    pub fn faults(self, plan: FaultPlan) -> Self {
        Self { faults: plan, ..self }
    }

    /// Injects other faults for each seed, beside [those of a plan](Self::faults)
    pub fn random_faults(self, faults: RandomFaults) -> Self {
        Self { random_faults: faults, ..self }
    }

    /// Orders tasks and events like this; in turn by chance and by priorities, if not set
    ///
    /// A test that measures virtual time wants [`Scheduler::Fifo`]: the others make tasks and deliveries late.
    pub fn scheduler(self, scheduler: Scheduler) -> Self {
        let scheduler = match scheduler {
            Scheduler::Pct { depth, steps } => Scheduler::Pct { depth: depth.clamp(1, 9), steps },
            other => other,
        };
        Self { scheduler: Some(scheduler), ..self }
    }

    /// Fails a run when its virtual time exceeds `limit`; ten minutes by default
    ///
    /// A test that waits for ever stalls, which is found at once, unless sessions are open: their heartbeats go on, and the limit finds it.
    pub fn time_limit(self, limit: Time) -> Self {
        Self { time_limit: limit, ..self }
    }

    /// Fails a run that polls tasks more often than this, all together; 50 000 000 times by default
    ///
    /// A loop whose rounds take a few nanoseconds of virtual time would take days to come to the [time limit](Self::time_limit). Such a
    /// run is not made smaller, because each of the smaller ones would take as long. What runs usually take is in
    /// [`Report::steps`](super::Report::steps), as the sum of all.
    pub fn step_limit(self, limit: u64) -> Self {
        Self { step_limit: limit, ..self }
    }

    /// Fails a run that has more tasks at once than this, beside the test itself; 10 000 by default
    ///
    /// It finds tasks that spawn others without end, before they take all memory. A task that spawns ten times as many before it waits
    /// panics.
    pub fn task_limit(self, limit: usize) -> Self {
        Self { task_limit: limit, ..self }
    }

    /// Ends all faults when the last one of the plan has, and fails a run that then takes longer than `bound`
    ///
    /// Cables are plugged in again, stopped processes go on and dead ones start anew; RDMA is on, addresses are resolved, and nothing is slow,
    /// lost or damaged. Faults that wait for a number of frames are forgotten, a second after the start at the earliest. Other faults, such
    /// as leaked objects, GID tables and crossed cables, stay as they are.
    ///
    /// [Random faults](Self::random_faults) that wait for frames may then last until all faults end.
    pub fn liveness(self, bound: Duration) -> Self {
        Self { liveness: Some(bound), ..self }
    }

    /// Fails the check unless each of these is reached in some run
    ///
    /// Names are labels of [`sometimes!`](rdma_core::sometimes!) and `always!`, or those of the [report](super::Report::covered): `state leader`,
    /// `protocol message waits for room`, `rule frame-match`, `fault unplug`. A check knows of statements that were evaluated; so an
    /// expectation fails, too, if no run comes to the code that states it.
    ///
    /// A name that begins with `rule`, `fault` or `protocol` and is none of the model's is refused before the first run, with those that are
    /// near. Labels of the program are known only once a run has come to them: one that is misspelt fails after all runs, and then those
    /// that are near are printed, too.
    ///
    /// ```should_panic
    /// use rdma_sim::{Check, check, sometimes};
    ///
    /// check(Check::new().reaches(["the cable is out"]), async |net| {
    ///     if net.open("a", "rdma_en2").is_err() {
    ///         // No run comes here, because no fault is injected.
    ///         sometimes!(true, "the cable is out");
    ///     }
    /// });
    /// ```
    pub fn reaches<N: Into<String>>(mut self, names: impl IntoIterator<Item = N>) -> Self {
        self.reaches.extend(names.into_iter().map(Into::into));
        self
    }

    /// Passes a run whose test ends before the tasks that it has spawned outside of all hosts ([`Net::spawn`](crate::Net::spawn))
    ///
    /// Without this setting, such a run fails: tasks that may run when the test ends do so before, and one that waits then, for whatever, is
    /// leaked. With it, nothing runs after the end of the test, also no task that was spawned just before. Tasks of hosts may go on for
    /// ever, and those of libraries, which are spawned through a [`Runtime`](rdma_core::Runtime), may wait for their peers. All tasks that
    /// are left are dropped, and [listed](super::Report::tasks).
    pub fn allow_leaked_tasks(self) -> Self {
        Self { allows_leaked_tasks: true, ..self }
    }

    /// Ends the process if a task keeps its thread for so much real time; a minute by default
    pub fn patience(self, patience: Duration) -> Self {
        Self { patience, ..self }
    }

    /// Whether a failing run is made smaller before it is reported: fewer faults, at rounder times, and fewer choices; it is by default
    pub fn shrink(self, shrinks: bool) -> Self {
        Self { shrinks, ..self }
    }

    /// Begins every second run where one before has reached something new, rather than anew
    ///
    /// New are: states ([`state!`](rdma_core::state!)) and statements that hold, one of them after another one, states of the protocol,
    /// behaviour of the device, how often each was seen, and orders of tasks. A variation of a run has the same choices and faults up to there and
    /// others behind it; what few runs have reached is varied more often. So a bug that needs several rare states, one after another, is found
    /// one state after another, where chance would have to find all at once. The other half of the runs are those of a check that is not guided, which
    /// therefore needs at least half as many.
    pub fn guided(self) -> Self {
        Self { is_guided: true, ..self }
    }

    /// Tries all orders of tasks and events that are due at one instant, and all numbers that the test draws, rather than some by seed
    ///
    /// For small programs: the number of orders grows with the factorial of that of the steps at one instant. Nothing is late, frames have no
    /// jitter, processors take no time, verbs take what faults say, and the faults are those of the [plan](Self::faults). Steps of tasks and
    /// devices of different hosts count as independent, so that only one order of them is tried: **tasks of different hosts must share nothing
    /// but the fabric**, tasks outside of hosts, such as the test itself, may. A run that uses TCP counts no steps of tasks as independent.
    /// [`Report::orders`](super::Report::orders) says how many there are, and whether [`runs`](Self::runs) sufficed for them.
    pub fn exhaustive(self) -> Self {
        Self { is_exhaustive: true, ..self }
    }

    /// [Guides](Self::guided) the check, and tries the runs in the folder `path` first
    ///
    /// With the environment variable `RDMA_SIM_UPDATE_CORPUS=1`, the runs that together have reached all that is new beside orders of tasks are written there,
    /// one line each, to be committed with the test. A path that is not absolute is one of the package under test.
    ///
    /// Each run is repeated with its own faults, also when the times of random faults have moved since. A file is stale if the
    /// check would not try its run any more: if the topology, the model or the version has changed, or if its faults are not those of
    /// the [plan](Self::faults) followed by some that the [random faults](Self::random_faults) include by kind, target and number. A stale file fails the check, because
    /// what it was kept for is not tested; `RDMA_SIM_UPDATE_CORPUS=1` removes it and writes what the others do not reach.
    pub fn corpus(self, path: impl Into<PathBuf>) -> Self {
        Self { corpus: Some(path.into()), ..self.guided() }
    }

    /// Writes a page of the run that fails, or that is [repeated](Self::replay), to the file `path`: see
    /// [`History::to_html`](crate::History::to_html)
    ///
    /// If `path` is a directory, or ends with a slash, the page has the name of the test in it. The environment variable
    /// `RDMA_SIM_PAGE` does the same. The file can be opened in any browser, and has the line that repeats its run.
    ///
    /// The page of a run that passes is written only if there is no such file, or if `RDMA_SIM_REPLAY` has a line that names this test and
    /// the check has no [`replay`](Self::replay) of its own; so the page of a failure stays, also when tests run side by side.
    pub fn page(self, path: impl Into<PathBuf>) -> Self {
        Self { page: Some(path.into()), ..self }
    }

    /// Repeats one run instead of trying seeds: a regression test
    ///
    /// The line is the one that a failure prints, or the part between its quotes; the name of the test in it does not matter.
    /// The topology and the model must be those of the check that has printed it: begin with the same settings, not with [`new`](Self::new).
    ///
    /// ```
    /// use rdma_sim::{Check, Net, check};
    ///
    /// async fn opens(net: Net) {
    ///     assert!(net.open("a", "rdma_en2").is_ok());
    /// }
    ///
    /// fn settings() -> Check {
    ///     Check::new().runs(3).model(rdma_sim::Model::tb5_strict())
    /// }
    ///
    /// check(settings(), opens);
    /// let line = "2 test=opens seed=3 draws=0 faults=at 1ms a:rdma_en2 unplug";
    /// check(settings().replay(line.parse()?), opens);
    /// # Ok::<(), rdma_sim::ReplayError>(())
    /// ```
    pub fn replay(self, replay: Replay) -> Self {
        Self { replay: Some(replay), ..self }
    }

    /// Fails unless `replay` has this topology and model, where [`replay`](Self::replay) would panic
    ///
    /// # Errors
    ///
    /// [`ReplayError::OtherSetup`](crate::ReplayError::OtherSetup) if it is one of another.
    pub fn require_setup_of(&self, replay: &Replay) -> Result<(), ReplayError> {
        replay.check_setup(self.setup())
    }

    /// When all faults have ended, and how long the test may take from then on
    pub(super) fn calm(&self, faults: &FaultPlan) -> Option<(Time, Duration)> {
        self.liveness.map(|bound| (faults.end(), bound))
    }

    /// Whether this check injects `faults` in a run, or could: its plan comes first, and its random faults are like those behind it
    pub(super) fn injects(&self, faults: &FaultPlan) -> bool {
        let random = faults.0.strip_prefix(&self.faults.0[..]).map(|random| FaultPlan(random.to_vec()));
        random.is_some_and(|random| self.random_faults.draws(&random, &self.topology))
    }

    /// A fingerprint of what is simulated
    pub(super) fn setup(&self) -> u32 {
        let Rules { large_gid_table, surplus_region_crashes, .. } = self.model.rules;
        // Fields that are younger than replays that people have kept: these two change nothing behind the traits.
        let mut younger = vec![
            format!(", large_gid_table: {large_gid_table}"),
            format!(", surplus_region_crashes: {surplus_region_crashes}"),
        ];
        // The defaults of these change nothing.
        if self.model.timing.frame_ns == Timing::DEFAULT_FRAME_NS {
            younger.push(format!(", frame_ns: {}", Timing::DEFAULT_FRAME_NS));
        }
        younger.extend([", process_end_leaks_qps: 0".to_owned(), ", reuses_keys: false".to_owned()]);
        // Caps are for plans: the simulator does not slow a Mac down.
        let caps: BTreeSet<_> =
            self.topology.hosts().iter().map(|host| format!(", cap: {:?}", host.cap())).collect();
        younger.extend(caps);
        let text = format!("{:?} {:?}", self.topology, self.model);
        let text = younger.iter().fold(text, |text, field| text.replace(field, ""));
        XxHash3_64::oneshot(text.as_bytes()) as u32
    }

    /// The run of a seed
    pub(super) fn case(&self, base: &Replay, steps: u32, seed: u64) -> Replay {
        // Apart from the choices of the run: shrinking those leaves the faults as they are.
        let mut choices = Seeded::new(seed ^ 0xfa17_5eed);
        let random = self.random_faults.draw(&mut choices, &self.topology);
        let faults = self.faults.0.iter().cloned().chain(random.0).collect();
        let scheduler = match self.scheduler {
            Some(Scheduler::Pct { depth, steps: 0 }) => Scheduler::Pct { depth, steps },
            Some(scheduler) => scheduler,
            None if seed % 3 == 2 => Scheduler::Pct { depth: 2 + (seed / 3 % 2) as u32, steps },
            None => Scheduler::Random,
        };
        Replay { seed, scheduler, faults, ..base.clone() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Catches a new field of the model that turns replays which people have kept into those of another setup.
    #[test]
    fn younger_fields_are_a_part_of_the_setup_only_if_they_are_not_the_default() {
        assert_eq!(Check::new().setup(), 0xe74f_2660);
        let mut model = Model::tb5();
        model.timing.frame_ns += 1;
        assert_ne!(Check::new().model(model).setup(), 0xe74f_2660);
        for change in [
            |rules: &mut Rules| rules.process_end_leaks_qps = 1,
            |rules: &mut Rules| rules.reuses_keys = true,
        ] {
            let mut model = Model::tb5();
            change(&mut model.rules);
            assert_ne!(Check::new().model(model).setup(), 0xe74f_2660);
        }
    }

    /// Catches replays that are refused because a Mac has got a cap, which no simulation shows.
    #[test]
    fn caps_of_hosts_are_no_part_of_the_setup() {
        let setup = |caps: [&str; 2]| {
            let host = |name, cap| format!("[[host]]\nname = '{name}'\nports = 3\n{cap}\n");
            let text = format!("{}{}", host("x", caps[0]), host("y", caps[1]));
            Check::new().topology(Topology::from_toml(&text).unwrap()).setup()
        };
        let without = setup(["", ""]);
        for caps in [["cap_gbps = 80", ""], ["cap_gbps = 80", "cap_gbps = 32.5"], ["cap_gbps = 40"; 2]] {
            assert_eq!(setup(caps), without, "{caps:?}");
        }
    }

    /// Catches replays of the strict profile and of macOS 26.2 that are refused because of a rule which no simulation shows.
    #[test]
    fn rules_that_programs_in_c_alone_see_are_no_part_of_the_setup() {
        for model in [Model::tb5_strict(), Model::tb5_macos_26_2()] {
            let mut other = model.clone();
            let Rules { large_gid_table, surplus_region_crashes, .. } = &mut other.rules;
            (*large_gid_table, *surplus_region_crashes) = (!*large_gid_table, !*surplus_region_crashes);
            assert_eq!(Check::new().model(model).setup(), Check::new().model(other).setup());
        }
    }

    /// Regression: the later of the two calls removed the faults of the earlier one.
    #[test]
    fn faults_of_a_plan_and_random_ones_are_injected_together() {
        let plan: FaultPlan = "at 5ms b:rdma_en2 slow 50%".parse().unwrap();
        let random = || RandomFaults::up_to(8);
        let (first, last) = (Check::new().faults(plan.clone()), Check::new().random_faults(random()));
        let (first, last) = (first.random_faults(random()), last.faults(plan.clone()));
        for seed in 0..20 {
            let drawn = random().draw(&mut Seeded::new(seed ^ 0xfa17_5eed), &Topology::pair());
            let both = last.case(&Replay::default(), 1, seed).faults;
            assert_eq!((&both.0[..1], &both.0[1..]), (&plan.0[..], &drawn.0[..]));
            assert_eq!(first.case(&Replay::default(), 1, seed).faults, both);
        }
    }
}
