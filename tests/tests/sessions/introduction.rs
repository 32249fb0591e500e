//! How nodes introduce themselves, and what keeps them from it

use std::io::ErrorKind;
use std::time::Duration;

use futures::future::join;
use rdma_async::{
    AnyDevice, ByeReason, ConnectError, ConnectStage, InvalidOptions, Node, NodeError, Session, SessionError,
};
use rdma_core::session::{ControlMessage, Hello, HelloError, Limits};
use rdma_core::{Cause, FRAME, Invalid, Verb};
use rdma_sim::{LineRate, OpenError, Sim};
use rdma_tests::{DEVICE, connect, hello, node, node_over, options};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::figures::cables;

/// Catches bytes of another program or version that are taken for a hello, and a wait for the rest of a shorter one.
#[test]
fn strangers_and_other_versions_are_turned_away() {
    Sim::new().run(async |net| {
        let b = node(&net, "b", &options());
        let greet = async |bytes: &[u8]| {
            let (mut stranger, to_b) = tokio::io::duplex(1024);
            stranger.write_all(bytes).await.unwrap();
            b.serve(to_b).await.unwrap_err()
        };
        let refusal = async |bytes: &[u8]| match greet(bytes).await {
            ConnectError::Peer(error) => error,
            other => panic!("{other}"),
        };
        assert_eq!(refusal(&[b'x'; Hello::LEN]).await, HelloError::ForeignProtocol);
        let limits = Limits { max_message: 1, max_sessions: 0, max_streams: 1, stream_share: 17 };
        let hello = hello(limits);
        assert_eq!(refusal(&hello.to_bytes()).await, HelloError::Unusable);
        let mut newer = hello.to_bytes();
        newer[6] += 1;
        let theirs = Hello::VERSION + 1;
        assert_eq!(refusal(&newer[..Hello::HEAD_LEN]).await, HelloError::Version { theirs });
        assert!(b.pool_stats().is_whole());
    });
}

/// Catches a stream that ends, and one that waits for an end.
#[test]
fn a_stream_that_ends_is_an_error() {
    Sim::new().run(async |net| {
        let b = node(&net, "b", &options());
        for len in [0, Hello::HEAD_LEN, Hello::LEN - 1] {
            let (mut stranger, to_b) = tokio::io::duplex(1024);
            let limits = Limits { max_message: 1, max_sessions: 1, max_streams: 1, stream_share: 17 };
            stranger.write_all(&hello(limits).to_bytes()[..len]).await.unwrap();
            drop(stranger);
            let error = b.serve(to_b).await.unwrap_err();
            assert!(
                matches!(&error, ConnectError::Stream(error) if error.kind() == ErrorKind::UnexpectedEof),
                "{error}"
            );
        }
    });
}

#[test]
fn peers_of_different_epochs_do_not_connect() {
    Sim::new().run(async |net| {
        let [a, b] =
            [("a", 1), ("b", 2)].map(|(host, epoch)| node(&net, host, &options().group_epoch(epoch)));
        let (to_b, to_a) = tokio::io::duplex(256);
        let (connected, served) = join(a.connect(to_b), b.serve(to_a)).await;
        let refused = |ours, theirs| move |error| matches!(error, ConnectError::Peer(HelloError::Epoch { ours: one, theirs: other }) if (one, other) == (ours, theirs));
        assert!(served.is_err_and(refused(2, 1)));
        assert!(connected.is_err_and(refused(1, 2)));
    });
}

#[test]
fn a_peer_that_says_nothing_is_given_up() {
    Sim::new().run(async |net| {
        let limit = Duration::from_secs(3);
        let a = node(&net, "a", &options().connect_timeout(limit));
        let (to_b, mut silent) = tokio::io::duplex(256);
        let start = net.now();
        let refused = a.connect(to_b).await;
        assert!(matches!(refused, Err(ConnectError::Timeout { stage: ConnectStage::Hello, waited }) if waited == limit), "{refused:?}");
        assert_eq!(net.now() - start, limit);
        let mut greeting = Vec::new();
        silent.read_to_end(&mut greeting).await.unwrap();
        let goodbye = ControlMessage::from_bytes(greeting[Hello::LEN..].try_into().unwrap());
        assert_eq!(goodbye, Ok(ControlMessage::Bye(ByeReason::Late)));
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

/// Catches a cable between other ports that locks up instead of failing, and an error that does not name both ports.
#[test]
fn crossed_cables_are_an_error_and_not_a_silent_lockup() {
    Sim::new().topology(cables(&[LineRate::TB5; 2])).run(async |net| {
        let [a, b] = [("a", DEVICE), ("b", "rdma_en3")]
            .map(|(host, device)| node_over(&net, host, &[device], &options()));
        let (to_b, to_a) = tokio::io::duplex(256);
        let (connected, served) = join(a.connect(to_b), b.serve(to_a)).await;
        let text = "no path from rdma_en3 to the only port of the peer could be made \
            (rdma_en3 to device 0 of the peer: modify_qp: the peer does not answer on this cable (errno 60)); check the cables, and that both sides can open their devices";
        assert_eq!(served.unwrap_err().to_string(), text);
        let text = "no path from rdma_en2 to the only port of the peer could be made \
            (rdma_en2 to rdma_en3 of the peer: they do not reach each other); check the cables, and that both sides can open their devices";
        assert_eq!(connected.unwrap_err().to_string(), text);
        assert!(a.pool_stats().is_whole() && b.pool_stats().is_whole());
    });
}

/// Catches each bound that is off by one, and a check that is missing.
#[test]
fn unusable_options_are_refused_with_the_reason() {
    use InvalidOptions::*;
    let (min, max) = (Duration::from_millis(8), Duration::from_hours(24));
    let ns = Duration::from_nanos(1);
    let range = |option, found, min, max| OutOfRange { option, found, min, max };
    let table = [
        (options().peer_timeout(min - ns), PeerTimeout { found: min - ns, min, max }),
        (options().peer_timeout(max + ns), PeerTimeout { found: max + ns, min, max }),
        (options().max_half_open(0), range("max_half_open", 0, 1, 1 << 16)),
        (options().max_half_open((1 << 16) + 1), range("max_half_open", (1 << 16) + 1, 1, 1 << 16)),
        (options().max_in_flight_sends(0), range("max_in_flight_sends", 0, 1, 4096)),
        (options().max_in_flight_sends(4097), range("max_in_flight_sends", 4097, 1, 4096)),
        (options().max_peers(0), range("max_peers", 0, 1, 4096)),
        (options().max_peers(4097), range("max_peers", 4097, 1, 4096)),
        (options().max_sessions(0), range("max_sessions", 0, 1, 1 << 18)),
        (options().max_sessions((1 << 18) + 1), range("max_sessions", (1 << 18) + 1, 1, 1 << 18)),
        (options().max_streams(0), range("max_streams", 0, 1, 1024)),
        (options().max_streams(1025), range("max_streams", 1025, 1, 1024)),
        (options().stream_share(16), range("stream_share", 16, 17, 1 << 14)),
        (options().stream_share((1 << 14) + 1), range("stream_share", (1 << 14) + 1, 17, 1 << 14)),
        (options().receive_memory((4 << 20) - 1), ReceiveMemory { found: (4 << 20) - 1, min: 4 << 20 }),
        // Regression: the product overflowed.
        (options().max_message(usize::MAX), ReceiveMemory { found: 32 << 20, min: usize::MAX }),
        (options().send_memory(FRAME - 1), SendMemory { found: FRAME - 1, min: FRAME }),
        (options().max_peers(7), CompletionQueue { found: 7 * 640, max: 4096 }),
    ];
    Sim::new().run(async |net| {
        let build = |options: &_| {
            Node::builder(net.opener("a", DEVICE))
                .runtime(net.runtime())
                .options(Clone::clone(options))
                .build()
        };
        for (options, reason) in &table {
            assert_eq!(build(options).unwrap_err(), NodeError::Options(reason.clone()));
        }
        let memory = build(&options().send_memory(4 << 30)).unwrap_err();
        assert!(matches!(memory, NodeError::Options(Memory { max: 0xffff_ffff, .. })), "{memory}");
        for usable in [
            options().peer_timeout(min),
            options().peer_timeout(max),
            options().max_in_flight_sends(1),
            options().max_in_flight_sends(4096),
            options().max_peers(1),
            options().max_peers(6),
            options().max_sessions(1),
            options().stream_share(17),
            options().receive_memory(4 << 20),
            options().send_memory(FRAME),
        ] {
            build(&usable).unwrap();
        }
    });
}

/// The layers above the traits exist once: here they run over a device chosen at run time.
#[test]
fn a_device_chosen_at_run_time_does_the_same() {
    Sim::new().run(async |net| {
        let [a, b] = ["a", "b"].map(|host| {
            let open = net.opener(host, DEVICE);
            let builder = Node::builder(move || open().map(AnyDevice::new));
            builder.runtime(net.runtime()).build().unwrap()
        });
        let (ab, ba): (Session<AnyDevice>, Session<AnyDevice>) = connect(&a, &b).await.unwrap();
        for len in [5, 50_000, 500_000] {
            let (sent, received) = join(ab.send_bytes(&vec![9; len]), ba.recv()).await;
            sent.unwrap();
            assert_eq!(*received.unwrap().unwrap(), *vec![9; len]);
        }
        ab.close().await.unwrap();
    });
}

/// Regression: `connect` and `serve` succeeded over a path on which nothing had ever arrived. Catches an end that resolves before packets
/// have passed in both directions, and one that does not say why it fails.
#[test]
fn a_path_that_carries_nothing_makes_no_session() {
    for fault in [
        "at 0ns a:rdma_en2 lose 1000000; at 0ns b:rdma_en2 lose 1000000",
        "at 0ns a:rdma_en2 lose 1000000",
        "at 0ns b:rdma_en2 lose 1000000",
    ] {
        Sim::new().faults(fault.parse().unwrap()).run(async |net| {
            net.sleep(Duration::from_micros(1)).await;
            let limit = Duration::from_secs(5);
            let [a, b] = ["a", "b"].map(|host| node(&net, host, &options().connect_timeout(limit)));
            let (to_b, to_a) = tokio::io::duplex(256);
            let start = net.now();
            let (connected, served) = join(a.connect(to_b), b.serve(to_a)).await;
            let refused = [connected.map(drop), served];
            let says_why = |refused: &_| matches!(refused, Err(ConnectError::Unproven { .. }));
            assert!(refused.iter().any(says_why), "{fault}: {refused:?}");
            for refused in refused {
                let is_expected = match &refused {
                    Err(ConnectError::Unproven { waited, .. }) => *waited == limit,
                    // The other end was first to give up.
                    Err(ConnectError::Lost(SessionError::PeerGone(ByeReason::NoPath))) => true,
                    _ => false,
                };
                assert!(is_expected, "{fault}: {refused:?}");
            }
            assert_eq!(net.now() - start, limit);
            net.sleep(Duration::from_secs(5)).await;
            assert!(a.pool_stats().is_whole() && b.pool_stats().is_whole());
        });
    }
}
