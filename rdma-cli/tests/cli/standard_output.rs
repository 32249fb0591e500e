//! Files that go to standard output: nothing else does then

use std::fs;
use std::path::Path;
use std::process::Output;

use crate::support::{Folder, assert_code, assert_failed, json, program, stderr, stdout, tool};

const SCENARIO: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../rdma-sim/scenarios/one-lost-message.toml");
const REPORT: &str =
    concat!(env!("CARGO_MANIFEST_DIR"), "/../rdma-doctor/tests/fixtures/composed/reports/left.json");
const LINE: &str = "2 seed=1 faults=at 5ms a:rdma_en2 lose 1";

/// Commands with a file at `-`, how the file begins and ends, and a word of the report
const COMMANDS: [(&[&str], &str, &str, &str); 8] = [
    (&["copy", SCENARIO, "-"], "name = ", "\n", "blake3"),
    (&["demo", "--out", "-"], "<!doctype html>", "</html>\n", "backend: simulator"),
    (&["sim", "trace", SCENARIO, "--html", "-"], "<!doctype html>", "</html>\n", "backend: simulator"),
    (&["sim", "trace", SCENARIO, "--chrome", "-"], "{", "}", "backend: simulator"),
    (&["sim", "replay", SCENARIO, LINE, "--html", "-"], "<!doctype html>", "</html>\n", "seeds passed"),
    (&["topo", "plan", "ring:3", "--out", "-"], "rdma-plan 1\n", "\n", "no plan is faster"),
    (
        &["calibrate", "--out", "-"],
        "# found on a device that was simulated, under profile tb5\nformat = 1",
        "\n",
        "measured",
    ),
    (&["doctor", "--record", "-"], "{", "}\n", "verdict"),
];

fn run(arguments: &[&str], more: &[&str], folder: &Folder) -> Output {
    tool().args(arguments).args(more).current_dir(folder.path("")).output().unwrap()
}

/// Catches a line of the report within the file, a report that is lost, and a second file beside `-`.
#[test]
fn a_file_at_standard_output_is_alone_there() {
    for (arguments, begin, end, word) in COMMANDS {
        let folder = Folder::new();
        let output = run(arguments, &[], &folder);
        // The doctor may find a failure on this machine.
        assert!(matches!(output.status.code(), Some(0 | 1)), "{arguments:?}: {}", stderr(&output));
        let file = stdout(&output);
        let is_file = file.to_lowercase().starts_with(begin) && file.trim_end().ends_with(end.trim_end());
        assert!(is_file && !file.contains("backend: simulator ("), "{arguments:?}: {file}");
        assert!(stderr(&output).contains(word), "{arguments:?}: {}", stderr(&output));
        assert_eq!(folder.entries(), [""; 0], "{arguments:?}");
        let quiet = run(arguments, &["-q"], &folder);
        assert!(stderr(&quiet).is_empty(), "{arguments:?}: {}", stderr(&quiet));
    }
}

/// Catches help that is lost without an error, and an error of the arguments that has the exit code of one.
#[cfg(target_os = "linux")]
#[test]
fn help_that_cannot_be_written_is_an_error() {
    let full = || std::fs::File::options().write(true).open("/dev/full").unwrap();
    for arguments in [&["--help"][..], &["--version"], &["help", "copy"], &["copy", "-h"]] {
        let output = tool().args(arguments).stdout(full()).output().unwrap();
        assert_failed(&output, 1, &["standard output: cannot be written: No space left on device"]);
    }
    assert_code(&tool().arg("--unknown").stderr(full()).output().unwrap(), 2);
}

/// Catches JSON that is mixed with a file, and two files that are.
/// Regression: Rust opens /dev/null in the place of a closed descriptor: an empty file replaced the destination, and output was lost.
#[test]
fn a_closed_standard_input_or_output_is_an_error() {
    let folder = Folder::new();
    folder.write("file", b"data");
    for (script, why) in [
        ("copy - file <&-", "standard input: cannot be read: Bad file descriptor"),
        ("topo draw - <&-", "standard input: cannot be read: Bad file descriptor"),
        ("topo draw ring:3 >&-", "standard output: cannot be written: Bad file descriptor"),
        ("help copy >&-", "standard output: cannot be written: Bad file descriptor"),
        ("--version >&-", "standard output: cannot be written: Bad file descriptor"),
        ("copy file - >&-", "standard output: cannot be written: Bad file descriptor"),
        ("ping --count 1 --json >&-", "standard output: cannot be written: Bad file descriptor"),
    ] {
        let script = format!("'{}' {script}", env!("CARGO_BIN_EXE_tb5"));
        let output = program("sh").args(["-c", &script]).current_dir(folder.path("")).output().unwrap();
        assert_failed(&output, 1, &[why]);
    }
    assert_eq!(fs::read(folder.path("file")).unwrap(), b"data");
}

#[test]
fn standard_output_takes_one_thing() {
    let folder = Folder::new();
    for (arguments, ..) in COMMANDS {
        let refused = run(arguments, &["--json"], &folder);
        assert_failed(&refused, 2, &["standard output is for the file: leave --json out, or name a file"]);
        assert!(refused.stdout.is_empty(), "{arguments:?}");
    }
    let both = run(&["sim", "trace", SCENARIO, "--html", "-", "--chrome", "-"], &[], &folder);
    assert_failed(&both, 2, &["standard output takes one file: name the others"]);
}

/// Catches an option that JSON makes useless, and a file that is missing beside it.
#[test]
fn json_stands_beside_a_file_with_a_name() {
    let folder = Folder::new();
    for (command, file) in [("topo draw ring:3", "ring.txt"), ("topo convert ring:3", "ring.toml")] {
        let arguments: Vec<_> = command.split_whitespace().collect();
        let alone = json(&run(&arguments, &["--json"], &folder));
        let beside = json(&run(&arguments, &["--json", "--out", file], &folder));
        assert_eq!(alone, beside);
        let text = alone.get("drawing").or_else(|| alone.get("text")).unwrap().as_str().unwrap();
        assert_eq!(std::fs::read_to_string(folder.path(file)).unwrap(), text);
    }
}

/// Catches what shells and `man` read that differs in JSON.
#[test]
fn json_holds_the_text_of_completions_and_of_the_manual() {
    let folder = Folder::new();
    for arguments in [&["completions", "zsh"][..], &["man"]] {
        let object = json(&run(arguments, &["--json"], &folder));
        assert_eq!(object["text"].as_str().unwrap(), stdout(&run(arguments, &[], &folder)));
    }
    let files = json(&run(&["man", "--out", "pages"], &["--json"], &folder));
    let files: Vec<_> =
        files["files"].as_array().unwrap().iter().map(|file| file.as_str().unwrap()).collect();
    assert!(files.len() > 20 && files.iter().all(|file| folder.path(file).exists()), "{files:?}");
    // A page at `-` is the manual.
    assert_eq!(stdout(&run(&["man", "--out", "-"], &[], &folder)), stdout(&run(&["man"], &[], &folder)));
    assert!(!folder.path("-").exists());
}

/// Catches a command that reads files, but not those of a pipe.
#[test]
fn files_are_read_from_standard_input() {
    let table = [
        (&["sim", "run", "-"][..], SCENARIO),
        (&["sim", "trace", "-"], SCENARIO),
        (&["devices", "--from", "-"], REPORT),
    ];
    for (arguments, path) in table {
        let input = std::fs::File::open(Path::new(path)).unwrap();
        let output = tool().args(arguments).stdin(input).output().unwrap();
        assert_code(&output, 0);
    }
}
