//! gRPC of tonic over the streams of a session
//!
//! Each connection of a [`Channel`] is a stream of the session. tonic spawns on tokio, so both sides need a tokio runtime. A channel
//! whose connection has ended opens another stream; when the session is over, its requests fail.
//!
//! ```no_run
//! use rdma_adapters::tonic::{connect, incoming};
//! use rdma_async::AnySession;
//! # use {hyper::http, tonic::body::Body, tower::Service};
//! use tonic::transport::{Channel, Endpoint, Error, Server};
//!
//! # async fn server<S>(session: AnySession, service: S) -> Result<(), Error>
//! # where
//! #     S: Service<http::Request<Body>, Response = http::Response<Body>, Future: Send> + Clone + Send + 'static,
//! #     S::Error: Into<Box<dyn std::error::Error + Send + Sync>> + Send,
//! # {
//! // `service` is what tonic-build generates, or with the feature `router` several in `Server::add_service`.
//! Server::builder().serve_with_incoming(service, incoming(session)).await
//! # }
//!
//! async fn client(session: AnySession) -> Result<Channel, Error> {
//!     // The name stands in the requests; nothing looks it up.
//!     connect(session, &Endpoint::from_static("http://peer")).await
//! }
//! ```

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};

use futures::stream::{self, Stream};
use hyper_util::rt::TokioIo;
use rdma_async::{ByteStream, Device, OpenError, Priority, RecvError, Session};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tonic::transport::server::Connected;
use tonic::transport::{Channel, Endpoint, Error, Uri};
use tower::service_fn;

/// A stream of a session as a connection of a server
#[pin_project::pin_project]
#[derive(Debug)]
pub struct Connection<D: Device>(#[pin] ByteStream<D>);

impl<D: Device> Connected for Connection<D> {
    type ConnectInfo = ();

    fn connect_info(&self) {}
}

impl<D: Device> AsyncRead for Connection<D> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, to: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        self.project().0.poll_read(cx, to)
    }
}

impl<D: Device> AsyncWrite for Connection<D> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.project().0.poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.project().0.poll_write_vectored(cx, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.0.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.project().0.poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.project().0.poll_shutdown(cx)
    }
}

/// The connections that the peer opens, for [`serve_with_incoming`](tonic::transport::Server::serve_with_incoming)
///
/// Ends when the peer closes the session, and after [`RecvError::Lost`] if the session is lost.
pub fn incoming<D: Device>(session: Session<D>) -> impl Stream<Item = Result<Connection<D>, RecvError>> {
    stream::try_unfold(session, async |session| {
        let stream = session.accept_stream().await?;
        Ok(stream.map(|stream| (Connection(ByteStream::from(stream)), session)))
    })
}

/// Connects a channel to the peer
///
/// # Errors
///
/// That of [`Session::open_stream`], as a source of the error.
pub async fn connect<D: Device>(session: Session<D>, endpoint: &Endpoint) -> Result<Channel, Error> {
    let open = move |_: Uri| {
        let session = session.clone();
        async move {
            let stream = session.open_stream(Priority::Normal).await?;
            Ok::<_, OpenError>(TokioIo::new(ByteStream::from(stream)))
        }
    };
    endpoint.connect_with_connector(service_fn(open)).await
}
