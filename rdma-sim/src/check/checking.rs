//! A check that goes on: its runs, and the failure that is made smaller

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use rdma_arena::Reuse;

use super::corpus::Corpus;
use super::exhaustive::Exploring;
use super::failure::{CheckFailure, FailureKind, RunFailure};
use super::outcome::Outcome;
use super::page::Page;
use super::replay::Replay;
use super::report::{Orders, Report};
use super::run::{FinishedRun, Purpose, run};
use super::settings::Check;
use super::shrink::shrink;
use super::variation::vary;
use super::watch::{CurrentRun, Watched, Worker};
use super::{environment, panics};
use crate::sync::lock;
use crate::{Choices, Net, Scheduler};

/// How many runs are begun before what they have seen is added up
const ROUND: u64 = 128;
/// The same if the check is guided: what was reached is varied soon
const GUIDED_ROUND: u64 = 32;

/// A check that goes on
pub(super) struct Checking<'a, F> {
    check: &'a Check,
    test: &'a F,
    workers: Vec<Worker>,
    done: AtomicU64,
    /// How many smaller runs than the one that failed were begun
    shrinking: AtomicU64,
    name: &'a str,
    start: Instant,
    /// Whether the environment names the run that is repeated, by the name of this test
    is_asked_for: bool,
    /// Whether the plain run has failed, and is made smaller
    is_plain: AtomicBool,
}

/// Ends the thread that watches, also if the check panics
struct EndOfWatch<'a> {
    is_over: &'a AtomicBool,
    thread: Option<std::thread::Thread>,
}

impl Drop for EndOfWatch<'_> {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Release);
        self.thread.iter().for_each(std::thread::Thread::unpark);
    }
}

impl<'a, O: Outcome, F: AsyncFn(Net) -> O + Sync> Checking<'a, F> {
    #[expect(clippy::disallowed_methods, reason = "a report says how long it took")]
    pub(super) fn new(check: &'a Check, name: &'a str, is_asked_for: bool, test: &'a F) -> Self {
        let threads = check.threads.or_else(|| std::thread::available_parallelism().ok());
        let threads =
            threads.map_or(1, NonZeroUsize::get).min(usize::try_from(check.runs).unwrap_or(1)).max(1);
        Self {
            check,
            test,
            workers: (0..threads).map(|_| Worker::default()).collect(),
            done: AtomicU64::new(0),
            shrinking: AtomicU64::new(0),
            name,
            start: Instant::now(),
            is_asked_for,
            is_plain: AtomicBool::new(false),
        }
    }

    /// Calls `body` while a thread watches the workers
    fn watched<T>(&self, body: impl FnOnce() -> T) -> T {
        let is_over = AtomicBool::new(false);
        let watched = Watched {
            test: self.name,
            runs: self.check.runs,
            done: &self.done,
            workers: &self.workers,
            shrinking: &self.shrinking,
            patience: self.check.patience,
            interval: self.check.progress_interval,
            is_over: &is_over,
            start: self.start,
        };
        std::thread::scope(|scope| {
            // A system that has no thread for it does not watch.
            let thread = std::thread::Builder::new().spawn_scoped(scope, || watched.watch());
            let thread = thread.ok().map(|thread| thread.thread().clone());
            let _reuse = Reuse::on_this_thread();
            let _end = EndOfWatch { is_over: &is_over, thread };
            body()
        })
    }

    fn run(
        &self,
        worker: &Worker,
        case: &Replay,
        source: Box<dyn Choices>,
        purpose: Purpose,
        is_quiet: bool,
    ) -> Result<FinishedRun, RunFailure> {
        self.run_current(
            worker,
            CurrentRun { case: case.clone(), exploring: None },
            source,
            purpose,
            is_quiet,
        )
    }

    /// As [`run`](Self::run), of a run that may be one of an exhaustive check
    fn run_current(
        &self,
        worker: &Worker,
        current: CurrentRun,
        source: Box<dyn Choices>,
        purpose: Purpose,
        is_quiet: bool,
    ) -> Result<FinishedRun, RunFailure> {
        let set = |run| *lock(&worker.run) = run;
        set(Some(current.clone()));
        let case = &current.case.clone();
        let seen = RefCell::new(None);
        let body = || run(self.check, case, source, purpose, &worker.progress, &seen, self.test);
        let outcome = panics::watched(move || current.line(), is_quiet, body);
        set(None);
        let net = seen.take();
        if purpose == Purpose::Show
            && let (Some(path), Some(net)) = (&self.check.page, &net)
        {
            self.page(case).write(path, &outcome, net.history());
        }
        let has_picked = net.is_some_and(|net| net.has_picked());
        outcome.map_err(|failed| RunFailure { has_picked, ..failed })
    }

    /// The page of `case`, whose line names this test
    fn page(&self, case: &Replay) -> Page<'_> {
        let setup = Some(self.check.setup());
        let case = Replay { test: self.name.to_owned(), setup, ..case.clone() };
        let is_plain = self.is_plain.load(Ordering::Relaxed);
        let run = if is_plain { "the plain run".to_owned() } else { format!("seed {}", case.seed) };
        Page { test: self.name, run, line: case.line(), is_asked_for: self.is_asked_for }
    }

    /// Repeats one run
    pub(super) fn repeat(&self, replay: Replay) -> Result<Report, Box<CheckFailure>> {
        let purpose = if self.check.page.is_some() { Purpose::Show } else { Purpose::Test };
        let run = || self.run(&self.workers[0], &replay, replay.source(), purpose, false);
        let finished = self.watched(run).map_err(|failed| failure_of(failed, replay.clone(), replay, 1))?;
        let mut report = self.report();
        report.add(&finished);
        report.elapsed = self.start.elapsed();
        Ok(report)
    }

    /// Tries all seeds, or all orders
    pub(super) fn explore(&self, base: &Replay) -> Result<Report, Box<CheckFailure>> {
        let explore = || if self.check.is_exhaustive { self.exhaust(base) } else { self.try_seeds(base) };
        self.watched(explore)
    }

    /// A report without runs
    fn report(&self) -> Report {
        Report { test: self.name.to_owned(), model: self.check.model.clone(), ..Report::default() }
    }

    /// Tries all seeds
    fn try_seeds(&self, base: &Replay) -> Result<Report, Box<CheckFailure>> {
        let (check, mut report) = (self.check, self.report());
        // The plain run comes first: it shows where the traffic is, and fails if the test never works.
        let plain = Replay { draws: Some(0), faults: check.faults.clone(), ..base.clone() };
        let measured = self.run(&self.workers[0], &plain, plain.source(), Purpose::Measure, true);
        let measured = measured.map_err(|failed| {
            self.is_plain.store(true, Ordering::Relaxed);
            let failure = *self.shrunk(plain, failed, 1);
            Box::new(CheckFailure { is_plain: true, ..failure })
        })?;
        report.add(&measured);
        let mut aimed = check.clone();
        aimed.random_faults = aimed.random_faults.calmed(check.liveness.is_some());
        aimed.random_faults.around(measured.traffic, measured.time);
        let steps = u32::try_from(measured.steps).unwrap_or(u32::MAX).max(1);
        let mut corpus = Corpus::default();
        let updates = environment::updates_corpus();
        let known = check.corpus.as_deref().map_or(Ok(Vec::new()), |path| Corpus::read(path, check, updates));
        let mut outcome =
            self.try_all(known.unwrap_or_else(|error| panic!("{error}")), &mut report, &mut corpus, true);
        let (mut seeds, mut begun) = (check.first_seed, 0);
        while outcome.is_ok() && begun < check.runs {
            let count = (check.runs - begun).min(if check.is_guided { GUIDED_ROUND } else { ROUND });
            let next = |number: u64| {
                // Every second run begins anew: what was found so far may be far from everything else.
                if check.is_guided && number % 2 == 1 {
                    let varied = aimed.case(base, steps, check.first_seed.wrapping_add(number));
                    if let Some(child) = vary(&mut corpus, &varied, check) {
                        return child;
                    }
                }
                let fresh = aimed.case(base, steps, seeds);
                seeds = seeds.wrapping_add(1);
                fresh
            };
            let cases = (begun..begun + count).map(next).collect();
            begun += count;
            outcome = self.try_all(cases, &mut report, &mut corpus, false);
        }
        let path = check.corpus.as_deref().filter(|_| updates);
        let written = path.map_or(Ok(()), |path| corpus.write(path));
        // A failure that was found is worth more than a corpus.
        outcome?;
        written.unwrap_or_else(|error| panic!("{error}"));
        report.seeds = check.runs;
        self.finish(report, base)
    }

    /// Tries all orders
    fn exhaust(&self, base: &Replay) -> Result<Report, Box<CheckFailure>> {
        let faults = self.check.faults.clone();
        let case = Replay { scheduler: Scheduler::Every, faults, ..base.clone() };
        let exploring = Exploring::default();
        let (mut report, mut orders) = (self.report(), Orders::default());
        while !orders.are_all && orders.tried + orders.pruned < self.check.runs {
            let source = Box::new(exploring.clone());
            let current = CurrentRun { case: case.clone(), exploring: Some(exploring.clone()) };
            let outcome = self.run_current(&self.workers[0], current, source, Purpose::Test, true);
            let is_pruned = exploring.tree().is_pruned();
            self.done.fetch_add(1, Ordering::Relaxed);
            match outcome {
                _ if is_pruned => orders.pruned += 1,
                Ok(finished) => {
                    orders.tried += 1;
                    report.add(&finished);
                }
                Err(failed) => {
                    let choices = Some(exploring.tree().choices());
                    return Err(self.shrunk(Replay { choices, ..case }, failed, orders.tried + 1));
                }
            }
            orders.are_all = !exploring.tree().advance();
        }
        report.orders = Some(orders);
        self.finish(report, base)
    }

    /// The report, unless something never held
    fn finish(&self, mut report: Report, base: &Replay) -> Result<Report, Box<CheckFailure>> {
        report.elapsed = self.start.elapsed();
        match report.never_reached_text(&self.check.reaches) {
            Some(text) => {
                let failed = RunFailure::new(FailureKind::NeverHeld, text);
                Err(failure_of(failed, base.clone(), base.clone(), report.runs))
            }
            None => Ok(report),
        }
    }

    /// Runs `cases`, and adds their results to the report and to the corpus, where they are `known` if they come from its folder
    fn try_all(
        &self,
        cases: Vec<Replay>,
        report: &mut Report,
        corpus: &mut Corpus,
        are_known: bool,
    ) -> Result<(), Box<CheckFailure>> {
        let outcomes = self.run_all(&cases);
        for (case, outcome) in cases.into_iter().zip(outcomes) {
            let finished = match outcome {
                Ok(finished) => finished,
                Err(failed) => return Err(self.shrunk(case, failed, report.runs + 1)),
            };
            report.add(&finished);
            if self.check.is_guided {
                corpus.add(&case, &finished, are_known);
            }
        }
        Ok(())
    }

    /// Runs `cases` on all threads; those behind one that fails may be missing
    fn run_all(&self, cases: &[Replay]) -> Vec<Result<FinishedRun, RunFailure>> {
        let (next, end) = (AtomicUsize::new(0), AtomicUsize::new(cases.len()));
        let outcomes = Mutex::new(BTreeMap::new());
        let work = |worker: &Worker| {
            let _reuse = Reuse::on_this_thread();
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                if number >= end.load(Ordering::Relaxed) {
                    return;
                }
                let outcome = self.run(worker, &cases[number], cases[number].source(), Purpose::Test, true);
                if outcome.is_err() {
                    end.fetch_min(number, Ordering::Relaxed);
                }
                self.done.fetch_add(1, Ordering::Relaxed);
                lock(&outcomes).insert(number, outcome);
            }
        };
        let [own, others @ ..] = &self.workers[..] else { unreachable!("there is one worker at least") };
        std::thread::scope(|scope| {
            for worker in others {
                // Without further threads, it takes longer.
                let _ = std::thread::Builder::new().spawn_scoped(scope, || work(worker));
            }
            work(own);
        });
        outcomes.into_inner().unwrap_or_else(PoisonError::into_inner).into_values().collect()
    }

    /// The failure of the smallest run that fails like `case`, if it does so again
    fn shrunk(&self, case: Replay, failed: RunFailure, tried: u64) -> Box<CheckFailure> {
        let (original, found) = (case.clone(), failed.clone());
        let again = |case: &Replay| {
            self.shrinking.fetch_add(1, Ordering::Relaxed);
            let outcome = self.run(&self.workers[0], case, case.source(), Purpose::Test, true);
            outcome.err().filter(|other| other.is_like(&found))
        };
        // Each smaller run would take as many steps.
        let shrinks = self.check.shrinks && failed.kind != FailureKind::StepLimit;
        let (replay, failed) = if shrinks { shrink(case, failed, again) } else { (case, failed) };
        if self.fails_again(&replay, &found) {
            return failure_of(failed, replay, original, tried);
        }
        if replay != original {
            self.fails_again(&original, &found);
        }
        let failure = *failure_of(found, original.clone(), original, tried);
        Box::new(CheckFailure { is_deterministic: false, ..failure })
    }

    /// Whether `case` fails like `found`; writes its page, if that is wanted
    fn fails_again(&self, case: &Replay, found: &RunFailure) -> bool {
        let purpose = if self.check.page.is_some() { Purpose::Show } else { Purpose::Test };
        let outcome = self.run(&self.workers[0], case, case.source(), purpose, true);
        outcome.is_err_and(|failed| failed.is_like(found))
    }
}

fn failure_of(failed: RunFailure, replay: Replay, original: Replay, tried: u64) -> Box<CheckFailure> {
    let RunFailure { kind, reason, site, later, has_picked } = failed;
    Box::new(CheckFailure {
        kind,
        reason,
        site,
        replay,
        original,
        is_plain: false,
        later,
        has_picked,
        tried,
        is_deterministic: true,
    })
}
