//! The program of a host, and whatever it starts

use std::ffi::OsString;
use std::io::{self, Write as _};
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::process::{Child, Command, ExitStatus, Stdio};

use super::output::{Relay, Stream};

/// The program of a host; whatever it has started is killed when this is dropped
#[derive(Debug)]
pub(super) struct Host {
    pub(super) name: String,
    child: Child,
    /// How the program has ended.
    pub(super) ended: Option<ExitStatus>,
    /// Some of what it started may still be there.
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

    pub(super) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Whether the program has ended since this was asked last
    pub(super) fn has_ended_now(&mut self) -> bool {
        if self.ended.is_some() {
            return false;
        }
        // It is a child, and waited for here only: there is no error.
        self.ended = self.child.try_wait().ok().flatten();
        if self.ended.is_none() {
            return false;
        }
        // While a process of the group lives, the number of the group is nobody else's.
        if !self.is_there() {
            self.has_group = false;
            self.guard = None;
        }
        true
    }

    /// Whether the program or something that it has started is there
    pub(super) fn is_there(&self) -> bool {
        self.has_group && signal_group(self.pid(), 0)
    }

    /// Sends a signal to the program and to what it has started
    pub(super) fn signal(&self, signal: i32) {
        if self.has_group {
            signal_group(self.pid(), signal);
        }
    }

    /// How the program has ended, as shells say it: 0, its code, or 128 and the signal
    pub(super) fn code(&self) -> Option<u8> {
        let ended = self.ended?;
        let code = ended.code().or_else(|| ended.signal().map(|signal| 128 + signal));
        // Systems keep eight bits of it.
        code.map(|code| code as u8)
    }

    /// The signal that has ended the program
    pub(super) fn ended_by(&self) -> Option<i32> {
        self.ended.and_then(|status| status.signal())
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        self.signal(libc::SIGKILL);
        if self.ended.is_none() {
            // It was killed just now.
            let _ = self.child.wait();
        }
    }
}

#[allow(unsafe_code, reason = "no safe interface signals a process group")]
fn signal_group(group: u32, signal: i32) -> bool {
    let Ok(group) = i32::try_from(group) else { return false };
    // SAFETY: a signal to a process group has no preconditions; one that is not there is not found.
    unsafe { libc::kill(-group, signal) == 0 }
}

/// Kills a process group if the tool ends without having done so, in whatever way: a shell that waits for that
#[derive(Debug)]
struct Guard(Child);

impl Guard {
    fn set(group: u32) -> io::Result<Self> {
        let mut command = Command::new("/bin/sh");
        // The pipe ends with the tool.
        command.args(["-c", r#"read -r _ || kill -s KILL -- "-$1""#, "tb5-guard", &group.to_string()]);
        command.env_clear().process_group(0);
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        command.spawn().map(Self)
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        // If it is not told, it kills a group that is about to be killed, or is not there.
        let _ = self.0.stdin.take().map(|mut stdin| stdin.write_all(b"\n"));
        let _ = self.0.wait();
    }
}
