//! What can go wrong, by operation

use std::fmt;
use std::io;
use std::time::Duration;

use rdma_core::Status;
use rdma_core::protocol::{HelloError, Violation};

use crate::Lease;

/// Why a connection is over
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectionError {
    /// Nobody held the connection any more, and the peer took nothing of what was queued for it
    #[error("nobody holds the connection, and the peer took nothing for {0:?}")]
    Abandoned(Duration),
    /// This side ended it at once
    #[error("aborted by this side")]
    Aborted,
    /// A request ended in an error; the data of a failed receive cannot be trusted
    #[error("a request of the connection failed: {0}")]
    Completion(Status),
    /// The device refused a request, or vanished
    #[error(transparent)]
    Device(#[from] rdma_core::Error),
    /// The peer was silent for too long
    #[error("the peer was silent for {0:?}")]
    PeerLost(Duration),
    /// The peer broke the protocol, or messages were lost
    #[error("the peer broke the protocol: {0}")]
    Protocol(#[from] Violation),
    /// The runtime dropped the task that drives the connection
    #[error("the runtime has ended")]
    RuntimeGone,
}

/// An endpoint that cannot be made
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum EndpointError {
    /// The device refused
    #[error(transparent)]
    Device(#[from] rdma_core::Error),
    /// The options contradict each other or the device
    #[error(transparent)]
    Options(#[from] InvalidOptions),
    /// No memory could be had
    #[error(transparent)]
    Pool(#[from] PoolError),
}

/// Options with which an endpoint cannot work
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidOptions {
    /// The device's completion queue is too short for the windows and the sends of all connections
    #[error(
        "the connections need {found} entries of the completion queue, the device has {max}; lower max_connections, \
         recv_window or max_in_flight_sends"
    )]
    CompletionQueue {
        /// Entries that the connections need
        found: u64,
        /// Entries that the device has
        max: u64,
    },
    /// The keep-alive interval is zero or too long
    #[error("keep_alive_interval is {found:?}; it must be above zero and at most {max:?}")]
    KeepAliveInterval {
        /// The interval
        found: Duration,
        /// The longest
        max: Duration,
    },
    /// The number of connections is zero or too high
    #[error("max_connections is {found}; it must be 1 to {max}")]
    MaxConnections {
        /// The number
        found: u32,
        /// The highest
        max: u32,
    },
    /// The number of messages in flight is zero or too high
    #[error("max_in_flight_sends is {found}; it must be 1 to {max}")]
    MaxInFlightSends {
        /// The number
        found: u32,
        /// The highest
        max: u32,
    },
    /// The device cannot carry messages that long
    #[error("max_message is {found} bytes; the device carries at most {max}")]
    MaxMessage {
        /// The length in bytes
        found: usize,
        /// The longest that the device carries
        max: usize,
    },
    /// The memory for sending and receiving is more than one registration can hold
    #[error("send_memory and receive_memory are {found} bytes together; they must be fewer than {max}")]
    Memory {
        /// The sum in bytes
        found: u64,
        /// The limit
        max: u64,
    },
    /// The timeout does not fit the keep-alive interval
    #[error("peer_timeout is {found:?}; with this keep_alive_interval it must be {min:?} to {max:?}")]
    PeerTimeout {
        /// The timeout
        found: Duration,
        /// Two keep-alive intervals
        min: Duration,
        /// Eight keep-alive intervals, at most a day
        max: Duration,
    },
    /// The receive memory does not hold a window for each connection and the longest message
    #[error(
        "receive_memory is {found} bytes; a window for each connection and the longest message need {min}"
    )]
    ReceiveMemory {
        /// The memory in bytes
        found: usize,
        /// The least that suffices
        min: usize,
    },
    /// The receive window is too small for data to flow, or larger than a queue
    #[error("recv_window is {found} frames; it must be {min} to {max}")]
    RecvWindow {
        /// The window in frames
        found: u32,
        /// The smallest
        min: u32,
        /// The largest
        max: u32,
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

/// Memory that cannot be mapped or registered
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum PoolError {
    /// The system gave no memory
    #[error("memory cannot be mapped: {0}")]
    Memory(io::ErrorKind),
    /// The device did not take it
    #[error(transparent)]
    Register(rdma_core::Error),
}

/// A connection that cannot be made
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// The device refused
    #[error(transparent)]
    Device(#[from] rdma_core::Error),
    /// The peer belongs to another generation of the application's group
    #[error("the peer is of epoch {theirs}, this side of epoch {ours}")]
    Epoch {
        /// Epoch of this side
        ours: u64,
        /// Epoch of the peer
        theirs: u64,
    },
    /// The connection was lost before both sides were ready
    #[error("the connection was lost while it was made: {0}")]
    Lost(#[from] ConnectionError),
    /// Messages of earlier connections, which are still held, are in the memory that another connection needs
    #[error("the memory for another connection is held by unread messages of earlier ones")]
    Memory,
    /// The peer is not one that can be talked to
    #[error(transparent)]
    Peer(#[from] HelloError),
    /// The bootstrap stream failed
    #[error("the bootstrap stream failed: {0}")]
    Stream(io::ErrorKind),
    /// The peer did not answer in time
    #[error("the peer did not answer within {0:?}")]
    Timeout(Duration),
    /// The endpoint has as many connections as its options allow
    #[error("the endpoint has as many connections as its options allow")]
    TooManyConnections,
}

impl From<io::Error> for ConnectError {
    fn from(error: io::Error) -> Self {
        Self::Stream(error.kind())
    }
}

/// Memory that cannot be leased
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum AllocError {
    /// The pool is smaller than that
    #[error("a message of {len} bytes exceeds the pool of {max}")]
    TooLarge {
        /// Length asked for, in bytes
        len: usize,
        /// Length of the pool, in bytes
        max: usize,
    },
}

/// A message that was not sent
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum SendError {
    /// No memory for the message
    #[error(transparent)]
    Alloc(#[from] AllocError),
    /// This side has closed the connection
    #[error("the connection is closed")]
    Closed,
    /// The lease is of another endpoint
    #[error("the lease is of another endpoint")]
    ForeignLease,
    /// The connection is lost
    #[error("the connection is lost: {0}")]
    Lost(#[from] ConnectionError),
    /// The peer has closed the connection and reads no more
    #[error("the peer has closed the connection")]
    PeerClosed,
    /// Longer than the peer can receive
    #[error("a message of {len} bytes exceeds the limit of {max}")]
    TooLong {
        /// Length of the message in bytes
        len: usize,
        /// The longest that can be sent
        max: usize,
    },
}

/// A message that was not sent, with its lease where it can be had
#[derive(thiserror::Error)]
#[error("{error}")]
pub struct SendFailed {
    /// What went wrong
    #[source]
    pub error: SendError,
    /// The message; none if a device may still touch its memory
    pub lease: Option<Lease>,
}

impl fmt::Debug for SendFailed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("SendFailed").field(&self.error).finish()
    }
}

impl From<SendFailed> for SendError {
    fn from(unsent: SendFailed) -> Self {
        unsent.error
    }
}

/// Nothing can be received
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum RecvError {
    /// The connection is lost; messages that arrived before were delivered
    #[error("the connection is lost: {0}")]
    Lost(#[from] ConnectionError),
}

/// The connection could not be closed in good order: the peer may not have everything
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum CloseError {
    /// The connection is lost
    #[error("the connection was lost before the peer confirmed everything: {0}")]
    Lost(#[from] ConnectionError),
    /// The peer closed first and did not read what was still queued
    #[error("the peer closed before it had received everything")]
    PeerClosed,
}
