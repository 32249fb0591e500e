//! Peers that prove a shared key to each other

use std::cell::RefCell;
use std::pin::pin;
use std::rc::Rc;
use std::time::Duration;

use futures::future::{Either, join, select};
use rdma_async::{ConnectError, HelloError, Node, NodeOptions, Session, SharedKey};
use rdma_core::session::Hello;
use rdma_sim::{Net, Sim, SimDevice};
use rdma_tests::{Pair, connect, message, node, options, value_of};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, ReadHalf, WriteHalf, split};

use super::exchange;

/// Options with a shared key
pub(crate) fn keyed(byte: u8) -> NodeOptions {
    options().shared_key(SharedKey::from_bytes([byte; 32]))
}

fn nodes(net: &Net, [a, b]: [&NodeOptions; 2]) -> [Node<SimDevice>; 2] {
    [node(net, "a", a), node(net, "b", b)]
}

/// What both sides say of an attempt, over a stream that holds `buffer` bytes
async fn attempt(
    [a, b]: &[Node<SimDevice>; 2],
    buffer: usize,
) -> (Result<Session<SimDevice>, ConnectError>, Result<(), ConnectError>) {
    let (to_b, to_a) = tokio::io::duplex(buffer);
    join(a.connect(to_b), b.serve(to_a)).await
}

#[test]
fn peers_with_the_same_key_exchange_messages() {
    let faults = "at 300us b:rdma_en2 unplug; at 5ms b:rdma_en2 replug";
    for (faults, buffer) in [("", 1024), (faults, 1024), ("", 1), ("", 17)] {
        let run = Sim::new().faults(faults.parse().unwrap()).run(async |net| {
            let [a, b] = nodes(&net, [&keyed(1), &keyed(1)]);
            let (to_b, to_a) = tokio::io::duplex(buffer);
            let (ab, served) = join(a.connect(to_b), b.serve(to_a)).await;
            served.unwrap();
            let (ab, ba) = (ab.unwrap(), b.accept().await.unwrap());
            exchange(&Pair { a, b, ab, ba }, &[64, 100_000, 1 << 20, 4 << 20]).await;
        });
        assert_eq!(run.findings, [], "{faults:?} over {buffer} bytes");
    }
}

/// Catches a key that is not wanted, and a peer that is refused and does not learn why.
#[test]
fn both_sides_learn_why_keys_do_not_fit() {
    use HelloError::{KeyMissing, KeyRequired, WrongKey};
    let (none, one, other) = (options(), keyed(1), keyed(2));
    for (a, b, at_a, at_b) in [
        (&one, &other, WrongKey, WrongKey),
        (&one, &none, KeyMissing, KeyRequired),
        (&none, &one, KeyRequired, KeyMissing),
    ] {
        value_of(Sim::new(), async |net| {
            let both = nodes(&net, [a, b]);
            for buffer in [1, 1024] {
                let (connected, served) = attempt(&both, buffer).await;
                let (connected, served) = (connected.unwrap_err(), served.unwrap_err());
                assert!(matches!(&connected, ConnectError::Peer(error) if *error == at_a), "{connected}");
                assert!(matches!(&served, ConnectError::Peer(error) if *error == at_b), "{served}");
            }
            // Nothing is left, and honest peers connect.
            assert!(both.iter().all(|node| node.pool_stats().is_whole()));
            let honest = node(&net, "a", b);
            connect(&honest, &both[1]).await.unwrap();
        });
    }
}

/// What one side has written, as somebody in between sees it
type Recording = Rc<RefCell<Vec<u8>>>;

/// Carries bytes from one stream to another one, with byte `damaged` changed, and records them
async fn carry(
    mut from: ReadHalf<DuplexStream>,
    mut to: WriteHalf<DuplexStream>,
    damaged: Option<usize>,
    recording: Recording,
) {
    while let Ok(byte) = from.read_u8().await {
        let is_damaged = damaged == Some(recording.borrow().len());
        recording.borrow_mut().push(byte);
        if to.write_u8(byte ^ u8::from(is_damaged)).await.is_err() {
            return;
        }
    }
    // The end of a stream goes on as well.
    let _gone = to.shutdown().await;
}

/// Connects two nodes with somebody in between, who changes a byte; what `program` returns, and what was seen
async fn tapped<T>(
    [a, b]: &[Node<SimDevice>; 2],
    damaged: [Option<usize>; 2],
    program: impl AsyncFnOnce(Result<Session<SimDevice>, ConnectError>, Result<(), ConnectError>) -> T,
) -> (T, [Vec<u8>; 2]) {
    let recordings = [Recording::default(), Recording::default()];
    let ((to_b, tap_a), (to_a, tap_b)) = (tokio::io::duplex(64), tokio::io::duplex(64));
    let ((from_a, into_a), (from_b, into_b)) = (split(tap_a), split(tap_b));
    let taps = join(
        carry(from_a, into_b, damaged[0], Rc::clone(&recordings[0])),
        carry(from_b, into_a, damaged[1], Rc::clone(&recordings[1])),
    );
    let program = async {
        let (connected, served) = join(a.connect(to_b), b.serve(to_a)).await;
        program(connected, served).await
    };
    let value = match select(pin!(program), pin!(taps)).await {
        Either::Left((value, _)) => value,
        Either::Right((_, program)) => program.await,
    };
    (value, recordings.map(|recording| recording.borrow().clone()))
}

/// Catches a part of the bootstrap that is not encrypted, and one that is not authenticated.
#[test]
fn nobody_in_between_reads_or_changes_anything() {
    let seen = value_of(Sim::new(), async |net| {
        let both = nodes(&net, [&keyed(1), &keyed(1)]);
        let ((), seen) = tapped(&both, [None; 2], async |connected, served| {
            served.unwrap();
            let (ab, ba) = (connected.unwrap(), both[1].accept().await.unwrap());
            ab.send_bytes(&message(1, 500)).await.unwrap();
            assert_eq!(*ba.recv().await.unwrap().unwrap(), message(1, 500));
        })
        .await;
        seen
    });
    for seen in &seen {
        assert!(seen.starts_with(b"tb5key") && seen.len() > Hello::LEN + 76, "{} bytes", seen.len());
        assert!(!seen.windows(6).any(|bytes| bytes == b"tb5rdm"), "a hello in clear");
        // Neither limits nor addresses: a message has long runs of zeros, encrypted ones have none.
        assert!(!seen.windows(5).any(|bytes| bytes == [0; 5]), "a message in clear");
    }
    for (side, seen) in seen.iter().enumerate() {
        for at in 0..seen.len() {
            let mut damaged = [None; 2];
            damaged[side] = Some(at);
            let options =
                keyed(1).peer_timeout(Duration::from_millis(20)).connect_timeout(Duration::from_millis(50));
            value_of(Sim::new(), async |net| {
                let both = nodes(&net, [&options, &options]);
                let (outcome, _) =
                    tapped(&both, damaged, async |connected, served| (connected, served)).await;
                // A byte behind the introduction ends the stream, and leaves the path.
                let is_late = at >= 8 + 48 + 2 + Hello::LEN + 16 + 2 + 76 + 16;
                let (connected, served) = (&outcome.0, &outcome.1);
                assert!(is_late || connected.is_err() || served.is_err(), "byte {at} of side {side}");
            });
        }
    }
}

/// Catches a recording that is taken for a peer, with a key and without one: there, a confirmation of any number.
#[test]
fn a_recording_makes_no_session() {
    for (options, has_key) in [(keyed(1), true), (options(), false)] {
        let refused = value_of(Sim::new(), async |net| {
            let options = options.clone().connect_timeout(Duration::from_millis(50));
            let both = nodes(&net, [&options, &options]);
            let (_session, [recorded, _]) =
                tapped(&both, [None; 2], async |connected, _| connected.unwrap()).await;
            let (mut replayer, stream) = tokio::io::duplex(1 << 16);
            replayer.write_all(&recorded).await.unwrap();
            both[1].serve(stream).await.unwrap_err()
        });
        let is_refused = match refused {
            ConnectError::Stream(_) => has_key,
            ConnectError::Peer(HelloError::Replayed) => !has_key,
            _ => false,
        };
        assert!(is_refused, "{refused}");
    }
}

/// Catches a stranger who takes memory or time of others with an endless introduction.
#[test]
fn a_stranger_without_the_key_is_refused_in_time() {
    value_of(Sim::new(), async |net| {
        let options = keyed(1).connect_timeout(Duration::from_millis(50));
        let both = nodes(&net, [&options, &options]);
        for bytes in [
            b"".as_slice(),
            b"GET / HTTP/1.1\r\n\r\n",
            b"tb5key\x04\x00",
            &[b"tb5key\x04\x00".as_slice(), &[0; 48]].concat(),
            &[b"tb5key\x04\x00".as_slice(), &[9; 4096]].concat(),
            b"tb5key\x05\x00",
        ] {
            let (mut stranger, stream) = tokio::io::duplex(1 << 16);
            stranger.write_all(bytes).await.unwrap();
            let start = net.now();
            let refused = both[1].serve(stream).await;
            assert!(refused.is_err() && net.now() - start <= Duration::from_millis(50));
            assert!(both[1].pool_stats().is_whole());
        }
        connect(&both[0], &both[1]).await.unwrap();
    });
}
