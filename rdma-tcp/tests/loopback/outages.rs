//! Connections that are cut while the peer lives

use std::convert::Infallible;
use std::time::Duration;

use futures::future::join;
use rdma_async::{ConnectError, Node, NodeOptions, RecvError, SessionError};
use rdma_bare::BareQp;
use rdma_core::{FRAME, QpState, QueuePair as _, Status};

use super::proxy::Network;
use super::{Pair, completion, run, transfer};

/// Catches a cut that is taken for silence, and requests that are not flushed in the order of their posts.
#[test]
fn a_cut_connection_is_an_error_on_both_sides() {
    run(async {
        let network = Network::default();
        let [mut a, mut b] = BareQp::pair(network.open(), network.open(), 64 * FRAME).unwrap();
        b.recv(1, 0..64).unwrap();
        a.send(1, 0..64).unwrap();
        assert_eq!(completion(&mut b).await.status, Status::Success);
        assert_eq!(completion(&mut a).await.status, Status::Success);
        for qp in [&mut a, &mut b] {
            for id in 2..5 {
                qp.recv(id, id as usize * FRAME..id as usize * FRAME + 64).unwrap();
            }
        }
        assert_eq!(network.connections(), 1);
        network.cut();
        for qp in [&mut a, &mut b] {
            for id in 2..5 {
                let flushed = completion(qp).await;
                assert_eq!((flushed.id.0, flushed.status), (id, Status::Flushed));
            }
            assert_eq!(qp.qp().state(), QpState::Error);
        }
    });
}

/// Catches a side that dials once: the first calls end at once.
#[test]
fn a_call_that_fails_is_repeated() {
    run(async {
        let network = Network::default();
        network.set_down(true);
        let [mut a, mut b] = BareQp::pair(network.open(), network.open(), 64 * FRAME).unwrap();
        b.recv(1, 0..64).unwrap();
        a.send(1, 0..64).unwrap();
        tokio::time::sleep(Duration::from_millis(100)).await;
        assert_eq!((a.poll().unwrap(), b.poll().unwrap()), (None, None));
        network.set_down(false);
        assert_eq!(completion(&mut b).await.status, Status::Success);
        assert_eq!(completion(&mut a).await.status, Status::Success);
    });
}

/// Catches messages that are lost, doubled or misplaced when their connection is cut, and a path that is not made again.
#[test]
fn a_session_outlives_cut_connections() {
    run(async {
        let network = Network::default();
        let node = || {
            let network = network.clone();
            Node::builder(move || Ok::<_, std::io::Error>(network.open())).build().unwrap()
        };
        let pair = Pair::new(node(), node()).await;
        let lens = [64, 300_000, 4096, 4 << 20, 0, 68_545].repeat(10);
        let cuts = async {
            for _ in 0..5 {
                // While both connections of the path exist and carry messages.
                while network.connections() < 2 {
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
                tokio::time::sleep(Duration::from_millis(10)).await;
                network.cut();
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        let talk = async {
            let made = || pair.ab.snapshot().paths[0].counts.made;
            while made() < 6 {
                join(transfer(&pair.ab, &pair.ba, &lens), transfer(&pair.ba, &pair.ab, &lens)).await;
            }
        };
        join(cuts, talk).await;
        pair.end().await;
    });
}

/// Catches a session that waits for ever when no connection can be made any more, and the bootstrap stream is silent, too.
#[test]
fn a_network_that_is_gone_is_an_error_within_the_peer_timeout() {
    run(async {
        let network = Network::default();
        let timeout = Duration::from_millis(500);
        let node = || {
            let network = network.clone();
            let options = NodeOptions::new().peer_timeout(timeout);
            Node::builder(move || Ok::<_, Infallible>(network.open())).options(options).build().unwrap()
        };
        let (a, b) = (node(), node());
        // A stream that is cut, as well.
        let (to_b, from_a) = tokio::io::duplex(1024);
        let (to_a, from_b) = tokio::io::duplex(1024);
        let carry = tokio::spawn(async move {
            let (mut one, mut other) = (from_a, from_b);
            let _ = tokio::io::copy_bidirectional(&mut one, &mut other).await;
            std::future::pending::<()>().await;
        });
        let (ab, ()) = futures::future::try_join(a.connect(to_b), b.serve(to_a)).await.unwrap();
        let ba = b.accept().await.unwrap();
        transfer(&ab, &ba, &[64, 1 << 20]).await;
        network.close();
        carry.abort();
        let start = tokio::time::Instant::now();
        let (one, other) = join(ab.recv(), ba.recv()).await;
        let lost = RecvError::Lost(SessionError::PeerLost(timeout));
        assert_eq!([one.unwrap_err(), other.unwrap_err()], [lost.clone(), lost]);
        assert!(start.elapsed() < 10 * timeout, "{:?}", start.elapsed());
    });
}

/// Regression: `connect` and `serve` succeeded although no connection for data could be made. Catches an end that does not wait for one.
#[test]
fn a_data_port_that_cannot_be_reached_makes_no_session() {
    run(async {
        let network = Network::default();
        network.set_down(true);
        // The same limit holds for the session that is made afterwards, which takes long under sanitizers.
        let limit = Duration::from_secs(5);
        let node = || {
            let network = network.clone();
            let options = NodeOptions::new().connect_timeout(limit);
            Node::builder(move || Ok::<_, Infallible>(network.open())).options(options).build().unwrap()
        };
        let (a, b) = (node(), node());
        let (to_b, to_a) = tokio::io::duplex(1024);
        let (connected, served) = join(a.connect(to_b), b.serve(to_a)).await;
        let results = [connected.map(drop), served];
        let is_unproven = |result: &Result<(), ConnectError>| matches!(result, Err(ConnectError::Unproven { waited, .. }) if *waited == limit);
        assert!(results.iter().all(Result::is_err) && results.iter().any(is_unproven), "{results:?}");
        network.set_down(false);
        Pair::new(a, b).await.end().await;
    });
}
