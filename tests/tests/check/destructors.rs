//! Destructors that panic: beside another failure, and those of the payloads of panics

use std::future::{pending, poll_fn};
use std::panic::panic_any;
use std::task::Poll;
use std::time::Duration;

use rdma_sim::{Check, CheckFailure, FailureKind, FaultPlan, Net, Outcome, Scheduler, try_check};

/// Panics with its text when it is dropped
struct Bomb(&'static str);

impl Drop for Bomb {
    fn drop(&mut self) {
        panic!("{}", self.0);
    }
}

/// Spawns a task that is left when the test ends, and panics then
fn spawn_bomb(net: &Net, text: &'static str) {
    net.spawn(async move {
        let _bomb = Bomb(text);
        pending::<()>().await;
    });
}

/// Fails, and again when its line is repeated
fn failure<O: Outcome>(check: Check, test: impl AsyncFn(Net) -> O + Sync) -> Box<CheckFailure> {
    let failure = try_check(check.clone(), &test).expect_err("the test fails");
    assert!(failure.is_deterministic, "{failure}");
    let line = failure.replay.line().parse().unwrap();
    let again = try_check(check.replay(line), test).expect_err("it fails again");
    assert_eq!((again.kind, &again.reason), (failure.kind, &failure.reason));
    failure
}

fn plain() -> Check {
    Check::new().runs(1).name("t").scheduler(Scheduler::Fifo)
}

/// The failure was `reason`, and a panic with each of these texts followed
fn assert_followed(failure: &CheckFailure, kind: FailureKind, reason: &str, later: &[&str]) {
    assert_eq!((failure.kind, &failure.reason[..reason.len()]), (kind, reason), "{failure}");
    let text = failure.to_string();
    let followed: Vec<_> = text.split("\nA panic followed: ").skip(1).collect();
    assert_eq!(followed.len(), later.len(), "{text}");
    for (followed, later) in followed.iter().zip(later) {
        let site = followed.strip_prefix(later).expect(&text);
        assert!(site.starts_with("\nat tests/tests/check/destructors.rs:"), "{text}");
    }
}

/// Regression: the failure was that of the first destructor, and the error was seen nowhere; with a second such task, the process ended.
#[test]
fn an_error_of_the_test_is_the_failure_although_destructors_of_its_tasks_panic() {
    let failure = failure(plain(), async |net: Net| {
        spawn_bomb(&net, "one");
        spawn_bomb(&net, "two");
        net.sleep(Duration::from_micros(1)).await;
        Err::<(), _>("lost")
    });
    assert_followed(&failure, FailureKind::Error, "lost", &["one", "two"]);
    assert_eq!(failure.site, None);
}

/// Regression: the process ended. Catches a first panic whose place is that of a later one.
#[test]
fn a_panic_of_the_test_is_the_failure_although_destructors_of_its_tasks_panic() {
    let failure = failure(plain(), async |net: Net| {
        spawn_bomb(&net, "one");
        spawn_bomb(&net, "two");
        net.sleep(Duration::from_micros(1)).await;
        net.open("a", "rdma_en2").and_then(|_| net.open("a", "no port")).map(drop).expect("the cause");
    });
    assert_followed(&failure, FailureKind::Panic, "the cause: ", &["one", "two"]);
    let line = line!() - 3;
    assert!(failure.site.as_ref().unwrap().contains(&format!("destructors.rs:{line}:")), "{failure}");
}

/// Catches a failure whose text grows with the number of its tasks.
#[test]
fn few_of_the_panics_that_follow_are_printed() {
    let failure = failure(plain(), async |net: Net| {
        (0..30).for_each(|_| spawn_bomb(&net, "dropped"));
        net.sleep(Duration::from_micros(1)).await;
        Err::<(), _>("lost")
    });
    let text = failure.to_string();
    assert_eq!(text.matches("\nA panic followed: dropped\n").count(), 8, "{text}");
    assert!(text.contains("\nand 22 further panics\n"), "{text}");
}

/// Regression: the process ended. Catches a main task that is dropped beside the others, and not on its own.
#[test]
fn a_panic_of_a_task_is_the_failure_although_a_local_of_the_test_panics() {
    let failure = failure(plain(), async |net: Net| {
        let _bomb = Bomb("local");
        spawn_bomb(&net, "task");
        net.spawn(async { panic!("the cause") });
        pending::<()>().await;
    });
    assert_followed(&failure, FailureKind::Panic, "the cause", &["task", "local"]);
}

/// Regression: the failure was that of the destructor, and what the test waited for was seen nowhere.
#[test]
fn a_stall_is_the_failure_although_destructors_panic() {
    let failure = failure(plain(), async |net: Net| {
        let _bomb = Bomb("local");
        spawn_bomb(&net, "task");
        pending::<()>().await;
    });
    assert_followed(&failure, FailureKind::Stall, "the simulation stalled after 0 ns: ", &["task", "local"]);
    assert!(failure.reason.contains("\n  main waits for nothing that the simulation knows"), "{failure}");
}

/// Catches a smaller run that only the destructor fails, and a smaller run that is refused because its destructor does not panic.
#[test]
fn a_failure_shrinks_to_the_same_one_whatever_destructors_do() {
    let faults: FaultPlan =
        "at 1ms a:rdma_en2 slow 50%; at 2ms b:rdma_en2 slow 50%; at 3ms a:rdma_en2 unplug".parse().unwrap();
    let failure = failure(plain().faults(faults), async |net: Net| {
        net.sleep(Duration::from_millis(5)).await;
        let has_slow = net.faults().to_string().contains("b:rdma_en2 slow");
        spawn_bomb(&net, "always");
        if net.faults().to_string().contains("a:rdma_en2 slow") {
            spawn_bomb(&net, "with the first fault");
        }
        net.sleep(Duration::from_micros(1)).await;
        if has_slow { Err("lost") } else { Ok(()) }
    });
    assert_followed(&failure, FailureKind::Error, "lost", &["always"]);
    assert_eq!(failure.replay.faults.to_string(), "at 2ms b:rdma_en2 slow 50%");
}

/// A panic with this panics again when its payload is dropped, and so on
struct Endless;

impl Drop for Endless {
    fn drop(&mut self) {
        panic_any(Self);
    }
}

/// Regression: the panic of the payload left the check, without the line of the run. Catches payloads of payloads that are dropped.
#[test]
fn a_panic_whose_payload_panics_when_it_is_dropped_is_a_failure_with_its_line() {
    let in_test = async |_: Net| panic_any(Bomb("of the payload"));
    let failure = self::failure(plain(), in_test);
    assert_followed(&failure, FailureKind::Panic, "a panic without a text", &["of the payload"]);
    let line = line!() - 3;
    assert!(failure.site.as_ref().unwrap().contains(&format!("destructors.rs:{line}:")), "{failure}");
    assert!(failure.to_string().contains("\nRDMA_SIM_REPLAY='2 test=t setup="), "{failure}");

    let in_task = async |net: Net| {
        spawn_bomb(&net, "task");
        net.spawn(async { panic_any(Endless) });
        net.sleep(Duration::from_micros(1)).await;
    };
    let failure = self::failure(plain(), in_task);
    let followed = ["a panic without a text", "task"];
    assert_followed(&failure, FailureKind::Panic, "a panic without a text", &followed);
}

/// Regression: the panic of the payload left the check. The stall is asked what its tasks wait for, and one of them panics then.
#[test]
fn a_stall_is_the_failure_although_a_task_that_is_polled_once_more_panics() {
    let failure = failure(plain(), async |net: Net| {
        let mut polls = 0;
        net.spawn(poll_fn(move |_| {
            polls += 1;
            if polls > 1 {
                panic_any(Endless);
            }
            Poll::Pending
        }));
        pending::<()>().await;
    });
    assert_followed(&failure, FailureKind::Stall, "the simulation stalled after 0 ns: ", &[]);
}
