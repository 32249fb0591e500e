//! Seeded bugs: small programs with a mistake that people make, and how soon `check` finds each
//!
//! Every program passes in the plain run, so that only exploring finds the mistake; repaired, it passes in all runs.
//!
//! `cargo test --release -p rdma-tests --test bugs -- --ignored --nocapture` prints how many seeds each mistake needs, and
//! `cd tests/shuttle && cargo run --locked` how many iterations shuttle needs for those that are races of tasks alone. README.md
//! beside this file has both tables.

mod answers;
mod bug;
mod credits;
mod decisions;
mod deep;
mod leaders;
mod races;
mod resume;
mod tools;
mod waiting;
mod wakeups;

use rdma_sim::{Check, CheckFailure, Replay, Scheduler, try_check};

use self::bug::Bug;

/// The bugs that every way of exploring may find, by category
const CATEGORIES: [(&str, &[Bug]); 7] = [
    ("races", races::BUGS),
    ("races", answers::BUGS),
    ("wake-ups", wakeups::BUGS),
    ("decisions", decisions::BUGS),
    ("decisions", leaders::BUGS),
    ("credits", credits::BUGS),
    ("resume", resume::BUGS),
];

/// A way to explore schedules, by its name
type Mode = (&'static str, fn(Check) -> Check);

/// The ways that are compared
const MODES: [Mode; 5] = [
    ("fifo", |check| check.scheduler(Scheduler::Fifo)),
    ("random", |check| check.scheduler(Scheduler::Random)),
    ("pct", |check| check.scheduler(Scheduler::Pct { depth: 3, steps: 0 })),
    ("all", |check| check),
    ("guided", Check::guided),
];

/// Seeds after which a mistake counts as not found
const PATIENCE: u64 = 10_000;

fn bugs() -> impl Iterator<Item = &'static Bug> {
    CATEGORIES.iter().flat_map(|(_, bugs)| *bugs)
}

/// With those that only a guided check finds
fn all_bugs() -> impl Iterator<Item = &'static Bug> {
    bugs().chain(deep::BUGS)
}

fn run(bug: &Bug, check: Check, is_fixed: bool) -> Result<(), Box<CheckFailure>> {
    try_check(check, async |net| bug.run(net, is_fixed).await).map(drop)
}

/// How many seeds it takes to find `bug`, or `None` if none of `settings` finds it
///
/// The failure must be that of the bug, and the line that repeats it must do so.
fn find(bug: &Bug, settings: Check) -> Option<u64> {
    let failure = run(bug, settings.clone().first_seed(0), false).err()?;
    let is_the_bug = |failure: &CheckFailure| failure.reason.contains(bug.fails_with);
    assert!(is_the_bug(&failure), "{}: {failure}", bug.name);
    let again = run(bug, settings.replay(failure.replay.clone()), false).expect_err("a replay fails again");
    assert!(is_the_bug(&again), "{}: {again}", bug.name);
    Some(failure.tried)
}

#[test]
fn every_bug_has_a_name_of_its_own_and_there_are_enough() {
    let mut names: Vec<_> = all_bugs().map(|bug| bug.name).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), all_bugs().count());
    assert!(names.len() >= 32);
}

#[test]
fn no_bug_shows_in_the_plain_run() {
    let plain: Replay = "2 seed=0 draws=0".parse().unwrap();
    for bug in all_bugs() {
        run(bug, bug.settings().replay(plain.clone()), false)
            .unwrap_or_else(|failure| panic!("{}: {failure}", bug.name));
    }
}

#[test]
fn no_repaired_program_fails() {
    for bug in all_bugs() {
        for settings in [bug.settings().runs(200), bug.settings().runs(200).guided()] {
            run(bug, settings, true).unwrap_or_else(|failure| panic!("{}: {failure}", bug.name));
        }
    }
}

#[test]
fn bugs_that_the_plain_order_reaches_are_found_by_it() {
    for bug in bugs().filter(|bug| bug.is_found_in_fifo) {
        let settings = bug.settings().runs(PATIENCE).scheduler(Scheduler::Fifo);
        assert!(find(bug, settings).is_some(), "{}: {}", bug.name, bug.wrong);
    }
}

/// Catches a scheduler that takes what is ready in its order, and one that makes no task late.
#[test]
fn check_finds_every_bug() {
    for bug in bugs() {
        assert!(find(bug, bug.settings().runs(PATIENCE)).is_some(), "{}: {}", bug.name, bug.wrong);
    }
}

/// Every second run of a guided check is the next one of a check that is not guided.
///
/// Catches a check whose variations take the place of all other runs.
#[test]
fn a_guided_check_takes_at_most_twice_as_many_runs() {
    for bug in bugs() {
        let found = |check| find(bug, check).unwrap_or_else(|| panic!("{}: {}", bug.name, bug.wrong));
        let unguided = found(bug.settings().runs(PATIENCE));
        let guided = found(bug.settings().runs(PATIENCE).guided());
        assert!(guided <= 2 * unguided, "{}: {guided} runs, and {unguided} without a guide", bug.name);
    }
}

/// Catches a guided check that goes on from where its runs begin, that varies what many runs have reached as often as what few have,
/// and that leaves the faults as they are.
#[test]
fn a_guided_check_finds_bugs_behind_several_rare_states() {
    for bug in deep::BUGS {
        let guided = find(bug, bug.settings().runs(PATIENCE).guided());
        let guided = guided.unwrap_or_else(|| panic!("{}: {}", bug.name, bug.wrong));
        assert_eq!(find(bug, bug.settings().runs(2 * guided)), None, "{} is not deep", bug.name);
    }
}

/// The table: seeds that each bug needs, by the way of exploring
#[test]
#[ignore = "takes minutes, and proves nothing that the other tests do not"]
#[expect(clippy::print_stdout, reason = "the table is what it is for")]
fn print_seeds_needed() {
    let mut found = [0; MODES.len()];
    for (category, bugs) in CATEGORIES.into_iter().chain([("deep", deep::BUGS)]) {
        for bug in bugs {
            let seeds = MODES.map(|(_, mode)| find(bug, mode(bug.settings().runs(PATIENCE))));
            let cells = seeds.map(|seeds| seeds.map_or_else(|| "–".to_owned(), |seeds| seeds.to_string()));
            let (needs, begin) = (format!("{:?}", bug.needs), rdma_tests::now());
            run(bug, bug.settings().runs(100), true)
                .unwrap_or_else(|failure| panic!("{}: {failure}", bug.name));
            let micros = begin.elapsed().as_micros() / 100;
            println!("{category:9} {:34} {needs:12} {micros:>5} µs {}", bug.name, cells.join(" "));
            for (total, seeds) in found.iter_mut().zip(seeds) {
                *total += u32::from(seeds.is_some());
            }
        }
    }
    for ((mode, _), found) in MODES.iter().zip(found) {
        println!("{mode}: {found} of {} found", all_bugs().count());
    }
}
