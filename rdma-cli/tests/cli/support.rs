//! Starting `tb5` and other programs, and reading what they print

#![allow(unsafe_code, reason = "calls of libc")]

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::ops::{Deref, DerefMut};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::thread::sleep;
use std::time::Duration;

use serde_json::Value;
use tempfile::TempDir;

/// The output of `tb5` with these arguments
macro_rules! tb5 {
    ($($arg:expr),* $(,)?) => {
        $crate::support::tool()$(.arg($arg))*.output().expect("tb5 starts")
    };
}

/// `tb5`, without arguments yet
pub(crate) fn tool() -> Command {
    program(env!("CARGO_BIN_EXE_tb5"))
}

/// The simulated provider, which cargo built beside this test
pub(crate) fn simulated_provider() -> PathBuf {
    let name = format!("{}rdma{}", std::env::consts::DLL_PREFIX, std::env::consts::DLL_SUFFIX);
    std::env::current_exe().unwrap().parent().unwrap().join(name)
}

/// A program that reads nothing and ends with the test
///
/// The test may have been started where SIGINT and SIGHUP are ignored, as `nohup` and background jobs of a script do: the program
/// starts with the default actions, so that a signal which a test sends has its effect.
pub(crate) fn program(name: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(name);
    command.stdin(Stdio::null());
    // SAFETY: the closure calls functions that are allowed between fork and exec, and touches no memory.
    unsafe { command.pre_exec(reset_signals) };
    command
}

fn reset_signals() -> io::Result<()> {
    for signal in [libc::SIGHUP, libc::SIGINT, libc::SIGQUIT, libc::SIGTERM] {
        // SAFETY: the default action involves no function of this process.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
    }
    #[cfg(target_os = "linux")]
    // SAFETY: the call takes a number and no pointers.
    unsafe {
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL)
    };
    Ok(())
}

/// A program that runs; it is killed when this is dropped
#[derive(Debug)]
pub(crate) struct Running(Option<Child>);

impl Running {
    pub(crate) fn start(command: &mut Command) -> Self {
        Self(Some(command.spawn().expect("the program starts")))
    }

    pub(crate) fn signal(&self, signal: i32) {
        // SAFETY: the call has no preconditions; the process was not waited for, so the number is still its own.
        let sent = unsafe { libc::kill(self.id() as i32, signal) };
        assert_eq!(sent, 0);
    }

    #[cfg(target_os = "linux")]
    pub(crate) fn has_ended(&mut self) -> bool {
        self.try_wait().unwrap().is_some()
    }

    /// Waits for the end, and returns what the program printed since
    pub(crate) fn finish(mut self) -> Output {
        self.0.take().expect("taken here only").wait_with_output().unwrap()
    }
}

impl Deref for Running {
    type Target = Child;

    fn deref(&self) -> &Child {
        self.0.as_ref().expect("taken by `finish` only")
    }
}

impl DerefMut for Running {
    fn deref_mut(&mut self) -> &mut Child {
        self.0.as_mut().expect("taken by `finish` only")
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(child) = &mut self.0 {
            // Both fail only if the process has ended and was waited for.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Waits for something that happens for certain, however slow the machine
#[track_caller]
pub(crate) fn eventually(mut is_so: impl FnMut() -> bool) {
    for _ in 0..12_000 {
        if is_so() {
            return;
        }
        sleep(Duration::from_millis(10));
    }
    panic!("it did not happen within two minutes");
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

pub(crate) fn stdout(output: &Output) -> String {
    text(&output.stdout)
}

pub(crate) fn stderr(output: &Output) -> String {
    text(&output.stderr)
}

/// The one JSON object that a program printed
#[track_caller]
pub(crate) fn json(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{error}: {}{}", stdout(output), stderr(output)))
}

pub(crate) fn keys(object: &Value) -> Vec<&str> {
    object.as_object().unwrap().keys().map(String::as_str).collect()
}

#[track_caller]
pub(crate) fn assert_code(output: &Output, code: i32) {
    assert_eq!(output.status.code(), Some(code), "{}{}", stdout(output), stderr(output));
}

/// Asserts the exit code, and that the message names the cause
#[track_caller]
pub(crate) fn assert_failed(output: &Output, code: i32, causes: &[&str]) {
    let message = stderr(output);
    assert_code(output, code);
    for cause in causes {
        assert!(message.contains(cause), "{cause:?} is not in: {message}");
    }
    assert!(!message.contains("panicked"), "{message}");
}

/// Asserts that `path` was refused with exit code 1, and why
#[track_caller]
pub(crate) fn assert_refused(output: &Output, path: &Path, why: &str) {
    assert_failed(output, 1, &[path.to_str().unwrap(), why]);
}

/// A folder of its own, removed with the value
#[derive(Debug)]
pub(crate) struct Folder(TempDir);

impl Folder {
    pub(crate) fn new() -> Self {
        Self(TempDir::new().unwrap())
    }

    pub(crate) fn path(&self, name: impl AsRef<Path>) -> PathBuf {
        self.0.path().join(name)
    }

    pub(crate) fn write(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        fs::write(self.path(name), content).unwrap();
        self.path(name)
    }

    pub(crate) fn directory(&self, name: &str) -> PathBuf {
        fs::create_dir(self.path(name)).unwrap();
        self.path(name)
    }

    pub(crate) fn pipe(&self, name: &str) -> PathBuf {
        let path = self.path(name);
        assert!(Command::new("mkfifo").arg(&path).status().unwrap().success());
        path
    }

    /// The names in the folder, sorted
    pub(crate) fn entries(&self) -> Vec<String> {
        let entries = fs::read_dir(self.0.path()).unwrap();
        let mut names: Vec<_> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }
}
