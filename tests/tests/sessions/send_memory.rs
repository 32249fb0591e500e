//! Send memory: messages that wait on a stream which the peer does not read keep no other stream from sending

use std::time::Duration;

use futures::channel::oneshot;
use futures::future::{join, join_all, join3};
use rdma_async::time::timeout;
use rdma_async::{ByteStream, Node, NodeOptions, Priority, SendError, Session, SessionError};
use rdma_core::FRAME;
use rdma_sim::{LineRate, Model, Net, Sim, SimDevice, Topology};
use rdma_tests::{Pair, begun, connect, connected_over, message, node_over, on_session, options, stream_of};
use tokio::io::AsyncWriteExt as _;

use super::figures::cables;
use super::pairing::exchange_of;

const MIB: usize = 1 << 20;
/// Lengths around those at which a message goes another way.
const LENS: [usize; 8] = [0, 64, 4032, 4033, 68_544, 68_545, MIB, 4 * MIB];

/// All of the send memory of a node, in a lease
async fn all_memory(node: &Node<SimDevice>) -> rdma_async::Lease {
    node.alloc(node.pool_stats().send.total_bytes).await.unwrap()
}

fn models() -> [Model; 2] {
    [Model::tb5(), Model::roce()]
}

/// Each of `streams` streams gets `count` messages of `len` bytes that unread_end reads; then everything else goes on as before, and they are
/// read in the end.
async fn goes_on(net: &Net, pair: &Pair, streams: usize, count: usize, len: usize, others: &[&Sessions]) {
    let mut unread = Vec::new();
    for _ in 0..streams {
        unread.push(stream_of(&pair.ab, &pair.ba).await);
    }
    let mut waiting = Vec::new();
    for (from, _) in &unread {
        for number in 0..count {
            let from = from.clone();
            waiting.push(async move { from.send_bytes(&message(number, len)).await.unwrap() });
        }
    }
    let mut waiting = Box::pin(join_all(waiting));
    let has_sent = futures::poll!(waiting.as_mut()).map(drop);
    net.sleep(Duration::from_millis(5)).await;
    let context = format!("{streams} streams of {count} messages of {len} bytes: {}", pair.ab.snapshot());
    for (ab, ba) in others {
        let exchange = timeout(&*net.runtime(), Duration::from_millis(200), exchange_of(&LENS, ab, ba));
        assert!(exchange.await.is_some(), "{context}");
    }
    // A lease of half the memory, too.
    let half = pair.a.pool_stats().send.total_bytes / 2;
    assert!(pair.a.try_alloc(half).is_ok(), "{context}");
    let read = unread.iter().map(|(_, unread_end)| async {
        for number in 0..count {
            assert!(*unread_end.recv().await.unwrap().unwrap() == message(number, len), "{context}");
        }
    });
    let sent = async {
        if has_sent.is_pending() {
            waiting.await;
        }
    };
    join(sent, join_all(read)).await;
    assert_eq!(pair.a.pool_stats().send.free_bytes, 2 * half, "{context}");
}

type Sessions = (Session<SimDevice>, Session<SimDevice>);

/// Catches copies that take the memory of leases, or of the copies of other streams; one slot on the heap for all streams; a stream that
/// waits for memory of others although it has none; messages that change their order while they wait.
#[test]
fn unread_streams_keep_no_other_stream_session_or_peer_waiting() {
    for model in models() {
        for (streams, count) in [(1, 12), (7, 1), (15, 2)] {
            for len in [64, 68_544, 68_545, MIB, 4 * MIB] {
                let topology = Topology::mesh(3, 2).unwrap();
                Sim::new().model(model.clone()).topology(topology).sanitize(false).run(async |net| {
                    let ports = ["rdma_en2", "rdma_en3"];
                    let [a, b, c] = ["a", "b", "c"].map(|host| node_over(&net, host, &ports, &options()));
                    let (ab, ba) = connect(&a, &b).await.unwrap();
                    let peer = connect(&a, &c).await.unwrap();
                    let session = (ab.open().unwrap(), b.accept().await.unwrap());
                    let pair = Pair { a, b, ab, ba };
                    let main = (pair.ab.clone(), pair.ba.clone());
                    goes_on(&net, &pair, streams, count, len, &[&main, &session, &peer]).await;
                });
            }
        }
    }
}

/// Catches parts of a message on the heap that are copied where the device still reads another part, or where the next path cannot find
/// them; answers that stay paused on the next path.
#[test]
fn messages_on_the_heap_arrive_whatever_happens_to_the_cables() {
    for model in models() {
        for count in [1, 2] {
            for faults in [
                "",
                "at 300us a:rdma_en2 unplug; at 9ms a:rdma_en2 replug",
                "at 350us b:rdma_en2 lose 2",
                "at 400us b:rdma_en2 flap 5ms; at 9ms a:rdma_en2 flap 2ms",
                "at 300us b pause; at 30ms b resume",
            ] {
                let sim = Sim::new().model(model.clone()).topology(cables(&vec![LineRate::TB5; count]));
                let run = sim.run(async |net| {
                    let ports = &["rdma_en2", "rdma_en3"][..count];
                    let pair = connected_over(&net, ports, &options()).await;
                    let all = all_memory(&pair.a).await;
                    for fault in faults.split("; ").filter(|fault| !fault.is_empty()) {
                        net.inject(fault.parse().unwrap());
                    }
                    let lens = [4 * MIB, 68_545, 70_000, 64, 0, 3_000_001, 4033];
                    for round in 0..2 {
                        let send = async {
                            for (number, len) in lens.into_iter().enumerate() {
                                pair.ab.send_bytes(&message(number, len)).await.unwrap();
                            }
                        };
                        let receive = async {
                            for (number, len) in lens.into_iter().enumerate() {
                                let got = pair.ba.recv().await.unwrap().unwrap();
                                assert!(*got == message(number, len), "{round}: message {number}, {faults}");
                            }
                        };
                        join(send, receive).await;
                    }
                    drop(all);
                    assert!(pair.a.pool_stats().send.free_bytes == 16 * MIB);
                });
                assert!(run.findings.is_empty(), "{faults}: {:?}", run.findings);
            }
        }
    }
}

/// Catches staging that holds up the cable: one part at a time, or a pause that ends late.
#[test]
fn messages_on_the_heap_fill_the_cable() {
    for model in models() {
        on_session(Sim::new().model(model), &options(), async |net, pair| {
            let _all = all_memory(&pair.a).await;
            let (count, len) = (32, 4 * MIB);
            let bytes = vec![7; len];
            let start = net.now();
            let send = async {
                for _ in 0..count {
                    pair.ab.send_bytes(&bytes).await.unwrap();
                }
            };
            let receive = async {
                for _ in 0..count {
                    drop(pair.ba.recv().await.unwrap().unwrap());
                }
            };
            join(send, receive).await;
            let rate = (count * len) as f64 / (net.now() - start).as_secs_f64();
            let ceiling = LineRate::TB5.ceiling_bytes_per_second();
            assert!(rate >= 0.9 * ceiling, "{rate:.3e} of {ceiling:.3e}");
        });
    }
}

/// Catches a task that waits on although there is memory again, and one that keeps its place in a line after its end.
#[test]
fn tasks_that_wait_for_memory_go_on_when_there_is_some() {
    on_session(Sim::new(), &options(), async |net, pair| {
        net.inject("at 0s a:rdma_en2 unplug".parse().unwrap());
        net.sleep(Duration::from_millis(1)).await;
        let all = all_memory(&pair.a).await;
        let bytes = vec![1; 4 * MIB];
        let heap = begun(pair.ab.send_bytes(&bytes)).await;
        let mut sent = Vec::new();
        for number in 0..2 {
            let gives_up = begun(pair.ab.send_bytes(b"given up")).await;
            // A task of its own, which nothing else wakes.
            let (tell, told) = oneshot::channel();
            let session = pair.ab.clone();
            net.spawn(async move { tell.send(session.send_bytes(&[number]).await).unwrap() });
            net.sleep(Duration::from_nanos(1)).await;
            drop(gives_up);
            sent.push(told);
        }
        assert_eq!(pair.ab.snapshot().messages_in_flight, 1);
        drop(all);
        net.sleep(Duration::from_millis(1)).await;
        // Not behind the message on the heap, which cannot be sent either.
        assert_eq!(pair.ab.snapshot().messages_in_flight, 3);
        net.inject("at 0s a:rdma_en2 replug".parse().unwrap());
        let read = async {
            let mut read = Vec::new();
            for _ in 0..3 {
                read.push(pair.ba.recv().await.unwrap().unwrap().len());
            }
            read
        };
        let (read, sent, heap) = join3(read, join_all(sent), heap).await;
        assert_eq!((read.as_slice(), sent.len(), heap), (&[4 * MIB, 1, 1][..], 2, Ok(())));
        // Nothing is left in line: leases go on at once.
        assert!(pair.a.try_alloc(16 * MIB).is_ok());
    });
}

/// Catches a message that waits for memory and learns nothing of the end: of its session, its stream, or that of the peer.
#[test]
fn messages_that_wait_for_memory_learn_of_the_end() {
    for expected in [
        SendError::Lost(SessionError::Reset(7)),
        SendError::Lost(SessionError::Aborted),
        SendError::Closed,
        SendError::StreamDropped,
    ] {
        on_session(Sim::new(), &options(), async |net, pair| {
            let (stream, other) = stream_of(&pair.ab, &pair.ba).await;
            if matches!(expected, SendError::Closed | SendError::Lost(SessionError::Aborted)) {
                net.inject("at 0s a:rdma_en2 unplug".parse().unwrap());
                net.sleep(Duration::from_millis(1)).await;
            }
            let _all = all_memory(&pair.a).await;
            let bytes = vec![1; 4 * MIB];
            let heap = begun(stream.send_bytes(&bytes)).await;
            let (tell, told) = oneshot::channel();
            let waiting = stream.clone();
            // A task of its own, which nothing else wakes.
            net.spawn(async move { tell.send(waiting.send_bytes(b"waits").await).unwrap() });
            net.sleep(Duration::from_nanos(1)).await;
            match &expected {
                SendError::Lost(SessionError::Reset(code)) => pair.ba.reset(*code),
                SendError::Lost(_) => pair.ab.reset(7),
                SendError::Closed => stream.finish(),
                _ => drop(other),
            }
            assert_eq!(told.await.unwrap(), Err(expected.clone()));
            drop(heap);
        });
    }
}

/// Catches a snapshot that does not name the wait, and one of a session that rests which does.
#[test]
fn a_snapshot_names_the_wait_for_send_memory() {
    on_session(Sim::new(), &options(), async |_, pair| {
        let other = (pair.ab.open().unwrap(), pair.b.accept().await.unwrap());
        let all = all_memory(&pair.a).await;
        assert!(!pair.ab.snapshot().to_string().contains("send memory"));
        let alloc = begun(pair.ab.alloc(1)).await;
        for session in [&pair.ab, &other.0] {
            let text = session.snapshot().to_string();
            assert!(text.contains("of all sessions of this node: 1 task waits for send memory"), "{text}");
            assert_eq!(session.snapshot().waits_for(), [""; 0]);
        }
        let bytes = vec![1; 4 * MIB];
        let sends = (0..3).map(|_| pair.ab.send_bytes(&bytes));
        let sends = begun(join_all(sends)).await;
        let waits = pair.ab.snapshot().waits_for();
        let expected = "send memory, or for the message on the heap before, with 2 messages to copy";
        assert!(waits.iter().any(|wait| wait == expected), "{waits:?}");
        assert_eq!(other.0.snapshot().waits_for(), [""; 0]);
        drop((all, sends));
        alloc.await.unwrap();
        assert!(!pair.ab.snapshot().to_string().contains("send memory"));
    });
}

/// Regression: a stream of bytes had the only place in the send queue and waited for memory, and a message had the memory and waited for
/// the place.
#[test]
fn bytes_and_messages_of_one_stream_do_not_wait_for_each_other() {
    on_session(Sim::new(), &options().max_in_flight_sends(1), async |net, pair| {
        let _all = all_memory(&pair.a).await;
        let (stream, other) = stream_of(&pair.ab, &pair.ba).await;
        let writes = async {
            let mut bytes = ByteStream::from(stream.clone());
            for _ in 0..20 {
                bytes.write_all(&[1; 100_000]).await.unwrap();
            }
        };
        let sends = async {
            for _ in 0..20 {
                stream.send_bytes(&[2; 100_000]).await.unwrap();
            }
        };
        let reads = async {
            for _ in 0..40 {
                assert_eq!(other.recv().await.unwrap().unwrap().len(), 100_000);
            }
        };
        let all = timeout(&*net.runtime(), Duration::from_secs(1), join3(writes, sends, reads));
        assert!(all.await.is_some());
    });
}

/// Catches the memory of a copy that was sent and is kept until its task asks for the outcome.
#[test]
fn copies_that_were_sent_hold_no_memory() {
    on_session(Sim::new(), &options(), async |net, pair| {
        let bytes = vec![1; 4 * MIB];
        let sent = begun(pair.ab.send_bytes(&bytes)).await;
        assert_eq!(pair.a.pool_stats().send.free_bytes, 12 * MIB);
        assert_eq!(pair.ba.recv().await.unwrap().unwrap().len(), bytes.len());
        net.sleep(Duration::from_millis(1)).await;
        assert!(pair.a.pool_stats().send.free_bytes == 16 * MIB);
        sent.await.unwrap();
    });
}

/// Catches a node with little memory on which nothing goes, and a message that must fit into it.
#[test]
fn a_node_with_one_frame_sends_any_length() {
    let small: NodeOptions = options().send_memory(FRAME);
    on_session(Sim::new(), &small, async |_, pair| {
        let stream = pair.ab.open_stream(Priority::Normal).await.unwrap();
        let bytes = vec![1; MIB];
        let _unread = begun(stream.send_bytes(&bytes)).await;
        exchange_of(&LENS, &pair.ab, &pair.ba).await;
    });
}

/// Catches a stream whose copies take all of the half where copies are, so that other streams send one copy at a time.
#[test]
fn copies_of_a_stream_leave_as_much_to_others_as_they_have() {
    for (len, held) in [(64, 12), (MIB, 4 * MIB / FRAME), (4 * MIB, 4 * MIB / FRAME)] {
        on_session(Sim::new(), &options(), async |net, pair| {
            net.inject("at 0s a:rdma_en2 unplug".parse().unwrap());
            net.sleep(Duration::from_millis(1)).await;
            let bytes = vec![1; len];
            let mut sends = Box::pin(join_all((0..12).map(|_| pair.ab.send_bytes(&bytes))));
            assert!(futures::poll!(sends.as_mut()).is_pending());
            let stats = pair.a.pool_stats().send;
            assert_eq!((stats.total_bytes - stats.free_bytes) / FRAME, held, "12 messages of {len} bytes");
        });
    }
}

/// Catches staging memory that is given back although the device may still read it.
#[test]
fn staging_memory_in_use_waits_for_the_device() {
    on_session(Sim::new(), &options(), async |net, pair| {
        let _all = all_memory(&pair.a).await;
        let before = pair.a.pool_stats().protocol;
        let bytes = vec![1; 4 * MIB];
        let (sent, received) = (begun(pair.ab.send_bytes(&bytes)).await, begun(pair.ba.recv()).await);
        net.sleep(Duration::from_micros(150)).await;
        for fault in ["hang destroy_qp", "unplug"] {
            net.inject(format!("at 0s a:rdma_en2 {fault}").parse().unwrap());
        }
        net.sleep(Duration::from_millis(10)).await;
        assert_eq!((pair.ab.paths_up(), pair.a.pool_stats().protocol), (0, before));
        // The device is left alone, and the session is lost.
        net.sleep(Duration::from_secs(4)).await;
        assert!(matches!(sent.await, Err(SendError::Lost(_))));
        let after = pair.a.pool_stats().protocol;
        assert!(after.total_bytes - after.free_bytes >= 2 * (256 << 10), "{after:?}");
        drop(received);
    });
}

/// Regression: single frames in the middle, which copies of an unread stream held, left no piece of memory for a lease.
#[test]
fn copies_leave_half_of_the_memory_to_leases_in_one_piece() {
    on_session(Sim::new(), &options(), async |net, pair| {
        net.inject("at 0s a:rdma_en2 unplug".parse().unwrap());
        net.sleep(Duration::from_millis(1)).await;
        let bytes = vec![1; 5000];
        let mut copies = Vec::new();
        for frames in [1900, 950, 475, 1425, 3000, 2040, 100] {
            let singles: Vec<_> = (0..frames).map(|_| pair.a.try_alloc(1).unwrap()).collect();
            copies.push(begun(pair.ab.send_bytes(&bytes[..100])).await);
            drop(singles);
            let run = pair.a.try_alloc((frames * FRAME).min(8 * MIB)).unwrap();
            copies.push(begun(pair.ab.send_bytes(&bytes)).await);
            drop(run);
        }
        assert!(pair.a.try_alloc(8 * MIB).is_ok(), "{:?}", pair.a.pool_stats());
    });
}
