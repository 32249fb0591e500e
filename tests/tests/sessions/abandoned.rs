//! Connections whose last handle the application has dropped

use std::time::Duration;

use rdma_async::{CloseError, Connection, ConnectionError};
use rdma_sim::{Sim, SimDevice};
use rdma_tests::{begun, on_connection, options, zeros};

/// Queues ten messages, of which the memory of the peer holds a few, and waits for none
async fn queue_more_than_fits(connection: &Connection<SimDevice>) {
    for _ in 0..10 {
        drop(begun(connection.send(zeros(connection, 1 << 20).await)).await);
    }
}

/// Catches a last handle that does not `abandon` its connection.
#[test]
fn dropping_the_last_handle_sends_what_is_queued() {
    on_connection(Sim::new(), &options(), async |_, pair| {
        for len in [10, 50_000] {
            drop(begun(pair.ab.send(zeros(&pair.ab, len).await)).await);
        }
        drop((pair.ab, pair.a));
        assert_eq!(pair.ba.recv().await.unwrap().unwrap().len(), 10);
        assert_eq!(pair.ba.recv().await.unwrap().unwrap().len(), 50_000);
        assert!(pair.ba.recv().await.unwrap().is_none());
    });
}

/// Regression: a connection without a handle was cut off after the timeout, although it was still sending. Catches a deadline that
/// does not move when a send completes.
#[test]
fn dropping_the_last_handle_waits_for_a_slow_reader() {
    on_connection(Sim::new(), &options().max_connections(1).receive_memory(6 << 20), async |net, pair| {
        queue_more_than_fits(&pair.ab).await;
        drop(pair.ab);
        for _ in 0..10 {
            rdma_async::time::sleep(&*net.runtime(), Duration::from_secs(4)).await;
            assert_eq!(pair.ba.recv().await.unwrap().unwrap().len(), 1 << 20);
        }
        assert!(pair.ba.recv().await.unwrap().is_none());
        rdma_async::time::sleep(&*net.runtime(), Duration::from_secs(1)).await;
        assert!(pair.a.pool_stats().is_whole());
    });
}

/// A peer that lives and reads nothing cannot hold the memory of a connection without a handle for ever. Catches a deadline that is
/// noticed only with the next keep-alive.
#[test]
fn dropping_the_last_handle_gives_up_a_peer_that_takes_nothing() {
    let options = options().max_connections(1).receive_memory(6 << 20);
    on_connection(Sim::new(), &options.keep_alive_interval(Duration::from_secs(2)), async |net, pair| {
        queue_more_than_fits(&pair.ab).await;
        let (closed, start) = (pair.ab.closed(), net.now());
        drop(pair.ab);
        let abandoned = ConnectionError::Abandoned(Duration::from_secs(5));
        assert_eq!(closed.await, Err(CloseError::Lost(abandoned)));
        // A few messages have left before.
        assert!(net.now() - start < Duration::from_millis(5_100));
        assert!(pair.a.pool_stats().is_whole());
        rdma_async::time::sleep(&*net.runtime(), Duration::from_secs(6)).await;
        while pair.ba.recv().await.is_ok_and(|message| message.is_some()) {}
    });
}

/// Regression: small messages behind a long one that was under way kept their receives, and the peer its credits.
#[test]
fn messages_to_a_dropped_connection_do_not_hold_the_peer_up() {
    on_connection(Sim::new(), &options().max_connections(1).receive_memory(6 << 20), async |_, pair| {
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
    on_connection(Sim::new(), &options().max_connections(1).receive_memory(6 << 20), async |net, pair| {
        queue_more_than_fits(&pair.ab).await;
        let ba = &pair.ba;
        let all = async {
            for _ in 0..300 {
                ba.send_bytes(b"unread").await.unwrap();
            }
        };
        let drop_later = async {
            rdma_async::time::sleep(&*net.runtime(), Duration::from_millis(10)).await;
            drop(pair.ab);
        };
        futures::future::join(all, drop_later).await;
        let posted = pair.a.pool_stats().receive.free_bytes;
        ba.send_bytes(&vec![1; 2 << 20]).await.unwrap();
        rdma_async::time::sleep(&*net.runtime(), Duration::from_millis(10)).await;
        assert_eq!(pair.a.pool_stats().receive.free_bytes, posted);
    });
}

/// Catches a last handle that leaves the messages that have come, and their receives, where they are: the peer would wait for
/// credits until it is given up.
#[test]
fn dropping_the_last_handle_frees_the_receives_of_unread_messages() {
    on_connection(Sim::new(), &options().max_connections(1).receive_memory(6 << 20), async |net, pair| {
        let ba = &pair.ba;
        let send_all = async {
            for _ in 0..300 {
                ba.send_bytes(b"unread").await.unwrap();
            }
            net.now()
        };
        let drop_later = async {
            // The window is full by then, and nothing is under way.
            rdma_async::time::sleep(&*net.runtime(), Duration::from_millis(10)).await;
            queue_more_than_fits(&pair.ab).await;
            drop(pair.ab);
            net.now()
        };
        let (sent, dropped) = futures::future::join(send_all, drop_later).await;
        assert!(dropped < sent && sent - dropped < Duration::from_millis(1));
    });
}
