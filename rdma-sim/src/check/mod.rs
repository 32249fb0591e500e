//! Many simulations of one test, for suites of other crates
//!
//! [`check`] runs a test under many seeds, each with its own schedule and, if wanted, its own faults. A failure is shrunk
//! to few faults and few choices, and printed as one line that repeats it:
//!
//! ```text
//! RDMA_SIM_REPLAY='2 test=two_phase seed=17 scheduler=random draws=0 faults=at 5ms a:rdma_en2 unplug'
//! ```
//!
//! Environment variables: `RDMA_SIM_RUNS` (how many seeds), `RDMA_SIM_SEED` (the first of them), `RDMA_SIM_REPLAY` (just this
//! run, of the test that it names), `RDMA_SIM_THREADS` (how many at once), `RDMA_SIM_PAGE` (a file for a page of the run that fails),
//! `RDMA_SIM_REPORT=1` (prints what the runs have reached), `RDMA_SIM_UPDATE_CORPUS=1` (see [`Check::corpus`]).

mod corpus;
mod environment;
mod exhaustive;
mod failure;
#[cfg(any(feature = "proptest", feature = "arbitrary"))]
mod generate;
mod observer;
mod outcome;
mod page;
mod panics;
mod replay;
mod report;
mod run;
mod shrink;
mod watch;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use rdma_core::Time;
use twox_hash::XxHash3_64;

use self::corpus::Corpus;
use self::exhaustive::Exploring;
use self::failure::Failed;
pub use self::failure::{CheckFailure, FailureKind};
pub use self::outcome::Outcome;
pub use self::replay::{Branch, Replay, ReplayError};
pub use self::report::{Count, Orders, Report};
use self::run::{Finished, Purpose, run};
use self::watch::{Watched, Worker};
use crate::fault::FaultPlan;
use crate::{Choices, Model, Net, RandomFaults, Scheduler, Seeded, Topology};

/// What [`check`] varies, and how often
///
/// ```
/// use rdma_sim::{Check, RandomFaults, Topology, check};
///
/// let settings = Check::new().runs(20).topology(Topology::ring(3, 4)?).random_faults(RandomFaults::up_to(3));
/// check(settings, async |net| {
///     // The test: whatever the faults did, the devices of the other Macs are there.
///     assert_eq!(net.gids("c", "rdma_en2").map(|gids| gids.len() <= 2), Ok(true));
/// });
/// # Ok::<(), rdma_sim::TopologyError>(())
/// ```
#[derive(Clone, Debug)]
#[must_use = "nothing happens before it is checked"]
pub struct Check {
    name: Option<String>,
    runs: u64,
    first_seed: u64,
    threads: Option<NonZeroUsize>,
    topology: Topology,
    model: Model,
    faults: FaultPlan,
    random_faults: RandomFaults,
    /// The one of each run, unless it is given
    scheduler: Option<Scheduler>,
    time_limit: Time,
    liveness: Option<Duration>,
    patience: Duration,
    shrinks: bool,
    is_guided: bool,
    is_exhaustive: bool,
    corpus: Option<PathBuf>,
    page: Option<PathBuf>,
    replay: Option<Replay>,
}

/// How long a run may take, in virtual time
const TIME_LIMIT: Duration = Duration::from_hours(1);
/// How long a task may keep its thread, in real time
const PATIENCE: Duration = Duration::from_mins(1);
/// How many runs are begun before what they have seen is added up
const ROUND: u64 = 128;

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
            liveness: None,
            patience: PATIENCE,
            shrinks: true,
            is_guided: false,
            is_exhaustive: false,
            corpus: None,
            page: None,
            replay: None,
        }
    }

    /// Calls the test `name` in replays; otherwise it has the name of its thread, as `cargo test` gives it, or of its function
    pub fn name(self, name: &str) -> Self {
        Self { name: Some(name.split_whitespace().collect::<Vec<_>>().join("_")), ..self }
    }

    /// Tries this many seeds
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
        Self { scheduler: Some(scheduler), ..self }
    }

    /// Fails a run when its virtual time exceeds `limit`; an hour by default
    pub fn time_limit(self, limit: Time) -> Self {
        Self { time_limit: limit, ..self }
    }

    /// Ends all faults when the last one of the plan has, and fails a run that then takes longer than `bound`
    ///
    /// Cables are plugged in again, stopped processes go on and dead ones start anew, and faults that wait for a number of frames are
    /// forgotten. What only a reboot repairs, such as leaked objects, stays.
    pub fn liveness(self, bound: Duration) -> Self {
        Self { liveness: Some(bound), ..self }
    }

    /// Ends the process if a task keeps its thread for so much real time; a minute by default
    pub fn patience(self, patience: Duration) -> Self {
        Self { patience, ..self }
    }

    /// Whether a failing run is made smaller before it is reported; it is by default
    pub fn shrink(self, shrinks: bool) -> Self {
        Self { shrinks, ..self }
    }

    /// Varies runs that have reached something new, rather than to begin each anew
    ///
    /// New are: states ([`state!`](rdma_core::state!)) and statements that hold and their sequence, behaviour of the device, how often each was
    /// seen, and orders of tasks.
    pub fn guided(self) -> Self {
        Self { is_guided: true, ..self }
    }

    /// Tries all orders of tasks and events that are due at one instant, and all numbers that the test draws, rather than some by seed
    ///
    /// For small programs: the number of orders grows with the factorial of that of the steps at one instant. Nothing is late, frames have no
    /// jitter, and the faults are those of the [plan](Self::faults). Steps of tasks and devices of different hosts count as independent, so
    /// that only one order of them is tried: **tasks of different hosts must share nothing but the network**, tasks outside of hosts, such as
    /// the test itself, may. [`Report::orders`] says how many there are, and whether [`runs`](Self::runs) sufficed for them.
    pub fn exhaustive(self) -> Self {
        Self { is_exhaustive: true, ..self }
    }

    /// [Guides](Self::guided) the check, and tries the runs in the folder `path` first
    ///
    /// With the environment variable `RDMA_SIM_UPDATE_CORPUS=1`, runs that have reached something new are written there, one line each, to
    /// be committed with the test. A path that is not absolute is one of the package under test.
    pub fn corpus(self, path: impl Into<PathBuf>) -> Self {
        Self { corpus: Some(path.into()), ..self.guided() }
    }

    /// Writes a page of the run that fails, or that is [repeated](Self::replay), to the file `path`: see
    /// [`History::to_html`](crate::History::to_html)
    ///
    /// So does the environment variable `RDMA_SIM_PAGE`. The file can be opened in any browser.
    pub fn page(self, path: impl Into<PathBuf>) -> Self {
        Self { page: Some(path.into()), ..self }
    }

    /// Repeats one run instead of trying seeds
    pub fn replay(self, replay: Replay) -> Self {
        Self { replay: Some(replay), ..self }
    }

    /// When all faults have ended, and how long the test may take from then on
    fn calm(&self, faults: &FaultPlan) -> Option<(Time, Duration)> {
        self.liveness.map(|bound| (faults.end(), bound))
    }

    /// A fingerprint of what is simulated
    fn setup(&self) -> u32 {
        let text = format!("{:?} {:?}", self.topology, self.model);
        XxHash3_64::oneshot(text.as_bytes()) as u32
    }

    /// The run of a seed
    fn case(&self, base: &Replay, steps: u32, seed: u64) -> Replay {
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

/// Runs `test` under many seeds
///
/// The DMA sanitizer is on, and every object that the test created on a device must be destroyed when the test ends. The first run is
/// the plain one, without random faults: it shows where the traffic is. The test may return a [`Result`], see [`Outcome`].
///
/// # Panics
///
/// If a run fails: the test or one of its tasks panics, returns an error, waits for an event that will never come, misuses memory, or
/// leaves objects behind; or if a statement of [`sometimes!`](rdma_core::sometimes!) never held. The message has the line that repeats
/// the run, with as few faults and choices as were found to suffice, and the one of the run as it was found. Also if an environment
/// variable is not a number or a replay line.
///
/// [`try_check`] returns the failure instead.
#[track_caller]
pub fn check<O: Outcome>(check: Check, test: impl AsyncFn(Net) -> O + Sync) {
    match try_check(check, test) {
        Ok(report) if report.runs > 1 => environment::print(&report),
        Ok(_) => (),
        Err(failure) => panic!("{failure}"),
    }
}

/// Runs `test` under many seeds, as [`check`] does, and returns what they have reached, or the first failure
///
/// # Errors
///
/// [`CheckFailure`] with the run that failed and how.
///
/// # Panics
///
/// If an environment variable is not a number or a replay line, if the [replay](Check::replay) is of another topology or model, or if
/// the [corpus](Check::corpus) cannot be read or written.
///
/// ```
/// use std::time::Duration;
///
/// use rdma_sim::{Check, Scheduler, try_check};
///
/// let faults = "at 1ms a:rdma_en2 slow 50%; at 2ms a:rdma_en2 unplug".parse()?;
/// let failure = try_check(Check::new().name("cable").faults(faults), async |net| {
///     net.sleep(Duration::from_millis(3)).await;
///     assert!(net.open("a", "rdma_en2").is_ok(), "the cable is out");
/// })
/// .unwrap_err();
/// assert_eq!(failure.reason, "the cable is out");
/// assert_eq!(failure.replay.faults.to_string(), "at 2ms a:rdma_en2 unplug");
/// assert!(failure.to_string().contains("RDMA_SIM_REPLAY='2 test=cable setup="));
/// # Ok::<(), rdma_sim::FaultError>(())
/// ```
pub fn try_check<O: Outcome, F: AsyncFn(Net) -> O + Sync>(
    check: Check,
    test: F,
) -> Result<Report, Box<CheckFailure>> {
    let mut check = check;
    let name = check.name.take().unwrap_or_else(environment::test_name::<F>);
    environment::apply(&mut check, &name);
    let base = Replay { test: name.clone(), setup: Some(check.setup()), ..Replay::default() };
    if let Some(replay) = check.replay.take() {
        replay.check_setup(check.setup()).unwrap_or_else(|error| panic!("{error}"));
        check.runs = 1;
        return Checking::new(&check, &name, &test).repeat(replay);
    }
    Checking::new(&check, &name, &test).explore(&base)
}

/// A check that goes on
struct Checking<'a, F> {
    check: &'a Check,
    test: &'a F,
    workers: Vec<Worker>,
    done: AtomicU64,
    report: Report,
    start: Instant,
}

impl<'a, O: Outcome, F: AsyncFn(Net) -> O + Sync> Checking<'a, F> {
    #[expect(clippy::disallowed_methods, reason = "a report says how long it took")]
    fn new(check: &'a Check, name: &str, test: &'a F) -> Self {
        let threads = check.threads.or_else(|| std::thread::available_parallelism().ok());
        let threads =
            threads.map_or(1, NonZeroUsize::get).min(usize::try_from(check.runs).unwrap_or(1)).max(1);
        Self {
            check,
            test,
            workers: (0..threads).map(|_| Worker::default()).collect(),
            done: AtomicU64::new(0),
            report: Report { test: name.to_owned(), ..Report::default() },
            start: Instant::now(),
        }
    }

    /// Calls `body` while a thread watches the workers
    fn watched<T>(&self, body: impl FnOnce() -> T) -> T {
        let is_over = AtomicBool::new(false);
        let watched = Watched {
            test: &self.report.test,
            runs: self.check.runs,
            done: &self.done,
            workers: &self.workers,
            patience: self.check.patience,
            is_over: &is_over,
        };
        std::thread::scope(|scope| {
            let thread = scope.spawn(|| watched.watch());
            let value = body();
            is_over.store(true, Ordering::Release);
            thread.thread().unpark();
            value
        })
    }

    fn run(
        &self,
        worker: &Worker,
        case: &Replay,
        source: Box<dyn Choices>,
        purpose: Purpose,
        is_quiet: bool,
    ) -> Result<Finished, Failed> {
        let set = |case| *worker.case.lock().unwrap_or_else(PoisonError::into_inner) = case;
        set(Some(case.clone()));
        let seen = RefCell::new(None);
        let body = || run(self.check, case, source, purpose, &worker.progress, &seen, self.test);
        let outcome = panics::watched(case.line(), is_quiet, body);
        set(None);
        if purpose == Purpose::Show
            && let (Some(path), Some(net)) = (&self.check.page, seen.take())
        {
            page::write(path, case, &outcome, net.history());
        }
        outcome
    }

    /// Repeats one run
    fn repeat(mut self, replay: Replay) -> Result<Report, Box<CheckFailure>> {
        let purpose = if self.check.page.is_some() { Purpose::Show } else { Purpose::Test };
        match self.watched(|| self.run(&self.workers[0], &replay, replay.source(), purpose, false)) {
            Ok(finished) => {
                self.report.add(&finished);
                self.report.elapsed = self.start.elapsed();
                Ok(self.report)
            }
            Err(failed) => Err(failure_of(failed, replay.clone(), replay, 1)),
        }
    }

    /// Tries all seeds
    fn explore(mut self, base: &Replay) -> Result<Report, Box<CheckFailure>> {
        let check = self.check;
        if check.runs == 0 {
            return Ok(self.report);
        }
        if check.is_exhaustive {
            return self.exhaust(base);
        }
        // The plain run comes first: it shows where the traffic is, and fails if the test never works.
        let plain = Replay { draws: Some(0), faults: check.faults.clone(), ..base.clone() };
        let measured = match self
            .watched(|| self.run(&self.workers[0], &plain, plain.source(), Purpose::Measure, true))
        {
            Ok(measured) => measured,
            Err(failed) => return Err(self.shrunk(plain, failed, 1)),
        };
        self.report.add(&measured);
        let mut aimed = check.clone();
        aimed.random_faults.around(measured.moments, measured.time);
        let steps = u32::try_from(measured.steps).unwrap_or(u32::MAX).max(1);
        let mut corpus = Corpus::default();
        let known = check.corpus.as_deref().map_or(Ok(Vec::new()), Corpus::read);
        self.try_all(known.unwrap_or_else(|error| panic!("{error}")), &mut corpus, false)?;
        for round in 0..check.runs.div_ceil(ROUND) {
            let seeds = round * ROUND..check.runs.min((round + 1) * ROUND);
            let case = |number| {
                let fresh = aimed.case(base, steps, check.first_seed.wrapping_add(number));
                if check.is_guided { corpus.vary(fresh) } else { fresh }
            };
            let cases = seeds.map(case).collect();
            self.try_all(cases, &mut corpus, check.corpus.is_some() && environment::updates_corpus())?;
        }
        self.finish(base)
    }

    /// Tries all orders
    fn exhaust(mut self, base: &Replay) -> Result<Report, Box<CheckFailure>> {
        let faults = self.check.faults.clone();
        let case = Replay { scheduler: Scheduler::Every, faults, ..base.clone() };
        let exploring = Exploring::default();
        let mut orders = Orders::default();
        while !orders.are_all && orders.tried + orders.pruned < self.check.runs {
            let source = Box::new(exploring.clone());
            let outcome = self.watched(|| self.run(&self.workers[0], &case, source, Purpose::Test, true));
            let is_pruned = exploring.tree().is_pruned();
            match outcome {
                _ if is_pruned => orders.pruned += 1,
                Ok(finished) => {
                    orders.tried += 1;
                    self.report.add(&finished);
                }
                Err(failed) => {
                    let choices = Some(exploring.tree().choices());
                    return Err(self.shrunk(Replay { choices, ..case }, failed, orders.tried + 1));
                }
            }
            orders.are_all = !exploring.tree().advance();
        }
        self.report.orders = Some(orders);
        self.finish(base)
    }

    /// The report, unless something never held
    fn finish(mut self, base: &Replay) -> Result<Report, Box<CheckFailure>> {
        self.report.elapsed = self.start.elapsed();
        match self.report.never_held_text() {
            Some(text) => {
                let failed = Failed::new(FailureKind::NeverHeld, text);
                Err(failure_of(failed, base.clone(), base.clone(), self.report.runs))
            }
            None => Ok(self.report),
        }
    }

    /// Runs `cases`, and adds what they have reached to the report and to the corpus, whose folder is written if `updates`
    fn try_all(
        &mut self,
        cases: Vec<Replay>,
        corpus: &mut Corpus,
        updates: bool,
    ) -> Result<(), Box<CheckFailure>> {
        let outcomes = self.watched(|| self.run_all(&cases));
        for (case, outcome) in cases.into_iter().zip(outcomes) {
            match outcome {
                Ok(finished) => {
                    self.report.add(&finished);
                    let is_new = self.check.is_guided && corpus.add(&case, &finished);
                    if let Some(path) = self.check.corpus.as_deref().filter(|_| is_new && updates) {
                        Corpus::write(path, &case).unwrap_or_else(|error| panic!("{error}"));
                    }
                }
                Err(failed) => return Err(self.shrunk(case, failed, self.report.runs + 1)),
            }
        }
        Ok(())
    }

    /// Runs `cases` on all threads; those behind one that fails may be missing
    fn run_all(&self, cases: &[Replay]) -> Vec<Result<Finished, Failed>> {
        let (next, end) = (AtomicUsize::new(0), AtomicUsize::new(cases.len()));
        let outcomes = Mutex::new(BTreeMap::new());
        let work = |worker: &Worker| loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            if number >= end.load(Ordering::Relaxed) {
                return;
            }
            let outcome = self.run(worker, &cases[number], cases[number].source(), Purpose::Test, true);
            if outcome.is_err() {
                end.fetch_min(number, Ordering::Relaxed);
            }
            self.done.fetch_add(1, Ordering::Relaxed);
            outcomes.lock().unwrap_or_else(PoisonError::into_inner).insert(number, outcome);
        };
        if let [worker] = &self.workers[..] {
            work(worker);
        } else {
            std::thread::scope(|scope| {
                for worker in &self.workers {
                    scope.spawn(|| work(worker));
                }
            });
        }
        outcomes.into_inner().unwrap_or_else(PoisonError::into_inner).into_values().collect()
    }

    /// The failure of the smallest run that fails like `case`
    fn shrunk(&self, case: Replay, failed: Failed, tried: u64) -> Box<CheckFailure> {
        let original = case.clone();
        if !self.check.shrinks {
            self.show(&case);
            return failure_of(failed, case, original, tried);
        }
        let alike = failed.clone();
        let again = |case: &Replay| {
            let outcome = self.run(&self.workers[0], case, case.source(), Purpose::Test, true);
            outcome.err().filter(|found| found.is_like(&alike))
        };
        let (replay, failed) = self.watched(|| shrink::shrink(case, failed, again));
        self.show(&replay);
        failure_of(failed, replay, original, tried)
    }

    /// Writes the page of a run, if that is wanted
    fn show(&self, case: &Replay) {
        if self.check.page.is_some() {
            let show = || self.run(&self.workers[0], case, case.source(), Purpose::Show, true);
            // That it fails is known.
            let _ = self.watched(show);
        }
    }
}

fn failure_of(failed: Failed, replay: Replay, original: Replay, tried: u64) -> Box<CheckFailure> {
    let Failed { kind, reason, site } = failed;
    Box::new(CheckFailure { kind, reason, site, replay, original, tried })
}

#[cfg(test)]
mod tests {
    use super::*;

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
