//! A transport of tarpc over a stream of a session
//!
//! Each request and each answer is one message of the stream, in the format of postcard, and is at most as long as the peer's
//! [`max_message`](rdma_async::NodeOptions::max_message). tarpc uses the timers of tokio, so both sides need a tokio runtime. A call whose
//! deadline passes fails, by default ten seconds after its context was made, also while there is no cable; other calls go on.
//!
//! ```no_run
//! use futures::StreamExt as _;
//! use rdma_adapters::tarpc::transport;
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
//!     let channel = BaseChannel::with_defaults(transport(session.main_stream()));
//!     channel.execute(Polite.serve()).for_each(async |answer| drop(tokio::spawn(answer))).await;
//! }
//!
//! async fn client(session: AnySession) -> Result<String, client::RpcError> {
//!     let greeter = GreeterClient::new(client::Config::default(), transport(session.main_stream())).spawn();
//!     greeter.greet(context::current(), "Ada".into()).await
//! }
//! ```

use std::io;

use futures::{Sink, SinkExt as _, Stream, StreamExt as _};
use rdma_async::{Device, Message, RecvError};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// Receives values of one type from `stream` and sends those of another, for [`BaseChannel`](tarpc::server::BaseChannel) and clients
///
/// # Errors
///
/// Those of [`Stream::recv`](rdma_async::Stream::recv), [`Stream::send`](rdma_async::Stream::send) and postcard, inside of an
/// [`io::Error`].
pub fn transport<In, Out, D>(
    stream: &rdma_async::Stream<D>,
) -> impl Stream<Item = io::Result<In>> + Sink<Out, Error = io::Error> + use<In, Out, D>
where
    In: DeserializeOwned,
    Out: Serialize,
    D: Device,
{
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
    let decode =
        |message: Result<Message, RecvError>| postcard::from_bytes(&message?).map_err(io::Error::other);
    stream.duplex().with(encode).map(decode)
}
