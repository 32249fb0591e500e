//! Each adapter while the cable is unplugged in the middle of a transfer, and when the session ends

mod day;
mod hyper;
mod tarpc;
mod tonic;

use std::error::Error;
use std::time::Duration;

use rdma_async::{Session, SessionError};
use rdma_sim::{Net, Sim, SimDevice};
use rdma_tests::{Pair, connected, options};

/// When the cable is out, of a run with an outage
const OUTAGE: [Duration; 2] = [Duration::from_millis(1), Duration::from_millis(7)];

/// Bytes of a body
const LEN: usize = 1 << 20;

/// Requests of one transfer
const COUNT: usize = 16;

/// Virtual time from the request to its answer
type Span = [Duration; 2];

fn sim(has_outage: bool) -> Sim {
    let [unplug, replug] = OUTAGE.map(|at| at.as_millis());
    let faults = format!("at {unplug}ms b:rdma_en2 unplug; at {replug}ms b:rdma_en2 replug");
    Sim::new().faults(if has_outage { faults.parse().expect("a plan") } else { Default::default() })
}

fn now(net: &Net) -> Duration {
    net.now() - rdma_sim::Time::ZERO
}

async fn timed<T>(net: &Net, request: impl Future<Output = T>) -> (T, Span) {
    let start = now(net);
    let answer = request.await;
    (answer, [start, now(net)])
}

/// Two Macs under the paused tokio of the test, whose clock shows a millisecond for each microsecond of them
async fn pair_on_tokio(has_outage: bool) -> (Net, Pair) {
    let net = rdma_sim::driver::tokio::start(sim(has_outage)).expect("the faults have their device");
    let pair = connected(&net, &options()).await;
    (net, pair)
}

/// Compares transfers without an outage and with one; catches one that was over before the cable was unplugged
fn assert_is_only_slower(plain: &[Span], with_outage: &[Span]) {
    let [unplug, replug] = OUTAGE;
    let end = |spans: &[Span]| spans.iter().map(|[_, end]| *end).max().expect("a request");
    assert!(plain.len() == COUNT && with_outage.len() == COUNT);
    assert!(plain[0][0] < unplug && unplug < end(plain), "nothing is under way at {unplug:?}: {plain:?}");
    let waited = with_outage.iter().filter(|[start, end]| *start < unplug && replug < *end).count();
    assert!(waited > 0, "no request was under way from {unplug:?} to {replug:?}: {with_outage:?}");
    let (plain, with_outage) = (end(plain), end(with_outage));
    let (extra, outage) = (with_outage - plain, replug - unplug);
    assert!(extra >= outage && extra < 2 * outage, "{plain:?} without an outage, {with_outage:?} with one");
}

/// The paths of the session that were made, which are two after an outage
fn paths_made(session: &Session<SimDevice>) -> u64 {
    session.snapshot().paths.iter().map(|path| u64::from(path.counts.made)).sum()
}

/// How the server ends the session
#[derive(Clone, Copy, Debug)]
enum End {
    Reset,
    Close,
}

impl End {
    /// Ends the session when a request waits for its answer
    async fn after_a_while(self, net: &Net, pair: &Pair) {
        net.sleep(Duration::from_millis(1)).await;
        match self {
            Self::Reset => pair.ba.reset(5),
            Self::Close => pair.ba.close().await.expect("the peer is there"),
        }
    }
}

/// Whether the error says, or one that it comes from, that the session was reset with code 5
///
/// By the text, because h2 keeps of an [`io::Error`](std::io::Error) only its kind and text.
fn is_reset(error: &(dyn Error + 'static)) -> bool {
    let mut errors = std::iter::successors(Some(error), |error| (*error).source());
    errors.any(|error| error.to_string() == SessionError::Reset(5).to_string())
}
