//! What a peering tells of its paths and sessions

use super::PathLoss;

/// What a path has done, in all its incarnations
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub struct PathCounts {
    /// How many times the path was made: 1 if it was never lost
    pub made: u32,
    /// Packets of the eager lane that this side has sent
    pub packets_sent: u64,
    /// Packets of the eager lane that have arrived, each counted once
    pub packets_received: u64,
    /// Packets that this side has sent, and that have not arrived
    pub packets_lost: u64,
    /// Bytes of long messages for which this side has posted receives
    pub bulk_bytes_granted: u64,
    /// Bytes of messages that this side sent again on this path, or for which it posted receives again
    pub retransmitted_bytes: u64,
    /// Why it was lost the last time
    pub last_loss: Option<PathLoss>,
}

/// How a path is now
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum PathStatus {
    /// There is none
    Down,
    /// Nothing of the peer has arrived on it yet: it carries no data
    Unproven,
    /// It carries data
    Up,
}

/// What a session waits for
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub struct SessionWaits {
    /// Messages that are sent and not confirmed, or that wait to be sent
    pub unconfirmed: usize,
    /// Whether one of them waits until the application of the peer reads
    pub needs_room: bool,
    /// Long messages of the peer that are announced, and not here
    pub announced: usize,
}
