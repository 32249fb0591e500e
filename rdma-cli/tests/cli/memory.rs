//! A machine that lacks memory, as a limit of the address space makes it on Linux

use std::os::unix::process::ExitStatusExt as _;
use std::process::Output;

use crate::support::{assert_failed, program, stderr, stdout};

fn limited(kibibytes: u64, arguments: &str) -> Output {
    let script = format!("ulimit -v {kibibytes}; exec '{}' {arguments}", env!("CARGO_BIN_EXE_tb5"));
    program("sh").args(["-c", &script]).output().unwrap()
}

/// Asserts that the machine lacked memory, as an error of the tool, or where small allocations failed first, at which Rust programs abort
#[track_caller]
fn assert_lacked(output: &Output) {
    if output.status.signal() == Some(libc::SIGABRT) {
        assert!(stderr(output).contains("memory allocation of "), "{}", stderr(output));
    } else {
        assert_failed(output, 1, &["memory"]);
    }
}

/// Regression: `sim check` reported a run that lacked memory as a failure of the scenario, with a replay line that passed.
#[test]
fn a_lack_of_memory_is_no_failure_of_a_scenario() {
    let scenario = concat!(env!("CARGO_MANIFEST_DIR"), "/../rdma-sim/scenarios/one-lost-message.toml");
    let mut lacking = 0;
    for kibibytes in (200_000..=600_000).step_by(50_000) {
        for command in ["check --runs 5", "run --seeds 0..4"] {
            let output = limited(kibibytes, &format!("sim {command} '{scenario}'"));
            if !output.status.success() {
                lacking += 1;
                assert_lacked(&output);
                assert!(!stdout(&output).contains("FAILED"), "{kibibytes}: {}", stdout(&output));
            }
        }
    }
    assert!(lacking > 0, "no limit was reached");
}

/// Regression: the tool aborted, with a stack backtrace.
#[test]
fn vectors_that_do_not_fit_the_memory_are_an_error() {
    let output = limited(200_000, "bench all-reduce --bytes 1GiB");
    assert_failed(
        &output,
        1,
        &["vectors of 268435456 elements for each rank do not fit the memory of this machine"],
    );
    assert!(!stderr(&output).contains("backtrace"), "{}", stderr(&output));
}
