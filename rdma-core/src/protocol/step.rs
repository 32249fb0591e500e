//! What a step of the protocol takes and returns

use super::Trailer;

/// The caller's identifier of a queued message
///
/// ```
/// assert_ne!(rdma_core::protocol::Token(1), rdma_core::protocol::Token(2));
/// ```
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub struct Token(pub u32);

/// A send that the caller must post now, returned by [`Protocol::poll_transmit`](super::Protocol::poll_transmit)
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Transmit {
    /// On the bulk lane: the bytes of the message, without a trailer
    Bulk {
        /// The message
        token: Token,
    },
    /// On the eager lane: the bytes of the message, then the trailer
    Eager {
        /// The message
        token: Token,
        /// The trailer that follows its bytes
        trailer: Trailer,
    },
    /// On the eager lane: a message of the protocol itself
    Control {
        /// For [`Kind::Announce`](super::Kind::Announce) and [`Kind::FinAck`](super::Kind::FinAck), four bytes little-endian before the trailer
        body: Option<u32>,
        /// The trailer
        trailer: Trailer,
    },
}

/// A received message of the eager lane, decoded by [`Protocol::on_eager`](super::Protocol::on_eager)
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Incoming {
    /// A bulk message of `len` bytes will arrive later; its place in the order of messages is here
    Announced {
        /// Length in bytes
        len: u32,
    },
    /// A control message: the caller can post its receive again at once
    Control,
    /// The first `len` bytes are a message
    Data {
        /// Length in bytes
        len: usize,
    },
    /// The peer has closed: no message follows the previous ones
    Fin,
}
