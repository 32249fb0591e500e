//! Processes by number and start time, and signals to them
//!
//! The number of a process is used again when the process is gone, and shared memory may hold any number. A process counts as
//! the one that was recorded only if it started when the record says, and a signal goes to that process or to none.

use rustix::process::{Pid, Signal};

/// A process that existed when it was looked up
#[derive(Debug)]
pub(super) struct Process {
    pid: Pid,
    #[cfg(target_os = "linux")]
    descriptor: Option<std::os::fd::OwnedFd>,
}

impl Process {
    /// The process `pid` that started at `started`
    ///
    /// `None` if `pid` is not the number of one process (0 and what is negative as a `pid_t` mean groups of processes, or
    /// all), if there is no such process, or if another process has the number by now.
    pub(super) fn find(pid: u32, started: u64) -> Option<Self> {
        let pid = i32::try_from(pid).ok().and_then(Pid::from_raw)?;
        #[cfg(target_os = "linux")]
        let descriptor = rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty()).ok();
        // Compared while the descriptor is open: from now on it cannot lead to another process.
        let is_same = start_time(pid) == Some(started);
        is_same.then_some(Self {
            pid,
            #[cfg(target_os = "linux")]
            descriptor,
        })
    }

    /// The number and the start time of this process
    pub(super) fn own() -> (u32, u64) {
        (std::process::id(), start_time(rustix::process::getpid()).unwrap_or(0))
    }

    pub(super) fn pid(&self) -> u32 {
        self.pid.as_raw_pid().cast_unsigned()
    }

    /// Sends a signal to the process; one that has ended meanwhile gets none
    pub(super) fn signal(&self, signal: Signal) {
        #[cfg(target_os = "linux")]
        if let Some(descriptor) = &self.descriptor {
            let _ = rustix::process::pidfd_send_signal(descriptor, signal);
            return;
        }
        let _ = rustix::process::kill_process(self.pid, signal);
    }
}

/// When a process started, in ticks since the start of the system
#[cfg(target_os = "linux")]
fn start_time(pid: Pid) -> Option<u64> {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_pid())).ok()?;
    // The name, in parentheses, may hold anything; the start time is the 20th field behind it.
    stat.rsplit_once(')')?.1.split_whitespace().nth(19)?.parse().ok()
}

/// When a process started, in microseconds since 1970
#[cfg(target_os = "macos")]
#[allow(unsafe_code, reason = "no safe interface tells when a process started")]
fn start_time(pid: Pid) -> Option<u64> {
    let mut info = std::mem::MaybeUninit::<libc::proc_bsdinfo>::uninit();
    let size = size_of::<libc::proc_bsdinfo>() as i32;
    // SAFETY: the buffer has the size that is passed.
    let filled = unsafe {
        libc::proc_pidinfo(pid.as_raw_pid(), libc::PROC_PIDTBSDINFO, 0, info.as_mut_ptr().cast(), size)
    };
    if filled != size {
        return None;
    }
    // SAFETY: the call has filled all of it.
    let info = unsafe { info.assume_init() };
    Some(info.pbi_start_tvsec * 1_000_000 + info.pbi_start_tvusec)
}

/// Other systems do not say when a process started: whether it exists is all that is checked
#[cfg(not(any(target_os = "linux", target_os = "macos")))]
fn start_time(pid: Pid) -> Option<u64> {
    rustix::process::test_kill_process(pid).ok().map(|()| 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Catches a signal to all processes, or to a group: shared memory may hold any number.
    #[test]
    fn numbers_that_mean_several_processes_are_no_process() {
        let (own, started) = Process::own();
        assert_eq!(Process::find(own, started).map(|found| found.pid()), Some(own));
        for pid in [0, u32::MAX, u32::MAX - own + 1, 1 << 31, i32::MAX as u32] {
            assert!(Process::find(pid, started).is_none(), "{pid}");
        }
    }

    /// Catches a signal to a process that has the number of one which has ended.
    #[test]
    fn another_process_with_the_same_number_is_not_the_process() {
        let (own, started) = Process::own();
        assert!(Process::find(own, started + 1).is_none());
        assert!(Process::find(1, started).is_none_or(|_| own == 1));
    }
}
