//! How a peering waits for memory for the messages that its peer announces

use crate::pool::Shortage;
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
    /// While the application waits for one of them.
    pub(super) shortage: Option<Shortage>,
}

impl MemoryLine {
    /// Whether it has a place in a line
    pub(super) fn waits(&self) -> bool {
        self.frames.waits() || self.freed.waits()
    }
}
