//! How long a silent peer is waited for, and how an idle connection lives

use std::time::Duration;

use futures::future::join;
use rdma_async::{CloseError, ConnectionError, Endpoint, RecvError, SendError};
use rdma_core::Time;
use rdma_sim::{Net, Sim};
use rdma_tests::{DEVICE, connect, endpoint, on_connection, options, zeros};

async fn sleep_until(net: &Net, time: Duration) {
    let left = time.saturating_sub(net.now() - Time::ZERO);
    rdma_async::time::sleep(&*net.runtime(), left).await;
}

#[test]
fn a_peer_that_falls_silent_is_an_error_within_the_timeout() {
    let timeout = Duration::from_secs(5);
    on_connection(Sim::new(), &options().peer_timeout(timeout), async |net, pair| {
        pair.ab.send_bytes(b"arrived").await.unwrap();
        rdma_async::time::sleep(&*net.runtime(), Duration::from_secs(60)).await;
        let silence = net.now();
        pair.ba.send_bytes(b"arrived, too").await.unwrap();
        pair.ba.abort();
        let lost = ConnectionError::PeerLost(timeout);
        let lease = zeros(&pair.ab, 100_000).await;
        let (sent, closed) = join(pair.ab.send(lease), pair.ab.close()).await;
        let unsent = sent.unwrap_err();
        assert_eq!(unsent.error, SendError::Lost(lost.clone()));
        assert!(unsent.lease.is_some());
        drop(unsent);
        assert_eq!(closed, Err(CloseError::Lost(lost.clone())));
        let waited = net.now() - silence;
        assert!(waited <= timeout + Duration::from_millis(1), "{waited:?}");
        // What had arrived is not lost with the connection.
        assert_eq!(*pair.ab.recv().await.unwrap().unwrap(), *b"arrived, too");
        assert_eq!(pair.ab.recv().await.unwrap_err(), RecvError::Lost(lost.clone()));
        assert_eq!(pair.ab.send_bytes(b"").await, Err(SendError::Lost(lost)));
        assert!(pair.a.pool_stats().is_whole());
    });
}

/// Catches a silence that is measured before all that has completed was taken in.
#[test]
fn a_process_that_was_paused_looks_at_what_has_arrived_before_it_gives_a_peer_up() {
    // Shorter than the timeout of five seconds; but the last keep-alive of the peer came at the first second.
    let faults = "at 1910ms a pause; at 6500ms a resume".parse().unwrap();
    Sim::new().faults(faults).run(async |net| {
        let device = net.open("a", DEVICE).unwrap();
        let a = Endpoint::builder(device).runtime(net.host("a").runtime()).build().unwrap();
        let b = endpoint(&net, "b", &options());
        let (busy, from_busy) = connect(&a, &b).await.unwrap();
        let (quiet, from_quiet) = connect(&a, &b).await.unwrap();
        sleep_until(&net, Duration::from_millis(1_900)).await;
        busy.send_bytes(b"before the pause").await.unwrap();
        quiet.send_bytes(b"before the pause").await.unwrap();
        // More than one batch of completions comes before those of the other connection.
        sleep_until(&net, Duration::from_millis(1_920)).await;
        for _ in 0..40 {
            from_busy.send_bytes(b"first").await.unwrap();
        }
        sleep_until(&net, Duration::from_secs(3)).await;
        from_quiet.send_bytes(b"behind").await.unwrap();
        assert_eq!(quiet.recv().await.unwrap().as_deref(), Some(&b"behind"[..]));
        assert!(net.now() - Time::ZERO >= Duration::from_millis(6_500), "the process was paused");
    });
}

#[test]
fn an_idle_connection_lives() {
    on_connection(Sim::new(), &options(), async |net, pair| {
        rdma_async::time::sleep(&*net.runtime(), Duration::from_hours(3)).await;
        pair.ab.send_bytes(b"still here").await.unwrap();
        assert_eq!(*pair.ba.recv().await.unwrap().unwrap(), *b"still here");
    });
}

/// Regression: each side sent keep-alives by its own interval, and the side with the shorter timeout lost the connection.
#[test]
fn an_idle_connection_lives_with_different_timeouts_at_its_ends() {
    let s = Duration::from_secs;
    let slow = options().keep_alive_interval(s(60)).peer_timeout(s(300));
    for (a, b) in [(options(), slow.clone()), (slow, options())] {
        Sim::new().run(async |net| {
            let (a, b) = (endpoint(&net, "a", &a), endpoint(&net, "b", &b));
            let (ab, ba) = connect(&a, &b).await.unwrap();
            rdma_async::time::sleep(&*net.runtime(), s(3600)).await;
            assert_eq!((ab.close_reason(), ba.close_reason()), (None, None));
            // The shorter timeout is that of both.
            ab.abort();
            let start = net.now();
            assert_eq!(ba.recv().await.unwrap_err(), RecvError::Lost(ConnectionError::PeerLost(s(5))));
            assert!(net.now() - start <= s(5));
        });
    }
}
