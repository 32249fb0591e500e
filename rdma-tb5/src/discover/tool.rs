use std::fmt;
use std::time::Duration;

use super::Outcome;

/// Something to run and read
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
#[non_exhaustive]
pub enum Tool {
    /// `ibv_devices`: opens no device, so it answers when `ibv_devinfo` hangs
    IbvDevices,
    /// `ibv_devinfo -v`: opens every device, and hangs when the driver is wedged (F53)
    IbvDevinfo,
    /// `ifconfig -a`
    Ifconfig,
    /// `ioclasscount` of the driver's classes
    Ioclasscount,
    /// `networksetup -listallhardwareports`
    Networksetup,
    /// `pmset -g`
    Pmset,
    /// `rdma_ctl status`
    RdmaCtl,
    /// `sw_vers`
    SwVers,
    /// `sysctl -n hw.model`
    Sysctl,
    /// `system_profiler SPThunderboltDataType -json`
    SystemProfiler,
    /// `system_profiler SPThunderboltDataType`, for the services that only the text names
    SystemProfilerText,
}

impl Tool {
    /// All of them
    pub const ALL: [Self; 11] = [
        Self::SwVers,
        Self::Sysctl,
        Self::RdmaCtl,
        Self::SystemProfiler,
        Self::SystemProfilerText,
        Self::Networksetup,
        Self::Ifconfig,
        Self::IbvDevices,
        Self::IbvDevinfo,
        Self::Ioclasscount,
        Self::Pmset,
    ];

    /// The program and its arguments
    pub const fn command(self) -> &'static [&'static str] {
        match self {
            Self::IbvDevices => &["ibv_devices"],
            Self::IbvDevinfo => &["ibv_devinfo", "-v"],
            Self::Ifconfig => &["ifconfig", "-a"],
            Self::Ioclasscount => {
                &["ioclasscount", "AppleThunderboltRDMAProtectionDomain", "AppleThunderboltRDMAQueuePair"]
            }
            Self::Networksetup => &["networksetup", "-listallhardwareports"],
            Self::Pmset => &["pmset", "-g"],
            Self::RdmaCtl => &["rdma_ctl", "status"],
            Self::SwVers => &["sw_vers"],
            Self::Sysctl => &["sysctl", "-n", "hw.model"],
            Self::SystemProfiler => &["system_profiler", "SPThunderboltDataType", "-json"],
            Self::SystemProfilerText => &["system_profiler", "SPThunderboltDataType"],
        }
    }

    /// How long it may take
    pub const fn timeout(self) -> Duration {
        match self {
            Self::SystemProfiler | Self::SystemProfilerText => Duration::from_secs(15),
            _ => Duration::from_secs(5),
        }
    }
}

impl fmt::Display for Tool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.command().join(" "))
    }
}

/// What a tool printed, and how it ended
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Captured {
    /// How it ended
    pub outcome: Outcome,
    /// Standard output
    pub stdout: String,
    /// Standard error, or why it could not be started
    pub stderr: String,
}

#[cfg(unix)]
pub(super) use run::run;
#[cfg(target_os = "macos")]
pub(super) use run::start;

#[cfg(unix)]
mod run {
    use std::ffi::OsStr;
    use std::io::{self, Read};
    use std::process::{Child, Command, Stdio};
    use std::sync::mpsc;
    use std::thread;
    use std::time::Duration;

    use super::Captured;
    use crate::discover::Outcome;
    use crate::discover::parse::MAX_INPUT;

    /// Where Apple keeps its tools, whatever the caller's path is
    const PATH: &str = "/usr/bin:/bin:/usr/sbin:/sbin";

    /// Runs a program, with a bound on its time and on its output
    ///
    /// It may take up to twice `timeout` if it closes its outputs one after the other. One that cannot even be killed (F53: stuck
    /// in the kernel) is left behind, with the thread that reads from it.
    pub(in crate::discover) fn run(program: impl AsRef<OsStr>, args: &[&str], timeout: Duration) -> Captured {
        let mut command = Command::new(program);
        command.args(args).env("PATH", PATH).env("LC_ALL", "C").stdin(Stdio::null());
        let mut child = match command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn() {
            Ok(child) => child,
            Err(error) => {
                let absent = error.kind() == io::ErrorKind::NotFound;
                let outcome = if absent { Outcome::Absent } else { Outcome::Failed };
                return Captured { outcome, stdout: String::new(), stderr: error.to_string() };
            }
        };
        let stdout = reader(child.stdout.take());
        let stderr = reader(child.stderr.take());
        let read = (stdout.recv_timeout(timeout), stderr.recv_timeout(timeout));
        let (Ok(stdout), Ok(stderr)) = read else { return abandon(child, timeout) };
        match ending(&mut child, timeout) {
            Some(true) => Captured { outcome: Outcome::Done, stdout, stderr },
            Some(false) => Captured { outcome: Outcome::Failed, stdout, stderr },
            None => abandon(child, timeout),
        }
    }

    /// Starts something that may never end
    #[expect(clippy::disallowed_methods, reason = "what waits for a wedged driver cannot be ended")]
    pub(in crate::discover) fn start<T: Send + 'static>(
        work: impl FnOnce() -> T + Send + 'static,
    ) -> mpsc::Receiver<T> {
        let (tell, told) = mpsc::channel();
        thread::spawn(move || {
            // Nobody listens any more if it took too long.
            let _ = tell.send(work());
        });
        told
    }

    fn reader(pipe: Option<impl Read + Send + 'static>) -> mpsc::Receiver<String> {
        start(move || {
            let mut bytes = Vec::new();
            if let Some(pipe) = pipe {
                // What came before an error is still worth reading.
                let _ = pipe.take(MAX_INPUT as u64).read_to_end(&mut bytes);
            }
            String::from_utf8_lossy(&bytes).into_owned()
        })
    }

    /// Whether it ended well; `None` if it closed its outputs and did not end
    fn ending(child: &mut Child, timeout: Duration) -> Option<bool> {
        const STEPS: u32 = 100;
        for _ in 0..STEPS {
            match child.try_wait() {
                Ok(Some(status)) => return Some(status.success()),
                Ok(None) => thread::sleep(timeout / STEPS),
                Err(_) => return Some(false),
            }
        }
        None
    }

    fn abandon(mut child: Child, timeout: Duration) -> Captured {
        let _ = child.kill();
        // Collects what is left of it, unless not even that works.
        let _ = ending(&mut child, Duration::from_millis(500));
        let stderr = format!("no answer within {} s", timeout.as_secs_f32());
        Captured { outcome: Outcome::Hung, stdout: String::new(), stderr }
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        const LONG: Duration = Duration::from_secs(60);

        #[test]
        fn a_tool_that_answers_is_read() {
            let captured = run("sh", &["-c", "echo out; echo err >&2"], LONG);
            assert_eq!(captured.outcome, Outcome::Done);
            assert_eq!((captured.stdout.as_str(), captured.stderr.as_str()), ("out\n", "err\n"));
        }

        #[test]
        fn a_tool_that_fails_is_read_too() {
            let captured = run("sh", &["-c", "echo half; exit 3"], LONG);
            assert_eq!((captured.outcome, captured.stdout.as_str()), (Outcome::Failed, "half\n"));
        }

        #[test]
        fn a_tool_that_is_not_there_is_absent() {
            assert_eq!(run("tb5-no-such-tool", &[], LONG).outcome, Outcome::Absent);
        }

        #[test]
        fn a_tool_that_hangs_is_given_up() {
            let captured = run("sleep", &["1000"], Duration::from_millis(50));
            assert_eq!(captured.outcome, Outcome::Hung);
            let closed = run("sh", &["-c", "exec >&- 2>&-; exec sleep 1000"], Duration::from_millis(100));
            assert_eq!(closed.outcome, Outcome::Hung);
        }

        #[test]
        fn a_tool_that_never_stops_talking_is_cut_off() {
            let captured = run("yes", &[], LONG);
            assert_eq!(captured.stdout.len(), MAX_INPUT);
        }
    }
}
