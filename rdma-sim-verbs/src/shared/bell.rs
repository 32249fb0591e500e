//! What wakes a process that does not poll: a named pipe

use std::ffi::CString;
use std::fs::{File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::fd::AsRawFd as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::time::Duration;

pub(super) fn make(path: &Path) -> io::Result<()> {
    let path = CString::new(path.as_os_str().as_bytes())?;
    // SAFETY: the path ends with a zero.
    match unsafe { libc::mkfifo(path.as_ptr(), 0o600) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Rings once, for those who ring seldom
pub(super) fn ring(path: &Path) {
    if let Ok(mut rope) = rope(path) {
        pull(&mut rope);
    }
}

/// What rings a bell
///
/// It is open for reading, too, although nobody reads here: a program would die of writing to a pipe without a reader.
pub(super) fn rope(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).write(true).custom_flags(libc::O_NONBLOCK).open(path)
}

pub(super) fn pull(rope: &mut File) {
    // A full pipe rings as loud as it can.
    let _ = rope.write(&[1]);
}

/// The end that listens
pub(super) struct Bell(File);

impl Bell {
    pub(super) fn listen(path: &Path) -> io::Result<Self> {
        rope(path).map(Self)
    }

    /// Waits until it rings, or for so long
    pub(super) fn wait(&mut self, time: Duration) {
        let mut poll = libc::pollfd { fd: self.0.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        let ms = i32::try_from(time.as_micros().div_ceil(1000)).unwrap_or(i32::MAX);
        // SAFETY: one entry, which is ours.
        if unsafe { libc::poll(&raw mut poll, 1, ms) } > 0 {
            let mut heard = [0; 64];
            while self.0.read(&mut heard).is_ok_and(|n| n == heard.len()) {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Catches a rope that is open for writing alone: this process would be killed by a signal.
    #[test]
    fn ringing_where_nobody_listens_harms_nobody() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("bell");
        make(&path).unwrap();
        // As in programs in C; the tests' own start has it ignored.
        // SAFETY: no other test of this binary writes to pipes.
        unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
        let mut rope = rope(&path).unwrap();
        let bell = Bell::listen(&path).unwrap();
        pull(&mut rope);
        drop(bell);
        (0..100_000).for_each(|_| pull(&mut rope));
        let mut bell = Bell::listen(&path).unwrap();
        bell.wait(Duration::from_secs(60));
    }
}
