//! Readers of the output of `tb5 run` that stall or are slow

#![allow(unsafe_code, reason = "calls of libc")]

use std::fs::File;
use std::io::{BufRead as _, BufReader, PipeReader, PipeWriter, Read as _, Write as _, pipe};
use std::os::fd::AsRawFd as _;
use std::process::Stdio;
use std::thread::{scope, sleep};
use std::time::Duration;

use super::fixture::Run;
use crate::support::{Folder, assert_code, eventually, stderr, text};

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

/// A script for two hosts: `b` fills `stream`, and then `a` creates the file `failed` in `folder` and ends with exit code 3
fn failing(folder: &Folder, stream: &str) -> String {
    let folder = folder.path("");
    let folder = folder.display();
    format!(
        "if [ \"$RDMA_SIM_HOST\" = b ]; then : > {folder}/started; {{ {FILL}; }}{stream}; fi; \
         until [ -e {folder}/started ]; do sleep 0.01; done; : > {folder}/failed; exit 3"
    )
}

/// Catches a failed program that keeps the timeout from ending the wait for the reader, and a timeout that is told of twice.
#[test]
fn a_timeout_ends_a_run_with_a_failed_program_whose_reader_stalls() {
    let assert_ends = |options: &[&str], stream| {
        let folder = Folder::new();
        let script = failing(&folder, stream);
        // The program fails long before: it is the cause of the end.
        let mut run = Run::limited(
            "10s",
            [options, &["--hosts", "2", "--grace", "100ms", "--", "sh", "-c", &script]].concat(),
        );
        let mut child = run.start();
        eventually(|| child.has_ended());
        run.assert_nothing_is_left();
        let output = child.finish();
        assert_code(&output, 3);
        assert!(stderr(&output).matches("by --timeout").count() <= 1, "{}", stderr(&output));
    };
    scope(|scope| {
        for stream in ["", " >&2"] {
            scope.spawn(move || assert_ends(&[], stream));
            scope.spawn(move || assert_ends(&["--json"], stream));
        }
    });
}

/// Catches a failed program that keeps one signal from ending the wait for the reader.
#[test]
fn a_signal_ends_a_run_with_a_failed_program_whose_reader_stalls() {
    for options in [&[][..], &["--json"]] {
        for stream in ["", " >&2"] {
            let folder = Folder::new();
            let script = failing(&folder, stream);
            let mut run = Run::new(
                [options, &["--hosts", "2", "--grace", "100ms", "--", "sh", "-c", &script]].concat(),
            );
            let mut child = run.start();
            eventually(|| folder.path("failed").exists() && run.processes().is_empty());
            // Some more time, so that the tool waits for the reader on most machines: the test holds without.
            sleep(Duration::from_millis(300));
            child.signal(libc::SIGINT);
            eventually(|| child.has_ended());
            run.assert_nothing_is_left();
            assert_code(&child.finish(), 3);
        }
    }
}

/// A pipe of one page, full if `is_full`
fn small_pipe(is_full: bool) -> (PipeReader, PipeWriter) {
    let (reader, mut writer) = pipe().unwrap();
    // SAFETY: the call takes numbers only.
    let size = unsafe { libc::fcntl(writer.as_raw_fd(), libc::F_SETPIPE_SZ, 4096) };
    let size = usize::try_from(size).unwrap();
    if is_full {
        writer.write_all(&vec![b'.'; size]).unwrap();
    }
    (reader, writer)
}

/// Catches a wait for the reader of the summary that neither the timeout nor a signal ends.
#[test]
fn a_timeout_and_a_signal_end_a_run_whose_summary_is_not_read() {
    for (timeout, signal, code) in [("1s", None, 124), ("300s", Some(libc::SIGTERM), 143)] {
        let folder = Folder::new();
        let script = format!(": > {}/$RDMA_SIM_HOST", folder.path("").display());
        let (_reader, writer) = small_pipe(true);
        let mut run = Run::limited(timeout, ["--hosts", "2", "--", "sh", "-c", &script]);
        run.command.stderr(writer);
        let mut child = run.start();
        eventually(|| folder.entries() == ["a", "b"] && run.processes().is_empty());
        if let Some(signal) = signal {
            // Some more time, so that the tool waits for the reader on most machines.
            sleep(Duration::from_millis(300));
            child.signal(signal);
        }
        eventually(|| child.has_ended());
        run.assert_nothing_is_left();
        assert_code(&child.finish(), code);
    }
}

/// Catches a signal after the last program that drops the lines which the reader is about to read.
#[test]
fn a_reader_gets_the_last_lines_of_a_run_that_is_interrupted() {
    let folder = Folder::new();
    let script = format!("seq 2000; : > {}/$RDMA_SIM_HOST", folder.path("").display());
    let (mut reader, writer) = small_pipe(false);
    let mut run = Run::shell("2", &script);
    run.command.stdout(writer);
    let child = run.start();
    // The command holds the other end of the pipe.
    run.command.stdout(Stdio::null());
    eventually(|| folder.entries() == ["a", "b"] && run.processes().is_empty());
    // Some more time, so that the tool waits for the reader on most machines: the test holds without.
    sleep(Duration::from_millis(300));
    child.signal(libc::SIGINT);
    let mut out = Vec::new();
    reader.read_to_end(&mut out).unwrap();
    assert_code(&child.finish(), 130);
    assert_eq!(text(&out).lines().count(), 4000);
}

/// Catches an output that cannot be written and is recorded after the message about it, for which there is no reader.
#[test]
fn an_output_that_cannot_be_written_ends_a_run_whose_messages_are_not_read() {
    let (_reader, writer) = small_pipe(true);
    let mut run = Run::limited("60s", ["--quiet", "--hosts", "2", "--", "echo", "text"]);
    run.command.stdout(File::options().write(true).open("/dev/full").unwrap()).stderr(writer);
    let mut child = run.start();
    eventually(|| child.has_ended());
    run.assert_nothing_is_left();
    assert_code(&child.finish(), 1);
}

/// Catches a stalled reader of the errors that holds up the output.
#[test]
fn a_stalled_reader_of_errors_does_not_hold_up_the_output() {
    let (_reader, writer) = small_pipe(true);
    // The second line comes when the first one of the errors waits for its reader.
    let script = "echo error >&2; sleep 0.3; echo text";
    let mut run =
        Run::limited("60s", ["--quiet", "--grace", "100ms", "--hosts", "2", "--", "sh", "-c", script]);
    run.command.stderr(writer);
    let mut child = run.start();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut found = [lines.next().unwrap().unwrap(), lines.next().unwrap().unwrap()];
    found.sort_unstable();
    assert_eq!(found, ["a | text", "b | text"]);
    child.signal(libc::SIGTERM);
    eventually(|| child.has_ended());
    run.assert_nothing_is_left();
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
