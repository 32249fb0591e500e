//! Completion channels: a descriptor becomes readable when a completion comes that the program has asked for

use std::collections::VecDeque;
use std::io::{self, PipeReader, PipeWriter, Read as _, Write as _};
use std::os::fd::AsRawFd as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Wake;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};

/// Events that the program has not taken, and a pipe with a byte for each
///
/// Programs wait for the descriptor by whatever means they like, or make it nonblocking.
pub(crate) struct Channel {
    /// The completion queues of the events, by the addresses that the program knows.
    events: Mutex<VecDeque<usize>>,
    reading: PipeReader,
    writing: PipeWriter,
}

/// A wait that only looks
const NOW: &Timespec = &Timespec { tv_sec: 0, tv_nsec: 0 };

impl Channel {
    pub(crate) fn new() -> io::Result<Self> {
        let (reading, writing) = io::pipe()?;
        fcntl_setfl(&writing, OFlags::NONBLOCK)?;
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
    ///
    /// Fails if the program has closed the descriptor.
    pub(crate) fn is_blocking(&self) -> io::Result<bool> {
        Ok(!fcntl_getfl(&self.reading)?.contains(OFlags::NONBLOCK))
    }

    /// Adds an event of `queue`
    fn push(&self, queue: usize) {
        let mut events = self.events();
        // A program that asks for events and takes none gets no more than a pipe holds.
        if matches!((&self.writing).write(&[1]), Ok(1)) {
            events.push_back(queue);
        }
    }

    /// Takes an event; waits for one, unless the program has made the descriptor nonblocking
    pub(crate) fn take(&self) -> io::Result<usize> {
        loop {
            if let Some(queue) = self.take_now() {
                return Ok(queue);
            }
            if !self.is_blocking()? {
                return Err(io::Error::from_raw_os_error(libc::EAGAIN));
            }
            self.is_readable(None);
        }
    }

    /// Takes an event and its byte, which only the holder of the lock reads
    fn take_now(&self) -> Option<usize> {
        let mut events = self.events();
        let queue = events.pop_front()?;
        self.take_byte();
        Some(queue)
    }

    /// Takes the byte of an event, unless the program has read it itself
    fn take_byte(&self) {
        if self.is_readable(Some(NOW)) {
            let _ = (&self.reading).read(&mut [0]);
        }
    }

    fn is_readable(&self, timeout: Option<&Timespec>) -> bool {
        poll(&mut [PollFd::new(&self.reading, PollFlags::IN)], timeout) == Ok(1)
    }

    /// Removes the events of a completion queue that is destroyed
    fn remove_queue(&self, queue: usize) {
        let mut events = self.events();
        let before = events.len();
        events.retain(|other| *other != queue);
        for _ in events.len()..before {
            self.take_byte();
        }
    }
}

/// Adds an event to the channel of a completion queue when a completion comes
pub(crate) struct CqNotifier {
    channel: Arc<Channel>,
    queue: usize,
    is_over: AtomicBool,
}

impl CqNotifier {
    pub(crate) fn new(channel: Arc<Channel>, queue: usize) -> Self {
        Self { channel, queue, is_over: AtomicBool::new(false) }
    }

    /// The completion queue is destroyed
    pub(crate) fn end(&self) {
        self.is_over.store(true, Ordering::Release);
        self.channel.remove_queue(self.queue);
    }
}

impl Wake for CqNotifier {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if !self.is_over.load(Ordering::Acquire) {
            self.channel.push(self.queue);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn notifiers(count: usize) -> (Arc<Channel>, Vec<Arc<CqNotifier>>) {
        let channel = Arc::new(Channel::new().unwrap());
        let notifiers = (1..=count).map(|queue| Arc::new(CqNotifier::new(Arc::clone(&channel), queue)));
        let notifiers = notifiers.collect();
        (channel, notifiers)
    }

    /// Catches a write of an event that blocks: the program would hang in its own call.
    #[test]
    fn events_that_are_never_taken_block_no_completion() {
        let (channel, notifiers) = notifiers(1);
        (0..100_000).for_each(|_| notifiers[0].wake_by_ref());
        assert_eq!(channel.take().unwrap(), 1);
        notifiers[0].end();
        assert!(!channel.has_event() && !channel.is_readable(Some(NOW)));
    }

    /// Catches the destruction of a queue that waits for a byte which another thread has read.
    #[test]
    fn queues_end_while_another_thread_takes_events() {
        let (channel, notifiers) = notifiers(20_000);
        std::thread::scope(|scope| {
            let taker = scope.spawn(|| while channel.take().unwrap() != 1 {});
            for notifier in notifiers.iter().rev() {
                notifier.wake_by_ref();
                if notifier.queue != 1 {
                    notifier.end();
                }
            }
            taker.join().unwrap();
        });
        assert!(!channel.has_event() && !channel.is_readable(Some(NOW)));
    }

    #[test]
    fn a_nonblocking_descriptor_is_not_waited_for() {
        let (channel, _) = notifiers(0);
        fcntl_setfl(&channel.reading, OFlags::NONBLOCK).unwrap();
        assert_eq!(channel.take().unwrap_err().raw_os_error(), Some(libc::EAGAIN));
    }
}
