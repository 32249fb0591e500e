//! Frames in flight on one queue of a queue pair
//!
//! Counted here because the provider does not refuse what exceeds its ring on every Mac: it has been seen to take it and to
//! damage the data.

use std::sync::atomic::{AtomicU16, AtomicU32, Ordering};

/// Frames of posted requests, in order
///
/// Posted by one thread at a time and retired by one thread at a time, as the callers promise; the two may be different.
#[derive(Debug)]
pub(crate) struct Account {
    capacity: u32,
    /// Frames of each request, by its number modulo the length.
    requests: Box<[AtomicU16]>,
    /// Written by who posts.
    posted: AtomicU32,
    posted_frames: AtomicU32,
    /// Written by who polls.
    retired: AtomicU32,
    retired_frames: AtomicU32,
}

/// Marks a request without a completion of its own.
const SILENT: u16 = 1 << 15;

impl Account {
    pub(crate) fn new(capacity: u32) -> Self {
        let len = (capacity as usize).next_power_of_two().max(1);
        Self {
            capacity,
            requests: (0..len).map(|_| AtomicU16::new(0)).collect(),
            posted: AtomicU32::new(0),
            posted_frames: AtomicU32::new(0),
            retired: AtomicU32::new(0),
            retired_frames: AtomicU32::new(0),
        }
    }

    pub(crate) fn capacity(&self) -> u32 {
        self.capacity
    }

    /// Whether `frames` more fit
    pub(crate) fn fits(&self, frames: u32) -> bool {
        let retired = self.retired_frames.load(Ordering::Acquire);
        let used = self.posted_frames.load(Ordering::Relaxed).wrapping_sub(retired);
        used + frames <= self.capacity
    }

    /// A request of `frames` frames is about to be posted; `signaled` if it will have a completion of its own
    pub(crate) fn post(&self, frames: u32, signaled: bool) {
        let silent = if signaled { 0 } else { SILENT };
        let number = self.posted.load(Ordering::Relaxed);
        self.requests[number as usize & (self.requests.len() - 1)]
            .store(frames as u16 | silent, Ordering::Relaxed);
        let total = self.posted_frames.load(Ordering::Relaxed);
        self.posted_frames.store(total.wrapping_add(frames), Ordering::Relaxed);
        self.posted.store(number.wrapping_add(1), Ordering::Release);
    }

    /// The request that was just announced was not taken
    pub(crate) fn withdraw(&self, frames: u32) {
        let number = self.posted.load(Ordering::Relaxed);
        let total = self.posted_frames.load(Ordering::Relaxed);
        self.posted_frames.store(total.wrapping_sub(frames), Ordering::Relaxed);
        self.posted.store(number.wrapping_sub(1), Ordering::Release);
    }

    /// The oldest request that has a completion has completed, and with it the silent ones before it
    pub(crate) fn retire(&self) {
        let mut number = self.retired.load(Ordering::Relaxed);
        let mut total = self.retired_frames.load(Ordering::Relaxed);
        let posted = self.posted.load(Ordering::Acquire);
        while number != posted {
            let request = self.requests[number as usize & (self.requests.len() - 1)].load(Ordering::Relaxed);
            number = number.wrapping_add(1);
            total = total.wrapping_add(u32::from(request & !SILENT));
            if request & SILENT == 0 {
                break;
            }
        }
        self.retired.store(number, Ordering::Relaxed);
        self.retired_frames.store(total, Ordering::Release);
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
            ops in prop::collection::vec(prop::option::of(1u32..12), 0..200),
        ) {
            let account = Account::new(capacity);
            let mut queue = std::collections::VecDeque::new();
            for op in ops {
                match op {
                    Some(frames) => {
                        let fits = queue.iter().sum::<u32>() + frames <= capacity;
                        prop_assert_eq!(account.fits(frames), fits);
                        if fits {
                            account.post(frames, true);
                            queue.push_back(frames);
                            if frames == 11 {
                                account.withdraw(frames);
                                queue.pop_back();
                            }
                        }
                    }
                    None => {
                        account.retire();
                        queue.pop_front();
                    }
                }
            }
        }
    }
}
