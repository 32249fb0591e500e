//! What can go wrong, by operation

use std::io;
use std::time::Duration;

use rdma_core::WrId;
use rdma_core::session::{ByeReason, HelloError, Violation};

use crate::blocked_call::BlockedCall;
use crate::connect_stage::ConnectStage;
use crate::invalid_options::InvalidOptions;
use crate::port_refusal::{PortRefusal, in_words};

/// Why a session is lost
///
/// ```
/// # use rdma_async::*;
/// # rdma_sim::Sim::new().run(async |net| {
/// # let node = |host| Node::builder(net.opener(host, "rdma_en2")).runtime(net.runtime()).build();
/// # let (a, b) = (node("a").unwrap(), node("b").unwrap());
/// # let (to_b, to_a) = tokio::io::duplex(1024);
/// # let (session, ()) = futures::future::try_join(a.connect(to_b), b.serve(to_a)).await.unwrap();
/// # let peer = b.accept().await.unwrap();
/// session.reset(7);
/// assert_eq!(peer.recv().await.unwrap_err(), RecvError::Lost(SessionError::Reset(7)));
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// # }).value.unwrap();
/// ```
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum SessionError {
    /// The application had dropped its last handle, and the peer took none of the queued messages for that long
    #[error("the application dropped the session, and the peer took no message for {0:?}")]
    Abandoned(Duration),
    /// This side has ended the session at once
    #[error("this side has aborted the session")]
    Aborted,
    /// The device delivered more bytes than a receive has
    #[error("a packet of {found} bytes arrived in a receive of {max}")]
    Overlong {
        /// The reported length in bytes
        found: u32,
        /// The length of the receive in bytes
        max: u32,
    },
    /// The peer has ended all of its sessions, and says why
    #[error("the peer has left: {0}")]
    PeerGone(ByeReason),
    /// No path to the peer, and no packet or message from it, for the peer timeout
    #[error("no path to the peer is up, and nothing arrived from it for {0:?}")]
    PeerLost(Duration),
    /// The peer does not keep to the protocol
    #[error("the peer violates the protocol: {0}")]
    Protocol(#[from] Violation),
    /// The peer has ended the session at once, with this code: [`u64::MAX`] if its node did, because the application does not accept the session, or it was
    /// [abandoned](Self::Abandoned)
    #[error("the peer has ended the session with code {0}")]
    Reset(u64),
    /// The runtime has dropped the task that drives sessions
    #[error("the runtime has dropped the task that drives sessions")]
    RuntimeGone,
    /// The device completed a request that was not posted
    #[error("the device completed a request that was not posted: {0:?}")]
    UnknownCompletion(WrId),
    /// The device did not return from ending a path with a message on it, or the only one
    #[error(transparent)]
    Blocked(#[from] BlockedCall),
    /// The device did not prove that it has stopped working on a path
    #[error("the device has not proved that it stopped; its memory is not used again")]
    Unstopped,
}

/// Why a message was not sent
///
/// ```
/// # use rdma_async::*;
/// # rdma_sim::Sim::new().run(async |net| {
/// # let node = |host| Node::builder(net.opener(host, "rdma_en2")).runtime(net.runtime()).build();
/// # let (a, b) = (node("a").unwrap(), node("b").unwrap());
/// # let (to_b, to_a) = tokio::io::duplex(1024);
/// # let (session, ()) = futures::future::try_join(a.connect(to_b), b.serve(to_a)).await.unwrap();
/// session.reset(7);
/// assert_eq!(session.send_bytes(b"late").await, Err(SendError::Lost(SessionError::Aborted)));
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// # }).value.unwrap();
/// ```
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum SendError {
    /// This side has closed the session, or finished the stream
    #[error("this side has closed the session, or finished the stream")]
    Closed,
    /// The lease is of another node
    #[error("the lease is of another node")]
    ForeignLease,
    /// The session is lost
    #[error(transparent)]
    Lost(#[from] SessionError),
    /// The peer has closed the session; messages that were queued before are still sent
    #[error("the peer has closed the session")]
    PeerClosed,
    /// The peer's application has dropped the stream: it reads nothing more of it, nor what was on its way
    #[error("the peer has dropped the stream")]
    StreamDropped,
    /// The message exceeds what the peer takes
    #[error("a message of {len} bytes exceeds the limit of {max}")]
    TooLong {
        /// Length of the message in bytes
        len: usize,
        /// The longest that the peer takes, in bytes
        max: usize,
    },
    /// As many messages are in flight as may be, or tasks wait to send
    #[error("the session takes no message now")]
    WouldBlock,
}

/// Why no stream was opened
///
/// ```
/// # use rdma_async::*;
/// # rdma_sim::Sim::new().run(async |net| {
/// # let node = |host| Node::builder(net.opener(host, "rdma_en2")).runtime(net.runtime()).build();
/// # let (a, b) = (node("a").unwrap(), node("b").unwrap());
/// # let (to_b, to_a) = tokio::io::duplex(1024);
/// # let (session, ()) = futures::future::try_join(a.connect(to_b), b.serve(to_a)).await.unwrap();
/// session.close().await?;
/// assert_eq!(session.open_stream(Priority::Normal).await.unwrap_err(), OpenError::Closed);
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// # }).value.unwrap();
/// ```
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// This side has closed the session
    #[error("this side has closed the session")]
    Closed,
    /// The session is lost
    #[error(transparent)]
    Lost(#[from] SessionError),
    /// The peer has closed the session
    #[error("the peer has closed the session")]
    PeerClosed,
}

/// Why a request has no answer
///
/// ```
/// # use rdma_async::*;
/// # rdma_sim::Sim::new().run(async |net| {
/// # let node = |host| Node::builder(net.opener(host, "rdma_en2")).runtime(net.runtime()).build();
/// # let (a, b) = (node("a").unwrap(), node("b").unwrap());
/// # let (to_b, to_a) = tokio::io::duplex(1024);
/// # let (session, ()) = futures::future::try_join(a.connect(to_b), b.serve(to_a)).await.unwrap();
/// # let peer = b.accept().await.unwrap();
/// let request = session.request(session.try_alloc(1)?);
/// let drops_it = async { drop(peer.accept_stream().await) };
/// let (answer, ()) = futures::future::join(request, drops_it).await;
/// assert_eq!(answer.unwrap_err(), RequestError::Unanswered);
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// # }).value.unwrap();
/// ```
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum RequestError {
    /// No stream could be opened for it
    #[error(transparent)]
    Open(#[from] OpenError),
    /// Nothing could be received
    #[error(transparent)]
    Recv(#[from] RecvError),
    /// The request or the answer could not be sent
    #[error(transparent)]
    Send(#[from] SendError),
    /// The peer has dropped the request
    #[error("the peer has dropped the request")]
    Unanswered,
}

/// Why no message was received
///
/// ```
/// # use rdma_async::*;
/// # rdma_sim::Sim::new().run(async |net| {
/// # let node = |host| Node::builder(net.opener(host, "rdma_en2")).runtime(net.runtime()).build();
/// # let (a, b) = (node("a").unwrap(), node("b").unwrap());
/// # let (to_b, to_a) = tokio::io::duplex(1024);
/// # let (session, ()) = futures::future::try_join(a.connect(to_b), b.serve(to_a)).await.unwrap();
/// # let peer = b.accept().await.unwrap();
/// assert_eq!(peer.try_recv().unwrap_err(), RecvError::WouldBlock);
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// # }).value.unwrap();
/// ```
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum RecvError {
    /// The lease is of another node
    #[error("the lease is of another node")]
    ForeignLease,
    /// The session is lost
    #[error(transparent)]
    Lost(#[from] SessionError),
    /// No message is there, or tasks wait for one
    #[error("no message is there")]
    WouldBlock,
}

/// Why a session did not end in good order
///
/// ```
/// # use rdma_async::*;
/// # rdma_sim::Sim::new().run(async |net| {
/// # let node = |host| Node::builder(net.opener(host, "rdma_en2")).runtime(net.runtime()).build();
/// # let (a, b) = (node("a").unwrap(), node("b").unwrap());
/// # let (to_b, to_a) = tokio::io::duplex(1024);
/// # let (session, ()) = futures::future::try_join(a.connect(to_b), b.serve(to_a)).await.unwrap();
/// session.reset(7);
/// assert_eq!(session.close().await, Err(CloseError::Lost(SessionError::Aborted)));
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// # }).value.unwrap();
/// ```
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum CloseError {
    /// The session is lost: the peer may not have everything
    #[error(transparent)]
    Lost(#[from] SessionError),
}

/// Why no session was made
///
/// ```
/// # use rdma_async::*;
/// # rdma_sim::Sim::new().run(async |net| {
/// # let node = |host| Node::builder(net.opener(host, "rdma_en2")).runtime(net.runtime()).build();
/// # let (a, b) = (node("a").unwrap(), node("b").unwrap());
/// # let (to_b, to_a) = tokio::io::duplex(1024);
/// # let (session, ()) = futures::future::try_join(a.connect(to_b), b.serve(to_a)).await.unwrap();
/// # let peer = b.accept().await.unwrap();
/// a.close();
/// let (stream, _) = tokio::io::duplex(1024);
/// assert!(matches!(a.connect(stream).await, Err(ConnectError::Closed)));
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// # }).value.unwrap();
/// ```
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// A device did not return in time
    #[error(transparent)]
    Blocked(#[from] BlockedCall),
    /// The node is closed
    #[error("the node is closed")]
    Closed,
    /// The peer was slower than too many others that came to the same step of the introduction later; see [`max_half_open`](crate::NodeOptions::max_half_open)
    #[error(
        "more than {max} peers were introducing themselves at once, and this one had begun first; raise max_half_open"
    )]
    Crowded {
        /// How many there may be
        max: u32,
    },
    /// The device refused
    #[error(transparent)]
    Device(#[from] rdma_core::Error),
    /// The session was lost before both sides were ready
    #[error(transparent)]
    Lost(#[from] SessionError),
    /// Memory for the path is in use
    #[error(
        "no memory is left for another peer or path; raise max_peers, or drop messages that were received"
    )]
    Memory,
    /// A device could not be opened
    #[error("a device could not be opened: {0}")]
    Open(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The options of the node contradict a device that could not be opened when the node was built
    #[error(transparent)]
    Options(InvalidOptions),
    /// The pool could not be registered
    #[error(transparent)]
    Pool(#[from] PoolError),
    /// A device carries shorter messages than both sides have agreed on before it was open; another connection takes it into account
    #[error(
        "{port} carries messages of at most {found} bytes, and those of this connection have up to {min}: connect again, over a new \
         stream"
    )]
    ShortMessages {
        /// The name of the device
        port: String,
        /// The longest message of the device in bytes
        found: u32,
        /// The longest message that both sides have agreed on in bytes
        min: u32,
    },
    /// No cable joins a port of this side to one of the peer's
    #[error(
        "no path from {} to {} could be made{}; check the cables, and that both sides can open their devices",
        ports.join(" or "), ports_of_peer(*peer_ports), in_words(refusals)
    )]
    NoPath {
        /// The names of the devices of this side
        ports: Vec<String>,
        /// How many ports the peer uses
        peer_ports: u32,
        /// The ports that could not be joined
        refusals: Vec<PortRefusal>,
    },
    /// The peer speaks no compatible protocol, or belongs to another group
    #[error(transparent)]
    Peer(#[from] HelloError),
    /// The bootstrap stream failed
    #[error("the bootstrap stream failed: {0}")]
    Stream(#[from] io::Error),
    /// The attempt came no further in time
    #[error("{stage} within {waited:?}")]
    Timeout {
        /// What the attempt waited for
        stage: ConnectStage,
        /// The time that this, or connecting as a whole, may take
        waited: Duration,
    },
    /// The peer takes no more sessions
    #[error("the peer takes no more sessions")]
    TooManySessions,
    /// A port of this side is busy and connects no queue pairs: another process has it, or it is wedged, as Apple's device was reported to be
    /// after several attempts to connect that had failed
    #[error("the port {port} connects no queue pairs ({error}): another process has it, or it is wedged")]
    PortBusy {
        /// The name of the device
        port: String,
        /// What the device has answered
        #[source]
        error: rdma_core::Error,
    },
    /// Paths were made, and on none of them packets passed in both directions in time
    #[error(
        "no path from {} carried packets in both directions within {waited:?}; check the cables, and that no firewall blocks the \
         ports of the data path", ports.join(" or ")
    )]
    Unproven {
        /// The names of the devices of this side
        ports: Vec<String>,
        /// The time that connecting may take
        waited: Duration,
    },
}

impl ConnectError {
    /// The error of a device, if it is one
    pub(crate) fn of_device(&self) -> Option<rdma_core::Error> {
        match self {
            Self::Device(error) => Some(*error),
            _ => None,
        }
    }
}

/// The ports of a peer that has so many of them, in words
fn ports_of_peer(count: u32) -> String {
    match count {
        1 => "the only port of the peer".to_owned(),
        _ => format!("any of the {count} ports of the peer"),
    }
}

/// Why a node cannot be made
///
/// ```
/// # rdma_sim::Sim::new().run(async |net| {
/// use rdma_async::{Node, NodeError};
///
/// // Outside of tokio, and without a runtime of its own.
/// let refused = Node::builder(net.opener("a", "rdma_en2")).build().unwrap_err();
/// assert_eq!(refused, NodeError::NoRuntime);
/// # }).value;
/// ```
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum NodeError {
    /// No runtime was given, and the caller does not run on tokio
    #[error("no runtime: give the builder one, or build the node inside a tokio runtime")]
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

/// A text that is no [`SharedKey`](crate::SharedKey)
///
/// ```
/// use rdma_async::{InvalidKey, SharedKey};
///
/// assert_eq!("secret".parse::<SharedKey>().unwrap_err(), InvalidKey);
/// ```
#[cfg(feature = "shared-key")]
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[error("a shared key is 64 hexadecimal digits")]
pub struct InvalidKey;

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

/// Why memory cannot be leased
///
/// ```
/// # use rdma_async::*;
/// # rdma_sim::Sim::new().run(async |net| {
/// # let node = |host| Node::builder(net.opener(host, "rdma_en2")).runtime(net.runtime()).build();
/// # let (a, b) = (node("a").unwrap(), node("b").unwrap());
/// # let (to_b, to_a) = tokio::io::duplex(1024);
/// # let (session, ()) = futures::future::try_join(a.connect(to_b), b.serve(to_a)).await.unwrap();
/// # let peer = b.accept().await.unwrap();
/// let refused = session.try_alloc(1 << 30).unwrap_err();
/// assert_eq!(refused, AllocError::TooLarge { len: 1 << 30, max: 16 << 20 });
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// # }).value.unwrap();
/// ```
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum AllocError {
    /// The node's send memory is smaller than that
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
