//! Tests that end their process: run as a process of their own

use std::process::{Command, Output};
use std::time::Duration;

use rdma_sim::{Check, Net, check};

/// Runs the test `name` of this binary alone, as a process
fn run(name: &str) -> (Output, String) {
    let program = std::env::current_exe().unwrap();
    let output = Command::new(program).args([name, "--exact", "--ignored", "--nocapture"]).output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    (output, text)
}

#[test]
#[ignore = "it ends its process; another test starts it"]
fn sleeps_in_its_thread() {
    let settings = Check::new().runs(3).patience(Duration::from_millis(300));
    check(settings, async |net: Net| {
        net.spawn(async { std::thread::sleep(Duration::from_secs(60)) });
        net.sleep(Duration::from_micros(1)).await;
    });
}

#[test]
fn a_task_that_keeps_its_thread_ends_the_check_with_its_name() {
    let (output, text) = run("blocked::sleeps_in_its_thread");
    assert_eq!(output.status.code(), Some(101), "{text}");
    let words = "blocked::sleeps_in_its_thread: the task spawned at tests/tests/check/blocked.rs:";
    assert!(text.contains(words), "{text}");
    assert!(text.contains(" has kept its thread for 300 ms without letting another task run"), "{text}");
    assert!(text.contains("RDMA_SIM_REPLAY='2 test=blocked::sleeps_in_its_thread setup="), "{text}");
}

#[test]
#[ignore = "it ends its process; another test starts it"]
fn panics_twice() {
    struct Bomb;
    impl Drop for Bomb {
        fn drop(&mut self) {
            panic!("dropped");
        }
    }
    check(Check::new().runs(1), async |net| {
        let _bomb = Bomb;
        assert_eq!(net.now().as_nanos(), 1, "first");
    });
}

#[test]
fn a_panic_in_a_destructor_prints_the_replay_line() {
    let (output, text) = run("blocked::panics_twice");
    assert!(!output.status.success());
    assert!(text.contains("a destructor panicked while the test was unwinding from a panic"), "{text}");
    assert!(text.contains("RDMA_SIM_REPLAY='2 test=blocked::panics_twice setup="), "{text}");
}
