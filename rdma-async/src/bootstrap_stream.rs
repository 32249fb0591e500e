use std::future::poll_fn;
use std::io;
use std::task::{Context, Poll};

/// A reliable byte stream to the peer's process, over which two endpoints introduce themselves
///
/// With the `tokio` feature, everything that tokio can read and write is one: TCP, a pipe. For others, implement the three methods,
/// which are those of every runtime.
///
/// ```
/// use std::io;
/// use std::task::{Context, Poll};
/// use rdma_async::BootstrapStream;
///
/// /// A stream of a runtime other than tokio
/// struct Blocking(std::os::unix::net::UnixStream);
///
/// impl BootstrapStream for Blocking {
///     fn poll_read(&mut self, _: &mut Context<'_>, bytes: &mut [u8]) -> Poll<io::Result<usize>> {
///         Poll::Ready(io::Read::read(&mut self.0, bytes))
///     }
///
///     fn poll_write(&mut self, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
///         Poll::Ready(io::Write::write(&mut self.0, bytes))
///     }
///
///     fn poll_flush(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
///         Poll::Ready(Ok(()))
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

/// Fills `bytes`
pub(crate) async fn read_exact(stream: &mut impl BootstrapStream, mut bytes: &mut [u8]) -> io::Result<()> {
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
pub(crate) async fn write_all(stream: &mut impl BootstrapStream, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        let n = poll_fn(|cx| stream.poll_write(cx, bytes)).await?;
        if n == 0 {
            return Err(io::ErrorKind::WriteZero.into());
        }
        bytes = &bytes[n..];
    }
    poll_fn(|cx| stream.poll_flush(cx)).await
}
