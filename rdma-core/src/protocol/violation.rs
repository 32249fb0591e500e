use super::{Kind, TrailerError};

/// A message that cannot be queued
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum EnqueueError {
    /// This side or the peer has closed
    #[error("the connection is closed")]
    Closed,
    /// As many messages are queued as fit
    #[error("the queue is full")]
    Full,
    /// Longer than the peer can receive, or than the bulk queue pair can hold
    #[error("a message of {len} bytes exceeds the limit of {max}")]
    TooLong {
        /// Length of the message in bytes
        len: usize,
        /// The longest that can be sent
        max: usize,
    },
}

/// The peer broke the protocol, or the device broke its promises: the connection cannot go on
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Violation {
    /// A message was announced whose length makes no sense here
    #[error("announced a message of {0} bytes")]
    AnnouncedLength(u64),
    /// More bulk messages were announced than may wait
    #[error("announced more messages than may wait")]
    AnnouncedTooMany,
    /// A bulk message has not the length that was announced
    #[error("announced {announced} bytes and sent {received}")]
    BulkLength {
        /// What was announced
        announced: u32,
        /// What came
        received: u32,
    },
    /// The peer claims credits that cannot be
    #[error("impossible credit total {0}")]
    Credits(u32),
    /// The peer claims grants that cannot be
    #[error("impossible grant total {0}")]
    Grants(u32),
    /// A message came after the peer said that there would be none
    #[error("a message after the last")]
    PastFin,
    /// A message was lost or repeated
    #[error("expected message {expected}, received {received}")]
    Sequence {
        /// The number that was due
        expected: u32,
        /// The number that came
        received: u32,
    },
    /// The message has no valid trailer
    #[error(transparent)]
    Trailer(#[from] TrailerError),
    /// A control message has a payload of the wrong length, or came when it makes no sense
    #[error("misplaced {0:?}")]
    Unexpected(Kind),
}
