use std::fmt;
use std::io;
use std::time::Duration;

use rdma_core::WrId;
use rdma_core::session::{HelloError, Violation};

use crate::error::{AllocError, PoolError};
use crate::pool::Lease;

/// Why a session is lost
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
    /// The peer has ended all of its sessions
    #[error("the peer has ended all of its sessions")]
    PeerGone,
    /// No path to the peer, and no word of it, for the peer timeout
    #[error("no path to the peer is up, and nothing arrived from it for {0:?}")]
    PeerLost(Duration),
    /// The peer does not keep to the protocol
    #[error("the peer violates the protocol: {0}")]
    Protocol(#[from] Violation),
    /// The peer has ended the session at once, with this code
    #[error("the peer has ended the session with code {0}")]
    Reset(u64),
    /// The runtime has dropped the task that drives sessions
    #[error("the runtime has dropped the task that drives sessions")]
    RuntimeGone,
    /// The device completed a request that was not posted
    #[error("the device completed a request that was not posted: {0:?}")]
    UnknownCompletion(WrId),
    /// The device did not prove that it has stopped working on a path
    #[error("the device has not proved that it stopped; its memory is not used again")]
    Unstopped,
}

/// Why a message was not sent
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum SendError {
    /// There is no memory for the message
    #[error(transparent)]
    Alloc(#[from] AllocError),
    /// This side has closed the session
    #[error("this side has closed the session")]
    Closed,
    /// The lease is of another node
    #[error("the lease is of another node")]
    ForeignLease,
    /// The session is lost
    #[error(transparent)]
    Lost(#[from] SessionError),
    /// The peer has closed the session
    #[error("the peer has closed the session")]
    PeerClosed,
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

/// Why no message was received
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum RecvError {
    /// The session is lost
    #[error(transparent)]
    Lost(#[from] SessionError),
    /// No message is there, or tasks wait for one
    #[error("no message is there")]
    WouldBlock,
}

/// Why a session did not end in good order
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum CloseError {
    /// The session is lost: the peer may not have everything
    #[error(transparent)]
    Lost(#[from] SessionError),
}

/// A message that was not sent, with its lease where it can be had
#[derive(thiserror::Error)]
#[error("{error}")]
pub struct SendFailed {
    /// What went wrong
    #[source]
    pub error: SendError,
    /// The message; `None` if a device may still touch its memory
    pub lease: Option<Lease>,
}

impl fmt::Debug for SendFailed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("SendFailed").field(&self.error).finish()
    }
}

impl From<SendFailed> for SendError {
    fn from(failed: SendFailed) -> Self {
        failed.error
    }
}

/// Why no session was made
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// The node is closed
    #[error("the node is closed")]
    Closed,
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
    /// The pool could not be registered
    #[error(transparent)]
    Pool(#[from] PoolError),
    /// No cable joins a port of this side to one of the peer's
    #[error(
        "no path to the peer could be made; check the cables, and that both sides can open their devices"
    )]
    NoPath,
    /// The peer speaks no compatible protocol, or belongs to another group
    #[error(transparent)]
    Peer(#[from] HelloError),
    /// The bootstrap stream failed
    #[error("the bootstrap stream failed: {0}")]
    Stream(#[from] io::Error),
    /// The peer did not answer in time
    #[error("the peer did not answer within {0:?}")]
    Timeout(Duration),
    /// The peer takes no more sessions
    #[error("the peer takes no more sessions")]
    TooManySessions,
}
