//! The protocol of sessions between two processes, as a state machine without I/O
//!
//! `PROTOCOL.md` of this crate explains the protocol and why it keeps its promises. In short:
//!
//! * a [`Peering`] is what two processes have with each other. It has *paths*, one for each cable, and *sessions*, which share
//!   the paths;
//! * a session has *streams*. Messages of a stream arrive in order and exactly once; streams do not wait for each other;
//! * a path has two lanes, each a queue pair. The *eager lane* carries packets of one frame: fragments of messages up to
//!   [`MAX_EAGER`] bytes, and the protocol itself. The *bulk lane* carries longer messages, into receives that were posted for
//!   them in their final place;
//! * every fragment names its session, stream, message and place. Paths may overtake each other, and what was lost on one is
//!   sent again on another.
//!
//! A [`Peering`] holds no payload: the caller names the messages that it sends by a [`Token`], and keeps what arrives under an
//! [`IncomingId`].

mod bulk;
mod bulk_trailer;
mod config;
mod error;
mod features;
mod handshake;
mod ids;
mod incoming;
mod lane;
mod outgoing;
mod packets;
mod peering;
mod rate;
mod reason;
mod status;
mod step;
mod trailer;

pub use bulk::MAX_SLOTS;
pub use bulk_trailer::{BulkPart, BulkTrailer, Grant};
pub use config::{Limits, MAX_ROOM, MAX_SESSIONS, MAX_STREAMS, PeeringConfig, Side};
pub use error::{RefusedSend, Violation};
pub use features::{Features, PortName};
pub use handshake::{
    ControlMessage, Hello, HelloError, LinkId, MIN_PEER_TIMEOUT, Offer, PathEnd, lane_config,
};
pub use ids::{IncomingId, PathId, Priority, SessionId, StreamId, Token};
pub use lane::{LaneConfig, MIN_WINDOW};
pub use packets::{MAX_UNREPORTED, Report};
pub use peering::Peering;
pub use reason::{ByeReason, LostReason};
pub use status::{LaneCounts, PathCounts, PathStatus, SessionWaits};
pub use step::{Event, Inline, MAX_ARRIVALS, MAX_GRANTS, PathLoss, Payload, Placement, Transmit};
pub use trailer::{
    Address, FRAGMENT, Integrity, MAX_EAGER, MAX_FRAGMENTS, PacketError, PacketKind, PacketTrailer, packets,
};
