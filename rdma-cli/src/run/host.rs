//! The program of a host and the processes that it starts

use std::ffi::{OsStr, OsString};
use std::io::{self, Write as _};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};

use rustix::process::{Pid, Signal, WaitOptions, kill_process_group, test_kill_process_group, waitpgid};

use super::output::{Relay, Stream};
use crate::signals::exit_code;

/// The program of a host; its process group is killed when this is dropped
#[derive(Debug)]
pub(super) struct Host {
    pub(super) name: String,
    child: Child,
    /// The exit status, once the program has ended.
    pub(super) ended: Option<ExitStatus>,
    /// Whether processes of the group may still exist.
    has_group: bool,
    guard: Option<Guard>,
}

impl Host {
    /// Starts a program, in a process group of its own
    pub(super) fn start(
        name: &str,
        number: usize,
        words: &[OsString],
        set: impl FnOnce(&mut Command),
        relay: &Relay,
        out: Stream,
    ) -> io::Result<Self> {
        let [program, arguments @ ..] = words else { return Err(io::ErrorKind::InvalidInput.into()) };
        let mut command = Command::new(program);
        command.args(arguments).process_group(0);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        set(&mut command);
        let child = command.spawn()?;
        let mut host = Self { name: name.to_owned(), child, ended: None, has_group: true, guard: None };
        host.guard = Some(Guard::set(host.pid())?);
        if let (Some(stdout), Some(stderr)) = (host.child.stdout.take(), host.child.stderr.take()) {
            relay.begin(stdout, out, name, number)?;
            relay.begin(stderr, Stream::Stderr, name, number)?;
        }
        Ok(host)
    }

    /// The processes that this one waits for when the host is dropped
    pub(super) fn children(&self) -> impl Iterator<Item = u32> {
        let program = self.ended.is_none().then(|| self.pid());
        program.into_iter().chain(self.guard.iter().map(|guard| guard.0.id()))
    }

    pub(super) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Polls for the end of the program; true only once
    pub(super) fn has_ended_now(&mut self) -> bool {
        if self.ended.is_some() {
            return false;
        }
        // Waiting for a child fails only if it was waited for elsewhere.
        self.ended = self.child.try_wait().ok().flatten();
        if self.ended.is_none() {
            return false;
        }
        self.reap_group();
        true
    }

    /// Reaps orphans of the group that have ended, and returns whether a process of the group exists
    pub(super) fn reap_group(&mut self) -> bool {
        // Before its end, the program would lose its exit status.
        if self.has_group && self.ended.is_some() {
            while let Ok(Some(_)) = waitpgid(self.group(), WaitOptions::NOHANG) {}
            // The system does not reuse the number of a group while one of its processes exists.
            if test_kill_process_group(self.group()).is_err() {
                self.has_group = false;
                self.guard = None;
            }
        }
        self.has_group
    }

    /// Sends a signal to the process group
    pub(super) fn signal(&self, signal: Signal) {
        if self.has_group {
            // It fails if the group has ended.
            let _ = kill_process_group(self.group(), signal);
        }
    }

    /// The process group of the program, which has the number of the program
    fn group(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    /// The exit code as a shell reports it: that of the program, or 128 plus the signal
    pub(super) fn code(&self) -> Option<u8> {
        let ended = self.ended?;
        // The system keeps eight bits of an exit code.
        ended.code().map(|code| code as u8).or_else(|| ended.signal().map(exit_code))
    }

    /// The signal that has ended the program
    pub(super) fn ended_by(&self) -> Option<i32> {
        self.ended.and_then(|status| status.signal())
    }
}

/// Why a program cannot be started, with what to do where the reason of the system misleads
pub(super) fn not_started(program: &OsStr, error: &io::Error) -> String {
    let (path, name) = (Path::new(program), program.display());
    let is_name = !program.as_bytes().contains(&b'/');
    let why = match error.kind() {
        _ if path.is_dir() => "it is a directory".to_owned(),
        io::ErrorKind::NotFound if is_name && path.exists() => {
            format!("it is not in PATH; the file of that name here is ./{name}")
        }
        io::ErrorKind::NotFound if is_name => "it is not in PATH".to_owned(),
        io::ErrorKind::PermissionDenied if path.is_file() => {
            format!(
                "it is not executable: make it so with chmod +x {name}, or write the program that reads it first"
            )
        }
        _ => error.to_string(),
    };
    format!("{:?} cannot be started: {why}", program.to_string_lossy())
}

impl Drop for Host {
    fn drop(&mut self) {
        self.signal(Signal::KILL);
        if self.ended.is_none() {
            // The program was killed just now; waiting for it cannot fail.
            let _ = self.child.wait();
        }
    }
}

/// A shell that kills a process group if the tool is killed
#[derive(Debug)]
struct Guard(Child);

impl Guard {
    fn set(group: u32) -> io::Result<Self> {
        let mut command = Command::new("/bin/sh");
        // The read fails when the tool ends and its end of the pipe is closed.
        command.args(["-c", r#"read -r _ || kill -s KILL -- "-$1""#, "tb5-guard", &group.to_string()]);
        command.env_clear().process_group(0);
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        command.spawn().map(Self)
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        // If the write fails, the shell kills a group that is being killed or does not exist.
        let _ = self.0.stdin.take().map(|mut stdin| stdin.write_all(b"\n"));
        let _ = self.0.wait();
    }
}
