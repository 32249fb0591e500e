//! How sessions begin and end, well and badly

use std::time::Duration;

use futures::future::{join, join_all, try_join};
use rdma_async::{AllocError, ConnectError, RecvError, SendError, Session, SessionError};
use rdma_sim::{Model, Sim};
use rdma_tests::{connect, connected, node, on_session, options, zeros};

/// Catches a side whose next message is refused, when its peer has closed, as if it had closed itself.
#[test]
fn closing_tells_that_everything_arrived() {
    on_session(Sim::new(), &options(), async |_, pair| {
        pair.ab.send_bytes(&[1; 100_000]).await.unwrap();
        pair.ab.send_bytes(&[2; 10]).await.unwrap();
        // The application at the other end does not read: its node confirms all the same.
        pair.ab.close().await.unwrap();
        assert_eq!(pair.ab.send_bytes(b"late").await, Err(SendError::Closed));
        assert_eq!(pair.ba.recv().await.unwrap().unwrap().len(), 100_000);
        assert_eq!(pair.ba.recv().await.unwrap().unwrap().len(), 10);
        assert!(pair.ba.recv().await.unwrap().is_none());
        assert!(pair.ba.recv().await.unwrap().is_none(), "the end stays the end");
        pair.ba.closed().await.unwrap();
        assert_eq!(pair.ba.send_bytes(b"late").await, Err(SendError::PeerClosed));
        pair.ba.close().await.unwrap();
        pair.ab.close().await.unwrap();
    });
}

#[test]
fn both_sides_can_close_at_once() {
    for seed in 0..50 {
        on_session(Sim::new().seed(seed), &options(), async |net, pair| {
            let (sent, back) = join(pair.ab.send_bytes(&[1; 9000]), pair.ba.send_bytes(&[2; 10])).await;
            sent.unwrap();
            back.unwrap();
            let start = net.now();
            try_join(pair.ab.close(), pair.ba.close()).await.unwrap();
            assert!(net.now() - start < Duration::from_millis(1), "closing waited for a timeout");
            assert_eq!(pair.ba.recv().await.unwrap().unwrap().len(), 9000);
            assert_eq!(pair.ab.recv().await.unwrap().unwrap().len(), 10);
            assert!(pair.ab.recv().await.unwrap().is_none());
        });
    }
}

/// Catches a `close` that waits for answers of a peer that has everything and is gone, and a side that reads on while closing and
/// waits for a message that was announced and will not come.
#[test]
fn closing_while_the_peer_talks_does_not_wait_for_a_timeout() {
    for seed in 0..60 {
        on_session(Sim::new().seed(seed), &options(), async |net, pair| {
            let message = vec![1; seed as usize * 400];
            let talk = async {
                let sends = (0..4).map(async |_| while pair.ba.send_bytes(&message).await.is_ok() {});
                join_all(sends).await;
            };
            let listen = async { while pair.ba.recv().await.unwrap().is_some() {} };
            let close = async {
                for _ in 0..60 + seed {
                    pair.ab.recv().await.unwrap();
                }
                let start = net.now();
                let read = async { while pair.ab.recv().await.unwrap().is_some() {} };
                join(pair.ab.close(), read).await.0.unwrap();
                assert!(net.now() - start < Duration::from_millis(1), "seed {seed}");
            };
            join(join(talk, listen), close).await;
        });
    }
}

/// Catches an end that overtakes the bulk messages before it.
#[test]
fn messages_sent_to_a_closing_side_arrive() {
    let arrived = (0..40).map(|seed| {
        on_session(Sim::new().seed(seed), &options(), async |net, pair| {
            let sends = (0..12).map(async |_| pair.ba.send_bytes(&vec![1; 300_000]).await.is_ok());
            let close = async {
                net.sleep(Duration::from_micros(seed * 9)).await;
                pair.ab.close().await.unwrap();
                let mut read = 0;
                while pair.ab.recv().await.unwrap().is_some() {
                    read += 1;
                }
                read
            };
            let (sent, read) = join(join_all(sends), close).await;
            assert_eq!(read, sent.into_iter().filter(|sent| *sent).count(), "seed {seed}");
            read
        })
    });
    assert!(arrived.sum::<usize>() > 40, "some messages are sent before the side closes");
}

/// Catches memory that bulk messages take and that the handshake of another peer needs.
#[test]
fn a_peer_can_connect_while_others_fill_the_memory() {
    on_session(Sim::new(), &options().max_peers(2).receive_memory(6 << 20), async |net, pair| {
        for _ in 0..10 {
            pair.ab.try_send(zeros(&pair.ab, 1 << 20).await).unwrap();
        }
        net.sleep(Duration::from_millis(10)).await;
        let _second = connect(&pair.a, &pair.b).await.unwrap();
        let third = connect(&pair.a, &pair.b).await;
        assert!(matches!(third, Err(ConnectError::Memory)), "{third:?}");
    });
}

/// Catches a window, and parts of messages, that exceed the queues which a device grants.
#[test]
fn a_device_with_short_queues_is_given_what_it_takes() {
    let mut model = Model::default();
    model.caps.max_queue_frames = 100;
    on_session(Sim::new().model(model), &options(), async |_, pair| {
        let read = async { while pair.ba.recv().await.unwrap().is_some() {} };
        let send = async {
            for len in (0..300).map(|_| 10).chain([1 << 20; 5]) {
                pair.ab.send_bytes(&vec![1; len]).await.unwrap();
            }
            pair.ab.close().await.unwrap();
        };
        join(send, read).await;
    });
}

/// Catches messages without a place that are sent, lost with their lease, or kept waiting, although the peer has closed.
#[test]
fn messages_that_the_peer_does_not_take_any_more_are_refused_with_their_lease() {
    on_session(Sim::new(), &options(), async |_, pair| {
        // More than the share of a session takes in.
        let sends = (0..200).map(|_| async {
            let lease = zeros(&pair.ba, 10).await;
            pair.ba.send(lease).await
        });
        let close = async {
            pair.ab.close().await.unwrap();
            // Nothing is read before.
            let mut read = 0;
            while pair.ab.recv().await.unwrap().is_some() {
                read += 1;
            }
            read
        };
        let (outcomes, read) = join(join_all(sends), close).await;
        let refused: Vec<_> = outcomes.into_iter().filter_map(Result::err).collect();
        assert!(!refused.is_empty());
        assert_eq!(read, 200 - refused.len());
        for unsent in refused {
            assert_eq!(unsent.error, SendError::PeerClosed);
            assert_eq!(unsent.lease.expect("the lease comes back").len(), 10);
        }
        assert_eq!(pair.ba.close().await, Ok(()));
    });
}

/// Catches an orderly end that reports a posted send as failed because the completion of the send is still to come.
#[test]
fn sends_that_have_not_completed_when_the_peer_closes_have_arrived() {
    const COMPLETION: Duration = Duration::from_millis(50);
    let mut model = Model::tb5();
    model.timing.send_completion_ns = COMPLETION.as_nanos() as u64;
    on_session(Sim::new().model(model), &options(), async |net, pair| {
        let start = net.now();
        let (small, long) = (zeros(&pair.ba, 10).await, zeros(&pair.ba, 100_000).await);
        let send = async {
            let (small, long) = join(pair.ba.send(small).delivered(), pair.ba.send(long)).await;
            assert_eq!((small.unwrap().len(), long.unwrap().len()), (10, 100_000));
            assert!(net.now() - start >= COMPLETION, "the device read the memory until then");
        };
        let receive_and_close = async {
            for len in [10, 100_000] {
                assert_eq!(pair.ab.recv().await.unwrap().unwrap().len(), len);
            }
            pair.ab.close().await.unwrap();
            assert!(net.now() - start < COMPLETION, "nothing else waited for the completions");
        };
        join(send, receive_and_close).await;
    });
}

/// Catches messages that were read, and whose room the sender never gets back.
#[test]
fn a_reader_that_pauses_holds_the_sender_back_and_loses_nothing() {
    on_session(Sim::new(), &options().max_peers(1).receive_memory(6 << 20), async |net, pair| {
        let send = async {
            for number in 0..400_usize {
                let len = if number % 4 == 0 { 1 << 20 } else { 8 };
                let mut lease = zeros(&pair.ab, len).await;
                lease[..8].copy_from_slice(&number.to_le_bytes());
                drop(pair.ab.send(lease).await.unwrap());
            }
            pair.ab.close().await.unwrap();
        };
        let receive = async {
            for number in 0..400_usize {
                if number % 50 == 0 {
                    net.sleep(Duration::from_secs(20)).await;
                }
                let message = pair.ba.recv().await.unwrap().unwrap();
                assert_eq!(message[..8], number.to_le_bytes());
            }
            assert!(pair.ba.recv().await.unwrap().is_none());
        };
        join(send, receive).await;
    });
}

/// Catches memory for sending and for receiving that is one: both fill all of it with messages for each other before either reads,
/// and a session that gets less than half of the memory.
#[test]
fn peers_that_send_everything_before_they_read_do_not_lock_up() {
    let options = options().max_peers(1).send_memory(4 << 20).receive_memory(8 << 20);
    on_session(Sim::new(), &options, async |_, pair| {
        let side = async |session: &Session<_>| {
            let sends = (0..4).map(|_| async {
                let lease = zeros(session, 1 << 20).await;
                drop(session.send(lease).await.unwrap());
            });
            join_all(sends).await;
            for _ in 0..4 {
                assert_eq!(session.recv().await.unwrap().unwrap().len(), 1 << 20);
            }
        };
        join(side(&pair.ab), side(&pair.ba)).await;
    });
}

/// Catches a limit that is ignored below what one frame carries.
#[test]
fn a_limit_on_messages_holds_however_short_it_is() {
    for max in [0, 1, 100, 4031, 4032, 4033] {
        Sim::new().run(async |net| {
            let (a, b) = (node(&net, "a", &options()), node(&net, "b", &options().max_message(max)));
            let (ab, ba) = connect(&a, &b).await.unwrap();
            assert_eq!(ab.max_message(), max);
            let refused = ab.send_bytes(&vec![1; max + 1]).await.unwrap_err();
            assert_eq!(refused, SendError::TooLong { len: max + 1, max });
            let (sent, received) = join(ab.send_bytes(&vec![1; max]), ba.recv()).await;
            sent.unwrap();
            assert_eq!(received.unwrap().unwrap().len(), max);
            ba.send_bytes(&vec![1; max + 1]).await.unwrap();
        });
    }
}

/// Catches a refused message whose lease is dropped.
#[test]
fn messages_that_cannot_be_sent_come_back() {
    on_session(Sim::new(), &options().max_message(1 << 20), async |_, pair| {
        let max = pair.ab.max_message();
        assert_eq!(max, 1 << 20);
        let lease = zeros(&pair.ab, max + 1).await;
        let unsent = pair.ab.send(lease).await.unwrap_err();
        assert_eq!(unsent.error, SendError::TooLong { len: max + 1, max });
        assert_eq!(unsent.lease.unwrap().len(), max + 1);

        let foreign = pair.b.alloc(5).await.unwrap();
        let unsent = pair.ab.send(foreign).await.unwrap_err();
        assert_eq!(unsent.error, SendError::ForeignLease);
        assert!(unsent.lease.is_some());
        drop(unsent);

        let total = pair.a.pool_stats().send.total_bytes;
        let too_large = AllocError::TooLarge { len: total + 1, max: total };
        assert_eq!(pair.ab.alloc(total + 1).await.unwrap_err(), too_large);
        assert!(pair.a.pool_stats().send.free_bytes == total);
    });
}

/// Catches sessions that wait for a task which the runtime has dropped, or that blame this side for it.
#[test]
fn a_runtime_that_ends_takes_its_sessions_along() {
    let ab = Sim::new().run(async |net| connected(&net, &options()).await).value.ab;
    Sim::new().run(async |_| {
        let lost = SessionError::RuntimeGone;
        assert_eq!(ab.recv().await.unwrap_err(), RecvError::Lost(lost.clone()));
        assert_eq!(ab.send_bytes(b"").await, Err(SendError::Lost(lost)));
    });
}
