//! Readers of the output of `tb5 run` that stall or are slow

use std::io::Read as _;
use std::thread::sleep;
use std::time::Duration;

use super::fixture::Run;
use crate::support::{assert_code, eventually, text};

/// Fills the pipe of an output of any size
const FILL: &str = "while :; do echo 0123456789012345678901234567890123456789012345678901234567890123; done";

/// Catches a supervisor that writes its own lines itself, a summary without a limit, and an end that waits for relays.
#[test]
fn a_timeout_ends_a_run_whose_reader_stalls() {
    for options in [&[][..], &["--json"]] {
        for stream in ["", " >&2"] {
            let script = format!("{{ {FILL}; }}{stream}");
            let mut run = Run::limited(
                "1s",
                [options, &["--hosts", "2", "--grace", "100ms", "--", "sh", "-c", &script]].concat(),
            );
            let mut child = run.start();
            eventually(|| child.has_ended());
            run.assert_nothing_is_left();
            assert_code(&child.finish(), 124);
        }
    }
}

#[test]
fn a_signal_ends_a_run_whose_reader_stalls() {
    for stream in ["", " >&2"] {
        let mut run = Run::new([
            "--hosts",
            "2",
            "--grace",
            "100ms",
            "--",
            "sh",
            "-c",
            &format!("{{ {FILL}; }}{stream}"),
        ]);
        let mut child = run.start();
        eventually(|| run.processes().len() >= 2);
        // Some more time, so that the pipes are full on most machines: the test holds without.
        sleep(Duration::from_millis(300));
        child.signal(libc::SIGTERM);
        eventually(|| child.has_ended());
        run.assert_nothing_is_left();
        assert_code(&child.finish(), 143);
    }
}

/// Catches a tool that waits for two seconds after the last program, and drops the rest.
#[test]
fn a_slow_reader_gets_everything() {
    let script = "seq -f \"$RDMA_SIM_HOST %.0f\" 12000";
    let mut run = Run::shell("2", script);
    let mut child = run.start();
    // Pipes and buffers hold the rest of the lines: the programs have ended long before they are read.
    sleep(Duration::from_millis(3500));
    let mut out = Vec::new();
    child.stdout.take().unwrap().read_to_end(&mut out).unwrap();
    let output = child.finish();
    assert_code(&output, 0);
    let out = text(&out);
    for host in ["a", "b"] {
        let prefix = format!("{host} | {host} ");
        let numbers = out.lines().filter_map(|line| line.strip_prefix(&prefix));
        assert!(numbers.eq((1..=12_000).map(|number| number.to_string())), "lines of {host} are missing");
    }
}
