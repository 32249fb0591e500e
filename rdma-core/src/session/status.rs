//! The status of paths and sessions

use super::PathLoss;

/// What a path has done, in all its incarnations
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub struct PathCounts {
    /// How many times the path was made: 1 if it was never lost
    pub made: u32,
    /// Bytes of long messages for which this side has posted receives
    pub bulk_bytes_granted: u64,
    /// Messages of up to [`MAX_EAGER`](super::MAX_EAGER) bytes, and the protocol itself
    pub eager: LaneCounts,
    /// Longer messages
    pub bulk: LaneCounts,
    /// Why it was lost the last time
    pub last_loss: Option<PathLoss>,
}

impl PathCounts {
    /// Bytes of messages that this side sent again on this path, or for which it posted receives again
    pub fn retransmitted_bytes(&self) -> u64 {
        self.eager.retransmitted_bytes + self.bulk.retransmitted_bytes
    }
}

/// What a lane of a path has done, in all incarnations of the path, and how it is now
///
/// The eager lane carries packets. The bulk lane carries parts of long messages, for which the receiver posts receives beforehand; there,
/// losses and repetitions are counted by the receiver.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub struct LaneCounts {
    /// Packets that this side has sent; parts, with those that bring nothing
    pub sent: u64,
    /// Bytes of messages that this side has sent in them, without what the protocol adds
    pub bytes_sent: u64,
    /// Packets that have arrived, each counted once; parts, with those that bring nothing
    pub received: u64,
    /// Bytes of messages that have arrived in them, each counted once
    pub bytes_received: u64,
    /// Packets that this side has sent, and that have not arrived; parts for which this side had posted receives when the path was lost
    pub lost: u64,
    /// Packets of messages that this side sent again; parts for which this side posted receives again
    pub retransmitted: u64,
    /// Bytes of messages in those
    pub retransmitted_bytes: u64,
    /// Packets or parts that have arrived with a wrong checksum
    pub damaged: u64,
    /// Packets that have arrived intact and were dropped: repeated, overtaken, or of an earlier incarnation; parts that were not granted so
    pub refused: u64,
    /// Packets that this side has sent, and of which it knows no outcome yet; parts that the device is sending
    pub in_flight: u32,
    /// Packets of messages that this side may send now; parts that the peer has granted, and that this side has not sent
    pub credits: u32,
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
