//! Shortages: times in which a task waits for a message that finds no memory

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::memory::Memory;

/// How many shortages have begun, and how many have ended
#[derive(Default)]
pub(super) struct Shortages {
    begun: AtomicU64,
    ended: AtomicU64,
}

impl Shortages {
    pub(super) fn begun(&self) -> u64 {
        self.begun.load(Ordering::Acquire)
    }

    /// Whether a shortage has begun that has not ended
    pub(super) fn is_any(&self) -> bool {
        // First: a shortage that begins and ends between the two would otherwise hide one that goes on.
        let ended = self.ended.load(Ordering::Acquire);
        ended != self.begun()
    }
}

/// A shortage that lasts until this is dropped
pub(crate) struct Shortage(Arc<Memory>);

impl Shortage {
    pub(super) fn begin(memory: &Arc<Memory>) -> Self {
        memory.shortages().begun.fetch_add(1, Ordering::AcqRel);
        Self(Arc::clone(memory))
    }
}

impl Drop for Shortage {
    fn drop(&mut self) {
        self.0.shortages().ended.fetch_add(1, Ordering::AcqRel);
    }
}

impl fmt::Debug for Shortage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shortage").finish_non_exhaustive()
    }
}
