//! Sessions whose last handle the application has dropped

use std::time::Duration;

use rdma_async::{CloseError, NodeOptions, RecvError, Session, SessionError};
use rdma_sim::{Sim, SimDevice};
use rdma_tests::{begun, on_session, options, zeros};

/// Queues ten messages, of which the memory of the peer holds a few, and waits for none
async fn queue_more_than_fits(session: &Session<SimDevice>) {
    for _ in 0..10 {
        session.try_send(zeros(session, 1 << 20).await).unwrap();
    }
}

/// Memory for a few messages of [`queue_more_than_fits`]
fn little() -> NodeOptions {
    options().max_peers(1).receive_memory(6 << 20).peer_timeout(Duration::from_secs(5))
}

/// Catches a last handle that does not `abandon` its session.
#[test]
fn dropping_the_last_handle_sends_what_is_queued() {
    on_session(Sim::new(), &options(), async |_, pair| {
        for len in [10, 100_000] {
            pair.ab.try_send(zeros(&pair.ab, len).await).unwrap();
        }
        drop((pair.ab, pair.a));
        assert_eq!(pair.ba.recv().await.unwrap().unwrap().len(), 10);
        assert_eq!(pair.ba.recv().await.unwrap().unwrap().len(), 100_000);
        assert!(pair.ba.recv().await.unwrap().is_none());
    });
}

/// Catches a deadline that does not move when the peer takes a message.
#[test]
fn dropping_the_last_handle_waits_for_a_slow_reader() {
    on_session(Sim::new(), &little(), async |net, pair| {
        queue_more_than_fits(&pair.ab).await;
        drop(pair.ab);
        for _ in 0..10 {
            net.sleep(Duration::from_secs(4)).await;
            assert_eq!(pair.ba.recv().await.unwrap().unwrap().len(), 1 << 20);
        }
        assert!(pair.ba.recv().await.unwrap().is_none());
        net.sleep(Duration::from_secs(1)).await;
        assert!(pair.a.pool_stats().is_whole());
    });
}

/// A peer that lives and reads nothing cannot hold the memory of a session without a handle for ever. Catches a deadline that is
/// noticed only with the next packet.
#[test]
fn dropping_the_last_handle_gives_up_a_peer_that_takes_nothing() {
    on_session(Sim::new(), &little(), async |net, pair| {
        queue_more_than_fits(&pair.ab).await;
        let (closed, start) = (pair.ab.closed(), net.now());
        drop(pair.ab);
        let abandoned = SessionError::Abandoned(Duration::from_secs(5));
        assert_eq!(closed.await, Err(CloseError::Lost(abandoned)));
        // A few messages have left before.
        assert!(net.now() - start < Duration::from_millis(5_100));
        net.sleep(Duration::from_millis(20)).await;
        assert!(pair.a.pool_stats().is_whole());
        let error = loop {
            if let Err(error) = pair.ba.recv().await {
                break error;
            }
        };
        assert_eq!(error, RecvError::Lost(SessionError::Reset(u64::MAX)));
    });
}

/// Catches messages for a session without a handle that keep the room of their session.
#[test]
fn messages_to_a_dropped_session_do_not_hold_the_peer_up() {
    on_session(Sim::new(), &little(), async |_, pair| {
        queue_more_than_fits(&pair.ab).await;
        let _long = begun(pair.ba.send(zeros(&pair.ba, 2 << 20).await)).await;
        for _ in 0..30 {
            pair.ba.send_bytes(b"behind").await.unwrap();
        }
        // What it still has to send keeps it from closing.
        drop(pair.ab);
        for _ in 0..300 {
            pair.ba.send_bytes(b"later").await.unwrap();
        }
    });
}

/// Catches a long message that arrives after the last handle was dropped, and keeps its memory.
#[test]
fn messages_that_will_not_be_read_keep_no_memory() {
    on_session(Sim::new(), &little(), async |net, pair| {
        queue_more_than_fits(&pair.ab).await;
        let ba = &pair.ba;
        let all = async {
            for _ in 0..300 {
                ba.send_bytes(b"unread").await.unwrap();
            }
        };
        let drop_later = async {
            net.sleep(Duration::from_millis(10)).await;
            drop(pair.ab);
        };
        futures::future::join(all, drop_later).await;
        let posted = pair.a.pool_stats().receive.free_bytes;
        ba.send_bytes(&vec![1; 2 << 20]).await.unwrap();
        net.sleep(Duration::from_millis(10)).await;
        assert_eq!(pair.a.pool_stats().receive.free_bytes, posted);
    });
}

/// Catches a last handle that leaves the messages that have come where they are: the peer would wait for room until the session is
/// given up.
#[test]
fn dropping_the_last_handle_frees_the_room_of_unread_messages() {
    on_session(Sim::new(), &little(), async |net, pair| {
        let ba = &pair.ba;
        let send_all = async {
            for _ in 0..300 {
                ba.send_bytes(b"unread").await.unwrap();
            }
            net.now()
        };
        let drop_later = async {
            // The share of the session is full by then, and nothing is under way.
            net.sleep(Duration::from_millis(10)).await;
            queue_more_than_fits(&pair.ab).await;
            drop(pair.ab);
            net.now()
        };
        let (sent, dropped) = futures::future::join(send_all, drop_later).await;
        assert!(dropped < sent && sent - dropped < Duration::from_millis(1));
    });
}
