//! Reading and writing the regions of a peer

use std::future::poll_fn;

use rdma_core::session::Priority;
use rdma_core::{Access, Device};

use super::handle::StreamHandle;
use super::region_message::{Answer, MAX_NAME, Request};
use super::{Message, Session, Stream};
use crate::error::{OpenError, RecvError, SendError};
use crate::peering::dropped_puts::DroppedPuts;
use crate::pool::Lease;
use crate::wait_queue::Waiter;

/// Why a region of the peer was not read or written
///
/// ```
/// # use rdma_async::*;
/// # rdma_sim::Sim::new().run(async |net| {
/// # let node = |host| Node::builder(net.opener(host, "rdma_en2")).runtime(net.runtime()).build();
/// # let (a, b) = (node("a").unwrap(), node("b").unwrap());
/// # let (to_b, to_a) = tokio::io::duplex(1024);
/// # let (session, ()) = futures::future::try_join(a.connect(to_b), b.serve(to_a)).await.unwrap();
/// # let peer = b.accept().await.unwrap();
/// let regions = Regions::new();
/// let serves = regions.serve(&peer);
/// let reads = async {
///     assert_eq!(session.get("weights", 0, 5).await.unwrap_err(), RemoteError::NoRegion);
///     session.close().await
/// };
/// let (_served, closed) = futures::future::join(serves, reads).await;
/// closed?;
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// # }).value.unwrap();
/// ```
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum RemoteError {
    /// The peer serves no region of that name
    #[error("the peer serves no region of that name")]
    NoRegion,
    /// The region is not open for this
    #[error("the rights of the region do not permit it")]
    NotPermitted,
    /// No stream could be opened for it
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The region is shorter
    #[error("the region has {size} bytes")]
    OutOfBounds {
        /// Length of the region in bytes
        size: u64,
    },
    /// Nothing could be received
    #[error(transparent)]
    Recv(#[from] RecvError),
    /// Nothing could be sent
    #[error(transparent)]
    Send(#[from] SendError),
    /// This side takes no such long message
    #[error("{len} bytes exceed the limit of {max} for one message")]
    TooLong {
        /// Length in bytes
        len: usize,
        /// The longest message that this side takes, in bytes
        max: usize,
    },
    /// The peer does not serve regions on this session, or speaks otherwise
    #[error("the peer does not serve regions on this session")]
    Unanswered,
}

impl<D: Device> Session<D> {
    /// Writes the message in `lease` into a [region](super::Regions) of the peer, `offset` bytes behind its beginning
    ///
    /// Without a copy on the side of the peer if the offset is a multiple of 4096 and the message longer than 68,544 bytes. At most the
    /// longest message that the peer takes. Resolves with the lease when the bytes are in the region.
    ///
    /// # Errors
    ///
    /// [`RemoteError`]; when the session is lost, the region has the bytes, or those from before, or some of both.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future does what the loss of the session does: what was on its way may still be written. It is written before a later
    /// put of this session to the same region resolves, and never afterwards: that one waits until the peer is done with it.
    pub async fn put(&self, region: &str, offset: u64, lease: Lease) -> Result<Lease, RemoteError> {
        let (len, max) = (lease.len(), self.max_message());
        if len > max {
            return Err(SendError::TooLong { len, max }.into());
        }
        if !self.peering().pool.owns(&lease) {
            return Err(SendError::ForeignLease.into());
        }
        let access = Access::REMOTE_WRITE;
        let request = Request { access, offset, len: len as u64, name: region };
        self.dropped_puts_over(region).await;
        let mut put = Put { stream: self.open_for(&request).await?, region, is_over: false };
        put.stream.send_bytes(&request.to_bytes()).await?;
        let stream = &put.stream;
        let sent = stream.send(lease).await;
        if sent.is_err() {
            stream.finish();
        }
        // A peer that refuses answers before it drops the stream: its reason counts.
        let answer = stream.recv().await?;
        let lease = sent.map_err(|failed| failed.error);
        check(answer, lease.as_ref().err())?;
        put.is_over = true;
        // Others may have been dropped since this one began.
        self.dropped_puts_over(region).await;
        Ok(lease?)
    }

    /// Waits until the peer has ended the puts to a region that were dropped
    fn dropped_puts_over(&self, region: &str) -> impl Future<Output = ()> {
        let mut place = Place { session: &self.main.handle, waiter: Waiter::default() };
        poll_fn(move |cx| {
            let Place { session, waiter } = &mut place;
            session.with_session(|session, effects| {
                let is_over = |puts: &mut DroppedPuts| (!puts.may_write(region)).then_some(());
                session.dropped_puts.poll_take(waiter, cx, effects, is_over)
            })
        })
    }

    /// Reads `len` bytes of a [region](super::Regions) of the peer, `offset` bytes behind its beginning
    ///
    /// At most the longest message that this side takes.
    ///
    /// # Errors
    ///
    /// [`RemoteError`].
    ///
    /// # Cancel safety
    ///
    /// Dropping the future changes nothing.
    pub async fn get(&self, region: &str, offset: u64, len: usize) -> Result<Message, RemoteError> {
        let stream = self.asked_to_read(region, offset, len).await?;
        stream.recv().await?.filter(|message| message.len() == len).ok_or(RemoteError::Unanswered)
    }

    /// Reads as many bytes of a [region](super::Regions) of the peer as are in `lease` into it, as [`get`](Self::get)
    ///
    /// # Errors
    ///
    /// As [`get`](Self::get).
    ///
    /// # Cancel safety
    ///
    /// Dropping the future drops the lease.
    pub async fn get_into(&self, region: &str, offset: u64, lease: Lease) -> Result<Message, RemoteError> {
        if !self.peering().pool.owns(&lease) {
            return Err(RecvError::ForeignLease.into());
        }
        let len = lease.len();
        let stream = self.asked_to_read(region, offset, len).await?;
        let message = stream.recv_into(lease).await?;
        message.filter(|message| message.len() == len).ok_or(RemoteError::Unanswered)
    }

    /// A stream on which the bytes follow
    async fn asked_to_read(&self, region: &str, offset: u64, len: usize) -> Result<Stream<D>, RemoteError> {
        let max = self.peering().update(|state, _| state.longest_received());
        if len > max {
            return Err(RemoteError::TooLong { len, max });
        }
        let request = Request { access: Access::REMOTE_READ, offset, len: len as u64, name: region };
        let stream = self.open_for(&request).await?;
        stream.send_bytes(&request.to_bytes()).await?;
        check(stream.recv().await?, None)?;
        Ok(stream)
    }

    /// A stream for a request
    async fn open_for(&self, request: &Request<'_>) -> Result<Stream<D>, RemoteError> {
        if request.name.len() > MAX_NAME {
            return Err(RemoteError::NoRegion);
        }
        Ok(self.open_stream(Priority::Normal).await?)
    }
}

/// A put whose request may be on its way; later puts wait for it if it is dropped before it is over
struct Put<'a, D: Device> {
    stream: Stream<D>,
    region: &'a str,
    is_over: bool,
}

impl<D: Device> Drop for Put<'_, D> {
    fn drop(&mut self) {
        if !self.is_over {
            let handle = &self.stream.handle;
            handle.with_session(|session, effects| {
                session.put_dropped(self.region, handle.key.stream, effects);
            });
        }
    }
}

/// A place in line for the end of dropped puts
struct Place<'a, D: Device> {
    session: &'a StreamHandle<D>,
    waiter: Waiter,
}

impl<D: Device> Drop for Place<'_, D> {
    fn drop(&mut self) {
        let Self { session, waiter } = self;
        if waiter.waits() {
            session.with_session(|session, effects| session.dropped_puts.leave(waiter, effects));
        }
    }
}

/// Says what an answer means
fn check(answer: Option<Message>, failed: Option<&SendError>) -> Result<(), RemoteError> {
    match answer.and_then(|answer| Answer::parse(&answer)) {
        Some(Answer::Done) => Ok(()),
        Some(Answer::NoRegion) => Err(RemoteError::NoRegion),
        Some(Answer::NotPermitted) => Err(RemoteError::NotPermitted),
        Some(Answer::OutOfBounds(size)) => Err(RemoteError::OutOfBounds { size }),
        Some(Answer::Malformed) | None => match failed {
            Some(SendError::StreamDropped) | None => Err(RemoteError::Unanswered),
            Some(error) => Err(error.clone().into()),
        },
    }
}
