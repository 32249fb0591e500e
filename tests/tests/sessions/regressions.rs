//! Defects that were found in sessions, each as a test

use std::pin::pin;
use std::time::Duration;

use futures::future::{join, join_all};
use rdma_async::time::timeout;
use rdma_async::{Node, RecvError, SendError, SessionError};
use rdma_sim::{Sim, SimDevice};
use rdma_tests::{connect, connected, message, node, nodes, options};

use super::exchange;

/// A peering that ended while it waited for memory kept its place in line: no other got memory any more.
#[test]
fn a_peer_that_is_gone_does_not_wait_for_memory() {
    const LEN: usize = 4 << 20;
    Sim::new().run(async |net| {
        let options = options().receive_memory(LEN);
        let [first, second, b] = ["a", "a", "b"].map(|host| node(&net, host, &options));
        let (gone, held) = connect(&first, &b).await.unwrap();
        for _ in 0..2 {
            let mut lease = gone.alloc(LEN).await.unwrap();
            lease.resize(LEN, 7);
            gone.try_send(lease).unwrap();
        }
        let first_message = held.recv().await.unwrap();
        net.sleep(Duration::from_millis(1)).await;
        gone.reset(0);
        drop((gone, held));
        net.sleep(Duration::from_millis(10)).await;
        let (ab, ba) = connect(&second, &b).await.unwrap();
        drop(first_message);
        let (sent, received) = join(ab.send_bytes(&message(0, LEN)), ba.recv()).await;
        sent.unwrap();
        assert_eq!(received.unwrap().unwrap().len(), LEN);
    });
}

/// A session that was closed and dropped was forgotten before its peer had closed: messages of the peer took room for ever.
#[test]
fn a_peer_can_finish_after_this_side_has_closed_and_gone() {
    Sim::new().run(async |net| {
        let pair = connected(&net, &options()).await;
        let sends = (0..64).map(|number| {
            let message = message(number, 12_000);
            let session = &pair.ba;
            async move { session.send_bytes(&message).await }
        });
        let sends = join_all(sends);
        let close = async {
            pair.ab.close().await.unwrap();
            drop(pair.ab);
        };
        let (sent, ()) = join(sends, close).await;
        assert!(sent.iter().any(Result::is_ok));
        pair.ba.close().await.unwrap();
        drop(pair.ba);
        net.sleep(Duration::from_millis(100)).await;
        assert!(pair.a.pool_stats().is_whole() && pair.b.pool_stats().is_whole());
    });
}

/// A long message counted as delivered when its session was reset.
#[test]
fn a_message_that_the_peer_does_not_have_is_not_delivered() {
    for len in [100, 12_000, 1 << 20] {
        for is_peer in [true, false] {
            Sim::new().run(async |net| {
                let pair = connected(&net, &options()).await;
                let sends = (0..8).map(|_| {
                    let mut lease = pair.ab.try_alloc(len).unwrap();
                    lease.resize(len, 7);
                    pair.ab.send(lease).delivered()
                });
                let reset = async {
                    net.sleep(Duration::from_micros(2)).await;
                    if is_peer { pair.ba.reset(9) } else { pair.ab.reset(9) }
                };
                let (sent, ()) = join(join_all(sends), reset).await;
                let expected = if is_peer { SessionError::Reset(9) } else { SessionError::Aborted };
                for failed in sent {
                    assert_eq!(failed.unwrap_err().error, SendError::Lost(expected.clone()));
                }
                drop((pair.ab, pair.ba));
                net.sleep(Duration::from_millis(100)).await;
                assert!(pair.a.pool_stats().is_whole() && pair.b.pool_stats().is_whole());
            });
        }
    }
}

/// Later messages got the memory that an earlier one needed, whose announcement was lost, and could not be handed on.
#[test]
fn memory_is_found_in_the_order_of_messages() {
    for after in 1..12 {
        let faults = format!("after {after} frames b:rdma_en2 lose 1");
        Sim::new().faults(faults.parse().unwrap()).run(async |net| {
            let options = options().send_memory(64 << 20);
            let pair = connected(&net, &options).await;
            let sends = join_all((0..6).map(|number| {
                let message = message(number, 4 << 20);
                let session = &pair.ab;
                async move { session.send_bytes(&message).await.unwrap() }
            }));
            let receive = async {
                for number in 0..6 {
                    assert!(*pair.ba.recv().await.unwrap().unwrap() == message(number, 4 << 20));
                }
            };
            let both = timeout(&*net.runtime(), Duration::from_secs(60), join(sends, receive)).await;
            assert!(both.is_some(), "{faults}");
        });
    }
}

/// Four unread messages of 4 MiB held all memory, and no other session received one.
#[test]
fn a_session_that_reads_nothing_does_not_starve_another() {
    Sim::new().run(async |net| {
        let pair = connected(&net, &options().send_memory(64 << 20)).await;
        let (long, other) = (message(1, 4 << 20), pair.ab.open().unwrap());
        let mut unread = pin!(join_all((0..8).map(|_| pair.ab.send_bytes(&long))));
        let rest = timeout(&*net.runtime(), Duration::from_millis(50), unread.as_mut()).await;
        assert!(rest.is_none(), "the memory holds all of the messages");
        let from_other = pair.b.accept().await.unwrap();
        let exchange = async {
            for _ in 0..8 {
                other.send_bytes(&long).await.unwrap();
                assert!(*from_other.recv().await.unwrap().unwrap() == long);
            }
        };
        let limit = Duration::from_secs(1);
        assert!(timeout(&*net.runtime(), limit, exchange).await.is_some(), "{}", from_other.snapshot());
        assert!(
            pair.ba.snapshot().to_string().contains("receive memory of this node"),
            "{}",
            pair.ba.snapshot()
        );
        // The first session goes on when it reads.
        let read = async {
            for _ in 0..8 {
                assert!(*pair.ba.recv().await.unwrap().unwrap() == long);
            }
        };
        assert!(
            timeout(&*net.runtime(), limit, join(unread, read)).await.is_some(),
            "{}",
            pair.ba.snapshot()
        );
    });
}

/// Each of many sessions had sent a part of its message, no frame was left for another one, and none came free.
#[test]
fn many_messages_of_many_packets_at_once_all_arrive() {
    for (sessions, window) in [(16, 4), (32, 1), (40, 3)] {
        Sim::new().run(async |net| {
            let pair = connected(&net, &options().max_sessions(64).send_memory(64 << 20)).await;
            let content = message(1, 64 << 10);
            let opened = (0..sessions).map(|_| pair.ab.open().unwrap()).collect::<Vec<_>>();
            let sends = join_all(
                opened.iter().flat_map(|session| (0..2 * window).map(|_| session.send_bytes(&content))),
            );
            let receives = join_all((0..sessions).map(async |_| {
                let session = pair.b.accept().await.unwrap();
                for _ in 0..2 * window {
                    assert!(*session.recv().await.unwrap().unwrap() == content);
                }
            }));
            let both = timeout(&*net.runtime(), Duration::from_secs(1), join(sends, receives)).await;
            assert!(both.is_some(), "{sessions} sessions: {}", opened[0].snapshot());
        });
    }
}

/// A future that had returned the end of its session, and that was not dropped, kept the peer for ever.
#[test]
fn a_future_that_has_returned_the_end_keeps_nothing() {
    Sim::new().run(async |net| {
        let pair = connected(&net, &options()).await;
        let mut closed = pin!(pair.ab.closed());
        drop(pair.ab);
        closed.as_mut().await.unwrap();
        // The peer keeps its handle: it does not end its side.
        let idle = timeout(&*net.runtime(), Duration::from_secs(1), pair.a.wait_idle()).await;
        assert!(idle.is_some(), "{}", pair.ba.snapshot());
        assert_eq!(closed.await, Ok(()), "it still says so");
    });
}

/// A dropped session was given up in the middle of a message that takes longer than the peer timeout.
#[test]
fn a_dropped_session_sends_a_message_that_takes_long() {
    Sim::new().run(async |net| {
        let options = options().peer_timeout(Duration::from_millis(8));
        let options = options.max_message(128 << 20).send_memory(128 << 20).receive_memory(128 << 20);
        let pair = connected(&net, &options).await;
        let mut lease = pair.ab.alloc(110 << 20).await.unwrap();
        lease.resize(110 << 20, 7);
        pair.ab.try_send(lease).unwrap();
        let (ba, nodes) = (pair.ba, (pair.a, pair.b));
        drop(pair.ab);
        assert_eq!(ba.recv().await.unwrap().map(|message| message.len()), Some(110 << 20));
        drop(nodes);
    });
}

/// Options were checked only with a device that was there.
#[test]
fn options_are_checked_without_a_device() {
    Sim::new().run(async |net| {
        let no_device = || Err::<SimDevice, _>("no device");
        for options in [
            options().send_memory(1 << 44),
            options().stream_share(16),
            options().max_sessions(0),
            options().max_peers(0),
            options().receive_memory(1 << 20),
        ] {
            let node = Node::builder(no_device).runtime(net.runtime()).options(options).build();
            assert!(node.is_err());
        }
    });
}

/// Attempts that were given up kept their memory.
#[test]
fn attempts_that_are_given_up_leave_nothing_behind() {
    Sim::new().run(async |net| {
        let options = options().connect_timeout(Duration::from_millis(50));
        let (a, b) = nodes(&net, &options);
        for round in 0..20 {
            // A peer that says nothing, or stops within the handshake.
            let (to_b, mut to_a) = tokio::io::duplex(1024);
            let silent = async {
                use tokio::io::AsyncReadExt as _;
                let _read = to_a.read_exact(&mut vec![0; 10 * round]).await;
                net.sleep(Duration::from_millis(100)).await;
            };
            let (connected, ()) = join(a.connect(to_b), silent).await;
            connected.unwrap_err();
            let (to_b, to_a) = tokio::io::duplex(1024);
            let attempt = join(a.connect(to_b), b.serve(to_a));
            let limit = Duration::from_nanos(1 << round);
            let given_up = timeout(&*net.runtime(), limit, attempt).await;
            drop(given_up);
        }
        net.sleep(Duration::from_secs(5)).await;
        assert!(a.pool_stats().is_whole() && b.pool_stats().is_whole());
        connect(&a, &b).await.unwrap();
    });
}

/// Sessions that no task accepted were kept without bound.
#[test]
fn sessions_that_are_not_accepted_are_refused_beyond_the_limit() {
    Sim::new().run(async |net| {
        let pair = connected(&net, &options().max_sessions(4)).await;
        for _ in 0..100 {
            let session = pair.ab.open().unwrap();
            net.sleep(Duration::from_micros(50)).await;
            session.reset(1);
            net.sleep(Duration::from_micros(50)).await;
        }
        for _ in 0..4 {
            let dead = pair.b.accept().await.unwrap();
            assert_eq!(dead.recv().await.unwrap_err(), RecvError::Lost(SessionError::Reset(1)));
        }
        let ab = pair.ab.open().unwrap();
        let ba = pair.b.accept().await.unwrap();
        ab.send_bytes(b"hello").await.unwrap();
        assert_eq!(*ba.recv().await.unwrap().unwrap(), *b"hello");
    });
}

/// A message that was kept held its session open.
#[test]
fn a_message_outlives_its_session() {
    Sim::new().run(async |net| {
        let pair = connected(&net, &options()).await;
        pair.ab.send_bytes(b"hello").await.unwrap();
        let kept = pair.ba.recv().await.unwrap().unwrap();
        drop(pair.ba);
        assert!(pair.ab.recv().await.unwrap().is_none());
        assert_eq!(*kept, *b"hello");
    });
}

/// The last word of a session was lost when its handle was dropped at once.
#[test]
fn a_reset_arrives_although_the_session_is_dropped() {
    Sim::new().faults("after 8 frames b:rdma_en2 lose 1".parse().unwrap()).run(async |net| {
        for closes in [true, false] {
            let pair = connected(&net, &options()).await;
            if closes {
                pair.ab.close().await.unwrap();
            }
            pair.ab.reset(77);
            drop(pair.ab);
            let received = timeout(&*net.runtime(), Duration::from_secs(1), pair.ba.recv()).await.unwrap();
            let expected = if closes { Ok(true) } else { Err(RecvError::Lost(SessionError::Reset(77))) };
            assert_eq!(received.map(|message| message.is_none()), expected);
        }
    });
}

/// A node that was closed left sessions behind that no task could accept.
#[test]
fn a_closed_node_refuses_the_sessions_that_wait() {
    Sim::new().run(async |net| {
        let pair = connected(&net, &options()).await;
        let waiting = pair.ab.open().unwrap();
        net.sleep(Duration::from_millis(1)).await;
        pair.b.close();
        assert!(pair.b.accept().await.is_none());
        assert!(matches!(waiting.recv().await, Err(RecvError::Lost(SessionError::Reset(_)))));
        exchange(&pair, &[100, 100_000]).await;
    });
}

/// A peer that was gone kept its memory until the ports were looked at again: quick successors found none.
#[test]
fn peers_may_come_and_go_quickly() {
    Sim::new().run(async |net| {
        let (a, b) = nodes(&net, &options().max_peers(2));
        for _ in 0..100 {
            let (ab, ba) = connect(&a, &b).await.unwrap();
            ab.send_bytes(b"hello").await.unwrap();
            assert_eq!(*ba.recv().await.unwrap().unwrap(), *b"hello");
            let (closed, end) = join(ab.close(), ba.recv()).await;
            closed.unwrap();
            assert!(end.unwrap().is_none());
        }
        assert!(net.now().as_nanos() < 10_000_000, "{}", net.now());
    });
}
