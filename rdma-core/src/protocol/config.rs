use std::time::Duration;

use super::{MAX_KEEPALIVES, Params};

/// How one side of a connection is configured
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct ProtocolConfig {
    /// Bulk receives that may be posted at once
    pub bulk_receives: u32,
    /// Frames that the bulk queue pair can hold for sending
    pub bulk_send_frames: u32,
    /// Messages that the eager queue pair can hold for sending
    pub eager_send_frames: u32,
    /// How long the lane may rest before a message is sent to keep it alive
    pub keepalive: Duration,
    /// What this side offers its peer
    pub params: Params,
    /// Messages that may be queued at once
    pub queue: u32,
    /// How long a peer may be silent before it counts as lost
    pub timeout: Duration,
}

impl ProtocolConfig {
    /// Whether the parts fit each other: usable parameters, and a timeout of two to eight keep-alive intervals
    pub fn is_usable(&self) -> bool {
        self.params.is_usable()
            && self.queue >= 1
            && self.bulk_receives >= 1
            && self.eager_send_frames >= 1
            && self.keepalive > Duration::ZERO
            && self.timeout >= self.keepalive * 2
            && self.timeout <= self.keepalive * MAX_KEEPALIVES
    }
}
