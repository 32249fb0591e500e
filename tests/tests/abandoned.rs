//! Connections that nobody holds any more, and wakers that run their task on the spot

use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::task::{Context, Wake, Waker};
use std::time::Duration;

use futures::future::try_join;
use rdma_async::{Connection, EndpointOptions};
use rdma_sim::{Net, Sim, SimDevice};
use rdma_tests::connected;

fn options() -> EndpointOptions {
    EndpointOptions::new()
}

/// Queues ten messages, of which the memory of the peer holds a few, and waits for none
async fn queue_more_than_fits(connection: &Connection<SimDevice>) {
    for _ in 0..10 {
        let lease = connection.alloc(1 << 20).await.unwrap();
        let mut send = Box::pin(connection.send(lease));
        assert!(futures::poll!(send.as_mut()).is_pending());
    }
}

#[test]
fn dropping_the_last_handle_sends_what_is_queued() {
    Sim::new().run(async |net| {
        let pair = connected(&net, &options()).await;
        for len in [10, 50_000] {
            let lease = pair.ab.alloc(len).await.unwrap();
            let mut send = Box::pin(pair.ab.send(lease));
            assert!(futures::poll!(send.as_mut()).is_pending());
        }
        drop((pair.ab, pair.a));
        assert_eq!(pair.ba.recv().await.unwrap().unwrap().len(), 10);
        assert_eq!(pair.ba.recv().await.unwrap().unwrap().len(), 50_000);
        assert!(pair.ba.recv().await.unwrap().is_none());
    });
}

/// Regression: a connection that nobody held was cut off after the timeout, whatever it was still sending.
#[test]
fn dropping_the_last_handle_waits_for_a_slow_reader() {
    Sim::new().run(async |net| {
        let pair = connected(&net, &options().max_connections(1).receive_memory(6 << 20)).await;
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

/// A peer that lives and reads nothing cannot hold the memory of a connection that nobody holds for ever.
#[test]
fn dropping_the_last_handle_gives_a_peer_up_that_takes_nothing() {
    Sim::new().run(async |net| {
        let pair = connected(&net, &options().max_connections(1).receive_memory(6 << 20)).await;
        queue_more_than_fits(&pair.ab).await;
        drop(pair.ab);
        rdma_async::time::sleep(&*net.runtime(), Duration::from_secs(6)).await;
        assert!(pair.a.pool_stats().is_whole());
        rdma_async::time::sleep(&*net.runtime(), Duration::from_secs(6)).await;
        while pair.ba.recv().await.is_ok_and(|message| message.is_some()) {}
    });
}

/// Regression: small messages behind a long one that was under way kept their receives, and the peer its credits.
#[test]
fn what_nobody_reads_any_more_does_not_hold_the_peer_up() {
    Sim::new().run(async |net| {
        let pair = connected(&net, &options().max_connections(1).receive_memory(6 << 20)).await;
        queue_more_than_fits(&pair.ab).await;
        let long = pair.ba.alloc(2 << 20).await.unwrap();
        let mut long = Box::pin(pair.ba.send(long));
        assert!(futures::poll!(long.as_mut()).is_pending());
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

/// Uses the connection when it is woken, as a waker that runs its task on the spot, and when it is dropped, as one that owns it
struct Look {
    connection: Connection<SimDevice>,
    woken: AtomicUsize,
}

impl Look {
    fn new(connection: &Connection<SimDevice>) -> Arc<Self> {
        Arc::new(Self { connection: connection.clone(), woken: AtomicUsize::new(0) })
    }
}

impl Wake for Look {
    fn wake(self: Arc<Self>) {
        self.connection.stats();
        self.woken.fetch_add(1, Ordering::Relaxed);
    }
}

impl Drop for Look {
    fn drop(&mut self) {
        self.connection.stats();
    }
}

/// Runs a test whose mutants wait for a lock of their own
#[expect(clippy::disallowed_methods, reason = "a thread of its own can be given up")]
fn ends<F: Future<Output = ()>>(test: impl FnOnce(Net) -> F + Send + 'static) {
    let (done, is_done) = mpsc::channel();
    let thread = std::thread::spawn(move || {
        Sim::new().run(test);
        done.send(())
    });
    assert_eq!(is_done.recv_timeout(Duration::from_secs(60)), Ok(()), "a waker waits for a lock");
    thread.join().expect("it ended").expect("somebody listens");
}

/// Regression: a waker that runs its task on the spot found the connection locked.
#[test]
fn wakers_run_without_a_lock() {
    ends(async |net| {
        let pair = connected(&net, &options()).await;
        let look = Look::new(&pair.ab);
        let waker = Waker::from(Arc::clone(&look));
        let mut cx = Context::from_waker(&waker);
        let mut recv = Box::pin(pair.ab.recv());
        let mut close = Box::pin(pair.ab.close());
        let mut send = Box::pin(pair.ab.send(pair.ab.alloc(5).await.unwrap()));
        assert!(recv.as_mut().poll(&mut cx).is_pending());
        assert!(send.as_mut().poll(&mut cx).is_pending());
        assert!(close.as_mut().poll(&mut cx).is_pending());
        pair.ba.send_bytes(b"wake").await.unwrap();
        pair.ba.close().await.unwrap();
        rdma_async::time::sleep(&*net.runtime(), Duration::from_secs(1)).await;
        assert!(look.woken.load(Ordering::Relaxed) >= 3);
    });
}

/// Polls it by two wakers, of which the second replaces the first, and drops it
fn moved_and_dropped(connection: &Connection<SimDevice>, future: impl Future) {
    let mut future = pin!(future);
    for _ in 0..2 {
        let waker = Waker::from(Look::new(connection));
        assert!(future.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    }
}

/// Catches each of the wakers that is replaced or given up and dropped under the lock: of a send, in its slot and in line, of a
/// receive, and of who waits for the end.
#[test]
fn wakers_go_without_a_lock() {
    ends(async |net| {
        let pair = connected(&net, &options().max_in_flight_sends(1)).await;
        moved_and_dropped(&pair.ab, pair.ab.recv());
        let [one, two] = [8, 8].map(|len| pair.ab.alloc(len));
        let (one, two) = try_join(one, two).await.unwrap();
        moved_and_dropped(&pair.ab, pair.ab.send(one));
        // The only place is taken: this one waits for it.
        moved_and_dropped(&pair.ab, pair.ab.send(two));
        moved_and_dropped(&pair.ab, pair.ab.close());
    });
}
