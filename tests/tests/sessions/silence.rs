//! How long a silent peer is waited for

use std::time::Duration;

use futures::FutureExt as _;
use futures::future::join;
use rdma_async::{CloseError, Node, RecvError, SendError, SessionError};
use rdma_core::Time;
use rdma_sim::{Net, Sim};
use rdma_tests::{DEVICE, Pair, connect, node, nodes, on_session, options, zeros};

/// How often a node looks whether a peer is to be given up.
const TICK: Duration = Duration::from_millis(4);

async fn sleep_until(net: &Net, time: Duration) {
    net.sleep(time.saturating_sub(net.now() - Time::ZERO)).await;
}

/// Catches operations that do not learn of a lost peer, and messages that are lost although they had arrived.
#[test]
fn a_peer_that_falls_silent_is_an_error_within_the_timeout() {
    let timeout = Duration::from_secs(5);
    on_session(Sim::new(), &options().peer_timeout(timeout), async |net, pair| {
        pair.ab.send_bytes(b"arrived").await.unwrap();
        net.sleep(Duration::from_secs(60)).await;
        pair.ba.send_bytes(b"arrived, too").await.unwrap();
        net.sleep(Duration::from_micros(100)).await;
        net.inject("at 0s b kill".parse().unwrap());
        let silence = net.now();
        let lost = SessionError::PeerLost(timeout);
        let lease = zeros(&pair.ab, 100_000).await;
        let (sent, closed) = join(pair.ab.send(lease), pair.ab.close()).await;
        let unsent = sent.unwrap_err();
        assert_eq!(unsent.error, SendError::Lost(lost.clone()));
        assert!(unsent.lease.is_some());
        drop(unsent);
        assert_eq!(closed, Err(CloseError::Lost(lost.clone())));
        let waited = net.now() - silence;
        assert!(waited <= timeout + TICK, "{waited:?}");
        // What had arrived is not lost with the session.
        assert_eq!(*pair.ab.recv().await.unwrap().unwrap(), *b"arrived, too");
        assert_eq!(pair.ab.recv().await.unwrap_err(), RecvError::Lost(lost));
        assert_eq!(pair.ab.send_bytes(b"").await, Err(SendError::Closed));
        assert!(pair.a.pool_stats().is_whole());
    });
}

/// Catches a silence that is measured before all that has completed was taken in.
#[test]
fn a_process_that_was_paused_looks_at_what_has_arrived_before_it_gives_a_peer_up() {
    // Shorter than the timeout; but the last word of the peer came before the pause.
    let faults = "at 1910ms a pause; at 6500ms a resume".parse().unwrap();
    Sim::new().faults(faults).run(async |net| {
        let (a, b) = nodes(&net, &options().peer_timeout(Duration::from_secs(5)));
        let (busy, from_busy) = connect(&a, &b).await.unwrap();
        let (quiet, from_quiet) = connect(&a, &b).await.unwrap();
        sleep_until(&net, Duration::from_millis(1_900)).await;
        busy.send_bytes(b"before the pause").await.unwrap();
        quiet.send_bytes(b"before the pause").await.unwrap();
        // More than one batch of completions comes before those of the other peer.
        sleep_until(&net, Duration::from_millis(1_920)).await;
        for _ in 0..40 {
            from_busy.send_bytes(b"first").await.unwrap();
        }
        sleep_until(&net, Duration::from_secs(3)).await;
        from_quiet.send_bytes(b"behind").await.unwrap();
        assert_eq!(quiet.recv().await.unwrap().as_deref(), Some(&b"behind"[..]));
        assert!(net.now() - Time::ZERO >= Duration::from_millis(6_500), "the process was paused");
        for _ in 0..40 {
            assert_eq!(*busy.recv().await.unwrap().unwrap(), *b"first");
        }
    });
}

/// A session whose nodes have a stream that takes its time, and go on hearing each other by it when the cable is out
async fn over_tcp(net: &Net) -> Pair {
    let (a, b) = nodes(net, &options());
    let (to_b, to_a) = net.tcp();
    let (ab, served) = join(a.connect(to_b), b.serve(to_a)).await;
    served.unwrap();
    let ba = b.accept().await.unwrap();
    Pair { ab: ab.unwrap(), ba, a, b }
}

/// Catches a goodbye that is not read because the side that is to read it has failed to write first, and sides that wait for the report of
/// what they know.
#[test]
fn a_peer_that_has_left_in_order_is_not_waited_for_when_the_cable_goes_down() {
    for fault in ["a:DEVICE flap 2ms", "a:DEVICE unplug", "b:DEVICE unplug", "b rdma-off"] {
        for after in (0..160).step_by(4) {
            Sim::new().run(async |net| {
                let Pair { a, b, ab, ba } = over_tcp(&net).await;
                let close_later = async {
                    net.sleep(Duration::from_micros(40)).await;
                    ba.close().await
                };
                let closed = join(ab.close(), close_later).await;
                assert_eq!(closed, (Ok(()), Ok(())));
                let at = net.now() - Time::ZERO + Duration::from_micros(after);
                let fault = format!("at {}ns {}", at.as_nanos(), fault.replace("DEVICE", DEVICE));
                net.inject(fault.parse().unwrap());
                drop((ab, ba));
                let closed = net.now();
                join(a.wait_idle(), b.wait_idle()).await;
                let waited = net.now() - closed;
                assert!(waited < Duration::from_millis(50), "{fault}: {waited:?}");
            });
        }
    }
}

/// Catches ends of sessions that wait for a cable which does not come back, as long as the processes hear each other by the stream.
#[test]
fn nodes_without_sessions_do_not_wait_for_a_cable() {
    let timeout = Duration::from_secs(2);
    for how in ["reset", "drop", "close"] {
        for after in 0..40 {
            Sim::new().run(async |net| {
                let Pair { a, b, ab, ba } = over_tcp(&net).await;
                let at = net.now() - Time::ZERO + Duration::from_micros(after);
                net.inject(format!("at {}ns a:{DEVICE} unplug", at.as_nanos()).parse().unwrap());
                let begun = net.now();
                match how {
                    "reset" => ab.reset(7),
                    "close" => drop(join(ab.close(), ba.close()).now_or_never()),
                    _ => (),
                }
                drop((ab, ba));
                let idle = async |node: &Node<_>| {
                    node.wait_idle().await;
                    net.now() - begun
                };
                let (first, second) = join(idle(&a), idle(&b)).await;
                let most = timeout.saturating_mul(2) + TICK;
                assert!(first.max(second) <= most, "{how} {after}: {first:?} {second:?}");
            });
        }
    }
}

/// Regression: a node forgot a short message, whose operation had ended, when the cable was out for longer than the timeout and the
/// application held no session any more.
#[test]
fn what_was_sent_before_the_session_was_dropped_arrives_when_a_cable_is_back() {
    for after in 0..20 {
        Sim::new().run(async |net| {
            let Pair { a, b, ab, ba } = over_tcp(&net).await;
            let [out, back] =
                [after, 5_000_000].map(|micros| net.now() - Time::ZERO + Duration::from_micros(micros));
            net.inject(format!("at {}ns a:{DEVICE} unplug", out.as_nanos()).parse().unwrap());
            net.inject(format!("at {}ns a:{DEVICE} replug", back.as_nanos()).parse().unwrap());
            ab.send_bytes(b"kept").await.unwrap();
            drop(ab);
            assert_eq!(*ba.recv().await.unwrap().expect("it was sent"), *b"kept", "out after {after} µs");
            drop(ba);
            join(a.wait_idle(), b.wait_idle()).await;
        });
    }
}

/// Catches sides that keep paths alive, each by its own timeout: the side with the shorter one loses the session.
#[test]
fn an_idle_session_lives_with_different_timeouts_at_its_ends() {
    let s = Duration::from_secs;
    let slow = options().peer_timeout(s(300));
    for (a, b) in [(options(), slow.clone()), (slow, options())] {
        Sim::new().run(async |net| {
            let (a, b) = (node(&net, "a", &a), node(&net, "b", &b));
            let (ab, ba) = connect(&a, &b).await.unwrap();
            net.sleep(s(3600)).await;
            assert_eq!((ab.close_reason(), ba.close_reason()), (None, None));
            // The shorter timeout is that of both.
            net.inject("at 0s a kill".parse().unwrap());
            let start = net.now();
            assert_eq!(ba.recv().await.unwrap_err(), RecvError::Lost(SessionError::PeerLost(s(2))));
            assert!(net.now() - start <= s(2) + TICK);
        });
    }
}
