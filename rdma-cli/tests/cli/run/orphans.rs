//! Programs of `tb5 run` that start daemons

use super::fixture::Run;
use crate::support::{assert_code, eventually, program, stdout};

/// Catches a process that has left its group and its parent, and lives on after the run.
#[test]
fn daemons_end_with_the_run() {
    let daemon = "setsid sh -c 'sleep 300 & sleep 300' &";
    let run = Run::shell("2", &format!("{daemon} sleep 0.1"));
    assert_code(&run.output(), 0);

    let hangs = format!("{daemon} sleep 300");
    let run = Run::limited("500ms", ["--grace", "100ms", "--hosts", "2", "--", "sh", "-c", &hangs]);
    assert_code(&run.output(), 124);

    let mut run = Run::new(["--grace", "100ms", "--hosts", "2", "--", "sh", "-c", &hangs]);
    let mut child = run.start();
    // Of each host: the shell and its sleep, and the three of the daemon.
    eventually(|| run.processes().len() >= 10);
    child.signal(libc::SIGTERM);
    eventually(|| child.has_ended());
    run.assert_nothing_is_left();
    assert_code(&child.finish(), 143);
}

/// Catches the end of a job that a script has started before it became the tool.
#[test]
fn jobs_of_a_script_do_not_end_with_the_run() {
    let script = "sleep 300 > /dev/null 2>&1 & echo $!; exec \"$0\" --quiet run --hosts 2 -- true";
    let output = program("sh").args(["-c", script, env!("CARGO_BIN_EXE_tb5")]).output().unwrap();
    assert_code(&output, 0);
    let job = stdout(&output).lines().next().unwrap().to_owned();
    assert!(program("kill").arg(&job).status().unwrap().success(), "{job} has ended");
}

/// Catches orphans that have ended and are not reaped: their process group would exist until the grace period is over.
#[test]
fn a_run_does_not_wait_for_orphans_that_have_ended() {
    // The child outlives its parent, and ends by itself or by the SIGTERM of the run.
    let mut run = Run::new(["--grace", "1h", "--hosts", "2", "--", "sh", "-c", "sleep 0.2 & exit 0"]);
    let mut child = run.start();
    eventually(|| child.has_ended());
    assert_code(&child.finish(), 0);
    run.assert_nothing_is_left();

    let mut run = Run::new(["--grace", "1h", "--hosts", "2", "--", "sh", "-c", "sleep 300; true"]);
    let mut child = run.start();
    // Of each host: the shell and its sleep.
    eventually(|| run.processes().len() >= 4);
    child.signal(libc::SIGTERM);
    eventually(|| child.has_ended());
    assert_code(&child.finish(), 143);
    run.assert_nothing_is_left();
}
