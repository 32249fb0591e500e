//! Paths that are made again after the bootstrap stream has broken: their messages go by the paths that are left

use std::pin::pin;
use std::time::Duration;

use futures::future::{Either, join, pending, select};
use rdma_async::time::timeout;
use rdma_async::{RecvError, SessionError};
use rdma_sim::{LineRate, Model, Net, Sim};
use rdma_tests::{Pair, node_over, options};
use tokio::io::{DuplexStream, copy_bidirectional, duplex};

use super::figures::cables;
use super::pairing::{exchange_of, paths_up};

const PORTS: [&str; 2] = ["rdma_en2", "rdma_en3"];
const BREAKS_AFTER: Duration = Duration::from_millis(50);
const PEER_TIMEOUT: Duration = Duration::from_millis(500);

/// How the bootstrap stream breaks
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Break {
    /// Both sides learn of it
    AtBothEnds,
    /// The connecting side learns of it, and nothing that the other one writes arrives
    AtTheConnectingEnd,
    /// The accepting side learns of it
    AtTheAcceptingEnd,
    /// Nothing arrives any more, and no side learns of it
    Silently,
}

const BREAKS: [Break; 4] =
    [Break::AtBothEnds, Break::AtTheConnectingEnd, Break::AtTheAcceptingEnd, Break::Silently];

/// Carries a bootstrap stream until it breaks
async fn carry(net: &Net, [mut a, mut b]: [DuplexStream; 2], how: Break) {
    let carried = timeout(&*net.runtime(), BREAKS_AFTER, copy_bidirectional(&mut a, &mut b)).await;
    assert!(carried.is_none(), "nodes keep the stream: {carried:?}");
    // What is not dropped stays open.
    match how {
        Break::AtBothEnds => drop((a, b)),
        Break::AtTheConnectingEnd => {
            drop(a);
            pending::<()>().await;
        }
        Break::AtTheAcceptingEnd => {
            drop(b);
            pending::<()>().await;
        }
        Break::Silently => pending().await,
    }
}

/// Runs `program` with a session over two cables; the bootstrap stream of the session breaks
fn broken(sim: Sim, how: Break, program: impl AsyncFnOnce(&Net, Pair)) {
    let run = sim.topology(cables(&[LineRate::TB5; 2])).run(async |net| {
        let options = options().peer_timeout(PEER_TIMEOUT);
        let [a, b] = ["a", "b"].map(|host| node_over(&net, host, &PORTS, &options));
        let ((to_b, at_a), (to_a, at_b)) = (duplex(1024), duplex(1024));
        let program = async {
            let (ab, served) = join(a.connect(to_b), b.serve(to_a)).await;
            served.unwrap();
            let (ab, ba) = (ab.unwrap(), b.accept().await.unwrap());
            program(&net, Pair { a, b, ab, ba }).await;
        };
        match select(pin!(program), pin!(carry(&net, [at_a, at_b], how))).await {
            Either::Left(((), _)) => (),
            Either::Right(((), program)) => program.await,
        }
    });
    assert_eq!(run.findings, [], "{how:?}");
}

fn pull(net: &Net, host: &str, port: &str, fault: &str) {
    net.inject(format!("at 0s {host}:{port} {fault}").parse().unwrap());
}

/// How long it takes until so many paths carry data at both sides
async fn until_up(net: &Net, pair: &Pair, count: usize) -> Duration {
    let start = net.now();
    while paths_up(&pair.ab) != count || paths_up(&pair.ba) != count {
        net.sleep(Duration::from_millis(1)).await;
        assert!(net.now() - start < Duration::from_secs(30), "{} {}", pair.ab.snapshot(), pair.ba.snapshot());
    }
    net.now() - start
}

/// One cable after the other is pulled, at either Mac, while messages of every size pass or at rest: each comes back over the
/// other one, and nothing is lost.
///
/// Catches messages about paths that only the stream carries, a stream that is trusted although it brings nothing, and the loss of a path of
/// which only one side learns.
#[test]
fn paths_are_made_again_over_the_cable_that_is_left() {
    const LENS: [&[usize]; 3] = [&[1 << 20; 6], &[64, 4 << 20, 0, 68_545, 30_000], &[]];
    for (profile, model) in [("tb5", Model::tb5()), ("roce", Model::roce())] {
        for (number, how) in BREAKS.into_iter().enumerate() {
            broken(Sim::new().model(model.clone()), how, async |net, pair| {
                net.sleep(2 * BREAKS_AFTER).await;
                for round in 0..6 {
                    let host = ["a", "b"][(round + number) % 2];
                    let port = PORTS[round % 2];
                    let lens = LENS[round % 3];
                    assert_eq!(until_up(net, &pair, 2).await, Duration::ZERO);
                    let pulled = async {
                        net.sleep(Duration::from_micros(200)).await;
                        pull(net, host, port, "unplug");
                    };
                    join(exchange_of(lens, &pair.ab, &pair.ba), pulled).await;
                    until_up(net, &pair, 1).await;
                    exchange_of(lens, &pair.ab, &pair.ba).await;
                    pull(net, host, port, "replug");
                    let took = until_up(net, &pair, 2).await;
                    // Until the silence of the stream shows, what is written there is lost.
                    let most = match how {
                        Break::AtBothEnds => Duration::from_millis(20),
                        _ => 2 * PEER_TIMEOUT + Duration::from_millis(20),
                    };
                    assert!(took <= most, "{profile}, {how:?}, round {round}: {took:?}");
                    exchange_of(lens, &pair.ab, &pair.ba).await;
                }
            });
        }
    }
}

/// A minute at rest without a stream: no side makes a path that there is again, and both still make one that was lost.
#[test]
fn a_session_without_a_stream_rests_and_goes_on() {
    for how in BREAKS {
        broken(Sim::new(), how, async |net, pair| {
            net.sleep(Duration::from_secs(60)).await;
            for session in [&pair.ab, &pair.ba] {
                let paths = session.snapshot().paths;
                assert!(paths.iter().all(|path| path.counts.made == 1), "{how:?}: {paths:?}");
            }
            pull(net, "b", PORTS[0], "unplug");
            net.sleep(Duration::from_secs(60)).await;
            pull(net, "b", PORTS[0], "replug");
            until_up(net, &pair, 2).await;
            pull(net, "b", PORTS[1], "unplug");
            exchange_of(&[1 << 20, 64], &pair.ab, &pair.ba).await;
        });
    }
}

/// Catches a session that waits for a path for ever, and one that ends while a path is left.
#[test]
fn without_a_stream_and_a_path_a_peer_is_lost_within_the_timeout() {
    for how in BREAKS {
        broken(Sim::new(), how, async |net, pair| {
            net.sleep(2 * BREAKS_AFTER + PEER_TIMEOUT).await;
            pull(net, "a", PORTS[0], "unplug");
            net.sleep(4 * PEER_TIMEOUT).await;
            exchange_of(&[64], &pair.ab, &pair.ba).await;
            pull(net, "b", PORTS[1], "unplug");
            let start = net.now();
            for session in [&pair.ab, &pair.ba] {
                let lost = RecvError::Lost(SessionError::PeerLost(PEER_TIMEOUT));
                assert_eq!(session.recv().await.unwrap_err(), lost, "{how:?}");
            }
            let took = net.now() - start;
            assert!(took <= PEER_TIMEOUT + Duration::from_millis(15), "{how:?}: {took:?}");
        });
    }
}
