//! A session as applications use it

#[cfg(feature = "tokio")]
mod byte_stream;
mod claim;
mod copy_allocator;
mod duplex;
pub(crate) mod futures;
mod handle;
mod message;
pub(crate) mod opening;
#[cfg(feature = "metrics")]
mod publish;
pub(crate) mod recv_into;
mod region_message;
mod regions;
mod remote_memory;
mod request;
mod sink;
mod snapshot;
mod stream;

use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use rdma_core::session::{PathId, Priority, SessionId, Side};
use rdma_core::{Device, Runtime};

#[cfg(feature = "tokio")]
pub use self::byte_stream::ByteStream;
pub use self::duplex::MessageDuplex;
use self::futures::{Closed, Messages, PathChange, Recv, Send};
use self::handle::StreamHandle;
pub use self::message::Message;
use self::opening::{AcceptStream, OpenStream};
use self::recv_into::RecvInto;
pub use self::regions::Regions;
pub use self::remote_memory::RemoteError;
pub use self::sink::MessageSink;
pub use self::snapshot::{PathSnapshot, Snapshot};
pub use self::stream::Stream;
use crate::error::{AllocError, CloseError, ConnectError, RecvError, SendError};
use crate::node_id::NodeId;
use crate::peering::session_state::Counts;
use crate::peering::shared::PeeringShared;
use crate::pool::{Alloc, Lease, Zone};
use crate::send_failed::SendFailed;
use crate::wait_queue::Waiter;

/// Messages to and from one peer, in order and exactly once, over every path that there is
///
/// A session has a [main stream](Self::main_stream), which its methods for messages use, and [more](Self::open_stream) where some must
/// not wait for others.
///
/// Cheap to clone; all clones are the same session, and any number of tasks may send and receive at once. When the last clone
/// and the last future are dropped, queued messages are still sent, and then the session is closed; it is
/// [given up](crate::SessionError::Abandoned) if the peer takes none of them for the peer timeout.
///
/// ```
/// # rdma_sim::Sim::new().run(async |net| {
/// use rdma_async::Node;
///
/// let node = |host| Node::builder(net.opener(host, "rdma_en2")).runtime(net.runtime()).build();
/// let (a, b) = (node("a")?, node("b")?);
/// // Any byte stream between the two processes: TCP, or here a pipe.
/// let (to_b, to_a) = tokio::io::duplex(1024);
/// let (to_b, _) = futures::future::try_join(a.connect(to_b), b.serve(to_a)).await?;
/// to_b.send_bytes(b"hello").await?;
/// let to_a = b.accept().await.expect("the node is open");
/// assert_eq!(*to_a.recv().await?.expect("a message"), *b"hello");
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// # }).value.unwrap();
/// ```
pub struct Session<D: Device> {
    main: Stream<D>,
}

impl<D: Device> Session<D> {
    pub(crate) fn new(peering: Arc<PeeringShared<D>>, id: SessionId) -> Self {
        Self { main: Stream { handle: StreamHandle::session(peering, id) } }
    }

    fn peering(&self) -> &Arc<PeeringShared<D>> {
        &self.main.handle.peering
    }

    /// The clock and the tasks of the node
    pub fn runtime(&self) -> &Arc<dyn Runtime> {
        self.main.runtime()
    }

    /// Opens another session with the same peer, over the same paths
    ///
    /// # Errors
    ///
    /// [`ConnectError::TooManySessions`] if the peer takes no more, or [`ConnectError::Lost`] if it is lost.
    pub fn open(&self) -> Result<Self, ConnectError> {
        let peering = self.peering();
        let opened = peering.with(|state, now, effects| state.try_open(now, effects))?;
        Ok(Self::new(Arc::clone(peering), opened))
    }

    /// Leases memory for a message of up to `len` bytes
    ///
    /// Waits, in turn, until the node has that much free memory in one piece.
    ///
    /// # Errors
    ///
    /// [`AllocError::TooLarge`] if the node's send memory is smaller than `len`.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future gives up the place in line; no memory is lost.
    pub fn alloc(&self, len: usize) -> Alloc {
        Alloc::new(&self.peering().pool, len)
    }

    /// Leases memory for a message of up to `len` bytes, without waiting
    ///
    /// # Errors
    ///
    /// [`AllocError::TooLarge`] if the node's send memory is smaller than `len`; [`AllocError::WouldBlock`] if that much is not free in one
    /// piece, or if tasks wait for memory.
    pub fn try_alloc(&self, len: usize) -> Result<Lease, AllocError> {
        self.peering().pool.try_alloc(len)
    }

    /// Sends the message in `lease` on the main stream, as [`Stream::send`]
    ///
    /// Resolves with the lease once its memory may be written again, which does not mean that the message has arrived:
    /// [`Send::delivered`] waits for that.
    ///
    /// # Errors
    ///
    /// [`SendFailed`] returns the lease with the [`SendError`], as for [`Stream::send`].
    ///
    /// # Cancel safety
    ///
    /// Dropping the future before it was polled, or while it waits for a place in the queue, drops the message. Once the message has a
    /// place, it is sent whether or not the future lives.
    pub fn send(&self, lease: Lease) -> Send<D> {
        self.main.send(lease)
    }

    /// Queues the message in `lease` on the main stream, without waiting
    ///
    /// # Errors
    ///
    /// As [`Stream::try_send`].
    pub fn try_send(&self, lease: Lease) -> Result<(), SendFailed> {
        self.main.try_send(lease)
    }

    /// Copies `bytes` and sends them as a message on the main stream
    ///
    /// # Errors
    ///
    /// As [`Stream::send_bytes`].
    ///
    /// # Cancel safety
    ///
    /// As [`Stream::send`].
    pub async fn send_bytes(&self, bytes: &[u8]) -> Result<(), SendError> {
        self.main.send_bytes(bytes).await
    }

    /// The next message of the main stream, or `None` at its end, as [`Stream::recv`]
    ///
    /// # Errors
    ///
    /// A [`RecvError`], as [`Stream::recv`]: the session is lost, or the peer has reset it.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses no message: the next call returns it.
    pub fn recv(&self) -> Recv<D> {
        self.main.recv()
    }

    /// The next message of the main stream, or `None` at its end, in the memory of `lease`, as [`Stream::recv_into`]
    ///
    /// # Errors
    ///
    /// A [`RecvError`], as [`Stream::recv_into`].
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses no message, and drops the lease.
    pub fn recv_into(&self, lease: Lease) -> RecvInto<D> {
        self.main.recv_into(lease)
    }

    /// The next message of the main stream, or `None` at its end, without waiting
    ///
    /// # Errors
    ///
    /// As [`Stream::try_recv`].
    pub fn try_recv(&self) -> Result<Option<Message>, RecvError> {
        self.main.try_recv()
    }

    /// Expects that each of the messages at `places` on the main stream has `len` bytes; see [`Stream::expect`]
    pub fn expect(&self, len: usize, places: Range<usize>) -> usize {
        self.main.expect(len, places)
    }

    /// The messages of the main stream, as a [`futures_core::Stream`]; see [`Stream::messages`]
    ///
    /// # Cancel safety
    ///
    /// Dropping it loses no message.
    pub fn messages(&self) -> Messages<D> {
        self.main.messages()
    }

    /// Takes messages for the main stream, as a [`futures_sink::Sink`]; see [`Stream::sink`]
    pub fn sink(&self) -> MessageSink<D> {
        self.main.sink()
    }

    /// The stream that the session has from the start
    pub fn main_stream(&self) -> &Stream<D> {
        &self.main
    }

    /// Opens another stream of the session
    ///
    /// Waits, in turn, while this side has as many open as the peer's [`max_streams`](crate::NodeOptions::max_streams): a stream is open
    /// until both sides have finished it. The peer accepts it without having received anything.
    ///
    /// # Errors
    ///
    /// An [`OpenError`](crate::OpenError) if this side or the peer has closed the session, or if it is lost.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future gives up the place in line; no stream is opened.
    pub fn open_stream(&self, priority: Priority) -> OpenStream<D> {
        OpenStream::new(Arc::clone(&self.main.handle), priority)
    }

    /// The next stream that the peer has opened, or `None` when it has closed the session and all were accepted
    ///
    /// Streams that the application does not accept are kept, up to [`max_streams`](crate::NodeOptions::max_streams) at a time.
    ///
    /// # Errors
    ///
    /// [`RecvError::Lost`] if the session is lost. Streams that were opened before are returned first.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses no stream.
    pub fn accept_stream(&self) -> AcceptStream<D> {
        AcceptStream { session: Arc::clone(&self.main.handle), waiter: Waiter::default() }
    }

    /// Closes the session: sends the queued messages, and waits until the peer's node has everything
    ///
    /// The peer's application reads them and then the end. What it sends until its node learns of the close, some round trips later, can
    /// still be read here; then it can send no more.
    ///
    /// # Errors
    ///
    /// [`CloseError::Lost`] if the session was lost before the peer confirmed.
    ///
    /// # Cancel safety
    ///
    /// Closing begins when the future is first polled, and goes on when it is dropped.
    pub async fn close(&self) -> Result<(), CloseError> {
        let id = self.id();
        self.peering().with(|state, now, effects| state.close(id, now, effects));
        self.closed().await
    }

    /// Waits until the session is over, or closed by this side with everything delivered
    ///
    /// Neither closes the session nor keeps it open: the future may outlive the session's last clone.
    ///
    /// # Errors
    ///
    /// As [`close`](Self::close).
    ///
    /// # Cancel safety
    ///
    /// Dropping the future changes nothing.
    pub fn closed(&self) -> Closed<D> {
        self.main.closed()
    }

    /// How the session ended for this side, or `None` while it lasts; what [`closed`](Self::closed) returns
    ///
    /// # Errors
    ///
    /// Inside, the [`CloseError`] of [`close`](Self::close) if the session ended otherwise than in good order.
    pub fn close_reason(&self) -> Option<Result<(), CloseError>> {
        self.main.handle.with_session(|session, _| session.end.value().clone())
    }

    /// The number of the session, the same on both sides, for logs: unique among those with this peer for a long time
    pub fn id(&self) -> SessionId {
        self.main.handle.key.session
    }

    /// The process at the other end
    pub fn peer(&self) -> NodeId {
        self.peering().peer
    }

    /// Which side of the peering this end is, the same for all sessions with the peer; the other end is the other side
    ///
    /// Tells the two ends apart if both run the same program.
    pub fn side(&self) -> Side {
        self.peering().update(|state, _| state.side())
    }

    /// What the session has done, and what it waits for
    pub fn snapshot(&self) -> Snapshot {
        let (id, peer) = (self.id(), self.peer());
        let waiting_for_send_memory = self.peering().pool.waiting(Zone::Send);
        self.peering().with(|state, now, _| {
            let paths = (0..state.path_count()).map(PathId);
            let paths = paths.map(|path| {
                let (status, counts, [round_trips, part_times]) = state.path(path);
                let [eager_rate, bulk_rate] = state.measured_rates(path, now);
                PathSnapshot {
                    device: state.device_of(path),
                    blocked: state.blocked_on(path),
                    failure: state.failure_of(path),
                    status,
                    counts,
                    round_trips,
                    part_times,
                    eager_rate,
                    bulk_rate,
                }
            });
            let (paths, waits, wants_memory) =
                (paths.collect(), state.session_waits(id), state.wants_memory(id));
            let session = state.session(id).expect("a session with a handle is there");
            let deliveries = session.deliveries.clone();
            let Counts { queued, bytes_queued, delivered, received, bytes_received, .. } = session.counts;
            Snapshot {
                session: id,
                peer,
                deliveries,
                messages_queued: queued,
                bytes_queued,
                messages_delivered: delivered,
                messages_received: received,
                bytes_received,
                messages_unread: session.streams().map(|stream| stream.inbox.len()).sum(),
                messages_in_flight: session.streams().map(|stream| stream.ops.in_use()).sum(),
                streams: session.streams().count(),
                paths,
                is_over: session.is_over,
                waits,
                wants_memory,
                copies_without_memory: session.streams().map(|stream| stream.copies().waiting()).sum(),
                waiting_for_send_memory,
            }
        })
    }

    /// How many paths to the peer carry data: none while all cables are out, and before its first packet has arrived
    ///
    /// All sessions with the peer share them.
    pub fn paths_up(&self) -> usize {
        self.peering().update(|state, _| state.paths_up())
    }

    /// Waits until another number of paths than `known` carries data, and returns it
    ///
    /// Neither closes the session nor keeps it open: the future may outlive the session's last clone. Of a session that is lost, no path
    /// carries data. A path that is lost and made again between two polls is not noticed.
    ///
    /// ```
    /// # rdma_sim::Sim::new().run(async |net| {
    /// # let node = |host| rdma_async::Node::builder(net.opener(host, "rdma_en2")).runtime(net.runtime()).build();
    /// # let (a, b) = (node("a")?, node("b")?);
    /// # let (to_b, to_a) = tokio::io::duplex(1024);
    /// # let (session, _) = futures::future::try_join(a.connect(to_b), b.serve(to_a)).await?;
    /// # let peer = b.accept().await.expect("the node is open");
    /// assert_eq!(session.paths_up(), 1);
    /// session.break_paths();
    /// assert_eq!(session.path_change(1).await, 0);
    /// // The nodes make a new path.
    /// assert_eq!(session.path_change(0).await, 1);
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// # }).value.unwrap();
    /// ```
    ///
    /// # Cancel safety
    ///
    /// Dropping the future changes nothing.
    pub fn path_change(&self, known: usize) -> PathChange<D> {
        PathChange::new(self.main.handle.stream_ref(), known)
    }

    /// How long the peer may be silent: after that without a word of it, it counts as lost
    ///
    /// The shorter [`peer_timeout`](crate::NodeOptions::peer_timeout) of both sides.
    pub fn peer_timeout(&self) -> Duration {
        self.peering().update(|state, _| state.peer_timeout())
    }

    /// The longest message that the peer takes, in bytes
    pub fn max_message(&self) -> usize {
        self.main.handle.max_message()
    }

    /// Breaks every path to the peer, as if all cables had been pulled for a moment: a drill
    ///
    /// The nodes make new paths at once, and what was under way is sent again; no message is lost or repeated. Use it to rehearse an outage on
    /// machines whose cables are out of reach. The outage interrupts all sessions with the peer, because they share the paths. The
    /// [snapshot](Self::snapshot) has the cost; its last loss is [`PathLoss::Broken`](rdma_core::session::PathLoss::Broken) on this side.
    ///
    /// ```
    /// # rdma_sim::Sim::new().run(async |net| {
    /// # let node = |host| rdma_async::Node::builder(net.opener(host, "rdma_en2")).runtime(net.runtime()).build();
    /// # let (a, b) = (node("a")?, node("b")?);
    /// # let (to_b, to_a) = tokio::io::duplex(1024);
    /// # let (session, _) = futures::future::try_join(a.connect(to_b), b.serve(to_a)).await?;
    /// # let peer = b.accept().await.expect("the node is open");
    /// session.break_paths();
    /// session.send_bytes(b"over a new path").await?;
    /// # assert_eq!(*peer.recv().await?.expect("a message"), *b"over a new path");
    /// assert_eq!(session.snapshot().paths[0].counts.made, 2);
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// # }).value.unwrap();
    /// ```
    pub fn break_paths(&self) {
        self.peering().break_paths();
    }

    /// Ends the session at once: here with [`SessionError::Aborted`](crate::SessionError::Aborted), at the peer with
    /// [`SessionError::Reset`](crate::SessionError::Reset) and this code; [`u64::MAX`] is that of nodes
    ///
    /// Messages that were not delivered are lost.
    pub fn reset(&self, code: u64) {
        let id = self.id();
        self.peering().with(|state, now, effects| state.reset(id, code, now, effects));
    }
}

impl<D: Device> Stream<D> {
    /// Its session
    pub fn session(&self) -> Session<D> {
        Session { main: Self { handle: Arc::clone(self.handle.main()) } }
    }
}

impl<D: Device> Clone for Session<D> {
    fn clone(&self) -> Self {
        Self { main: self.main.clone() }
    }
}

impl<D: Device> fmt::Debug for Session<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session").field("id", &self.id().number()).finish_non_exhaustive()
    }
}
