use std::convert::Infallible;
use std::future::pending;
use std::time::Duration;

use futures::future::{BoxFuture, join};
use futures::stream::{self, BoxStream};
use futures::{FutureExt as _, StreamExt as _};
use hyper::http;
use hyper::http::uri::PathAndQuery;
use prost::Message;
use rdma_adapters::tonic::{connect, incoming};
use rdma_tests::{Pair, message};
use tonic::body::Body;
use tonic::server::{ServerStreamingService, UnaryService};
use tonic::transport::{Channel, Endpoint, Server};
use tonic::{Code, Request, Response, Status, client, server};
use tonic_prost::ProstCodec;
use tower::Service;

use super::{COUNT, End, LEN, Span, assert_is_only_slower, is_reset, pair_on_tokio, paths_made, timed};

pub(super) const GET: &str = "/files.Files/Get";
const LIST: &str = "/files.Files/List";
const NEVER: &str = "/files.Files/Never";

#[derive(Clone, PartialEq, Message)]
struct Number {
    #[prost(uint64, tag = "1")]
    number: u64,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct File {
    #[prost(bytes = "vec", tag = "1")]
    content: Vec<u8>,
}

pub(super) fn file(number: u64) -> File {
    File { content: message(number as usize, LEN) }
}

/// Returns the file with a number
struct Get;

impl UnaryService<Number> for Get {
    type Response = File;
    type Future = BoxFuture<'static, Result<Response<File>, Status>>;

    fn call(&mut self, request: Request<Number>) -> Self::Future {
        async move { Ok(Response::new(file(request.into_inner().number))) }.boxed()
    }
}

/// Streams so many files
struct List;

impl ServerStreamingService<Number> for List {
    type Response = File;
    type ResponseStream = BoxStream<'static, Result<File, Status>>;
    type Future = BoxFuture<'static, Result<Response<Self::ResponseStream>, Status>>;

    fn call(&mut self, request: Request<Number>) -> Self::Future {
        let files = stream::iter(0..request.into_inner().number).map(|number| Ok(file(number)));
        async move { Ok(Response::new(files.boxed())) }.boxed()
    }
}

/// The service as `tonic-build` would generate it
#[derive(Clone)]
struct Files;

impl Service<http::Request<Body>> for Files {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut std::task::Context<'_>) -> std::task::Poll<Result<(), Infallible>> {
        std::task::Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let mut grpc = server::Grpc::new(ProstCodec::<File, Number>::default());
        async move {
            Ok(match request.uri().path() {
                GET => grpc.unary(Get, request).await,
                LIST => grpc.server_streaming(List, request).await,
                NEVER => pending().await,
                _ => Status::unimplemented("no such method").into_http(),
            })
        }
        .boxed()
    }
}

pub(super) struct Client(client::Grpc<Channel>);

impl Client {
    pub(super) async fn connect(pair: &Pair) -> Self {
        let channel = connect(pair.ab.clone(), &Endpoint::from_static("http://b")).await;
        Self(client::Grpc::new(channel.expect("the session is open")))
    }

    pub(super) async fn get(&mut self, path: &'static str, number: u64) -> Result<File, Status> {
        self.0.ready().await.map_err(|error| Status::from_error(Box::new(error)))?;
        let (path, codec) = (PathAndQuery::from_static(path), ProstCodec::<Number, File>::default());
        Ok(self.0.unary(Request::new(Number { number }), path, codec).await?.into_inner())
    }

    pub(super) async fn list(&mut self, number: u64) -> Result<tonic::Streaming<File>, Status> {
        self.0.ready().await.map_err(|error| Status::from_error(Box::new(error)))?;
        let (path, codec) = (PathAndQuery::from_static(LIST), ProstCodec::<Number, File>::default());
        Ok(self.0.server_streaming(Request::new(Number { number }), path, codec).await?.into_inner())
    }
}

/// Runs `client` with a server on the other side, until both have ended
pub(super) async fn with_server<T>(pair: &Pair, client: impl Future<Output = T>) -> T {
    let server = Server::builder().serve_with_incoming(Files, incoming(pair.ba.clone()));
    let (value, served) = join(client, server).await;
    served.expect("the server ends with the session");
    value
}

async fn gets(has_outage: bool) -> Vec<Span> {
    let (net, pair) = pair_on_tokio(has_outage).await;
    with_server(&pair, async {
        let (mut client, mut spans) = (Client::connect(&pair).await, Vec::new());
        for number in 0..COUNT as u64 {
            let (answer, span) = timed(&net, client.get(GET, number)).await;
            assert!(answer.expect("an answer") == file(number));
            spans.push(span);
        }
        assert_eq!(paths_made(&pair.ab), if has_outage { 2 } else { 1 });
        drop(client);
        pair.ab.close().await.expect("the peer is there");
        spans
    })
    .await
}

async fn lists(has_outage: bool) -> Vec<Span> {
    let (net, pair) = pair_on_tokio(has_outage).await;
    with_server(&pair, async {
        let (mut client, mut spans) = (Client::connect(&pair).await, Vec::new());
        let mut files = client.list(COUNT as u64).await.expect("an answer");
        for number in 0..COUNT as u64 {
            let (received, span) = timed(&net, files.message()).await;
            assert!(received.expect("no error") == Some(file(number)));
            spans.push(span);
        }
        assert!(files.message().await.expect("no error").is_none());
        assert_eq!(paths_made(&pair.ab), if has_outage { 2 } else { 1 });
        drop((client, files));
        pair.ab.close().await.expect("the peer is there");
        spans
    })
    .await
}

#[tokio::test(start_paused = true)]
async fn a_unary_method_waits_for_the_cable() {
    assert_is_only_slower(&gets(false).await, &gets(true).await);
}

#[tokio::test(start_paused = true)]
async fn a_streaming_method_waits_for_the_cable() {
    assert_is_only_slower(&lists(false).await, &lists(true).await);
}

#[tokio::test(start_paused = true)]
async fn the_end_of_the_session_fails_requests() {
    for end in [End::Reset, End::Close] {
        let (net, pair) = pair_on_tokio(false).await;
        with_server(&pair, async {
            let mut client = Client::connect(&pair).await;
            let (answer, ()) = join(client.get(NEVER, 0), end.after_a_while(&net, &pair)).await;
            let status = answer.expect_err("the session has ended");
            // A request before the channel has noticed would go to the old connection.
            net.sleep(Duration::from_millis(1)).await;
            let late = client.get(GET, 0).await.expect_err("the session has ended");
            assert_eq!(late.code(), Code::Unavailable, "{end:?}: {late:?}");
            let is_reset = [is_reset(&status), is_reset(&late)];
            assert_eq!(is_reset, [matches!(end, End::Reset); 2], "{end:?}: {status:?}, {late:?}");
        })
        .await;
    }
}
