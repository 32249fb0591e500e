//! What a test leaves behind when it ends: objects, and tasks

use std::future::pending;
use std::time::Duration;

use rdma_sim::{Check, FailureKind, Net, check, try_check};
use rdma_tests::{connected, options};

#[test]
fn leaked_objects_fail_the_check() {
    let leaky = async |net: Net| std::mem::forget(net.open("a", "rdma_en2").unwrap());
    let failure = try_check(Check::new().runs(1), leaky).unwrap_err();
    assert!(
        failure.reason.starts_with("objects were left behind: 1 protection domain; drop or close"),
        "{failure}"
    );
    assert_eq!(failure.kind, FailureKind::Leak);
}

/// Spawns two tasks that wait for ever, one that ends later than the test, and two of hosts
async fn leaves_tasks(net: Net) {
    for _ in 0..2 {
        net.spawn(pending());
    }
    let later = net.clone();
    net.spawn(async move { later.sleep(Duration::from_secs(3)).await });
    net.host("a").spawn(pending());
    net.host("b").start(|_| pending());
    net.sleep(Duration::from_millis(1)).await;
}

/// Catches tasks that count once for a run, however many of them a line has spawned.
#[test]
fn a_report_lists_the_tasks_that_are_left() {
    let report = try_check(Check::new().runs(9).allow_leaked_tasks(), leaves_tasks).unwrap();
    let tasks: Vec<_> = report.tasks.iter().map(|(task, count)| (&**task, count.held, count.runs)).collect();
    assert_eq!(tasks.len(), 4, "{tasks:?}");
    for (task, held, runs) in &tasks {
        assert!(task.starts_with("the task spawned at tests/tests/check/leaks.rs:"), "{task}");
        assert_eq!((*held % 10, *runs), (0, 10), "{task}");
    }
    let held: Vec<_> = tasks.iter().map(|(_, held, _)| *held).collect();
    assert_eq!(held.iter().sum::<u64>(), 50, "two of one line in each of ten runs: {tasks:?}");
    let on =
        |host: &str| tasks.iter().filter(|(task, ..)| task.ends_with(&format!(" on host {host}"))).count();
    assert_eq!((on("a"), on("b")), (1, 1));
    let table = format!("{report:#}");
    assert!(table.contains(" at the end, the task spawned at tests/tests/check/leaks.rs:"), "{table}");
}

/// Catches tasks of hosts that count as leaked, and a check that lets tasks be left without being told so.
#[test]
fn a_leaked_task_is_a_failure_with_a_remedy() {
    let failure = try_check(Check::new().name("t").runs(9), leaves_tasks).unwrap_err();
    assert_eq!(failure.kind, FailureKind::LeakedTask);
    let lines: Vec<_> = failure.reason.lines().collect();
    assert_eq!(lines.len(), 5, "two tasks for ever, one for a while, none of hosts: {failure}");
    assert_eq!(lines[0], "tasks outside of all hosts still wait when the test has ended:");
    assert!(lines[1].ends_with(" waits for nothing that the simulation knows"), "{failure}");
    assert!(lines[3].ends_with(" waits for its timer in 2.999 s"), "{failure}");
    assert!(
        lines[4].contains("`SimHost::spawn`") && lines[4].contains("`Check::allow_leaked_tasks`"),
        "{failure}"
    );
    assert!(failure.to_string().contains("RDMA_SIM_REPLAY='2 test=t "), "{failure}");
    let again = try_check(Check::new().replay(failure.replay.clone()), leaves_tasks);
    assert_eq!(again.unwrap_err().kind, FailureKind::LeakedTask);
}

/// Catches tasks that count although they only wait for their turn, one after another, and those of the library.
#[test]
fn tasks_that_end_with_the_test_are_not_leaked() {
    check(Check::new().runs(60), async |net: Net| {
        let (first, second) = (tokio::sync::oneshot::channel::<()>(), tokio::sync::oneshot::channel::<()>());
        net.spawn(async move {
            let _second = second.0;
            let _ = first.1.await;
        });
        net.spawn(async move {
            let _ = second.1.await;
        });
        let pair = connected(&net, &options()).await;
        pair.ab.send_bytes(b"the end").await.unwrap();
        // Dropping the sender wakes the first task, and its end the second.
        drop(first.0);
    });
}

/// Regression: tasks that never stop to be ready were not seen.
///
/// Catches a list of what is left without the tasks that are ready after all polls.
#[test]
fn a_task_that_spins_when_the_test_ends_is_leaked() {
    let failure = try_check(Check::new().runs(1), async |net: Net| {
        net.spawn(async {
            loop {
                tokio::task::yield_now().await;
            }
        });
    });
    assert_eq!(failure.unwrap_err().kind, FailureKind::LeakedTask);
}
