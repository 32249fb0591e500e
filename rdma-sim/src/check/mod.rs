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
//! run, of the test that it names), `RDMA_SIM_THREADS` (how many at once), `RDMA_SIM_PAGE` (a file for a page of the run that fails, or a
//! directory with a page for each test, see [`Check::page`]), `RDMA_SIM_REPORT=1` (prints what the runs of a check that passes have reached),
//! `RDMA_SIM_UPDATE_CORPUS=1` (see [`Check::corpus`]).

mod checking;
mod corpus;
mod environment;
mod exhaustive;
mod expectation;
mod failure;
#[cfg(any(feature = "proptest", feature = "arbitrary"))]
mod generate;
mod landmarks;
mod observer;
mod outcome;
mod page;
mod panics;
mod replay;
mod report;
mod run;
mod settings;
mod shrink;
mod variation;
mod watch;

use self::checking::Checking;
pub use self::failure::{CheckFailure, FailureKind};
pub use self::observer::Count;
pub use self::outcome::{Outcome, Sendable};
pub use self::replay::{Branch, Replay, ReplayError};
pub use self::report::{Orders, Report};
pub use self::settings::Check;
use crate::Net;

/// Runs `test` under many seeds
///
/// The DMA sanitizer is on. When the test ends, every object that it created on a device must be destroyed, and the tasks that it spawned
/// outside of all hosts must have ended, unless they [need not](Check::allow_leaked_tasks). The first run is the plain one, without random
/// faults, in plain order, and each [`Net::pick`] is 0: it shows where the traffic is. The test may return a [`Result`], see [`Outcome`].
///
/// # Panics
///
/// If a run fails: the test or one of its tasks panics, returns an error, waits for an event that will never come, goes on without end
/// (in [time](Check::time_limit), [steps](Check::step_limit) or [tasks](Check::task_limit)), misuses memory, or leaves objects or tasks
/// behind; or if a statement of [`sometimes!`](rdma_core::sometimes!) was evaluated and never held, or an
/// [expectation](Check::reaches) was not reached. The message has the line that repeats the run, with as few faults and choices as
/// were found to suffice, and the one of the run as it was found. A program with
/// `panic = "abort"` ends at the first panic, and prints the latter only. A panic of a destructor that follows a failure is printed behind
/// it; but a local of the test that panics when the test returns an error hides that error, and one that panics while the test unwinds ends
/// the process, as in any program. Also if an environment variable is not a number or a replay line.
///
/// [`try_check`] returns the failure instead.
#[track_caller]
pub fn check<Kind, O: Outcome<Kind>>(check: Check, test: impl AsyncFn(Net) -> O + Sync) {
    match try_check(check, test) {
        // A replay has one run, too, but tries no orders.
        Ok(report) if report.runs > 1 || report.orders.is_some() => environment::print(&report),
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
/// If the check has no [runs](Check::runs), if an environment variable is not a number or a replay line, if the [replay](Check::replay) is of another topology or model, if an
/// [expectation](Check::reaches) names a rule, fault or state of the protocol that the model does not have, or if the
/// [corpus](Check::corpus) cannot be read or written.
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
pub fn try_check<Kind, O: Outcome<Kind>, F: AsyncFn(Net) -> O + Sync>(
    check: Check,
    test: F,
) -> Result<Report, Box<CheckFailure>> {
    let mut check = check;
    let name = check.name.take().unwrap_or_else(environment::test_name::<F>);
    let test = async |net| test(net).await.into_text();
    let is_named = environment::apply(&mut check, &name);
    for name in &check.reaches {
        expectation::check_name(name, &check.model).unwrap_or_else(|error| panic!("{error}"));
    }
    let base = Replay { test: name.clone(), setup: Some(check.setup()), ..Replay::default() };
    if let Some(replay) = check.replay.take() {
        check.require_setup_of(&replay).unwrap_or_else(|error| panic!("{error}"));
        check.runs = 1;
        let is_same = replay.setup.is_some();
        // A line without a name is one of each test.
        let is_asked_for = is_named && !replay.test.is_empty();
        let report = Checking::new(&check, &name, is_asked_for, &test).repeat(replay)?;
        if is_named {
            environment::print_passed(&name, is_same);
        }
        return Ok(report);
    }
    assert!(check.runs > 0, "{name}: a check of 0 runs tests nothing; give `Check::runs` one at least");
    Checking::new(&check, &name, false, &test).explore(&base)
}
