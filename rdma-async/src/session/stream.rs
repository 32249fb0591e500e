use std::fmt;
use std::future::poll_fn;
use std::ops::Range;
use std::sync::Arc;

use rdma_core::session::{Priority, StreamId};
use rdma_core::{Device, Runtime};

use super::copy_allocator::CopyAllocator;
use super::futures::{Closed, Messages, Recv, Send};
use super::handle::StreamHandle;
use super::message::Message;
use super::recv_into::RecvInto;
use super::sink::MessageSink;
use crate::error::{RecvError, SendError};
use crate::peering::body::Body;
use crate::peering::copies::CopiedMessage;
use crate::pool::Lease;
use crate::send_failed::SendFailed;
use crate::wait_queue::Waiter;

/// Messages in order, in both directions, beside the other streams of a [`Session`](crate::Session)
///
/// Streams do not wait for each other: not for what was lost on another one, nor for an application that does not read another one. What
/// they share is the memory of leases: those that wait to be sent hold a part of [`send_memory`](crate::NodeOptions::send_memory).
/// A message above 68,544 bytes is sent when the peer has memory for it: at the latest when its application asks for it, unless messages
/// that it keeps take half of what the messages of other sessions and unread ones leave of its
/// [`receive_memory`](crate::NodeOptions::receive_memory): a session alone can keep a quarter of it, whatever is unread. Each stream has a
/// [`Priority`] for what this side sends.
///
/// Cheap to clone; all clones are the same stream, and each keeps the session open. When the last clone and the last future are
/// dropped, queued messages are still sent, and then the stream is [finished](Self::finish); messages that arrive are dropped, and the
/// peer can send no more.
///
/// ```
/// # use rdma_async::*;
/// # rdma_sim::Sim::new().run(async |net| {
/// # let node = |host| Node::builder(net.opener(host, "rdma_en2")).runtime(net.runtime()).build();
/// # let (a, b) = (node("a").unwrap(), node("b").unwrap());
/// # let (to_b, to_a) = tokio::io::duplex(1024);
/// # let (session, ()) = futures::future::try_join(a.connect(to_b), b.serve(to_a)).await.unwrap();
/// # let peer = b.accept().await.unwrap();
/// let urgent = session.open_stream(Priority::High).await?;
/// urgent.send_bytes(b"stop").await?;
/// let opened = peer.accept_stream().await?.expect("the session is open");
/// assert_eq!(*opened.recv().await?.expect("a message"), *b"stop");
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// # }).value.unwrap();
/// ```
pub struct Stream<D: Device> {
    pub(super) handle: Arc<StreamHandle<D>>,
}

impl<D: Device> Stream<D> {
    /// The stream `id` of the session with the handle `session`
    pub(super) fn new(session: &Arc<StreamHandle<D>>, id: StreamId) -> Self {
        Self { handle: StreamHandle::stream(session, id) }
    }

    /// The clock and the tasks of the node
    pub fn runtime(&self) -> &Arc<dyn Runtime> {
        &self.handle.peering.runtime
    }

    /// Sends the message in `lease`
    ///
    /// Resolves when the lease may be reused, and returns it. [`Send::delivered`] resolves when the peer's node has the message. While the
    /// peer keeps the stream and does not read it, both may wait, also after the peer has closed the session.
    ///
    /// # Errors
    ///
    /// With the lease, unless a failed device may still touch it:
    ///
    /// * [`SendError::Closed`] if this side has closed the session or finished the stream;
    /// * [`SendError::ForeignLease`] if the lease is of another node;
    /// * [`SendError::Lost`] if the session is lost: the peer may or may not have the message;
    /// * [`SendError::PeerClosed`] if the peer has closed the session, [`SendError::StreamDropped`] if it has dropped the stream;
    /// * [`SendError::TooLong`] if the peer does not take messages of this length.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future before it was first polled, or while it waits for a place in the queue, drops the message. Once the
    /// message has a place it will be sent, whether or not the future lives; its memory is then freed by itself.
    pub fn send(&self, lease: Lease) -> Send<D> {
        Send::new(Arc::clone(&self.handle), Body::Lease(lease))
    }

    /// Queues the message in `lease`, without waiting
    ///
    /// # Errors
    ///
    /// As [`send`](Self::send), and [`SendError::WouldBlock`] if as many messages are in flight as may be, or if tasks wait to send.
    pub fn try_send(&self, lease: Lease) -> Result<(), SendFailed> {
        self.handle.peering.try_send(self.handle.key, lease)
    }

    /// Copies `bytes` and sends them as a message
    ///
    /// The copy is in the node's [send memory](crate::NodeOptions::send_memory) as long as it leaves enough to others, and else on the heap, one
    /// of the stream at a time: a stream that the peer does not read keeps no other from sending, however many of its messages
    /// wait.
    ///
    /// # Errors
    ///
    /// As [`send`](Self::send).
    ///
    /// # Cancel safety
    ///
    /// As [`send`](Self::send).
    pub async fn send_bytes(&self, bytes: &[u8]) -> Result<(), SendError> {
        let mut copy = self.alloc_copy(bytes.len()).await?;
        copy.extend_from_slice(bytes);
        self.send_copy(copy).await
    }

    /// An empty message with memory for `len` bytes, of which the application gets no lease
    pub(super) async fn alloc_copy(&self, len: usize) -> Result<CopiedMessage, SendError> {
        let mut allocator = CopyAllocator::new(&self.handle);
        poll_fn(|cx| allocator.poll_alloc(len, cx)).await
    }

    /// Sends a copy
    pub(super) async fn send_copy(&self, copy: CopiedMessage) -> Result<(), SendError> {
        let mut send = Send::new(Arc::clone(&self.handle), Body::Copy(copy));
        poll_fn(|cx| send.poll_sent(cx)).await?.0
    }

    /// The next message, or `None` when the peer has finished the stream or closed the session, and everything has been read
    ///
    /// # Errors
    ///
    /// [`RecvError::Lost`] if the session is lost. Messages that arrived before are delivered first.
    ///
    /// # Cancel safety
    ///
    /// Messages are received whether or not a future waits: dropping the future loses none.
    pub fn recv(&self) -> Recv<D> {
        Recv { stream: Arc::clone(&self.handle), waiter: Waiter::default() }
    }

    /// The next message, or `None` at the end, as [`recv`](Self::recv), in the memory of `lease`
    ///
    /// A message above 68,544 bytes that comes while this future waits, and was not [expected](Self::expect), is received there without a
    /// copy; others are copied. One that is
    /// longer than the [capacity](Lease::capacity) is received as by [`recv`](Self::recv). If several tasks receive from the stream,
    /// one may get a message in the lease of another. [`Message::into_lease`] gives the lease back. Until then, or until the message is
    /// dropped, its memory stays leased, as does a range of adopted memory.
    ///
    /// # Errors
    ///
    /// As [`recv`](Self::recv), and [`RecvError::ForeignLease`] if the lease is of another node.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses no message, and drops the lease.
    pub fn recv_into(&self, lease: Lease) -> RecvInto<D> {
        let max = lease.capacity();
        RecvInto::new(&self.handle, lease, max)
    }

    /// The next message, or `None` at the end, as [`recv`](Self::recv), without waiting
    ///
    /// # Errors
    ///
    /// [`RecvError::Lost`] if the session is lost; [`RecvError::WouldBlock`] if no message is there, or if tasks wait for one.
    pub fn try_recv(&self) -> Result<Option<Message>, RecvError> {
        let received = self.handle.with(|stream, effects| stream.try_next(effects));
        let body = received.unwrap_or(Err(RecvError::WouldBlock))?;
        Ok(body.map(|body| self.handle.message(body)))
    }

    /// Expects that each of the messages at `places` has `len` bytes, so that the peer need not announce them first
    ///
    /// Places are counted from the message that is read next: `0..1` is that one, and `1..2` the one behind it, for example behind a short
    /// header.
    ///
    /// A message above 68,544 bytes is announced, and waits until this side has answered with memory: its bytes are here after three ways
    /// over the cable. If the peer knows the memory before it sends the message, the message takes one way: call this at least one way
    /// earlier. In the model of the device that saves 11 µs. For shorter messages, expect nothing: they take one way anyway.
    ///
    /// Messages that are here and unread have places, too, as do those that are expected already; these keep their length.
    /// At most four messages of a stream are expected at once, at places below the
    /// [`stream_share`](crate::NodeOptions::stream_share). Expect them in their order: a later one stands in the way of an earlier one.
    ///
    /// Returns for how many messages more there was memory, and 0 if messages of this length are not announced or are too long, if the session
    /// or what the peer sends is over, if as many are expected already, or while the stream backs off, as described below. Memory is
    /// taken from [`receive_memory`](crate::NodeOptions::receive_memory) as long as an expected message is not here, and only
    /// what neither messages that are asked for nor the shares of other peers may need: none if `receive_memory` is no more than
    /// [`max_message`](crate::NodeOptions::max_message), and none while messages wait for memory. While a task waits for a message that finds no
    /// memory, or has looked for one without waiting, no stream of the node expects anything: memory for messages that were not announced is
    /// given back.
    ///
    /// # If something else comes
    ///
    /// Nothing is lost: each message is received in its order, whether or not it was expected. Once a message of another length
    /// has come in the place of an expected one, or the end, the stream expects nothing from there on, and that memory is free again. The peer may then
    /// have to send as often 512 KiB in vain as there are cables (57 µs of a cable at 9.2 GB/s each time), which everything on the cable
    /// waits for. The same can happen if other long messages wait before the expected one is sent, also of this stream, or if they need its
    /// memory. The stream then backs off: it expects nothing until 1 message above 68,544 bytes was announced, and until up to 32 were if guesses
    /// are wrong again and again.
    ///
    /// If nothing comes for an eighth of the [`peer_timeout`](crate::NodeOptions::peer_timeout), the peer sends those bytes in vain, too. The
    /// messages stay expected, but the next one takes three ways, unless this is called again before.
    ///
    /// What is expected when a cable fails is expected on the cables that remain, or when it is back. [`recv_into`](Self::recv_into)
    /// copies an expected message into its lease.
    ///
    /// ```
    /// # use rdma_async::*;
    /// # rdma_sim::Sim::new().run(async |net| {
    /// # let node = |host| Node::builder(net.opener(host, "rdma_en2")).runtime(net.runtime()).build();
    /// # let (a, b) = (node("a").unwrap(), node("b").unwrap());
    /// # let (to_b, to_a) = tokio::io::duplex(1024);
    /// # let (session, ()) = futures::future::try_join(a.connect(to_b), b.serve(to_a)).await.unwrap();
    /// # let peer = b.accept().await.unwrap();
    /// # let worker = async {
    /// #     while let Some(request) = peer.recv().await.unwrap() { peer.send(request.into_lease().unwrap()).await.unwrap(); }
    /// # };
    /// # let requests = async {
    /// // The answer to each request has as many bytes as the request.
    /// for layer in 0..3 {
    ///     session.expect(1 << 20, 0..1);
    ///     session.send_bytes(&vec![layer; 1 << 20]).await?;
    ///     assert_eq!(session.recv().await?.expect("an answer")[..], vec![layer; 1 << 20]);
    /// }
    /// session.close().await?;
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// # };
    /// # futures::future::join(requests, worker).await.0
    /// # }).value.unwrap();
    /// ```
    pub fn expect(&self, len: usize, places: Range<usize>) -> usize {
        self.handle.expect(len, places)
    }

    /// The messages, as a [`futures_core::Stream`]
    ///
    /// Several of them, and [`recv`](Self::recv) beside them, share the messages; where tasks wait, [`recv`](Self::recv) goes first.
    ///
    /// # Errors
    ///
    /// As [`recv`](Self::recv); the stream ends after one.
    ///
    /// # Cancel safety
    ///
    /// Dropping it loses no message.
    pub fn messages(&self) -> Messages<D> {
        Messages { recv: Recv::yielding(&self.handle), is_ended: false }
    }

    /// Takes messages, as a [`futures_sink::Sink`] of [leases](Lease)
    ///
    /// # Errors
    ///
    /// As [`send`](Self::send).
    ///
    /// # Cancel safety
    ///
    /// Dropping it loses no message that it took.
    pub fn sink(&self) -> MessageSink<D> {
        MessageSink::new(&self.handle)
    }

    /// Ends what this side sends on the stream, behind the messages that are queued
    ///
    /// The peer reads them and then the end. What the peer sends can still be read here. The stream is over when both sides have
    /// finished it. The main stream of a session that is finished so leaves the session open.
    pub fn finish(&self) {
        self.handle.finish();
    }

    /// Copies of the messages that this side has queued and does not know that the peer has, in any order
    ///
    /// While no path [carries data](crate::Session::paths_up), an application that reaches the peer otherwise can send them so. They
    /// stay queued: the peer gets them from the stream, too, and may have got them already. Messages that still wait for a place in the queue are not
    /// among them: their [futures](crate::future::Send::unqueued) have these. Once the session is lost, there are none.
    ///
    /// ```
    /// # rdma_sim::Sim::new().run(async |net| {
    /// # let node = |host| rdma_async::Node::builder(net.opener(host, "rdma_en2")).runtime(net.runtime()).build();
    /// # let (a, b) = (node("a")?, node("b")?);
    /// # let (to_b, to_a) = tokio::io::duplex(1024);
    /// # let (session, _) = futures::future::try_join(a.connect(to_b), b.serve(to_a)).await?;
    /// # let peer = b.accept().await.expect("the node is open");
    /// session.break_paths();
    /// session.send_bytes(b"one").await?;
    /// assert_eq!(session.main_stream().undelivered(), [Box::from(&b"one"[..])]);
    /// # assert_eq!(*peer.recv().await?.expect("a message"), *b"one");
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// # }).value.unwrap();
    /// ```
    pub fn undelivered(&self) -> Vec<Box<[u8]>> {
        self.handle.peering.update(|state, _| state.undelivered(self.handle.key))
    }

    /// Lets what this side sends next on the stream go before or after that of other streams
    ///
    /// A stream that the peer has opened begins with [`Priority::Normal`] on this side.
    pub fn set_priority(&self, priority: Priority) {
        self.handle.peering.update(|state, _| state.set_priority(self.handle.key, priority));
    }

    /// The number of the stream in its session, the same on both sides
    pub fn id(&self) -> StreamId {
        self.handle.key.stream
    }

    /// Waits until the session is over
    pub(super) fn closed(&self) -> Closed<D> {
        Closed::new(self.handle.stream_ref())
    }
}

impl<D: Device> Clone for Stream<D> {
    fn clone(&self) -> Self {
        Self { handle: Arc::clone(&self.handle) }
    }
}

impl<D: Device> fmt::Debug for Stream<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let key = &self.handle.key;
        let mut debug = f.debug_struct("Stream");
        debug.field("session", &key.session.number()).field("stream", &key.stream.0).finish_non_exhaustive()
    }
}
