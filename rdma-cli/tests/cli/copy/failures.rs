//! `tb5 copy` that fails in the middle: the messages and exit codes of both sides, and what is left

use std::fs::File;
use std::io::Write as _;
use std::path::Path;
use std::process::{Output, Stdio};

use super::{noise, with_source};
use crate::machines::Listener;
use crate::support::{
    Folder, Running, assert_code, assert_failed, assert_refused, program, stderr, stdout, tool,
};

const SCENARIO: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../rdma-sim/scenarios/one-lost-message.toml");

/// A copy of `source` to the machine of `listener`, under the name `to`
fn send(listener: &Listener, source: &Path, to: &str) -> Output {
    tool().args(listener.send(&[])).arg(source).arg(format!("127.0.0.1:{to}")).output().unwrap()
}

/// Limits the size of the files that a process writes
fn limit_file_size(running: &Running, bytes: u64) {
    let limit = libc::rlimit { rlim_cur: bytes, rlim_max: bytes };
    // SAFETY: the limit is read from memory of its type, and no old one is written.
    let set = unsafe {
        libc::prlimit(running.id() as i32, libc::RLIMIT_FSIZE, &raw const limit, std::ptr::null_mut())
    };
    assert_eq!(set, 0);
}

/// Catches an error of the rest that hides why the copy has ended, and the promise to continue what is not kept.
#[test]
fn a_rest_that_cannot_be_kept_is_reported_beside_the_failure() {
    let folder = with_source(&noise(4 << 20, 1));
    folder.directory(".copy.tb5-partial");
    let output =
        tb5!["copy", "--fault", "at 300us a:rdma_en2 unplug", folder.path("source"), folder.path("copy")];
    assert_failed(
        &output,
        1,
        &[
            "copy: the copy is not complete (",
            "nothing has arrived for 10 s since the last fault",
            "); copy again: ",
            ".copy.tb5-partial: the incomplete file cannot be kept: something else has its name",
        ],
    );
    assert!(!stderr(&output).contains("to continue"), "{}", stderr(&output));
    assert_eq!(folder.entries(), [".copy.tb5-partial", "source"]);
}

/// Catches names, which a peer may choose, that reach the terminal with their control characters.
#[test]
fn names_in_errors_have_no_control_characters() {
    let folder = Folder::new();
    let name = "\x1b]0;title\x07\n";
    folder.directory("source");
    File::create(folder.path("source").join(name)).unwrap();
    std::fs::create_dir_all(folder.path("copy").join(name)).unwrap();
    let output = tb5!["copy", "-r", folder.path("source/"), folder.path("copy")];
    assert_code(&output, 1);
    let said = stderr(&output);
    assert!(said.contains("title") && said.trim_end().chars().all(|c| !c.is_control()), "{said:?}");
    let refused = tb5!["copy", "source", ":\x1b[31m"];
    assert_failed(&refused, 2, &["the name of the machine is missing"]);
    assert!(!stderr(&refused).contains('\x1b'), "{}", stderr(&refused));
}

/// Regression: a link to an open file that has no name any more, such as /dev/stdout, was replaced by the copy.
#[test]
fn a_link_to_an_open_file_without_a_name_is_refused() {
    let folder = with_source(b"source");
    std::os::unix::fs::symlink("/proc/self/fd/9", folder.path("link")).unwrap();
    let mut shell = program("sh");
    shell.args(["-c", "exec 9>gone; rm gone; exec \"$0\" copy source link", env!("CARGO_BIN_EXE_tb5")]);
    let output = shell.current_dir(folder.path("")).output().unwrap();
    assert_failed(&output, 1, &["link: is a symbolic link to a file that has no name any more"]);
    assert!(folder.path("link").is_symlink());
}

/// Catches the same between two machines, where either side is stopped by its user.
#[test]
fn a_receiver_that_cannot_keep_the_rest_says_why_the_copy_has_ended() {
    let (folder, root) = (Folder::new(), Folder::new());
    File::create(folder.path("source")).unwrap().set_len(1 << 40).unwrap();
    root.directory(".copy.tb5-partial");
    let listener = Listener::start(&root.path(""), &[]);
    let mut command = tool();
    command.args(listener.send(&[])).arg(folder.path("source")).arg("127.0.0.1:copy");
    let sender = Running::start(command.stdout(Stdio::piped()).stderr(Stdio::piped()));
    super::under_way(&root);
    listener.running.signal(libc::SIGINT);
    assert_failed(&sender.finish(), 1, &["the other side was stopped by its user"]);
    let received = listener.running.finish();
    assert_failed(
        &received,
        130,
        &["copy again: ", "the incomplete file cannot be kept: something else has its name", "interrupted"],
    );
    assert!(!stderr(&received).contains("to continue"), "{}", stderr(&received));
    assert_eq!(root.entries(), [".copy.tb5-partial"]);
}

/// Stands for a full disk and a quota: it needs no privileges, and holds for root.
///
/// Catches a rest that is kept although there is no room, and a promise of either side to continue it.
#[test]
fn a_receiver_that_reaches_a_limit_keeps_nothing() {
    let (folder, root) = (Folder::new(), Folder::new());
    File::create(folder.path("source")).unwrap().set_len(1 << 40).unwrap();
    let listener = Listener::start(&root.path(""), &[]);
    limit_file_size(&listener.running, 64 << 10);
    let sent = send(&listener, &folder.path("source"), "copy");
    let received = listener.running.finish();
    assert_failed(
        &sent,
        1,
        &[
            "); the file that did not fit is not kept: copy again once there is room",
            "the other side may not write so long a file: its output says more",
        ],
    );
    assert!(!stderr(&sent).contains("what was kept"), "{}", stderr(&sent));
    assert_failed(
        &received,
        1,
        &[
            "the file that did not fit is not kept: copy again once there is room",
            "copy: cannot be written: File too large",
        ],
    );
    assert!(!stderr(&received).contains("to continue"), "{}", stderr(&received));
    assert_eq!(root.entries(), [""; 0]);
}

/// Catches a request that cannot be met and leaves something behind, or ends the wait for the next one.
#[test]
fn a_destination_below_a_file_is_refused_at_both_sides() {
    let (folder, root) = (with_source(&noise(1000, 3)), Folder::new());
    root.write("file", "text");
    let listener = Listener::start(&root.path(""), &[]);
    assert_failed(&send(&listener, &folder.path("source"), "file/x"), 1, &["127.0.0.1: the other side "]);
    assert_eq!(root.entries(), ["file"]);
    assert_code(&send(&listener, &folder.path("source"), "x"), 0);
    let received = listener.running.finish();
    assert_code(&received, 0);
    assert!(stderr(&received).contains("file"), "{}", stderr(&received));
}

/// Catches a sender that pads or hangs when its source ends early, and a receiver that completes the file.
#[test]
fn a_source_that_is_truncated_while_it_is_sent_fails_at_both_sides() {
    let (folder, root) = (Folder::new(), Folder::new());
    let source = File::create(folder.path("source")).unwrap();
    source.set_len(1 << 40).unwrap();
    let listener = Listener::start(&root.path(""), &[]);
    let mut command = tool();
    command.args(listener.send(&[])).arg(folder.path("source")).arg("127.0.0.1:copy");
    let sender = Running::start(command.stdout(Stdio::piped()).stderr(Stdio::piped()));
    super::under_way(&root);
    source.set_len(0).unwrap();
    assert_failed(&sender.finish(), 1, &["source: the file changed while it was copied"]);
    assert_failed(
        &listener.running.finish(),
        1,
        &["the copy is not complete", "the other side has given up"],
    );
    // What has arrived is compared with the source by the next copy.
    assert_eq!(root.entries(), [".copy.tb5-partial"]);
}

/// Catches a sender that does not name the file that it cannot read, and a receiver that leaves an empty file, or waits.
#[test]
fn a_source_that_cannot_be_read_fails_at_both_sides() {
    let root = Folder::new();
    let listener = Listener::start(&root.path(""), &[]);
    // No process can read the first byte of this file, not even one of root.
    let sent = send(&listener, Path::new("/proc/self/mem"), "copy");
    assert_failed(&sent, 1, &["/proc/self/mem: cannot be read: Input/output error"]);
    let received = listener.running.finish();
    assert_failed(
        &received,
        1,
        &["the copy is not complete (", "the other side has given up", "); copy again"],
    );
    assert!(!stderr(&received).contains("to continue"), "{}", stderr(&received));
    assert_eq!(root.entries(), [""; 0]);
}

/// Catches a command that its own signal kills when a file reaches the limit of file size.
#[test]
fn a_command_that_reaches_the_limit_of_file_size_fails() {
    let folder = Folder::new();
    let plan = folder.path("plan");
    let output = program("sh")
        .args(["-c", "ulimit -f 0; exec \"$0\" topo draw ring:4 --out \"$1\"", env!("CARGO_BIN_EXE_tb5")])
        .arg(&plan)
        .output()
        .unwrap();
    assert_failed(&output, 1, &["plan: cannot be written: File too large"]);
    assert_eq!(folder.entries(), [""; 0]);
}

/// Catches a copy that has certainly failed and is called unconfirmed, and a file of this side that is attributed to the other one.
#[test]
fn a_source_that_grows_while_it_is_sent_fails_at_both_sides() {
    let (folder, root) = (super::with_hole(1 << 30), Folder::new());
    let listener = Listener::start(&root.path(""), &[]);
    let mut command = tool();
    command.args(listener.send(&[])).arg(folder.path("source")).arg("127.0.0.1:copy");
    let sender = Running::start(command.stdout(Stdio::piped()).stderr(Stdio::piped()));
    super::under_way(&root);
    // The sender cannot come to the end meanwhile.
    listener.running.signal(libc::SIGSTOP);
    File::options().append(true).open(folder.path("source")).unwrap().write_all(b"more").unwrap();
    listener.running.signal(libc::SIGCONT);
    let sent = sender.finish();
    let source = folder.path("source");
    let why = format!(
        "tb5: the copy is not complete ({}: the file changed while it was copied); copy again, and what the other side has kept is not sent again\n",
        source.display()
    );
    assert_failed(&sent, 1, &[&why]);
    assert_failed(&listener.running.finish(), 1, &["the copy is not complete"]);
    assert_eq!(root.entries(), [".copy.tb5-partial"]);
}

/// Regression: a file that was there and complete was reported as one that cannot be written.
///
/// A library that fails to open folders stands for a process that has too many open files.
#[test]
fn a_folder_that_cannot_be_opened_is_reported_before_the_file_appears() {
    const FAILING_OPEN: &str = r#"
        #include <errno.h>
        #include <fcntl.h>
        #include <stdarg.h>
        #include <sys/stat.h>
        #include <sys/syscall.h>
        #include <unistd.h>
        int open64(const char *path, int flags, ...) {
            struct stat found;
            if (!stat(path, &found) && S_ISDIR(found.st_mode)) { errno = EMFILE; return -1; }
            va_list rest;
            va_start(rest, flags);
            mode_t mode = va_arg(rest, mode_t);
            va_end(rest);
            return syscall(SYS_openat, AT_FDCWD, path, flags, mode);
        }
    "#;
    let folder = with_source(b"content");
    folder.directory("inner");
    let library = super::compiled(&folder, FAILING_OPEN);
    let mut command = tool();
    command.arg("copy").arg(folder.path("source")).arg(folder.path("inner/copy")).env("LD_PRELOAD", library);
    assert_refused(&command.output().unwrap(), &folder.path("inner"), "Too many open files");
    assert_eq!(std::fs::read_dir(folder.path("inner")).unwrap().count(), 0);
}

/// Catches names, which a peer may choose, that reach the terminal with their control characters.
#[test]
fn names_in_results_have_no_control_characters() {
    let folder = Folder::new();
    let names = ["from\n\x1b[31m", "to\n\x1b[32m"].map(|name| folder.path(name));
    File::create(&names[0]).unwrap();
    let copied = tb5!["copy", &names[0], &names[1]];
    assert_code(&copied, 0);
    let said = stdout(&copied);
    let row = said.lines().find(|line| line.trim_start().starts_with("copied")).unwrap();
    assert!(row.contains("from") && row.contains("to"), "{said:?}");
    assert!(said.lines().all(|line| line.chars().all(|c| !c.is_control())), "{said:?}");

    let traced = tb5!["sim", "trace", SCENARIO, "--chrome", &names[1]];
    assert_code(&traced, 0);
    let said = stdout(&traced);
    assert!(said.contains("chrome trace: ") && !said.contains('\x1b'), "{said:?}");
    let demonstrated = tb5!["demo", "--out", &names[1]];
    assert_code(&demonstrated, 0);
    let said = stdout(&demonstrated);
    assert!(said.contains("report: ") && !said.contains('\x1b'), "{said:?}");
}
