//! How connections begin and end, well and badly

mod abandoned;
mod silence;
mod waiting;

use std::time::Duration;

use futures::future::{join, try_join};
use rdma_async::{
    AllocError, AnyConnection, AnyEndpoint, CloseError, ConnectError, ConnectionError, Endpoint,
    EndpointError, InvalidOptions, RecvError, SendError,
};
use rdma_core::protocol::{Hello, HelloError};
use rdma_core::{AnyDevice, Cause, Device, FRAME, Invalid, Verb};
use rdma_sim::{LineRate, Model, OpenError, Sim, Topology};
use rdma_tests::{
    DEVICE, begun, connect, connected, endpoint, endpoint_on, endpoints, on_connection, options, zeros,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

#[test]
fn closing_tells_that_everything_arrived() {
    on_connection(Sim::new(), &options(), async |_, pair| {
        pair.ab.send_bytes(&[1; 100_000]).await.unwrap();
        pair.ab.send_bytes(&[2; 10]).await.unwrap();
        // The application at the other end does not read: its connection confirms all the same.
        pair.ab.close().await.unwrap();
        assert_eq!(pair.ab.send_bytes(b"late").await, Err(SendError::Closed));
        assert_eq!(pair.ba.send_bytes(b"late").await, Err(SendError::PeerClosed));
        assert_eq!(pair.ba.recv().await.unwrap().unwrap().len(), 100_000);
        assert_eq!(pair.ba.recv().await.unwrap().unwrap().len(), 10);
        assert!(pair.ba.recv().await.unwrap().is_none());
        assert!(pair.ba.recv().await.unwrap().is_none(), "the end stays the end");
        pair.ba.close().await.unwrap();
        pair.ab.close().await.unwrap();
    });
}

#[test]
fn both_sides_can_close_at_once() {
    for seed in 0..50 {
        on_connection(Sim::new().seed(seed), &options(), async |net, pair| {
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

/// Regression: an update that was sent to a peer that had confirmed and gone kept `close` waiting until the timeout; and
/// a side that read on while closing waited for ever for a message that had been announced and would not come.
#[test]
fn closing_while_the_peer_talks_does_not_wait_for_a_timeout() {
    for seed in 0..60 {
        on_connection(Sim::new().seed(seed), &options(), async |net, pair| {
            let message = vec![1; seed as usize * 400];
            let talk = async {
                let sends = (0..4).map(async |_| while pair.ba.send_bytes(&message).await.is_ok() {});
                futures::future::join_all(sends).await;
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

/// Regression: a confirmation overtook the bulk messages that it counted, and they were cut off with the queue pairs.
#[test]
fn messages_sent_to_a_closing_side_arrive() {
    let arrived = (0..40).map(|seed| {
        on_connection(Sim::new().seed(seed), &options(), async |net, pair| {
            let sends = (0..12).map(async |_| pair.ba.send_bytes(&vec![1; 300_000]).await.is_ok());
            let close = async {
                rdma_async::time::sleep(&*net.runtime(), Duration::from_micros(seed * 9)).await;
                pair.ab.close().await.unwrap();
                let mut read = 0;
                while pair.ab.recv().await.unwrap().is_some() {
                    read += 1;
                }
                read
            };
            let (sent, read) = join(futures::future::join_all(sends), close).await;
            assert_eq!(read, sent.into_iter().filter(|sent| *sent).count(), "seed {seed}");
            read
        })
    });
    assert!(arrived.sum::<usize>() > 40, "some messages are sent before the side closes");
}

/// Regression: memory that bulk messages wait for was missing for the handshake of another connection.
#[test]
fn a_connection_can_be_made_while_others_fill_the_memory() {
    on_connection(Sim::new(), &options().max_connections(2).receive_memory(6 << 20), async |net, pair| {
        for _ in 0..10 {
            drop(begun(pair.ab.send(zeros(&pair.ab, 1 << 20).await)).await);
        }
        rdma_async::time::sleep(&*net.runtime(), Duration::from_millis(10)).await;
        let _second = connect(&pair.a, &pair.b).await.unwrap();
        let third = connect(&pair.a, &pair.b).await;
        assert_eq!(third.unwrap_err(), ConnectError::TooManyConnections { max: 2 });
    });
}

/// Regression: a device that grants shorter queues than were asked for was offered more than it takes.
#[test]
fn a_device_with_short_queues_offers_what_it_has() {
    let mut model = rdma_sim::Model::default();
    model.caps.max_queue_frames = 100;
    on_connection(Sim::new().model(model), &options(), async |_, pair| {
        let max = pair.ab.max_message();
        assert_eq!(max, 100 * rdma_core::FRAME);
        let read = async { while pair.ba.recv().await.unwrap().is_some() {} };
        let send = async {
            for len in (0..300).map(|_| 10).chain([max; 5]) {
                pair.ab.send_bytes(&vec![1; len]).await.unwrap();
            }
            pair.ab.close().await.unwrap();
        };
        join(send, read).await;
    });
}

#[test]
fn messages_that_the_peer_will_not_read_are_refused_with_their_lease() {
    on_connection(Sim::new(), &options(), async |_, pair| {
        // More than the window takes in.
        let sends = (0..200).map(|_| async {
            let lease = zeros(&pair.ba, 10).await;
            pair.ba.send(lease).await
        });
        let (outcomes, closed) = join(futures::future::join_all(sends), pair.ab.close()).await;
        closed.unwrap();
        let refused: Vec<_> = outcomes.into_iter().filter_map(Result::err).collect();
        assert!(!refused.is_empty());
        for unsent in refused {
            assert_eq!(unsent.error, SendError::PeerClosed);
            assert_eq!(unsent.lease.expect("the lease comes back").len(), 10);
        }
        assert_eq!(pair.ba.close().await, Err(CloseError::PeerClosed));
    });
}

/// Catches an orderly end that reports a posted send as failed because the completion of the send is still to come.
#[test]
fn sends_that_have_not_completed_when_the_peer_confirms_have_arrived() {
    let mut model = Model::tb5();
    model.timing.send_completion_ns = 50_000_000;
    on_connection(Sim::new().model(model), &options(), async |net, pair| {
        let (small, long) = (zeros(&pair.ba, 10).await, zeros(&pair.ba, 100_000).await);
        let send = async {
            let start = net.now();
            let (small, long) = join(pair.ba.send(small), pair.ba.send(long)).await;
            assert!(net.now() - start < Duration::from_millis(50), "nothing waited for the completions");
            assert_eq!((small.unwrap().len(), long.unwrap().len()), (10, 100_000));
        };
        let receive_and_close = async {
            for len in [10, 100_000] {
                assert_eq!(pair.ab.recv().await.unwrap().unwrap().len(), len);
            }
            pair.ab.close().await.unwrap();
        };
        join(send, receive_and_close).await;
    });
}

#[test]
fn a_reader_that_pauses_holds_the_sender_back_and_loses_nothing() {
    on_connection(Sim::new(), &options().max_connections(1).receive_memory(6 << 20), async |net, pair| {
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
                    rdma_async::time::sleep(&*net.runtime(), Duration::from_secs(20)).await;
                }
                let message = pair.ba.recv().await.unwrap().unwrap();
                assert_eq!(message[..8], number.to_le_bytes());
            }
            assert!(pair.ba.recv().await.unwrap().is_none());
        };
        join(send, receive).await;
    });
}

/// Both fill all of their memory with messages for each other before either reads: the memory for receiving is apart.
#[test]
fn peers_that_send_everything_before_they_read_do_not_lock_up() {
    let options = options().max_connections(1).send_memory(4 << 20).receive_memory(6 << 20);
    on_connection(Sim::new(), &options, async |_, pair| {
        let side = async |connection: &rdma_async::Connection<_>| {
            let sends = (0..4).map(|_| async {
                let lease = zeros(connection, 1 << 20).await;
                drop(connection.send(lease).await.unwrap());
            });
            futures::future::join_all(sends).await;
            for _ in 0..4 {
                assert_eq!(connection.recv().await.unwrap().unwrap().len(), 1 << 20);
            }
        };
        join(side(&pair.ab), side(&pair.ba)).await;
    });
}

/// Regression: a limit below what one frame carries was ignored.
#[test]
fn a_limit_on_messages_holds_however_short_it_is() {
    for max in [0, 1, 100, 4079, 4080, 4081] {
        Sim::new().run(async |net| {
            let (a, b) = (endpoint(&net, "a", &options()), endpoint(&net, "b", &options().max_message(max)));
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

#[test]
fn messages_that_cannot_be_sent_come_back() {
    on_connection(Sim::new(), &options().max_message(1 << 20), async |_, pair| {
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
        assert_eq!(pair.ab.stats().messages_in_flight, 0);
    });
}

#[test]
fn strangers_and_other_versions_are_turned_away() {
    Sim::new().run(async |net| {
        let b = endpoint(&net, "b", &options());
        let greet = async |bytes: Vec<u8>| {
            let (mut stranger, to_b) = tokio::io::duplex(1024);
            stranger.write_all(&bytes).await.unwrap();
            drop(stranger);
            b.accept(to_b).await.unwrap_err()
        };
        assert_eq!(greet(vec![b'x'; Hello::LEN]).await, ConnectError::Peer(HelloError::ForeignProtocol));
        assert_eq!(greet(vec![]).await, ConnectError::Stream(std::io::ErrorKind::UnexpectedEof));
        let hello =
            Hello { epoch: 0, params: unusable(), eager: Default::default(), bulk: Default::default() };
        assert_eq!(
            greet(hello.to_bytes().into()).await,
            ConnectError::Peer(HelloError::Unusable(unusable()))
        );
        let mut newer = hello.to_bytes();
        newer[7] += 1;
        let theirs = Hello::VERSION + 1;
        assert_eq!(greet(newer.into()).await, ConnectError::Peer(HelloError::Version { theirs }));
        assert!(b.pool_stats().is_whole());
    });
}

fn unusable() -> rdma_core::protocol::Params {
    rdma_core::protocol::Params { announces: 0, max_message: 0, peer_timeout: Duration::ZERO, window: 0 }
}

#[test]
fn peers_of_different_epochs_do_not_connect() {
    Sim::new().run(async |net| {
        let (a, b) =
            (endpoint(&net, "a", &options().group_epoch(1)), endpoint(&net, "b", &options().group_epoch(2)));
        let (to_b, to_a) = tokio::io::duplex(256);
        let (connected, accepted) = join(a.connect(to_b), b.accept(to_a)).await;
        assert_eq!(accepted.unwrap_err(), ConnectError::Epoch { ours: 2, theirs: 1 });
        assert_eq!(connected.unwrap_err(), ConnectError::Epoch { ours: 1, theirs: 2 });
    });
}

#[test]
fn a_peer_that_says_nothing_is_given_up() {
    Sim::new().run(async |net| {
        let (a, _b) = endpoints(&net, &options().connect_timeout(Duration::from_secs(3)));
        let (to_b, mut silent) = tokio::io::duplex(256);
        let start = net.now();
        let refused = a.connect(to_b).await.unwrap_err();
        assert_eq!(refused, ConnectError::Timeout(Duration::from_secs(3)));
        assert_eq!(net.now() - start, Duration::from_secs(3));
        let mut greeting = Vec::new();
        silent.read_to_end(&mut greeting).await.unwrap();
        assert_eq!(greeting.len(), Hello::LEN);
        assert!(a.pool_stats().is_whole());
    });
}

#[test]
fn a_device_without_a_cable_says_so() {
    Sim::new().run(async |net| {
        let down = rdma_core::Error::new(Verb::AllocPd, Cause::PortDown);
        assert_eq!(net.open("a", "rdma_en3").unwrap_err(), OpenError::Verbs(down));
        let missing = net.open("a", "rdma_en9").unwrap_err();
        let text = "host \"a\" has no device \"rdma_en9\"; its devices are rdma_en2, rdma_en3, rdma_en4";
        assert_eq!(missing.to_string(), text);
        let missing = rdma_core::Error::from(missing);
        assert_eq!((missing.verb, missing.cause), (Verb::OpenDevice, Cause::Invalid(Invalid::NoSuchDevice)));
        for missing in [net.open("c", DEVICE).err(), net.port("c", DEVICE).err(), net.gids("c", DEVICE).err()]
        {
            assert_eq!(missing.unwrap().to_string(), "no host is called \"c\"; there are: a, b");
        }
    });
}

#[test]
fn crossed_cables_are_an_error_and_not_a_silent_lockup() {
    let topology = Topology::new().host("a", 2).host("b", 2).cable(("a", 0), ("b", 0), LineRate::TB5).cable(
        ("a", 1),
        ("b", 1),
        LineRate::TB5,
    );
    Sim::new().topology(topology).run(async |net| {
        let [a, b] = [("a", "rdma_en2"), ("b", "rdma_en3")]
            .map(|(host, device)| endpoint_on(&net, net.open(host, device).unwrap(), &options()));
        let (to_b, to_a) = tokio::io::duplex(256);
        let (connected, accepted) = join(a.connect(to_b), b.accept(to_a)).await;
        let unreachable = ConnectError::Device(rdma_core::Error::new(Verb::ModifyQp, Cause::PeerUnreachable));
        assert_eq!(connected.unwrap_err(), unreachable);
        assert_eq!(accepted.unwrap_err(), unreachable);
    });
}

/// Catches each bound that is off by one, and a check that is missing.
#[test]
fn unusable_options_are_refused_with_the_reason() {
    use InvalidOptions::*;
    const DAY: Duration = Duration::from_hours(24);
    let s = Duration::from_secs;
    let table = [
        (options().recv_window(62), RecvWindow { found: 62, min: 63, max: 4095 }),
        (options().recv_window(4096), RecvWindow { found: 4096, min: 63, max: 4095 }),
        (options().peer_timeout(s(1)), PeerTimeout { found: s(1), min: s(2), max: s(8) }),
        (options().peer_timeout(s(9)), PeerTimeout { found: s(9), min: s(2), max: s(8) }),
        (options().keep_alive_interval(s(0)), KeepAliveInterval { found: s(0), max: DAY / 2 }),
        (
            options().keep_alive_interval(DAY / 2 + s(1)),
            KeepAliveInterval { found: DAY / 2 + s(1), max: DAY / 2 },
        ),
        (
            options().peer_timeout(s(90_000)).keep_alive_interval(DAY / 2),
            PeerTimeout { found: s(90_000), min: DAY, max: DAY },
        ),
        (options().max_in_flight_sends(0), MaxInFlightSends { found: 0, max: 4096 }),
        (options().max_in_flight_sends(4097), MaxInFlightSends { found: 4097, max: 4096 }),
        (options().max_connections(0), MaxConnections { found: 0, max: 4096 }),
        (options().max_connections(4097), MaxConnections { found: 4097, max: 4096 }),
        (options().max_message(1 << 30), MaxMessage { found: 1 << 30, max: 4095 * FRAME }),
        (options().receive_memory(1 << 20), ReceiveMemory { found: 1 << 20, min: (5 * 129 + 1024) * FRAME }),
        (options().send_memory(4095), SendMemory { found: 4095, min: FRAME }),
        (options().send_memory(4 << 30), Memory { found: (4 << 30) + (16 << 20), max: u32::MAX.into() }),
        (
            options().recv_window(3000).max_connections(1).receive_memory(32 << 20),
            CompletionQueue { found: 6256, max: 4096 },
        ),
        (
            options().max_connections(9).receive_memory(32 << 20),
            CompletionQueue { found: 9 * 512, max: 4096 },
        ),
    ];
    Sim::new().run(async |net| {
        for (options, reason) in &table {
            let device = net.open("a", DEVICE).unwrap();
            let refused = Endpoint::builder(device)
                .runtime(net.runtime())
                .options(options.clone())
                .build()
                .unwrap_err();
            assert_eq!(refused, EndpointError::Options(reason.clone()));
        }
        endpoint(&net, "a", &options().recv_window(63).peer_timeout(s(8)));
    });
}

/// The layers above the traits exist once: here they run over a device chosen at run time.
#[test]
fn a_device_chosen_at_run_time_does_the_same() {
    Sim::new().run(async |net| {
        let open = |host| AnyDevice::new(net.open(host, DEVICE).unwrap());
        let [a, b]: [AnyEndpoint; 2] = ["a", "b"].map(|host| endpoint_on(&net, open(host), &options()));
        assert_eq!(a.device().name(), DEVICE);
        let (ab, ba): (AnyConnection, AnyConnection) = connect(&a, &b).await.unwrap();
        for len in [5, 50_000] {
            let (sent, received) = join(ab.send_bytes(&vec![9; len]), ba.recv()).await;
            sent.unwrap();
            assert_eq!(*received.unwrap().unwrap(), *vec![9; len]);
        }
        ab.close().await.unwrap();
    });
}

#[test]
fn a_runtime_that_ends_takes_its_connections_along() {
    let ab = Sim::new().run(async |net| connected(&net, &options()).await).value.ab;
    Sim::new().run(async |_| {
        let lost = ConnectionError::RuntimeGone;
        assert_eq!(ab.recv().await.unwrap_err(), RecvError::Lost(lost.clone()));
        assert_eq!(ab.send_bytes(b"").await, Err(SendError::Lost(lost)));
    });
}
