//! Verbs that hang or are slow, in programs that `tb5 run` has started

use std::io::{BufRead, BufReader};
use std::process::Command;

use serde_json::json;

use super::fixture::{Run, lines_of};
use crate::support::{assert_code, eventually, json, stderr, stdout};

/// Prints the name of the host again and again, as long as verbs return
const QUERIES: &str = r#"while :; do ibv_devinfo -d rdma_en2 > /dev/null && echo queried; done"#;

/// Lines in a row of the other host after which a host counts as stopped
const LINES: usize = 30;

/// Reads until host `b` alone has printed [`LINES`] lines, and returns how many lines of host `a` came before
fn lines_until_only_b(lines: &mut impl Iterator<Item = String>) -> usize {
    let (mut of_a, mut of_b) = (0, 0);
    while of_b < LINES {
        match lines.next().expect("host b goes on").as_str() {
            "a | queried" => (of_a, of_b) = (of_a + 1, 0),
            "b | queried" => of_b += 1,
            other => panic!("{other}"),
        }
    }
    of_a
}

/// The process of host `a` that runs `ibv_devinfo`
fn devinfo_of_a(run: &Run) -> Option<String> {
    let file =
        |process: &str, name: &str| std::fs::read(format!("/proc/{process}/{name}")).unwrap_or_default();
    let is_it = |process: &String| {
        file(process, "comm") == b"ibv_devinfo\n"
            && file(process, "environ")
                .split(|byte| *byte == 0)
                .any(|variable| variable == b"RDMA_SIM_HOST=a")
    };
    run.processes().into_iter().find(is_it)
}

/// Catches a fault of a fabric that runs but reaches no program, a verb that returns although it hangs, a `slow-verb` that ends a call which
/// hangs already or leaves later calls hanging, and processes that outlive Ctrl-C because they are in a verb.
#[test]
fn a_verb_hangs_from_a_fault_to_the_next_for_new_calls_and_for_good_for_the_one_that_hangs() {
    let mut run = Run::shell("2", QUERIES);
    let mut child = run.start();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
    assert!(lines.any(|line| line == "a | queried"));
    let hang = run.fabric(&["a:rdma_en2", "hang", "query_port"])["faults"][0].clone();
    lines_until_only_b(&mut lines);
    let hung = devinfo_of_a(&run).expect("the program is in the verb");
    run.fabric(&["a:rdma_en2", "slow-verb", "query_port=0ns"]);
    assert_eq!(lines_until_only_b(&mut lines), 0, "the call that hangs never returns");
    assert_eq!(devinfo_of_a(&run).as_ref(), Some(&hung));
    let killed = Command::new("sh").args(["-c", &format!("kill -KILL {hung}")]).status();
    assert!(killed.unwrap().success());
    assert!(lines.any(|line| line == "a | queried"), "calls of another process return");
    run.fabric(&["a:rdma_en2", "hang", "query_port"]);
    lines_until_only_b(&mut lines);
    assert!(devinfo_of_a(&run).is_some_and(|process| process != hung));
    child.signal(libc::SIGINT);
    // The tool ends once its output has been read.
    lines.for_each(drop);
    let output = child.finish();
    assert_code(&output, 130);
    let line = format!("tb5: fault {}", hang.as_str().unwrap());
    assert!(stderr(&output).lines().any(|other| other == line), "{line}: {}", stderr(&output));
    run.assert_nothing_is_left();
}

/// Catches a program in a verb that hangs which passes for one that has ended, and a summary without the fault that stopped it.
#[test]
fn the_report_of_an_interrupted_run_names_the_host_and_the_fault_of_a_verb_that_hangs() {
    let fault = "at 0s a:rdma_en2 hang open_device";
    let mut run =
        Run::new(["--json", "--hosts", "2", "--fault", fault, "--", "ibv_devinfo", "-d", "rdma_en2"]);
    let mut child = run.start();
    // With --json, the programs print to standard error.
    let mut printed = BufReader::new(child.stderr.take().unwrap()).lines().map(Result::unwrap);
    let mut lines: Vec<_> = printed.by_ref().take_while(|line| !line.starts_with("b | hca_id")).collect();
    eventually(|| run.processes().len() == 1 && devinfo_of_a(&run).is_some());
    child.signal(libc::SIGINT);
    lines.extend(printed);
    let output = child.finish();
    assert_code(&output, 130);
    let report = json(&output);
    assert_eq!(report["outcome"], "interrupted");
    let [a, b] = &report["hosts"].as_array().unwrap()[..] else { panic!("{report}") };
    assert_eq!((&a["exit_code"], &a["signal"]), (&json!(null), &json!(libc::SIGTERM)), "{report}");
    assert_eq!(b["exit_code"], 0, "{report}");
    assert_eq!(report["faults"], json!([{"fault": fault, "fired": true}]));
    assert!(lines.iter().all(|line| !line.starts_with("a | ")), "no device was open: {lines:?}");
    run.assert_nothing_is_left();
}

/// Catches a slow verb that returns at once, and one that fails: the cable is pulled while the verb is under way.
#[test]
fn a_slow_verb_takes_its_time() {
    let faults = "at 0s a:rdma_en2 slow-verb open_device=2s; at 1s a:rdma_en2 unplug";
    let output =
        Run::new(["--hosts", "2", "--fault", faults, "--", "ibv_devinfo", "-d", "rdma_en2"]).output();
    assert_code(&output, 0);
    assert!(
        lines_of(&output.stdout, "a").iter().any(|line| line.contains("PORT_DOWN")),
        "{}",
        stdout(&output)
    );
    for fault in faults.split("; ") {
        assert!(stderr(&output).contains(&format!("tb5: fault {fault}\n")), "{}", stderr(&output));
    }
}
