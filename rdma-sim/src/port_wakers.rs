//! The wakers of programs that watch the ports of their devices

use std::collections::BTreeMap;
use std::task::Waker;

/// One waker for each open device that is watched, in the order in which they were opened
#[derive(Debug, Default)]
pub(crate) struct PortWakers {
    wakers: BTreeMap<u64, Waker>,
    next_number: u64,
}

impl PortWakers {
    /// The number of another watched device
    pub(crate) fn number(&mut self) -> u64 {
        self.next_number += 1;
        self.next_number
    }

    /// Stores a waker; the replaced one is to be dropped without the lock
    pub(crate) fn watch(&mut self, number: u64, waker: Waker) -> Option<Waker> {
        self.wakers.insert(number, waker)
    }

    /// Removes a waker, which is to be dropped without the lock
    pub(crate) fn leave(&mut self, number: u64) -> Option<Waker> {
        self.wakers.remove(&number)
    }

    /// All wakers, to be woken without the lock
    pub(crate) fn all(&self) -> Vec<Waker> {
        self.wakers.values().cloned().collect()
    }
}
