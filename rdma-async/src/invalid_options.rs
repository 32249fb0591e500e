//! Why the options of a node are refused

use std::time::Duration;

/// Options with which a node cannot work
///
/// ```
/// use rdma_async::InvalidOptions;
///
/// let refused = InvalidOptions::OutOfRange { option: "max_in_flight_sends", found: 0, min: 1, max: 4096 };
/// assert_eq!(refused.to_string(), "max_in_flight_sends is 0; it must be 1 to 4096");
/// ```
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidOptions {
    /// The device's completion queue is too short for the paths to all peers
    #[error("the paths need {found} entries of the completion queue, the device has {max}; lower max_peers")]
    CompletionQueue {
        /// Entries that the paths need
        found: u64,
        /// Entries that the device has
        max: u64,
    },
    /// A device carries no message of one frame, which every path needs
    #[error("the device carries messages of at most {found} bytes; a path needs {min}")]
    DeviceMessage {
        /// The longest message of the device in bytes
        found: u32,
        /// A frame
        min: u32,
    },
    /// The memory is more than one registration can hold
    #[error(
        "send_memory, receive_memory and the shares of {found} bytes in all must be fewer than {max}; lower one of them, \
         max_peers, max_sessions or stream_share"
    )]
    Memory {
        /// The sum in bytes
        found: u64,
        /// The limit
        max: u64,
    },
    /// An option that is a number is too low or too high
    #[error("{option} is {found}; it must be {min} to {max}")]
    OutOfRange {
        /// The option: the name of its method of [`NodeOptions`](crate::NodeOptions)
        option: &'static str,
        /// The number
        found: u64,
        /// The lowest
        min: u64,
        /// The highest
        max: u64,
    },
    /// The peer timeout is too short or too long
    #[error("peer_timeout is {found:?}; it must be {min:?} to {max:?}")]
    PeerTimeout {
        /// The timeout
        found: Duration,
        /// The shortest
        min: Duration,
        /// A day
        max: Duration,
    },
    /// The node was given too many devices
    #[error("the node was given {found} devices; at most {max} can be used")]
    Ports {
        /// How many
        found: usize,
        /// The most
        max: usize,
    },
    /// The receive memory does not hold the longest message
    #[error("receive_memory is {found} bytes; the longest message needs {min}")]
    ReceiveMemory {
        /// The memory in bytes
        found: usize,
        /// The least that suffices
        min: usize,
    },
    /// The send memory does not hold a single frame
    #[error("send_memory is {found} bytes; it must be at least {min}")]
    SendMemory {
        /// The memory in bytes
        found: usize,
        /// One frame
        min: usize,
    },
}
