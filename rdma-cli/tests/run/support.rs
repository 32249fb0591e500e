//! A run, and whether anything is left of it

use std::ffi::OsStr;
use std::fs;
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::sleep;
use std::time::Duration;

use serde_json::Value;

pub(crate) fn tb5() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tb5"));
    command.stdin(Stdio::null());
    command
}

/// A run of its own name, of which nothing must be left
pub(crate) struct Run {
    pub(crate) name: String,
    pub(crate) command: Command,
}

impl Run {
    pub(crate) fn new<S: AsRef<OsStr>>(arguments: impl IntoIterator<Item = S>) -> Self {
        // One that hangs fails, rather than the test.
        Self::limited("300s", arguments)
    }

    pub(crate) fn limited<S: AsRef<OsStr>>(timeout: &str, arguments: impl IntoIterator<Item = S>) -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("test-{}-{number}", std::process::id());
        let mut command = tb5();
        command.args(["run", "--name", &name, "--timeout", timeout]).args(arguments);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        Self { name, command }
    }

    /// The same command for each host
    pub(crate) fn shell(hosts: &str, script: &str) -> Self {
        Self::new(["--hosts", hosts, "--", "sh", "-c", script])
    }

    pub(crate) fn output(mut self) -> Output {
        let output = self.command.output().unwrap();
        self.assert_nothing_is_left();
        output
    }

    pub(crate) fn directory(&self) -> PathBuf {
        // SAFETY: the call has no preconditions.
        #[allow(unsafe_code)]
        let user = unsafe { libc::geteuid() };
        PathBuf::from(format!("/dev/shm/rdma-sim-{user}")).join(&self.name)
    }

    /// The processes that were started with this fabric in their environment
    pub(crate) fn processes(&self) -> Vec<String> {
        let fabric = format!("RDMA_SIM_FABRIC={}", self.name).into_bytes();
        let processes = fs::read_dir("/proc").unwrap().flatten();
        let processes = processes.filter(|process| {
            let environment = fs::read(process.path().join("environ")).unwrap_or_default();
            environment.split(|byte| *byte == 0).any(|variable| variable == fabric)
        });
        processes.map(|process| process.file_name().into_string().unwrap()).collect()
    }

    pub(crate) fn assert_nothing_is_left(&self) {
        assert!(!self.directory().exists(), "{} is left", self.directory().display());
        self.assert_no_process_is_left();
    }

    pub(crate) fn assert_no_process_is_left(&self) {
        // Who was killed may take a moment to go.
        eventually(|| self.processes().is_empty());
    }

    /// What has been sent, while it is known
    pub(crate) fn sent(&self) -> Value {
        let output = tb5().args(["--json", "fabric", &self.name]).output().unwrap();
        serde_json::from_slice::<Value>(&output.stdout).map_or(Value::Null, |shown| shown["hosts"].clone())
    }

    pub(crate) fn fabric(&self, words: &[&str]) -> Value {
        json(&tb5().args(["--json", "fabric", &self.name]).args(words).output().unwrap())
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
    panic!("it has not happened");
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

pub(crate) fn json(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| {
        panic!("{error}: {}{}", text(&output.stdout), text(&output.stderr));
    })
}

#[track_caller]
pub(crate) fn assert_code(output: &Output, code: i32) {
    assert_eq!(output.status.code(), Some(code), "{}{}", text(&output.stdout), text(&output.stderr));
}

/// The lines of a host, without its prefix
pub(crate) fn lines_of(output: &[u8], host: &str) -> Vec<String> {
    let prefix = format!("{host} | ");
    text(output).lines().filter_map(|line| line.strip_prefix(&prefix)).map(str::to_owned).collect()
}

pub(crate) fn free_port() -> String {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port().to_string()
}

/// A server and its client, with a port of their own
pub(crate) fn pair(options: &[&str], program: &[&str]) -> Run {
    let port = free_port();
    let words = [program, &["-p", &port]].concat();
    let all = [options, &["--hosts", "2", "--"], &words, &[":"], &words, &["localhost"]].concat();
    Run::new(all)
}

pub(crate) fn signal(child: &Child, signal: i32) {
    // SAFETY: the process is a child that was not waited for.
    #[allow(unsafe_code)]
    let sent = unsafe { libc::kill(child.id() as i32, signal) };
    assert_eq!(sent, 0);
}
