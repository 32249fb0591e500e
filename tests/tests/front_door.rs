//! What every transport has, and this one, too: ends, identities, operations that do not wait, streams

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use futures::future::join;
use rdma_async::{
    AllocError, CloseError, ConnectError, ConnectionError, Device, Endpoint, EndpointError, RecvError,
    SendError,
    time::{sleep, timeout},
};
use rdma_core::FRAME;
use rdma_sim::Sim;
use rdma_tests::{DEVICE, begun, connect, connected, endpoints, on_connection, options, zeros};

/// Catches `closed` that closes, that keeps the connection open, or that misses an end.
#[test]
fn closed_waits_for_the_end_and_changes_nothing() {
    on_connection(Sim::new(), &options(), async |net, pair| {
        let mut closed = pin!(pair.ab.closed());
        let rest = timeout(&*net.runtime(), Duration::from_mins(1), closed.as_mut()).await;
        assert_eq!((rest, pair.ab.close_reason()), (None, None), "waiting does not close");
        let other = pair.ba.closed();
        // Although two futures wait for its end, the connection has no handle any more and closes.
        drop(pair.ab);
        assert_eq!(join(closed, other).await, (Ok(()), Ok(())));
        assert_eq!(pair.ba.close_reason(), Some(Ok(())));

        let pair = connected(&net, &options()).await;
        pair.ab.abort();
        let aborted = Err(CloseError::Lost(ConnectionError::Aborted));
        assert_eq!(pair.ab.closed().await, aborted);
        assert_eq!(pair.ab.close_reason(), Some(aborted));
    });
}

#[test]
fn connections_have_numbers_and_peers() {
    Sim::new().run(async |net| {
        let (a, b) = endpoints(&net, &options());
        let (first, second) = (connect(&a, &b).await.unwrap(), connect(&a, &b).await.unwrap());
        assert_eq!([first.0.id().to_string(), second.0.id().to_string()], ["0", "1"]);
        assert_eq!(first.0.clone().id(), first.0.id());
        assert_eq!(first.0.peer().gid, second.0.peer().gid);
        assert_ne!(first.0.peer().eager, second.0.peer().eager);
        assert!(b.device().gids().unwrap().contains(&first.0.peer().gid));
        assert!(first.0.peer().to_string().starts_with(&first.0.peer().gid.to_string()));
    });
}

/// Catches operations that overtake a task in line, or that lose the lease.
#[test]
fn operations_that_do_not_wait_say_so_instead() {
    Sim::new().run(async |net| {
        let options = options().max_in_flight_sends(1).send_memory(4 * FRAME);
        let pair = connected(&net, &options).await;
        assert!(matches!(pair.ba.try_recv(), Err(RecvError::WouldBlock)));

        pair.ab.try_send(zeros(&pair.ab, 10).await).unwrap();
        let failed = pair.ab.try_send(zeros(&pair.ab, 20).await).unwrap_err();
        assert_eq!(failed.error, SendError::WouldBlock);
        assert_eq!(failed.lease.unwrap().len(), 20);
        let foreign = pair.ab.try_send(zeros(&pair.ba, 1).await).unwrap_err();
        assert_eq!(foreign.error, SendError::ForeignLease);
        assert_eq!(foreign.lease.unwrap().len(), 1);

        sleep(&*net.runtime(), Duration::from_millis(1)).await;
        let all = pair.ab.try_alloc(3 * FRAME).unwrap();
        assert_eq!(pair.ab.try_alloc(2 * FRAME).unwrap_err(), AllocError::WouldBlock);
        let waits = begun(pair.ab.alloc(4 * FRAME)).await;
        assert_eq!(pair.ab.try_alloc(1).unwrap_err(), AllocError::WouldBlock, "another task waits");
        drop((waits, all));

        assert_eq!(pair.ba.try_recv().unwrap().unwrap().len(), 10);
        assert_eq!(pair.ab.stats().messages_in_flight, 0, "its slot was freed by itself");
        pair.ab.close().await.unwrap();
        assert!(pair.ba.try_recv().unwrap().is_none());
        let closed = pair.ab.try_send(zeros(&pair.ab, 1).await).unwrap_err();
        assert_eq!(closed.error, SendError::Closed);
    });
}

#[test]
fn a_stream_of_messages_ends_with_the_connection() {
    on_connection(Sim::new(), &options(), async |net, pair| {
        let send = async {
            for len in [10, 20_000, 0] {
                pair.ab.send_bytes(&vec![1; len]).await.unwrap();
            }
            pair.ab.close().await.unwrap();
        };
        let mut messages = pair.ba.messages();
        let lens = messages.by_ref().map(|message| message.unwrap().len()).collect::<Vec<_>>();
        assert_eq!(join(send, lens).await.1, [10, 20_000, 0]);
        assert!(messages.next().await.is_none());

        let pair = connected(&net, &options()).await;
        pair.ba.abort();
        let mut messages = pair.ba.messages();
        let lost = RecvError::Lost(ConnectionError::Aborted);
        assert_eq!(messages.next().await.unwrap().unwrap_err(), lost);
        assert!(messages.next().await.is_none(), "one error, then the end");
    });
}

/// Catches a `close` that leaves connections open or takes new ones, and a `wait_idle` that is ready too early or never.
#[test]
fn a_closed_endpoint_ends_its_connections_in_good_order_and_takes_no_more() {
    Sim::new().run(async |net| {
        let (a, b) = endpoints(&net, &options());
        a.wait_idle().await;
        let first = connect(&a, &b).await.unwrap();
        assert!(timeout(&*net.runtime(), Duration::from_mins(1), a.wait_idle()).await.is_none());
        let second = connect(&a, &b).await.unwrap();
        first.0.try_send(zeros(&first.0, 50_000).await).unwrap();
        a.close();
        assert_eq!(first.1.recv().await.unwrap().unwrap().len(), 50_000);
        for (ab, ba) in [&first, &second] {
            assert!(ba.recv().await.unwrap().is_none());
            assert_eq!(ab.closed().await, Ok(()));
        }
        join(a.wait_idle(), b.wait_idle()).await;
        let start = net.now();
        assert_eq!(connect(&a, &b).await.unwrap_err(), ConnectError::Closed);
        // Whether or not a peer is there: `accept` waited for its hello.
        let (silent, _peer) = tokio::io::duplex(256);
        assert_eq!(a.accept(silent).await.unwrap_err(), ConnectError::Closed);
        assert_eq!(net.now(), start, "at once");
    });
}

/// Regression: an attempt that was under way when the endpoint was closed went on, and connected.
#[test]
fn closing_an_endpoint_ends_the_attempts_to_connect_at_once() {
    Sim::new().run(async |net| {
        let (a, b) = endpoints(&net, &options());
        let (to_b, to_a) = tokio::io::duplex(256);
        let mut connects = Box::pin(a.connect(to_b));
        assert!(futures::poll!(connects.as_mut()).is_pending(), "it waits for the hello of its peer");
        let ((silent, _peer), (other, _other_peer)) = (tokio::io::duplex(256), tokio::io::duplex(256));
        let close = async {
            sleep(&*net.runtime(), Duration::from_secs(1)).await;
            a.close();
        };
        let accepts = join(a.accept(silent), a.accept(other));
        let start = net.now();
        let (connected, (first, second), ()) = futures::join!(connects, accepts, close);
        for refused in [connected, first, second] {
            assert_eq!(refused.unwrap_err(), ConnectError::Closed);
        }
        assert_eq!(net.now() - start, Duration::from_secs(1), "at once");
        // The peer of the attempt learns it from the end of the stream.
        assert_eq!(b.accept(to_a).await.unwrap_err(), ConnectError::Stream(std::io::ErrorKind::BrokenPipe));
        join(a.wait_idle(), b.wait_idle()).await;
        assert!(a.pool_stats().is_whole() && b.pool_stats().is_whole());
    });
}

/// Catches a reactor that is not woken by the last handle, or that waits for a call of the application.
#[test]
fn a_dropped_endpoint_closes_its_device_in_the_background() {
    Sim::new().run(async |net| {
        let yields = async || sleep(&*net.runtime(), Duration::from_nanos(1)).await;
        // More often than the device can be open at once.
        for _ in 0..30 {
            drop(rdma_tests::endpoint(&net, "a", &options()));
            yields().await;
            assert!(net.objects().is_empty(), "{:?}", net.objects());
        }
        // The connections are closed in good order before.
        let pair = connected(&net, &options()).await;
        pair.ab.try_send(zeros(&pair.ab, 50_000).await).unwrap();
        drop((pair.a, pair.b, pair.ab));
        assert_eq!(pair.ba.recv().await.unwrap().unwrap().len(), 50_000);
        assert!(pair.ba.recv().await.unwrap().is_none());
        drop(pair.ba);
        sleep(&*net.runtime(), Duration::from_millis(1)).await;
        assert!(net.objects().is_empty(), "{:?}", net.objects());
    });
}

/// Catches a task that waits for the end of the last connection when the runtime takes the reactor away.
#[test]
fn an_endpoint_without_a_runtime_is_idle() {
    let pair = Sim::new().run(async |net| connected(&net, &options()).await).value;
    Sim::new().run(async |_| pair.a.wait_idle().await);
}

#[test]
fn a_builder_off_tokio_needs_a_runtime() {
    Sim::new().run(async |net| {
        let without = Endpoint::builder(net.open("a", DEVICE).unwrap()).build().unwrap_err();
        assert_eq!(without, EndpointError::NoRuntime, "the simulator does not run on tokio");
    });
}

/// On tokio, a builder needs nothing else.
#[test]
fn a_builder_finds_the_tokio_runtime() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let device = Sim::new().run(async |net| Arc::new(net.open("a", DEVICE).unwrap())).value;
    let device = Arc::into_inner(device).unwrap();
    let built = runtime.block_on(async { Endpoint::builder(device).build().map(drop) });
    assert_ne!(built, Err(EndpointError::NoRuntime));
}

/// Regression: the builder panicked.
#[test]
fn a_tokio_runtime_without_timers_is_refused() {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let device = Sim::new().run(async |net| net.open("a", DEVICE).unwrap()).value;
    let refused = runtime.block_on(async { Endpoint::builder(device).build().unwrap_err() });
    assert_eq!(refused, EndpointError::NoTimers);
    assert!(refused.to_string().contains("enable_time"), "{refused}");
}
