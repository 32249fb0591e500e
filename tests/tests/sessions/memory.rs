//! Receive memory: a task that waits for a message gets it, however much is left unread or kept elsewhere

use std::time::Duration;

use futures::future::{join, join_all};
use rdma_async::time::timeout;
use rdma_async::{Lease, Message, RecvError, Session};
use rdma_sim::{Sim, SimDevice};
use rdma_tests::{Pair, begun, connect, message, node, on_session, options, stream_of, zeros};

const MIB: usize = 1 << 20;

/// Sends long and short messages, which the other side reads
async fn exchange(from: &Session<SimDevice>, to: &Session<SimDevice>) {
    let lens = [68_545, 64, 68_544, 4 * MIB, 300_000, 4 * MIB];
    let send = async {
        for (number, len) in lens.into_iter().enumerate() {
            from.send_bytes(&message(number, len)).await.unwrap();
        }
    };
    let receive = async {
        for (number, len) in lens.into_iter().enumerate() {
            assert!(*to.recv().await.unwrap().unwrap() == message(number, len), "message {number}");
        }
    };
    join(send, receive).await;
}

/// A lease with these bytes
async fn filled(session: &Session<SimDevice>, bytes: &[u8]) -> Lease {
    let mut lease = session.alloc(bytes.len()).await.unwrap();
    lease.extend_from_slice(bytes);
    lease
}

/// Another session with the same peer
async fn another(pair: &Pair) -> (Session<SimDevice>, Session<SimDevice>) {
    let ab = pair.ab.open().unwrap();
    (ab, pair.b.accept().await.unwrap())
}

/// Regression: the first long message of each stream always got memory, until nobody else had any.
#[test]
fn streams_that_nobody_reads_leave_memory_for_those_that_wait() {
    for (streams, len) in [(4, 4 * MIB), (8, 2 * MIB), (16, MIB), (16, 68_545)] {
        for count in [1, 3, 40] {
            let options = options().receive_memory(16 * MIB).send_memory(64 * MIB);
            on_session(Sim::new(), &options, async |net, pair| {
                let mut unread = Vec::new();
                for _ in 0..streams {
                    let stream = stream_of(&pair.ab, &pair.ba).await;
                    for _ in 0..count.min(48 * MIB / len / streams) {
                        stream.0.try_send(zeros(&pair.ab, len).await).unwrap();
                    }
                    unread.push(stream);
                }
                net.sleep(Duration::from_millis(20)).await;
                let other = another(&pair).await;
                for [from, to] in [[&pair.ab, &pair.ba], [&other.0, &other.1], [&pair.ba, &pair.ab]] {
                    exchange(from, to).await;
                }
                // What was not read is all there, in whatever order it is read now.
                for (_, nobody) in unread.iter().rev() {
                    assert_eq!(nobody.recv().await.unwrap().unwrap().len(), len);
                }
            });
        }
    }
}

/// Regression: where the memory is for one message, streams that were read in another order than they were written stalled.
#[test]
fn memory_for_one_message_suffices_for_any_order_of_reading() {
    let options = options().max_message(MIB).receive_memory(MIB).send_memory(32 * MIB);
    on_session(Sim::new(), &options, async |net, Pair { ab, ba, .. }| {
        let mut streams = Vec::new();
        for _ in 0..6 {
            let stream = stream_of(&ab, &ba).await;
            for number in 0..4 {
                stream.0.send_bytes(&[number]).await.unwrap();
                stream.0.try_send(zeros(&ab, MIB - usize::from(number)).await).unwrap();
            }
            streams.push(stream);
        }
        net.sleep(Duration::from_millis(20)).await;
        for number in 0..4 {
            for (_, to) in streams.iter().rev() {
                assert_eq!(*to.recv().await.unwrap().unwrap(), [number]);
                assert_eq!(to.recv().await.unwrap().unwrap().len(), MIB - usize::from(number));
            }
        }
    });
}

/// Catches a message for which only [`Stream::try_recv`](rdma_async::Stream::try_recv) asks, and that never gets memory.
#[test]
fn asking_without_waiting_is_asking() {
    let options = options().max_message(MIB).receive_memory(MIB);
    on_session(Sim::new(), &options, async |net, Pair { ab, ba, .. }| {
        for _ in 0..3 {
            ab.try_send(zeros(&ab, MIB).await).unwrap();
        }
        for _ in 0..3 {
            let mut tries = 0;
            let message = loop {
                match ba.try_recv() {
                    Err(RecvError::WouldBlock) => net.sleep(Duration::from_millis(1)).await,
                    received => break received.unwrap().unwrap(),
                }
                tries += 1;
                assert!(tries < 10, "the message comes");
            };
            assert_eq!(message.len(), MIB);
        }
    });
}

/// Catches an application that asks, or drops a stream, and is noticed only with the next heartbeat.
#[test]
fn asking_for_a_message_is_noticed_at_once() {
    let options = options().max_message(MIB).receive_memory(MIB);
    on_session(Sim::new(), &options, async |net, Pair { ab, ba, .. }| {
        let quickly = Duration::from_micros(200);
        for round in 0..20 {
            ab.try_send(zeros(&ab, MIB).await).unwrap();
            net.sleep(Duration::from_micros(3700 + 10 * round)).await;
            let received = timeout(&*net.runtime(), quickly, ba.recv()).await;
            assert_eq!(received.expect("it comes quickly").unwrap().unwrap().len(), MIB);
            let (from, to) = stream_of(&ab, &ba).await;
            let mut send = begun(from.send(zeros(&ab, MIB).await).delivered()).await;
            net.sleep(Duration::from_micros(3700 + 10 * round)).await;
            assert!(futures::poll!(send.as_mut()).is_pending());
            drop(to);
            timeout(&*net.runtime(), quickly, send).await.expect("it is thrown away quickly").unwrap();
        }
    });
}

/// Catches long messages of a dropped stream that wait for a reader.
#[test]
fn long_messages_of_a_dropped_stream_are_thrown_away() {
    let options = options().max_message(MIB).receive_memory(MIB);
    on_session(Sim::new(), &options, async |net, Pair { ab, ba, .. }| {
        let (from, to) = stream_of(&ab, &ba).await;
        let sends = join_all([from.send(zeros(&ab, MIB).await), from.send(zeros(&ab, MIB).await)]);
        let ends = async {
            net.sleep(Duration::from_millis(5)).await;
            drop(to);
        };
        let (_sent, ()) = join(sends, ends).await;
        from.finish();
        let content = message(0, MIB);
        let (sent, received) = join(ab.send_bytes(&content), ba.recv()).await;
        sent.unwrap();
        assert!(*received.unwrap().unwrap() == content);
    });
}

/// What an application does with messages that it does not drop
#[derive(Clone, Copy, Debug)]
enum Keeps {
    Messages,
    Leases,
    Answers,
}

/// Receives `len` bytes, and keeps what it received
async fn keep(keeps: Keeps, from: &Session<SimDevice>, to: &Session<SimDevice>, len: usize) -> Kept {
    let lease = zeros(from, len).await;
    match keeps {
        Keeps::Messages | Keeps::Leases => {
            let (sent, received) = join(from.send(lease), to.recv()).await;
            sent.unwrap();
            let message = received.unwrap().unwrap();
            match keeps {
                Keeps::Messages => Kept::Message(message),
                _ => Kept::Lease(message.into_lease().unwrap()),
            }
        }
        Keeps::Answers => {
            let serve = async {
                from.accept_stream().await.unwrap().unwrap().answer(async |_| lease).await.unwrap();
            };
            let (answer, ()) = join(to.request(zeros(to, 1).await), serve).await;
            Kept::Message(answer.unwrap())
        }
    }
}

#[expect(dead_code, reason = "kept, not looked at")]
enum Kept {
    Message(Message),
    Lease(Lease),
}

/// Regression: leases made of messages, and answers, counted for nobody, and took all memory.
#[test]
fn a_session_that_keeps_what_it_gets_stalls_only_itself() {
    for keeps in [Keeps::Messages, Keeps::Leases, Keeps::Answers] {
        for len in [4 * MIB, MIB, 68_545, 68_544, 64] {
            on_session(Sim::new(), &options().receive_memory(16 * MIB), async |net, pair| {
                let (other, runtime) = (another(&pair).await, net.runtime());
                let mut kept = Vec::new();
                // A stream's share of short messages, which answers on streams of their own do not count towards, and half of the memory
                // for long ones.
                let is_bounded = len > 68_544 || !matches!(keeps, Keeps::Answers);
                let stalled = loop {
                    let next = Box::pin(keep(keeps, &pair.ab, &pair.ba, len));
                    match timeout(&*runtime, Duration::from_millis(5), next).await {
                        Some(next) => kept.push(next),
                        None => break true,
                    }
                    if kept.len() > 400 {
                        break false;
                    }
                };
                assert_eq!(stalled, is_bounded, "{keeps:?} of {len} bytes: {} kept", kept.len());
                assert!(
                    !is_bounded || kept.len() * len <= 8 * MIB,
                    "{keeps:?}: {} of {len} bytes",
                    kept.len()
                );
                exchange(&other.0, &other.1).await;
                kept.clear();
                exchange(&other.0, &other.1).await;
                keep(keeps, &pair.ab, &pair.ba, len).await;
            });
        }
    }
}

/// Regression: messages that many sessions keep took all memory, and those of a session that keeps none waited for ever.
#[test]
fn sessions_that_keep_messages_leave_memory_for_one_that_keeps_none() {
    for (sessions, len) in [(6, 4 * MIB), (24, MIB), (300, 68_545)] {
        for is_other_peer in [false, true] {
            let options = options().receive_memory(16 * MIB).max_sessions(400);
            on_session(Sim::new(), &options, async |net, pair| {
                let second = node(&net, "a", &options);
                let (idle, runtime) = (another(&pair).await, net.runtime());
                let idle = if is_other_peer { connect(&second, &pair.b).await.unwrap() } else { idle };
                let (mut keepers, mut kept) = (Vec::new(), Vec::new());
                for _ in 0..sessions {
                    let keeper = another(&pair).await;
                    // Sessions that keep nothing are not stalled.
                    kept.push(keep(Keeps::Messages, &keeper.0, &keeper.1, len).await);
                    keepers.push(keeper);
                }
                exchange(&idle.0, &idle.1).await;
                exchange(&idle.1, &idle.0).await;
                // One that keeps a message is, wherever that is.
                let stalled = [&keepers[0], &keepers[sessions - 1]];
                for (from, to) in stalled {
                    let next = Box::pin(keep(Keeps::Messages, from, to, len));
                    assert!(timeout(&*runtime, Duration::from_millis(5), next).await.is_none());
                }
                kept.clear();
                for (from, to) in stalled {
                    assert_eq!(to.recv().await.unwrap().unwrap().len(), len);
                    exchange(from, to).await;
                }
            });
        }
    }
}

/// Regression: the memory that a message on the heap stands for came back, and no task looked for what waited for it.
#[test]
fn a_message_that_waits_is_noticed_when_one_on_the_heap_is_dropped() {
    on_session(Sim::new(), &options().receive_memory(16 * MIB), async |net, pair| {
        let (mut keepers, mut kept) = (Vec::new(), Vec::new());
        for _ in 0..6 {
            let keeper = another(&pair).await;
            kept.push(keep(Keeps::Messages, &keeper.0, &keeper.1, 4 * MIB).await);
            keepers.push(keeper);
        }
        // The last one is on the heap. All others stay.
        let (from, to) = &keepers[5];
        from.try_send(zeros(from, 4 * MIB).await).unwrap();
        let mut next = begun(to.recv()).await;
        net.sleep(Duration::from_millis(20)).await;
        assert!(futures::poll!(next.as_mut()).is_pending());
        kept.pop();
        let next = timeout(&*net.runtime(), Duration::from_millis(1), next).await;
        assert_eq!(next.expect("it comes quickly").unwrap().unwrap().len(), 4 * MIB);
    });
}

/// Catches memory that one peer leaves unread, and that the sessions of another peer need.
#[test]
fn a_peer_whose_messages_are_not_read_stalls_no_other_peer() {
    let options = options().receive_memory(16 * MIB);
    on_session(Sim::new(), &options, async |net, pair| {
        let second = node(&net, "a", &options);
        let (from, to) = connect(&second, &pair.b).await.unwrap();
        for _ in 0..4 {
            pair.ab.try_send(zeros(&pair.ab, 4 * MIB).await).unwrap();
            let third = pair.ab.open().unwrap();
            third.try_send(zeros(&third, MIB).await).unwrap();
            std::mem::forget(third);
        }
        net.sleep(Duration::from_millis(20)).await;
        exchange(&from, &to).await;
        exchange(&to, &from).await;
    });
}

/// Catches short messages that are kept and take what a path of another peer needs.
#[test]
fn a_peer_can_connect_whatever_messages_are_kept() {
    let options = options().max_peers(2).max_sessions(1).stream_share(128);
    on_session(Sim::new(), &options, async |_, Pair { a, b, ab, ba }| {
        let mut kept = Vec::new();
        for _ in 0..1000 {
            kept.push(keep(Keeps::Answers, &ab, &ba, 64).await);
        }
        let (from, to) = connect(&a, &b).await.unwrap();
        exchange(&from, &to).await;
    });
}

/// Regression: a task that had given up waiting still counted as one that waits, and took the memory that is kept for others.
#[test]
fn a_task_that_has_given_up_takes_no_precedence() {
    on_session(Sim::new(), &options().receive_memory(16 * MIB), async |net, pair| {
        let mut streams = Vec::new();
        for _ in 0..6 {
            let (from, to) = stream_of(&pair.ab, &pair.ba).await;
            drop(begun(to.recv()).await);
            streams.push((from, to));
        }
        for (from, _) in &streams {
            from.try_send(zeros(&pair.ab, 2 * MIB).await).unwrap();
        }
        net.sleep(Duration::from_millis(20)).await;
        let other = another(&pair).await;
        exchange(&other.0, &other.1).await;
    });
}

/// Regression: the room of messages that were dropped after their stream was lost, and what the peer still sent waited for ever.
#[test]
fn messages_that_outlive_their_stream_give_their_room_back() {
    on_session(Sim::new(), &options(), async |net, Pair { ab, ba, .. }| {
        for _ in 0..40 {
            let (from, to) = stream_of(&ab, &ba).await;
            let mut kept = Vec::new();
            for number in 0..7 {
                from.send_bytes(&message(number, 68_544)).await.unwrap();
                kept.push(to.recv().await.unwrap().unwrap());
            }
            drop(to);
            // On its way when the stream is dropped, or refused.
            let send = begun(from.send(zeros(&ab, 68_544).await).delivered()).await;
            drop(kept);
            let sent = timeout(&*net.runtime(), Duration::from_millis(5), send).await;
            drop(sent.expect("it is thrown away"));
            drop(from);
        }
        net.sleep(Duration::from_millis(5)).await;
        assert_eq!(ab.snapshot().streams, 1);
    });
}

/// Regression: messages of tasks that had given up waiting kept the memory that is kept free for others, and a fifth session waited for
/// ever. Catches a `Drop for Recv` that leaves the message there, whether it has arrived before or comes later.
#[test]
fn messages_of_tasks_that_gave_up_waiting_leave_the_reserve() {
    let options = options().receive_memory(16 * MIB);
    for micros in [0, 20, 100, 200, 2000] {
        on_session(Sim::new(), &options, async |net, pair| {
            let mut sessions = Vec::new();
            for number in 0..6 {
                let (from, to) = another(&pair).await;
                let lease = filled(&from, &message(number, 4 * MIB)).await;
                let recv = begun(to.recv()).await;
                from.try_send(lease).unwrap();
                net.sleep(Duration::from_micros(micros)).await;
                drop(recv);
                net.sleep(Duration::from_millis(2)).await;
                sessions.push((from, to));
            }
            let (from, to) = another(&pair).await;
            let second = Duration::from_secs(1);
            timeout(&*net.runtime(), second, exchange(&from, &to)).await.expect("there is memory");
            for (number, (_, to)) in sessions.iter().enumerate().rev() {
                assert!(*to.recv().await.unwrap().unwrap() == message(number, 4 * MIB), "message {number}");
            }
        });
    }
}
