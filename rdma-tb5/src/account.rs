//! Frames in flight on one queue of a queue pair
//!
//! Counted here because the provider does not refuse what exceeds its ring on every Mac: it has been seen to take it and to
//! damage the data.

use std::sync::atomic::{AtomicU16, AtomicU32, Ordering};

/// Frames of posted requests, in order
///
/// Posted by one thread at a time and retired by one thread at a time, as the callers promise; the two may be different. Who polls
/// only counts; what that has freed is found out by who posts, and not before the space seems to be used up.
#[derive(Debug)]
pub(crate) struct Account {
    capacity: u32,
    /// One less than the length of `requests`.
    mask: u32,
    /// Frames of each request, by its number modulo the length.
    requests: Box<[AtomicU16]>,
    /// Requests that were posted, and the frames of those that are not known to have ended. Written by who posts.
    posted: AtomicU32,
    used: AtomicU32,
    /// Requests that are known to have ended, and the completions that told so. Written by who posts.
    ended: AtomicU32,
    counted: AtomicU32,
    /// Completions. Written by who polls.
    completed: AtomicU32,
}

/// Marks a request without a completion of its own.
const SILENT: u16 = 1 << 15;

impl Account {
    pub(crate) fn new(capacity: u32) -> Self {
        let len = capacity.next_power_of_two().max(1);
        Self {
            capacity,
            mask: len - 1,
            requests: (0..len).map(|_| AtomicU16::new(0)).collect(),
            posted: AtomicU32::new(0),
            used: AtomicU32::new(0),
            ended: AtomicU32::new(0),
            counted: AtomicU32::new(0),
            completed: AtomicU32::new(0),
        }
    }

    pub(crate) fn capacity(&self) -> u32 {
        self.capacity
    }

    /// Whether `frames` more fit; asked by who posts
    #[inline]
    pub(crate) fn fits(&self, frames: u32) -> bool {
        self.used.load(Ordering::Relaxed) + frames <= self.capacity || self.settle() + frames <= self.capacity
    }

    /// A request of `frames` frames is about to be posted; `signaled` if it will have a completion of its own
    #[inline]
    pub(crate) fn post(&self, frames: u32, signaled: bool) {
        let silent = if signaled { 0 } else { SILENT };
        let number = self.posted.load(Ordering::Relaxed);
        self.request(number).store(frames as u16 | silent, Ordering::Relaxed);
        self.used.store(self.used.load(Ordering::Relaxed) + frames, Ordering::Relaxed);
        self.posted.store(number.wrapping_add(1), Ordering::Relaxed);
    }

    /// The request that was just announced was not taken
    #[cold]
    pub(crate) fn withdraw(&self, frames: u32) {
        let number = self.posted.load(Ordering::Relaxed);
        self.used.store(self.used.load(Ordering::Relaxed) - frames, Ordering::Relaxed);
        self.posted.store(number.wrapping_sub(1), Ordering::Relaxed);
    }

    /// The oldest request that has a completion has completed, and with it the silent ones before it
    #[inline]
    pub(crate) fn retire(&self) {
        let completed = self.completed.load(Ordering::Relaxed);
        self.completed.store(completed.wrapping_add(1), Ordering::Relaxed);
    }

    /// Frees what has ended, and tells what is still used
    #[inline(never)]
    fn settle(&self) -> u32 {
        let completed = self.completed.load(Ordering::Relaxed);
        let mut left = completed.wrapping_sub(self.counted.load(Ordering::Relaxed));
        let posted = self.posted.load(Ordering::Relaxed);
        let mut number = self.ended.load(Ordering::Relaxed);
        let mut used = self.used.load(Ordering::Relaxed);
        while left > 0 && number != posted {
            let request = self.request(number).load(Ordering::Relaxed);
            number = number.wrapping_add(1);
            used -= u32::from(request & !SILENT);
            if request & SILENT == 0 {
                left -= 1;
            }
        }
        self.counted.store(completed, Ordering::Relaxed);
        self.ended.store(number, Ordering::Relaxed);
        self.used.store(used, Ordering::Relaxed);
        used
    }

    #[inline]
    fn request(&self, number: u32) -> &AtomicU16 {
        &self.requests[(number & self.mask) as usize]
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn frames_are_counted_as_in_a_queue(
            capacity in 1u32..40,
            ops in prop::collection::vec(prop::option::of((1u32..12, any::<bool>())), 0..200),
        ) {
            let account = Account::new(capacity);
            let mut queue = std::collections::VecDeque::new();
            for op in ops {
                match op {
                    Some((frames, signaled)) => {
                        let fits = queue.iter().map(|(frames, _)| frames).sum::<u32>() + frames <= capacity;
                        prop_assert_eq!(account.fits(frames), fits);
                        if fits {
                            account.post(frames, signaled);
                            queue.push_back((frames, signaled));
                            if frames == 11 {
                                account.withdraw(frames);
                                queue.pop_back();
                            }
                        }
                    }
                    // Only what is there completes, and takes the silent ones before it along.
                    None => if let Some(at) = queue.iter().position(|(_, signaled)| *signaled) {
                        account.retire();
                        queue.drain(..=at);
                    }
                }
            }
        }
    }
}
