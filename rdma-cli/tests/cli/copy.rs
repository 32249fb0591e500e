//! `tb5 copy`

#![allow(unsafe_code, reason = "calls of libc")]

#[cfg(target_os = "linux")]
mod failures;
mod faults;

use std::fs::{self, File};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::process::CommandExt;
use std::path::Path;
#[cfg(target_os = "linux")]
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
#[cfg(target_os = "linux")]
use std::thread;
#[cfg(target_os = "linux")]
use std::time::Duration;

use proptest::prelude::*;

use crate::support::{
    Folder, Running, assert_code, assert_failed, assert_refused, eventually, json, keys, program, stderr,
    stdout, tool,
};

pub(crate) fn noise(len: usize, salt: u64) -> Vec<u8> {
    let mut bytes = vec![0; len];
    blake3::Hasher::new_derive_key("tb5 tests").update(&salt.to_le_bytes()).finalize_xof().fill(&mut bytes);
    bytes
}

/// A folder with a file called `source`
pub(crate) fn with_source(content: &[u8]) -> Folder {
    let folder = Folder::new();
    folder.write("source", content);
    folder
}

/// A folder with a file called `source` of `len` zeros, which take no space on the disk
pub(crate) fn with_hole(len: u64) -> Folder {
    let folder = Folder::new();
    File::create(folder.path("source")).unwrap().set_len(len).unwrap();
    folder
}

fn copy(folder: &Folder, to: impl AsRef<Path>) -> Output {
    tb5!["copy", folder.path("source"), folder.path(to)]
}

pub(crate) fn mode(path: impl AsRef<Path>) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

pub(crate) fn set_mode(path: impl AsRef<Path>, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

fn assert_copies(len: usize) {
    let content = noise(len, len as u64);
    let folder = with_source(&content);
    let report = json(&tb5!["copy", "--json", folder.path("source"), folder.path("copy")]);
    assert!(fs::read(folder.path("copy")).unwrap() == content, "{len} bytes");
    assert_eq!(report["bytes"], len);
    assert_eq!(report["blake3"], blake3::hash(&content).to_string());
    assert_eq!(folder.entries(), ["copy", "source"]);
}

#[test]
fn files_around_frame_and_piece_boundaries_arrive_byte_for_byte() {
    for len in [0, 1, 4095, 4096, 4097, (1 << 20) - 1, 1 << 20, (1 << 20) + 1] {
        assert_copies(len);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn files_of_any_size_arrive_byte_for_byte(len in 0usize..3 << 20) {
        assert_copies(len);
    }
}

#[test]
fn the_report_has_stable_keys_and_equal_seeds_give_equal_digests() {
    let folder = with_source(&noise(100_000, 1));
    let copy = |seed: &str, to: &str| {
        json(&tb5!["copy", "--json", "--seed", seed, folder.path("source"), folder.path(to)])
    };
    let report = copy("7", "one");
    let promised = [
        "backend",
        "blake3",
        "bytes",
        "cables",
        "ceiling_bytes_per_second",
        "directories",
        "discarded_bytes",
        "efficiency",
        "files",
        "goodput_bytes_per_second",
        "links",
        "reconnects",
        "resumed_bytes",
        "retransmitted_bytes",
        "seed",
        "trace_digest",
        "virtual_seconds",
        "wall_seconds",
    ];
    assert_eq!(keys(&report), promised);
    assert_eq!(report["backend"], "simulator");
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
#[cfg(target_os = "linux")]
#[test]
fn a_large_file_fills_the_cable_and_needs_little_memory() {
    let folder = with_hole(256 << 20);
    let mut copy = tool();
    copy.args(["copy", "--json"]).arg(folder.path("source")).arg(folder.path("copy"));
    let child = copy.stdout(Stdio::piped()).spawn().unwrap();
    // Not what `wait4` says: that includes the memory of the parent at the fork.
    let status = format!("/proc/{}/status", child.id());
    let peak = || {
        let text = fs::read_to_string(&status).ok()?;
        text.lines().find_map(|line| line.strip_prefix("VmHWM:")?.trim().strip_suffix(" kB")?.parse().ok())
    };
    let mut peak_kib = 0_u64;
    while let Some(kib) = peak() {
        peak_kib = kib;
        thread::sleep(Duration::from_millis(2));
    }
    let output = child.wait_with_output().unwrap();
    assert_code(&output, 0);
    assert!(peak_kib > 1000, "{peak_kib} KiB");

    let report = json(&output);
    let efficiency = report["efficiency"].as_f64().unwrap();
    assert!((0.97..=1.0).contains(&efficiency), "{efficiency}");
    assert!(peak_kib < 64 << 10, "{peak_kib} KiB");
}

#[test]
fn cables_add_up() {
    let folder = with_hole(64 << 20);
    for cables in ["1", "2", "3"] {
        let report =
            json(&tb5!["copy", "--json", "--cables", cables, folder.path("source"), folder.path("copy")]);
        assert_eq!(report["cables"].to_string(), cables);
        let efficiency = report["efficiency"].as_f64().unwrap();
        assert!((0.94..=1.0).contains(&efficiency), "{cables} cables: {efficiency}");
    }
}

// ─── Refused files ───

#[test]
fn a_missing_source_is_named() {
    let folder = Folder::new();
    assert_refused(&copy(&folder, "copy"), &folder.path("source"), "No such file");
    assert_eq!(folder.entries(), [""; 0]);
}

/// Regression: a dangling link was replaced, and `name/.` was taken for `name`.
#[test]
fn sources_and_destinations_that_are_not_files_are_refused() {
    let folder = with_source(b"content");
    folder.directory("folder");
    // A file that is copied to a directory goes into it.
    folder.directory("folder/source");
    folder.pipe("pipe");
    symlink("nowhere", folder.path("link")).unwrap();
    let table = [
        ("folder", "is a directory"),
        ("pipe", "not a regular file"),
        ("link", "does not exist"),
        ("missing/copy", "cannot be written: there is no folder "),
        ("name/", "there is no such directory: create it first"),
        ("name/.", "there is no such directory: create it first"),
    ];
    for (to, why) in table {
        let output = copy(&folder, to);
        assert_refused(&output, &folder.path(to), why);
        assert!(!stderr(&output).contains(".part"), "{}", stderr(&output));
    }
    for (from, why) in &table[..2] {
        assert_refused(&tb5!["copy", folder.path(from), folder.path("copy")], &folder.path(from), why);
    }
    assert_eq!(folder.entries(), ["folder", "link", "pipe", "source"]);
}

/// Catches a file that is refused where a directory is, instead of being put into it.
#[test]
fn a_file_that_is_copied_to_a_directory_is_put_into_it() {
    let folder = with_source(b"content");
    folder.directory("folder");
    for to in ["folder", "folder/", "folder/."] {
        let output = copy(&folder, to);
        assert_code(&output, 0);
        assert!(stdout(&output).contains("source to "), "{}", stdout(&output));
        assert_eq!(fs::read(folder.path("folder/source")).unwrap(), b"content");
        fs::remove_file(folder.path("folder/source")).unwrap();
    }
    assert_refused(
        &tb5!["copy", folder.path("source"), folder.path("")],
        &folder.path("source"),
        "the same file",
    );
}

#[test]
fn source_and_destination_must_differ() {
    let folder = with_source(b"content");
    symlink(folder.path("source"), folder.path("symlink")).unwrap();
    fs::hard_link(folder.path("source"), folder.path("hardlink")).unwrap();
    for name in ["source", "symlink", "hardlink", "./source"] {
        assert_refused(&copy(&folder, name), &folder.path(name), "the same file");
    }
    assert_eq!(fs::read(folder.path("source")).unwrap(), b"content");
    assert_eq!(folder.entries(), ["hardlink", "source", "symlink"]);
}

/// The tool as an unprivileged user: root may read and write everything
pub(crate) fn unprivileged(folder: &Folder) -> Command {
    set_mode(folder.path(""), 0o755);
    let tool = folder.path("tb5");
    // By a process of its own: a child of another test would keep the file open for writing, and it could not be run.
    assert!(program("cp").arg(env!("CARGO_BIN_EXE_tb5")).arg(&tool).status().unwrap().success());
    let mut command = program(tool);
    // SAFETY: the call has no preconditions.
    if unsafe { libc::geteuid() } == 0 {
        command.uid(65534).gid(65534);
    }
    command
}

#[test]
fn files_without_permission_are_named() {
    for (source_mode, folder_mode, why) in [
        (0o000, 0o777, "cannot be read: Permission denied"),
        (0o644, 0o555, "cannot be written: Permission denied"),
    ] {
        let folder = with_source(b"content");
        let (source, inner) = (folder.path("source"), folder.directory("inner"));
        set_mode(&source, source_mode);
        set_mode(&inner, folder_mode);
        let to = inner.join("copy");
        let output = unprivileged(&folder).arg("copy").arg(&source).arg(&to).output().unwrap();
        assert_refused(&output, if source_mode == 0 { &source } else { &to }, why);
        assert_eq!(fs::read_dir(inner).unwrap().count(), 0);
    }
}

/// Catches a server that listens although no copy can come.
#[test]
fn a_directory_without_permission_is_named_before_anyone_connects() {
    for command in [&["copy", "--listen"][..], &["serve", "--into"]] {
        let folder = Folder::new();
        let locked = folder.directory("locked");
        set_mode(&locked, 0o555);
        let args = [command, &[locked.to_str().unwrap(), "--port", "0"]].concat();
        let output = unprivileged(&folder).args(args).output().unwrap();
        assert_refused(&output, &locked, "cannot be written: Permission denied");
    }
}

#[test]
fn a_source_that_changes_is_refused() {
    // Files of /sys are shorter than they say.
    let folder = Folder::new();
    let source = Path::new("/sys/class/net/lo/mtu");
    if source.exists() {
        let output = tb5!["copy", source, folder.path("copy")];
        assert_refused(&output, source, "changed while it was copied");
        assert_eq!(folder.entries(), [""; 0]);
    }
}

/// Regression: a file of /proc was said to have changed while it was copied. Catches one that is copied as an empty file.
#[cfg(target_os = "linux")]
#[test]
fn a_file_with_more_bytes_than_it_says_is_copied_whole() {
    let folder = Folder::new();
    let content = fs::read("/proc/version").unwrap();
    let report = json(&tb5!["copy", "--json", "/proc/version", folder.path("copy")]);
    assert_eq!(report["bytes"], content.len());
    assert_eq!((fs::read(folder.path("copy")).unwrap(), mode(folder.path("copy")) & 0o222), (content, 0));
}

// ─── The destination ───

#[test]
fn an_existing_destination_is_replaced_behind_a_link() {
    let folder = with_source(&noise(5000, 5));
    folder.write("copy", b"old and longer than nothing");
    symlink("copy", folder.path("link")).unwrap();
    assert_code(&copy(&folder, "link"), 0);
    assert_eq!(fs::read(folder.path("copy")).unwrap(), noise(5000, 5));
    assert!(fs::symlink_metadata(folder.path("link")).unwrap().is_symlink());
    assert_eq!(folder.entries(), ["copy", "link", "source"]);
}

/// Regression: a read-only source became a writable copy.
#[test]
fn a_new_destination_has_the_mode_of_the_source() {
    for source in [0o750, 0o444, 0o600] {
        let folder = with_source(b"#!/bin/sh\n");
        set_mode(folder.path("source"), source);
        assert_code(&copy(&folder, "copy"), 0);
        assert_eq!(mode(folder.path("copy")), source);
    }
}

/// Regression: a destination of mode 0600 was replaced by a file that everyone may read.
#[test]
fn an_existing_destination_keeps_its_mode() {
    for (source, destination) in [(0o644, 0o600), (0o600, 0o664), (0o755, 0o440)] {
        let folder = with_source(b"content");
        set_mode(folder.path("source"), source);
        set_mode(folder.write("copy", b"old"), destination);
        assert_code(&copy(&folder, "copy"), 0);
        assert_eq!(fs::read(folder.path("copy")).unwrap(), b"content");
        assert_eq!(mode(folder.path("copy")), destination, "from {source:o}");
    }
}

/// A library of `code`, in `folder`
#[cfg(target_os = "linux")]
pub(crate) fn compiled(folder: &Folder, code: &str) -> PathBuf {
    let (library, code) = (folder.path("library.so"), folder.write("library.c", code));
    let compiled =
        program("cc").args(["-shared", "-fPIC", "-D_GNU_SOURCE", "-o"]).arg(&library).arg(code).status();
    assert!(compiled.expect("a C compiler is installed").success());
    library
}

/// Regression: the rename was not synced, and a power failure could bring the old file back.
///
/// Catches a missing sync of the folder, and one whose error is ignored: a library that fails the sync of folders is loaded.
#[cfg(target_os = "linux")]
#[test]
fn the_folder_of_the_destination_is_synced() {
    const FAILING_SYNC: &str = r#"
        #include <errno.h>
        #include <sys/stat.h>
        #include <sys/syscall.h>
        #include <unistd.h>
        int fsync(int fd) {
            struct stat found;
            if (!fstat(fd, &found) && S_ISDIR(found.st_mode)) { errno = EIO; return -1; }
            return syscall(SYS_fsync, fd);
        }
    "#;
    let folder = with_source(b"content");
    let library = compiled(&folder, FAILING_SYNC);
    let mut command = tool();
    command.arg("copy").arg(folder.path("source")).arg(folder.path("copy")).env("LD_PRELOAD", &library);
    let cause = format!("{}: cannot be synced: Input/output error", library.parent().unwrap().display());
    assert_failed(&command.output().unwrap(), 1, &[&cause]);
    assert_eq!(fs::read(folder.path("copy")).unwrap(), b"content", "the file is complete");
}

// ─── Copies that fail or are interrupted ───

/// Stands for every write that fails: it needs no privileges
#[test]
fn a_failed_write_leaves_nothing_behind() {
    let folder = with_source(&noise(1 << 20, 2));
    folder.write("copy", b"old");
    let output = program("sh")
        .args(["-c", "ulimit -f 64; exec \"$0\" copy \"$1\" \"$2\"", env!("CARGO_BIN_EXE_tb5")])
        .args([folder.path("source"), folder.path("copy")])
        .output()
        .unwrap();
    assert_refused(&output, &folder.path("copy"), "cannot be written: File too large");
    assert_eq!(fs::read(folder.path("copy")).unwrap(), b"old");
    assert_eq!(folder.entries(), ["copy", "source"]);
}

#[test]
#[ignore = "needs mount namespaces; .ci/run runs it"]
fn a_full_disk_leaves_nothing_behind() {
    let folder = with_source(&noise(4 << 20, 2));
    folder.directory("disk");
    let script = "mount -t tmpfs -o size=1m none disk && ! \"$0\" copy source disk/copy && ls -A disk";
    let output = program("unshare")
        .args(["--map-root-user", "--mount", "sh", "-c", script, env!("CARGO_BIN_EXE_tb5")])
        .current_dir(folder.path(""))
        .output()
        .unwrap();
    assert_failed(&output, 0, &["disk/copy: cannot be written: No space left on device"]);
    let left = stdout(&output);
    assert_eq!(left.lines().filter(|line| !line.starts_with("backend:")).count(), 0, "{left}");
}

/// Regression: what had arrived from another machine kept the disk full.
#[test]
#[ignore = "needs mount namespaces; .ci/run runs it"]
fn a_full_disk_of_the_receiver_has_room_again() {
    let folder = with_source(&noise(4 << 20, 2));
    folder.directory("disk");
    let script = r#"
        mount -t tmpfs -o size=1m none disk
        "$0" copy --listen disk --bind 127.0.0.1 --port 0 > said &
        until port=$(sed -n 's/^listening on .*:\([0-9]*\)$/\1/p' said | grep .); do sleep 0.05; done
        "$0" copy source 127.0.0.1: --port $port
        echo "sender: $?"
        wait $!
        echo "receiver: $?"
        ls -A disk"#;
    let output = program("unshare")
        .args(["--map-root-user", "--mount", "sh", "-c", script, env!("CARGO_BIN_EXE_tb5")])
        .current_dir(folder.path(""))
        .output()
        .unwrap();
    assert_failed(
        &output,
        0,
        &[
            "No space left on device",
            "the copy is not complete (127.0.0.1: the other side has no space left",
            "); the file that did not fit is not kept: copy again once there is room",
        ],
    );
    let said = stdout(&output);
    let ends = said.lines().skip_while(|line| !line.starts_with("sender")).collect::<Vec<_>>();
    assert_eq!(ends, ["sender: 1", "receiver: 1"]);
}

/// Waits until more than a megabyte is in the temporary file, and returns its mode
pub(crate) fn under_way(folder: &Folder) -> u32 {
    let mut part = None;
    eventually(|| {
        let name = folder.entries().into_iter().find(|name| name.ends_with(".part"));
        part = name
            .map(|name| folder.path(name))
            .filter(|part| part.metadata().is_ok_and(|found| found.len() > 1 << 20));
        part.is_some()
    });
    mode(part.expect("it was just found"))
}

/// Catches a temporary file that more users may read than the destination, too.
#[test]
fn an_interrupted_copy_leaves_the_old_destination() {
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
        // Long to copy.
        let folder = with_hole(1 << 40);
        set_mode(folder.write("copy", b"old"), 0o600);
        let mut command = tool();
        command.arg("copy").arg(folder.path("source")).arg(folder.path("copy"));
        let running = Running::start(command.stderr(Stdio::piped()).stdout(Stdio::null()));
        assert_eq!(under_way(&folder), 0o600);
        running.signal(signal);
        let path = folder.path("copy");
        assert_failed(&running.finish(), 128 + signal, &[path.to_str().unwrap(), "interrupted"]);
        assert_eq!(folder.entries(), [".copy.tb5-partial", "copy", "source"]);
        assert_eq!(mode(folder.path(".copy.tb5-partial")), 0o600);
        assert_eq!(fs::read(folder.path("copy")).unwrap(), b"old");
    }
}

/// Regression: a copy that was started by `nohup` ended with its terminal.
#[test]
fn signals_that_are_ignored_at_the_start_stay_ignored() {
    let folder = with_hole(256 << 20);
    let script = r#"trap "" HUP INT; exec "$0" copy "$1" "$2""#;
    let mut command = program("sh");
    command
        .args(["-c", script, env!("CARGO_BIN_EXE_tb5")])
        .arg(folder.path("source"))
        .arg(folder.path("copy"));
    let running = Running::start(command.stderr(Stdio::piped()).stdout(Stdio::null()));
    under_way(&folder);
    running.signal(libc::SIGHUP);
    running.signal(libc::SIGINT);
    assert_code(&running.finish(), 0);
    assert_eq!(folder.entries(), ["copy", "source"]);
}
