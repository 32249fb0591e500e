//! A session as applications use it

pub(crate) mod futures;
mod handle;
mod message;
mod snapshot;

use std::fmt;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;

use rdma_core::Device;
use rdma_core::session::{PathId, SessionId};

use self::futures::{Closed, Messages, Recv, Send};
use self::handle::SessionHandle;
pub use self::message::Message;
pub use self::snapshot::{PathSnapshot, Snapshot};
use crate::error::{AllocError, CloseError, ConnectError, RecvError, SendError};
use crate::node_id::NodeId;
use crate::peering::session_state::Counts;
use crate::peering::shared::PeeringShared;
use crate::pool::{Alloc, Lease};
use crate::send_failed::SendFailed;
use crate::wait_queue::Waiter;

/// Messages to and from one peer, in order and exactly once, over every path that there is
///
/// Cheap to clone; all clones are the same session, and any number of tasks may send and receive at once. When the last clone
/// and the last future are dropped, queued messages are still sent, and then the session is closed; it is [given up](crate::SessionError::Abandoned) if the peer takes
/// none of them for the peer timeout.
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
    handle: Arc<SessionHandle<D>>,
}

impl<D: Device> Session<D> {
    pub(crate) fn new(peering: Arc<PeeringShared<D>>, id: SessionId) -> Self {
        Self { handle: Arc::new(SessionHandle::new(peering, id)) }
    }

    /// Opens another session with the same peer, over the same paths
    ///
    /// # Errors
    ///
    /// [`ConnectError::TooManySessions`] if the peer takes no more, or [`ConnectError::Lost`] if it is lost.
    pub fn open(&self) -> Result<Self, ConnectError> {
        let peering = &self.handle.peering;
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
        Alloc::new(&self.handle.peering.pool, len)
    }

    /// Leases memory for a message of up to `len` bytes, without waiting
    ///
    /// # Errors
    ///
    /// [`AllocError::TooLarge`] if the node's send memory is smaller than `len`; [`AllocError::WouldBlock`] if that much is not free in one
    /// piece, or if tasks wait for memory.
    pub fn try_alloc(&self, len: usize) -> Result<Lease, AllocError> {
        self.handle.peering.pool.try_alloc(len)
    }

    /// Sends the message in `lease`
    ///
    /// Resolves when the lease may be reused, and returns it. [`Send::delivered`] resolves when the peer has the message.
    ///
    /// # Errors
    ///
    /// With the lease, unless a failed device may still touch it:
    ///
    /// * [`SendError::Closed`] or [`SendError::PeerClosed`] if this side or the peer has closed the session;
    /// * [`SendError::ForeignLease`] if the lease is of another node;
    /// * [`SendError::Lost`] if the session is lost: the peer may or may not have the message;
    /// * [`SendError::TooLong`] if the peer does not take messages of this length.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future before it was first polled, or while it waits for a place in the queue, drops the message. Once the
    /// message has a place it will be sent, whether or not the future lives; its memory is then freed by itself.
    pub fn send(&self, lease: Lease) -> Send<D> {
        Send::new(Arc::clone(&self.handle), lease)
    }

    /// Queues the message in `lease`, without waiting
    ///
    /// # Errors
    ///
    /// As [`send`](Self::send), and [`SendError::WouldBlock`] if as many messages are in flight as may be, or if tasks wait to send.
    pub fn try_send(&self, lease: Lease) -> Result<(), SendFailed> {
        self.handle.peering.try_send(self.handle.id, lease)
    }

    /// Copies `bytes` into a lease and sends it
    ///
    /// # Errors
    ///
    /// As [`send`](Self::send), and [`SendError::Alloc`] if the node's send memory is smaller than the message.
    ///
    /// # Cancel safety
    ///
    /// As [`send`](Self::send).
    pub async fn send_bytes(&self, bytes: &[u8]) -> Result<(), SendError> {
        let mut lease = match self.try_alloc(bytes.len()) {
            Err(AllocError::WouldBlock) => self.alloc_to_send(bytes.len()).await?,
            leased => leased?,
        };
        lease.extend_from_slice(bytes);
        self.send(lease).await?;
        Ok(())
    }

    /// Leases memory for a message of `len` bytes; fails when it cannot be sent, or nothing can be any more
    async fn alloc_to_send(&self, len: usize) -> Result<Lease, SendError> {
        let max = self.max_message();
        if len > max {
            return Err(SendError::TooLong { len, max });
        }
        let (mut alloc, mut closed) = (self.alloc(len), self.closed());
        poll_fn(|cx| {
            // Polled only so that the end of the session wakes this task: the check returns the reason.
            let _ = Pin::new(&mut closed).poll(cx);
            let refusal = self.handle.peering.with_session(self.handle.id, |session, _| session.refusal());
            if let Some(error) = refusal {
                return Poll::Ready(Err(error));
            }
            Pin::new(&mut alloc).poll(cx).map_err(SendError::from)
        })
        .await
    }

    /// The next message, or `None` when the peer has closed the session and everything has been read
    ///
    /// # Errors
    ///
    /// [`RecvError::Lost`] if the session is lost. Messages that arrived before are delivered first.
    ///
    /// # Cancel safety
    ///
    /// Messages are received whether or not a future waits: dropping the future loses none.
    pub fn recv(&self) -> Recv<D> {
        Recv { session: Arc::clone(&self.handle), waiter: Waiter::default() }
    }

    /// The next message, or `None` at the end, as [`recv`](Self::recv), without waiting
    ///
    /// # Errors
    ///
    /// [`RecvError::Lost`] if the session is lost; [`RecvError::WouldBlock`] if no message is there, or if tasks wait for one.
    pub fn try_recv(&self) -> Result<Option<Message>, RecvError> {
        let received =
            self.handle.peering.with_session(self.handle.id, |session, _| session.inbox.try_next());
        let body = received.unwrap_or(Err(RecvError::WouldBlock))?;
        Ok(body.map(|body| self.handle.message(body)))
    }

    /// The messages, as a stream
    ///
    /// Several streams, and [`recv`](Self::recv) beside them, share the messages.
    ///
    /// # Errors
    ///
    /// As [`recv`](Self::recv); the stream ends after one.
    ///
    /// # Cancel safety
    ///
    /// Dropping the stream loses no message.
    pub fn messages(&self) -> Messages<D> {
        Messages { recv: self.recv(), is_ended: false }
    }

    /// Closes the session: sends the queued messages, and waits until the peer has everything
    ///
    /// The peer reads them and then the end; it cannot begin to send more. Messages that it sent before can still be read here.
    ///
    /// # Errors
    ///
    /// [`CloseError::Lost`] if the session was lost before the peer confirmed.
    ///
    /// # Cancel safety
    ///
    /// Closing begins when the future is first polled, and goes on when it is dropped.
    pub async fn close(&self) -> Result<(), CloseError> {
        let id = self.handle.id;
        self.handle.peering.with(|state, now, effects| state.close(id, now, effects));
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
        Closed::new(self.handle.session())
    }

    /// How the session ended for this side, or `None` while it lasts; what [`closed`](Self::closed) returns
    pub fn close_reason(&self) -> Option<Result<(), CloseError>> {
        self.handle.peering.with_session(self.handle.id, |session, _| session.end.value().clone())
    }

    /// The number of the session, the same on both sides, for logs: unique among those with this peer for a long time
    pub fn id(&self) -> SessionId {
        self.handle.id
    }

    /// The process at the other end
    pub fn peer(&self) -> NodeId {
        self.handle.peering.peer
    }

    /// What the session has done, and what it waits for
    pub fn snapshot(&self) -> Snapshot {
        let (id, peer) = (self.handle.id, self.peer());
        self.handle.peering.with(|state, _, _| {
            let paths = (0..state.path_count()).map(PathId);
            let paths = paths.map(|path| {
                let (status, counts) = state.path(path);
                PathSnapshot { status, counts }
            });
            let (paths, waits, wants_memory) =
                (paths.collect(), state.session_waits(id), state.wants_memory(id));
            let session = state.session(id).expect("a session with a handle is there");
            let Counts { queued, delivered, received, .. } = session.counts;
            Snapshot {
                session: id,
                peer,
                messages_queued: queued,
                messages_delivered: delivered,
                messages_received: received,
                messages_unread: session.inbox.len(),
                messages_in_flight: session.ops.in_use(),
                paths,
                is_over: session.is_over,
                waits,
                wants_memory,
            }
        })
    }

    /// The longest message that the peer takes, in bytes
    pub fn max_message(&self) -> usize {
        let max = self.handle.peering.with(|state, _, _| state.max_message());
        usize::try_from(max).unwrap_or(usize::MAX)
    }

    /// Ends the session at once: here with [`SessionError::Aborted`](crate::SessionError::Aborted), at the peer with
    /// [`SessionError::Reset`](crate::SessionError::Reset) and this code; [`u64::MAX`] is that of nodes
    ///
    /// Messages that were not delivered are lost.
    pub fn reset(&self, code: u64) {
        let id = self.handle.id;
        self.handle.peering.with(|state, now, effects| state.reset(id, code, now, effects));
    }
}

impl<D: Device> Clone for Session<D> {
    fn clone(&self) -> Self {
        Self { handle: Arc::clone(&self.handle) }
    }
}

impl<D: Device> fmt::Debug for Session<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session").field("id", &self.handle.id.number()).finish_non_exhaustive()
    }
}
