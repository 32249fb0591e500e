use std::future::poll_fn;
use std::io;
use std::task::{Context, Poll};

/// A reliable byte stream to the peer's process, over which two nodes make their paths, and make them again; they keep it
///
/// With the `tokio` feature, everything that tokio can read and write is one: TCP, a pipe. For others, implement the three methods,
/// which are those of every runtime.
///
/// No method may block: the node polls the stream beside its sessions.
///
/// ```
/// use std::io;
/// use std::pin::Pin;
/// use std::task::{Context, Poll};
///
/// use futures::io::{AsyncRead, AsyncWrite};
/// use rdma_async::BootstrapStream;
///
/// /// A stream of another runtime, by the traits of the crate `futures`
/// struct Stream<S>(S);
///
/// impl<S: AsyncRead + AsyncWrite + Unpin> BootstrapStream for Stream<S> {
///     fn poll_read(&mut self, cx: &mut Context<'_>, bytes: &mut [u8]) -> Poll<io::Result<usize>> {
///         Pin::new(&mut self.0).poll_read(cx, bytes)
///     }
///
///     fn poll_write(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
///         Pin::new(&mut self.0).poll_write(cx, bytes)
///     }
///
///     fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
///         Pin::new(&mut self.0).poll_flush(cx)
///     }
/// }
/// ```
pub trait BootstrapStream {
    /// Reads some bytes into `bytes` and returns how many; zero at the end of the stream
    ///
    /// # Errors
    ///
    /// The [`io::Error`] of a stream that failed.
    fn poll_read(&mut self, cx: &mut Context<'_>, bytes: &mut [u8]) -> Poll<io::Result<usize>>;

    /// Writes some of `bytes` and returns how many
    ///
    /// # Errors
    ///
    /// The [`io::Error`] of a stream that failed.
    fn poll_write(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>>;

    /// Sends written bytes on their way
    ///
    /// # Errors
    ///
    /// The [`io::Error`] of a stream that failed.
    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>>;
}

#[cfg(feature = "tokio")]
impl<S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin> BootstrapStream for S {
    fn poll_read(&mut self, cx: &mut Context<'_>, bytes: &mut [u8]) -> Poll<io::Result<usize>> {
        let mut buf = tokio::io::ReadBuf::new(bytes);
        std::task::ready!(std::pin::Pin::new(self).poll_read(cx, &mut buf))?;
        Poll::Ready(Ok(buf.filled().len()))
    }

    fn poll_write(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        std::pin::Pin::new(self).poll_write(cx, bytes)
    }

    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        std::pin::Pin::new(self).poll_flush(cx)
    }
}

/// A stream of any type: what is done with it is compiled once for each device
pub(crate) type BoxedStream = Box<dyn BootstrapStream + Send>;

/// Fills `bytes`
pub(crate) async fn read_exact(stream: &mut BoxedStream, mut bytes: &mut [u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        let n = poll_fn(|cx| stream.poll_read(cx, bytes)).await?;
        if n == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        bytes = &mut bytes[n..];
    }
    Ok(())
}

/// Writes all of `bytes` and sends them on their way
#[cfg(any(test, feature = "shared-key"))]
pub(crate) async fn write_all(stream: &mut BoxedStream, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        let n = poll_fn(|cx| stream.poll_write(cx, bytes)).await?;
        if n == 0 {
            return Err(io::ErrorKind::WriteZero.into());
        }
        bytes = &bytes[n..];
    }
    poll_fn(|cx| stream.poll_flush(cx)).await
}
