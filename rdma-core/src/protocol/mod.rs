//! The protocol of one connection, as a state machine without I/O
//!
//! Two queue pairs join two peers:
//!
//! * the **eager lane** carries messages that fit one frame together with their [`Trailer`], and all control messages.
//!   Receives are kept posted and counted by credits in software, because real network adapters drop a message that finds
//!   no receive;
//! * the **bulk lane** carries all longer messages, without any header. A message is *announced* on the eager lane, the
//!   receiver posts a receive of exactly its frames into the final buffer and *grants* it, and then the sender posts the
//!   bytes. Announcements run ahead of the data, so that the cable does not idle between messages.
//!
//! Messages are delivered in the order in which they were queued, across both lanes: an announcement holds the place of
//! its message.
//!
//! A [`Protocol`] holds no buffers: it names queued messages by a [`Token`] of the caller. It allocates only when it is
//! created, and a peer cannot make it store more than its [`Params`] allow.
//!
//! # Closing
//!
//! A side that has nothing more to send sends [`Fin`](Kind::Fin) after its last message, and delivers no message after
//! it. The peer then stops sending. When everything has arrived, the peer answers [`FinAck`](Kind::FinAck) with the number
//! of bulk messages that it had posted until then. When those have arrived, too, the first side sends
//! [`Done`](Kind::Done) and destroys its queue pairs. The peer destroys its own when it receives `Done`, or after the
//! peer timeout. If both send `Fin` at once, each plays both parts.
//!
//! # Flow control
//!
//! Each trailer carries two running totals: how many eager receives its sender has posted, and how many announced
//! messages it has granted. A side whose totals changed and that has nothing else to send sends an
//! [`Update`](Kind::Update). Updates need a credit, too. [`Params::reserve`] credits are therefore kept back from data;
//! its documentation shows that the lane cannot lock up.
//!
//! # Example
//!
//! ```
//! use std::time::Duration;
//!
//! use rdma_core::Time;
//! use rdma_core::protocol::{Incoming, Params, Protocol, ProtocolConfig, Token, Transmit};
//!
//! let config = ProtocolConfig {
//!     bulk_receives: 16,
//!     bulk_send_frames: 64,
//!     eager_send_frames: 16,
//!     keep_alive_interval: Duration::from_millis(10),
//!     params: Params {
//!         announces: 2,
//!         max_message: 1 << 17,
//!         peer_timeout: Duration::from_millis(80),
//!         window: 24,
//!     },
//!     max_queued: 64,
//! };
//! let mut a = Protocol::new(config, config.params, Time::ZERO);
//! let mut b = Protocol::new(config, config.params, Time::ZERO);
//!
//! a.enqueue(Token(7), 5).unwrap();
//! let Some(Transmit::Eager { token: Token(7), trailer }) = a.poll_transmit(true) else { panic!() };
//! // The caller posts the message and its trailer on the eager lane; they arrive at the peer.
//! let message = [b"hello".as_slice(), &trailer.to_bytes()].concat();
//! assert_eq!(b.on_eager(Time::ZERO, &message), Ok(Incoming::Data { len: 5 }));
//! ```

mod config;
mod error;
mod hello;
mod params;
mod state;
mod step;
mod trailer;

#[cfg(test)]
mod tests;

pub use config::ProtocolConfig;
pub use error::{EnqueueError, Violation};
pub use hello::{Hello, HelloError};
pub use params::Params;
pub use state::Protocol;
pub use step::{Incoming, Token, Transmit};
pub use trailer::{Kind, MAX_EAGER, Trailer, TrailerError};
