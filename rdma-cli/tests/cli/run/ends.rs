//! The end of a run: exit codes, signals, a timeout, and a reader that is gone

use std::io::{BufRead as _, BufReader};

use serde_json::{Value, json as object};

use super::fixture::{Run, lines_of};
use crate::support::{Running, assert_code, eventually, json, stderr};
#[test]
fn the_exit_code_is_that_of_the_first_failure() {
    let table: [(&[&str], i32, &str); 4] = [
        (&["true"], 0, ""),
        (&["true", ":", "sh", "-c", "exit 7"], 7, "b failed with exit code 7"),
        (&["sh", "-c", "kill -9 $$", ":", "sleep", "1000"], 137, "a was killed by signal 9"),
        // The second one fails because it is asked to end.
        (&["sh", "-c", "exit 3", ":", "sh", "-c", "trap 'exit 4' TERM; sleep 1000 & wait"], 3, "a failed"),
    ];
    for (words, code, says) in table {
        let arguments = [&["--hosts", "2", "--grace", "1s", "--stagger", "0s", "--"], words].concat();
        let output = Run::new(arguments).output();
        assert_code(&output, code);
        assert!(stderr(&output).contains(says), "{}", stderr(&output));
    }
}

/// Regression: the report left out hosts if their programs were never started.
#[test]
fn a_host_whose_program_was_not_started_is_reported() {
    let words = [
        "--json",
        "--hosts",
        "3",
        "--stagger",
        "300s",
        "--grace",
        "0s",
        "--",
        "false",
        ":",
        "true",
        ":",
        "true",
    ];
    let output = Run::new(words).output();
    assert_code(&output, 1);
    let host = |name: &str, code: Value| object!({"host": name, "exit_code": code, "signal": null, "killed_by_fault": false, "opened_device": false});
    let expected = [host("a", 1.into()), host("b", Value::Null), host("c", Value::Null)];
    assert_eq!(json(&output)["hosts"], object!(expected));
}

#[test]
fn a_failure_kills_programs_that_ignore_sigterm_or_are_stopped() {
    for script in ["trap '' TERM; while :; do sleep 1; done", "kill -STOP $$; sleep 1000"] {
        let words =
            ["--hosts", "2", "--grace", "100ms", "--stagger", "0s", "--", "false", ":", "sh", "-c", script];
        assert_code(&Run::new(words).output(), 1);
    }
}

#[test]
fn other_programs_may_finish_within_the_grace_period() {
    let others =
        "while kill -0 $PPID && ! test -e \"$JACCL_IBV_DEVICES.go\"; do sleep 0.01; done; echo finished";
    let first = "touch \"$JACCL_IBV_DEVICES.go\"; exit 5";
    let options = ["--hosts", "2", "--grace", "200s", "--stagger", "0s", "--"];
    let output = Run::new([&options[..], &["sh", "-c", first, ":", "sh", "-c", others]].concat()).output();
    assert_code(&output, 5);
    assert_eq!(lines_of(&output.stdout, "b"), ["finished"]);
}

/// Three hosts, each with a child process, that run until they are ended
pub(super) fn endless() -> (Run, Running) {
    let mut run = Run::shell("3", "sleep 1000 & echo ready; wait");
    let mut child = run.start();
    let mut lines = BufReader::new(child.stdout.take().unwrap());
    for _ in 0..3 {
        let mut line = String::new();
        lines.read_line(&mut line).unwrap();
        assert!(line.ends_with("| ready\n"), "{line}");
    }
    child.stdout = Some(lines.into_inner());
    // A shell and a sleep for each host. A process shows its environment once its program is loaded.
    eventually(|| run.processes().len() >= 6);
    (run, child)
}

#[test]
fn sigint_sigterm_and_sighup_end_all_programs() {
    for (number, code) in [(libc::SIGINT, 130), (libc::SIGTERM, 143), (libc::SIGHUP, 129)] {
        let (run, child) = endless();
        child.signal(number);
        assert_code(&child.finish(), code);
        run.assert_nothing_is_left();
    }
}

#[test]
fn killing_the_tool_kills_all_programs() {
    let (run, child) = endless();
    child.signal(libc::SIGKILL);
    child.finish();
    run.assert_no_process_is_left();
    // The next command removes the files.
    assert_code(&tb5!["fabric"], 0);
    assert!(!run.directory().exists());
}

#[test]
fn a_second_signal_ends_the_run_without_the_grace_period() {
    let mut run = Run::new(["--grace", "1000s", "--", "sh", "-c", "trap '' TERM; while :; do sleep 1; done"]);
    let mut child = run.start();
    eventually(|| run.processes().len() >= 2);
    // Two signals that are pending at once are delivered as one.
    eventually(|| {
        child.signal(libc::SIGINT);
        child.has_ended()
    });
    assert_code(&child.finish(), 130);
    run.assert_no_process_is_left();
}

#[test]
fn a_reader_that_closes_the_pipe_ends_the_run() {
    let mut run = Run::shell("2", "while echo line; do sleep 0.01; done");
    let mut child = run.start();
    drop(child.stdout.take());
    assert_code(&child.finish(), 141);
    run.assert_nothing_is_left();
}

#[test]
fn a_run_ends_after_its_timeout() {
    let output = Run::limited("200ms", ["--json", "--hosts", "2", "--", "sleep", "1000"]).output();
    assert_code(&output, 124);
    assert_eq!(json(&output)["outcome"], "timed_out");
    assert!(stderr(&output).contains("ended after 0.200 s by --timeout"), "{}", stderr(&output));
}
