//! Messages to and from one peer

pub(crate) mod futures;
mod identity;
mod message;
pub(crate) mod shared;
pub(crate) mod state;
mod stats;

use std::fmt;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;

use rdma_core::Device;

use self::futures::{Close, Closed, Messages, Recv, Send};
pub use self::identity::{ConnectionId, Peer};
pub use self::message::Message;
use self::shared::{ConnectionHandle, ConnectionShared};
pub use self::stats::ConnectionStats;
use crate::error::{AllocError, CloseError, ConnectionError, RecvError, SendError};
use crate::pool::{Alloc, Lease};
use crate::send_failed::SendFailed;
use crate::wait_queue::Waiter;

/// Messages to and from one peer, in order and exactly once
///
/// Cheap to clone; all clones are the same connection, and any number of tasks may send and receive at once. Messages of
/// one task arrive in the order in which it sent them. When the last clone and the last future are dropped, queued messages
/// are still sent, for as long as the peer goes on taking them, and then the connection is closed;
/// [`close`](Self::close) tells whether everything arrived.
///
/// A message is delivered into registered memory and read there; one that is sent is read by the device from the lease in
/// which it was written. Nothing is copied in between.
///
/// ```
/// # use rdma_async::*;
/// # use rdma_sim::Sim;
/// # Sim::new().run(async |net| {
/// # let open = |host| Endpoint::builder(net.open(host, "rdma_en2").unwrap()).runtime(net.runtime()).build();
/// # let (endpoint, other) = (open("a").unwrap(), open("b").unwrap());
/// # let (to_b, to_a) = tokio::io::duplex(256);
/// # let pair = futures::future::try_join(endpoint.connect(to_b), other.accept(to_a)).await.unwrap();
/// # let (connection, peer) = pair;
/// // Written in registered memory, which the device reads.
/// let mut lease = connection.alloc(1 << 20).await?;
/// lease.resize(1 << 20, 7);
/// let sent = async {
///     connection.send(lease).await?;
///     connection.close().await?;
///     Ok::<_, Box<dyn std::error::Error>>(())
/// };
/// let received = async {
///     while let Some(message) = peer.recv().await? {
///         assert_eq!(message.len(), 1 << 20);
///     }
///     Ok(())
/// };
/// futures::future::try_join(sent, received).await?;
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// # }).value.unwrap();
/// ```
pub struct Connection<D: Device> {
    handle: Arc<ConnectionHandle<D>>,
}

impl<D: Device> Connection<D> {
    pub(crate) fn new(shared: Arc<ConnectionShared<D>>) -> Self {
        Self { handle: Arc::new(ConnectionHandle::new(shared)) }
    }

    pub(crate) fn handle(&self) -> &ConnectionHandle<D> {
        &self.handle
    }

    /// Leases memory for a message of up to `len` bytes
    ///
    /// Waits, in turn, until the endpoint has that much free memory in one piece.
    ///
    /// # Errors
    ///
    /// [`AllocError::TooLarge`] if the endpoint's send memory is smaller than `len`.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future gives up the place in line; no memory is lost.
    pub fn alloc(&self, len: usize) -> Alloc {
        Alloc::new(&self.handle.pool, len)
    }

    /// Leases memory for a message of up to `len` bytes, without waiting
    ///
    /// # Errors
    ///
    /// * [`AllocError::TooLarge`] if the endpoint's send memory is smaller than `len`;
    /// * [`AllocError::WouldBlock`] if that much is not free in one piece, or if tasks wait for memory.
    pub fn try_alloc(&self, len: usize) -> Result<Lease, AllocError> {
        self.handle.pool.try_alloc(len)
    }

    /// Sends the message in `lease`
    ///
    /// Resolves when the device has read the message, and hands the lease back for another one. The peer may not have it
    /// yet: only [`close`](Self::close), or an answer, tells that it arrived.
    ///
    /// # Errors
    ///
    /// With the lease, unless a failed device may still touch it:
    ///
    /// * [`SendError::Closed`] or [`SendError::PeerClosed`] if this side or the peer has closed the connection;
    /// * [`SendError::ForeignLease`] if the lease is of another endpoint;
    /// * [`SendError::Lost`] if the connection is lost. If that happens while the message is under way, the peer may or may not
    ///   have it;
    /// * [`SendError::TooLong`] if the message exceeds [`max_message`](Self::max_message).
    ///
    /// # Cancel safety
    ///
    /// Dropping the future before it was first polled, or while it waits for a place in the queue, drops the message.
    /// Once the message has a place it will be sent, whether or not the future lives; its memory is then freed by itself.
    pub fn send(&self, lease: Lease) -> Send<D> {
        Send::new(Arc::clone(&self.handle), lease)
    }

    /// Queues the message in `lease`, without waiting
    ///
    /// It will be sent; its memory is then freed by itself.
    ///
    /// # Errors
    ///
    /// As [`send`](Self::send), and [`SendError::WouldBlock`] if [as many
    /// messages](crate::EndpointOptions::max_in_flight_sends) are in flight as may be, or if tasks wait to send.
    pub fn try_send(&self, lease: Lease) -> Result<(), SendFailed> {
        self.handle.try_send(lease)
    }

    /// Copies `bytes` into a lease and sends it
    ///
    /// Waits in line for memory, and then for a place among the messages in flight.
    ///
    /// # Errors
    ///
    /// As [`send`](Self::send), without the lease and without [`SendError::ForeignLease`]; also [`SendError::Alloc`] if the endpoint's
    /// send memory is smaller than the message. The end of the connection ends the wait for memory, too.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future while it waits for memory or for a place sends nothing. Once the message has a place it will be sent,
    /// whether or not the future lives.
    pub async fn send_bytes(&self, bytes: &[u8]) -> Result<(), SendError> {
        let mut lease = match self.try_alloc(bytes.len()) {
            Err(AllocError::WouldBlock) => self.alloc_to_send(bytes.len()).await?,
            leased => leased?,
        };
        lease.extend_from_slice(bytes);
        self.send(lease).await?;
        Ok(())
    }

    /// Leases memory for a message of `len` bytes; fails when the message cannot be sent, or the connection ends
    async fn alloc_to_send(&self, len: usize) -> Result<Lease, SendError> {
        let (mut alloc, mut closed) = (self.alloc(len), self.closed());
        poll_fn(|cx| {
            // Polled only so that the end of the connection wakes this task: the check returns the reason.
            let _ = Pin::new(&mut closed).poll(cx);
            self.handle.check_send(len)?;
            Pin::new(&mut alloc).poll(cx).map_err(SendError::from)
        })
        .await
    }

    /// The next message, or `None` when the connection was closed, by either side, and everything has been read
    ///
    /// # Errors
    ///
    /// [`RecvError::Lost`] if the connection is lost. Messages that arrived before are delivered first.
    ///
    /// # Cancel safety
    ///
    /// Messages are received whether or not a future waits: dropping the future loses none.
    pub fn recv(&self) -> Recv<D> {
        Recv { connection: Arc::clone(&self.handle), waiter: Waiter::default() }
    }

    /// The next message, or `None` at the end, as [`recv`](Self::recv), without waiting
    ///
    /// # Errors
    ///
    /// * [`RecvError::Lost`] if the connection is lost;
    /// * [`RecvError::WouldBlock`] if no message is there, or if tasks wait for one.
    pub fn try_recv(&self) -> Result<Option<Message>, RecvError> {
        let received = self.handle.try_recv()?;
        Ok(received.map(|lease| futures::message(lease, &self.handle)))
    }

    /// The messages, as a stream
    ///
    /// Several streams, and [`recv`](Self::recv) beside them, share the messages.
    pub fn messages(&self) -> Messages<D> {
        Messages { recv: self.recv(), is_ended: false }
    }

    /// Closes the connection: sends the queued messages, and waits until the peer confirms that it has everything
    ///
    /// The peer reads them and then the end. It cannot send to this side any more; messages of it that arrived
    /// can still be read here. A peer that lives and does not read can hold the queued messages up for as long as it likes: bound
    /// the wait with [`timeout`](crate::time::timeout).
    ///
    /// In good order:
    ///
    /// 1. The side that has received the last message which it wants closes first: `connection.close().await?`.
    /// 2. The other side reads until [`recv`](Self::recv) returns `None`, and drops its connection.
    /// 3. There is no half-close: a side that has sent everything and still waits for answers says so in a message of the
    ///    application, such as an empty one, and closes after the answers.
    ///
    /// # Errors
    ///
    /// The peer may not have everything:
    ///
    /// * [`CloseError::Lost`] if the connection was lost before the peer confirmed;
    /// * [`CloseError::PeerClosed`] if the peer closed first and did not read the queued messages.
    ///
    /// # Cancel safety
    ///
    /// Closing begins when the future is first polled, and goes on when it is dropped.
    pub fn close(&self) -> Close<D> {
        Close { closed: self.closed(), connection: Arc::clone(&self.handle), is_begun: false }
    }

    /// Waits until the connection is over, for whichever reason
    ///
    /// Neither closes the connection nor keeps it open: the future may outlive the connection's last clone.
    ///
    /// # Errors
    ///
    /// As [`close`](Self::close).
    ///
    /// # Cancel safety
    ///
    /// Dropping the future changes nothing.
    pub fn closed(&self) -> Closed<D> {
        Closed { connection: Arc::clone(self.handle.shared()), waiter: Waiter::default() }
    }

    /// How the connection ended, or `None` while it lasts
    ///
    /// # Errors
    ///
    /// Those of [`closed`](Self::closed).
    pub fn close_reason(&self) -> Option<Result<(), CloseError>> {
        self.handle.end()
    }

    /// Ends the connection at once, without a word to the peer
    ///
    /// Messages that were not sent are lost. The peer notices after its timeout.
    pub fn abort(&self) {
        self.handle.abort(ConnectionError::Aborted);
    }

    /// The number of the connection, for logs
    pub fn id(&self) -> ConnectionId {
        ConnectionId::new(self.handle.id)
    }

    /// The peer, as it introduced itself
    pub fn peer(&self) -> Peer {
        self.handle.peer
    }

    /// The longest message that can be sent, in bytes
    pub fn max_message(&self) -> usize {
        self.handle.max_message()
    }

    /// What the connection has done so far
    pub fn stats(&self) -> ConnectionStats {
        self.handle.stats()
    }
}

impl<D: Device> Clone for Connection<D> {
    fn clone(&self) -> Self {
        Self { handle: Arc::clone(&self.handle) }
    }
}

impl<D: Device> fmt::Debug for Connection<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection")
            .field("id", &self.handle.id)
            .field("peer", &self.handle.peer)
            .finish_non_exhaustive()
    }
}
