use std::time::Duration;

use super::Params;
use super::params::MAX_KEEPALIVES;

/// Configuration of one side of a connection; see the example of the [module](super)
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct ProtocolConfig {
    /// Bulk receives that may be posted at once
    pub bulk_receives: u32,
    /// Frames that the bulk queue pair can hold for sending
    pub bulk_send_frames: u32,
    /// Messages that the eager queue pair can hold for sending
    pub eager_send_frames: u32,
    /// Time without a send on the eager lane after which a keep-alive is sent
    pub keep_alive_interval: Duration,
    /// Limits that this side has announced to its peer
    pub params: Params,
    /// Messages that may be queued at once
    pub max_queued: u32,
    /// Time without a message from the peer after which the peer counts as lost
    pub peer_timeout: Duration,
}

impl ProtocolConfig {
    /// Whether a connection can work: usable parameters, no zero, and a timeout of two to eight keep-alive intervals
    pub fn is_usable(&self) -> bool {
        self.params.is_usable()
            && self.max_queued >= 1
            && self.bulk_receives >= 1
            && self.eager_send_frames >= 1
            && self.keep_alive_interval > Duration::ZERO
            && self.peer_timeout >= self.keep_alive_interval * 2
            && self.peer_timeout <= self.keep_alive_interval * MAX_KEEPALIVES
    }
}
