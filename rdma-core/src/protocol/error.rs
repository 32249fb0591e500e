use super::{Kind, TrailerError};

/// Reason why [`Protocol::enqueue`](super::Protocol::enqueue) refused a message
///
/// ```
/// use rdma_core::protocol::EnqueueError;
///
/// let refused = EnqueueError::TooLong { len: 9000, max: 4080 };
/// assert_eq!(refused.to_string(), "a message of 9000 bytes exceeds the limit of 4080");
/// ```
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum EnqueueError {
    /// This side or the peer has closed the connection
    #[error("the connection is closed")]
    Closed,
    /// The configured number of messages is queued already
    #[error("the queue is full")]
    Full,
    /// The message is longer than the peer can receive, or than the bulk queue pair can hold
    #[error("a message of {len} bytes exceeds the limit of {max}")]
    TooLong {
        /// Length of the message in bytes
        len: usize,
        /// The longest that can be sent
        max: usize,
    },
}

/// A message that a correct peer on a correct device does not send; it ends the connection
///
/// ```
/// use rdma_core::protocol::Violation;
///
/// let lost = Violation::Sequence { expected: 3, received: 4 };
/// assert_eq!(lost.to_string(), "expected message 3, received 4");
/// ```
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Violation {
    /// The announced length fits the eager lane, or exceeds the limit of this side
    #[error("announced a message of {0} bytes")]
    AnnouncedLength(u64),
    /// More bulk messages were announced than may wait
    #[error("announced more messages than may wait")]
    AnnouncedTooMany,
    /// A bulk message does not have the announced length
    #[error("announced {announced} bytes and sent {received}")]
    BulkLength {
        /// The announced length in bytes
        announced: u32,
        /// The received length in bytes
        received: u32,
    },
    /// The peer claims more receives than its window holds, or takes credits back
    #[error("impossible credit total {0}")]
    Credits(u32),
    /// The peer grants more than was announced, or takes grants back
    #[error("impossible grant total {0}")]
    Grants(u32),
    /// A message arrived after the peer's [`Fin`](Kind::Fin)
    #[error("a message after the last")]
    PastFin,
    /// A message was lost or repeated
    #[error("expected message {expected}, received {received}")]
    Sequence {
        /// The next number
        expected: u32,
        /// The received number
        received: u32,
    },
    /// A message exceeds the limit of this side
    #[error("sent a message of {0} bytes, which exceeds the limit of this side")]
    TooLong(usize),
    /// The message has no valid trailer
    #[error(transparent)]
    Trailer(#[from] TrailerError),
    /// A control message has a payload of the wrong length, or arrived in a state that does not permit it
    #[error("misplaced {0:?}")]
    Unexpected(Kind),
}
