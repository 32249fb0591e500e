//! The tool as its users meet it: arguments, files, signals, output
#![cfg(unix)]

use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use proptest::prelude::*;
use serde_json::Value;
use tempfile::TempDir;

fn tb5() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tb5"));
    command.stdin(Stdio::null());
    command
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn json(output: &Output) -> Value {
    assert!(output.status.success(), "{}", stderr(output));
    serde_json::from_slice(&output.stdout).expect("one JSON object and nothing else")
}

fn noise(len: usize, salt: u64) -> Vec<u8> {
    let mut bytes = vec![0; len];
    blake3::Hasher::new_derive_key("tb5 tests").update(&salt.to_le_bytes()).finalize_xof().fill(&mut bytes);
    bytes
}

/// A folder with a file to copy
struct Desk {
    dir: TempDir,
}

impl Desk {
    fn new(content: &[u8]) -> Self {
        let desk = Self { dir: TempDir::new().unwrap() };
        fs::write(desk.src(), content).unwrap();
        desk
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn src(&self) -> PathBuf {
        self.path("source")
    }

    fn copy_to(&self, dst: &Path) -> Output {
        tb5().arg("copy").arg(self.src()).arg(dst).output().unwrap()
    }

    fn entries(&self) -> Vec<String> {
        let entries = fs::read_dir(self.dir.path()).unwrap();
        let mut names: Vec<_> = entries.map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }
}

/// Failed as promised: the exit code, the path in the message, nothing left behind
fn assert_refused(output: &Output, code: i32, path: &Path, why: &str) {
    let message = stderr(output);
    assert_eq!(output.status.code(), Some(code), "{message}");
    assert!(message.contains(path.to_str().unwrap()) && message.contains(why), "{message}");
    assert!(!message.contains("panicked"), "{message}");
}

fn copies(len: usize) {
    let content = noise(len, len as u64);
    let desk = Desk::new(&content);
    let report =
        json(&tb5().arg("copy").arg(desk.src()).arg(desk.path("copy")).arg("--json").output().unwrap());
    assert!(fs::read(desk.path("copy")).unwrap() == content, "{len} bytes");
    assert_eq!(report["bytes"], len);
    assert_eq!(report["blake3"], blake3::hash(&content).to_string());
    assert_eq!(desk.entries(), ["copy", "source"]);
}

#[test]
fn files_of_awkward_sizes_arrive_byte_for_byte() {
    for len in [0, 1, 4095, 4096, 4097, (1 << 20) - 1, 1 << 20, (1 << 20) + 1] {
        copies(len);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn files_of_any_size_arrive_byte_for_byte(len in 0usize..3 << 20) {
        copies(len);
    }
}

#[test]
fn copy_reports_what_it_promises() {
    let desk = Desk::new(&noise(100_000, 1));
    let copy = |seed: &str, dst: &str| {
        let mut command = tb5();
        command.args(["copy", "--json", "--seed", seed]).arg(desk.src()).arg(desk.path(dst));
        json(&command.output().unwrap())
    };
    let report = copy("7", "one");
    let keys: Vec<_> = report.as_object().unwrap().keys().map(String::as_str).collect();
    let promised = [
        "backend",
        "blake3",
        "bytes",
        "ceiling_bytes_per_second",
        "efficiency",
        "goodput_bytes_per_second",
        "seed",
        "trace_digest",
        "virtual_seconds",
        "wall_seconds",
    ];
    assert_eq!(keys, promised);
    assert_eq!(report["backend"], "sim");
    assert_eq!(report["seed"], 7);
    let number = |key: &str| report[key].as_f64().unwrap();
    assert!((number("goodput_bytes_per_second") - 100_000.0 / number("virtual_seconds")).abs() < 1.0);
    let efficiency = number("goodput_bytes_per_second") / number("ceiling_bytes_per_second");
    assert!((number("efficiency") - efficiency).abs() < 1e-9);

    // Two processes with one seed, and one with another.
    assert_eq!(copy("7", "two")["trace_digest"], report["trace_digest"]);
    assert_ne!(copy("8", "three")["trace_digest"], report["trace_digest"]);
}

/// 256 MiB: at least 97 % of the modelled ceiling, and less than 64 MiB of memory
#[test]
#[expect(clippy::zombie_processes, reason = "wait4 waits, and tells about memory, too")]
fn a_large_file_fills_the_cable_and_little_memory() {
    let desk = Desk::new(b"");
    // A hole: a child is charged for the memory of the process that started it, which must therefore be small.
    File::options().write(true).open(desk.src()).unwrap().set_len(256 << 20).unwrap();
    let child =
        tb5().args(["copy", "--json"]).arg(desk.src()).arg(desk.path("copy")).stdout(Stdio::piped()).spawn();
    let mut child = child.unwrap();
    let mut out = String::new();
    child.stdout.take().unwrap().read_to_string(&mut out).unwrap();
    let mut status = 0;
    // SAFETY: a plain structure of numbers, for which zero is valid.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: both pointers are to local variables; the child is ours and was not waited for.
    let pid = unsafe { libc::wait4(child.id() as i32, &raw mut status, 0, &raw mut usage) };
    assert_eq!((pid, status), (child.id() as i32, 0));

    let report: Value = serde_json::from_str(&out).unwrap();
    let efficiency = report["efficiency"].as_f64().unwrap();
    assert!((0.97..=1.0).contains(&efficiency), "{efficiency}");
    let peak_kib = usage.ru_maxrss / if cfg!(target_os = "macos") { 1024 } else { 1 };
    assert!(peak_kib < 64 << 10, "{peak_kib} KiB");
}

#[test]
fn ping_reports_what_it_promises_and_costs_little_over_bare_verbs() {
    let ping = |args: &[&str]| json(&tb5().args(["ping", "--json"]).args(args).output().unwrap());
    let report = ping(&["--size", "64", "--count", "500", "--seed", "3"]);
    let keys: Vec<_> = report.as_object().unwrap().keys().map(String::as_str).collect();
    let promised =
        ["backend", "count", "raw_rtt_ns", "rtt_ns", "seed", "size_bytes", "trace_digest", "wall_seconds"];
    assert_eq!(keys, promised);
    let rtt = |key: &str| report["rtt_ns"][key].as_u64().unwrap();
    let raw = report["raw_rtt_ns"].as_u64().unwrap();
    assert!(rtt("min") <= rtt("p50") && rtt("p50") <= rtt("p99") && rtt("p99") <= rtt("max"));
    assert!(rtt("p50") as f64 <= 1.05 * raw as f64, "{} over {raw}", rtt("p50"));

    let eight = ping(&["--size", "8", "--count", "100"]);
    let raw = eight["raw_rtt_ns"].as_u64().unwrap();
    assert!((10_000..=13_000).contains(&raw), "8 bytes take 10 to 13 µs: {raw}");
    assert_eq!(ping(&["--seed", "3"])["trace_digest"], ping(&["--seed", "3"])["trace_digest"]);
    assert_eq!(ping(&["--size", "0", "--count", "1"])["size_bytes"], 0);
}

#[test]
fn text_begins_with_the_backend_and_ends_on_its_own_line() {
    let output = tb5().args(["ping", "--count", "10"]).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.starts_with("backend: simulator"), "{text}");
    assert!(
        text.ends_with('\n') && !text.contains('\u{1b}'),
        "no control characters outside of a terminal: {text:?}"
    );
}

#[test]
fn what_cannot_be_meant_is_a_usage_error() {
    for args in [
        &["ping", "--count", "0"][..],
        &["ping", "--size", "99999999"],
        &["ping", "--size", "-1"],
        &["copy", "only-one"],
        &["copy", "a", "b", "--seed", "x"],
        &["fly"],
        &[],
    ] {
        let output = tb5().args(args).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{args:?}: {}", stderr(&output));
        assert!(output.stdout.is_empty() && !output.stderr.is_empty());
    }
}

#[test]
fn a_missing_source_is_named() {
    let desk = Desk::new(b"");
    fs::remove_file(desk.src()).unwrap();
    assert_refused(&desk.copy_to(&desk.path("copy")), 1, &desk.src(), "No such file");
    assert_eq!(desk.entries(), [""; 0]);
}

#[test]
fn directories_and_special_files_are_refused() {
    let desk = Desk::new(b"content");
    let folder = desk.path("folder");
    fs::create_dir(&folder).unwrap();
    assert_refused(&desk.copy_to(&folder), 1, &folder, "is a directory");
    let output = tb5().arg("copy").arg(&folder).arg(desk.path("copy")).output().unwrap();
    assert_refused(&output, 1, &folder, "is a directory");

    let pipe = desk.path("pipe");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    assert_refused(&desk.copy_to(&pipe), 1, &pipe, "not a regular file");
    let output = tb5().arg("copy").arg(&pipe).arg(desk.path("copy")).output().unwrap();
    assert_refused(&output, 1, &pipe, "not a regular file");

    let nowhere = desk.path("missing/copy");
    assert_refused(&desk.copy_to(&nowhere), 1, &nowhere, "No such file");
    let slash = desk.path("name/");
    assert_refused(&desk.copy_to(&slash), 1, &slash, "names no file");
    assert_eq!(desk.entries(), ["folder", "pipe", "source"]);
}

#[test]
fn source_and_destination_must_differ() {
    let desk = Desk::new(b"content");
    symlink(desk.src(), desk.path("symlink")).unwrap();
    fs::hard_link(desk.src(), desk.path("hardlink")).unwrap();
    for name in ["source", "symlink", "hardlink", "./source"] {
        let dst = desk.path(name);
        assert_refused(&desk.copy_to(&dst), 1, &dst, "the same file");
    }
    assert_eq!(fs::read(desk.src()).unwrap(), b"content");
    assert_eq!(desk.entries(), ["hardlink", "source", "symlink"]);
}

#[test]
fn an_existing_destination_is_replaced_at_once_or_not_at_all() {
    let desk = Desk::new(&noise(5000, 5));
    fs::write(desk.path("copy"), b"old and longer than nothing").unwrap();
    symlink("copy", desk.path("link")).unwrap();
    assert!(desk.copy_to(&desk.path("link")).status.success());
    assert_eq!(fs::read(desk.path("copy")).unwrap(), noise(5000, 5), "a link leads to what is replaced");
    assert!(fs::symlink_metadata(desk.path("link")).unwrap().is_symlink());
    assert_eq!(desk.entries(), ["copy", "link", "source"]);
}

#[test]
fn the_mode_of_the_source_is_kept() {
    let desk = Desk::new(b"#!/bin/sh\n");
    fs::set_permissions(desk.src(), fs::Permissions::from_mode(0o750)).unwrap();
    assert!(desk.copy_to(&desk.path("copy")).status.success());
    assert_eq!(fs::metadata(desk.path("copy")).unwrap().permissions().mode() & 0o777, 0o750);
}

/// Runs the tool as a user who may not do everything: root may read and write whatever it likes
fn as_nobody(desk: &Desk) -> Command {
    fs::set_permissions(desk.dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let tool = desk.path("tb5");
    fs::copy(env!("CARGO_BIN_EXE_tb5"), &tool).unwrap();
    let mut command = Command::new(tool);
    command.stdin(Stdio::null());
    // SAFETY: asks for a number and touches nothing.
    if unsafe { libc::geteuid() } == 0 {
        command.uid(65534).gid(65534);
    }
    command
}

#[test]
fn an_unreadable_source_is_named() {
    let desk = Desk::new(b"secret");
    let folder = desk.path("open");
    fs::create_dir(&folder).unwrap();
    fs::set_permissions(&folder, fs::Permissions::from_mode(0o777)).unwrap();
    fs::set_permissions(desk.src(), fs::Permissions::from_mode(0o000)).unwrap();
    let output = as_nobody(&desk).arg("copy").arg(desk.src()).arg(folder.join("copy")).output().unwrap();
    assert_refused(&output, 1, &desk.src(), "cannot be read: Permission denied");
    assert_eq!(fs::read_dir(folder).unwrap().count(), 0);
}

#[test]
fn an_unwritable_destination_is_named() {
    let desk = Desk::new(b"content");
    fs::set_permissions(desk.src(), fs::Permissions::from_mode(0o644)).unwrap();
    let folder = desk.path("closed");
    fs::create_dir(&folder).unwrap();
    fs::set_permissions(&folder, fs::Permissions::from_mode(0o555)).unwrap();
    let dst = folder.join("copy");
    let output = as_nobody(&desk).arg("copy").arg(desk.src()).arg(&dst).output().unwrap();
    assert_refused(&output, 1, &dst, "cannot be written: Permission denied");
    assert_eq!(fs::read_dir(folder).unwrap().count(), 0);
}

/// Stands for every failing write: it needs no privileges
#[test]
fn a_write_that_fails_leaves_nothing_behind() {
    let desk = Desk::new(&noise(1 << 20, 2));
    fs::write(desk.path("copy"), b"old").unwrap();
    let output = Command::new("sh")
        .args(["-c", "ulimit -f 64; exec \"$0\" copy \"$1\" \"$2\"", env!("CARGO_BIN_EXE_tb5")])
        .args([desk.src(), desk.path("copy")])
        .output()
        .unwrap();
    assert_refused(&output, 1, &desk.path("copy"), "cannot be written: File too large");
    assert_eq!(fs::read(desk.path("copy")).unwrap(), b"old");
    assert_eq!(desk.entries(), ["copy", "source"]);
}

#[test]
#[ignore = "needs mount namespaces; .ci/run runs it"]
fn a_disk_that_fills_leaves_nothing_behind() {
    let desk = Desk::new(&noise(4 << 20, 2));
    fs::create_dir(desk.path("disk")).unwrap();
    let script = "mount -t tmpfs -o size=1m none disk && ! \"$0\" copy source disk/copy && ls -A disk";
    let output = Command::new("unshare")
        .args(["--map-root-user", "--mount", "sh", "-c", script, env!("CARGO_BIN_EXE_tb5")])
        .current_dir(desk.dir.path())
        .output()
        .unwrap();
    let message = stderr(&output);
    assert!(output.status.success(), "{message}");
    assert!(message.contains("disk/copy: cannot be written: No space left on device"), "{message}");
    let left = String::from_utf8_lossy(&output.stdout);
    assert_eq!(left.lines().filter(|line| !line.starts_with("backend:")).count(), 0, "{left}");
}

#[test]
fn being_interrupted_leaves_nothing_behind() {
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
        let desk = Desk::new(b"");
        // A hole: long to copy, nothing on the disk.
        File::options().write(true).open(desk.src()).unwrap().set_len(1 << 40).unwrap();
        let dst = desk.path("copy");
        let child =
            tb5().arg("copy").arg(desk.src()).arg(&dst).stderr(Stdio::piped()).stdout(Stdio::null()).spawn();
        let child = child.unwrap();
        let is_under_way = || {
            let entries = fs::read_dir(desk.dir.path()).unwrap().map(Result::unwrap);
            let mut parts = entries.filter(|entry| entry.file_name().to_string_lossy().ends_with(".part"));
            parts.any(|part| part.metadata().is_ok_and(|found| found.len() > 1 << 20))
        };
        for _ in 0..1000 {
            if is_under_way() {
                break;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        assert!(is_under_way());
        // SAFETY: the child is ours and was not waited for, so that the number is still its own.
        assert_eq!(unsafe { libc::kill(child.id() as i32, signal) }, 0);
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(1));
        let message = stderr(&output);
        assert!(message.contains("interrupted") && message.contains(dst.to_str().unwrap()), "{message}");
        assert_eq!(desk.entries(), ["source"]);
    }
}

#[test]
fn a_file_that_changes_is_not_taken_for_whole() {
    // Files of /proc claim to be empty and are not.
    let dir = TempDir::new().unwrap();
    let dst = dir.path().join("copy");
    let source = Path::new("/proc/self/status");
    if source.exists() {
        let output = tb5().arg("copy").arg(source).arg(&dst).output().unwrap();
        assert_refused(&output, 1, source, "changed while it was copied");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    }
}

#[test]
fn a_reader_that_goes_away_is_no_failure() {
    let mut child = tb5().args(["ping", "--count", "10"]).stdout(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    assert!(child.wait().unwrap().success());
}

/// Regression: a read-only source became a writable copy.
#[test]
fn a_read_only_file_stays_read_only() {
    let desk = Desk::new(b"fixed");
    fs::set_permissions(desk.src(), fs::Permissions::from_mode(0o444)).unwrap();
    json(&tb5().args(["copy", "--json"]).arg(desk.src()).arg(desk.path("copy")).output().unwrap());
    assert_eq!(fs::metadata(desk.path("copy")).unwrap().permissions().mode() & 0o777, 0o444);
}

/// Regression: a link to nothing was replaced, and `name/.` was taken for `name`.
#[test]
fn destinations_that_mean_something_else_are_refused() {
    let desk = Desk::new(b"content");
    let link = desk.path("link");
    symlink("nowhere", &link).unwrap();
    assert_refused(&desk.copy_to(&link), 1, &link, "does not exist");
    let dot = desk.path("name/.");
    assert_refused(&desk.copy_to(&dot), 1, &dot, "names no file");
    assert_eq!(desk.entries(), ["link", "source"]);
}

/// Regression: a program that was started to survive the end of its terminal did not.
#[test]
fn an_ignored_signal_stays_ignored() {
    let desk = Desk::new(&noise(64 << 20, 3));
    let script = r#"trap "" HUP; "$0" copy "$1" "$2" & sleep 0.05; kill -HUP $!; wait $!"#;
    let mut command = Command::new("sh");
    command.args(["-c", script, env!("CARGO_BIN_EXE_tb5")]).arg(desk.src()).arg(desk.path("copy"));
    assert!(command.output().unwrap().status.success());
    assert_eq!(desk.entries(), ["copy", "source"]);
}
