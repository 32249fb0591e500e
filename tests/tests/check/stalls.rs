//! Tests that end without a result: what is said of them

use std::future::{pending, poll_fn};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;
use std::time::Duration;

use rdma_core::Time;
use rdma_sim::{Check, CheckFailure, FailureKind, Net, Outcome, Scheduler, check, try_check};
use rdma_tests::{connected, options};

fn failure<O: Outcome>(check: Check, test: impl AsyncFn(Net) -> O + Sync) -> Box<CheckFailure> {
    try_check(check, test).expect_err("the test fails")
}

fn plain() -> Check {
    Check::new().runs(1).name("t").scheduler(Scheduler::Fifo)
}

/// Regression: a body of type `!`, such as one that is not written yet, did not compile.
#[test]
fn a_body_may_never_return() {
    let failure = try_check(plain(), async |_| panic!("not written yet")).unwrap_err();
    assert!(failure.reason.starts_with("not written yet"), "{failure}");
}

#[test]
fn a_stall_says_which_task_waits_for_what() {
    let failure = failure(plain(), async |net: Net| {
        let paused = net.host("b");
        let runtime = paused.runtime();
        paused.spawn(async move { rdma_async::time::sleep(&*runtime, Duration::from_millis(2)).await });
        net.host("a").spawn(pending());
        net.inject("at 1ms b pause".parse().unwrap());
        let (mut one, _two) = net.tcp();
        let mut byte = [0];
        tokio::io::AsyncReadExt::read_exact(&mut one, &mut byte).await.unwrap();
    });
    assert_eq!(failure.kind, FailureKind::Stall);
    let lines: Vec<_> = failure.reason.lines().collect();
    assert_eq!(
        lines[0],
        "the simulation stalled after 2 ms: no event or timer is left that could wake a task"
    );
    assert_eq!(lines[1], "  main waits for bytes of a TCP stream");
    assert!(lines[2].starts_with("  the task spawned at tests/tests/check/stalls.rs:"), "{failure}");
    assert!(
        lines[2].ends_with(" on host b waits for its host to go on: a fault has stopped it"),
        "{failure}"
    );
    assert!(lines[3].ends_with(" on host a waits for nothing that the simulation knows"), "{failure}");
    assert!(lines[4].contains("a clock, a socket or a thread outside of the simulation"), "{failure}");
}

#[test]
fn a_lost_wake_up_is_called_one() {
    let failure = failure(plain(), async |net: Net| {
        let flag = Arc::new(AtomicBool::new(false));
        let set = Arc::clone(&flag);
        net.spawn(async move { set.store(true, Ordering::Relaxed) });
        // The waker is never called.
        poll_fn(|_| if flag.load(Ordering::Relaxed) { Poll::Ready(()) } else { Poll::Pending }).await;
    });
    assert!(
        failure.reason.contains("main waits for its turn, although it is ready: it was never woken"),
        "{failure}"
    );
}

#[test]
fn a_test_that_waits_for_the_library_says_for_what() {
    let limit = Time::ZERO + Duration::from_secs(20);
    let failure = failure(plain().time_limit(limit), async |net: Net| {
        let pair = connected(&net, &options()).await;
        pair.ab.recv().await.unwrap();
    });
    assert_eq!(failure.kind, FailureKind::TimeLimit);
    assert!(
        failure.reason.starts_with("the simulation reached its limit of 20 s of virtual time"),
        "{failure}"
    );
    assert!(failure.reason.contains("\n  main waits for a message of its peer\n"), "{failure}");
    assert!(
        failure
            .reason
            .contains("a task spawned by a library on host a waits for a completion at a:rdma_en2\n"),
        "{failure}"
    );
}

/// Regression: an hour of heartbeats went by, and nothing said what to do.
#[test]
fn a_test_that_waits_for_ever_over_a_session_is_found_after_ten_minutes() {
    let failure = failure(plain().shrink(false), async |net: Net| {
        let pair = connected(&net, &options()).await;
        pair.ab.recv().await.unwrap();
    });
    assert_eq!(failure.kind, FailureKind::TimeLimit);
    let text = &failure.reason;
    assert!(text.starts_with("the simulation reached its limit of 10.0 min of virtual time"), "{text}");
    assert!(text.contains("let it give up after a while (`rdma_async::time::timeout`)"), "{text}");
}

/// Regression: nothing was tried, and the check passed.
#[test]
#[should_panic(expected = "a check of 0 runs tests nothing; give `Check::runs` one at least")]
fn a_check_without_runs_is_refused() {
    check(plain().runs(0), async |_| ());
}

#[test]
fn a_task_that_spins_at_one_instant_is_named() {
    let failure = failure(plain(), async |net: Net| {
        net.sleep(Duration::from_micros(3)).await;
        net.spawn(poll_fn(|cx| {
            cx.waker().wake_by_ref();
            Poll::Pending
        }));
        net.sleep(Duration::from_micros(3)).await;
    });
    assert_eq!(failure.kind, FailureKind::Spin);
    let text = &failure.reason;
    assert!(
        text.starts_with("the simulation spins after 3 µs: the task spawned at tests/tests/check/stalls.rs:"),
        "{text}"
    );
    assert!(text.contains("was polled 1000001 times at one instant"), "{text}");
}

#[test]
fn an_error_of_the_test_is_its_reason() {
    let failure = failure(plain(), async |net: Net| {
        net.open("a", "rdma_en9")?;
        Ok::<(), Box<dyn std::error::Error>>(())
    });
    assert_eq!(failure.kind, FailureKind::Error);
    assert!(failure.reason.contains("rdma_en9"), "{failure}");
}

#[test]
fn a_test_that_uses_the_clock_of_tokio_fails_with_the_remedy() {
    let failure = failure(plain(), async |_| tokio::time::sleep(Duration::from_millis(1)).await);
    assert!(failure.reason.contains("there is no reactor running"), "{failure}");
    assert!(failure.reason.contains("uses tokio's tasks, clock or sockets"), "{failure}");
    let failure = self::failure(plain(), async |_| drop(tokio::spawn(async {})));
    assert!(failure.reason.contains("there is no reactor running"), "{failure}");
    assert!(failure.reason.contains("use `Net::spawn` (as `net.spawn(async { … })`)"), "{failure}");
    assert!(failure.reason.contains("`Net::sleep`"), "{failure}");
}

/// Under `#[tokio::test]` there is a reactor, so that tokio does not complain: its clock stands still while the check has the thread.
#[tokio::test]
async fn a_test_that_uses_the_clock_of_a_tokio_runtime_around_it_stalls_with_the_remedy() {
    let failure = failure(plain(), async |_| tokio::time::sleep(Duration::from_millis(1)).await);
    assert_eq!(failure.kind, FailureKind::Stall, "{failure}");
    let text = &failure.reason;
    assert!(text.contains("\n  main waits for nothing that the simulation knows"), "{text}");
    assert!(
        text.contains("A task that waits for a clock, a socket or a thread outside of the simulation"),
        "{text}"
    );
    assert!(text.contains("use the clock, the streams"), "{text}");
}

#[test]
fn a_panic_of_a_destructor_is_a_failure() {
    struct Bomb;
    impl Drop for Bomb {
        fn drop(&mut self) {
            panic!("dropped");
        }
    }
    let failure = failure(plain(), async |net: Net| {
        net.spawn(async {
            let _bomb = Bomb;
            pending::<()>().await;
        });
        net.sleep(Duration::from_micros(1)).await;
    });
    assert_eq!((failure.kind, &*failure.reason), (FailureKind::Panic, "dropped"));
    let site = failure.site.unwrap();
    assert!(site.starts_with("tests/tests/check/stalls.rs:"), "{site}");
}

#[test]
fn a_replay_of_another_setup_is_refused() {
    let ring = || Check::new().runs(1).topology(rdma_sim::Topology::ring(3, 4).unwrap());
    let failure = failure(ring(), async |net| assert_eq!(net.now().as_nanos(), 1, "it fails"));
    let other =
        std::panic::catch_unwind(|| try_check(Check::new().replay(failure.replay.clone()), async |_| ()));
    let text = *other.unwrap_err().downcast::<String>().unwrap();
    assert!(text.starts_with("the replay is of another topology or model ("), "{text}");
    assert!(try_check(ring().replay(failure.replay.clone()), async |_| ()).is_ok(), "the same one");
}

/// Regression: a poll that was late for its turn counted as progress, and the run went on for an hour of virtual time.
#[test]
fn a_task_that_spins_is_found_by_every_scheduler() {
    let spins = async |net: Net| {
        if net.seed() == Some(0) {
            net.sleep(Duration::from_micros(3)).await;
        }
        let mut is_done = false;
        while !is_done {
            tokio::task::yield_now().await;
            is_done = net.seed().is_none();
        }
    };
    for scheduler in [Scheduler::Random, Scheduler::Pct { depth: 3, steps: 100 }] {
        for seed in 1..9 {
            let line = format!("2 seed={seed} scheduler={scheduler}").parse().unwrap();
            let failure = try_check(Check::new().replay(line), spins).unwrap_err();
            assert_eq!(failure.kind, FailureKind::Spin, "{failure}");
        }
    }
}
