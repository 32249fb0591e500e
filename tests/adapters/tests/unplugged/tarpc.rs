use std::future::pending;
use std::time::Duration;

use futures::StreamExt as _;
use futures::future::join;
use futures::stream;
use rdma_adapters::tarpc::transport;
use rdma_tests::{Pair, message};
use tarpc::server::{BaseChannel, Channel as _};
use tarpc::{client, context};

use super::{
    COUNT, End, LEN, OUTAGE, Span, assert_is_only_slower, is_reset, now, pair_on_tokio, paths_made, timed,
};

#[tarpc::service]
trait Files {
    /// Returns `content` back to front
    async fn reverse(content: Vec<u8>) -> Vec<u8>;
    /// Does not answer
    async fn never();
}

#[derive(Clone)]
struct Server;

impl Files for Server {
    async fn reverse(self, _: context::Context, mut content: Vec<u8>) -> Vec<u8> {
        content.reverse();
        content
    }

    async fn never(self, _: context::Context) {
        pending().await
    }
}

/// A context whose deadline the dilated clock of the test does not reach
fn patient() -> context::Context {
    let mut context = context::current();
    context.deadline += Duration::from_secs(24 * 3600);
    context
}

/// Runs `client` with a server on the other side, until both have ended
async fn with_server<T>(pair: &Pair, client: impl AsyncFnOnce(FilesClient) -> T) -> T {
    let channel = BaseChannel::with_defaults(transport(pair.ba.main_stream()));
    let server = channel.execute(Server.serve()).for_each(async |answer| drop(tokio::spawn(answer)));
    let files = FilesClient::new(client::Config::default(), transport(pair.ab.main_stream())).spawn();
    join(client(files), server).await.0
}

/// Calls `reverse` with `at_once` calls under way, and returns when
async fn reversals(at_once: usize, has_outage: bool) -> Vec<Span> {
    let (net, pair) = pair_on_tokio(has_outage).await;
    with_server(&pair, async |files| {
        let calls = stream::iter(0..COUNT).map(async |number| {
            let (answer, span) = timed(&net, files.reverse(patient(), message(number, LEN))).await;
            let mut answer = answer.expect("an answer");
            answer.reverse();
            assert!(answer == message(number, LEN), "answer {number}");
            span
        });
        let spans = calls.buffered(at_once).collect::<Vec<_>>().await;
        assert_eq!(paths_made(&pair.ab), if has_outage { 2 } else { 1 });
        pair.ab.close().await.expect("the peer is there");
        spans
    })
    .await
}

#[tokio::test(start_paused = true)]
async fn calls_wait_for_the_cable() {
    assert_is_only_slower(&reversals(1, false).await, &reversals(1, true).await);
}

#[tokio::test(start_paused = true)]
async fn calls_at_once_wait_for_the_cable() {
    assert_is_only_slower(&reversals(COUNT, false).await, &reversals(COUNT, true).await);
}

#[tokio::test(start_paused = true)]
async fn a_deadline_in_an_outage_fails_one_call() {
    let (net, pair) = pair_on_tokio(true).await;
    with_server(&pair, async |files| {
        let [unplug, replug] = OUTAGE;
        net.sleep(unplug - Duration::from_micros(100) - now(&net)).await;
        // Five milliseconds of the Macs.
        let mut impatient = context::current();
        impatient.deadline -= Duration::from_secs(5);
        let (failed, [start, end]) = timed(&net, files.reverse(impatient, vec![0; 3 * LEN])).await;
        assert!(matches!(failed, Err(client::RpcError::DeadlineExceeded)));
        assert!(start < unplug && unplug < end && end < replug, "{start:?} to {end:?}");
        assert_eq!(files.reverse(patient(), vec![1, 2]).await.expect("the cable is back"), [2, 1]);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn the_end_of_the_session_fails_calls() {
    for end in [End::Reset, End::Close] {
        let (net, pair) = pair_on_tokio(false).await;
        with_server(&pair, async |files| {
            let (answer, ()) = join(files.never(patient()), end.after_a_while(&net, &pair)).await;
            let error = answer.expect_err("the session has ended");
            assert_eq!(is_reset(&error), matches!(end, End::Reset), "{end:?}: {error:?}");
            let late = files.reverse(patient(), Vec::new()).await;
            assert!(matches!(late, Err(client::RpcError::Shutdown)), "{late:?}");
        })
        .await;
    }
}
