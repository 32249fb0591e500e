//! Peers that begin to introduce themselves and do not go on: how many there may be, and for how long

use std::time::Duration;

use futures::future::{join, join_all};
use rdma_async::{ByeReason, ConnectError, ConnectStage, NodeOptions};
use rdma_core::session::{ControlMessage, Hello, Limits};
use rdma_sim::Sim;
use rdma_tests::{Pair, connect, hello, node, on_session, options};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, duplex};

use super::goodbyes::{goodbye, greet, next};
use super::hostile::transfer;
use super::shared_key::keyed;

const LIMITS: Limits = Limits { max_message: 4 << 20, max_sessions: 16, max_streams: 16, stream_share: 128 };
const SECOND: Duration = Duration::from_secs(1);

/// Reads the hello of the node, and why it goes
async fn refusal(stream: &mut DuplexStream) -> Option<ByeReason> {
    stream.read_exact(&mut [0; Hello::LEN]).await.unwrap();
    goodbye(stream).await
}

fn is_crowded(served: &Result<(), ConnectError>, limit: u32) -> bool {
    matches!(served, Err(ConnectError::Crowded { max }) if *max == limit)
}

/// Catches a limit that refuses the latest, which may be honest, or that is off by one, a refusal without a word, and an attempt that
/// counts although it is over.
#[test]
fn the_oldest_half_open_attempt_gives_way() {
    Sim::new().run(async |net| {
        let options = options().max_half_open(2);
        let [a, b] = ["a", "b"].map(|host| node(&net, host, &options));
        let ((mut silent, to_b), (mut greeter, also_to_b)) = (duplex(1024), duplex(1024));
        let start = net.now();
        let first = async { (b.serve(to_b).await, net.now() - start, refusal(&mut silent).await) };
        let second = async {
            let greets = async {
                greet(&mut greeter, &hello(LIMITS).to_bytes()).await;
                goodbye(&mut greeter).await
            };
            let (served, reason) = join(b.serve(also_to_b), greets).await;
            (served, net.now() - start, reason)
        };
        let honest = async {
            net.sleep(SECOND).await;
            let pair = connect(&a, &b).await.unwrap();
            net.sleep(SECOND).await;
            // The honest one counts no more.
            (pair, connect(&a, &b).await.unwrap())
        };
        let (first, second, _honest) = futures::join!(first, second, honest);
        for ((served, took, reason), expected) in [(first, SECOND), (second, 10 * SECOND)] {
            let is_first = expected == SECOND;
            assert_eq!(is_crowded(&served, 2), is_first, "{served:?}");
            assert_eq!(took, expected);
            assert_eq!(reason, Some(if is_first { ByeReason::Crowded } else { ByeReason::Late }));
        }
    });
}

/// Catches strangers that keep an honest peer from the node, or take its goodput, beyond the limit: a port scanner that never speaks
/// and never goes, and introductions of a byte at a time.
#[test]
fn more_strangers_than_the_limit_are_in_the_way_of_no_honest_peer() {
    const STRANGERS: usize = 500;
    const LIMIT: u32 = 16;
    let transfer_alone = |options: &NodeOptions| {
        on_session(Sim::new().sanitize(false), options, async |net, Pair { ab, ba, .. }| {
            transfer(&net, &ab, &ba).await
        })
    };
    let options = options().max_half_open(LIMIT);
    let alone = transfer_alone(&options);
    let beside = on_session(Sim::new().sanitize(false), &options, async |net, Pair { a, b, ab, ba }| {
        let before = b.pool_stats();
        let other = node(&net, "a", &options);
        let strangers = join_all((0..STRANGERS).map(async |number| {
            net.sleep(Duration::from_micros(20) * number as u32).await;
            let (mut stranger, to_b) = duplex(1024);
            let speak = async {
                for byte in hello(LIMITS).to_bytes().into_iter().take(if number % 2 == 0 { 0 } else { 60 }) {
                    if stranger.write_u8(byte).await.is_err() {
                        break;
                    }
                    net.sleep(Duration::from_millis(100)).await;
                }
                refusal(&mut stranger).await
            };
            join(b.serve(to_b), speak).await
        }));
        let honest = async {
            let took = transfer(&net, &ab, &ba).await;
            for _ in 0..10 {
                net.sleep(Duration::from_micros(100)).await;
                drop(connect(&other, &b).await.expect("strangers are in the way of no peer"));
            }
            took
        };
        let (ended, took) = join(strangers, honest).await;
        let crowded = ended.iter().filter(|(served, _)| is_crowded(served, LIMIT)).count();
        assert!((STRANGERS - LIMIT as usize..STRANGERS).contains(&crowded), "{crowded}");
        for (served, reason) in &ended {
            let expected = if is_crowded(served, LIMIT) { ByeReason::Crowded } else { ByeReason::Late };
            assert_eq!(*reason, Some(expected), "{served:?}");
        }
        drop(other);
        net.sleep(Duration::from_secs(1)).await;
        assert_eq!(b.pool_stats(), before);
        drop(a);
        took
    });
    let part = alone.as_secs_f64() / beside.as_secs_f64();
    assert!(part >= 0.9, "{part:.3} of the goodput");
}

/// How long an honest peer takes to connect beside so many strangers that introduce themselves and offer no path
fn connect_beside(strangers: usize) -> Duration {
    const LIMIT: u32 = 16;
    let options = options().max_half_open(LIMIT).max_peers(1);
    Sim::new().run(async |net| {
        let [a, b] = ["a", "b"].map(|host| node(&net, host, &options));
        let before = b.pool_stats();
        let all = join_all((0..strangers).map(async |number| {
            net.sleep(Duration::from_micros(10) * number as u32).await;
            let (mut stranger, to_b) = duplex(1024);
            let speak = async {
                let theirs = greet(&mut stranger, &hello(LIMITS).to_bytes()).await;
                let confirm = ControlMessage::Confirm(theirs.nonce).to_bytes();
                // A peer that takes long for its first path says that it lives.
                let alive = ControlMessage::Alive.to_bytes().repeat(number % 2);
                stranger.write_all(&[&confirm, alive.as_slice()].concat()).await.unwrap();
                assert!(matches!(next(&mut stranger).await, Some(ControlMessage::Confirm(_))));
                goodbye(&mut stranger).await
            };
            join(b.serve(to_b), speak).await
        }));
        let honest = async {
            net.sleep(Duration::from_millis(1)).await;
            assert_eq!(b.pool_stats(), before);
            let start = net.now();
            let _both = connect(&a, &b).await.expect("strangers are in the way of no peer");
            net.now() - start
        };
        let (ended, took) = join(all, honest).await;
        let count = ended.iter().filter(|(served, _)| is_crowded(served, LIMIT)).count();
        // The honest peer was one of those that have offered no path, for a moment.
        assert_eq!(count, (strangers + 1).saturating_sub(LIMIT as usize));
        for (served, reason) in &ended {
            let is_late = matches!(served, Err(ConnectError::Timeout { stage: ConnectStage::Path, waited }) if *waited == 10 * SECOND);
            assert!(is_late || is_crowded(served, LIMIT), "{served:?}");
            assert_eq!(*reason, Some(if is_late { ByeReason::NoPath } else { ByeReason::Crowded }));
        }
        took
    })
    .value
}

/// Regression: each of them had the memory of a peer until the connect timeout, and honest peers were refused. Catches a stranger that takes
/// a place of a peer, strangers without a limit, and an end without its reason.
#[test]
fn strangers_that_offer_no_path_take_no_place_of_a_peer() {
    let alone = connect_beside(0);
    for strangers in [1, 15, 16, 60] {
        assert_eq!(connect_beside(strangers), alone, "{strangers}");
    }
}

/// Catches a stage without a bound of its own, one that is charged with the time of an earlier one, and an error with another stage.
#[test]
fn each_stage_has_its_time_and_its_name() {
    let times = |options: NodeOptions| options.hello_timeout(SECOND).connect_timeout(4 * SECOND);
    for (options, stage, late) in [
        (keyed(1), ConnectStage::Key, 0),
        (options(), ConnectStage::Hello, 0),
        (options(), ConnectStage::Answer, 0),
        (options(), ConnectStage::Answer, 1),
        (options(), ConnectStage::Path, 0),
        (options(), ConnectStage::Path, 1),
    ] {
        Sim::new().run(async |net| {
            let b = node(&net, "b", &times(options.clone()));
            let (mut peer, to_b) = duplex(1024);
            let late = Duration::from_millis(900) * late;
            let speak = async {
                net.sleep(late).await;
                if matches!(stage, ConnectStage::Answer | ConnectStage::Path) {
                    let theirs = greet(&mut peer, &hello(LIMITS).to_bytes()).await;
                    net.sleep(late).await;
                    if stage == ConnectStage::Path {
                        peer.write_all(&ControlMessage::Confirm(theirs.nonce).to_bytes()).await.unwrap();
                    }
                    return goodbye(&mut peer).await;
                }
                let mut said = Vec::new();
                peer.read_to_end(&mut said).await.unwrap();
                let bye = said.last_chunk().and_then(|bytes| ControlMessage::from_bytes(bytes).ok());
                assert_eq!(bye.is_none(), said.is_empty());
                bye.map(|bye| match bye {
                    ControlMessage::Bye(reason) => reason,
                    other => panic!("{other:?}"),
                })
            };
            let start = net.now();
            let ((served, took), reason) =
                join(async { (b.serve(to_b).await, net.now() - start) }, speak).await;
            let (limit, expected) = match stage {
                ConnectStage::Path => (4 * SECOND, Some(ByeReason::NoPath)),
                // Without the key the peer could not read it.
                ConnectStage::Key => (SECOND, None),
                _ => (SECOND, Some(ByeReason::Late)),
            };
            let error = served.unwrap_err();
            let is_named =
                matches!(&error, ConnectError::Timeout { stage: found, waited } if (*found, *waited) == (stage, limit));
            assert!(is_named, "{stage:?}: {error}");
            assert_eq!(error.to_string(), format!("{stage} within {limit:?}"));
            assert_eq!(took, if stage == ConnectStage::Answer { late + limit } else { limit });
            assert_eq!(reason, expected, "{stage:?}");
            assert!(b.pool_stats().is_whole());
        });
    }
}
