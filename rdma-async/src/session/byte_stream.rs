use std::fmt;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use rdma_core::session::Priority;
use rdma_core::{Device, FRAME};
use tokio::io::{AsyncBufRead, AsyncRead, AsyncWrite, ReadBuf};

use super::Session;
use super::claim::Claim;
use super::copy_allocator::CopyAllocator;
use super::futures::Recv;
use super::message::Message;
use super::stream::Stream;
use crate::error::{OpenError, RecvError};
use crate::peering::body::Body;

/// The most bytes of a message; longer ones are not faster.
const LONGEST: usize = 1 << 20;

/// A stream of a session as a stream of bytes, for code that speaks [`AsyncRead`] and [`AsyncWrite`]
///
/// ```
/// # use rdma_async::*;
/// # rdma_sim::Sim::new().run(async |net| {
/// # let node = |host| Node::builder(net.opener(host, "rdma_en2")).runtime(net.runtime()).build();
/// # let (a, b) = (node("a").unwrap(), node("b").unwrap());
/// # let (to_b, to_a) = tokio::io::duplex(1024);
/// # let (session, ()) = futures::future::try_join(a.connect(to_b), b.serve(to_a)).await.unwrap();
/// # let peer = b.accept().await.unwrap();
/// use rdma_async::ByteStream;
/// use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
///
/// let (mut local, mut remote) = (ByteStream::from(session), ByteStream::from(peer));
/// local.write_all(b"hello").await?;
/// local.shutdown().await?;
/// let mut read = String::new();
/// remote.read_to_string(&mut read).await?;
/// assert_eq!(read, "hello");
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// # }).value.unwrap();
/// ```
///
/// Each write is copied, and sent at once as one message of up to 1 MiB, and a quarter of the
/// node's send memory; put a `tokio::io::BufWriter` before it if writes are small. Flushing waits for nothing. Shutting down
/// [finishes](Stream::finish) the stream: what was written is still sent, also when the stream is dropped.
///
/// Writes wait while the peer does not read, and leave memory to other streams, as [`Stream::send_bytes`]. They fail with
/// [`io::ErrorKind::BrokenPipe`] when the peer has dropped its stream or closed the session, and with
/// [`io::ErrorKind::NotConnected`] after this side has shut the stream down or closed the session.
///
/// # Errors
///
/// Those of [`Stream::send`] and [`Stream::recv`], inside of an [`io::Error`].
///
/// # Cancel safety
///
/// A read or a write that is not ready has done nothing. While it waits, other tasks get memory, places and messages before it.
pub struct ByteStream<D: Device> {
    stream: Stream<D>,
    recv: Recv<D>,
    /// The message that is being read, and how much of it was.
    message: Option<(Message, usize)>,
    is_at_end: bool,
    claim: Claim<D>,
    allocator: CopyAllocator<D>,
    /// The most bytes of a message.
    max: usize,
}

impl<D: Device> From<Stream<D>> for ByteStream<D> {
    fn from(stream: Stream<D>) -> Self {
        // Several fit into the memory for copies.
        let quarter = (stream.handle.peering.pool.send_bytes() / 4).max(FRAME);
        let max = LONGEST.min(stream.handle.max_message()).min(quarter).max(1);
        let (recv, claim) = (Recv::yielding(&stream.handle), Claim::new(&stream.handle));
        let allocator = CopyAllocator::yielding(&stream.handle);
        Self { stream, recv, message: None, is_at_end: false, claim, allocator, max }
    }
}

impl<D: Device> From<Session<D>> for ByteStream<D> {
    /// The main stream of the session
    fn from(session: Session<D>) -> Self {
        session.main.into()
    }
}

impl<D: Device> Session<D> {
    /// Opens another stream of the session as a stream of bytes, as [`open_stream`](Self::open_stream)
    ///
    /// # Errors
    ///
    /// As [`open_stream`](Self::open_stream).
    ///
    /// # Cancel safety
    ///
    /// As [`open_stream`](Self::open_stream).
    pub async fn open_byte_stream(&self, priority: Priority) -> Result<ByteStream<D>, OpenError> {
        Ok(self.open_stream(priority).await?.into())
    }

    /// The next stream that the peer has opened, as a stream of bytes, as [`accept_stream`](Self::accept_stream)
    ///
    /// # Errors
    ///
    /// As [`accept_stream`](Self::accept_stream).
    ///
    /// # Cancel safety
    ///
    /// As [`accept_stream`](Self::accept_stream).
    pub async fn accept_byte_stream(&self) -> Result<Option<ByteStream<D>>, RecvError> {
        Ok(self.accept_stream().await?.map(ByteStream::from))
    }
}

impl<D: Device> ByteStream<D> {
    /// The stream of messages that carries the bytes
    ///
    /// Messages that are sent or received there are a part of the bytes.
    pub fn get_ref(&self) -> &Stream<D> {
        &self.stream
    }
}

impl<D: Device> AsyncBufRead for ByteStream<D> {
    fn poll_fill_buf(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<&[u8]>> {
        let this = self.get_mut();
        while !this.is_at_end && this.message.as_ref().is_none_or(|(message, read)| *read == message.len()) {
            this.message = None;
            this.message = ready!(Pin::new(&mut this.recv).poll(cx))?.map(|message| (message, 0));
            this.is_at_end = this.message.is_none();
        }
        Poll::Ready(Ok(this.message.as_ref().map_or(&[], |(message, read)| &message[*read..])))
    }

    fn consume(mut self: Pin<&mut Self>, len: usize) {
        if let Some((message, read)) = &mut self.message {
            *read = (*read + len).min(message.len());
        }
    }
}

impl<D: Device> AsyncRead for ByteStream<D> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if buf.remaining() == 0 {
            return Poll::Ready(Ok(()));
        }
        let bytes = ready!(self.as_mut().poll_fill_buf(cx))?;
        let len = bytes.len().min(buf.remaining());
        buf.put_slice(&bytes[..len]);
        self.consume(len);
        Poll::Ready(Ok(()))
    }
}

impl<D: Device> AsyncWrite for ByteStream<D> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(cx, &[IoSlice::new(bytes)])
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let total = slices.iter().map(|slice| slice.len()).sum::<usize>();
        if total == 0 {
            return Poll::Ready(Ok(0));
        }
        let Self { claim, allocator, max, .. } = &mut *self;
        let len = total.min(*max);
        let mut copy = ready!(allocator.poll_alloc(len, cx))?;
        // The memory is given back while there is no place: what others of the stream wait for is not kept from them.
        ready!(claim.poll_claim(cx))?;
        let mut left = len;
        for slice in slices {
            let part = &slice[..slice.len().min(left)];
            copy.extend_from_slice(part);
            left -= part.len();
        }
        claim.send(Body::Copy(copy))?;
        Poll::Ready(Ok(len))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.stream.finish();
        Poll::Ready(Ok(()))
    }
}

impl<D: Device> fmt::Debug for ByteStream<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ByteStream").field(&self.stream).finish()
    }
}
