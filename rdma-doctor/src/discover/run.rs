//! Runs a program with a bound on its time and on its output

use std::ffi::OsStr;
use std::io::{self, Read};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use super::Captured;
use crate::parse::MAX_INPUT;
use crate::report::Outcome;

/// The folders of the system's tools: the PATH of the caller does not change what is run.
const PATH: &str = "/usr/bin:/bin:/usr/sbin:/sbin";

/// Runs a program, with a bound on its time and on its output
///
/// The run takes up to twice `timeout` if the program closes its outputs one after the other. A program that cannot be killed
/// (F53: stuck in the kernel) is left behind, with the thread that reads from it.
pub(super) fn run(program: impl AsRef<OsStr>, args: &[&str], timeout: Duration) -> Captured {
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
    match exit_within(&mut child, timeout) {
        Some(true) => Captured { outcome: Outcome::Done, stdout, stderr },
        Some(false) => Captured { outcome: Outcome::Failed, stdout, stderr },
        None => abandon(child, timeout),
    }
}

/// Runs `work` on a thread of its own, because it may never end; its result arrives over the channel
#[expect(clippy::disallowed_methods, reason = "a thread that waits for a wedged driver cannot be ended")]
pub(super) fn spawn<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> mpsc::Receiver<T> {
    let (result, received) = mpsc::channel();
    thread::spawn(move || {
        // The receiver is gone if the work took too long.
        let _ = result.send(work());
    });
    received
}

fn reader(pipe: Option<impl Read + Send + 'static>) -> mpsc::Receiver<String> {
    spawn(move || {
        let mut bytes = Vec::new();
        if let Some(pipe) = pipe {
            // Bytes that came before a read error are kept.
            let _ = pipe.take(MAX_INPUT as u64).read_to_end(&mut bytes);
        }
        String::from_utf8_lossy(&bytes).into_owned()
    })
}

/// Whether the program ended with success; `None` if it closed its outputs and did not end
fn exit_within(child: &mut Child, timeout: Duration) -> Option<bool> {
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
    // Reaps the process; one that is stuck in the kernel stays.
    let _ = exit_within(&mut child, Duration::from_millis(500));
    let stderr = format!("no answer within {} s", timeout.as_secs_f32());
    Captured { outcome: Outcome::Hung, stdout: String::new(), stderr }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_secs(60);

    #[test]
    fn both_outputs_of_a_tool_are_captured() {
        let captured = run("sh", &["-c", "echo out; echo err >&2"], LONG);
        assert_eq!(captured.outcome, Outcome::Done);
        assert_eq!((captured.stdout.as_str(), captured.stderr.as_str()), ("out\n", "err\n"));
    }

    #[test]
    fn the_output_of_a_tool_that_fails_is_captured() {
        let captured = run("sh", &["-c", "echo half; exit 3"], LONG);
        assert_eq!((captured.outcome, captured.stdout.as_str()), (Outcome::Failed, "half\n"));
    }

    #[test]
    fn a_missing_tool_is_absent() {
        assert_eq!(run("tb5-no-such-tool", &[], LONG).outcome, Outcome::Absent);
    }

    #[test]
    fn a_tool_that_hangs_is_killed_after_its_timeout() {
        let captured = run("sleep", &["1000"], Duration::from_millis(50));
        assert_eq!(captured.outcome, Outcome::Hung);
        let closed = run("sh", &["-c", "exec >&- 2>&-; exec sleep 1000"], Duration::from_millis(100));
        assert_eq!(closed.outcome, Outcome::Hung);
    }

    #[test]
    fn endless_output_is_cut_off() {
        let captured = run("yes", &[], LONG);
        assert_eq!(captured.stdout.len(), MAX_INPUT);
    }
}
