//! Times in which the application waits for messages that find no memory

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::memory::Memory;

/// How many have begun and ended
#[derive(Default)]
pub(super) struct Shortages {
    begun: AtomicU64,
    ended: AtomicU64,
}

impl Shortages {
    pub(super) fn begun(&self) -> u64 {
        self.begun.load(Ordering::Acquire)
    }

    /// Whether one has begun that has not ended
    pub(super) fn is_any(&self) -> bool {
        // In this order: what ends in between has begun before.
        let ended = self.ended.load(Ordering::Acquire);
        ended != self.begun()
    }
}

/// One that lasts until this is dropped
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
