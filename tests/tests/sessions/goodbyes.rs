//! A peer that is refused, or whose sessions end, is told why

use std::future::poll_fn;
use std::num::NonZeroU128;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Poll, Waker};
use std::time::Duration;

use futures::future::{Either, join, select};
use rdma_async::{ByeReason, ConnectError, HelloError, Node, RecvError, SessionError, Transport};
use rdma_core::session::{
    ControlMessage, Features, Hello, Limits, LinkId, LostReason, Offer, PathEnd, PathId, PortName, Violation,
};
use rdma_core::{
    Access, BlockingCall, FRAME, QpAddress, QpCapacity, QpInit, QpType, Qpn, QueuePair as _, Runtime, Time,
    Timer,
};
use rdma_sim::{LineRate, Net, Sim};
use rdma_tests::{DEVICE, Pair, Raw, connect, hello, message, node, nodes, options};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, duplex};

use super::figures::cables;

const LIMITS: Limits = Limits { max_message: 4 << 20, max_sessions: 16, max_streams: 16, stream_share: 128 };

/// A message with a tag that no version has
const UNREADABLE: [u8; ControlMessage::LEN] = [0xff; ControlMessage::LEN];

/// The hello of a process that speaks the bootstrap itself, with these features and this in the reserved bytes
fn hello_with(features: u64, reserved: u8) -> [u8; Hello::LEN] {
    let mut bytes = Hello { features: Features(features), ..hello(LIMITS) }.to_bytes();
    bytes[Hello::LEN - 8..].fill(reserved);
    bytes
}

/// Sends a hello, and returns that of the node
pub(super) async fn greet(stream: &mut DuplexStream, ours: &[u8]) -> Hello {
    stream.write_all(ours).await.unwrap();
    let mut theirs = [0; Hello::LEN];
    stream.read_exact(&mut theirs).await.unwrap();
    Hello::from_bytes(&theirs).unwrap()
}

pub(super) async fn next(stream: &mut DuplexStream) -> Option<ControlMessage> {
    let mut bytes = [0; ControlMessage::LEN];
    stream.read_exact(&mut bytes).await.ok()?;
    Some(ControlMessage::from_bytes(&bytes).unwrap())
}

async fn next_but_alive(stream: &mut DuplexStream) -> Option<ControlMessage> {
    loop {
        match next(stream).await {
            Some(ControlMessage::Alive) => (),
            message => return message,
        }
    }
}

/// The reason that the node gives, as the last thing that it says
pub(super) async fn goodbye(stream: &mut DuplexStream) -> Option<ByeReason> {
    let mut last = None;
    while let Some(message) = next(stream).await {
        assert!(!matches!(last, Some(ControlMessage::Bye(_))), "{message:?} behind the goodbye");
        last = Some(message);
    }
    match last {
        Some(ControlMessage::Bye(reason)) => Some(reason),
        _ => None,
    }
}

/// A bootstrap stream of two nodes through the hands of the test
struct Tap {
    /// What each side has said.
    said: [Vec<u8>; 2],
    ends: [DuplexStream; 2],
}

impl Tap {
    /// Also the streams for the nodes
    fn new() -> (Self, [DuplexStream; 2]) {
        let ((to_b, from_a), (to_a, from_b)) = (duplex(1024), duplex(1024));
        (Self { said: Default::default(), ends: [from_a, from_b] }, [to_b, to_a])
    }

    /// Passes everything on until both sides have ended the stream
    async fn pass(&mut self) {
        let Self { said: [by_a, by_b], ends: [a, b] } = self;
        let ((mut from_a, mut to_a), (mut from_b, mut to_b)) = (tokio::io::split(a), tokio::io::split(b));
        let one_way = async |from: &mut (dyn tokio::io::AsyncRead + Unpin),
                             to: &mut (dyn tokio::io::AsyncWrite + Unpin),
                             said: &mut Vec<u8>| {
            let mut bytes = [0; 256];
            while let Ok(len @ 1..) = from.read(&mut bytes).await {
                said.extend(&bytes[..len]);
                // It may have ended before.
                let _ = to.write_all(&bytes[..len]).await;
            }
            let _ = to.shutdown().await;
        };
        join(one_way(&mut from_a, &mut to_b, by_a), one_way(&mut from_b, &mut to_a, by_b)).await;
    }

    /// The last words of each side
    fn goodbyes(&self) -> [Option<ByeReason>; 2] {
        self.said.each_ref().map(|said| {
            let last = said[Hello::LEN..].chunks_exact(ControlMessage::LEN).next_back()?;
            match ControlMessage::from_bytes(last.try_into().unwrap()) {
                Ok(ControlMessage::Bye(reason)) => Some(reason),
                _ => None,
            }
        })
    }
}

fn gone(reason: ByeReason) -> SessionError {
    SessionError::PeerGone(reason)
}

/// Two sides whose byte stream passes through a tap
async fn tapped(net: &Net) -> (Tap, Pair) {
    let (a, b) = nodes(net, &options());
    let (mut tap, [to_b, to_a]) = Tap::new();
    let both = join(a.connect(to_b), async {
        b.serve(to_a).await.unwrap();
        b.accept().await.unwrap()
    });
    let Either::Left(((ab, ba), passed)) = select(Box::pin(both), Box::pin(tap.pass())).await else {
        panic!("the stream has ended");
    };
    drop(passed);
    let ab = ab.unwrap();
    (tap, Pair { a, b, ab, ba })
}

fn is_refused<T>(result: &Result<T, ConnectError>, reason: ByeReason) -> bool {
    matches!(result, Err(ConnectError::Lost(error)) if *error == gone(reason))
}

/// Catches a reason that gets lost between the stream and the session, and one of a later version that ends the stream instead.
#[test]
fn a_session_ends_with_the_reason_that_the_peer_gives() {
    for code in [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 0, 200] {
        let reason = ByeReason::from_code(code);
        Sim::new().run(async |net| {
            let (mut tap, Pair { a: _a, b: _b, ab: _ab, ba }) = tapped(&net).await;
            let mut bye = ControlMessage::Bye(ByeReason::Done).to_bytes();
            bye[1] = code;
            tap.ends[1].write_all(&bye).await.unwrap();
            assert_eq!(ba.recv().await.unwrap_err(), RecvError::Lost(gone(reason)));
            assert_eq!(
                (reason.code(), gone(reason).to_string()),
                (code, format!("the peer has left: {reason}"))
            );
        });
    }
}

/// Catches an end that is not told, or told with another reason: of the last session, of a closed node, and of a peer that is silent.
#[test]
fn both_sides_say_why_a_peering_ends() {
    use ByeReason::{Closed, Done, Silence};
    for (reason, faults) in [(Done, ""), (Closed, ""), (Silence, "at 1ms a:rdma_en2 unplug")] {
        Sim::new().faults(faults.parse().unwrap()).run(async |net| {
            let (a, b) = nodes(&net, &options());
            let (mut tap, [to_b, to_a]) = Tap::new();
            let sessions = async {
                let (ab, ba) = join(a.connect(to_b), async {
                    b.serve(to_a).await.unwrap();
                    b.accept().await.unwrap()
                })
                .await;
                let ab = ab.unwrap();
                if reason == Closed {
                    a.close();
                    b.close();
                }
                match reason {
                    Silence => (ab, ba),
                    _ => {
                        let (one, other) = join(ab.close(), ba.close()).await;
                        one.and(other).unwrap();
                        (ab, ba)
                    }
                }
            };
            if reason == Silence {
                // Nothing passes on the stream any more, and none on the cable.
                let (ab, ba) = match select(Box::pin(sessions), Box::pin(tap.pass())).await {
                    Either::Left((sessions, _)) => sessions,
                    Either::Right(_) => panic!("the stream has ended"),
                };
                net.sleep(Duration::from_secs(10)).await;
                let lost = RecvError::Lost(SessionError::PeerLost(Duration::from_secs(2)));
                assert_eq!(
                    (ab.recv().await.unwrap_err(), ba.recv().await.unwrap_err()),
                    (lost.clone(), lost)
                );
                tap.pass().await;
            } else {
                join(async { drop(sessions.await) }, tap.pass()).await;
            }
            // The side that is told first has nothing more to say.
            let [one, other] = tap.goodbyes().map(Option::unwrap);
            assert!(one == reason || other == reason, "{reason:?}: {one:?}, {other:?}");
            assert!([one, other].iter().all(|said| [reason, Done].contains(said)), "{one:?}, {other:?}");
        });
    }
}

/// Catches an attempt that ends without a word when its future is dropped, and one that says so to no purpose: the peer learns nothing.
#[test]
fn a_peer_learns_that_the_other_has_given_up() {
    Sim::new().run(async |net| {
        let b = node(&net, "b", &options());
        let (mut peer, to_b) = duplex(1024);
        let speak = async {
            let theirs = greet(&mut peer, &hello_with(0, 0)).await;
            peer.write_all(&ControlMessage::Confirm(theirs.nonce).to_bytes()).await.unwrap();
            net.sleep(Duration::from_secs(1)).await;
        };
        let serve = Box::pin(b.serve(to_b));
        let Either::Left(((), serve)) = select(Box::pin(speak), serve).await else { panic!("it waits") };
        drop(serve);
        assert_eq!(goodbye(&mut peer).await, Some(ByeReason::Cancelled));
        b.wait_idle().await;

        let (mut peer, to_b) = duplex(1024);
        let speak = async {
            greet(&mut peer, &hello_with(0, 0)).await;
            b.close();
            goodbye(&mut peer).await
        };
        let (served, reason) = join(b.serve(to_b), speak).await;
        assert!(matches!(served, Err(ConnectError::Closed)), "{served:?}");
        assert_eq!(reason, Some(ByeReason::Closed));
    });
}

/// A runtime of which the test drops all tasks, as tokio does with those of a runtime that is dropped
#[derive(Debug)]
struct Dropping {
    runtime: Arc<dyn Runtime>,
    is_dropped: Arc<AtomicBool>,
    tasks: Arc<Mutex<Vec<Waker>>>,
}

impl Runtime for Dropping {
    fn now(&self) -> Time {
        self.runtime.now()
    }

    fn spawn(&self, task: Pin<Box<dyn Future<Output = ()> + Send>>) {
        let (is_dropped, tasks, mut task) =
            (Arc::clone(&self.is_dropped), Arc::clone(&self.tasks), Some(task));
        self.runtime.spawn(Box::pin(poll_fn(move |cx| {
            tasks.lock().unwrap().push(cx.waker().clone());
            match &mut task {
                Some(running) if !is_dropped.load(Ordering::Relaxed) => running.as_mut().poll(cx),
                _ => {
                    task = None;
                    Poll::Ready(())
                }
            }
        })));
    }

    fn spawn_blocking(&self, call: BlockingCall) {
        self.runtime.spawn_blocking(call);
    }

    fn timer(&self) -> Pin<Box<dyn Timer>> {
        self.runtime.timer()
    }
}

/// Catches a runtime that takes its sessions along and leaves the peer to its timeout.
#[test]
fn a_peer_learns_that_the_runtime_of_the_other_is_dropped() {
    Sim::new().run(async |net| {
        let (is_dropped, tasks) = (Arc::default(), Arc::default());
        let runtime = Dropping {
            runtime: net.runtime(),
            is_dropped: Arc::clone(&is_dropped),
            tasks: Arc::clone(&tasks),
        };
        let a = Node::builder(net.opener("a", DEVICE)).runtime(Arc::new(runtime)).build().unwrap();
        let b = node(&net, "b", &options());
        let (ab, ba) = connect(&a, &b).await.unwrap();
        let start = net.now();
        is_dropped.store(true, Ordering::Relaxed);
        std::mem::take(&mut *tasks.lock().unwrap()).into_iter().for_each(Waker::wake);
        assert_eq!(ba.recv().await.unwrap_err(), RecvError::Lost(gone(ByeReason::RuntimeGone)));
        assert!(net.now() - start < Duration::from_millis(1));
        assert_eq!(ab.recv().await.unwrap_err(), RecvError::Lost(SessionError::RuntimeGone));
    });
}

/// Catches a node without memory for another peer that only ends the stream.
#[test]
fn a_peer_learns_that_there_is_no_memory_for_it() {
    Sim::new().run(async |net| {
        let (a, other) = nodes(&net, &options());
        let b = node(&net, "b", &options().max_peers(1));
        drop(other);
        let (ab, ba) = connect(&a, &b).await.unwrap();
        let (to_b, to_a) = duplex(1024);
        let (connected, served) = join(a.connect(to_b), b.serve(to_a)).await;
        assert!(matches!(served, Err(ConnectError::Memory)), "{served:?}");
        assert!(is_refused(&connected, ByeReason::NoMemory), "{connected:?}");
        let (sent, received) = join(ab.send_bytes(&message(1, 10)), ba.recv()).await;
        sent.unwrap();
        assert!(received.unwrap().is_some());
    });
}

/// Catches a replayed, impossible or unreadable introduction that is refused without a word.
#[test]
fn a_peer_that_does_not_keep_to_the_introduction_is_refused_with_a_reason() {
    Sim::new().run(async |net| {
        let b = node(&net, "b", &options());
        let alive = ControlMessage::Alive.to_bytes();
        let wrong = [
            (hello_with(0, 0), ControlMessage::Confirm([1; Hello::NONCE_LEN]).to_bytes()),
            (hello_with(0, 0), alive),
            (hello_with(0, 0), UNREADABLE),
            (Hello { ports: 0, ..hello(LIMITS) }.to_bytes(), alive),
        ];
        for (hello, message) in wrong {
            let (mut peer, to_b) = duplex(1024);
            let speak = async {
                greet(&mut peer, &hello).await;
                // The node may have ended the stream.
                let _ = peer.write_all(&message).await;
                goodbye(&mut peer).await
            };
            let (served, reason) = join(b.serve(to_b), speak).await;
            assert!(matches!(served, Err(ConnectError::Peer(_))), "{served:?}");
            assert_eq!(reason, Some(ByeReason::Violation));
        }
    });
}

/// Regression: such a message ended the stream without a word, and sessions waited for their paths to end. Catches a side that does not say
/// why it ends, or goes on, before and after the first path.
#[test]
fn a_peer_learns_that_its_message_did_not_belong_on_the_stream() {
    let confirm = ControlMessage::Confirm([1; Hello::NONCE_LEN]).to_bytes();
    let offer = ControlMessage::Offer(offer()).to_bytes();
    let violation = SessionError::Protocol(Violation::Control);
    for (side, message) in [(0, UNREADABLE), (1, UNREADABLE), (0, confirm), (1, confirm), (0, offer)] {
        Sim::new().run(async |net| {
            let (mut tap, Pair { a: _a, b: _b, ab, ba }) = tapped(&net).await;
            tap.ends[side].write_all(&message).await.unwrap();
            let start = net.now();
            let ends = async {
                let (one, other) = join(ab.recv(), ba.recv()).await;
                assert!(net.now() - start < Duration::from_millis(1), "{:?}", net.now() - start);
                [one, other].map(Result::unwrap_err)
            };
            let (ends, ()) = join(ends, tap.pass()).await;
            assert_eq!(ends[side], RecvError::Lost(violation.clone()));
            assert_eq!(ends[1 - side], RecvError::Lost(gone(ByeReason::Violation)));
            let text = "the peer has left: it says that this side violates the protocol";
            assert_eq!(ends[1 - side].to_string(), text);
            assert_eq!(tap.goodbyes()[side], Some(ByeReason::Violation));
        });
    }
    let lost = ControlMessage::Lost { path: PathId(0), epoch: 1, reason: LostReason::Lost, port: None };
    // A peer with one port offers a path for its second one.
    let mut impossible = self::offer();
    impossible.end.path = PathId(1);
    let impossible = ControlMessage::Offer(impossible).to_bytes();
    for (message, lost) in [
        (UNREADABLE.to_vec(), None),
        (confirm.to_vec(), None),
        (ControlMessage::Answer { end: self::offer().end, port: 0 }.to_bytes().to_vec(), None),
        (lost.to_bytes().to_vec(), None),
        (impossible.to_vec(), Some(&violation)),
    ] {
        Sim::new().run(async |net| {
            let b = node(&net, "b", &options());
            let (mut peer, to_b) = duplex(1024);
            let speak = async {
                let theirs = greet(&mut peer, &hello_with(0, 0)).await;
                peer.write_all(&ControlMessage::Confirm(theirs.nonce).to_bytes()).await.unwrap();
                peer.write_all(&message).await.unwrap();
                goodbye(&mut peer).await
            };
            let (served, reason) = join(b.serve(to_b), speak).await;
            let is_named = match &served {
                Err(ConnectError::Peer(HelloError::Unexpected)) => lost.is_none(),
                Err(ConnectError::Lost(error)) => lost == Some(error),
                _ => false,
            };
            assert!(is_named, "{served:?}");
            assert_eq!(reason, Some(ByeReason::Violation));
        });
    }
}

/// An offer of a path that cannot be made
fn offer() -> Offer {
    let nowhere = QpAddress { qpn: Qpn(7), ..QpAddress::default() };
    let end = PathEnd { path: PathId(0), epoch: 1, window: 64, rate: 1, eager: nowhere, bulk: nowhere };
    Offer { end, port: 0, transport: Transport::Rdma, link: None }
}

/// Introduces itself with these features, offers a path that cannot be made, and returns how the node refuses it
async fn refused_offer(net: &Net, features: u64, reserved: u8) -> (LostReason, Option<PortName>) {
    let b = node(net, "b", &options());
    let (mut peer, to_b) = duplex(1024);
    let speak = async move {
        let theirs = greet(&mut peer, &hello_with(features, reserved)).await;
        assert_eq!(theirs.features, Features::SUPPORTED);
        peer.write_all(&ControlMessage::Confirm(theirs.nonce).to_bytes()).await.unwrap();
        assert!(matches!(next(&mut peer).await, Some(ControlMessage::Confirm(_))));
        peer.write_all(&ControlMessage::Offer(offer()).to_bytes()).await.unwrap();
        let refused = next_but_alive(&mut peer).await;
        assert_eq!(goodbye(&mut peer).await, Some(ByeReason::NoPath));
        match refused {
            Some(ControlMessage::Lost { path: PathId(0), epoch: 1, reason, port }) => (reason, port),
            other => panic!("{other:?}"),
        }
    };
    let (served, refused) = join(b.serve(to_b), speak).await;
    assert!(matches!(served, Err(ConnectError::NoPath { .. })), "{served:?}");
    refused
}

/// Regression: the refusal named the port that the peer had asked for.
#[test]
fn a_refusal_names_the_port_that_has_another_path() {
    Sim::new().topology(cables(&[LineRate::TB5; 2])).run(async |net| {
        let link = Some(LinkId(NonZeroU128::MIN));
        let builder = Node::builder(net.opener("b", DEVICE)).device(net.opener("b", "rdma_en3"));
        let b = builder.link(move || link).runtime(net.runtime()).build().unwrap();
        let (mut peer, to_b) = duplex(1024);
        let speak = async move {
            let ours = Hello { ports: 2, features: Features::PORT_NAMES, ..hello(LIMITS) };
            let theirs = greet(&mut peer, &ours.to_bytes()).await;
            peer.write_all(&ControlMessage::Confirm(theirs.nonce).to_bytes()).await.unwrap();
            let init =
                QpInit { capacity: QpCapacity { recv_frames: 64, send_frames: 64 }, qp_type: QpType::Uc };
            let [eager, bulk] = [(); 2]
                .map(|()| Raw::new(net.open("a", "rdma_en3").unwrap(), &init, Access::LOCAL_WRITE, FRAME));
            for path in [0, 1].map(PathId) {
                let (eager, bulk) = (eager.qp.address(), bulk.qp.address());
                let offer = Offer { end: PathEnd { path, eager, bulk, ..offer().end }, link, ..offer() };
                peer.write_all(&ControlMessage::Offer(offer).to_bytes()).await.unwrap();
            }
            assert!(matches!(next(&mut peer).await, Some(ControlMessage::Confirm(_))));
            let answer = next_but_alive(&mut peer).await;
            assert!(matches!(answer, Some(ControlMessage::Answer { port: 1, .. })), "{answer:?}");
            let (path, port) = (PathId(1), PortName::new("rdma_en3"));
            let refused = ControlMessage::Lost { path, epoch: 1, reason: LostReason::PortUsed, port };
            assert_eq!(next_but_alive(&mut peer).await, Some(refused));
        };
        let (served, ()) = join(b.serve(to_b), speak).await;
        served.unwrap_err();
    });
}

/// Catches a feature of a later version, or reserved bytes with a meaning there, that keep two sides from connecting, and a feature
/// that is used although only one side has it.
#[test]
fn features_of_later_versions_are_left_alone() {
    for (features, is_named) in [(0, false), (1, true), (!0, true), (1 << 63, false), (!1, false)] {
        for reserved in [0, 0xff] {
            Sim::new().run(async |net| {
                let (reason, port) = refused_offer(&net, features, reserved).await;
                assert_eq!(reason, LostReason::Unreachable);
                assert_eq!(port, PortName::new("rdma_en2").filter(|_| is_named), "{features:x}");
            });
        }
    }
}
