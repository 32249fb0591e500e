//! Sessions over RDMA, async and memory-safe
//!
//! A [`Node`] is this process with its devices, real or simulated; a [`Session`] carries messages to one peer, in order and exactly
//! once, over every cable that joins both, for as long as there is a way to the peer. The same program runs over every [`Device`].
//! `PROTOCOL.md` of [`rdma_core`] explains how.
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
//! # Memory
//!
//! A node [leases](Lease) pieces of its memory, which is registered once for each path. A message is written into a lease. One
//! above 68,544 bytes is read there by the device, and the peer's device writes it into the memory from which the receiving application
//! reads it as a [`Message`]; a shorter one is copied on its way out, and again on
//! arrival if it is longer than 4,032 bytes. Nothing is allocated per message, but for those that become leases. Memory of the application
//! can be [adopted](Node::adopt), and is then sent from and received into as a node's own.
//!
//! # Safety model
//!
//! * Memory that a device works on is owned by the session, never by a future. Dropping any future at any point is safe,
//!   loses no message that was queued, and frees its memory when the device is done. Forgetting one
//!   ([`mem::forget`](std::mem::forget)) is as safe, but leaks its place in line or among the messages in
//!   flight, the lease that it would have returned, and its handle of the session. Tasks behind a forgotten future wait
//!   until the session ends, tasks in `alloc` behind a forgotten `alloc` for ever. Every task that waits on a session
//!   learns of its end.
//! * A timeout resolves a future; it never hands out memory that the device may still touch.
//! * When a path ends, its queue pairs are destroyed and its registration is given back before its memory is used again. If neither
//!   proves that the device has stopped, the memory of posted requests is never used again, and the sessions of that peer end.
//! * A [`Lease`] shows and sends only bytes that were written into it, never those of an earlier message; one of [`Adopted`] memory also
//!   what the application had there.
//! * Wakers run without a lock: they may use the session. If one panics, the panic is caught and logged, and every other task is
//!   still woken.
//! * A device that reports what cannot be ends the sessions of the peer that its report names, and no other.
//! * The public API has no `unsafe` of its own; [`bytes::BufMut`] has, and adopted memory is where its type promises by
//!   `StableDeref` that it stays.
//!
//! # When cables and devices fail
//!
//! A cable that is pulled, a port that goes down, a request that fails: each ends a path, and the others go on. The node makes the
//! path again over the bootstrap stream, which it keeps for that, or over another path if the stream has ended. Without any path a
//! session waits: it ends when nothing is heard of the peer for the [peer timeout](NodeOptions::peer_timeout), neither over a path nor
//! over the stream.
//!
//! A device may take long to make or to end a path, and a wedged one never returns. Such calls run on threads of their own; after
//! [`device_timeout`](NodeOptions::device_timeout) they are reported ([`ConnectError::Blocked`], [`SessionError::Blocked`],
//! [`PathSnapshot::blocked`], [`Node::device_stats`], a warning in the log), and what the device has is kept for good rather than used again.
//! Other paths, sessions and devices do not notice. A post or a poll runs on the executor; what happens if one does not return is said at
//! [`device_timeout`](NodeOptions::device_timeout).
//!
//! # Features
//!
//! * `tokio` (default): nodes run on the tokio runtime that they are built in, and any of its streams carries the bootstrap.
//!   Without it, pass a [`Runtime`] to [`NodeBuilder::runtime`].
//! * `metrics`: `Snapshot::publish` gives figures to the recorder of the crate `metrics`.
//! * `shared-key`: a secret without which no peer is connected, by the crate `snow`.

mod adopt_error;
mod blocked_call;
mod blocking_stream;
mod blocking_threads;
mod bootstrap_stream;
mod connect_stage;
mod device_calls;
mod effects;
mod error;
mod id_map;
mod inbox;
mod invalid_options;
mod io_error;
mod joining;
mod node;
mod node_id;
mod op_table;
mod peering;
mod pool;
mod port_refusal;
mod reactor_waker;
mod send_failed;
mod session;
#[cfg(feature = "shared-key")]
mod shared_key;
mod spin_runtime;
mod sync;
mod thread_runtime;
pub mod time;
mod timers;
#[cfg(feature = "tokio")]
mod tokio_runtime;
mod wait_queue;
#[cfg(test)]
mod wake_count;

pub mod future {
    //! The futures and streams of nodes and sessions, named after the methods that return them
    //!
    //! Name them to store them in a structure.

    pub use crate::pool::Alloc;
    pub use crate::session::futures::{Closed, Messages, PathChange, Recv, Send};
    pub use crate::session::opening::{AcceptStream, OpenStream};
    pub use crate::session::recv_into::RecvInto;
}

pub use rdma_core::session::{
    ByeReason, FRAGMENT, HelloError, Integrity, LaneCounts, LinkId, LostReason, MAX_EAGER, PathCounts,
    PathLoss, PathStatus, Priority, SessionId, Side, StreamId, Violation,
};
pub use rdma_core::{
    Access, AnyDevice, BlockingCall, Caps, Cause, Device, Error, FRAME, Gid, Histogram, Invalid, PortState,
    PortStatus, Qpn, Resource, Runtime, Status, Time, Timer, Transport, Verb, Work, WrId,
};

pub use adopt_error::AdoptError;
pub use blocked_call::{BlockedCall, DeviceCall};
pub use blocking_stream::BlockingStream;
pub use bootstrap_stream::BootstrapStream;
pub use connect_stage::ConnectStage;
pub use device_calls::DeviceStats;
#[cfg(feature = "shared-key")]
pub use error::InvalidKey;
pub use error::{
    AllocError, CloseError, ConnectError, NodeError, OpenError, PoolError, RecvError, RequestError,
    SendError, SessionError,
};
pub use invalid_options::InvalidOptions;
pub use node::{Node, NodeBuilder, NodeOptions};
pub use node_id::NodeId;
pub use pool::{Adopted, Lease, PoolStats, ZoneStats};
pub use port_refusal::PortRefusal;
pub use rdma_arena::MappedBytes;
pub use send_failed::SendFailed;
#[cfg(feature = "tokio")]
pub use session::ByteStream;
pub use session::{
    Message, MessageDuplex, MessageSink, PathSnapshot, Regions, RemoteError, Session, Snapshot, Stream,
};
#[cfg(feature = "shared-key")]
pub use shared_key::SharedKey;
pub use spin_runtime::SpinRuntime;
pub use thread_runtime::{ThreadRuntime, block_on};
#[cfg(feature = "tokio")]
pub use tokio_runtime::TokioRuntime;

/// A node of devices whose backend is chosen at run time
///
/// ```
/// # rdma_sim::Sim::new().run(async |net| {
/// use rdma_async::{AnyDevice, AnyNode, Node};
///
/// // A field or a signature of this type holds nodes of every backend.
/// let open = net.opener("a", "rdma_en2");
/// let node: AnyNode = Node::builder(move || open().map(AnyDevice::new)).runtime(net.runtime()).build()?;
/// # drop(node);
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// # }).value.unwrap();
/// ```
pub type AnyNode = Node<AnyDevice>;

/// A session of an [`AnyNode`]
///
/// ```
/// # use rdma_async::*;
/// use rdma_async::{AnySession, RecvError};
///
/// // Written once, for the backend that the program chooses when it starts.
/// async fn greeting(session: &AnySession) -> Result<String, RecvError> {
///     let message = session.recv().await?;
///     Ok(message.map_or_else(String::new, |text| String::from_utf8_lossy(&text).into_owned()))
/// }
/// ```
pub type AnySession = Session<AnyDevice>;

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
