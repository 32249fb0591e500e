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
pub(super) fn rope(path: &Path) -> io::Result<File> {
    // Open for both: without a listener, writing would send a signal that ends programs in C.
    OpenOptions::new().read(true).write(true).custom_flags(libc::O_NONBLOCK).open(path)
}

pub(super) fn pull(rope: &mut File) {
    // A full pipe will be heard; one without a listener need not be.
    let _ = rope.write(&[1]);
}

/// The end that listens
pub(super) struct Bell(File);

impl Bell {
    pub(super) fn listen(path: &Path) -> io::Result<Self> {
        // Open for both, so that it never ends.
        OpenOptions::new().read(true).write(true).custom_flags(libc::O_NONBLOCK).open(path).map(Self)
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
