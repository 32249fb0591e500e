//! Limits of the system for the programs of `tb5 run`

#![allow(unsafe_code, reason = "a call of libc")]

use std::os::unix::process::CommandExt as _;

use super::fixture::{Run, lines_of};
use crate::support::assert_code;

/// Catches a tool that ignores SIGXFSZ, and with it the programs that it starts.
#[test]
fn programs_are_killed_at_the_limit_of_file_size_as_without_the_tool() {
    let mut run = Run::new(["--hosts", "2", "--", "grep", "^SigIgn:", "/proc/self/status"]);
    let reset = || {
        // The test may have been started where the signal is ignored.
        // SAFETY: the default action involves no function of this process.
        unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_DFL) };
        Ok(())
    };
    // SAFETY: the closure calls a function that is allowed between fork and exec, and touches no memory.
    unsafe { run.command.pre_exec(reset) };
    let output = run.output();
    assert_code(&output, 0);
    for host in ["a", "b"] {
        let lines = lines_of(&output.stdout, host);
        let ignored = u64::from_str_radix(lines[0].trim_start_matches("SigIgn:").trim(), 16).unwrap();
        assert_eq!(ignored >> (libc::SIGXFSZ - 1) & 1, 0, "{lines:?}");
    }
}
