//! HTTP/1 and HTTP/2 of hyper over the streams of a session
//!
//! Each connection of HTTP is a stream of the session: connections share the cables to the peer, and none of them waits for the data
//! of another. As many are open at once as the peer's [`max_streams`](rdma_async::NodeOptions::max_streams); more wait in turn. Both
//! sides spawn on the [`Runtime`] of their node, so the adapter runs on tokio and on the executor of the simulator.
//!
//! ```no_run
//! use std::convert::Infallible;
//!
//! use hyper::body::Incoming;
//! use hyper::service::service_fn;
//! use hyper::{Request, Response};
//! use rdma_adapters::hyper::{connect_http2, serve};
//! use rdma_async::AnySession;
//!
//! async fn echo(request: Request<Incoming>) -> Result<Response<Incoming>, Infallible> {
//!     Ok(Response::new(request.into_body()))
//! }
//!
//! async fn server(session: AnySession) -> Result<(), rdma_async::RecvError> {
//!     serve(session, service_fn(echo)).await
//! }
//!
//! async fn client(session: AnySession, body: String) -> Result<Incoming, Box<dyn std::error::Error + Send + Sync>> {
//!     let mut requests = connect_http2(&session).await?;
//!     Ok(requests.send_request(Request::post("http://peer/echo").body(body)?).await?.into_body())
//! }
//! ```

use std::error::Error;
use std::sync::Arc;

use hyper::body::{Body, Incoming};
use hyper::client::conn::{http1, http2};
use hyper::rt::Executor;
use hyper::service::Service;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use hyper_util::server::conn::auto;
use rdma_async::{Device, Priority, RecvError, Runtime, Session};

/// An error of a body or of a service
type BoxError = Box<dyn Error + Send + Sync>;

/// Spawns the tasks of connections
#[derive(Clone)]
struct Spawner(Arc<dyn Runtime>);

impl<F: Future<Output: Send> + Send + 'static> Executor<F> for Spawner {
    fn execute(&self, task: F) {
        self.0.spawn(Box::pin(async { drop(task.await) }));
    }
}

/// Serves a connection of HTTP/1 or HTTP/2 on each stream that the peer opens, until the peer closes the session
///
/// An error of one connection ends that connection.
///
/// # Errors
///
/// [`RecvError::Lost`] if the session is lost.
pub async fn serve<D: Device, S, B>(session: Session<D>, service: S) -> Result<(), RecvError>
where
    S: Service<Request<Incoming>, Response = Response<B>, Error: Into<BoxError>, Future: Send>,
    S: Clone + Send + 'static,
    B: Body<Data: Send, Error: Into<BoxError>> + Send + 'static,
{
    let spawner = Spawner(Arc::clone(session.runtime()));
    while let Some(stream) = session.accept_byte_stream().await? {
        let (server, service) = (auto::Builder::new(spawner.clone()), service.clone());
        spawner.execute(async move { server.serve_connection(TokioIo::new(stream), service).await });
    }
    Ok(())
}

/// Opens a connection of HTTP/1
///
/// # Errors
///
/// Those of [`Session::open_stream`] and of hyper.
pub async fn connect_http1<D: Device, B>(session: &Session<D>) -> Result<http1::SendRequest<B>, BoxError>
where
    B: Body<Data: Send, Error: Into<BoxError>> + Send + 'static,
{
    let stream = session.open_byte_stream(Priority::Normal).await?;
    let (requests, connection) = http1::handshake(TokioIo::new(stream)).await?;
    Spawner(Arc::clone(session.runtime())).execute(connection);
    Ok(requests)
}

/// Opens a connection of HTTP/2
///
/// # Errors
///
/// Those of [`Session::open_stream`] and of hyper.
pub async fn connect_http2<D: Device, B>(session: &Session<D>) -> Result<http2::SendRequest<B>, BoxError>
where
    B: Body<Data: Send, Error: Into<BoxError>> + Send + Unpin + 'static,
{
    let spawner = Spawner(Arc::clone(session.runtime()));
    let stream = session.open_byte_stream(Priority::Normal).await?;
    let (requests, connection) = http2::handshake(spawner.clone(), TokioIo::new(stream)).await?;
    spawner.execute(connection);
    Ok(requests)
}
