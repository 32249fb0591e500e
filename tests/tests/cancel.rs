//! Every public future, dropped after each possible number of polls
//!
//! Each test runs one operation again and again, dropping its future one poll later each time, until it is ready before.
//! Then no message may be missing, no memory, no place in a queue and no queue pair.
//!
//! Each test names the break of the code that it was seen to catch.

use std::time::Duration;

use futures::future::join;
use rdma_async::{Connection, Endpoint};
use rdma_core::FRAME;
use rdma_sim::{Net, Sim, SimDevice};
use rdma_tests::{DropAfter, Pair, begun, connect, connected, endpoints, on_connection, options, zeros};

/// Runs `scenario` with 0, 1, 2, … polls until it says that its future was ready
fn at_every_poll<F: Future<Output = bool>>(scenario: impl Fn(Net, usize) -> F) {
    for polls in 0..2000 {
        if Sim::new().seed(polls as u64).run(|net| scenario(net, polls)).value {
            assert!(polls > 1, "a future that is ready at once proves nothing");
            return;
        }
    }
    panic!("the future is never ready");
}

fn dropped<F: Future>(net: &Net, polls: usize, future: F) -> DropAfter<F> {
    DropAfter::new(net.runtime(), Duration::from_nanos(400), polls, future)
}

async fn rest(net: &Net) {
    rdma_async::time::sleep(&*net.runtime(), Duration::from_micros(500)).await;
}

/// Everything that was leased on either side is back, although the connection is still open
async fn assert_whole(net: &Net, pair: &Pair, window: usize) {
    rest(net).await;
    assert_eq!(pair.ab.stats().messages_in_flight, 0);
    for endpoint in [&pair.a, &pair.b] {
        let stats = endpoint.pool_stats();
        assert_eq!(stats.send.free_bytes, stats.send.total_bytes, "memory for sending is whole");
        // The window, and the places for messages of the protocol.
        let posted = (window + 1) * rdma_core::FRAME;
        assert_eq!(
            stats.receive.total_bytes - stats.receive.free_bytes,
            posted,
            "memory for receiving is whole"
        );
    }
}

async fn receive_all(connection: &Connection<SimDevice>) -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    while let Some(message) = connection.recv().await.unwrap() {
        all.push(message.to_vec());
    }
    all
}

const WINDOW: u32 = 128;

/// Catches a `Drop for Send` without `detach`.
fn a_dropped_send_of(len: usize) {
    at_every_poll(async |net, polls| {
        let pair = connected(&net, &options().recv_window(WINDOW)).await;
        pair.ab.send_bytes(b"before").await.unwrap();
        let mut lease = pair.ab.alloc(len).await.unwrap();
        lease.resize(len, 7);
        let sent = dropped(&net, polls, pair.ab.send(lease)).await;
        pair.ab.send_bytes(b"after").await.unwrap();

        let mut expected = vec![b"before".to_vec(), vec![7; len], b"after".to_vec()];
        if polls == 0 {
            // Never polled, never queued.
            expected.remove(1);
        }
        let mut received = Vec::new();
        for _ in &expected {
            received.push(pair.ba.recv().await.unwrap().unwrap().to_vec());
        }
        assert_eq!(received, expected);
        let is_ready = sent.map(|sent| drop(sent.unwrap())).is_some();
        assert_whole(&net, &pair, WINDOW as usize).await;
        pair.ab.close().await.unwrap();
        is_ready
    });
}

#[test]
fn a_dropped_send_of_an_eager_message_loses_nothing() {
    a_dropped_send_of(100);
}

#[test]
fn a_dropped_send_of_a_bulk_message_loses_nothing() {
    a_dropped_send_of(100_000);
}

/// Catches a `Drop for Send` without `detach`.
#[test]
fn a_dropped_send_bytes_loses_nothing() {
    at_every_poll(async |net, polls| {
        let pair = connected(&net, &options().recv_window(WINDOW)).await;
        let is_ready = dropped(&net, polls, pair.ab.send_bytes(&[7; 5000])).await.is_some();
        pair.ab.send_bytes(b"after").await.unwrap();
        let mut first = pair.ba.recv().await.unwrap().unwrap();
        if polls > 0 {
            assert_eq!(*first, [7; 5000]);
            first = pair.ba.recv().await.unwrap().unwrap();
        }
        assert_eq!(*first, *b"after");
        drop(first);
        assert_whole(&net, &pair, WINDOW as usize).await;
        is_ready
    });
}

/// Catches a `Drop for Send` without `leave_send`.
#[test]
fn a_send_that_waits_for_a_place_gives_it_up() {
    at_every_poll(async |net, polls| {
        let options = options().recv_window(WINDOW).max_in_flight_sends(1);
        let pair = connected(&net, &options).await;
        let (first, second, third) = (zeros(&pair.ab, 50_000), zeros(&pair.ab, 10), zeros(&pair.ab, 20));
        let first = pair.ab.send(first.await);
        let second = dropped(&net, polls, pair.ab.send(second.await));
        let third = pair.ab.send(third.await);
        let ((first, second), third) = join(join(first, second), third).await;
        drop((first.unwrap(), third.unwrap()));
        let is_ready = second.map(|sent| drop(sent.unwrap())).is_some();

        let (closed, received) = join(pair.ab.close(), receive_all(&pair.ba)).await;
        closed.unwrap();
        rest(&net).await;
        assert!(pair.a.pool_stats().is_whole() && pair.b.pool_stats().is_whole());
        let lens: Vec<_> = received.iter().map(Vec::len).collect();
        assert!(lens == [50_000, 10, 20] || (lens == [50_000, 20] && !is_ready), "{lens:?}");
        is_ready
    });
}

/// Catches a `Drop for Alloc` without `leave`.
#[test]
fn a_dropped_alloc_gives_its_turn_to_the_next() {
    at_every_poll(async |net, polls| {
        let options = options().send_memory(4 * rdma_core::FRAME);
        let pair = connected(&net, &options).await;
        let all = pair.ab.alloc(4 * rdma_core::FRAME).await.unwrap();
        let first = dropped(&net, polls, pair.ab.alloc(2 * rdma_core::FRAME));
        let second = pair.ab.alloc(3 * rdma_core::FRAME);
        let free = async {
            rdma_async::time::sleep(&*net.runtime(), Duration::from_micros(2)).await;
            drop(all);
        };
        let first = async { first.await.map(|lease| drop(lease.unwrap())).is_some() };
        let ((is_ready, second), ()) = join(join(first, second), free).await;
        drop(second.unwrap());
        assert_eq!(pair.a.pool_stats().send.free_bytes, 4 * rdma_core::FRAME);
        is_ready
    });
}

/// Catches a `Drop for Recv` without `leave_recv`.
#[test]
fn a_dropped_recv_loses_no_message() {
    at_every_poll(async |net, polls| {
        let pair = connected(&net, &options().recv_window(WINDOW)).await;
        let messages = [vec![1; 10], vec![2; 20_000], vec![3; 30]];
        let send = async {
            for message in &messages {
                pair.ab.send_bytes(message).await.unwrap();
            }
        };
        let receive = async {
            let first = dropped(&net, polls, pair.ba.recv()).await;
            let second = pair.ba.recv().await.unwrap().unwrap().to_vec();
            (first.map(|message| message.unwrap().unwrap().to_vec()), second)
        };
        let ((), (first, second)) = join(send, receive).await;
        let is_ready = first.is_some();
        let mut received: Vec<_> = first.into_iter().chain([second]).collect();
        while received.len() < messages.len() {
            received.push(pair.ba.recv().await.unwrap().unwrap().to_vec());
        }
        assert_eq!(received, messages);
        assert_whole(&net, &pair, WINDOW as usize).await;
        is_ready
    });
}

/// Catches a last handle that does not `abandon` its connection.
#[test]
fn a_dropped_close_goes_on() {
    at_every_poll(async |net, polls| {
        let pair = connected(&net, &options()).await;
        pair.ab.send_bytes(&[1; 9000]).await.unwrap();
        let queued = pair.ab.send(zeros(&pair.ab, 50_000).await);
        drop(dropped(&net, 1, queued).await);
        let is_ready = dropped(&net, polls, pair.ab.close()).await.map(Result::unwrap).is_some();
        let Pair { a, b, ab, ba } = pair;
        // Without a single poll, dropping the last handle closes.
        drop(ab);
        let lens: Vec<_> = receive_all(&ba).await.iter().map(Vec::len).collect();
        assert_eq!(lens, [9000, 50_000]);
        drop(ba);
        rest(&net).await;
        assert!(a.pool_stats().is_whole() && b.pool_stats().is_whole());
        is_ready
    });
}

/// Catches a `Drop for Close` without `leave_end`.
#[test]
fn a_dropped_close_leaves_the_end_to_the_next() {
    at_every_poll(async |net, polls| {
        let pair = connected(&net, &options()).await;
        let dropped = dropped(&net, polls, pair.ab.close());
        let (dropped, again) = join(dropped, pair.ab.close()).await;
        again.unwrap();
        dropped.map(Result::unwrap).is_some()
    });
}

/// Connects often enough that anything left behind by an earlier attempt would exhaust the device.
async fn assert_connects(a: &Endpoint<SimDevice>, b: &Endpoint<SimDevice>) {
    let mut connections = Vec::new();
    for _ in 0..5 {
        connections.push(connect(a, b).await.expect("nothing was left behind"));
    }
    for (ab, ba) in &connections {
        ab.send_bytes(b"hello").await.unwrap();
        assert_eq!(*ba.recv().await.unwrap().unwrap(), *b"hello");
    }
}

/// Catches a `Drop for Prepared` without `forget`, and an unconfirmed connection that is neither aborted nor abandoned.
fn a_dropped_connect(drop_accept: bool) {
    at_every_poll(async |net, polls| {
        let (a, b) = endpoints(&net, &options());
        let mut is_ready = false;
        // More often than a device has queue pairs, or its completion queue places.
        for _ in 0..12 {
            // Small enough that the handshake takes several polls.
            let (to_b, to_a) = tokio::io::duplex(16);
            let (connected, accepted) = if drop_accept {
                let (connected, accepted) = join(a.connect(to_b), dropped(&net, polls, b.accept(to_a))).await;
                (Some(connected), accepted)
            } else {
                let (connected, accepted) = join(dropped(&net, polls, a.connect(to_b)), b.accept(to_a)).await;
                (connected, Some(accepted))
            };
            is_ready = matches!((connected, accepted), (Some(Ok(_)), Some(Ok(_))));
            rdma_async::time::sleep(&*net.runtime(), Duration::from_secs(30)).await;
        }
        assert!(a.pool_stats().is_whole() && b.pool_stats().is_whole());
        assert_connects(&a, &b).await;
        is_ready
    });
}

#[test]
fn a_dropped_connect_leaves_nothing_behind() {
    a_dropped_connect(false);
}

#[test]
fn a_dropped_accept_leaves_nothing_behind() {
    a_dropped_connect(true);
}

#[test]
fn a_forgotten_future_costs_its_place_and_its_lease_and_nothing_else() {
    on_connection(Sim::new(), &options().recv_window(WINDOW), async |_, pair| {
        std::mem::forget(begun(pair.ab.send(zeros(&pair.ab, 10).await)).await);
        assert_eq!(pair.ba.recv().await.unwrap().unwrap().len(), 10);
        pair.ab.send_bytes(b"next").await.unwrap();
        assert_eq!(*pair.ba.recv().await.unwrap().unwrap(), *b"next");
        assert_eq!(pair.ab.stats().messages_in_flight, 1, "the outcome of the forgotten one");
        let memory = pair.a.pool_stats().send;
        assert_eq!(memory.total_bytes - memory.free_bytes, FRAME);
        pair.ab.close().await.unwrap();
    });
}
