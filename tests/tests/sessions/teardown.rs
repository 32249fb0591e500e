//! How sessions give memory back: at once, but not before the device has stopped, and never if that is not proved

use std::pin::Pin;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::future::{Either, join, select};
use rdma_async::future::Send;
use rdma_async::{
    ByeReason, CloseError, ConnectError, Node, PoolStats, RecvError, SendError, Session, SessionError,
    ZoneStats,
};
use rdma_core::session::{ControlMessage, Hello, MAX_UNREPORTED};
use rdma_core::{Cause, Error, FRAME, Teardown, Verb};
use rdma_sim::{Model, Net, Sim, SimDevice};
use rdma_tests::{
    Hooked, Hooks, begun, connect, hooked_node, message, node, nodes, on_session, options, zeros,
};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, duplex};

/// A device that does not know whether a destroyed queue pair has stopped
#[derive(Default)]
struct Unproven {
    destroyed: AtomicU32,
}

impl Hooks for Unproven {
    fn destroy(&self, _: u32) -> Option<Teardown> {
        self.destroyed.fetch_add(1, Ordering::Relaxed);
        Some(Teardown::Unknown)
    }
}

/// Catches memory that is quarantined although its deregistration proved that the device has stopped: it is used up after a few
/// reconnects.
#[test]
fn a_thousand_replugs_leave_nothing_behind() {
    const REPLUGS: usize = 1000;
    // Each replug costs a protection domain of eleven, until the machine is started again: that is not the library's.
    let mut model = Model::tb5();
    model.rules.replug_leaks_pds = 0;
    let run = Sim::new().model(model).run(async |net| {
        let hooks = Arc::<Unproven>::default();
        let [a, b] = ["a", "b"].map(|host| hooked_node(&net, host, &hooks, &options()));
        let (ab, ba) = connect(&a, &b).await.unwrap();
        for number in 0..REPLUGS {
            for len in [100, 200_000] {
                let (sent, got) = join(ab.send_bytes(&message(number, len)), ba.recv()).await;
                sent.unwrap();
                assert!(*got.unwrap().unwrap() == message(number, len));
            }
            net.inject("at 0s b:rdma_en2 flap 5ms".parse().unwrap());
            net.sleep(Duration::from_millis(5)).await;
        }
        let destroyed = hooks.destroyed.load(Ordering::Relaxed) as usize;
        assert!(destroyed >= 4 * (REPLUGS - 1), "each side had two queue pairs: {destroyed}");
        let (closed, end) = join(ab.close(), ba.recv()).await;
        closed.unwrap();
        assert!(end.unwrap().is_none());
        drop((ab, ba));
        net.sleep(Duration::from_millis(100)).await;
        assert!(a.pool_stats().is_whole() && b.pool_stats().is_whole());
    });
    assert_eq!(run.findings, []);
}

/// A simulated device; the test chooses what it answers
type Scripted = Hooked<Script>;

struct Script {
    /// The answers of a destroyed eager queue pair, of a destroyed bulk one, and of deregistered memory.
    answers: [Teardown; 3],
    /// Which queue pairs refuse receives: the first bit is that of the eager ones.
    refuses: AtomicU32,
    destroyed: AtomicU32,
    /// When a queue pair is destroyed, the device records the memory of this node.
    watched: Mutex<Option<Node<Scripted>>>,
    /// What was free then.
    seen: Mutex<Vec<PoolStats>>,
}

impl Hooks for Script {
    fn post_recv(&self, qp: u32) -> Result<(), Error> {
        if self.refuses.load(Ordering::Relaxed) >> (qp % 2) & 1 == 1 { Err(REFUSED) } else { Ok(()) }
    }

    fn destroy(&self, qp: u32) -> Option<Teardown> {
        self.destroyed.fetch_add(1, Ordering::Relaxed);
        let watched = self.watched.lock().unwrap();
        self.seen.lock().unwrap().extend(watched.as_ref().map(Node::pool_stats));
        Some(self.answers[qp as usize % 2])
    }

    fn deregister(&self) -> Option<Teardown> {
        Some(self.answers[2])
    }
}

const REFUSED: Error = Error::new(Verb::PostRecv, Cause::DeviceGone);

fn scripted(net: &Net, answers: [Teardown; 3]) -> (Arc<Script>, Node<Scripted>, Node<SimDevice>) {
    let (refuses, destroyed, watched, seen) = Default::default();
    let script = Arc::new(Script { answers, refuses, destroyed, watched, seen });
    let a = hooked_node(net, "a", &script, &options());
    (script, a, node(net, "b", &options()))
}

/// A session of a scripted device with requests of all kinds in flight
struct Busy {
    script: Arc<Script>,
    a: Node<Scripted>,
    ab: Session<Scripted>,
    /// A message of [`LONG`] bytes, of which parts are posted.
    sent: Pin<Box<Send<Scripted>>>,
    /// The peer, and a message of [`LONG`] bytes from there, for which receives are posted.
    peer: (Node<SimDevice>, Session<SimDevice>, Pin<Box<Send<SimDevice>>>),
}

const LONG: usize = 1 << 20;
/// Frames of one such message.
const FRAMES: usize = LONG / FRAME;
/// Frames of a path: its window, and the places for trailers.
const POSTED: usize = MAX_UNREPORTED as usize + 1;

async fn busy(net: &Net, answers: [Teardown; 3]) -> Busy {
    let (script, a, b) = scripted(net, answers);
    let (ab, ba) = connect(&a, &b).await.unwrap();
    let from_peer = begun(ba.send(zeros(&ba, LONG).await)).await;
    let sent = begun(ab.send(zeros(&ab, LONG).await)).await;
    // Half of the time that the messages take.
    net.sleep(Duration::from_micros(60)).await;
    assert_eq!(held(&a), [FRAMES, POSTED + FRAMES]);
    Busy { script, a, ab, sent, peer: (b, ba, from_peer) }
}

/// The frames for sending and for receiving that are not free
fn held(node: &Node<Scripted>) -> [usize; 2] {
    let held = |zone: ZoneStats| (zone.total_bytes - zone.free_bytes) / FRAME;
    let stats = node.pool_stats();
    [held(stats.send), held(stats.receive)]
}

/// Catches messages and receives that are given back before the queue pairs of their path are destroyed.
#[test]
fn no_memory_comes_back_before_the_device_has_stopped() {
    Sim::new().run(async |net| {
        let busy = busy(&net, [Teardown::Quiesced; 3]).await;
        // Nobody needs the messages any more but the device.
        busy.ab.reset(7);
        let before = busy.a.pool_stats();
        assert_eq!(held(&busy.a), [FRAMES, POSTED + FRAMES]);
        *busy.script.watched.lock().unwrap() = Some(busy.a.clone());
        net.inject("at 0s a:rdma_en2 unplug".parse().unwrap());
        let unsent = busy.sent.await.unwrap_err();
        assert_eq!(unsent.error, SendError::Lost(SessionError::Aborted));
        assert!(unsent.lease.is_some());
        *busy.script.watched.lock().unwrap() = None;
        assert_eq!(*busy.script.seen.lock().unwrap(), [before; 2]);
        drop(unsent);
        assert_eq!(held(&busy.a), [0, 0]);
        net.inject("at 0s a:rdma_en2 replug".parse().unwrap());
        drop((busy.ab, busy.peer.1, busy.peer.2));
        busy.a.wait_idle().await;
        assert!(busy.a.pool_stats().is_whole());
    });
}

/// Catches memory that a device may still touch and that is used again: receives, messages and packets; one queue pair that answers
/// for both; a session that ends although its memory was proved to be free; and a task that is not woken when its message stays out.
#[test]
fn memory_of_a_device_that_may_go_on_stays_out() {
    use Teardown::{Quiesced, Unknown};
    for number in 0..8 {
        let answers = [1, 2, 4].map(|bit| if number & bit == 0 { Quiesced } else { Unknown });
        let is_out = answers[..2].contains(&Unknown) && answers[2] == Unknown;
        Sim::new().run(async |net| {
            let Busy { a, ab, sent, peer: (b, ba, from_peer), .. } = busy(&net, answers).await;
            net.inject("at 0s a:rdma_en2 flap 5ms".parse().unwrap());
            if is_out {
                let unsent = sent.await.unwrap_err();
                assert_eq!(unsent.error, SendError::Lost(SessionError::Unstopped), "{answers:?}");
                assert!(unsent.lease.is_none());
                assert_eq!(ab.recv().await.unwrap_err(), RecvError::Lost(SessionError::Unstopped));
                assert_eq!(held(&a), [FRAMES, POSTED + FRAMES]);
                // The peer learns of it.
                let gone = RecvError::Lost(SessionError::PeerGone(ByeReason::Device));
                assert_eq!(ba.recv().await.unwrap_err(), gone);
                drop((ab, ba, from_peer));
                join(a.wait_idle(), b.wait_idle()).await;
                assert_eq!(held(&a), [FRAMES, POSTED + FRAMES], "never again");
                assert!(b.pool_stats().is_whole());
                // Other peers have memory of their own.
                net.sleep(Duration::from_millis(10)).await;
                connect(&a, &b).await.unwrap();
            } else {
                let (sent, from_peer) = join(sent, from_peer).await;
                drop((sent.unwrap(), from_peer.unwrap()));
                assert_eq!(ab.recv().await.unwrap().unwrap().len(), LONG, "{answers:?}");
                assert_eq!(ba.recv().await.unwrap().unwrap().len(), LONG);
                drop((ab, ba));
                join(a.wait_idle(), b.wait_idle()).await;
                assert!(a.pool_stats().is_whole() && b.pool_stats().is_whole(), "{answers:?}");
            }
        });
    }
}

/// Passes the first `count` messages of a handshake on, and nothing behind them
async fn pass(net: &Net, ends: [&mut DuplexStream; 2], count: usize) {
    const CONTROL: usize = ControlMessage::LEN;
    let messages = [(0, Hello::LEN), (1, Hello::LEN), (0, CONTROL), (1, CONTROL), (0, CONTROL), (1, CONTROL)];
    for (from, len) in messages.into_iter().take(count) {
        let mut bytes = vec![0; len];
        ends[from].read_exact(&mut bytes).await.unwrap();
        ends[1 - from].write_all(&bytes).await.unwrap();
    }
    net.sleep(Duration::from_millis(1)).await;
}

/// Catches an attempt that keeps something until a task looks at it, or that is not given up where it waits.
#[test]
fn an_attempt_that_is_given_up_leaves_nothing_for_a_moment() {
    for count in 0..=5 {
        Sim::new().run(async |net| {
            let (a, b) = nodes(&net, &options());
            let ((to_b, mut from_a), (to_a, mut from_b)) = (duplex(256), duplex(256));
            let passed = Box::pin(pass(&net, [&mut from_a, &mut from_b], count));
            let (mut connect, mut serve) = (Box::pin(a.connect(to_b)), Box::pin(b.serve(to_a)));
            let Either::Left(_) = select(passed, select(connect.as_mut(), serve.as_mut())).await else {
                assert_eq!(count, 5, "the accepting side is done when it has answered the offer");
                assert!(!b.pool_stats().is_whole(), "receives are posted");
                return;
            };
            drop((connect, serve));
            assert!(a.pool_stats().is_whole() && b.pool_stats().is_whole());
            let start = net.now();
            join(a.wait_idle(), b.wait_idle()).await;
            assert_eq!(net.now(), start);
        });
    }
}

/// Catches an attempt that fails and keeps the memory of its refused receive, or its place among the peers.
#[test]
fn a_refused_receive_ends_the_attempt_and_loses_no_memory() {
    Sim::new().run(async |net| {
        let (script, a, b) = scripted(&net, [Teardown::Quiesced; 3]);
        for _ in 0..20 {
            script.refuses.store(1, Ordering::Relaxed);
            let refused = connect(&a, &b).await;
            assert!(matches!(refused, Err(ConnectError::Device(error)) if error == REFUSED));
            assert!(a.pool_stats().is_whole());
            a.wait_idle().await;
            // The peer has a path, and waits for a word on it.
            b.wait_idle().await;
        }
        script.refuses.store(0, Ordering::Relaxed);
        connect(&a, &b).await.unwrap();
    });
}

/// Catches a refused receive that ends a session, or that costs memory or a message.
#[test]
fn a_refused_receive_ends_its_path_and_no_session() {
    for (refuses, len) in [(1, 10), (1, 100_000), (2, 100_000)] {
        Sim::new().run(async |net| {
            let (script, a, b) = scripted(&net, [Teardown::Quiesced; 3]);
            let (ab, ba) = connect(&a, &b).await.unwrap();
            script.refuses.store(refuses, Ordering::Relaxed);
            let repair = async {
                net.sleep(Duration::from_millis(50)).await;
                assert!(script.destroyed.load(Ordering::Relaxed) >= 4, "the path was made again and again");
                script.refuses.store(0, Ordering::Relaxed);
            };
            let sent = message(1, len);
            let (sent_all, received, ()) = futures::join!(ba.send_bytes(&sent), ab.recv(), repair);
            sent_all.unwrap();
            assert!(*received.unwrap().unwrap() == sent);
            ab.send_bytes(&sent).await.unwrap();
            assert!(*ba.recv().await.unwrap().unwrap() == sent);
            drop((ab, ba));
            join(a.wait_idle(), b.wait_idle()).await;
            assert!(a.pool_stats().is_whole() && b.pool_stats().is_whole());
        });
    }
}

/// Catches a `reset` that replaces the reason of a session that is over.
#[test]
fn the_first_reason_stays_the_reason() {
    on_session(Sim::new(), &options(), async |_, pair| {
        pair.ba.reset(7);
        let lost = Err(CloseError::Lost(SessionError::Reset(7)));
        assert_eq!(pair.ab.closed().await, lost);
        pair.ab.reset(8);
        assert_eq!(pair.ab.close_reason(), Some(lost));
        assert_eq!(pair.ab.recv().await.unwrap_err(), RecvError::Lost(SessionError::Reset(7)));
        assert_eq!(pair.ba.close_reason(), Some(Err(CloseError::Lost(SessionError::Aborted))));
    });
}

/// Catches a task that waits for a place when the session ends, while an outcome that is not collected keeps the place.
#[test]
fn a_send_that_waits_for_a_place_fails_when_the_session_ends() {
    on_session(Sim::new(), &options().max_in_flight_sends(1), async |_, pair| {
        let first = begun(pair.ab.send(zeros(&pair.ab, 100_000).await)).await;
        let second = pair.ab.send(zeros(&pair.ab, 10).await);
        let (second, ()) = join(second, async { pair.ab.reset(7) }).await;
        assert_eq!(second.unwrap_err().error, SendError::Lost(SessionError::Aborted));
        drop(first);
    });
}

/// Catches a `reset` that calls a session lost for which only the peer may still wait.
#[test]
fn resetting_after_the_end_loses_nothing() {
    on_session(Sim::new(), &options(), async |_, pair| {
        let read = async {
            assert!(pair.ab.recv().await.unwrap().is_none());
            pair.ab.close().await.unwrap();
            pair.ab.reset(7);
            assert_eq!(pair.ab.close_reason(), Some(Ok(())));
            assert!(pair.ab.recv().await.unwrap().is_none());
        };
        let (closed, ()) = join(pair.ba.close(), read).await;
        assert_eq!(closed, Ok(()));
    });
}

/// Catches an end in good order that is reported although a message before it is missing: the end overtakes long messages.
#[test]
fn a_message_that_is_cut_off_is_not_passed_over() {
    let mut cut_off = 0;
    for step in 0..100 {
        on_session(Sim::new(), &options(), async |net, pair| {
            let _send = begun(pair.ba.send(zeros(&pair.ba, 40 * FRAME).await)).await;
            let _close = begun(pair.ba.close()).await;
            net.sleep(Duration::from_nanos(step * 500)).await;
            pair.ab.reset(7);
            match pair.ab.recv().await {
                Ok(message) => {
                    assert_eq!(message.expect("the message comes before the end").len(), 40 * FRAME)
                }
                Err(error) => {
                    assert_eq!(error, RecvError::Lost(SessionError::Aborted));
                    cut_off += 1;
                }
            }
        });
    }
    assert!((1..100).contains(&cut_off), "{cut_off}");
}
