//! A named pipe that wakes a process which does not poll

use std::ffi::CString;
use std::fs::{File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// One end of a pipe; both ends are alike
///
/// Each is open for reading and for writing: a program would be killed for writing to a pipe that no process reads.
pub(super) struct WakePipe(File);

impl WakePipe {
    pub(super) fn create(path: &Path) -> io::Result<()> {
        let path = CString::new(path.as_os_str().as_bytes())?;
        // SAFETY: the path ends with a zero.
        match unsafe { libc::mkfifo(path.as_ptr(), 0o600) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }

    pub(super) fn open(path: &Path) -> io::Result<Self> {
        OpenOptions::new().read(true).write(true).custom_flags(libc::O_NONBLOCK).open(path).map(Self)
    }

    /// Notifies the process that waits at `path`, if the pipe exists
    pub(super) fn notify_at(path: &Path) {
        if let Ok(pipe) = Self::open(path) {
            pipe.notify();
        }
    }

    /// Ends the wait of the other end, or the next one
    pub(super) fn notify(&self) {
        // A full pipe notifies already.
        let _ = (&self.0).write(&[1]);
    }

    /// Waits until it is notified, or for `time`
    pub(super) fn wait(&self, time: Duration) {
        // Waits of less than a millisecond would keep a core busy.
        let time = Duration::from_millis(time.as_micros().div_ceil(1000) as u64);
        let timeout = Timespec::try_from(time).ok();
        if poll(&mut [PollFd::new(&self.0, PollFlags::IN)], timeout.as_ref()).is_ok_and(|ready| ready > 0) {
            let mut bytes = [0; 64];
            while (&self.0).read(&mut bytes).is_ok_and(|n| n == bytes.len()) {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Catches a notification that is lost because the wait begins later, a full pipe that blocks the notifier, and an end
    /// that is open for writing alone: the system would kill this process.
    #[test]
    fn a_notification_ends_the_next_wait_and_never_blocks() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("pipe");
        WakePipe::notify_at(&path);
        WakePipe::create(&path).unwrap();
        // As in programs in C; the start of a Rust program has it ignored.
        // SAFETY: no other test of this binary writes to pipes without a reader.
        unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
        let (notifier, sleeper) = (WakePipe::open(&path).unwrap(), WakePipe::open(&path).unwrap());
        notifier.notify();
        sleeper.wait(Duration::from_secs(60));
        drop(sleeper);
        (0..100_000).for_each(|_| notifier.notify());
        WakePipe::open(&path).unwrap().wait(Duration::from_secs(60));
    }
}
