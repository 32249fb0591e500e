//! What can go wrong, by operation

use std::io;
use std::time::Duration;

use rdma_core::protocol::{HelloError, Violation};
use rdma_core::{Status, WrId};

/// Why a connection is over
///
/// ```
/// # use rdma_async::*;
/// # use rdma_sim::Sim;
/// # Sim::new().run(async |net| {
/// # let open = |host| Endpoint::builder(net.open(host, "rdma_en2").unwrap()).runtime(net.runtime()).build();
/// # let (endpoint, other) = (open("a").unwrap(), open("b").unwrap());
/// # let (to_b, to_a) = tokio::io::duplex(256);
/// # let pair = futures::future::try_join(endpoint.connect(to_b), other.accept(to_a)).await.unwrap();
/// # let (connection, peer) = pair;
/// connection.abort();
/// let refused = connection.send_bytes(b"hello").await.unwrap_err();
/// assert_eq!(refused, SendError::Lost(ConnectionError::Aborted));
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// # }).value.unwrap();
/// ```
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectionError {
    /// The application had dropped its last handle, and the peer took none of the queued messages for that long
    #[error("the application dropped the connection, and the peer took no message for {0:?}")]
    Abandoned(Duration),
    /// This side [aborted](crate::Connection::abort) the connection
    #[error("this side aborted the connection")]
    Aborted,
    /// A request ended in an error; the data of a failed receive cannot be trusted
    #[error("a request of the connection failed: {0}")]
    Completion(Status),
    /// The device refused a request, or vanished
    #[error(transparent)]
    Device(#[from] rdma_core::Error),
    /// The device reported a message longer than its receive: its memory cannot be trusted
    #[error("the device reported a message of {found} bytes in a receive of {max}")]
    Overlong {
        /// The length that the device reported
        found: u32,
        /// The length of the receive
        max: u32,
    },
    /// The peer was silent for too long
    #[error("the peer was silent for {0:?}")]
    PeerLost(Duration),
    /// The peer broke the protocol, or messages were lost
    #[error("the peer broke the protocol: {0}")]
    Protocol(#[from] Violation),
    /// The runtime dropped the task that drives the connection
    #[error("the runtime has ended")]
    RuntimeGone,
    /// The device reported the end of a request that was not posted
    #[error("the device completed request {:#x}, which was not posted", .0.0)]
    UnknownCompletion(WrId),
}

/// Why an endpoint cannot be made
///
/// ```
/// # rdma_sim::Sim::new().run(async |net| {
/// use rdma_async::{Endpoint, EndpointError};
///
/// // Outside of tokio, and without a runtime of its own.
/// let refused = Endpoint::builder(net.open("a", "rdma_en2")?).build().unwrap_err();
/// assert_eq!(refused, EndpointError::NoRuntime);
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// # }).value.unwrap();
/// ```
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum EndpointError {
    /// The device refused
    #[error(transparent)]
    Device(#[from] rdma_core::Error),
    /// No runtime was given, and the caller does not run on tokio
    #[error("no runtime: give the builder one, or build the endpoint inside a tokio runtime")]
    NoRuntime,
    /// The runtime has no timers, without which no peer can be given up
    #[error("the runtime has no timers: build the tokio runtime with `enable_time` or `enable_all`")]
    NoTimers,
    /// The options contradict each other or the device
    #[error(transparent)]
    Options(#[from] InvalidOptions),
    /// No memory could be had
    #[error(transparent)]
    Pool(#[from] PoolError),
}

/// Options with which an endpoint cannot work
///
/// ```
/// use rdma_async::InvalidOptions;
///
/// let refused = InvalidOptions::MaxConnections { found: 0, max: 4096 };
/// assert_eq!(refused.to_string(), "max_connections is 0; it must be 1 to 4096");
/// ```
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidOptions {
    /// The numbers of peers, of sessions, or of packets for each session are zero or too high
    #[error(
        "{max_peers} peers, {max_sessions} sessions for each and {session_share} frames for each of these; there must be 1 to \
         4096 peers, 1 to {most_sessions} sessions, and {least_share} to {most_share} frames",
        most_sessions = rdma_core::session::MAX_SESSIONS,
        least_share = rdma_core::session::MAX_FRAGMENTS,
        most_share = rdma_core::session::MAX_ROOM
    )]
    Sessions {
        /// The most processes at once
        max_peers: u32,
        /// The most sessions that each may open
        max_sessions: u32,
        /// Frames for each session
        session_share: u32,
    },
    /// The device's completion queue is too short for the windows and the sends of all connections
    #[error(
        "the queue pairs need {found} entries of the completion queue, the device has {max}; lower max_peers of a node, or \
         max_connections, recv_window or max_in_flight_sends of an endpoint"
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
    #[error(
        "peer_timeout is {found:?}; it must be {min:?} to {max:?}, which for an endpoint follow from keep_alive_interval"
    )]
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
///
/// ```
/// use std::io::ErrorKind;
/// use rdma_async::PoolError;
///
/// let refused = PoolError::Memory(ErrorKind::OutOfMemory);
/// assert_eq!(std::io::Error::from(refused).kind(), ErrorKind::OutOfMemory);
/// ```
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

/// Why a connection cannot be made
///
/// ```
/// # use rdma_async::*;
/// # use rdma_sim::Sim;
/// # Sim::new().run(async |net| {
/// # let open = |host| Endpoint::builder(net.open(host, "rdma_en2").unwrap()).runtime(net.runtime()).build();
/// # let (endpoint, other) = (open("a").unwrap(), open("b").unwrap());
/// # let (to_b, to_a) = tokio::io::duplex(256);
/// # let pair = futures::future::try_join(endpoint.connect(to_b), other.accept(to_a)).await.unwrap();
/// # let (connection, peer) = pair;
/// endpoint.close();
/// let (stream, _) = tokio::io::duplex(256);
/// assert_eq!(endpoint.connect(stream).await.unwrap_err(), ConnectError::Closed);
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// # }).value.unwrap();
/// ```
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// The endpoint is [closed](crate::Endpoint::close)
    #[error("the endpoint is closed")]
    Closed,
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
    /// The peer speaks no compatible protocol
    #[error(transparent)]
    Peer(#[from] HelloError),
    /// The bootstrap stream failed
    #[error("the bootstrap stream failed: {0}")]
    Stream(io::ErrorKind),
    /// The peer did not answer in time
    #[error("the peer did not answer within {0:?}")]
    Timeout(Duration),
    /// The endpoint has as many connections as its options allow
    #[error("the endpoint has {max} connections already; raise max_connections or end one")]
    TooManyConnections {
        /// The limit
        max: u32,
    },
}

impl From<io::Error> for ConnectError {
    fn from(error: io::Error) -> Self {
        Self::Stream(error.kind())
    }
}

/// Why memory cannot be leased
///
/// ```
/// # use rdma_async::*;
/// # use rdma_sim::Sim;
/// # Sim::new().run(async |net| {
/// # let open = |host| Endpoint::builder(net.open(host, "rdma_en2").unwrap()).runtime(net.runtime()).build();
/// # let (endpoint, other) = (open("a").unwrap(), open("b").unwrap());
/// # let (to_b, to_a) = tokio::io::duplex(256);
/// # let pair = futures::future::try_join(endpoint.connect(to_b), other.accept(to_a)).await.unwrap();
/// # let (connection, peer) = pair;
/// let refused = connection.try_alloc(1 << 30).unwrap_err();
/// assert_eq!(refused, AllocError::TooLarge { len: 1 << 30, max: 16 << 20 });
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// # }).value.unwrap();
/// ```
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum AllocError {
    /// The endpoint's send memory is smaller than that
    #[error("a message of {len} bytes exceeds the send memory of {max}")]
    TooLarge {
        /// Length asked for in bytes
        len: usize,
        /// Length of the send memory in bytes
        max: usize,
    },
    /// Only by `try_alloc`: that much is not free in one piece, or tasks wait for memory
    #[error("no memory is free now")]
    WouldBlock,
}

/// Why a message was not sent
///
/// ```
/// # use rdma_async::*;
/// # use rdma_sim::Sim;
/// # Sim::new().run(async |net| {
/// # let open = |host| Endpoint::builder(net.open(host, "rdma_en2").unwrap()).runtime(net.runtime()).build();
/// # let (endpoint, other) = (open("a").unwrap(), open("b").unwrap());
/// # let (to_b, to_a) = tokio::io::duplex(256);
/// # let pair = futures::future::try_join(endpoint.connect(to_b), other.accept(to_a)).await.unwrap();
/// # let (connection, peer) = pair;
/// let lease = other.alloc(64).await?;
/// let refused = connection.send(lease).await.unwrap_err();
/// assert_eq!(refused.error, SendError::ForeignLease);
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// # }).value.unwrap();
/// ```
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
    /// Only by `try_send`: as many messages are in flight as may be, or tasks wait to send
    #[error("no place for another message in flight now")]
    WouldBlock,
}

/// Why no message can be received
///
/// ```
/// # use rdma_async::*;
/// # use rdma_sim::Sim;
/// # Sim::new().run(async |net| {
/// # let open = |host| Endpoint::builder(net.open(host, "rdma_en2").unwrap()).runtime(net.runtime()).build();
/// # let (endpoint, other) = (open("a").unwrap(), open("b").unwrap());
/// # let (to_b, to_a) = tokio::io::duplex(256);
/// # let pair = futures::future::try_join(endpoint.connect(to_b), other.accept(to_a)).await.unwrap();
/// # let (connection, peer) = pair;
/// assert!(matches!(peer.try_recv(), Err(RecvError::WouldBlock)));
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// # }).value.unwrap();
/// ```
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum RecvError {
    /// The connection is lost; messages that arrived before were delivered
    #[error("the connection is lost: {0}")]
    Lost(#[from] ConnectionError),
    /// Only by `try_recv`: no message is there, or tasks wait for one
    #[error("no message is there now")]
    WouldBlock,
}

/// Why a connection was not closed in good order: the peer may not have everything
///
/// ```
/// # use rdma_async::*;
/// # use rdma_sim::Sim;
/// # Sim::new().run(async |net| {
/// # let open = |host| Endpoint::builder(net.open(host, "rdma_en2").unwrap()).runtime(net.runtime()).build();
/// # let (endpoint, other) = (open("a").unwrap(), open("b").unwrap());
/// # let (to_b, to_a) = tokio::io::duplex(256);
/// # let pair = futures::future::try_join(endpoint.connect(to_b), other.accept(to_a)).await.unwrap();
/// # let (connection, peer) = pair;
/// connection.abort();
/// let lost = connection.close().await.unwrap_err();
/// assert_eq!(lost, CloseError::Lost(ConnectionError::Aborted));
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// # }).value.unwrap();
/// ```
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum CloseError {
    /// The connection is lost
    #[error("the connection was lost before the peer confirmed everything: {0}")]
    Lost(#[from] ConnectionError),
    /// The peer closed first and did not read the queued messages
    #[error("the peer closed before it had received everything")]
    PeerClosed,
}
