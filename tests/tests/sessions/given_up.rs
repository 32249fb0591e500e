//! Objects that wait, although the task that polled them has given up: they live on, and hold up no other task

use std::time::Duration;

use futures::{SinkExt as _, StreamExt as _};
use rdma_async::time::timeout;
use rdma_async::{ByteStream, Lease, Priority, Session};
use rdma_sim::{Net, Sim, SimDevice};
use rdma_tests::{on_session, options};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

async fn filled(session: &Session<SimDevice>, bytes: &[u8]) -> Lease {
    let mut lease = session.alloc(bytes.len()).await.unwrap();
    lease.extend_from_slice(bytes);
    lease
}

async fn gives_up(net: &Net, work: impl Future) {
    assert!(timeout(&*net.runtime(), Duration::from_millis(1), work).await.is_none());
}

async fn in_time<T>(net: &Net, work: impl Future<Output = T>) -> T {
    timeout(&*net.runtime(), Duration::from_secs(5), work).await.expect("no other task holds it up")
}

/// Catches a waiter for messages that does not yield when its task has given up.
#[test]
fn readers_do_not_keep_messages_from_others() {
    on_session(Sim::new(), &options(), async |net, pair| {
        let mut messages = pair.ba.messages();
        gives_up(&net, messages.next()).await;
        pair.ab.send_bytes(b"1").await.unwrap();
        assert_eq!(*in_time(&net, pair.ba.recv()).await.unwrap().unwrap(), *b"1");
        // A reader that waits again gets its turn.
        pair.ab.send_bytes(b"2").await.unwrap();
        assert_eq!(*in_time(&net, messages.next()).await.unwrap().unwrap(), *b"2");

        let stream = pair.ab.open_stream(Priority::Normal).await.unwrap();
        let mut bytes = ByteStream::from(pair.ba.accept_stream().await.unwrap().unwrap());
        gives_up(&net, bytes.read_u8()).await;
        stream.send_bytes(b"3").await.unwrap();
        assert_eq!(*in_time(&net, bytes.get_ref().recv()).await.unwrap().unwrap(), *b"3");
        stream.send_bytes(b"4").await.unwrap();
        assert_eq!(in_time(&net, bytes.read_u8()).await.unwrap(), b'4');
    });
}

/// Catches a waiter for memory that does not yield when its task has given up.
#[test]
fn a_writer_does_not_keep_memory_from_others() {
    on_session(Sim::new(), &options(), async |net, pair| {
        let mut bytes = ByteStream::from(pair.ab.open_stream(Priority::Normal).await.unwrap());
        let held: Vec<_> = std::iter::from_fn(|| pair.a.try_alloc(4096).ok()).collect();
        net.inject("at 0us a:rdma_en2 unplug".parse().unwrap());
        net.sleep(Duration::from_millis(1)).await;
        // One is on the heap, and cannot be sent.
        bytes.write_all(&[0; 100_000]).await.unwrap();
        gives_up(&net, bytes.write(b"hello")).await;
        drop(held);
        assert!(pair.a.try_alloc(10).is_ok());
        in_time(&net, pair.a.alloc(10)).await.unwrap();
        assert_eq!(in_time(&net, bytes.write(b"hello")).await.unwrap(), 5);
    });
}

/// Catches a waiter for a place in the send queue that does not yield when its task has given up.
#[test]
fn a_sink_does_not_keep_places_from_others() {
    on_session(Sim::new(), &options().max_in_flight_sends(1), async |net, pair| {
        let mut sink = pair.ab.sink();
        net.inject("at 0us a:rdma_en2 unplug".parse().unwrap());
        net.sleep(Duration::from_millis(1)).await;
        sink.send(filled(&pair.ab, b"first").await).await.unwrap();
        gives_up(&net, sink.send(filled(&pair.ab, b"given up").await)).await;
        let second = pair.ab.send_bytes(b"second");
        net.inject("at 0us a:rdma_en2 replug".parse().unwrap());
        in_time(&net, second).await.unwrap();
        for expected in [&b"first"[..], b"second"] {
            assert_eq!(*pair.ba.recv().await.unwrap().unwrap(), *expected);
        }
        in_time(&net, sink.send(filled(&pair.ab, b"third").await)).await.unwrap();
    });
}
