//! Signals while this machine is inspected: Linux says which processes a process has started

use std::fs;
use std::process::Stdio;

use crate::support::{Folder, Running, assert_code, eventually, stdout, tool};

/// Regression: Ctrl-C did nothing while a driver hung, and the process that had asked the driver stayed.
#[test]
fn a_signal_ends_the_inspection_of_a_provider_that_hangs() {
    for (words, code) in
        [(&["doctor"][..], 143), (&["serve"], 0), (&["ping", "127.0.0.1:"], 143), (&["demo"], 143)]
    {
        let folder = Folder::new();
        let mut command = tool();
        command.args(words).env("RDMA_PROVIDER", folder.pipe("pipe")).current_dir(folder.path(""));
        let running = Running::start(command.stdout(Stdio::piped()).stderr(Stdio::piped()));
        let children = format!("/proc/{0}/task", running.id());
        let child = || {
            let threads = fs::read_dir(&children).ok()?.flatten();
            let mut children =
                threads.filter_map(|thread| fs::read_to_string(thread.path().join("children")).ok());
            children.find_map(|list| list.split_whitespace().next().map(str::to_owned))
        };
        // The first ones may be other tools of the system, which end.
        let hangs = |child: &str| {
            let name = fs::read(format!("/proc/{child}/cmdline")).unwrap_or_default();
            name.windows(8).any(|part| part == b"provider")
        };
        eventually(|| child().is_some_and(|child| hangs(&child)));
        let child = child().unwrap();
        running.signal(libc::SIGTERM);
        let output = running.finish();
        assert_code(&output, code);
        assert!(!stdout(&output).contains("listening"), "{words:?} went on: {}", stdout(&output));
        eventually(|| !hangs(&child));
    }
}

/// Regression: the process that asks the driver took for its parent the process that it belonged to when it first looked. If `tb5` had ended
/// before, it stayed for ever.
#[test]
fn the_process_that_asks_a_driver_ends_if_its_parent_has_ended_before() {
    let folder = Folder::new();
    let mut command = tool();
    // Process 1 is not the parent of a process that a test starts.
    command.args(["provider", "--parent", "1"]).env("RDMA_PROVIDER", folder.pipe("pipe"));
    let asking = Running::start(command.stdout(Stdio::piped()).stderr(Stdio::piped()));
    assert_code(&asking.finish(), 1);
}
