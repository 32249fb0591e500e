//! A transport of tarpc over a stream of a session
//!
//! Each request and each answer is one message of the stream, in the format of postcard, and is at most as long as the peer's
//! [`max_message`](rdma_async::NodeOptions::max_message). tarpc uses the timers of tokio, so both sides need a tokio runtime. A call whose
//! deadline passes fails, by default ten seconds after its context was made, also while there is no cable; other calls go on.
//!
//! ```no_run
//! use futures::StreamExt as _;
//! use rdma_adapters::tarpc::Transport;
//! use rdma_async::AnySession;
//! use tarpc::server::{BaseChannel, Channel as _};
//! use tarpc::{client, context};
//!
//! #[tarpc::service]
//! trait Greeter {
//!     async fn greet(name: String) -> String;
//! }
//!
//! #[derive(Clone)]
//! struct Polite;
//!
//! impl Greeter for Polite {
//!     async fn greet(self, _: context::Context, name: String) -> String {
//!         format!("Good morning, {name}")
//!     }
//! }
//!
//! async fn server(session: AnySession) {
//!     let channel = BaseChannel::with_defaults(Transport::new(session.main_stream()));
//!     channel.execute(Polite.serve()).for_each(async |answer| drop(tokio::spawn(answer))).await;
//! }
//!
//! async fn client(session: AnySession) -> Result<String, client::RpcError> {
//!     let greeter = GreeterClient::new(client::Config::default(), Transport::new(session.main_stream())).spawn();
//!     greeter.greet(context::current(), "Ada".into()).await
//! }
//! ```

use std::fmt;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use futures::stream::BoxStream;
use futures::{Sink, SinkExt as _, Stream, StreamExt as _};
use rdma_async::Device;
use serde::Serialize;
use serde::de::DeserializeOwned;

/// Receives values of one type and sends those of another, for [`BaseChannel`](tarpc::server::BaseChannel) and clients
///
/// # Errors
///
/// Those of [`Stream::recv`](rdma_async::Stream::recv), [`Stream::send`](rdma_async::Stream::send) and postcard, inside of an
/// [`io::Error`].
pub struct Transport<In, Out> {
    input: BoxStream<'static, io::Result<In>>,
    output: Pin<Box<dyn Sink<Out, Error = io::Error> + Send>>,
}

impl<In: DeserializeOwned + 'static, Out: Serialize + Send + 'static> Transport<In, Out> {
    /// A transport over `stream`
    pub fn new<D: Device>(stream: &rdma_async::Stream<D>) -> Self {
        let session = stream.session();
        let encode = move |value: Out| {
            let session = session.clone();
            async move {
                let bytes = postcard::to_stdvec(&value).map_err(io::Error::other)?;
                let mut lease = session.alloc(bytes.len()).await?;
                lease.extend_from_slice(&bytes);
                Ok(lease)
            }
        };
        let decode = |message: Result<rdma_async::Message, _>| {
            postcard::from_bytes(&message?).map_err(io::Error::other)
        };
        let output = stream.sink().sink_map_err(io::Error::from).with(encode);
        Self { input: stream.messages().map(decode).boxed(), output: Box::pin(output) }
    }
}

impl<In, Out> Stream for Transport<In, Out> {
    type Item = io::Result<In>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<io::Result<In>>> {
        self.input.poll_next_unpin(cx)
    }
}

impl<In, Out> Sink<Out> for Transport<In, Out> {
    type Error = io::Error;

    fn poll_ready(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.output.as_mut().poll_ready(cx)
    }

    fn start_send(mut self: Pin<&mut Self>, value: Out) -> io::Result<()> {
        self.output.as_mut().start_send(value)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.output.as_mut().poll_flush(cx)
    }

    fn poll_close(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.output.as_mut().poll_close(cx)
    }
}

impl<In, Out> fmt::Debug for Transport<In, Out> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Transport").finish_non_exhaustive()
    }
}
