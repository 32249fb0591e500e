//! What every transport has, and this one, too: ends, identities, operations that do not wait, streams, shutdown

use std::pin::pin;
use std::time::Duration;

use futures::StreamExt;
use futures::future::join;
use rdma_async::time::timeout;
use rdma_async::{AllocError, CloseError, ConnectError, Node, NodeError, RecvError, SendError, SessionError};
use rdma_core::FRAME;
use rdma_sim::Sim;
use rdma_tests::{DEVICE, Pair, begun, connect, connected, nodes, on_session, options, zeros};

use super::exchange;

/// Catches `closed` that closes, that keeps the session open, or that misses an end.
#[test]
fn closed_waits_for_the_end_and_changes_nothing() {
    on_session(Sim::new(), &options(), async |net, pair| {
        let mut closed = pin!(pair.ab.closed());
        let rest = timeout(&*net.runtime(), Duration::from_mins(1), closed.as_mut()).await;
        assert_eq!((rest, pair.ab.close_reason()), (None, None), "waiting does not close");
        let other = pair.ba.closed();
        // Although two futures wait for its end, the session has no handle any more and closes.
        drop(pair.ab);
        assert_eq!(join(closed, other).await, (Ok(()), Ok(())));
        assert_eq!(pair.ba.close_reason(), Some(Ok(())));

        let pair = connected(&net, &options()).await;
        pair.ab.reset(7);
        let aborted = Err(CloseError::Lost(SessionError::Aborted));
        assert_eq!(pair.ab.closed().await, aborted);
        assert_eq!(pair.ab.close_reason(), Some(aborted));
    });
}

/// Catches numbers that differ between the ends, or that two sessions share.
#[test]
fn sessions_have_numbers_and_peers() {
    on_session(Sim::new(), &options(), async |_, pair| {
        let ab = pair.ab.open().unwrap();
        let ba = pair.b.accept().await.unwrap();
        assert_eq!((pair.ab.id(), ab.id()), (pair.ba.id(), ba.id()));
        assert_ne!(pair.ab.id(), ab.id());
        assert_eq!(ab.clone().id(), ab.id());
        assert_eq!([pair.ab.peer(), ab.peer()], [pair.b.id(); 2]);
        assert_eq!([pair.ba.peer(), ba.peer()], [pair.a.id(); 2]);
        assert_ne!(pair.a.id(), pair.b.id());
    });
}

/// Catches operations that overtake a task in line, or that lose the lease.
#[test]
fn operations_that_do_not_wait_say_so_instead() {
    const LONG: usize = 100_000;
    Sim::new().run(async |net| {
        let options = options().max_in_flight_sends(1).send_memory(30 * FRAME);
        let pair = connected(&net, &options).await;
        assert!(matches!(pair.ba.try_recv(), Err(RecvError::WouldBlock)));

        pair.ab.try_send(zeros(&pair.ab, LONG).await).unwrap();
        let failed = pair.ab.try_send(zeros(&pair.ab, 20).await).unwrap_err();
        assert_eq!(failed.error, SendError::WouldBlock);
        assert_eq!(failed.lease.unwrap().len(), 20);
        let foreign = pair.ab.try_send(zeros(&pair.ba, 1).await).unwrap_err();
        assert_eq!(foreign.error, SendError::ForeignLease);
        assert_eq!(foreign.lease.unwrap().len(), 1);

        net.sleep(Duration::from_millis(1)).await;
        let all = pair.ab.try_alloc(29 * FRAME).unwrap();
        assert_eq!(pair.ab.try_alloc(2 * FRAME).unwrap_err(), AllocError::WouldBlock);
        let waits = begun(pair.ab.alloc(30 * FRAME)).await;
        assert_eq!(pair.ab.try_alloc(1).unwrap_err(), AllocError::WouldBlock, "another task waits");
        drop((waits, all));

        assert_eq!(pair.ba.try_recv().unwrap().unwrap().len(), LONG);
        pair.ab.try_send(zeros(&pair.ab, 10).await).expect("the slot was freed by itself");
        pair.ab.close().await.unwrap();
        assert_eq!(pair.ba.try_recv().unwrap().unwrap().len(), 10);
        assert!(pair.ba.try_recv().unwrap().is_none());
        let closed = pair.ab.try_send(zeros(&pair.ab, 1).await).unwrap_err();
        assert_eq!(closed.error, SendError::Closed);
    });
}

/// Catches a stream without an end, and one that goes on after an error.
#[test]
fn a_stream_of_messages_ends_with_the_session() {
    on_session(Sim::new(), &options(), async |net, pair| {
        let send = async {
            for len in [10, 200_000, 0] {
                pair.ab.send_bytes(&vec![1; len]).await.unwrap();
            }
            pair.ab.close().await.unwrap();
        };
        let mut messages = pair.ba.messages();
        let lens = messages.by_ref().map(|message| message.unwrap().len()).collect::<Vec<_>>();
        assert_eq!(join(send, lens).await.1, [10, 200_000, 0]);
        assert!(messages.next().await.is_none());

        let pair = connected(&net, &options()).await;
        pair.ba.reset(7);
        let mut messages = pair.ba.messages();
        let lost = RecvError::Lost(SessionError::Aborted);
        assert_eq!(messages.next().await.unwrap().unwrap_err(), lost);
        assert!(messages.next().await.is_none(), "one error, then the end");
    });
}

/// Catches a `close` that ends sessions or takes new ones, and a `wait_idle` that is ready too early or never.
#[test]
fn a_closed_node_keeps_its_sessions_and_takes_no_more() {
    Sim::new().run(async |net| {
        let (a, b) = nodes(&net, &options());
        a.wait_idle().await;
        let (ab, ba) = connect(&a, &b).await.unwrap();
        let pair = Pair { a, b, ab, ba };
        let is_busy =
            async || timeout(&*net.runtime(), Duration::from_mins(1), pair.a.wait_idle()).await.is_none();
        assert!(is_busy().await);
        pair.a.close();
        let start = net.now();
        let refused = connect(&pair.a, &pair.b).await;
        assert!(matches!(refused, Err(ConnectError::Closed)), "{refused:?}");
        // Whether or not a peer is there.
        let (silent, _peer) = tokio::io::duplex(256);
        assert!(matches!(pair.a.serve(silent).await, Err(ConnectError::Closed)));
        assert!(pair.a.accept().await.is_none());
        assert_eq!(net.now(), start, "at once");

        let refused = pair.ba.open().unwrap();
        assert!(matches!(refused.recv().await, Err(RecvError::Lost(SessionError::Reset(_)))));
        let own = pair.ab.open().unwrap();
        own.send_bytes(b"hello").await.unwrap();
        let accepted = pair.b.accept().await.unwrap();
        assert_eq!(*accepted.recv().await.unwrap().unwrap(), *b"hello");
        drop((refused, own, accepted));
        assert!(is_busy().await);
        exchange(&pair, &[10, 200_000]).await;
        let Pair { a, b, ab, ba } = pair;
        drop((ab, ba));
        join(a.wait_idle(), b.wait_idle()).await;
        assert!(a.pool_stats().is_whole() && b.pool_stats().is_whole());
    });
}

/// Catches attempts that go on, or connect, although their node is closed meanwhile.
#[test]
fn closing_a_node_ends_the_attempts_to_connect_at_once() {
    Sim::new().run(async |net| {
        let (a, b) = nodes(&net, &options());
        let (to_b, to_a) = tokio::io::duplex(256);
        let connects = begun(a.connect(to_b)).await;
        let ((silent, _peer), (other, _other_peer)) = (tokio::io::duplex(256), tokio::io::duplex(256));
        let close = async {
            net.sleep(Duration::from_secs(1)).await;
            a.close();
        };
        let serves = join(a.serve(silent), a.serve(other));
        let start = net.now();
        let (connected, (first, second), ()) = futures::join!(connects, serves, close);
        for refused in [connected.map(drop), first, second] {
            assert!(matches!(refused, Err(ConnectError::Closed)), "{refused:?}");
        }
        assert_eq!(net.now() - start, Duration::from_secs(1), "at once");
        // The peer of the attempt learns it from the end of the stream.
        assert!(matches!(b.serve(to_a).await, Err(ConnectError::Stream(_))));
        join(a.wait_idle(), b.wait_idle()).await;
        assert!(a.pool_stats().is_whole() && b.pool_stats().is_whole());
    });
}

/// Catches a task that never ends, one that ends before the last session, and one that is not woken when its node is dropped.
#[test]
fn a_device_is_closed_with_its_node_and_sessions() {
    Sim::new().run(async |net| {
        let rest = async || net.sleep(Duration::from_millis(10)).await;
        // More often than the device can be open at once.
        for _ in 0..30 {
            drop(rdma_tests::node(&net, "a", &options()));
            net.sleep(Duration::from_nanos(1)).await;
            assert!(net.objects().is_empty(), "{:?}", net.objects());
        }
        let pair = connected(&net, &options()).await;
        pair.ab.close().await.unwrap();
        drop(pair);
        rest().await;
        assert!(net.objects().is_empty(), "a session that was closed before: {:?}", net.objects());
        // Sessions outlive their nodes, and what they were given is still sent.
        let pair = connected(&net, &options()).await;
        drop((pair.a, pair.b));
        rest().await;
        pair.ab.try_send(zeros(&pair.ab, 200_000).await).unwrap();
        drop(pair.ab);
        assert_eq!(pair.ba.recv().await.unwrap().unwrap().len(), 200_000);
        assert!(pair.ba.recv().await.unwrap().is_none());
        drop(pair.ba);
        rest().await;
        assert!(net.objects().is_empty(), "{:?}", net.objects());
    });
}

/// Catches a task that waits for the end of the last peer when the runtime takes the driving task away.
#[test]
fn a_node_without_a_runtime_is_idle() {
    let pair = Sim::new().run(async |net| connected(&net, &options()).await).value;
    Sim::new().run(async |_| pair.a.wait_idle().await);
}

/// Catches sides that both write a message of the handshake before they read that of the other.
#[test]
fn a_bootstrap_stream_may_be_narrow() {
    Sim::new().run(async |net| {
        let (a, b) = nodes(&net, &options());
        let (to_b, to_a) = tokio::io::duplex(16);
        let (connected, served) = join(a.connect(to_b), b.serve(to_a)).await;
        connected.unwrap();
        served.unwrap();
    });
}

#[test]
fn a_builder_off_tokio_needs_a_runtime() {
    Sim::new().run(async |net| {
        let without = Node::builder(net.opener("a", DEVICE)).build().unwrap_err();
        assert_eq!(without, NodeError::NoRuntime, "the simulator does not run on tokio");
    });
}

/// On tokio, a builder needs nothing else.
#[test]
fn a_builder_finds_the_tokio_runtime() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let open = Sim::new().run(async |net| net.opener("a", DEVICE)).value;
    let built = runtime.block_on(async { Node::builder(open).build().map(drop) });
    assert_ne!(built, Err(NodeError::NoRuntime));
}

/// Catches a builder that panics.
#[test]
fn a_tokio_runtime_without_timers_is_refused() {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let open = Sim::new().run(async |net| net.opener("a", DEVICE)).value;
    let refused = runtime.block_on(async { Node::builder(open).build().unwrap_err() });
    assert_eq!(refused, NodeError::NoTimers);
    assert!(refused.to_string().contains("enable_time"), "{refused}");
}
