use super::PacketError;

/// A packet that a correct peer on a correct device does not send; it ends the peering
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Violation {
    /// The announced length fits the eager lane, or exceeds the limit of this side
    #[error("announced a message of {0} bytes")]
    AnnouncedLength(u64),
    /// The peer sent a message about a path that its side does not send, or that is none, by another path or the bootstrap stream
    #[error("an impossible message about a path")]
    Control,
    /// A fragment does not fit its message, or the fragments before it
    #[error("fragment {fragment} of a message of {len} bytes has {found} bytes")]
    Fragment {
        /// Number of the fragment
        fragment: u8,
        /// Length of the message in bytes
        len: u32,
        /// Length of the fragment in bytes
        found: usize,
    },
    /// The peer claims more receives than its window holds
    #[error("impossible limit {0}")]
    Limit(u32),
    /// The packet cannot have found a receive
    #[error("impossible packet number {0}")]
    Number(u32),
    /// The bytes are not a packet
    #[error(transparent)]
    Packet(#[from] PacketError),
    /// The payload of a packet of the protocol has the wrong length
    #[error("a payload of {0} bytes does not fit the kind of its packet")]
    Payload(usize),
    /// The peer reports packets that were not sent
    #[error("impossible report up to packet {0}")]
    Report(u32),
    /// The peer sent more than this side has room for in a session, or a message behind the end of its stream
    #[error("session {0:#x} is beyond its room")]
    Room(u32),
    /// The peer used a session that it may not open
    #[error("impossible session {0:#x}")]
    Session(u32),
    /// The peer granted more receives than a lane may have
    #[error("impossible bulk receive {0}")]
    Slot(u32),
    /// The peer used a stream that it may not open, sent a message on the control stream, or ended a stream before a message of it
    #[error("impossible stream {0:#x}")]
    Stream(u32),
    /// The peer granted more bytes at once than both sides agreed on
    #[error("granted {len} bytes at {offset}, more than one bulk fragment")]
    Grant {
        /// Length in bytes
        len: u32,
        /// Offset in bytes
        offset: u64,
    },
}

/// Reason why [`Peering::send`](super::Peering::send) refused a message
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum RefusedSend {
    /// The session is over, or this side has finished the stream
    #[error("the stream is closed")]
    Closed,
    /// The message is longer than the peer accepts
    #[error("a message of {len} bytes exceeds the limit of {max}")]
    TooLong {
        /// Length of the message in bytes
        len: u64,
        /// The longest that the peer accepts, in bytes
        max: u64,
    },
}
