use std::fmt;
use std::ops::Deref;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use rdma_core::Device;

use crate::Lease;
use crate::error::{AllocError, CloseError, ConnectionError, RecvError, SendError, SendFailed};
use crate::gate::Ticket;
use crate::line::Line;
use crate::pool::{Pool, Zone};

/// Messages to and from one peer, in order and exactly once
///
/// Cheap to clone; all clones are the same connection, and any number of tasks may send and receive at once. Messages of
/// one task arrive in the order in which it sent them. When the last clone and the last future are dropped, what was queued
/// is still sent, for as long as the peer goes on taking it, and then the connection is closed;
/// [`close`](Self::close) tells whether everything arrived.
///
/// A message is delivered into registered memory and read there; one that is sent is read by the device from the lease in
/// which it was written. Nothing is copied in between.
pub struct Connection<D: Device> {
    handle: Arc<Handle<D>>,
}

/// Abandons the connection when the last clone goes.
struct Handle<D: Device> {
    line: Arc<Line<D>>,
    is_confirmed: AtomicBool,
}

/// What a connection has done
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub struct ConnectionStats {
    /// Messages that are queued or under way, or whose outcome nobody has taken yet
    pub messages_in_flight: usize,
    /// Messages that the application has queued
    pub messages_queued: u64,
    /// Messages that have left this side
    pub messages_sent: u64,
    /// Messages that have arrived, read or not
    pub messages_received: u64,
}

impl<D: Device> Connection<D> {
    pub(crate) fn new(line: Arc<Line<D>>) -> Self {
        Self { handle: Arc::new(Handle { line, is_confirmed: AtomicBool::new(false) }) }
    }

    fn line(&self) -> &Arc<Line<D>> {
        &self.handle.line
    }

    /// The peer is ready: dropping the connection now closes it in good order
    pub(crate) fn confirm(&self) {
        self.handle.is_confirmed.store(true, Ordering::Relaxed);
    }

    /// Posts the first receives
    pub(crate) fn open(&self, receives: Vec<Lease>) -> Result<(), ConnectionError> {
        self.line().open(receives)
    }

    /// Why the connection is lost, if it is
    pub(crate) fn lost(&self) -> Option<ConnectionError> {
        self.line().lost()
    }

    /// Ends the connection at once, telling the peer nothing
    ///
    /// What was not sent is lost. The peer notices when it has heard nothing for its timeout.
    pub fn abort(&self) {
        self.line().abort(ConnectionError::Aborted);
    }

    /// Leases memory for a message of `len` bytes to be sent
    ///
    /// Waits, in turn, until the endpoint has that much free memory in one piece.
    pub fn alloc(&self, len: usize) -> Alloc {
        Alloc::new(self.line().hub.pool.clone(), len)
    }

    /// Sends the message in `lease`
    ///
    /// Resolves when the device has read the message, and hands the lease back for another one. The peer may not have it
    /// yet: only [`close`](Self::close), or an answer, tells that it arrived. Bytes of the lease behind the message may
    /// have changed.
    ///
    /// # Errors
    ///
    /// The message was not sent, or the connection ended while it was under way: then the peer may or may not have it. The
    /// lease comes back, unless a failed device may still touch it.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future before it was first polled, or while it waits for a place in the queue, drops the message.
    /// Once it has a place it will be sent, whether or not anybody waits for it; its memory is then freed by itself.
    pub fn send(&self, lease: Lease) -> Send<D> {
        Send { connection: self.clone(), state: SendState::Unqueued(Some(lease), Ticket::default()) }
    }

    /// Copies `bytes` into a lease and sends that
    ///
    /// # Errors
    ///
    /// As [`send`](Self::send).
    ///
    /// # Cancel safety
    ///
    /// As [`send`](Self::send).
    pub async fn send_bytes(&self, bytes: &[u8]) -> Result<(), SendError> {
        let mut lease = self.alloc(bytes.len()).await?;
        lease.copy_from_slice(bytes);
        self.send(lease).await?;
        Ok(())
    }

    /// The next message, or `None` when the connection was closed, by either side, and everything has been read
    ///
    /// # Errors
    ///
    /// The connection is lost. What arrived before is delivered first.
    ///
    /// # Cancel safety
    ///
    /// Messages are received whether or not anybody waits: dropping the future loses none.
    pub fn recv(&self) -> Recv<D> {
        Recv { connection: self.clone(), ticket: Ticket::default() }
    }

    /// Closes the connection: sends what is queued, and waits until the peer confirms that it has everything
    ///
    /// The peer reads what was sent and then the end. It cannot send to this side any more; messages of it that arrived
    /// can still be read here. A peer that lives and does not read can hold up what is queued for as long as it likes: bound
    /// the wait with [`timeout`](crate::time::timeout).
    ///
    /// # Errors
    ///
    /// The peer may not have everything.
    ///
    /// # Cancel safety
    ///
    /// Closing begins when the future is first polled, and goes on when it is dropped.
    pub fn close(&self) -> Close<D> {
        Close { connection: self.clone(), is_begun: false, ticket: Ticket::default() }
    }

    /// The longest message that can be sent, in bytes
    pub fn max_message(&self) -> usize {
        self.line().max_message()
    }

    /// What the connection has done so far
    pub fn stats(&self) -> ConnectionStats {
        self.line().stats()
    }
}

impl<D: Device> Clone for Connection<D> {
    fn clone(&self) -> Self {
        Self { handle: Arc::clone(&self.handle) }
    }
}

impl<D: Device> fmt::Debug for Connection<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection").field("line", self.line()).finish_non_exhaustive()
    }
}

impl<D: Device> Drop for Handle<D> {
    fn drop(&mut self) {
        if *self.is_confirmed.get_mut() {
            self.line.abandon();
        } else {
            self.line.abort(ConnectionError::Aborted);
        }
    }
}

/// Future of [`Connection::alloc`]
///
/// # Cancel safety
///
/// Dropping it gives up the place in line; no memory is lost.
#[derive(Debug)]
#[must_use = "futures do nothing unless polled"]
pub struct Alloc {
    pool: Pool,
    len: usize,
    ticket: Ticket,
}

impl Alloc {
    pub(crate) fn new(pool: Pool, len: usize) -> Self {
        Self { pool, len, ticket: Ticket::default() }
    }
}

impl Future for Alloc {
    type Output = Result<Lease, AllocError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Self { pool, len, ticket } = &mut *self;
        pool.check(Zone::Send, *len)?;
        let (lease, next) = pool.poll_lease(Zone::Send, *len, ticket, cx);
        next.wake();
        lease.map(Ok)
    }
}

impl Drop for Alloc {
    fn drop(&mut self) {
        self.pool.leave(Zone::Send, &mut self.ticket).wake();
    }
}

/// Future of [`Connection::send`], which tells about cancel safety
#[must_use = "futures do nothing unless polled"]
pub struct Send<D: Device> {
    connection: Connection<D>,
    state: SendState,
}

enum SendState {
    /// Waits for a place
    Unqueued(Option<Lease>, Ticket),
    /// In this op slot
    Queued(u32),
    Done,
}

impl<D: Device> Send<D> {
    fn poll_queue(&mut self, cx: &mut Context<'_>) -> Poll<SendFailed> {
        let SendState::Unqueued(lease, ticket) = &mut self.state else {
            panic!("a send that has ended was polled again")
        };
        let line = self.connection.line();
        let queued = match lease {
            Some(foreign) if !foreign.is_of(&line.hub.pool) => {
                Err(SendFailed { error: SendError::ForeignLease, lease: lease.take() })
            }
            lease => ready!(line.poll_send(lease, ticket, cx)),
        };
        match queued {
            Ok(slot) => {
                self.state = SendState::Queued(slot);
                Poll::Pending
            }
            Err(unsent) => {
                self.state = SendState::Done;
                Poll::Ready(unsent)
            }
        }
    }
}

impl<D: Device> Future for Send<D> {
    type Output = Result<Lease, SendFailed>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let SendState::Queued(slot) = self.state else {
            return self.poll_queue(cx).map(Err);
        };
        let (result, lease) = ready!(self.connection.line().poll_sent(slot, cx));
        self.state = SendState::Done;
        Poll::Ready(match (result, lease) {
            (Ok(()), Some(lease)) => Ok(lease),
            (Ok(()), None) => unreachable!("a device that has sent a message is done with it"),
            (Err(error), lease) => Err(SendFailed { error, lease }),
        })
    }
}

impl<D: Device> Drop for Send<D> {
    fn drop(&mut self) {
        match &mut self.state {
            SendState::Unqueued(_, ticket) => self.connection.line().leave_send(ticket),
            SendState::Queued(slot) => self.connection.line().detach(*slot),
            SendState::Done => (),
        }
    }
}

impl<D: Device> fmt::Debug for Send<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Send").field("line", self.connection.line()).finish_non_exhaustive()
    }
}

/// Future of [`Connection::recv`], which tells about cancel safety
#[must_use = "futures do nothing unless polled"]
pub struct Recv<D: Device> {
    connection: Connection<D>,
    ticket: Ticket,
}

impl<D: Device> Future for Recv<D> {
    type Output = Result<Option<Message>, RecvError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Self { connection, ticket } = &mut *self;
        let line = connection.line();
        let next = ready!(line.poll_recv(ticket, cx))?;
        let message = next.map(|lease| {
            let home = Arc::clone(line) as Arc<dyn Home>;
            Message { lease: Some(lease), home }
        });
        Poll::Ready(Ok(message))
    }
}

impl<D: Device> Drop for Recv<D> {
    fn drop(&mut self) {
        self.connection.line().leave_recv(&mut self.ticket);
    }
}

impl<D: Device> fmt::Debug for Recv<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Recv").field("line", self.connection.line()).finish_non_exhaustive()
    }
}

/// Future of [`Connection::close`], which tells about cancel safety
#[must_use = "futures do nothing unless polled"]
pub struct Close<D: Device> {
    connection: Connection<D>,
    is_begun: bool,
    ticket: Ticket,
}

impl<D: Device> Future for Close<D> {
    type Output = Result<(), CloseError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Self { connection, is_begun, ticket } = &mut *self;
        let line = connection.line();
        if !std::mem::replace(is_begun, true) {
            line.finish();
        }
        line.poll_end(ticket, cx)
    }
}

impl<D: Device> Drop for Close<D> {
    fn drop(&mut self) {
        self.connection.line().leave_end(&mut self.ticket);
    }
}

impl<D: Device> fmt::Debug for Close<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Close").field("line", self.connection.line()).finish_non_exhaustive()
    }
}

/// A received message, where the device put it
///
/// Dereferences to its bytes. **Memory of messages that are kept is not free for others**: a peer whose messages are
/// never dropped can send only as much as the window and the receive memory hold.
#[must_use]
pub struct Message {
    lease: Option<Lease>,
    home: Arc<dyn Home>,
}

/// Where the memory of a message belongs
trait Home: std::marker::Send + Sync {
    fn release(&self, lease: Lease);
}

impl<D: Device> Home for Line<D> {
    fn release(&self, lease: Lease) {
        Self::release(self, lease);
    }
}

impl Deref for Message {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.lease.as_deref().unwrap_or_default()
    }
}

impl AsRef<[u8]> for Message {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl From<Message> for Bytes {
    /// The same bytes where they are: their memory is the connection's until the last of the `Bytes` is dropped
    fn from(message: Message) -> Self {
        Self::from_owner(message)
    }
}

impl Drop for Message {
    fn drop(&mut self) {
        if let Some(lease) = self.lease.take() {
            self.home.release(lease);
        }
    }
}

impl fmt::Debug for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Message").field("len", &self.len()).finish_non_exhaustive()
    }
}
