//! Every public future, dropped after each possible number of polls
//!
//! Each test runs one operation again and again, dropping its future one poll later each time, until it is ready before.
//! Then no message may be missing, no memory, no place in a queue and no queue pair.

use std::time::Duration;

use futures::future::join;
use rdma_async::time::timeout;
use rdma_async::{Node, SendError, Session};
use rdma_core::FRAME;
use rdma_core::session::{Hello, MAX_UNREPORTED};
use rdma_sim::{Net, Sim, SimDevice};
use rdma_tests::{DropAfter, Pair, begun, connect, connected, nodes, on_session, options, zeros};

/// Above what the eager lane carries: the lease is needed until the peer has asked for the bytes.
const LONG: usize = 100_000;

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
    net.sleep(Duration::from_micros(500)).await;
}

/// Everything that was leased on either side is back, although the session is still open
async fn assert_whole(net: &Net, pair: &Pair) {
    rest(net).await;
    for node in [&pair.a, &pair.b] {
        let stats = node.pool_stats();
        assert_eq!(stats.send.free_bytes, stats.send.total_bytes, "memory for sending is whole");
        // The window, and the places for trailers.
        let posted = (MAX_UNREPORTED as usize + 1) * FRAME;
        let held = stats.receive.total_bytes - stats.receive.free_bytes;
        assert_eq!(held, posted, "memory for receiving is whole");
    }
}

async fn receive_all(session: &Session<SimDevice>) -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    while let Some(message) = session.recv().await.unwrap() {
        all.push(message.to_vec());
    }
    all
}

/// Sends a message of `len` bytes between two others, and drops its future
fn a_dropped_send_of(len: usize, awaits_delivery: bool) {
    at_every_poll(async |net, polls| {
        let pair = connected(&net, &options()).await;
        pair.ab.send_bytes(b"before").await.unwrap();
        let mut lease = pair.ab.alloc(len).await.unwrap();
        lease.resize(len, 7);
        let send = pair.ab.send(lease);
        let send = if awaits_delivery { send.delivered() } else { send };
        let sent = dropped(&net, polls, send).await;
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
        assert_whole(&net, &pair).await;
        pair.ab.close().await.unwrap();
        is_ready
    });
}

/// Catches a `Drop for Send` without `detach`.
#[test]
fn a_dropped_send_of_an_eager_message_loses_nothing() {
    a_dropped_send_of(100, true);
}

/// Catches a `Drop for Send` without `detach`.
#[test]
fn a_dropped_send_of_a_bulk_message_loses_nothing() {
    a_dropped_send_of(LONG, false);
    a_dropped_send_of(LONG, true);
}

/// Catches a `Drop for Send` without `detach`.
#[test]
fn a_dropped_send_bytes_loses_nothing() {
    at_every_poll(async |net, polls| {
        let pair = connected(&net, &options()).await;
        let is_ready = dropped(&net, polls, pair.ab.send_bytes(&[7; LONG])).await.is_some();
        pair.ab.send_bytes(b"after").await.unwrap();
        let mut first = pair.ba.recv().await.unwrap().unwrap();
        if polls > 0 {
            assert_eq!(*first, [7; LONG]);
            first = pair.ba.recv().await.unwrap().unwrap();
        }
        assert_eq!(*first, *b"after");
        drop(first);
        assert_whole(&net, &pair).await;
        is_ready
    });
}

/// Catches a `Drop for Send` that does not leave the line for places.
#[test]
fn a_send_that_waits_for_a_place_gives_it_up() {
    at_every_poll(async |net, polls| {
        let pair = connected(&net, &options().max_in_flight_sends(1)).await;
        let (first, second, third) = (zeros(&pair.ab, LONG), zeros(&pair.ab, 10), zeros(&pair.ab, 20));
        let first = pair.ab.send(first.await);
        let second = dropped(&net, polls, pair.ab.send(second.await));
        let third = pair.ab.send(third.await);
        let ((first, second), third) = join(join(first, second), third).await;
        drop((first.unwrap(), third.unwrap()));
        let is_ready = second.map(|sent| drop(sent.unwrap())).is_some();

        let (closed, received) = join(pair.ab.close(), receive_all(&pair.ba)).await;
        closed.unwrap();
        assert_whole(&net, &pair).await;
        let lens: Vec<_> = received.iter().map(Vec::len).collect();
        assert!(lens == [LONG, 10, 20] || (lens == [LONG, 20] && !is_ready), "{lens:?}");
        is_ready
    });
}

/// Catches a `Drop for Alloc` without `leave`.
#[test]
fn a_dropped_alloc_gives_its_turn_to_the_next() {
    at_every_poll(async |net, polls| {
        let pair = connected(&net, &options().send_memory(4 * FRAME)).await;
        let all = pair.ab.alloc(4 * FRAME).await.unwrap();
        let first = dropped(&net, polls, pair.ab.alloc(2 * FRAME));
        let second = pair.ab.alloc(3 * FRAME);
        let free = async {
            net.sleep(Duration::from_micros(2)).await;
            drop(all);
        };
        let first = async { first.await.map(|lease| drop(lease.unwrap())).is_some() };
        let ((is_ready, second), ()) = join(join(first, second), free).await;
        drop(second.unwrap());
        assert_eq!(pair.a.pool_stats().send.free_bytes, 4 * FRAME);
        is_ready
    });
}

/// Catches a `Drop for Recv` without `leave`.
#[test]
fn a_dropped_recv_loses_no_message() {
    at_every_poll(async |net, polls| {
        let pair = connected(&net, &options()).await;
        let messages = [vec![1; 10], vec![2; LONG], vec![3; 30]];
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
        assert_whole(&net, &pair).await;
        is_ready
    });
}

/// Catches an `accept` that loses the session which it was about to return.
#[test]
fn a_dropped_accept_loses_no_session() {
    at_every_poll(async |net, polls| {
        let pair = connected(&net, &options()).await;
        let open = async {
            net.sleep(Duration::from_micros(1)).await;
            let opened = [pair.ab.open().unwrap(), pair.ab.open().unwrap()];
            opened.map(|session| session.id())
        };
        let accept = async {
            let first = dropped(&net, polls, pair.b.accept()).await;
            (first.map(Option::unwrap), pair.b.accept().await.unwrap())
        };
        let (opened, (first, second)) = join(open, accept).await;
        let is_ready = first.is_some();
        let mut accepted: Vec<_> = first.into_iter().chain([second]).map(|session| session.id()).collect();
        while accepted.len() < opened.len() {
            accepted.push(pair.b.accept().await.unwrap().id());
        }
        assert_eq!(accepted, opened);
        is_ready
    });
}

/// Catches a last handle that does not `abandon` its session.
#[test]
fn a_dropped_close_goes_on() {
    at_every_poll(async |net, polls| {
        let pair = connected(&net, &options()).await;
        pair.ab.send_bytes(&[1; 9000]).await.unwrap();
        drop(begun(pair.ab.send(zeros(&pair.ab, LONG).await)).await);
        let is_ready = dropped(&net, polls, pair.ab.close()).await.map(Result::unwrap).is_some();
        let Pair { a, b, ab, ba } = pair;
        // Without a single poll, dropping the last handle closes.
        drop(ab);
        let lens: Vec<_> = receive_all(&ba).await.iter().map(Vec::len).collect();
        assert_eq!(lens, [9000, LONG]);
        drop(ba);
        net.sleep(Duration::from_millis(10)).await;
        assert!(a.pool_stats().is_whole() && b.pool_stats().is_whole());
        is_ready
    });
}

/// Catches a `Drop for Closed` that does not leave the line.
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

/// Connects often enough that anything left behind by an earlier attempt would exhaust the node
async fn assert_connects(a: &Node<SimDevice>, b: &Node<SimDevice>) {
    let mut sessions = Vec::new();
    for _ in 0..5 {
        sessions.push(connect(a, b).await.expect("nothing was left behind"));
    }
    for (ab, ba) in &sessions {
        ab.send_bytes(b"hello").await.unwrap();
        assert_eq!(*ba.recv().await.unwrap().unwrap(), *b"hello");
    }
}

/// Gives up attempts to connect, and looks for queue pairs, memory and peers that they leave behind
fn a_dropped_attempt(drops_serve: bool) {
    at_every_poll(async |net, polls| {
        let (a, b) = nodes(&net, &options());
        let mut is_ready = false;
        // More often than a device has queue pairs, or its completion queue places.
        for _ in 0..12 {
            // Small enough that each message of the handshake takes a poll.
            let (to_b, to_a) = tokio::io::duplex(Hello::LEN);
            let (connect, serve) = (a.connect(to_b), b.serve(to_a));
            let (connected, served) = if drops_serve {
                let (connected, served) = join(connect, dropped(&net, polls, serve)).await;
                (Some(connected), served)
            } else {
                let (connected, served) = join(dropped(&net, polls, connect), serve).await;
                (connected, Some(served))
            };
            is_ready = matches!((connected, served), (Some(Ok(_)), Some(Ok(()))));
            while let Some(accepted) = timeout(&*net.runtime(), Duration::from_secs(1), b.accept()).await {
                drop(accepted.unwrap());
            }
            net.sleep(Duration::from_secs(10)).await;
        }
        assert!(a.pool_stats().is_whole() && b.pool_stats().is_whole());
        assert_connects(&a, &b).await;
        is_ready
    });
}

/// Catches a `Drop for Control` that does not end the peering.
#[test]
fn a_dropped_connect_leaves_nothing_behind() {
    a_dropped_attempt(false);
}

/// Catches a `Drop for Control` that does not end the peering.
#[test]
fn a_dropped_serve_leaves_nothing_behind() {
    a_dropped_attempt(true);
}

/// Catches a completion that gives the place of a message to another one before a future has taken the outcome.
#[test]
fn a_forgotten_future_costs_its_place_and_its_lease_and_nothing_else() {
    on_session(Sim::new(), &options().max_in_flight_sends(2), async |net, pair| {
        std::mem::forget(begun(pair.ab.send(zeros(&pair.ab, 10).await).delivered()).await);
        assert_eq!(pair.ba.recv().await.unwrap().unwrap().len(), 10);
        pair.ab.send_bytes(b"next").await.unwrap();
        assert_eq!(*pair.ba.recv().await.unwrap().unwrap(), *b"next");
        rest(&net).await;
        let memory = pair.a.pool_stats().send;
        assert_eq!(memory.total_bytes - memory.free_bytes, FRAME);
        // The outcome of the forgotten one has the other place.
        pair.ab.try_send(zeros(&pair.ab, LONG).await).unwrap();
        let refused = pair.ab.try_send(zeros(&pair.ab, 1).await).unwrap_err();
        assert_eq!(refused.error, SendError::WouldBlock);
        drop(refused);
        assert_eq!(pair.ba.recv().await.unwrap().unwrap().len(), LONG);
        pair.ab.close().await.unwrap();
    });
}
