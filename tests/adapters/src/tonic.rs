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

use std::ops::{Deref, DerefMut};
use std::pin::Pin;

use futures::stream::{self, Stream};
use hyper_util::rt::TokioIo;
use rdma_async::{ByteStream, Device, OpenError, Priority, RecvError, Session};
use tonic::transport::server::Connected;
use tonic::transport::{Channel, Endpoint, Error, Uri};
use tower::service_fn;

/// A stream of a session as a connection of a server, when it is pinned
///
/// A pointer: pinned, it reads and writes as what it points to.
#[derive(Debug)]
pub struct Connection<D: Device>(ByteStream<D>);

impl<D: Device> Deref for Connection<D> {
    type Target = ByteStream<D>;

    fn deref(&self) -> &ByteStream<D> {
        &self.0
    }
}

impl<D: Device> DerefMut for Connection<D> {
    fn deref_mut(&mut self) -> &mut ByteStream<D> {
        &mut self.0
    }
}

impl<D: Device> Connected for Pin<Connection<D>> {
    type ConnectInfo = ();

    fn connect_info(&self) {}
}

/// The connections that the peer opens, for [`serve_with_incoming`](tonic::transport::Server::serve_with_incoming)
///
/// Ends when the peer closes the session, and after [`RecvError::Lost`] if the session is lost.
pub fn incoming<D: Device>(session: Session<D>) -> impl Stream<Item = Result<Pin<Connection<D>>, RecvError>> {
    stream::try_unfold(session, async |session| {
        let stream = session.accept_byte_stream().await?;
        Ok(stream.map(|stream| (Pin::new(Connection(stream)), session)))
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
        async move { Ok::<_, OpenError>(TokioIo::new(session.open_byte_stream(Priority::Normal).await?)) }
    };
    endpoint.connect_with_connector(service_fn(open)).await
}
