//! Messages over RDMA, async and memory-safe
//!
//! An [`Endpoint`] is one device, real or simulated; a [`Connection`] carries messages to one peer, in order and exactly
//! once. The same program runs over every [`Device`].
//!
//! # Memory
//!
//! An endpoint registers memory once and [leases](Lease) pieces of it. A message is written into a lease, the device reads
//! it there, and the peer's device writes it into the memory from which the receiving application reads it as a
//! [`Message`]: nothing is copied, and nothing is allocated per message.
//!
//! # Safety model
//!
//! * Memory that a device works on is owned by the connection, never by a future. Dropping any future at any point is safe,
//!   loses no message that was queued, and frees its memory when the device is done. Forgetting one
//!   ([`mem::forget`](std::mem::forget)) is as safe, but leaks its place in line or among the messages in
//!   flight, the lease that it would have returned, and its handle of the connection. Tasks behind a forgotten future wait
//!   until the connection ends, tasks in `alloc` behind a forgotten `alloc` for ever. Every task that waits on a connection
//!   learns of its end.
//! * A timeout resolves a future; it never hands out memory that the device may still touch.
//! * When a connection ends, its queue pairs are destroyed first. If the device cannot prove that it stopped, the memory of
//!   posted requests is never used again.
//! * A [`Lease`] shows and sends only bytes that were written into it, never those of an earlier message.
//! * Wakers and subscribers of `tracing` run without a lock: they may use the connection. If one panics, the panic is caught and
//!   logged, and every other task is still woken.
//! * A device that reports what cannot be ends the connection that its report names, and no other.
//! * The public API has no `unsafe` of its own; [`bytes::BufMut`] has.
//!
//! # Reconnecting
//!
//! [`session`]s outlive their cables. A connection that is lost stays lost. `can_reconnect` of its error says whether the same endpoint can make another one; if not,
//! open the device anew and build a new endpoint on it. Either way the peers need a new stream for the bootstrap.
//!
//! # Features
//!
//! * `tokio` (default): endpoints run on the tokio runtime that they are built in, and any of its streams carries the bootstrap.
//!   Without it, pass a [`Runtime`] to [`EndpointBuilder::runtime`].

mod bootstrap;
mod bootstrap_stream;
mod connection;
mod effects;
mod endpoint;
mod endpoint_inner;
mod error;
mod inbox;
mod io_error;
mod joining;
mod node;
mod op_table;
mod options;
mod peering;
mod pool;
mod queue_pairs;
mod reactor;
mod reactor_waker;
mod reconnect;
mod send_failed;
pub mod session;
mod spin_runtime;
mod sync;
pub mod time;
#[cfg(feature = "tokio")]
mod tokio_runtime;
mod wait_queue;
#[cfg(test)]
mod wake_count;

pub mod future {
    //! The futures and streams of endpoints and connections, named after the methods that return them
    //!
    //! Name them to store them in a structure.

    pub use crate::connection::futures::{Close, Closed, Messages, Recv, Send};
    pub use crate::endpoint::WaitIdle;
    pub use crate::pool::Alloc;
}

pub use rdma_core::protocol::{HelloError, Violation};
pub use rdma_core::{
    AnyDevice, Caps, Cause, Device, Error, Gid, Invalid, PortState, PortStatus, Qpn, Resource, Runtime,
    Status, Time, Timer, Verb, WrId,
};

pub use bootstrap_stream::BootstrapStream;
pub use connection::{Connection, ConnectionId, ConnectionStats, Message, Peer};
pub use endpoint::{Endpoint, EndpointBuilder};
pub use error::{
    AllocError, CloseError, ConnectError, ConnectionError, EndpointError, InvalidOptions, PoolError,
    RecvError, SendError,
};
pub use options::EndpointOptions;
pub use pool::{Lease, PoolStats, ZoneStats};
pub use send_failed::SendFailed;
pub use spin_runtime::SpinRuntime;
#[cfg(feature = "tokio")]
pub use tokio_runtime::TokioRuntime;

/// An endpoint of a device whose backend is chosen at run time
///
/// ```
/// # rdma_sim::Sim::new().run(async |net| {
/// use rdma_async::{AnyDevice, AnyEndpoint, Endpoint};
///
/// // A field or a signature of this type holds endpoints of every backend.
/// let device = AnyDevice::new(net.open("a", "rdma_en2")?);
/// let endpoint: AnyEndpoint = Endpoint::builder(device).runtime(net.runtime()).build()?;
/// # drop(endpoint);
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// # }).value.unwrap();
/// ```
pub type AnyEndpoint = Endpoint<AnyDevice>;

/// A connection of an [`AnyEndpoint`]
///
/// ```
/// # rdma_sim::Sim::new().run(async |net| {
/// use rdma_async::{AnyConnection, AnyDevice, Endpoint, RecvError};
///
/// // Written once, for the backend that the program chooses when it starts.
/// async fn greeting(connection: &AnyConnection) -> Result<String, RecvError> {
///     let message = connection.recv().await?;
///     Ok(message.map_or_else(String::new, |text| String::from_utf8_lossy(&text).into_owned()))
/// }
///
/// let open = |host| net.open(host, "rdma_en2").map(AnyDevice::new);
/// let a = Endpoint::builder(open("a")?).runtime(net.runtime()).build()?;
/// let b = Endpoint::builder(open("b")?).runtime(net.runtime()).build()?;
/// let (to_b, to_a) = tokio::io::duplex(256);
/// let (ab, ba) = futures::future::try_join(a.connect(to_b), b.accept(to_a)).await?;
/// ab.send_bytes(b"hello").await?;
/// assert_eq!(greeting(&ba).await?, "hello");
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// # }).value.unwrap();
/// ```
pub type AnyConnection = Connection<AnyDevice>;

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
