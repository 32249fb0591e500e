//! The protocol on one cable, as a state machine without I/O
//!
//! Two queue pairs join two peers:
//!
//! * the **eager lane** carries messages that fit one frame together with their [`Trailer`], and all control. Receives
//!   are kept posted, and counted by credits in software, because real network adapters drop what finds no receive;
//! * the **bulk lane** carries everything longer, without any header. A message is *announced* on the eager lane, the
//!   receiver posts a receive of exactly its frames into the final buffer and *grants* it, and then the bytes flow.
//!   Announcements run ahead of the data, so that the cable does not idle between messages.
//!
//! Messages are delivered in the order in which they were queued, across both lanes: an announcement holds the place of
//! its message.
//!
//! A [`Protocol`] holds no buffers: queued messages are named by a [`Token`] of the caller. It never allocates after it
//! was made, and keeps nothing unbounded on a peer's word.
//!
//! # Closing
//!
//! Who has nothing more to send says [`Fin`](Kind::Fin) after its last message, and reads no more. The peer stops sending,
//! and when everything has arrived it answers [`FinAck`](Kind::FinAck) with the number of bulk messages that it had posted
//! by then. When those have arrived, too, the first side says [`Done`](Kind::Done) and is gone; the other goes when it hears
//! that, or when it has waited for it for the timeout. If both say `Fin` at once, each does both.
//!
//! # Flow control
//!
//! Each trailer carries two running totals: how many eager receives its sender has posted, and how many announced
//! messages it has granted. A side whose totals moved and that has nothing to send says so in an
//! [`Update`](Kind::Update). Updates, too, need a credit. [`Params::reserve`] credits are therefore kept back from data;
//! its documentation shows that this suffices for the lane never to lock up.

mod config;
mod hello;
mod state;
mod trailer;
mod violation;

#[cfg(test)]
mod tests;

pub use config::ProtocolConfig;
pub use hello::{Hello, HelloError};
pub use state::{Incoming, Protocol, Token, Transmit};
pub use trailer::{Kind, Trailer, TrailerError};
pub use violation::{EnqueueError, Violation};

use crate::FRAME;

/// The longest message that goes by the eager lane, in bytes
pub const MAX_EAGER: usize = FRAME - Trailer::LEN;

/// What one side of a connection offers to its peer
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Params {
    /// Announced messages that may wait for their grant
    pub announces: u32,
    /// The longest message that this side can receive, in bytes
    pub max_message: u32,
    /// Eager receives that this side keeps posted
    pub window: u32,
}

/// Keep-alive messages that a side may send in the time after which a silent peer is given up
pub(crate) const MAX_KEEPALIVES: u32 = 8;

impl Params {
    /// Credits that are kept back for updates
    ///
    /// Suppose that both sides are stuck: each wants to send an update and has no credit, and nothing is on its way.
    /// Then A has sent at least `reserve` updates since the last message of B reached it, all of them posted again by B
    /// but not reported back. In that time A has received nothing. Its updates had these causes: at most `announces`
    /// grants; at most four times a quarter of a window of receives that were posted again (they held messages
    /// that B had sent before, at most a window of them); at most eight keep-alives, after which B would
    /// have been given up; and at most two steps of closing, because of a third of them B must have been heard.
    /// That is one less than the reserve, which contradicts the supposition.
    pub const fn reserve(&self) -> u32 {
        self.announces + 4 + MAX_KEEPALIVES + 2 + 1
    }

    /// How many receives are posted again before that is worth an update of its own
    pub(crate) const fn report_after(&self) -> u32 {
        self.window / 4
    }

    /// Whether data can flow: what is left of the window is more than what may go unreported
    pub const fn is_usable(&self) -> bool {
        self.announces >= 1
            && self.announces <= 1024
            && self.window <= 4095
            && self.window > self.reserve() + self.report_after()
    }
}
