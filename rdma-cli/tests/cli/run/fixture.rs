//! A command `tb5 run`, and whether it leaves anything behind

#![allow(unsafe_code, reason = "calls of libc")]

use std::ffi::OsStr;
use std::fs;
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::sync::Once;
use std::sync::atomic::{AtomicU32, Ordering};

use serde_json::Value;

use crate::support::{Running, eventually, json, text, tool};

/// A `tb5 run` whose fabric has a name that no other test uses
pub(crate) struct Run {
    pub(crate) name: String,
    pub(crate) command: Command,
    /// Holds the port of the programs until the run has ended.
    _port: Option<[TcpStream; 2]>,
}

impl Run {
    pub(crate) fn new<S: AsRef<OsStr>>(arguments: impl IntoIterator<Item = S>) -> Self {
        // A run that hangs fails by itself, long before the test harness is stopped.
        Self::limited("300s", arguments)
    }

    pub(crate) fn limited<S: AsRef<OsStr>>(timeout: &str, arguments: impl IntoIterator<Item = S>) -> Self {
        static PROGRAMS: Once = Once::new();
        PROGRAMS.call_once(assert_programs_are_installed);
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("test-{}-{number}", std::process::id());
        let mut command = tool();
        command.args(["run", "--name", &name, "--timeout", timeout]).args(arguments);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        Self { name, command, _port: None }
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

    pub(crate) fn start(&mut self) -> Running {
        Running::start(&mut self.command)
    }

    pub(crate) fn directory(&self) -> PathBuf {
        // SAFETY: the call has no preconditions.
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
        // A process that was killed may take a moment to end.
        eventually(|| self.processes().is_empty());
    }

    /// The hosts with their counters; `null` once the fabric is gone
    pub(crate) fn sent(&self) -> Value {
        let output = tb5!["--json", "fabric", &self.name];
        serde_json::from_slice::<Value>(&output.stdout).map_or(Value::Null, |shown| shown["hosts"].clone())
    }

    pub(crate) fn fabric(&self, words: &[&str]) -> Value {
        json(&tool().args(["--json", "fabric", &self.name]).args(words).output().unwrap())
    }
}

/// Fails at once without the programs for which some tests would wait
fn assert_programs_are_installed() {
    let path = std::env::var_os("PATH").unwrap_or_default();
    for name in ["ibv_devinfo", "ibv_uc_pingpong", "ib_send_lat"] {
        let is_there = std::env::split_paths(&path).any(|folder| folder.join(name).is_file());
        assert!(is_there, "{name} is not in PATH: install Debian's ibverbs-utils and perftest");
    }
}

/// The lines of a host, without its prefix
pub(crate) fn lines_of(output: &[u8], host: &str) -> Vec<String> {
    let prefix = format!("{host} | ");
    text(output).lines().filter_map(|line| line.strip_prefix(&prefix)).map(str::to_owned).collect()
}

/// A TCP port, and a connection that keeps the system from giving it to another program
///
/// A server that sets `SO_REUSEADDR`, as all of these do, may listen on the port of a connection.
fn held_port() -> (String, [TcpStream; 2]) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let connecting = TcpStream::connect(address).unwrap();
    (address.port().to_string(), [connecting, listener.accept().unwrap().0])
}

/// A server and its client, with a port of their own
pub(crate) fn pair(options: &[&str], program: &[&str]) -> Run {
    let (port, connection) = held_port();
    let words = [program, &["-p", &port]].concat();
    let all = [options, &["--hosts", "2", "--"], &words, &[":"], &words, &["localhost"]].concat();
    Run { _port: Some(connection), ..Run::new(all) }
}

/// Programs with a port of their own, in place of `PORT` in their words
pub(crate) fn with_port(options: &[&str], words: &[String]) -> Run {
    let (port, connection) = held_port();
    let options = [options, &["--hosts", "2", "--"]].concat();
    let all =
        options.into_iter().map(str::to_owned).chain(words.iter().map(|word| word.replace("PORT", &port)));
    Run { _port: Some(connection), ..Run::new(all) }
}
