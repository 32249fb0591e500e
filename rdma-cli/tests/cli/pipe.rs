//! `tb5 copy` from standard input and to standard output

use std::fs;
use std::io::{Read as _, Write as _};
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::thread;

use crate::copy::{mode, noise, with_source};
use crate::machines::Listener;
use crate::support::{
    Folder, Running, assert_code, assert_failed, assert_refused, eventually, program, stderr, stdout, tool,
};

const LEN: usize = 5_000_000;

/// What a command that is fed with `input` prints
fn fed(command: &mut Command, input: &[u8]) -> Output {
    let pipes = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut running = Running::start(pipes);
    let mut pipe = running.stdin.take().unwrap();
    thread::scope(|scope| {
        // A command that fails may read less.
        scope.spawn(move || drop(pipe.write_all(input)));
        running.finish()
    })
}

/// `tb5 copy` with temporary files in `folder`
fn copy(folder: &Folder) -> Command {
    let mut command = tool();
    command.arg("copy").env("TMPDIR", folder.path(""));
    command
}

/// Catches bytes that are lost, changed or added, a report between them, and a temporary file that is left.
#[test]
fn any_bytes_pass_through_pipes() {
    for len in [0, 1, LEN] {
        let content = noise(len, 3);
        let (folder, temporary) = (with_source(&content), Folder::new());
        let to = folder.path("copy");
        assert_code(&fed(copy(&temporary).arg("-").arg(&to), &content), 0);
        assert!(fs::read(&to).unwrap() == content, "{len} bytes from standard input");
        folder.write("new", "");
        assert_eq!(mode(&to), mode(folder.path("new")));

        let printed = copy(&temporary).arg(folder.path("source")).arg("-").output().unwrap();
        assert!(printed.stdout == content, "{len} bytes to standard output");
        let passed = fed(copy(&temporary).args(["--cables", "2", "-", "-"]), &content);
        assert_code(&passed, 0);
        assert!(passed.stdout == content, "{len} bytes through");
        let report = stderr(&passed);
        assert!(
            report
                .split_whitespace()
                .collect::<Vec<_>>()
                .join(" ")
                .contains("copied standard input to standard output"),
            "{report}"
        );
        assert!(report.contains(&blake3::hash(&content).to_string()), "{report}");
        let quiet = fed(copy(&temporary).args(["-q", "-", "-"]), &content);
        assert!(quiet.stdout == content && quiet.stderr.is_empty(), "{}", stderr(&quiet));
        assert_eq!(temporary.entries(), [""; 0]);
        assert_eq!(folder.entries(), ["copy", "new", "source"]);
    }
}

/// Catches a copy that keeps `-` as its name.
#[test]
fn standard_input_is_copied_to_another_machine() {
    let (root, temporary) = (Folder::new(), Folder::new());
    root.directory("inside");
    for (to, content) in [("empty", vec![]), ("inside/copy", noise(LEN, 4))] {
        let listener = Listener::start(&root.path(""), &[]);
        let send = |to: &str| {
            let mut sender = tool();
            sender.args(listener.send(&["-"])).arg(to).env("TMPDIR", temporary.path(""));
            fed(&mut sender, &content)
        };
        assert_failed(
            &send("127.0.0.1:inside"),
            1,
            &["the other side has a directory in the place of a file"],
        );
        let to_name = format!("127.0.0.1:{to}");
        let sent = send(&to_name);
        assert_code(&sent, 0);
        assert!(stdout(&sent).contains(&format!("standard input to {to_name}")), "{}", stdout(&sent));
        let received = listener.running.finish();
        assert_code(&received, 0);
        assert!(stderr(&received).contains("inside: is a directory"), "{}", stderr(&received));
        assert!(fs::read(root.path(to)).unwrap() == content, "{to}");
    }
    assert_eq!(root.entries(), ["empty", "inside"]);
    assert_eq!(temporary.entries(), [""; 0]);
}

/// Catches a directory or a report in a pipe, and a nameless copy.
#[test]
fn a_minus_for_a_directory_a_nameless_copy_or_json_is_refused() {
    let folder = with_source(b"content");
    folder.directory("folder");
    for (arguments, why) in [
        (&["-r", "-", "copy"][..], "standard input is one file, and no directory"),
        (&["-r", "-", "host:copy"], "standard input is one file, and no directory"),
        (&["-r", "folder", "-"], "standard output takes one file, and no directory"),
        (&["-", "host:"], "standard input has no name: write HOST:NAME"),
        (&["-", "folder"], "standard input has no name: write DIR/NAME"),
        (&["--json", "source", "-"], "standard output is for the file"),
        (&["--port", "7", "source", "-"], "--port is for two machines"),
    ] {
        let output = tool().arg("copy").args(arguments).current_dir(folder.path("")).output().unwrap();
        assert_failed(&output, 2, &[why]);
        assert!(output.stdout.is_empty(), "{arguments:?}");
    }
    assert_failed(&tb5!["copy", "-", "host:../x"], 2, &["../x: must be below the directory"]);
    assert_eq!(folder.entries(), ["folder", "source"]);
}

/// Catches a reader that ends early and is taken for a failure.
#[test]
fn a_reader_that_has_read_enough_is_no_failure() {
    let folder = with_source(&noise(LEN, 5));
    let mut command = copy(&folder);
    command.arg(folder.path("source")).arg("-").stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut running = Running::start(&mut command);
    drop(running.stdout.take());
    assert_code(&running.finish(), 0);
    assert_eq!(folder.entries(), ["source"]);
}

/// Catches a first signal without effect while standard input is open.
#[test]
fn a_signal_ends_the_wait_for_standard_input() {
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
        let folder = Folder::new();
        let mut command = copy(&folder);
        command.arg("-").arg(folder.path("copy")).stdin(Stdio::piped()).stderr(Stdio::piped());
        let mut running = Running::start(&mut command);
        let mut pipe = running.stdin.take().unwrap();
        // More than fits into a pipe: the tool is reading.
        pipe.write_all(&noise(1 << 20, 6)).unwrap();
        running.signal(signal);
        eventually(|| running.try_wait().unwrap().is_some());
        assert_failed(&running.finish(), 128 + signal, &["tb5: interrupted\n"]);
        assert_eq!(folder.entries(), [""; 0]);
    }
}

/// Catches a first signal without effect while the reader of the copy is slow.
#[test]
fn a_signal_ends_the_wait_for_the_reader_of_standard_output() {
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
        // More than fits into a pipe.
        let (folder, temporary) = (with_source(&noise(LEN, 9)), Folder::new());
        let mut command = copy(&temporary);
        command.arg(folder.path("source")).arg("-").stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut running = Running::start(&mut command);
        let mut pipe = running.stdout.take().unwrap();
        // The first byte arrives when the copy is verified.
        pipe.read_exact(&mut [0]).unwrap();
        running.signal(signal);
        eventually(|| running.try_wait().unwrap().is_some());
        assert_failed(&running.finish(), 128 + signal, &["tb5: interrupted\n"]);
        assert_eq!(temporary.entries(), [""; 0]);
    }
}

/// Catches an unverified part of a copy on standard output, and a rest that is kept where no copy continues it.
#[test]
fn a_copy_that_fails_prints_nothing() {
    let folder = with_source(&noise(4 << 20, 7));
    let mut command = copy(&folder);
    let output = command
        .args(["--fault", "at 200us a:rdma_en2 unplug"])
        .arg(folder.path("source"))
        .arg("-")
        .output()
        .unwrap();
    assert_failed(
        &output,
        1,
        &["standard output: the copy is not complete (nothing has arrived for 10 s", "); copy again"],
    );
    assert!(output.stdout.is_empty());
    assert_eq!(folder.entries(), ["source"]);
}

/// Asserts that either command names the temporary file that does not fit
fn assert_too_large(run: impl Fn(&str, &Path) -> Output, why: &str) {
    let folder = with_source(&noise(4 << 20, 8));
    let temporary = folder.directory("temporary");
    for command in ["copy - copy <source", "copy source -"] {
        let output = run(command, folder.path("").as_path());
        assert_refused(&output, Path::new("a temporary file in"), why);
        assert_eq!(stderr(&output).lines().filter(|line| line.contains("cannot")).count(), 1);
        assert!(output.stdout.is_empty(), "{command}");
        assert_eq!(fs::read_dir(&temporary).unwrap().count(), 0, "{command}");
    }
    assert_eq!(folder.entries(), ["source", "temporary"]);
}

/// Stands for every write that fails: it needs no privileges
#[test]
fn a_temporary_file_that_cannot_be_written_is_named() {
    let run = |command: &str, folder: &Path| {
        let script = format!("trap '' XFSZ; ulimit -f 64; exec \"$0\" {command}");
        let mut shell = program("sh");
        shell.args(["-c", &script, env!("CARGO_BIN_EXE_tb5")]).env("TMPDIR", "temporary");
        shell.current_dir(folder).output().unwrap()
    };
    assert_too_large(run, "temporary: cannot be written: File too large");
}

#[test]
#[ignore = "needs mount namespaces; .ci/run runs it"]
fn a_full_disk_for_temporary_files_is_named() {
    let run = |command: &str, folder: &Path| {
        let script = format!("mount -t tmpfs -o size=1m none temporary && exec \"$0\" {command}");
        let mut shell = program("unshare");
        shell.args(["--map-root-user", "--mount", "sh", "-c", &script, env!("CARGO_BIN_EXE_tb5")]);
        shell.env("TMPDIR", "temporary").current_dir(folder).output().unwrap()
    };
    assert_too_large(run, "temporary: cannot be written: No space left on device");
}
