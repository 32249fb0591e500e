//! How a connection gives its memory back: at once, but not before the device has stopped, and never if that is not proved

use std::pin::Pin;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::future::{Either, join, select};
use rdma_async::{
    CloseError, ConnectError, Connection, ConnectionError, Endpoint, EndpointOptions, PoolStats, RecvError,
    SendError, ZoneStats, future,
};
use rdma_core::protocol::Hello;
use rdma_core::{Cause, Error, FRAME, Teardown, Verb};
use rdma_sim::{Net, Sim, SimDevice};
use rdma_tests::{
    DEVICE, Hooked, Hooks, begun, connect, connected, endpoint, endpoint_on, endpoints, on_connection, zeros,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};

const WINDOW: u32 = 64;

fn options() -> EndpointOptions {
    EndpointOptions::new().recv_window(WINDOW)
}

/// A simulated device; the test chooses what its queue pairs return from `destroy`
type Scripted = Hooked<Script>;

struct Script {
    /// The answers of the eager queue pair and of the bulk one.
    answers: [Teardown; 2],
    /// Which of them refuses receives: the first bit is that of the eager one.
    refuses: AtomicU32,
    /// When a queue pair is destroyed, the device records the memory of this endpoint.
    watched: Mutex<Option<Endpoint<Scripted>>>,
    /// What was free then.
    seen: Mutex<Vec<PoolStats>>,
}

impl Hooks for Script {
    fn post_recv(&self, qp: u32) -> Result<(), Error> {
        if self.refuses.load(Ordering::Relaxed) >> (qp % 2) & 1 == 1 { Err(REFUSED) } else { Ok(()) }
    }

    fn destroy(&self, qp: u32) -> Option<Teardown> {
        let watched = self.watched.lock().unwrap();
        self.seen.lock().unwrap().extend(watched.as_ref().map(Endpoint::pool_stats));
        Some(self.answers[qp as usize % 2])
    }
}

/// A connection of a scripted device with requests of all kinds in flight
struct Busy {
    script: Arc<Script>,
    a: Endpoint<Scripted>,
    ab: Connection<Scripted>,
    /// A message of five frames; another, of one frame, is in flight without a future.
    sent: Pin<Box<future::Send<Scripted>>>,
    /// The peer, and a message of 25 frames from there, for which a receive is posted; a message behind it has arrived.
    _peer: (Endpoint<SimDevice>, Connection<SimDevice>, Pin<Box<future::Send<SimDevice>>>),
}

const REFUSED: Error = Error::new(Verb::PostRecv, Cause::DeviceGone);

fn scripted(net: &Net, answers: [Teardown; 2]) -> (Arc<Script>, Endpoint<Scripted>, Endpoint<SimDevice>) {
    let (refuses, watched, seen) = Default::default();
    let script = Arc::new(Script { answers, refuses, watched, seen });
    let device = Hooked::new(net.open("a", DEVICE).unwrap(), &script);
    (script, endpoint_on(net, device, &options()), endpoint(net, "b", &options()))
}

async fn busy(net: &Net, answers: [Teardown; 2]) -> Busy {
    let (script, a, b) = scripted(net, answers);
    let (ab, ba) = connect(&a, &b).await.unwrap();
    let idle = a.pool_stats();
    let from_peer = begun(ba.send(zeros(&ba, 25 * FRAME).await)).await;
    ba.send_bytes(b"behind").await.unwrap();
    while a.pool_stats() == idle || ab.stats().messages_received == 0 {
        rdma_async::time::sleep(&*net.runtime(), Duration::from_nanos(100)).await;
    }
    let sent = begun(ab.send(zeros(&ab, 5 * FRAME).await)).await;
    drop(begun(ab.send(zeros(&ab, 10).await)).await);
    assert_eq!([out(a.pool_stats().send), out(a.pool_stats().receive)], [6, WINDOW as usize + 1 + 25]);
    Busy { script, a, ab, sent, _peer: (b, ba, from_peer) }
}

/// The frames of a zone that are not free
fn out(zone: ZoneStats) -> usize {
    (zone.total_bytes - zone.free_bytes) / FRAME
}

/// Catches sends, eager receives or bulk receives that are given back before their queue pair is destroyed.
#[test]
fn no_memory_comes_back_before_the_device_has_stopped() {
    Sim::new().run(async |net| {
        let busy = busy(&net, [Teardown::Quiesced; 2]).await;
        let before = busy.a.pool_stats();
        *busy.script.watched.lock().unwrap() = Some(busy.a.clone());
        busy.ab.abort();
        *busy.script.watched.lock().unwrap() = None;
        assert_eq!(*busy.script.seen.lock().unwrap(), [before; 2]);
        drop(busy.sent.await);
        assert!(busy.a.pool_stats().is_whole());
    });
}

/// Catches memory that a device may still touch and that is leased again: receives, sends with and without a future, and messages
/// of the protocol; one queue pair that answers for both; and memory that stays out although the device has stopped, as that of
/// messages behind one that is missing. Catches a task that is not woken when its message stays out.
#[test]
fn memory_of_a_queue_pair_that_may_go_on_stays_out() {
    use Teardown::{Quiesced, Unknown};
    for answers in [[Quiesced, Quiesced], [Quiesced, Unknown], [Unknown, Quiesced], [Unknown, Unknown]] {
        Sim::new().run(async |net| {
            let busy = busy(&net, answers).await;
            let [eager, bulk] = answers.map(|answer| usize::from(answer == Unknown));
            let start = net.now();
            let (sent, ()) = join(busy.sent, async { busy.ab.abort() }).await;
            assert_eq!(net.now(), start, "the task is woken by the end");
            let unsent = sent.unwrap_err();
            assert_eq!(unsent.error, SendError::Lost(ConnectionError::Aborted));
            assert_eq!(unsent.lease.is_none(), eager | bulk == 1, "{answers:?}");
            drop(unsent);
            let stats = busy.a.pool_stats();
            // The message in the inbox is not posted; the messages of the protocol have a frame.
            let receives = eager * WINDOW as usize + bulk * 25;
            assert_eq!([out(stats.send), out(stats.receive)], [(eager | bulk) * 6, receives], "{answers:?}");
            assert_eq!(busy.ab.stats().messages_in_flight, 0);
        });
    }
}

/// Passes the greetings of two sides on, and nothing behind them: each side is ready, and does not know that the other is
async fn pass_greetings(net: &Net, [from_a, from_b]: [&mut DuplexStream; 2]) {
    let mut hello = [0; Hello::LEN];
    from_a.read_exact(&mut hello).await.unwrap();
    from_b.write_all(&hello).await.unwrap();
    from_b.read_exact(&mut hello).await.unwrap();
    from_a.write_all(&hello).await.unwrap();
    rdma_async::time::sleep(&*net.runtime(), Duration::from_millis(1)).await;
}

/// Catches a connection that its peer has not confirmed and that is abandoned instead of aborted, and one that the reactor keeps.
#[test]
fn an_attempt_that_is_given_up_after_the_greetings_leaves_nothing_for_a_moment() {
    Sim::new().run(async |net| {
        let (a, b) = endpoints(&net, &options());
        let ((to_b, mut from_a), (to_a, mut from_b)) = (duplex(256), duplex(256));
        let greetings = Box::pin(pass_greetings(&net, [&mut from_a, &mut from_b]));
        let attempts = Box::pin(join(a.connect(to_b), b.accept(to_a)));
        let Either::Left(((), attempts)) = select(greetings, attempts).await else {
            panic!("the sides are not ready")
        };
        assert!(!a.pool_stats().is_whole() && !b.pool_stats().is_whole(), "receives are posted");
        drop(attempts);
        assert!(a.pool_stats().is_whole() && b.pool_stats().is_whole());
        let start = net.now();
        join(a.wait_idle(), b.wait_idle()).await;
        assert_eq!(net.now(), start);
    });
}

/// Catches an attempt that succeeds although its connection was lost before the peer said that it is ready.
#[test]
fn an_attempt_whose_connection_is_lost_meanwhile_fails_for_that_reason() {
    Sim::new().run(async |net| {
        let (a, b) = endpoints(&net, &options().connect_timeout(Duration::from_secs(30)));
        let ((to_b, mut from_a), (to_a, mut from_b)) = (duplex(256), duplex(256));
        let late = async {
            pass_greetings(&net, [&mut from_a, &mut from_b]).await;
            let mut ready = [0];
            from_b.read_exact(&mut ready).await.unwrap();
            net.inject("at 0s b kill".parse().unwrap());
            rdma_async::time::sleep(&*net.runtime(), Duration::from_secs(6)).await;
            from_a.write_all(&ready).await.unwrap();
        };
        let accept = Box::pin(b.accept(to_a));
        let (Either::Left((connected, _)), ()) = join(select(Box::pin(a.connect(to_b)), accept), late).await
        else {
            panic!("the attempt of a process that is dead has ended first")
        };
        let lost = ConnectionError::PeerLost(Duration::from_secs(5));
        assert_eq!(connected.unwrap_err(), ConnectError::Lost(lost));
        assert!(a.pool_stats().is_whole());
    });
}

/// Catches a `close` that the reactor learns of only by its timer.
#[test]
fn a_closed_endpoint_closes_idle_connections_at_once() {
    on_connection(Sim::new(), &options(), async |net, pair| {
        rdma_async::time::sleep(&*net.runtime(), Duration::from_millis(500)).await;
        let start = net.now();
        pair.a.close();
        assert_eq!(pair.ab.closed().await, Ok(()));
        assert!(net.now() - start < Duration::from_millis(1));
    });
}

/// Catches a reactor that never ends, one that ends before its last connection, and one that is not woken when its endpoint is
/// dropped.
#[test]
fn a_device_is_closed_with_its_endpoint_and_connections() {
    Sim::new().run(async |net| {
        let count = || {
            let devices: Vec<_> = std::iter::from_fn(|| net.open("a", DEVICE).ok()).collect();
            devices.len()
        };
        let all = count();
        let rest = async || rdma_async::time::sleep(&*net.runtime(), Duration::from_micros(100)).await;
        let unused = endpoint(&net, "a", &options());
        rest().await;
        drop(unused);
        rest().await;
        assert_eq!(count(), all, "an endpoint that had no connection");
        let pair = connected(&net, &options()).await;
        pair.ab.close().await.unwrap();
        drop(pair);
        rest().await;
        assert_eq!(count(), all, "an endpoint whose connection was closed before");
        let pair = connected(&net, &options()).await;
        drop(pair.a);
        rest().await;
        pair.ab.send_bytes(b"still here").await.unwrap();
        assert_eq!(*pair.ba.recv().await.unwrap().unwrap(), *b"still here");
        drop(pair.ab);
        rest().await;
        assert_eq!(count(), all, "a connection that outlived its endpoint");
    });
}

/// Catches a connection that ends while it waits for memory, and keeps its place in line.
#[test]
fn a_connection_that_waits_for_memory_leaves_the_line_when_it_ends() {
    const LEN: usize = 1 << 20;
    Sim::new().run(async |net| {
        let (a, b) = endpoints(&net, &options().max_connections(2).receive_memory(6 << 20));
        let (first, second) = (connect(&a, &b).await.unwrap(), connect(&a, &b).await.unwrap());
        let rest = async || rdma_async::time::sleep(&*net.runtime(), Duration::from_millis(10)).await;
        // The first takes what there is, the second waits for more, and behind it the first again.
        let mut sent = 0;
        while b.pool_stats().receive.free_bytes > 2 * LEN {
            first.0.try_send(zeros(&first.0, LEN).await).unwrap();
            sent += 1;
            rest().await;
        }
        for connection in [&second.0, &second.0, &first.0, &first.0] {
            connection.try_send(zeros(connection, LEN).await).unwrap();
            rest().await;
        }
        second.1.abort();
        let received = async {
            for _ in 0..sent + 2 {
                assert_eq!(first.1.recv().await.unwrap().unwrap().len(), LEN);
            }
        };
        let received = rdma_async::time::timeout(&*net.runtime(), Duration::from_secs(60), received).await;
        assert_eq!(received, Some(()), "memory that is free reaches the next in line");
    });
}

/// Catches an `abort` that replaces the reason of a connection that is over.
#[test]
fn the_first_reason_stays_the_reason() {
    on_connection(Sim::new(), &options(), async |_, pair| {
        pair.ba.abort();
        let lost = Err(CloseError::Lost(ConnectionError::PeerLost(Duration::from_secs(5))));
        assert_eq!(pair.ab.closed().await, lost);
        pair.ab.abort();
        assert_eq!(pair.ab.close_reason(), Some(lost));
        let error = RecvError::Lost(ConnectionError::PeerLost(Duration::from_secs(5)));
        assert_eq!(pair.ab.recv().await.unwrap_err(), error);
    });
}

/// Catches an attempt to connect that fails and keeps the memory of its refused receive, or its place among the connections.
#[test]
fn a_refused_receive_ends_the_connection_and_loses_no_memory() {
    Sim::new().run(async |net| {
        let (script, a, b) = scripted(&net, [Teardown::Quiesced; 2]);
        let lost = || ConnectionError::Device(REFUSED);
        script.refuses.store(1, Ordering::Relaxed);
        assert_eq!(connect(&a, &b).await.unwrap_err(), ConnectError::Lost(lost()));
        assert!(a.pool_stats().is_whole());
        a.wait_idle().await;
        for (refuses, len) in [(1, 10), (2, 20_000)] {
            script.refuses.store(0, Ordering::Relaxed);
            let (ab, ba) = connect(&a, &b).await.unwrap();
            ba.send_bytes(b"first").await.unwrap();
            let first = ab.recv().await.unwrap().unwrap();
            script.refuses.store(refuses, Ordering::Relaxed);
            drop(first);
            // The bulk queue pair is asked when a long message is announced.
            drop(join(ba.send_bytes(&vec![1; len]), ab.closed()).await);
            assert_eq!(ab.close_reason(), Some(Err(CloseError::Lost(lost()))));
            assert!(a.pool_stats().is_whole(), "{len}");
        }
    });
}

/// Catches a task that waits for a place when the connection ends, while an outcome that is not collected keeps the place.
#[test]
fn a_send_that_waits_for_a_place_fails_when_the_connection_ends() {
    on_connection(Sim::new(), &options().max_in_flight_sends(1), async |_, pair| {
        let first = begun(pair.ab.send(zeros(&pair.ab, 50_000).await)).await;
        let second = pair.ab.send(zeros(&pair.ab, 10).await);
        let (second, ()) = join(second, async { pair.ab.abort() }).await;
        assert_eq!(second.unwrap_err().error, SendError::Lost(ConnectionError::Aborted));
        drop(first);
    });
}

/// Catches an `abort` that calls a connection lost for which only the peer may still wait.
#[test]
fn aborting_after_the_end_of_the_peer_loses_nothing() {
    on_connection(Sim::new(), &options(), async |_, pair| {
        let read = async {
            assert!(pair.ab.recv().await.unwrap().is_none());
            pair.ab.abort();
            assert_eq!(pair.ab.close_reason(), Some(Ok(())));
            assert!(pair.ab.recv().await.unwrap().is_none());
        };
        let _ = join(pair.ba.close(), read).await;
    });
}

/// Catches an end in good order that is reported although a message before it is missing: the end overtakes long messages.
#[test]
fn a_message_that_is_cut_off_is_not_passed_over() {
    let mut cut_off = 0;
    for step in 0..100 {
        on_connection(Sim::new(), &options(), async |net, pair| {
            let _send = begun(pair.ba.send(zeros(&pair.ba, 40 * FRAME).await)).await;
            let _close = begun(pair.ba.close()).await;
            rdma_async::time::sleep(&*net.runtime(), Duration::from_nanos(step * 500)).await;
            pair.ab.abort();
            match pair.ab.recv().await {
                Ok(message) => {
                    assert_eq!(message.expect("the message comes before the end").len(), 40 * FRAME)
                }
                Err(error) => {
                    assert_eq!(error, RecvError::Lost(ConnectionError::Aborted));
                    cut_off += 1;
                }
            }
        });
    }
    assert!((1..100).contains(&cut_off), "{cut_off}");
}
