//! `tb5 ping`

use std::io::Read as _;
use std::process::{Command, Stdio};

use crate::support::{Running, assert_code, json, keys, stderr, stdout, tool};

#[test]
fn the_report_has_stable_keys_and_the_overhead_over_bare_verbs_is_small() {
    let ping = |args: &[&str]| json(&tool().args(["ping", "--json"]).args(args).output().unwrap());
    let report = ping(&["--bytes", "64", "--count", "500", "--seed", "3"]);
    let promised =
        ["backend", "bare_rtt_ns", "count", "rtt_ns", "seed", "size_bytes", "trace_digest", "wall_seconds"];
    assert_eq!(keys(&report), promised);
    assert_eq!(report["backend"], "simulator");
    let rtt = |key: &str| report["rtt_ns"][key].as_u64().unwrap();
    let bare = report["bare_rtt_ns"].as_u64().unwrap();
    assert!(rtt("min") <= rtt("p50") && rtt("p50") <= rtt("p99") && rtt("p99") <= rtt("max"));
    assert!(rtt("p50") as f64 <= 1.05 * bare as f64, "{} over {bare}", rtt("p50"));

    let eight = ping(&["--bytes", "8", "--count", "100"]);
    let bare = eight["bare_rtt_ns"].as_u64().unwrap();
    assert!((10_000..=13_000).contains(&bare), "8 bytes take 10 to 13 µs: {bare}");
    assert_eq!(ping(&["--seed", "3"])["trace_digest"], ping(&["--seed", "3"])["trace_digest"]);
    assert_eq!(ping(&["--bytes", "0", "--count", "1"])["size_bytes"], 0);
}

/// Catches a measurement or a baseline that posts longer messages than the device carries.
#[test]
fn every_length_is_measured_on_a_device_with_messages_of_one_frame() {
    for command in [
        &["ping", "--count", "10"][..],
        &["ping", "--count", "10", "--bytes", "4MiB"],
        &["bw", "--bytes", "4KiB..1MiB"],
        &["bench", "all-reduce", "--bytes", "4KiB..256KiB"],
    ] {
        let output = tool().args(command).args(["--profile", "tb5-macos-26.2"]).output().unwrap();
        assert_code(&output, 0);
    }
}

#[test]
fn text_begins_with_the_backend_and_has_no_control_characters() {
    let text = stdout(&tb5!["ping", "--count", "10"]);
    assert!(text.starts_with("backend: simulator"), "{text}");
    assert!(text.ends_with('\n') && !text.contains('\u{1b}'), "{text:?}");
}

#[test]
fn a_reader_that_closes_the_pipe_is_not_a_failure() {
    let mut ping = Running::start(tool().args(["ping", "--count", "10"]).stdout(Stdio::piped()));
    drop(ping.stdout.take());
    assert_code(&ping.finish(), 0);
}

/// Catches a command that ends without a word, or with the code of another signal.
#[test]
fn a_signal_ends_a_simulation_with_a_word() {
    for command in [
        &["ping", "--count", "10000000"][..],
        &["bw", "--bytes", "1..16MiB"],
        &["sim", "check", SCENARIO, "--runs", "1000000"],
    ] {
        for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
            let mut command = tool_with(command);
            let mut running = Running::start(command.stdout(Stdio::piped()).stderr(Stdio::piped()));
            // The first line says that the command is under way.
            running.stdout.as_mut().unwrap().read_exact(&mut [0; 8]).unwrap();
            running.signal(signal);
            let ended = running.finish();
            assert_code(&ended, 128 + signal);
            assert_eq!(stderr(&ended), "tb5: interrupted\n");
        }
    }
}

const SCENARIO: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../rdma-sim/scenarios/one-lost-message.toml");

fn tool_with(arguments: &[&str]) -> Command {
    let mut command = tool();
    command.args(arguments);
    command
}
