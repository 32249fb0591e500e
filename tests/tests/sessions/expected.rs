//! Messages that the receiver expects: they need no grant after they are announced

use std::time::Duration;

use futures::future::{join, join_all};
use rdma_async::{Priority, Stream, Time};
use rdma_sim::{Model, Net, Sim, SimDevice, Topology};
use rdma_tests::{
    DEVICE, Pair, begun, connect, message, node, node_over, on_session, options, stream_of, zeros,
};

use super::exchange;

pub(super) const MIB: usize = 1 << 20;
/// Two ways over an idle cable take 11.6 µs, by the doorbell, the propagation and the delivery of the model, and some of it overlaps.
const SAVED: Duration = Duration::from_micros(11);

/// A pause in which grants reach the peer
pub(super) async fn rest(net: &Net) {
    net.sleep(Duration::from_micros(100)).await;
}

/// How long it takes until a message of `len` bytes has arrived
pub(super) async fn time_of(net: &Net, [from, to]: [&Stream<SimDevice>; 2], len: usize) -> Duration {
    let start = net.now();
    let (sent, got) = join(from.send_bytes(&message(1, len)), to.recv()).await;
    sent.unwrap();
    assert!(*got.unwrap().expect("a message") == message(1, len));
    net.now() - start
}

/// Catches an expected message that waits for a grant all the same: announcement and grant are two ways.
#[test]
fn an_expected_message_saves_two_ways() {
    for len in [68_545, 100_000, MIB, 4 * MIB] {
        on_session(Sim::new(), &options(), async |net, pair| {
            let (a, b) = (pair.ab.main_stream(), pair.ba.main_stream());
            for [from, to] in [[a, b], [b, a]] {
                rest(&net).await;
                let without = time_of(&net, [from, to], len).await;
                rest(&net).await;
                assert_eq!(to.expect(len, 0..1), 1);
                rest(&net).await;
                let with = time_of(&net, [from, to], len).await;
                assert!(with + SAVED <= without, "{len} bytes: {with:?}, {without:?} without");
            }
        });
    }
}

/// Catches a device on which what is expected is lost, or comes in another's place: also those that take few requests at once.
#[test]
fn expected_or_not_messages_arrive_on_every_device() {
    for name in Model::PROFILES {
        let model = Model::profile(name).expect("a profile");
        for expected in [68_545, 300_000, 2 * MIB] {
            on_session(Sim::new().model(model.clone()), &options(), async |net, pair| {
                for stream in [pair.ab.main_stream(), pair.ba.main_stream()] {
                    stream.expect(expected, 0..9);
                }
                rest(&net).await;
                exchange(&pair, &[expected, 1, expected, 68_545, 300_000, 0, 2 * MIB, expected]).await;
            });
        }
    }
}

/// Catches lengths that the bulk lane does not take, a stream that expects without end, and one that expects what was read.
#[test]
fn few_messages_are_expected_and_only_long_ones() {
    on_session(Sim::new(), &options(), async |net, pair| {
        let (from, to) = (pair.ab.main_stream(), pair.ba.main_stream());
        assert!([0, 1, 68_544, 4 * MIB + 1, usize::MAX].into_iter().all(|len| to.expect(len, 0..9) == 0));
        assert_eq!([to.expect(68_545, 0..0), to.expect(68_545, 0..1), to.expect(68_545, 0..1)], [0, 1, 0]);
        from.send_bytes(&message(1, 68_545)).await.unwrap();
        rest(&net).await;
        assert_eq!(to.expect(68_545, 0..1), 0, "it is here, and unread");
        assert!(to.recv().await.unwrap().is_some());
        assert_eq!([to.expect(68_545, 0..3), to.expect(68_545, 0..9), to.expect(68_545, 0..9)], [3, 1, 0]);
        let all = pair.a.pool_stats().receive.free_bytes;
        pair.ba.reset(1);
        assert_eq!(to.expect(68_545, 0..9), 0);
        assert!(from.recv().await.is_err());
        drop(pair.b);
        rest(&net).await;
        assert_eq!(from.expect(68_545, 0..9), 0, "the peer is gone");
        assert_eq!(pair.a.pool_stats().receive.free_bytes, all);
    });
}

/// Catches a place that is counted wrongly, and a message that waits because nothing is known of the one before it.
#[test]
fn a_message_behind_a_header_is_expected() {
    for len in [100_000, MIB, 4 * MIB] {
        on_session(Sim::new(), &options(), async |net, pair| {
            let (from, to) = (pair.ab.main_stream(), pair.ba.main_stream());
            rest(&net).await;
            let mut took = Vec::new();
            for expects in [false, true, false, true] {
                assert_eq!(expects.then(|| to.expect(len, 1..2)), expects.then_some(1));
                rest(&net).await;
                time_of(&net, [from, to], 64).await;
                took.push(time_of(&net, [from, to], len).await);
                rest(&net).await;
            }
            let [without, with, again_without, again] = took[..] else { panic!("four times") };
            assert!(with + SAVED <= without && again + SAVED <= again_without, "{len} bytes: {took:?}");
        });
    }
}

/// Catches a message that finds no memory, because it is expected behind it.
#[test]
fn what_is_expected_behind_a_long_message_does_not_keep_it_out() {
    for memory in [4, 8, 12, 32] {
        let options = options().receive_memory(memory * MIB).send_memory(64 * MIB);
        for (first, expected) in [(4 * MIB, 4 * MIB), (4 * MIB, MIB), (MIB, 4 * MIB), (68_545, MIB)] {
            on_session(Sim::new(), &options, async |net, pair| {
                let (from, to) = (pair.ab.main_stream(), pair.ba.main_stream());
                for reads_late in [false, true] {
                    to.expect(expected, 1..5);
                    rest(&net).await;
                    let lens = [first, expected, expected, first, expected];
                    for len in lens {
                        from.try_send(zeros(&pair.ab, len).await).unwrap();
                    }
                    if reads_late {
                        net.sleep(Duration::from_secs(1)).await;
                    }
                    for len in lens {
                        assert_eq!(to.recv().await.unwrap().unwrap().len(), len);
                    }
                }
            });
        }
    }
}

/// Which stream expects messages while a task keeps some and waits for another one
#[derive(Clone, Copy, Debug)]
enum Expecting {
    None,
    /// A stream of the same session
    Stream,
    /// Another session with the same peer
    Session,
    /// A session with another peer
    Peer,
}

/// Regression: a task that kept a message waited for the next one without an end, because memory was taken for what another stream expected.
#[test]
fn memory_of_expected_messages_is_given_to_a_task_that_waits() {
    const MESSAGE: usize = MIB;
    let options = options().max_message(MESSAGE).max_peers(2);
    // In quarters of a message: what there is, the messages that are kept, and the next one.
    for (memory, kept, next) in [(8, &[2][..], 2), (8, &[1, 1], 2), (10, &[1], 4), (12, &[1, 1, 1, 1], 2)] {
        let options = options.clone().receive_memory(memory * MESSAGE / 4);
        for expecting in [Expecting::None, Expecting::Stream, Expecting::Session, Expecting::Peer] {
            for is_granted in [false, true] {
                let topology = Topology::line(3, 2).unwrap();
                let run = Sim::new().topology(topology).time_limit(Time::ZERO + Duration::from_secs(20));
                let run = run.run(async |net| {
                    let b = node_over(&net, "b", &["rdma_en2", "rdma_en3"], &options);
                    let [a, c] = ["a", "c"].map(|host| node(&net, host, &options));
                    let (ab, ba) = connect(&a, &b).await.unwrap();
                    let (cb, bc) = connect(&c, &b).await.unwrap();
                    let (ab_other, ba_other) = (ab.open().unwrap(), b.accept().await.unwrap());
                    let (from_stream, stream) = stream_of(&ab, &ba).await;
                    let idle = match expecting {
                        Expecting::None => None,
                        Expecting::Stream => Some((&from_stream, &stream)),
                        Expecting::Session => Some((ab_other.main_stream(), ba_other.main_stream())),
                        Expecting::Peer => Some((cb.main_stream(), bc.main_stream())),
                    };
                    if let Some((_, to)) = idle {
                        assert!(to.expect(MESSAGE / 2, 0..4) > 0, "there is memory");
                    }
                    if is_granted {
                        rest(&net).await;
                    }
                    let (mut held, start) = (Vec::new(), net.now());
                    for quarters in kept.iter().chain([&next]) {
                        ab.try_send(zeros(&ab, quarters * MESSAGE / 4).await).unwrap();
                        held.push(ba.recv().await.unwrap().unwrap());
                    }
                    let took = net.now() - start;
                    assert!(took < Duration::from_millis(1), "{expecting:?}, {is_granted}: {took:?}");
                    drop(held);
                    if let Some((from, to)) = idle {
                        time_of(&net, [from, to], MESSAGE / 2).await;
                        rest(&net).await;
                        time_of(&net, [from, to], MESSAGE / 2).await;
                    }
                });
                assert_eq!(run.findings, []);
            }
        }
    }
}

/// Catches a shortage that ends too early or never: when the task gives up, memory comes free, or the session ends.
#[test]
fn a_stream_expects_nothing_while_a_task_waits_for_memory() {
    for ending in 0..3 {
        let options = options().max_message(MIB).receive_memory(3 * MIB).max_peers(2);
        let sim = Sim::new().topology(Topology::line(3, 2).unwrap());
        sim.time_limit(Time::ZERO + Duration::from_secs(60)).run(async |net| {
            let b = node_over(&net, "b", &["rdma_en2", "rdma_en3"], &options);
            let [a, c] = ["a", "c"].map(|host| node(&net, host, &options));
            let (ab, ba) = connect(&a, &b).await.unwrap();
            let (cb, bc) = connect(&c, &b).await.unwrap();
            let mut held = Vec::new();
            for len in [600_000, 600_000, MIB] {
                ab.try_send(zeros(&ab, len).await).unwrap();
            }
            for _ in 0..2 {
                held.push(ba.recv().await.unwrap().unwrap());
            }
            // The next message finds no memory, and no task waits for it.
            rest(&net).await;
            let [one, other] = [stream_of(&cb, &bc).await, stream_of(&cb, &bc).await];
            assert_eq!(one.1.expect(100_000, 0..1), 1);
            let waiting = begun(ba.recv()).await;
            rest(&net).await;
            assert_eq!(other.1.expect(100_000, 0..1), 0, "a task waits");
            match ending {
                0 => drop(waiting),
                1 => {
                    held.clear();
                    assert_eq!(waiting.await.unwrap().unwrap().len(), MIB);
                }
                _ => {
                    ab.reset(1);
                    assert!(waiting.await.is_err());
                }
            }
            net.sleep(Duration::from_millis(1)).await;
            assert_eq!(other.1.expect(100_000, 0..1), 1, "ending {ending}");
        });
    }
}

/// Catches grants for a stream that the peer does not know yet, and that it answers before it does.
#[test]
fn a_side_that_opens_a_stream_may_expect_the_answer_at_once() {
    on_session(Sim::new(), &options(), async |net, pair| {
        for _ in 0..3 {
            let stream = pair.ba.open_stream(Priority::Normal).await.unwrap();
            assert_eq!(stream.expect(MIB, 0..1), 1);
            let opened = pair.ab.accept_stream().await.unwrap().expect("the session is open");
            rest(&net).await;
            let first = time_of(&net, [&opened, &stream], MIB).await;
            rest(&net).await;
            let without = time_of(&net, [&opened, &stream], MIB).await;
            assert!(first + SAVED <= without, "{first:?}, {without:?} without");
        }
    });
}

/// Regression: another message than the expected one was refused the memory that is kept free for it, and was waited for without an end.
///
/// Catches an expected message that keeps others of its stream from memory, or from a lease of the application.
#[test]
fn another_long_message_gets_memory_where_some_are_expected() {
    let options = options().receive_memory(8 * MIB).send_memory(64 * MIB);
    for expected in [68_545, MIB, 2 * MIB, 4 * MIB] {
        for len in [70_000, 3 * MIB, 4 * MIB] {
            on_session(Sim::new(), &options, async |net, pair| {
                let (from, to) = (pair.ab.main_stream(), pair.ba.main_stream());
                to.expect(expected, 0..9);
                rest(&net).await;
                time_of(&net, [from, to], len).await;
                // Two that are read late.
                to.expect(expected, 0..9);
                for number in 0..2 {
                    from.try_send(zeros(&pair.ab, len - number).await).unwrap();
                }
                net.sleep(Duration::from_secs(2)).await;
                let lease = pair.ba.alloc(1).await.unwrap();
                assert_eq!(to.recv_into(lease).await.unwrap().unwrap().len(), len);
                assert_eq!(to.recv().await.unwrap().unwrap().len(), len - 1);
            });
        }
    }
}

/// Catches expected messages of several sessions with one peer that take the shares of other peers, and memory of them that a dropped stream keeps.
#[test]
fn a_peer_is_expected_to_send_no_more_than_its_share() {
    let options = options().receive_memory(32 * MIB).max_peers(5);
    on_session(Sim::new(), &options, async |net, pair| {
        let all = pair.b.pool_stats().receive.free_bytes;
        let streams = join_all((0..3).map(|_| stream_of(&pair.ab, &pair.ba))).await;
        let mut sessions = Vec::new();
        for _ in 0..4 {
            sessions.push((pair.ab.open().unwrap(), pair.b.accept().await.unwrap()));
        }
        let expecting =
            streams.iter().map(|(_, to)| to).chain(sessions.iter().map(|(_, to)| to.main_stream()));
        let expected: usize = expecting.map(|stream| stream.expect(4 * MIB, 0..9)).sum();
        assert_eq!(expected, 4, "the other half is for four other peers");
        drop((streams, sessions));
        net.sleep(Duration::from_secs(5)).await;
        assert_eq!(pair.b.pool_stats().receive.free_bytes, all);
    });
}

/// Catches an expected message that is lost because it comes late, and a path that does not survive the wait.
#[test]
fn an_expected_message_may_come_after_hours() {
    on_session(Sim::new(), &options(), async |net, pair| {
        let (from, to) = (pair.ab.main_stream(), pair.ba.main_stream());
        for pause in [1, 60, 12 * 60] {
            to.expect(MIB, 0..2);
            net.sleep(Duration::from_secs(60 * pause)).await;
            time_of(&net, [from, to], MIB).await;
        }
    });
}

/// Catches memory that an expected message keeps from others, or for ever.
#[test]
fn what_is_expected_takes_no_memory_that_others_wait_for() {
    let options = options().receive_memory(16 * MIB).send_memory(64 * MIB);
    on_session(Sim::new(), &options, async |net, pair| {
        let all = pair.b.pool_stats().receive.free_bytes;
        let mut idle = Vec::new();
        for len in [68_545, MIB, 4 * MIB] {
            for _ in 0..4 {
                let (from, to) = stream_of(&pair.ab, &pair.ba).await;
                to.expect(len, 0..9);
                idle.push((from, to));
            }
        }
        assert!(pair.b.pool_stats().receive.free_bytes < all);
        let streams = join_all((0..4).map(|_| stream_of(&pair.ab, &pair.ba))).await;
        for (from, to) in &streams {
            time_of(&net, [from, to], 4 * MIB).await;
        }
        // Other messages come where messages are expected, or the end.
        for (number, (from, to)) in idle.iter().enumerate() {
            let len = [1, MIB + 1, 68_545, 4 * MIB][number % 4];
            time_of(&net, [from, to], len).await;
            from.finish();
            assert!(to.recv().await.unwrap().is_none());
        }
        rest(&net).await;
        assert_eq!(pair.b.pool_stats().receive.free_bytes, all);
    });
}

/// Catches memory that is used again while a device may write there, or that is not given back when the session ends.
#[test]
fn nothing_is_left_of_what_is_expected_when_a_cable_or_a_session_ends() {
    for ends in [false, true] {
        on_session(Sim::new(), &options(), async |net, pair| {
            let Pair { b, ab, ba, .. } = &pair;
            let all = b.pool_stats().receive.free_bytes;
            ba.main_stream().expect(MIB, 0..9);
            rest(&net).await;
            if ends {
                ab.reset(7);
                assert!(ba.recv().await.is_err());
            } else {
                net.inject(format!("at 0s a:{DEVICE} flap 3ms").parse().unwrap());
                net.sleep(Duration::from_secs(1)).await;
                time_of(&net, [ab.main_stream(), ba.main_stream()], MIB).await;
                let (from, to) = stream_of(ab, ba).await;
                from.send(zeros(ab, 2 * MIB).await).await.unwrap();
                drop(to.recv().await.unwrap());
                ab.reset(7);
                assert!(ba.recv().await.is_err());
            }
            net.sleep(Duration::from_secs(5)).await;
            assert_eq!(b.pool_stats().receive.free_bytes, all);
        });
    }
}
