//! The vocabulary of RDMA over Thunderbolt 5
//!
//! Every other crate of the workspace speaks in the terms defined here:
//!
//! * the verbs as traits ([`Device`], [`MemoryRegion`], [`CompletionQueue`], [`QueuePair`]), static first, with
//!   [`AnyDevice`] for those who choose a backend at run time;
//! * their types, limits and errors ([`Caps`], [`Completion`], [`Error`], …);
//! * [`protocol`]: the protocol that runs on one cable, as a state machine that neither owns buffers nor does I/O;
//! * the seams by which time and tasks enter: [`Time`], [`Runtime`].
//!
//! # What it is not
//!
//! There is no backend, no clock and no executor in here. `rdma-sim` and `rdma-tb5` implement the traits,
//! `rdma-async` drives the state machine and is what applications use.
//!
//! # The shape of the device
//!
//! The traits fit the narrowest device they must drive, Apple's RDMA over Thunderbolt 5: unreliable-connected queue
//! pairs, two-sided SEND only, one scatter-gather element, queues counted in frames of [`FRAME`] bytes, and a send
//! completion that does not mean delivery. What a richer device adds is announced by [`Caps`].

mod address;
mod any;
mod attr;
mod caps;
mod device;
mod error;
mod invalid;
pub mod protocol;
mod runtime;
mod time;
mod work;

pub use address::{Gid, Lid, Psn, QpAddress, Qpn};
pub use any::{AnyCompletionQueue, AnyDevice, AnyMemoryRegion, AnyQueuePair};
pub use attr::{AttrMask, QpAttr};
pub use caps::{Access, Caps, PortState, PortStatus, QpCapacity, QpInit, QpState, QpType, Transition};
pub use device::{CompletionQueue, Device, MemoryRegion, QueuePair, Teardown};
pub use error::{Cause, Error, Resource, Verb};
pub use invalid::Invalid;
pub use runtime::{Runtime, Timer};
pub use time::Time;
pub use work::{Completion, Lkey, Opcode, RecvRequest, Rkey, SendOp, SendRequest, Sge, Status, WrId};

/// Bytes in a frame, the unit in which the device cuts messages and counts queue space
///
/// Source: Apple TN3205 ("queues are sized in 4 KiB frames").
pub const FRAME: usize = 4096;

/// How many frames a message of `len` bytes spans on the wire and in the queues
///
/// An empty message still travels as one frame.
pub const fn frames(len: usize) -> usize {
    if len == 0 { 1 } else { len.div_ceil(FRAME) }
}
