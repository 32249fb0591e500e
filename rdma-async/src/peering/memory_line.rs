//! How a peering waits for memory for the messages that its peer announces

use crate::pool::{Pool, Shortage};
use crate::wait_queue::Waiter;

/// Its places in the lines of the pool
#[derive(Debug, Default)]
pub(super) struct MemoryLine {
    /// In line for frames.
    pub(super) frames: Waiter,
    /// Beside the line, for messages of sessions that hold enough already.
    pub(super) freed: Waiter,
    /// How often memory had come free when it last looked.
    pub(super) seen: u64,
    /// Whether messages wait.
    pub(super) is_starved: bool,
    /// The shortage that lasts while a task waits for one of them.
    shortage: Option<Shortage>,
}

impl MemoryLine {
    /// Lets all peerings of the node give memory for expected messages back, and take none for others
    pub(super) fn begin_shortage(&mut self, pool: &Pool) {
        self.shortage.get_or_insert_with(|| pool.begin_shortage());
    }

    pub(super) fn end_shortage(&mut self) {
        self.shortage = None;
    }

    /// Whether it neither waits nor has noted that messages wait
    pub(super) fn is_at_rest(&self) -> bool {
        !self.waits() && !self.is_starved && self.shortage.is_none()
    }

    /// Whether it has a place in a line
    pub(super) fn waits(&self) -> bool {
        self.frames.waits() || self.freed.waits()
    }
}
