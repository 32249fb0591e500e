//! Processes that are the hosts of a fabric in shared memory
#![allow(unsafe_code, reason = "code between fork and exec is unsafe")]

use std::env;
use std::io::{self, BufRead as _, BufReader, Read, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use rdma_sim_verbs::shared::{Settings, SharedFabric};

/// A fabric with a name of its own, removed with the value
pub struct Hosts {
    /// The fabric
    pub fabric: SharedFabric,
    program: PathBuf,
}

/// A process that is one of the hosts, see `peer.rs`; it is killed when this is dropped, and with the test
pub struct Peer {
    child: Running,
    input: Option<ChildStdin>,
    lines: Receiver<String>,
    name: String,
}

/// A process that does not outlive its handle
#[derive(Debug)]
pub struct Running(pub Child);

impl Drop for Running {
    fn drop(&mut self) {
        // Both fail only if the process was waited for.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Longer than any response takes on a loaded machine
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(60);

/// The provider that cargo built beside the running test
pub fn library() -> PathBuf {
    let name = format!("{}rdma{}", env::consts::DLL_PREFIX, env::consts::DLL_SUFFIX);
    let test = env::current_exe().expect("the test has a path");
    test.parent().expect("the test is in a folder").join(name)
}

/// The lines of `input`, which a thread of their own reads
#[expect(clippy::disallowed_methods, reason = "the reader waits for lines beside what the program does")]
pub fn lines_of(input: impl Read + Send + 'static) -> Receiver<String> {
    let (sender, lines) = channel();
    std::thread::spawn(move || {
        BufReader::new(input).lines().map_while(Result::ok).try_for_each(|line| sender.send(line))
    });
    lines
}

impl Hosts {
    /// A fabric called after `name` and this process, for the peer program at `program`
    pub fn new(name: &str, settings: &Settings, program: impl AsRef<Path>) -> Self {
        let name = format!("{name}-{}", std::process::id());
        let fabric = SharedFabric::create(&name, settings).unwrap_or_else(|error| panic!("{error}"));
        Self { fabric, program: program.as_ref().to_owned() }
    }

    /// A command that runs as the host `name`
    pub fn command(&self, program: impl AsRef<Path>, name: &str) -> Command {
        let mut command = Command::new(program.as_ref());
        die_with_test(&mut command);
        command.env("RDMA_SIM_FABRIC", self.fabric.name()).env("RDMA_SIM_HOST", name);
        command.env("RDMA_PROVIDER", library());
        command
    }

    /// Starts the host `name`
    pub fn start(&self, name: &str) -> Peer {
        let mut command = self.command(&self.program, name);
        let mut child =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("the program starts");
        let (output, input) = (child.stdout.take().expect("the output is piped"), child.stdin.take());
        Peer { child: Running(child), input, lines: lines_of(output), name: name.to_owned() }
    }

    /// Connects new queue pairs of both processes, and returns their numbers
    pub fn connect(
        &self,
        [a, b]: [&mut Peer; 2],
        [device_a, device_b]: [&str; 2],
        frames: u32,
        bytes: usize,
    ) -> [usize; 2] {
        let opened = |peer: &mut Peer, device| {
            let answer = peer.ask(&format!("open {device} {frames} {bytes}"));
            let (number, address) = answer.split_once(' ').expect("a number and an address");
            (number.parse::<usize>().expect("a number"), address.to_owned())
        };
        let ((for_a, address_a), (for_b, address_b)) = (opened(a, device_a), opened(b, device_b));
        a.ask(&format!("connect {for_a} {address_b}"));
        b.ask(&format!("connect {for_b} {address_a}"));
        [for_a, for_b]
    }

    /// Connects both; each sends to the other for ever
    pub fn talk(&self, [a, b]: [&mut Peer; 2], device: &str) -> [usize; 2] {
        let [for_a, for_b] = self.connect([a, b], [device; 2], 255, 1 << 20);
        a.ask(&format!("talk {for_a}"));
        b.ask(&format!("talk {for_b}"));
        [for_a, for_b]
    }
}

/// Kills the process of `command` when the thread of the test ends, in whatever way, on systems that can
fn die_with_test(command: &mut Command) {
    #[cfg(target_os = "linux")]
    {
        use std::os::unix::process::CommandExt as _;
        let set_signal = || {
            // SAFETY: the call takes numbers and no pointers.
            match unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) } {
                0 => Ok(()),
                _ => Err(io::Error::last_os_error()),
            }
        };
        // SAFETY: the closure calls a function that is allowed between fork and exec, and touches no memory.
        unsafe { command.pre_exec(set_signal) };
    }
    #[cfg(not(target_os = "linux"))]
    let _ = command;
}

impl Peer {
    /// Sends a line and waits for the answer
    ///
    /// # Panics
    ///
    /// If the process has ended, or does not answer for a minute.
    pub fn ask(&mut self, line: &str) -> String {
        self.say(line).unwrap_or_else(|error| panic!("{}: {line}: {error}", self.name));
        self.answer().unwrap_or_else(|| panic!("{}: {line}: no answer", self.name))
    }

    /// Sends a line
    ///
    /// # Errors
    ///
    /// `BrokenPipe` if the process has ended.
    pub fn say(&mut self, line: &str) -> io::Result<()> {
        let input = self.input.as_mut().ok_or(io::ErrorKind::BrokenPipe)?;
        writeln!(input, "{line}")
    }

    /// Waits for an answer; `None` if the process has ended, or does not answer for a minute
    pub fn answer(&self) -> Option<String> {
        self.lines.recv_timeout(RESPONSE_TIMEOUT).ok()
    }

    /// How many messages it has received
    pub fn count(&mut self, link: usize) -> u64 {
        self.ask(&format!("count {link}")).parse().expect("a number")
    }

    /// Waits until it has received so many messages more than by now
    pub fn goes_on(&mut self, link: usize, more: u64) {
        let start = self.count(link);
        self.receives(link, start + more);
    }

    /// Waits until it has received so many messages in all
    ///
    /// # Panics
    ///
    /// If that takes longer than half a minute.
    pub fn receives(&mut self, link: usize, wanted: u64) {
        let mut received = 0;
        for _ in 0..6_000 {
            received = self.count(link);
            if received >= wanted {
                return;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        panic!("{}: {received} messages of {wanted} came within half a minute", self.name);
    }

    /// Waits until the process is stopped, on systems that say so
    ///
    /// # Panics
    ///
    /// If that takes longer than a minute.
    pub fn wait_until_stopped(&self) {
        let is_known = Path::new("/proc/self/stat").exists();
        for _ in 0..60_000 {
            if !is_known || self.state() == Some('T') {
                return;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        panic!("{} is not stopped within a minute", self.name);
    }

    /// What the system says of the process: `T` if it is stopped
    pub fn state(&self) -> Option<char> {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.pid())).ok()?;
        stat.rsplit_once(')')?.1.trim().chars().next()
    }

    /// The process ID
    pub fn pid(&self) -> u32 {
        self.child.0.id()
    }

    /// Sends a signal to the process
    pub fn signal(&self, signal: i32) {
        // SAFETY: the call takes numbers and no pointers; the process has not been waited for.
        unsafe { libc::kill(self.pid().cast_signed(), signal) };
    }

    /// Kills the process
    pub fn kill(self) {
        drop(self);
    }

    /// Closes the input of the process, and returns whether it ended successfully
    pub fn end(mut self) -> bool {
        self.input = None;
        self.child.0.wait().is_ok_and(|status| status.success())
    }
}
