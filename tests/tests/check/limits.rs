//! Runs that never end although time advances or tasks change

use std::time::Duration;

use rdma_sim::{Check, CheckFailure, FailureKind, Net, RunError, Scheduler, Sim, Stalled, try_check};

fn failure(check: Check, test: impl AsyncFn(Net) + Sync) -> Box<CheckFailure> {
    try_check(check.name("t"), test).expect_err("the test fails")
}

fn schedulers() -> [Scheduler; 3] {
    [Scheduler::Fifo, Scheduler::Random, Scheduler::Pct { depth: 3, steps: 100 }]
}

/// Sleeps for a nanosecond, again and again
async fn sleep_for_ever(net: Net) {
    loop {
        net.sleep(Duration::from_nanos(1)).await;
    }
}

/// Spawns a task that spawns two like itself
fn fork(net: Net) {
    net.clone().spawn(async move {
        fork(net.clone());
        fork(net);
    });
}

/// Regression: it took days of real time to come to the limit of virtual time. Catches a bound that one scheduler does not have, a run
/// that is made smaller, and a seed that is not named.
#[test]
fn a_loop_that_sleeps_for_a_nanosecond_is_named_with_its_seed() {
    for scheduler in schedulers() {
        let test = async |net: Net| {
            let is_unlucky = net.pick(4) == 3;
            let ticking = net.clone();
            net.spawn(async move {
                if is_unlucky {
                    sleep_for_ever(ticking).await;
                }
            });
            net.sleep(Duration::from_millis(50)).await;
        };
        let settings = Check::new().scheduler(scheduler).step_limit(20_000);
        let failure = failure(settings.clone(), test);
        assert_eq!(failure.kind, FailureKind::StepLimit, "{scheduler}: {failure}");
        let text = failure.to_string();
        let seed = failure.replay.seed;
        let words = format!("seed {seed} failed: the simulation took more than 20000 steps in ");
        assert!(text.starts_with(&words), "{text}");
        assert!(
            text.contains("the last is one of the task spawned at tests/tests/check/limits.rs:")
                && text.contains("let it sleep for longer (`Net::sleep`)")
                && text.contains("raises `step_limit`"),
            "{text}"
        );
        assert_eq!(failure.replay, failure.original, "each smaller run would take as long");
        let again = try_check(settings.replay(failure.replay.line().parse().unwrap()), test).unwrap_err();
        assert_eq!(again.reason, failure.reason);
    }
    let failure = failure(Check::new().exhaustive().step_limit(20_000), sleep_for_ever);
    assert_eq!(failure.kind, FailureKind::StepLimit, "{failure}");
    assert!(failure.reason.contains("the last is one of main"), "{failure}");
}

/// Regression: the memory of the machine was the bound. Catches a bound that one scheduler does not have, and one of tasks that were spawned in all.
#[test]
fn tasks_that_spawn_two_more_are_named() {
    let words = "the simulation has more than 10000 tasks that have not ended: the last is the task spawned at \
                 tests/tests/check/limits.rs:";
    let settings = schedulers().map(|scheduler| Check::new().scheduler(scheduler));
    for settings in settings.into_iter().chain([Check::new().exhaustive().task_limit(1000)]) {
        let test = async |net: Net| {
            fork(net.clone());
            net.sleep(Duration::from_millis(50)).await;
        };
        let failure = failure(settings, test);
        assert_eq!(failure.kind, FailureKind::TaskLimit, "{failure}");
        assert!(failure.reason.replace("1000 ", "10000 ").starts_with(words), "{failure}");
        assert!(failure.reason.contains("raises `task_limit`"), "{failure}");
    }
    // The tasks that may run when the test ends do so.
    let failure = failure(Check::new(), async |net: Net| fork(net));
    assert_eq!(failure.kind, FailureKind::TaskLimit, "{failure}");
    assert!(failure.reason.starts_with(words), "{failure}");
}

/// Regression: it took 6 GB in twelve seconds.
#[test]
fn a_loop_that_spawns_without_waiting_is_named() {
    let failure = failure(Check::new(), async |net: Net| {
        loop {
            net.spawn(async {});
        }
    });
    assert_eq!(failure.kind, FailureKind::Panic, "{failure}");
    let words = "the simulation has more than 100000 tasks that have not ended: the last is the task spawned at \
                 tests/tests/check/limits.rs:";
    assert!(failure.reason.starts_with(words), "{failure}");
}

/// Catches bounds that are off by one, one of tasks that have ended, and settings that are ignored.
#[test]
fn a_run_may_take_as_much_as_its_limits() {
    let tasks = async |net: Net| {
        for _ in 0..5 {
            for _ in 0..30 {
                let net = net.clone();
                net.clone().spawn(async move { net.sleep(Duration::from_micros(1)).await });
            }
            net.sleep(Duration::from_micros(2)).await;
        }
    };
    let run = Sim::new().task_limit(30).run(tasks);
    assert_eq!(run.steps, 306, "each task has two, and the test one for each of its waits and one more");
    Sim::new().task_limit(30).step_limit(306).run(tasks);
    let stalled = Sim::new().step_limit(305).try_run(tasks).unwrap_err();
    let RunError::Stalled(Stalled::StepLimit { limit: 305, at, .. }) = stalled else { panic!("{stalled:?}") };
    assert_eq!(at.as_nanos(), 10_000);
    let two_at_once = async |net: Net| {
        for _ in 0..2 {
            net.sleep(Duration::from_micros(1)).await;
            let sleeping = net.clone();
            net.spawn(async move { sleeping.sleep(Duration::from_micros(9)).await });
        }
        net.sleep(Duration::from_micros(20)).await;
    };
    Sim::new().task_limit(2).run(two_at_once);
    let stalled = Sim::new().task_limit(1).try_run(two_at_once).unwrap_err();
    assert!(matches!(stalled, RunError::Stalled(Stalled::TaskLimit { limit: 1, .. })), "{stalled:?}");
    let plain = Check::new().runs(1).scheduler(Scheduler::Fifo);
    assert!(try_check(plain.task_limit(30).step_limit(306), tasks).is_ok());
}
