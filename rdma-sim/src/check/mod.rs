//! Many simulations of one test, for suites of other crates
//!
//! [`check`] runs a test under many seeds, each with its own schedule and, if wanted, its own faults. A failure is shrunk
//! to few faults and few choices, and printed as one line that repeats it:
//!
//! ```text
//! RDMA_SIM_REPLAY='1 seed=17 draws=0 faults=at 5ms a:rdma_en2 unplug'
//! ```
//!
//! Environment variables: `RDMA_SIM_RUNS` (how many seeds), `RDMA_SIM_SEED` (the first of them), `RDMA_SIM_REPLAY` (just this
//! one).

mod replay;
mod shrink;

use std::any::Any;
use std::cell::Cell;
use std::ffi::OsString;
use std::fmt::Display;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::str::FromStr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Once};
use std::time::Duration;

use rdma_core::Time;

pub use self::replay::{Replay, ReplayError};
use crate::fault::FaultPlan;
use crate::model::DEFAULT_TIME_LIMIT;
use crate::{Choices, Model, Net, Seeded, Sim, Topology};

/// What [`check`] varies, and how often
///
/// ```
/// use std::time::Duration;
///
/// use rdma_sim::{Check, Topology, check};
///
/// let settings = Check::new().runs(20).topology(Topology::ring(3, 4)?).random_faults(3, Duration::from_millis(10));
/// check(settings, async |net| {
///     // The test: whatever the faults did, the devices of the other Macs are there.
///     assert_eq!(net.gids("c", "rdma_en2").map(|gids| gids.len() <= 2), Ok(true));
/// });
/// # Ok::<(), rdma_sim::TopologyError>(())
/// ```
#[derive(Clone, Debug)]
#[must_use = "nothing happens before it is checked"]
pub struct Check {
    runs: u64,
    first_seed: u64,
    topology: Topology,
    model: Model,
    faults: FaultPlan,
    /// How many random faults, in which time.
    random_faults: (u32, Duration),
    time_limit: Time,
    replay: Option<Replay>,
}

impl Default for Check {
    fn default() -> Self {
        Self::new()
    }
}

impl Check {
    /// A hundred seeds on two Macs and a cable, without faults
    pub fn new() -> Self {
        Self {
            runs: 100,
            first_seed: 0,
            topology: Topology::pair(),
            model: Model::default(),
            faults: FaultPlan::none(),
            random_faults: (0, Duration::ZERO),
            time_limit: DEFAULT_TIME_LIMIT,
            replay: None,
        }
    }

    /// Tries this many seeds
    pub fn runs(self, runs: u64) -> Self {
        Self { runs, ..self }
    }

    /// Begins with this seed; 0 follows the last one
    pub fn first_seed(self, first_seed: u64) -> Self {
        Self { first_seed, ..self }
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

    /// Injects up to `count` faults in the first `horizon` of each run, different ones for each seed, beside [those of a
    /// plan](Self::faults); see [`FaultPlan::random`]
    pub fn random_faults(self, count: u32, horizon: Duration) -> Self {
        Self { random_faults: (count, horizon), ..self }
    }

    /// Fails a run when its virtual time exceeds `limit`; a day by default
    pub fn time_limit(self, limit: Time) -> Self {
        Self { time_limit: limit, ..self }
    }

    /// Repeats one run instead of trying seeds
    pub fn replay(self, replay: Replay) -> Self {
        Self { replay: Some(replay), ..self }
    }

    /// The run of a seed
    fn case(&self, seed: u64) -> Replay {
        // Apart from the choices of the run: shrinking those leaves the faults as they are.
        let mut choices = Seeded::new(seed ^ 0xfa17_5eed);
        let (count, horizon) = self.random_faults;
        let random = FaultPlan::random(&mut choices, &self.topology, count, horizon);
        let faults = self.faults.0.iter().cloned().chain(random.0).collect();
        Replay { seed, draws: None, faults }
    }

    /// Runs `case`; returns how many choices it drew
    fn run(&self, case: &Replay, test: &impl AsyncFn(Net)) -> Result<u64, String> {
        let drawn = Arc::new(AtomicU64::new(0));
        let choices = Counted {
            choices: Seeded::first(case.seed, case.draws.unwrap_or(u64::MAX)),
            drawn: Arc::clone(&drawn),
        };
        let sim = Sim::new()
            .topology(self.topology.clone())
            .model(self.model.clone())
            .faults(case.faults.clone())
            .choices(choices)
            .sanitize(true)
            .time_limit(self.time_limit);
        let run = catch_unwind(AssertUnwindSafe(|| sim.try_run(|net| test(net))));
        let run = run.map_err(|panic| text_of(&*panic))?.map_err(|error| error.to_string())?;
        if let Some(finding) = run.findings.first() {
            return Err(format!("the DMA sanitizer found: {finding}"));
        }
        if !run.leaks.is_empty() {
            return Err(format!("objects were left behind: {:?}", run.leaks));
        }
        Ok(drawn.load(Ordering::Relaxed))
    }
}

/// A run that failed, from [`try_check`]; its text ends with the line that repeats it
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("seed {} failed: {reason}\nTo repeat it:\n\n{}\n", .replay.seed, self.lines().join("\n\nAs it was found:\n\n"))]
#[non_exhaustive]
pub struct CheckFailure {
    /// The message of the test's panic, or what the run did wrong otherwise
    pub reason: String,
    /// The run of the seed that failed first, with as few faults and choices as were found to suffice for the same failure
    ///
    /// The same, if nothing but numbers differs in its reason.
    pub replay: Replay,
    /// The run as it was found, with all of its faults
    pub original: Replay,
}

impl CheckFailure {
    /// The lines that repeat the failure, without one that says the same again
    fn lines(&self) -> Vec<String> {
        let mut lines = vec![self.replay.line(), self.original.line()];
        lines.dedup();
        lines
    }
}

fn is_no_digit(letter: &char) -> bool {
    !letter.is_ascii_digit()
}

fn text_of(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("a panic without a text").to_owned()
}

/// Counts the choices that are drawn
#[derive(Debug)]
struct Counted {
    choices: Seeded,
    drawn: Arc<AtomicU64>,
}

impl Choices for Counted {
    fn pick(&mut self, n: u32) -> u32 {
        self.drawn.fetch_add(1, Ordering::Relaxed);
        self.choices.pick(n)
    }
}

/// Runs `test` under many seeds
///
/// The DMA sanitizer is on, and every object that the test created on a device must be destroyed when the test ends.
///
/// # Panics
///
/// If a run fails: the test panics, waits for an event that will never come, misuses memory, or leaves objects behind. The
/// message has the line that repeats it, with as few faults and choices as were found to suffice, and the one of the run as it was
/// found. A task that the test has spawned and that panics fails the run, too. Also if an environment
/// variable is not a number or a replay line.
///
/// [`try_check`] returns the failure instead.
#[track_caller]
pub fn check(check: Check, test: impl AsyncFn(Net)) {
    if let Err(failure) = try_check(check, test) {
        panic!("{failure}");
    }
}

/// Runs `test` under many seeds, as [`check`] does, and returns the first failure
///
/// # Errors
///
/// [`CheckFailure`] with the run that failed and how.
///
/// # Panics
///
/// If an environment variable is not a number or a replay line.
///
/// ```
/// use rdma_sim::{Check, try_check};
///
/// let faults = "at 1ms a:rdma_en2 slow 50%; at 2ms a:rdma_en2 unplug".parse()?;
/// let failure = try_check(Check::new().faults(faults), async |net| {
///     let mut timer = net.runtime().timer();
///     timer.as_mut().reset(rdma_core::Time::from_nanos(3_000_000));
///     std::future::poll_fn(|cx| timer.as_mut().poll_expired(cx)).await;
///     assert!(net.open("a", "rdma_en2").is_ok(), "the cable is out");
/// })
/// .unwrap_err();
/// assert_eq!(failure.reason, "the cable is out");
/// assert_eq!(failure.replay.line(), "RDMA_SIM_REPLAY='1 seed=0 draws=0 faults=at 2ms a:rdma_en2 unplug'");
/// # Ok::<(), rdma_sim::FaultError>(())
/// ```
pub fn try_check(check: Check, test: impl AsyncFn(Net)) -> Result<(), CheckFailure> {
    fn variable<T: FromStr<Err: Display>>(name: &str) -> Option<T> {
        read_variable(name, std::env::var_os(name)?).map(Some).unwrap_or_else(|message| panic!("{message}"))
    }
    let runs = variable("RDMA_SIM_RUNS").unwrap_or(check.runs);
    let first = variable("RDMA_SIM_SEED").unwrap_or(check.first_seed);
    let replay = check.replay.clone().or_else(|| variable(replay::VARIABLE));
    if let Some(replay) = replay {
        let run = check.run(&replay, &test);
        return run.map(drop).map_err(|reason| CheckFailure { reason, original: replay.clone(), replay });
    }
    for number in 0..runs {
        let case = check.case(first.wrapping_add(number));
        if let Err(reason) = check.run(&case, &test) {
            let original = case.clone();
            // Another failure of a smaller run, such as a stall without the fault that ends a pause, is another bug or none.
            let fails_alike =
                |found: &String| found.chars().filter(is_no_digit).eq(reason.chars().filter(is_no_digit));
            let again = |case: &Replay| check.run(case, &test).err().filter(fails_alike);
            let (replay, reason) = quietly(|| shrink::shrink(case, reason.clone(), again));
            return Err(CheckFailure { reason, replay, original });
        }
    }
    Ok(())
}

/// The value of an environment variable, or a message that says what to do about it
fn read_variable<T: FromStr<Err: Display>>(name: &str, text: OsString) -> Result<T, String> {
    let text = text
        .into_string()
        .map_err(|text| format!("{name}={text:?} is not UTF-8: write it anew, or unset it"))?;
    text.parse().map_err(|error| format!("{name}={text:?}: {error}: write it anew, or unset it"))
}

thread_local! {
    static IS_QUIET: Cell<bool> = const { Cell::new(false) };
}

/// Runs `f` without the messages of panics that it catches
fn quietly<T>(f: impl FnOnce() -> T) -> T {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let hook = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if !IS_QUIET.get() {
                hook(info);
            }
        }));
    });
    IS_QUIET.set(true);
    let value = f();
    IS_QUIET.set(false);
    value
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Regression: the later of the two calls removed the faults of the earlier one.
    #[test]
    fn faults_of_a_plan_and_random_ones_are_injected_together() {
        let plan: FaultPlan = "at 5ms b:rdma_en2 slow 50%".parse().unwrap();
        let random = Check::new().random_faults(8, Duration::from_millis(1));
        let (first, last) = (Check::new().faults(plan.clone()), random.clone().faults(plan.clone()));
        for seed in 0..20 {
            let drawn = random.case(seed).faults;
            let both = last.case(seed).faults;
            assert_eq!((&both.0[..1], &both.0[1..]), (&plan.0[..], &drawn.0[..]));
            let first = first.clone().random_faults(8, Duration::from_millis(1));
            assert_eq!(first.case(seed).faults, both);
        }
    }

    /// Regression: a variable that is not UTF-8 was ignored, and the check tried other seeds.
    #[test]
    fn a_variable_that_cannot_be_read_is_refused_with_its_name_and_value() {
        assert_eq!(read_variable("RDMA_SIM_RUNS", "12".into()), Ok(12_u64));
        let refused = read_variable::<u64>("RDMA_SIM_RUNS", "many".into()).unwrap_err();
        assert!(refused.starts_with("RDMA_SIM_RUNS=\"many\": "), "{refused}");
        let refused = read_variable::<Replay>(replay::VARIABLE, "1 sead=7".into()).unwrap_err();
        assert!(
            refused.contains("\"sead=7\"") && refused.ends_with("write it anew, or unset it"),
            "{refused}"
        );
        #[cfg(unix)]
        {
            let text = std::os::unix::ffi::OsStringExt::from_vec(b"1 seed=\xff".to_vec());
            let refused = read_variable::<Replay>(replay::VARIABLE, text).unwrap_err();
            assert!(refused.starts_with("RDMA_SIM_REPLAY=\"1 seed=\\xFF\" is not UTF-8"), "{refused}");
        }
    }
}
