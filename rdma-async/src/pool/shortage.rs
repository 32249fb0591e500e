//! Shortages: times in which a task waits for a message that finds no memory

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// How many shortages have begun, and how many have ended
#[derive(Debug, Default)]
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
#[derive(Debug)]
pub(crate) struct Shortage(Arc<Shortages>);

impl Shortage {
    pub(super) fn begin(shortages: &Arc<Shortages>) -> Self {
        shortages.begun.fetch_add(1, Ordering::AcqRel);
        Self(Arc::clone(shortages))
    }
}

impl Drop for Shortage {
    fn drop(&mut self) {
        self.0.ended.fetch_add(1, Ordering::AcqRel);
    }
}
