//! Tests that end their process: run as a process of their own

use std::process::{Command, Output};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rdma_sim::{Check, Net, RandomFaults, check, try_check};

/// Runs the test `name` of this binary alone, as a process
fn run(name: &str) -> (Output, String) {
    run_with(name, &[])
}

/// The same with environment variables
fn run_with(name: &str, variables: &[(&str, &str)]) -> (Output, String) {
    let program = std::env::current_exe().unwrap();
    let mut command = Command::new(program);
    command.args([name, "--exact", "--ignored", "--nocapture"]).envs(variables.iter().copied());
    let output = command.output().unwrap();
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
    check(Check::new().runs(1), async |net| {
        let _bomb = Bomb;
        assert_eq!(net.now().as_nanos(), 1, "first");
    });
}

#[test]
fn a_panic_in_a_destructor_prints_both_panics_and_the_replay_line() {
    let (output, text) = run("blocked::panics_twice");
    assert!(!output.status.success());
    assert!(text.contains("a destructor panicked while the test was unwinding from a panic"), "{text}");
    assert!(text.contains("RDMA_SIM_REPLAY='2 test=blocked::panics_twice setup="), "{text}");
    // Regression: neither message was printed. Catches a hook that keeps the last panic only.
    let (_, text) =
        text.split_once("The panic before it: assertion `left == right` failed: first").expect(&text);
    let (site, text) = text
        .split_once("The panic of the destructor: dropped\nat tests/tests/check/blocked.rs:")
        .expect(text);
    assert!(site.contains("\nat tests/tests/check/blocked.rs:"), "{site}");
    assert!(text.contains("To repeat it:"), "{text}");
}

#[test]
#[ignore = "it ends its process; another test starts it"]
fn panics_and_leaves_a_task_that_panics_twice() {
    check(Check::new().runs(1), async |net: Net| {
        net.spawn(async {
            let _bombs = (Bomb, Bomb);
            std::future::pending::<()>().await;
        });
        net.sleep(Duration::from_micros(1)).await;
        panic!("first");
    });
}

/// Catches panics of destructors that take the place of the one before them.
#[test]
fn a_task_that_panics_twice_when_it_is_dropped_hides_no_panic_before() {
    let (output, text) = run("blocked::panics_and_leaves_a_task_that_panics_twice");
    assert!(!output.status.success());
    let panics = [
        "The panic before it: first",
        "The panic before it: dropped",
        "The panic of the destructor: dropped",
    ];
    let found = panics.map(|panic| text.find(panic).expect(&text));
    assert!(found.is_sorted() && text.contains("To repeat it:"), "{text}");
}

struct Bomb;

impl Drop for Bomb {
    fn drop(&mut self) {
        panic!("dropped");
    }
}

/// The body fails in one of the orders of three tasks
fn in_one_order(fail: impl Fn() + Sync) {
    let settings = Check::new().exhaustive().patience(Duration::from_millis(300));
    check(settings, async |net: Net| {
        let order = Arc::new(Mutex::new(Vec::new()));
        for task in 0..3 {
            let order = Arc::clone(&order);
            net.spawn(async move { order.lock().unwrap().push(task) });
        }
        net.sleep(Duration::from_micros(1)).await;
        if *order.lock().unwrap() == [2, 0, 1] {
            fail();
        }
    });
}

#[test]
#[ignore = "it ends its process; another test starts it"]
fn sleeps_in_one_order() {
    in_one_order(|| std::thread::sleep(Duration::from_secs(60)));
}

#[test]
#[ignore = "it ends its process; another test starts it"]
fn panics_twice_in_one_order() {
    in_one_order(|| {
        let _bomb = Bomb;
        panic!("first");
    });
}

/// Regression: the line of an exhaustive check had no choices if the run ended the process, and repeated the first order.
#[test]
fn the_line_of_a_run_of_an_exhaustive_check_that_ends_the_process_has_its_order() {
    for (name, words) in [
        ("blocked::sleeps_in_one_order", "has kept its thread for 300 ms"),
        ("blocked::panics_twice_in_one_order", "The panic of the destructor: dropped"),
    ] {
        let (_, text) = run(name);
        assert!(text.contains(words), "{text}");
        let line =
            text.split_once("RDMA_SIM_REPLAY='").and_then(|(_, rest)| rest.split_once('\'')).expect(&text);
        let (_, repeated) = run_with(name, &[("RDMA_SIM_REPLAY", line.0)]);
        assert!(repeated.contains(words), "{}\n{repeated}", line.0);
    }
}

#[test]
#[ignore = "it ends its process; another test starts it"]
fn panics_under_a_hook_that_aborts() {
    // As libFuzzer does.
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        hook(info);
        std::process::abort();
    }));
    let settings = Check::new().random_faults(RandomFaults::up_to(3));
    let run = settings.from_bytes(b"the bytes of a fuzzer");
    check(settings.replay(run), async |net| assert_eq!(net.now().as_nanos(), 1, "a bug"));
}

/// Regression: the process ended before the line was printed, so that a crash of a fuzz target had no line.
#[test]
fn a_panic_under_a_hook_that_aborts_prints_its_replay_line() {
    let (output, text) = run("blocked::panics_under_a_hook_that_aborts");
    assert!(
        !output.status.success() && output.status.code() != Some(101),
        "the hook ends the process: {text}"
    );
    let settings = Check::new().random_faults(RandomFaults::up_to(3));
    let line = settings.from_bytes(b"the bytes of a fuzzer").line();
    let (_, rest) = text.split_once(&format!("To repeat it:\n\n{line}\n")).expect(&text);
    assert!(rest.contains("a bug"), "the message of the panic follows: {text}");
}

#[test]
#[ignore = "another test reads its output"]
fn has_one_order() {
    check(Check::new().exhaustive(), async |net: Net| {
        for host in ["a", "b"] {
            net.host(host).spawn(async {});
        }
        net.sleep(Duration::from_micros(1)).await;
    });
}

/// Regression: a check whose only order was tried printed nothing, as if it were a replay.
#[test]
fn an_exhaustive_check_with_one_order_prints_how_many_there_are() {
    let (output, text) = run("blocked::has_one_order");
    assert!(output.status.success(), "{text}");
    let printed = String::from_utf8_lossy(&output.stdout);
    assert!(printed.contains("blocked::has_one_order: 1 run, "), "{printed}");
    assert!(printed.contains("; 1 order, all of them, beside "), "{printed}");
}

#[test]
#[ignore = "another test reads its output"]
fn has_more_orders_than_runs() {
    check(Check::new().exhaustive().runs(4), async |net: Net| {
        for _ in 0..3 {
            net.spawn(async {});
        }
        net.sleep(Duration::from_micros(1)).await;
    });
}

/// Regression: `cargo test` held back that there are more orders, as all that tests print which pass.
#[test]
fn an_exhaustive_check_that_has_not_tried_all_orders_says_so() {
    let (output, text) = run("blocked::has_more_orders_than_runs");
    assert!(output.status.success(), "{text}");
    assert!(
        text.contains("blocked::has_more_orders_than_runs: 4 orders were tried, and there are more"),
        "{text}"
    );
}

#[test]
#[ignore = "another test starts it with an environment"]
fn passes() {
    check(Check::new().runs(3), async |_| ());
}

/// Regression: a line that passed said nothing, as if it had not been read.
#[test]
fn a_replay_that_passes_says_so() {
    let replayed = |line: &str| {
        let (output, text) = run_with("blocked::passes", &[("RDMA_SIM_REPLAY", line)]);
        assert!(output.status.success(), "{text}");
        text
    };
    let report = try_check(Check::new().runs(1), async |net| assert_eq!(net.seed(), None, "for its line"))
        .unwrap_err();
    let setup = format!("{:08x}", report.replay.setup.unwrap());
    let text = replayed(&format!("2 test=blocked::passes setup={setup} seed=7"));
    let said = "blocked::passes: the run of RDMA_SIM_REPLAY passed: the failure is repaired, or it is not deterministic";
    assert!(text.contains(said), "{text}");
    let text = replayed("2 seed=7");
    assert!(text.contains("the run of RDMA_SIM_REPLAY passed; the line does not say"), "{text}");
    let text = replayed("2 test=another seed=7");
    assert!(text.contains("is of the test another") && !text.contains("passed:"), "{text}");
    // Regression: a line of another version failed each test, also those that it is not of.
    let text = replayed("1 test=another seed=7");
    assert!(text.contains("is of the test another: blocked::passes tries its seeds as usual"), "{text}");
}

/// Regression: an empty variable, which a workflow sets that has no line, was a replay of version "".
#[test]
fn an_empty_variable_counts_as_unset_and_what_is_no_line_is_called_so() {
    let empty = ["RDMA_SIM_REPLAY", "RDMA_SIM_RUNS", "RDMA_SIM_SEED", "RDMA_SIM_THREADS", "RDMA_SIM_PAGE"];
    let (output, text) = run_with("blocked::passes", &empty.map(|name| (name, "")));
    assert!(output.status.success() && !text.contains("RDMA_SIM_REPLAY"), "{text}");
    let (output, text) = run_with("blocked::passes", &[("RDMA_SIM_REPLAY", "seed 7")]);
    assert_eq!(output.status.code(), Some(101), "{text}");
    assert!(
        text.contains("\"seed 7\" is no replay line") && text.contains("write `2 seed=NUMBER`"),
        "{text}"
    );
}

/// Regression: the check tried nothing, and passed.
#[test]
fn no_runs_are_refused() {
    let (output, text) = run_with("blocked::passes", &[("RDMA_SIM_RUNS", "0")]);
    assert_eq!(output.status.code(), Some(101), "{text}");
    assert!(text.contains("RDMA_SIM_RUNS=\"0\": write a whole number from 1 on, or unset it"), "{text}");
}
