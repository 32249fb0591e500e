use super::{FRAGMENT, Integrity, MAX_FRAGMENTS};
use crate::FRAME;

/// What one side of a peering accepts from the other; exchanged when it is made
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Limits {
    /// The longest message, in bytes
    pub max_message: u64,
    /// Sessions that the peer may have open at once, up to [`MAX_SESSIONS`]
    pub max_sessions: u32,
    /// Streams of a session that the peer may have open at once, up to [`MAX_STREAMS`]
    pub max_streams: u32,
    /// Packets that each stream can always have at this side, read or unread: at least [`MAX_FRAGMENTS`], the longest message of
    /// the eager lane
    pub stream_share: u32,
}

/// The most sessions that one side of a peering can have open
pub const MAX_SESSIONS: u32 = 1 << 18;
/// The most streams of a session that one side can have open
pub const MAX_STREAMS: u32 = 1 << 10;
/// The most packets of a stream that may be under way or unread.
pub const MAX_ROOM: u32 = 1 << 14;

impl Limits {
    /// Whether sessions can work so
    pub fn is_usable(&self) -> bool {
        (1..=MAX_SESSIONS).contains(&self.max_sessions)
            && (1..=MAX_STREAMS).contains(&self.max_streams)
            && (MAX_FRAGMENTS as u32..=MAX_ROOM).contains(&self.stream_share)
    }
}

/// Which side of a peering this is
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Side {
    /// The side that connected
    Connecting,
    /// The side that accepted
    Accepting,
}

impl Side {
    /// The low bit of the numbers of what this side opens
    pub(super) const fn bit(self) -> u32 {
        match self {
            Self::Connecting => 0,
            Self::Accepting => 1,
        }
    }
}

/// Configuration of one side of a peering
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct PeeringConfig {
    /// Which side this is
    pub side: Side,
    /// Whether fragments carry a checksum; the same on both sides
    pub integrity: Integrity,
    /// The most bytes in one bulk fragment, in whole frames; the same on both sides
    pub bulk_fragment: u32,
    /// What this side accepts
    pub local: Limits,
    /// What the peer accepts
    pub peer: Limits,
}

impl PeeringConfig {
    /// Whether a peering can work so
    pub fn is_usable(&self) -> bool {
        let fragment = self.bulk_fragment as usize;
        self.local.is_usable()
            && self.peer.is_usable()
            && fragment >= FRAGMENT
            && fragment.is_multiple_of(FRAME)
    }
}
