//! How many iterations shuttle needs for the seeded bugs that are races of tasks alone
//!
//! `cargo run --locked` prints the table; it fails if neither scheduler finds a bug, or if a repaired program fails. The numbers of
//! `rdma_sim::check` for the same programs are in `tests/tests/bugs/README.md`.

mod answers;
mod credits;
mod races;
mod tools;
mod wakeups;

use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use shuttle::future::block_on;
use shuttle::scheduler::{PctScheduler, RandomScheduler, Scheduler};
use shuttle::{Config, FailurePersistence, MaxSteps, Runner};

/// After so many iterations a bug counts as not found
const PATIENCE: usize = 10_000;
/// How many iterations a repaired program passes
const CLEAN: usize = 200;

/// In which iteration `program` fails first
fn find<F: Future<Output = ()> + 'static>(
    scheduler: impl Scheduler + 'static,
    is_fixed: bool,
    program: fn(bool) -> F,
) -> Option<usize> {
    let iterations = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&iterations);
    let mut config = Config::new();
    config.failure_persistence = FailurePersistence::None;
    config.silence_warnings = true;
    // A task with the highest priority that yields in a loop never ends.
    config.max_steps = MaxSteps::ContinueAfter(10_000);
    let run = || {
        Runner::new(scheduler, config).run(move || {
            counted.fetch_add(1, Ordering::Relaxed);
            block_on(program(is_fixed));
        })
    };
    catch_unwind(AssertUnwindSafe(run)).is_err().then(|| iterations.load(Ordering::Relaxed))
}

/// Prints the row of a program; false if it is not found, or fails when it is repaired
fn row<F: Future<Output = ()> + 'static>(name: &str, program: fn(bool) -> F) -> bool {
    let random = |iterations| RandomScheduler::new_from_seed(0, iterations);
    let pct = |iterations| PctScheduler::new_from_seed(0, 3, iterations);
    let found = [find(random(PATIENCE), false, program), find(pct(PATIENCE), false, program)];
    let cells = found.map(|found| found.map_or_else(|| "–".to_owned(), |iterations| iterations.to_string()));
    let is_clean = find(random(CLEAN), true, program).is_none();
    println!("| `{name}` | {} |{}", cells.join(" | "), if is_clean { "" } else { " FAILS WHEN REPAIRED" });
    is_clean && found.iter().any(Option::is_some)
}

macro_rules! rows {
    ($($module:ident { $($program:ident)* })*) => {
        [$($(row(stringify!($program), $module::$program)),*),*]
    };
}

fn main() -> ExitCode {
    std::panic::set_hook(Box::new(|_| ()));
    println!("| program | shuttle, random | shuttle, PCT of depth 3 |\n|---|---:|---:|");
    let are_found = rows! {
        races {
            last_seat lost_update double_initialisation broadcast_by_index audit_between lock_order
            bakery_without_choosing aba_on_a_stack last_job_at_shutdown freed_twice
        }
        answers { stale_fill older_answer replies_by_position reused_slot }
        wakeups {
            no_permit overwritten_waker wake_before_flag wrong_waiter first_waker_kept if_instead_of_while
            barrier_without_generation signal_cleared_late version_read_late joined_before_begun
        }
        credits { one_credit_for_two older_grant batch_of_credits_forgotten }
    };
    if are_found.contains(&false) { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}
