//! Every waiting task learns of the end of a session or node, even if tasks in front of it poll no more or panic

use std::sync::Arc;
use std::task::{Context, Waker};
use std::time::Duration;

use futures::future::{join, join3};
use rdma_async::{CloseError, ConnectError, RecvError, SendError, SessionError};
use rdma_sim::Sim;
use rdma_tests::{Pair, Panics, begun, connect, node, nodes, on_session, options, zeros};

const LOST: SessionError = SessionError::Aborted;

/// Catches an end that tasks take one after the other: each first future is polled once and then held.
#[test]
fn a_task_that_polls_no_more_keeps_no_other_from_the_end() {
    on_session(Sim::new(), &options().max_in_flight_sends(1), async |_, pair| {
        let _under_way = begun(pair.ab.send(zeros(&pair.ab, 100_000).await)).await;
        let _held = begun(pair.ab.send(zeros(&pair.ab, 1).await)).await;
        let _held = (begun(pair.ab.closed()).await, begun(pair.ab.recv()).await);
        let send = begun(pair.ab.send(zeros(&pair.ab, 1).await)).await;
        let (closed, recv) = (begun(pair.ab.closed()).await, begun(pair.ab.recv()).await);
        let (waited, ()) = join(join3(send, closed, recv), async { pair.ab.reset(7) }).await;
        let (sent, closed, received) = waited;
        assert_eq!(sent.unwrap_err().error, SendError::Lost(LOST));
        assert_eq!(closed, Err(CloseError::Lost(LOST)));
        assert_eq!(received.unwrap_err(), RecvError::Lost(LOST));
        // Nor those that begin later.
        assert_eq!(pair.ab.closed().await, Err(CloseError::Lost(LOST)));
        assert_eq!(pair.ab.try_recv().unwrap_err(), RecvError::Lost(LOST));
        assert_eq!(pair.ab.try_send(zeros(&pair.ab, 1).await).unwrap_err().error, SendError::Lost(LOST));
    });
}

/// Catches a `close`, `recv` or `wait_idle` that hangs behind a held future: programs select between the end and their own shutdown.
#[test]
fn a_session_can_be_closed_beside_a_future_that_waits_for_its_end() {
    on_session(Sim::new(), &options(), async |_, pair| {
        let Pair { a, b: _b, ab, ba } = pair;
        let _held = begun(a.wait_idle()).await;
        let held = (begun(ab.closed()).await, begun(ba.recv()).await, begun(ba.recv()).await);
        let (close, received) = join(ab.close(), ba.recv()).await;
        close.unwrap();
        assert!(received.unwrap().is_none());
        assert!(ba.try_recv().unwrap().is_none());
        drop((held, ab, ba));
        a.wait_idle().await;
    });
}

/// Catches attempts that learn one after the other that their node is closed.
#[test]
fn an_attempt_that_is_not_polled_keeps_no_other_from_the_end() {
    Sim::new().run(async |net| {
        let a = node(&net, "a", &options());
        let [(first, _first), (second, _second)] = [tokio::io::duplex(256), tokio::io::duplex(256)];
        let (_held, attempt) = (begun(a.connect(first)).await, begun(a.connect(second)).await);
        a.close();
        assert!(matches!(attempt.await, Err(ConnectError::Closed)));
    });
}

#[test]
fn a_waker_that_panics_keeps_no_other_task_from_the_end() {
    on_session(Sim::new(), &options(), async |_, pair| {
        let (mut closed, mut recv) = (Box::pin(pair.ab.closed()), Box::pin(pair.ab.recv()));
        let panics = Waker::from(Arc::new(Panics));
        let cx = &mut Context::from_waker(&panics);
        assert!(closed.as_mut().poll(cx).is_pending() && recv.as_mut().poll(cx).is_pending());
        let others = join(pair.ab.closed(), pair.ab.recv());
        let ((ended, received), ()) = join(others, async { pair.ab.reset(7) }).await;
        assert_eq!(ended, Err(CloseError::Lost(LOST)));
        assert_eq!(received.unwrap_err(), RecvError::Lost(LOST));
    });
}

/// One lease holds all send memory of a node, and one of two sessions ends.
///
/// Catches a `send_bytes` that waits for memory and learns neither that its session has ended nor that its message is too long.
#[test]
fn a_message_that_waits_for_memory_learns_of_the_end() {
    let options = options().send_memory(1 << 20).max_message(100_000);
    on_session(Sim::new(), &options, async |_, pair| {
        let Pair { a, b, ab, ba } = pair;
        let full = ab.open().unwrap();
        let _other_end = b.accept().await.unwrap();
        let lease = a.alloc(1 << 20).await.unwrap();
        let max = ab.max_message();
        let too_long = SendError::TooLong { len: max + 1, max };
        assert_eq!(ab.send_bytes(&vec![0; max + 1]).await, Err(too_long));
        let long = [0; 100_000];
        let _on_the_heap = begun(ab.send_bytes(&long)).await;
        let waiting = begun(ab.send_bytes(b"waits")).await;
        ba.reset(7);
        let lost = Err(SendError::Lost(SessionError::Reset(7)));
        assert_eq!(waiting.await, lost);
        assert_eq!(ab.send_bytes(b"late").await, lost);
        // The failed sends have left the line for memory.
        let _on_the_heap = begun(full.send_bytes(&long)).await;
        let waiting = begun(full.send_bytes(b"waits")).await;
        drop(lease);
        waiting.await.unwrap();
    });
}

/// Catches calls that wait for tasks of the node when the runtime has dropped them.
#[test]
fn a_node_whose_runtime_is_gone_is_closed() {
    for is_served in [false, true] {
        Sim::new().run(async |net| {
            let (a, b) = nodes(&net, &options());
            let sessions = if is_served { Some(connect(&a, &b).await.unwrap()) } else { None };
            let waiting = begun(b.accept()).await;
            net.inject("at 0s b kill".parse().unwrap());
            net.sleep(Duration::from_millis(1)).await;
            assert!(waiting.await.is_none() && b.accept().await.is_none());
            let streams = [(); 2].map(|()| tokio::io::duplex(256));
            let [(first, _first), (second, _second)] = streams;
            assert!(matches!(b.connect(first).await, Err(ConnectError::Closed)));
            assert!(matches!(b.serve(second).await, Err(ConnectError::Closed)));
            drop(sessions);
            b.wait_idle().await;
        });
    }
}
