//! Completion channels: a descriptor that becomes readable when a completion has come that was asked for

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Wake;

/// Events that nobody has taken, and a pipe with a byte for each
///
/// Programs wait for the descriptor by whatever means they like, or make it nonblocking.
pub(crate) struct Channel {
    /// The queues that have something to tell, as the program knows them.
    events: Mutex<VecDeque<usize>>,
    reading: File,
    writing: File,
}

impl Channel {
    pub(crate) fn new() -> io::Result<Self> {
        let mut ends = [-1; 2];
        // SAFETY: the place has room for two.
        if unsafe { libc::pipe(ends.as_mut_ptr()) } != 0 {
            return Err(io::Error::last_os_error());
        }
        let [reading, writing] = ends.map(|end| {
            // SAFETY: the descriptor is new and ours.
            let end = unsafe { OwnedFd::from_raw_fd(end) };
            // SAFETY: the descriptor is open.
            unsafe { libc::fcntl(end.as_raw_fd(), libc::F_SETFD, libc::FD_CLOEXEC) };
            File::from(end)
        });
        // SAFETY: the descriptor is open.
        unsafe { libc::fcntl(writing.as_raw_fd(), libc::F_SETFL, libc::O_NONBLOCK) };
        Ok(Self { events: Mutex::default(), reading, writing })
    }

    pub(crate) fn descriptor(&self) -> i32 {
        self.reading.as_raw_fd()
    }

    fn events(&self) -> MutexGuard<'_, VecDeque<usize>> {
        self.events.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether an event waits to be taken
    pub(crate) fn has_event(&self) -> bool {
        !self.events().is_empty()
    }

    /// Whether the program waits in [`take`](Self::take) until there is something
    pub(crate) fn is_blocking(&self) -> bool {
        // SAFETY: the descriptor is open.
        let flags = unsafe { libc::fcntl(self.descriptor(), libc::F_GETFL) };
        flags & libc::O_NONBLOCK == 0
    }

    fn tell(&self, queue: usize) {
        let mut events = self.events();
        // A program that asks again and again and takes nothing fills the pipe: it has more to take than it will.
        if matches!((&self.writing).write(&[1]), Ok(1)) {
            events.push_back(queue);
        }
    }

    /// Takes an event; waits for one, unless the program has made the descriptor nonblocking
    pub(crate) fn take(&self) -> io::Result<usize> {
        loop {
            (&self.reading).read_exact(&mut [0])?;
            // None if its queue is gone.
            if let Some(queue) = self.events().pop_front() {
                return Ok(queue);
            }
        }
    }

    /// A queue is gone: its events are, too
    fn forget(&self, queue: usize) {
        let mut events = self.events();
        let before = events.len();
        events.retain(|other| *other != queue);
        for _ in events.len()..before {
            // There is a byte for each, unless somebody takes it just now.
            let mut poll = libc::pollfd { fd: self.descriptor(), events: libc::POLLIN, revents: 0 };
            // SAFETY: one entry, which is ours.
            if unsafe { libc::poll(&raw mut poll, 1, 0) } == 1 {
                let _ = (&self.reading).read(&mut [0]);
            }
        }
    }
}

/// What happens when a completion comes that was asked for
pub(crate) struct Alarm {
    channel: Arc<Channel>,
    queue: usize,
    is_over: AtomicBool,
}

impl Alarm {
    pub(crate) fn new(channel: Arc<Channel>, queue: usize) -> Self {
        Self { channel, queue, is_over: AtomicBool::new(false) }
    }

    /// The queue is gone
    pub(crate) fn end(&self) {
        self.is_over.store(true, Ordering::Release);
        self.channel.forget(self.queue);
    }
}

impl Wake for Alarm {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if !self.is_over.load(Ordering::Acquire) {
            self.channel.tell(self.queue);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Regression: whoever told of more than a pipe holds waited for ever.
    #[test]
    fn events_that_nobody_takes_do_not_block() {
        let channel = Channel::new().unwrap();
        (0..100_000).for_each(|number| channel.tell(number));
        assert_eq!(channel.take().unwrap(), 0);
        (0..100_000).for_each(|number| channel.forget(number));
        assert!(!channel.has_event());
        channel.tell(7);
        assert_eq!(channel.take().unwrap(), 7);
    }
}
