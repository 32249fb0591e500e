//! The vocabulary of RDMA over Thunderbolt 5
//!
//! Every other crate of the workspace uses the terms defined here:
//!
//! * the verbs as traits ([`Device`], [`MemoryRegion`], [`CompletionQueue`], [`QueuePair`]), with [`AnyDevice`] for a
//!   backend that is chosen at run time;
//! * their types, limits and errors ([`Caps`], [`Completion`], [`Error`], …);
//! * [`session`]: the protocol of sessions that outlive their cables, as a state machine that neither owns buffers nor does I/O;
//! * the seams by which time and tasks enter: [`Time`], [`Runtime`].
//!
//! # The crates
//!
//! ```text
//! programs   your program       tb5 (rdma-cli) ─────┐         a program in C
//!                 │                  │              │            │
//!                 ▼                  ▼              ▼            ▼
//! on top     rdma-collectives   rdma-calibrate  rdma-doctor   librdma
//!                 │                  │              │            │
//!                 ▼                  │              │            ▼
//! sessions   rdma-async ◀────────────┘              │     rdma-sim-verbs
//!                 │                                 │            │
//!                 ▼ over any of                     ▼            ▼
//! devices    rdma-tcp (TCP)                 rdma-tb5 (real)   rdma-sim (simulated)
//!                 │                                 │            │
//!                 ▼                                 ▼            ▼
//! base       rdma-core (verbs as traits, the protocol), rdma-arena, rdma-verbs-abi, rdma-bare
//! ```
//!
//! # What it is not
//!
//! There is no backend, no clock and no executor in here. `rdma-sim` and `rdma-tb5` implement the traits, `rdma-async`
//! drives the state machine. Applications use `rdma-async`, which re-exports the types that its API needs.
//!
//! # The shape of the device
//!
//! The traits fit the narrowest device they must drive, Apple's RDMA over Thunderbolt 5: unreliable-connected queue
//! pairs, two-sided SEND only, one scatter-gather element, queues counted in frames of [`FRAME`] bytes, and a send
//! completion that does not mean delivery. What a richer device adds is announced by [`Caps`].

mod access;
mod address;
mod any;
mod attr;
mod caps;
mod device;
#[cfg(feature = "matrix")]
mod device_matrix;
mod error;
mod frame;
mod histogram;
#[cfg(feature = "matrix")]
mod hostfile;
mod invalid;
#[cfg(feature = "matrix")]
mod matrix_error;
mod port;
pub mod probe;
mod queue_pair;
mod runtime;
pub mod session;
mod time;
mod work;

pub use access::Access;
pub use address::{Gid, Lid, Psn, QpAddress, Qpn};
pub use any::{AnyCompletionQueue, AnyDevice, AnyMemoryRegion, AnyQueuePair};
pub use attr::{AttrMask, QpAttr};
pub use caps::{Caps, Transport};
pub use device::{CompletionQueue, Device, MemoryRegion, QueuePair, Teardown};
#[cfg(feature = "matrix")]
pub use device_matrix::{DeviceMatrix, DeviceRow};
pub use error::{Cause, Error, Resource, Verb};
pub use frame::{FRAME, frames};
pub use histogram::Histogram;
#[cfg(feature = "matrix")]
pub use hostfile::{Hostfile, HostfileEntry, HostfileError};
pub use invalid::{Invalid, crosses_boundary};
#[cfg(feature = "matrix")]
pub use matrix_error::MatrixError;
pub use port::{PortState, PortStatus};
pub use queue_pair::{QpCapacity, QpInit, QpState, QpType, Transition};
pub use runtime::{BlockingCall, Runtime, Timer, Work};
pub use time::Time;
pub use work::{Completion, Lkey, Opcode, RecvRequest, Rkey, SendOp, SendRequest, Sge, Status, WrId};

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
