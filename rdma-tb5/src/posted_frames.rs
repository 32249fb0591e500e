//! The frames in flight on one queue of a queue pair
//!
//! Counted here because the provider does not refuse on every Mac what exceeds its ring: it has been reported to accept such a post and
//! to corrupt data.

use crate::sync::atomic::{AtomicU16, AtomicU32, Ordering};

/// A count of the frames of posted requests that have not completed
///
/// One thread at a time posts and one thread at a time polls, as the callers promise; the two may run at once. The polling thread only
/// counts completions. The posting thread frees their frames, and only when the space seems to be used up.
#[derive(Debug, Default)]
pub(crate) struct PostedFrames {
    capacity: u32,
    /// The length of `requests` minus one; the length is a power of two.
    mask: u32,
    /// The frames of each request, at its number modulo the length.
    requests: Box<[AtomicU16]>,
    /// Requests posted. Written by the posting thread.
    posted: AtomicU32,
    /// Frames of the requests from `freed` to `posted`. Written by the posting thread.
    used: AtomicU32,
    /// Requests whose frames were freed. Written by the posting thread.
    freed: AtomicU32,
    /// Completions that were taken into account in `freed`. Written by the posting thread.
    settled: AtomicU32,
    /// Completions polled. Written by the polling thread.
    completed: AtomicU32,
}

/// The bit of an entry in `requests` that marks a request without a completion of its own.
const UNSIGNALED: u16 = 1 << 15;

impl PostedFrames {
    pub(crate) fn new(capacity: u32) -> Self {
        let len = capacity.next_power_of_two().max(1);
        Self {
            capacity,
            mask: len - 1,
            requests: (0..len).map(|_| AtomicU16::new(0)).collect(),
            ..Self::default()
        }
    }

    pub(crate) fn capacity(&self) -> u32 {
        self.capacity
    }

    /// Whether `frames` more fit; called by the posting thread
    #[inline]
    pub(crate) fn fits(&self, frames: u32) -> bool {
        self.used.load(Ordering::Relaxed) + frames <= self.capacity || self.settle() + frames <= self.capacity
    }

    /// Adds a request of `frames` frames that is about to be posted; `is_signaled` if it will have a completion of its own
    #[inline]
    pub(crate) fn post(&self, frames: u32, is_signaled: bool) {
        let flag = if is_signaled { 0 } else { UNSIGNALED };
        let number = self.posted.load(Ordering::Relaxed);
        self.request(number).store(frames as u16 | flag, Ordering::Relaxed);
        self.used.store(self.used.load(Ordering::Relaxed) + frames, Ordering::Relaxed);
        self.posted.store(number.wrapping_add(1), Ordering::Relaxed);
    }

    /// Removes the request that was just added, because the provider refused it
    #[cold]
    pub(crate) fn withdraw(&self, frames: u32) {
        let number = self.posted.load(Ordering::Relaxed);
        self.used.store(self.used.load(Ordering::Relaxed) - frames, Ordering::Relaxed);
        self.posted.store(number.wrapping_sub(1), Ordering::Relaxed);
    }

    /// Counts a completion, which is that of the oldest signaled request; called by the polling thread
    #[inline]
    pub(crate) fn complete(&self) {
        let completed = self.completed.load(Ordering::Relaxed);
        self.completed.store(completed.wrapping_add(1), Ordering::Relaxed);
    }

    /// Frees the frames of completed requests and of the unsignaled ones before them; returns the frames still in use
    #[inline(never)]
    fn settle(&self) -> u32 {
        let completed = self.completed.load(Ordering::Relaxed);
        let mut left = completed.wrapping_sub(self.settled.load(Ordering::Relaxed));
        let posted = self.posted.load(Ordering::Relaxed);
        let mut number = self.freed.load(Ordering::Relaxed);
        let mut used = self.used.load(Ordering::Relaxed);
        while left > 0 && number != posted {
            let request = self.request(number).load(Ordering::Relaxed);
            number = number.wrapping_add(1);
            used -= u32::from(request & !UNSIGNALED);
            if request & UNSIGNALED == 0 {
                left -= 1;
            }
        }
        self.settled.store(completed, Ordering::Relaxed);
        self.freed.store(number, Ordering::Relaxed);
        self.used.store(used, Ordering::Relaxed);
        used
    }

    #[inline]
    fn request(&self, number: u32) -> &AtomicU16 {
        &self.requests[(number & self.mask) as usize]
    }
}
