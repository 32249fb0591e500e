//! What a step of a peering takes and returns

use super::ids::{IncomingId, PathId, SessionId, StreamId, Token};
use super::{Address, BulkTrailer, Grant, PacketTrailer};

/// The most grants in a [`PacketKind::Bulk`](super::PacketKind::Bulk)
pub const MAX_GRANTS: usize = 4;
/// The most messages that a [`PacketKind::Bulk`](super::PacketKind::Bulk) says have arrived
pub const MAX_ARRIVALS: usize = 2;

/// What the caller must post now, returned by [`Peering::poll_transmit`](super::Peering::poll_transmit)
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Transmit {
    /// On the eager lane: the payload, then the trailer
    Packet {
        /// The path
        path: PathId,
        /// What goes before the trailer
        payload: Payload,
        /// The trailer
        trailer: PacketTrailer,
    },
    /// On the bulk lane, a receive for `len` bytes at `offset` of a message, if `len` is not zero; then one for a
    /// [`BulkTrailer`]
    BulkReceive {
        /// The path
        path: PathId,
        /// The message; `None` for a receive that only keeps the lane alive
        id: Option<IncomingId>,
        /// Where in the message, in bytes
        offset: u64,
        /// How many bytes
        len: u32,
    },
    /// On the bulk lane, the bytes that the trailer describes, if there are any; then the trailer
    BulkSend {
        /// The path
        path: PathId,
        /// The message; `None` if any bytes will do
        token: Option<Token>,
        /// Describes the bytes
        trailer: BulkTrailer,
    },
}

/// What goes before the trailer of a packet
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Payload {
    /// A part of a message
    Fragment {
        /// The message
        token: Token,
        /// Where the part is, in bytes
        offset: u32,
        /// Its length in bytes
        len: u32,
    },
    /// Bytes of the protocol
    Inline(Inline),
}

/// A few bytes of the protocol
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Inline {
    bytes: [u8; Self::MAX],
    len: u8,
}

impl Inline {
    /// The most that there are
    pub const MAX: usize = MAX_GRANTS * Grant::LEN + MAX_ARRIVALS * Address::LEN;

    pub(super) const fn new() -> Self {
        Self { bytes: [0; Self::MAX], len: 0 }
    }

    pub(super) fn push<const N: usize>(&mut self, bytes: [u8; N]) {
        self.bytes[self.len as usize..][..N].copy_from_slice(&bytes);
        self.len += N as u8;
    }

    /// The bytes
    pub fn as_slice(&self) -> &[u8] {
        &self.bytes[..self.len as usize]
    }
}

/// Where the payload of a packet belongs, returned by [`Peering::on_packet`](super::Peering::on_packet)
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Placement {
    /// The message
    pub id: IncomingId,
    /// Where in the message, in bytes
    pub offset: u32,
    /// Length of the payload in bytes
    pub len: u32,
    /// Length of the message in bytes
    pub total: u32,
    /// Whether nothing of the message arrived before
    pub is_first: bool,
}

/// Something that happened, returned by [`Peering::poll_event`](super::Peering::poll_event)
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Event {
    /// The peer has opened a session
    Opened(SessionId),
    /// The peer has opened a stream of a session
    StreamOpened {
        /// The session
        session: SessionId,
        /// The stream
        stream: StreamId,
    },
    /// A stream is over: both sides have finished it, and each has everything
    StreamClosed {
        /// The session
        session: SessionId,
        /// The stream
        stream: StreamId,
    },
    /// The peer reads no more of a stream
    Stopped {
        /// The session
        session: SessionId,
        /// The stream
        stream: StreamId,
    },
    /// The next message of a stream is complete
    Message {
        /// The session
        session: SessionId,
        /// The stream
        stream: StreamId,
        /// The message; the number may be used again from now on
        id: IncomingId,
    },
    /// The stream brings no more messages
    Finished {
        /// The session
        session: SessionId,
        /// The stream
        stream: StreamId,
    },
    /// A message needs memory; answered by [`Peering::accept_bulk`](super::Peering::accept_bulk)
    Announced {
        /// The message
        id: IncomingId,
        /// The session
        session: SessionId,
        /// The stream
        stream: StreamId,
        /// Length of the message in bytes
        len: u64,
    },
    /// A message that was [expected](super::Peering::expect) is expected no more: the stream has ended its expectations; its number may be
    /// used again from now on
    Unexpected(IncomingId),
    /// A message will not be complete: its session is over; it may not have been [announced](Self::Announced) yet
    Withdrawn(IncomingId),
    /// The peer has all of a message
    Delivered {
        /// The session
        session: SessionId,
        /// The message
        token: Token,
    },
    /// A message will not be sent, or not be confirmed: its session is over
    Undelivered {
        /// The session
        session: SessionId,
        /// The message
        token: Token,
    },
    /// This side has closed the session, and the peer has everything that it sent
    Flushed(SessionId),
    /// The peer has closed the session, and everything that it sent was handed on
    PeerClosed(SessionId),
    /// The session is over: both sides have finished, and each has everything
    Closed(SessionId),
    /// The peer has ended the session at once
    Reset {
        /// The session
        session: SessionId,
        /// The reason that the peer gave
        code: u64,
    },
    /// A packet of the peer has arrived on a path for the first time: it carries data from now on
    PathProven(PathId),
    /// A path failed and carries nothing any more
    PathLost {
        /// The path
        path: PathId,
        /// Why it failed
        reason: PathLoss,
        /// Whether the peer was ever heard on it
        was_proven: bool,
    },
}

/// Why a path failed
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum PathLoss {
    /// The peer did not send what was granted
    #[error("the peer did not serve a bulk receive in time")]
    BulkStalled,
    /// A message was lost on the bulk lane
    #[error("a message was lost on the bulk lane")]
    BulkLost,
    /// The caller gave the path up: the device or the peer reported that it failed
    #[error("the device or the peer reported that the path failed")]
    Device,
    /// The application has broken it, as a drill
    #[error("the application has broken the path")]
    Broken,
    /// Nothing arrived for the timeout of the path
    #[error("no packet arrived for the path timeout")]
    Silent,
}
