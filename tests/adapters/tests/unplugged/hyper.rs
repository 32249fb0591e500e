use std::convert::Infallible;
use std::future::pending;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use futures::channel::oneshot;
use futures::future::{join, join3, try_join_all};
use http_body_util::{BodyExt as _, Full};
use hyper::body::{Body, Bytes, Frame, Incoming};
use hyper::service::service_fn;
use hyper::{Request, Response};
use rdma_adapters::hyper::{connect_http1, connect_http2, serve};
use rdma_async::{RecvError, SessionError};
use rdma_sim::Sim;
use rdma_tests::{message, on_session, options};

use super::{COUNT, End, LEN, Span, assert_is_only_slower, paths_made, sim, timed};

type Failure = Box<dyn std::error::Error + Send + Sync>;

#[derive(Clone, Copy, PartialEq, Debug)]
enum Version {
    Http1,
    Http2,
}

/// The answer begins before the request has ended.
async fn echo(request: Request<Incoming>) -> Result<Response<Incoming>, Infallible> {
    Ok(Response::new(request.into_body()))
}

async fn no_answer(_: Request<Incoming>) -> Result<Response<Incoming>, Infallible> {
    pending().await
}

fn post(number: usize) -> Request<Full<Bytes>> {
    let body = Full::new(message(number, LEN).into());
    Request::post(format!("http://b/{number}")).body(body).expect("a request")
}

async fn check(number: usize, response: Response<Incoming>) -> Result<(), Failure> {
    let body = response.into_body().collect().await?.to_bytes();
    assert!(body == message(number, LEN), "answer {number} of {} bytes", body.len());
    Ok(())
}

/// Sends requests, one after the other or all at once, and returns when
fn transfer(version: Version, has_outage: bool) -> Vec<Span> {
    on_session(sim(has_outage), &options(), async |net, pair| {
        let requests = async {
            let mut spans = Vec::new();
            match version {
                Version::Http1 => {
                    let mut requests = connect_http1(&pair.ab).await?;
                    for number in 0..COUNT {
                        let answered =
                            async { check(number, requests.send_request(post(number)).await?).await };
                        let (answered, span) = timed(&net, answered).await;
                        answered?;
                        spans.push(span);
                    }
                }
                Version::Http2 => {
                    let requests = connect_http2(&pair.ab).await?;
                    spans = try_join_all((0..COUNT).map(async |number| {
                        let mut requests = requests.clone();
                        let answered =
                            async { check(number, requests.send_request(post(number)).await?).await };
                        let (answered, span) = timed(&net, answered).await;
                        answered.map(|()| span)
                    }))
                    .await?;
                }
            }
            assert_eq!(paths_made(&pair.ab), if has_outage { 2 } else { 1 });
            pair.ab.close().await?;
            Ok::<_, Failure>(spans)
        };
        let (spans, served) = join(requests, serve(pair.ba.clone(), service_fn(echo))).await;
        served.expect("the client closes the session");
        spans.expect("each request is answered")
    })
}

#[test]
fn http_1_waits_for_the_cable() {
    assert_is_only_slower(&transfer(Version::Http1, false), &transfer(Version::Http1, true));
}

#[test]
fn http_2_waits_for_the_cable() {
    assert_is_only_slower(&transfer(Version::Http2, false), &transfer(Version::Http2, true));
}

/// Catches a shutdown that does not finish the stream, so that later connections wait for ever.
#[test]
fn connections_that_have_ended_make_room() {
    on_session(Sim::new(), &options().max_streams(2), async |_, pair| {
        let requests = async {
            for number in 0..10 {
                check(number, connect_http1(&pair.ab).await?.send_request(post(number)).await?).await?;
                check(number, connect_http2(&pair.ab).await?.send_request(post(number)).await?).await?;
            }
            pair.ab.close().await?;
            Ok::<_, Failure>(())
        };
        let (answered, served) = join(requests, serve(pair.ba.clone(), service_fn(echo))).await;
        served.expect("the client closes the session");
        answered.expect("each request is answered");
    });
}

/// Catches a client that waits for ever for a server whose side of the session has ended.
#[test]
fn the_end_of_the_session_fails_requests() {
    for (version, end) in [Version::Http1, Version::Http2]
        .into_iter()
        .flat_map(|version| [End::Reset, End::Close].map(|end| (version, end)))
    {
        on_session(Sim::new(), &options(), async |net, pair| {
            let request = async {
                match version {
                    Version::Http1 => connect_http1(&pair.ab).await?.send_request(post(0)).await,
                    Version::Http2 => connect_http2(&pair.ab).await?.send_request(post(0)).await,
                }?;
                Ok::<_, Failure>(())
            };
            let server = serve(pair.ba.clone(), service_fn(no_answer));
            let (answered, served, ()) = join3(request, server, end.after_a_while(&net, &pair)).await;
            let error = answered.expect_err("the session has ended");
            let (is_reset, expected) = match end {
                End::Reset => (true, Err(RecvError::Lost(SessionError::Aborted))),
                End::Close => (false, Ok(())),
            };
            assert_eq!(served, expected);
            assert_eq!(super::is_reset(&*error), is_reset, "{version:?}, {end:?}: {error:?}");
        });
    }
}

/// A body without an end, which says when it is dropped
struct Endless {
    _dropped: oneshot::Sender<Infallible>,
}

impl Body for Endless {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(&[0; LEN])))))
    }
}

/// Catches a server that goes on to send when its client has gone.
#[test]
fn a_client_that_drops_an_answer_stops_the_server() {
    for version in [Version::Http1, Version::Http2] {
        on_session(Sim::new(), &options(), async |net, pair| {
            let (sender, dropped) = oneshot::channel();
            let sender = Arc::new(Mutex::new(Some(sender)));
            let service = service_fn(move |_| {
                let _dropped = sender.lock().expect("not poisoned").take().expect("one request");
                async { Ok::<_, Infallible>(Response::new(Endless { _dropped })) }
            });
            let request = async {
                // The server does not read it: it learns only by its own answer that the client has gone.
                let get = Request::post("http://b/").body(Full::new(Bytes::from_static(&[0; LEN])))?;
                let mut answer = match version {
                    Version::Http1 => connect_http1(&pair.ab).await?.send_request(get).await,
                    Version::Http2 => connect_http2(&pair.ab).await?.send_request(get).await,
                }?;
                answer.frame().await.expect("a part of the body")?;
                drop(answer);
                let at = net.now();
                let Err(oneshot::Canceled) = dropped.await;
                assert!(net.now() - at < Duration::from_millis(1), "{:?}", net.now() - at);
                pair.ab.close().await?;
                Ok::<_, Failure>(())
            };
            let (received, served) = join(request, serve(pair.ba.clone(), service)).await;
            received.expect("the server stops");
            served.expect("the client closes the session");
        });
    }
}
