//! A provider in C that does not return from a verb, with real threads: each verb in turn
//!
//! The executor is one thread, which no verb of connecting, registration and teardown may keep; a post or a poll keeps it, and is reported.
//! Each case has two hosts and a cable of its own, beside those of a session that must not notice anything. The bound is long for the other
//! verbs, which take microseconds, so that a slow machine changes nothing.
#![cfg(unix)]
#![allow(unsafe_code, reason = "calls the provider as a program in C does")]

use std::ffi::CString;
use std::fmt::{self, Write as _};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::Duration;

use futures::channel::oneshot;
use futures::future::join;
use rdma_async::{ConnectError, Node, NodeBuilder, NodeOptions, PathStatus, Session};
use rdma_core::AnyDevice;
use rdma_sim::{LineRate, Topology};
use rdma_tb5::{OpenOptions, Provider, VerbsDevice};
use rdma_tests::counted::Counted;
use rdma_tests::gated::{GATE, TRAFFIC, provider};
use rdma_tests::{connect, message, options};
use tokio::runtime::Builder;
use tracing::field::{Field, Visit};
use tracing::span;

/// How long a device may take
const LIMIT: Duration = Duration::from_millis(750);
/// Longer than anything takes unless it waits for ever
const FOR_EVER: Duration = Duration::from_secs(30);

const CONNECTING: [&str; 9] = [
    "open_device",
    "query_device",
    "query_port",
    "query_gid",
    "alloc_pd",
    "create_cq",
    "reg_mr",
    "create_qp",
    "modify_qp",
];
/// Calls after which a path is gone, and those of a device that nothing uses any more
const TEARDOWN: [&str; 2] = ["destroy_qp", "dereg_mr"];
const CLOSING: [&str; 3] = ["destroy_cq", "dealloc_pd", "close_device"];

type Verbs = Session<AnyDevice>;

/// What the crate `rdma-tb5` tells a subscriber of `tracing`: the level and the fields of each event
struct Log(Mutex<Vec<String>>);

static LOG: Log = Log(Mutex::new(Vec::new()));

impl Log {
    fn lines(&self) -> MutexGuard<'_, Vec<String>> {
        self.0.lock().unwrap()
    }
}

struct Line(String);

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        write!(self.0, " {}={value:?}", field.name()).unwrap();
    }
}

impl tracing::Subscriber for &'static Log {
    fn enabled(&self, metadata: &tracing::Metadata<'_>) -> bool {
        metadata.is_event() && metadata.target().starts_with("rdma_tb5")
    }

    fn event(&self, event: &tracing::Event<'_>) {
        let mut line = Line(event.metadata().level().to_string());
        event.record(&mut line);
        self.lines().push(line.0);
    }

    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        unreachable!("spans are not enabled")
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}
    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}
    fn enter(&self, _: &span::Id) {}
    fn exit(&self, _: &span::Id) {}
}

fn inject(fault: &str) {
    let fault = CString::new(fault).unwrap();
    // SAFETY: the text ends with a zero.
    assert_eq!(unsafe { rdma_sim_verbs::rdma_sim_inject(fault.as_ptr()) }, 0);
}

#[track_caller]
fn until(is_reached: impl Fn() -> bool) -> impl Future<Output = ()> {
    let caller = std::panic::Location::caller();
    let reached = async move {
        while !is_reached() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    async move {
        let in_time = tokio::time::timeout(FOR_EVER, reached).await;
        in_time.unwrap_or_else(|_| panic!("what line {} waits for does not come", caller.line()));
    }
}

async fn exchange(ab: &Verbs, ba: &Verbs) {
    for number in 0..20 {
        let (sent, got) = join(ab.send_bytes(&message(number, 100_000)), ba.recv()).await;
        sent.unwrap();
        assert!(*got.unwrap().unwrap() == message(number, 100_000));
    }
}

/// The hosts of the case with that number: `a0` and `b0` are those of the session that must not notice anything
fn hosts(case: usize) -> [String; 2] {
    ["a", "b"].map(|side| format!("{side}{case}"))
}

struct Cases {
    provider: Arc<Provider>,
    other: (Verbs, Verbs),
    next: usize,
}

impl Cases {
    async fn new(count: usize) -> Self {
        let mut topology = Topology::new();
        for [a, b] in (0..=count).map(hosts) {
            topology = topology.host(&a, 1).host(&b, 1).cable((&*a, 0), (&*b, 0), LineRate::TB5);
        }
        let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join("blocked-provider.toml");
        std::fs::write(&file, topology.to_toml()).unwrap();
        let text = CString::new(format!("RDMA_SIM_TOPOLOGY={}", file.display())).unwrap();
        // SAFETY: the text ends with a zero.
        assert_eq!(unsafe { rdma_sim_verbs::rdma_sim_configure(text.as_ptr()) }, 0);
        let provider = provider();
        let [a, b] = hosts(0).map(|host| node(&provider, &host, options()));
        let other = connect(&a, &b).await.unwrap();
        Self { provider, other, next: 1 }
    }

    /// The nodes of the next case, and the name of the host before whose device the gate stands
    fn start(&mut self, begins_unplugged: bool) -> (String, [Node<AnyDevice>; 2]) {
        let hosts = hosts(self.next);
        self.next += 1;
        GATE.watch(&format!("rdma_en2@{}", hosts[0]));
        if begins_unplugged {
            inject(&format!("at 0ns {}:rdma_en2 unplug", hosts[0]));
        }
        let nodes = [0, 1].map(|side| node(&self.provider, &hosts[side], options()));
        let [host, _] = hosts;
        (host, nodes)
    }

    async fn exchange_other(&self) {
        exchange(&self.other.0, &self.other.1).await;
    }

    /// What was abandoned is not called, and the other session goes on
    async fn assert_left_alone(&self, what: &str) {
        self.assert_not_called(what, |_| true).await;
    }

    /// The objects of which `is_abandoned` is true are not called, and the other session goes on
    async fn assert_not_called(&self, what: &str, is_abandoned: impl Fn(usize) -> bool) {
        self.exchange_other().await;
        // A call that another thread had begun when the device was given up may still come.
        let mut late = Vec::new();
        for _ in 0..3 {
            let before = GATE.calls().len();
            tokio::time::sleep(LIMIT / 3).await;
            late = GATE.calls().split_off(before);
            late.retain(|(_, object)| is_abandoned(*object));
            if late.is_empty() {
                return;
            }
        }
        panic!("{what}: the device is not left alone: {late:?}");
    }
}

fn node(provider: &Arc<Provider>, host: &str, options: NodeOptions) -> Node<AnyDevice> {
    builder(provider, host, options).build().unwrap()
}

fn builder(provider: &Arc<Provider>, host: &str, options: NodeOptions) -> NodeBuilder<AnyDevice> {
    let (provider, name) = (Arc::clone(provider), format!("rdma_en2@{host}"));
    let open_options = OpenOptions::new().call_timeout(LIMIT);
    let open = move || VerbsDevice::open(&provider, &name, open_options.clone()).map(AnyDevice::new);
    Node::builder(open).options(options.device_timeout(LIMIT))
}

fn run(program: impl Future<Output = ()>) {
    let runtime = Builder::new_current_thread().enable_time().build().unwrap();
    runtime.block_on(program);
}

async fn connecting(cases: &mut Cases, verb: &'static str) {
    let (host, [a, b]) = cases.start(true);
    GATE.close(verb);
    inject(&format!("at 0ns {host}:rdma_en2 replug"));
    let other = async {
        until(|| GATE.waiting() > 0).await;
        cases.exchange_other().await;
    };
    let (connected, ()) = join(connect(&a, &b), other).await;
    let Err(ConnectError::Blocked(blocked)) = connected else { panic!("{verb}: {:?}", connected.err()) };
    assert!(blocked.to_string().contains(verb), "{verb}: {blocked}");
    cases.assert_left_alone(verb).await;
    GATE.open();
    // What comes late is given back, and the device is used again.
    until(|| a.device_stats().blocked_calls == 0).await;
    let (ab, ba) = connect(&a, &b).await.unwrap();
    exchange(&ab, &ba).await;
}

async fn reconnecting(cases: &mut Cases, verb: &'static str) {
    let (host, [a, b]) = cases.start(false);
    let (ab, ba) = connect(&a, &b).await.unwrap();
    exchange(&ab, &ba).await;
    let of = |verb| {
        let calls = GATE.calls().into_iter();
        calls.filter(move |call| call.0 == verb).map(|call| call.1).collect::<Vec<_>>()
    };
    let domains = of("create_qp");
    let contexts = [of("query_device"), of("query_port"), of("query_gid")].concat();
    assert!(!contexts.is_empty());
    GATE.close(verb);
    inject(&format!("at 0ns {host}:rdma_en2 flap 5ms"));
    until(|| GATE.waiting() > 0).await;
    cases.exchange_other().await;
    until(|| a.device_stats().blocked_calls > 0).await;
    if verb == "destroy_cq" {
        // The path may have been made again before the old handle was given up, and then carries the session on.
        cases.assert_not_called(verb, |object| contexts.contains(&object)).await;
    } else {
        until(|| ab.snapshot().paths[0].blocked.is_some()).await;
        let blocked = ab.snapshot().paths[0].blocked;
        assert!(blocked.is_some_and(|blocked| blocked.to_string().contains(verb)), "{verb}: {blocked:?}");
        cases.assert_left_alone(verb).await;
    }
    GATE.open();
    until(|| a.device_stats().blocked_calls == 0).await;
    drop((ab, ba, a, b));
    cases.exchange_other().await;
    tokio::time::sleep(LIMIT / 3).await;
    let is_kept = of("dealloc_pd").iter().all(|domain| !domains.contains(domain));
    assert!(!domains.is_empty() && is_kept, "{verb}");
}

async fn ending(cases: &mut Cases, verb: &'static str) {
    let (_, [a, b]) = cases.start(false);
    let (ab, ba) = connect(&a, &b).await.unwrap();
    exchange(&ab, &ba).await;
    GATE.close(verb);
    ab.close().await.unwrap();
    drop((ab, ba));
    if CLOSING.contains(&verb) {
        drop((a, b));
        until(|| GATE.waiting() > 0).await;
        cases.assert_left_alone(verb).await;
        return GATE.open();
    }
    until(|| GATE.waiting() > 0).await;
    cases.exchange_other().await;
    a.wait_idle().await;
    assert_eq!((a.device_stats().blocked_calls, a.device_stats().abandoned), (1, 1), "{verb}");
    assert!(!a.pool_stats().is_whole(), "{verb}: the device may still use what was posted");
    cases.assert_left_alone(verb).await;
    GATE.open();
    until(|| a.device_stats().blocked_calls == 0).await;
    let (ab, ba) = connect(&a, &b).await.unwrap();
    exchange(&ab, &ba).await;
}

/// The thread of the executor calls no verb but posts and polls, whether the port was silent, the cable is lost, or all ends
async fn off_the_executor(cases: &mut Cases) {
    let (host, [a, b]) = cases.start(false);
    // The node has opened the device, on the thread that has built it.
    let (executor, opening) = (std::thread::current().id(), GATE.calls().len());
    let (ab, ba) = connect(&a, &b).await.unwrap();
    for rest in [1, 10, 100].map(Duration::from_millis) {
        exchange(&ab, &ba).await;
        tokio::time::sleep(rest).await;
    }
    let queries = || GATE.calls().iter().filter(|call| call.0 == "query_port").count();
    assert!(queries() > 0);
    inject(&format!("at 0ns {host}:rdma_en2 flap 5ms"));
    exchange(&ab, &ba).await;
    ab.close().await.unwrap();
    drop((ab, ba));
    a.wait_idle().await;
    drop((a, b));
    until(|| GATE.calls().iter().any(|call| call.0 == "destroy_cq")).await;
    assert_eq!(GATE.calls_by(executor, opening), [""; 0]);
}

/// A session at rest: one thread queries the port, for longer than a call may take, and is given up with the session
async fn resting(cases: &mut Cases) {
    let hosts = hosts(cases.next);
    cases.next += 1;
    GATE.watch(&format!("rdma_en2@{}", hosts[0]));
    // No heartbeat notices that the port is down.
    let patient = || options().peer_timeout(Duration::from_hours(1));
    let runtime = Counted::current();
    let a = builder(&cases.provider, &hosts[0], patient()).runtime(runtime.clone()).build().unwrap();
    let b = node(&cases.provider, &hosts[1], patient());
    let (ab, ba) = connect(&a, &b).await.unwrap();
    exchange(&ab, &ba).await;
    let queries = || GATE.calls().iter().filter(|call| call.0 == "query_port").count();
    let queried = |times: usize| {
        let before = queries();
        until(move || queries() >= before + times)
    };
    queried(50).await;
    let before = runtime.calls();
    queried(300).await;
    assert_eq!(runtime.calls() - before, 0, "calls for 300 queries of a port");
    inject(&format!("at 0ns {}:rdma_en2 unplug", hosts[0]));
    until(|| ab.snapshot().paths[0].status == PathStatus::Down).await;
    inject(&format!("at 0ns {}:rdma_en2 replug", hosts[0]));
    exchange(&ab, &ba).await;
    ab.close().await.unwrap();
    drop((ab, ba));
    a.wait_idle().await;
    cases.assert_left_alone("a node at rest").await;
}

/// A session of which one host has an executor of its own, and sends back what it receives
struct Echo {
    host: String,
    a: Node<AnyDevice>,
    b: Node<AnyDevice>,
    ba: Session<AnyDevice>,
    ended: oneshot::Receiver<()>,
    thread: JoinHandle<()>,
}

impl Echo {
    /// The session of the next case; the executor has so many threads
    #[expect(clippy::disallowed_methods, reason = "a post or a poll keeps a thread of the executor")]
    async fn start(cases: &mut Cases, threads: usize) -> Self {
        let [host, host_b] = hosts(cases.next);
        cases.next += 1;
        GATE.watch(&format!("rdma_en2@{host}"));
        let patient = || options().peer_timeout(FOR_EVER);
        let (to_b, to_a) = tokio::io::duplex(1024);
        let ((started, of_thread), (end, ended)) = (oneshot::channel(), oneshot::channel());
        let (provider, host_a) = (Arc::clone(&cases.provider), host.clone());
        let thread = std::thread::spawn(move || {
            let mut builder = match threads {
                1 => Builder::new_current_thread(),
                _ => Builder::new_multi_thread(),
            };
            builder.worker_threads(threads).enable_time().build().unwrap().block_on(async move {
                let a = node(&provider, &host_a, patient());
                assert!(started.send(a.clone()).is_ok());
                let ab = a.connect(to_b).await.unwrap();
                while let Some(message) = ab.recv().await.unwrap() {
                    ab.send_bytes(&message).await.unwrap();
                }
                ab.close().await.unwrap();
                drop(ab);
                a.wait_idle().await;
                assert!(end.send(()).is_ok());
            });
        });
        let b = node(&cases.provider, &host_b, patient());
        b.serve(to_a).await.unwrap();
        let (a, ba) = (of_thread.await.unwrap(), b.accept().await.unwrap());
        let echo = Self { host, a, b, ba, ended, thread };
        echo.exchange(1).await;
        assert_eq!(echo.blocked(), [0, 0]);
        echo
    }

    async fn exchange(&self, number: usize) {
        let sent = message(number, 100_000);
        let (sending, got) = join(self.ba.send_bytes(&sent), self.ba.recv()).await;
        sending.unwrap();
        assert!(*got.unwrap().unwrap() == sent);
    }

    /// How many calls and devices are blocked
    fn blocked(&self) -> [usize; 2] {
        let stats = self.a.device_stats();
        [stats.blocked_calls, stats.blocked_devices]
    }

    async fn end(self) {
        self.exchange(3).await;
        self.ba.close().await.unwrap();
        drop(self.ba);
        self.ended.await.unwrap();
        drop((self.a, self.b));
        self.thread.join().unwrap();
    }
}

async fn traffic(cases: &mut Cases, verb: &'static str) {
    let echo = Echo::start(cases, 1).await;
    GATE.close(verb);
    let reported = async {
        until(|| GATE.waiting() > 0).await;
        cases.exchange_other().await;
        until(|| echo.blocked() == [0, 1]).await;
        cases.exchange_other().await;
        GATE.open();
        until(|| echo.blocked() == [0, 0]).await;
    };
    join(echo.exchange(2), reported).await;
    for (level, words) in [("ERROR", "does not return"), ("INFO", "has returned")] {
        let is_told =
            |line: &&String| [level, &echo.host, verb, words].iter().all(|part| line.contains(part));
        until(|| LOG.lines().iter().filter(is_told).count() == 1).await;
    }
    echo.end().await;
}

/// A link is lost while a poll does not return: the other thread of the executor ends the path, and makes it again
async fn losing_the_link_in_a_poll(cases: &mut Cases) {
    let echo = Echo::start(cases, 2).await;
    GATE.close("poll_cq");
    let lost = async {
        until(|| GATE.waiting() > 0).await;
        let destroyed = || GATE.calls().iter().filter(|call| call.0 == "destroy_qp").count();
        let before = destroyed();
        inject(&format!("at 0ns {}:rdma_en2 unplug", echo.host));
        until(|| destroyed() > before && echo.blocked()[1] == 1).await;
        tokio::time::sleep(LIMIT * 3 / 2).await;
        assert_eq!(echo.blocked(), [0, 1], "the poll keeps a call of teardown");
        inject(&format!("at 0ns {}:rdma_en2 replug", echo.host));
        GATE.open();
        until(|| echo.blocked() == [0, 0]).await;
    };
    join(echo.exchange(2), lost).await;
    echo.end().await;
}

/// Catches a verb of set-up or teardown on the thread of the executor or under the lock of a poll, a call without a bound, a report that
/// names another verb, an abandoned object that is called, a blocked post or poll that the log or `Node::device_stats` does not have, and a
/// protection domain of a lost link that is deallocated. Of ports that are not watched by their devices: a call for each query, a thread that is
/// reported although its queries return, one that outlives the last session, and one that reports no change.
///
/// Regression: a post asked for the state of the port on the thread of the executor, which a query that did not return kept for ever.
#[test]
fn a_provider_that_blocks_in_any_verb_is_reported() {
    tracing::subscriber::set_global_default(&LOG).unwrap();
    let remade: Vec<_> = CONNECTING.into_iter().chain(TEARDOWN).chain(["destroy_cq"]).collect();
    run(async {
        let ends: Vec<_> = TEARDOWN.into_iter().chain(CLOSING).collect();
        let count = CONNECTING.len() + remade.len() + ends.len() + TRAFFIC.len() + 3;
        let mut cases = Cases::new(count).await;
        off_the_executor(&mut cases).await;
        for verb in CONNECTING {
            connecting(&mut cases, verb).await;
        }
        for verb in remade {
            reconnecting(&mut cases, verb).await;
        }
        for verb in ends {
            ending(&mut cases, verb).await;
        }
        for verb in TRAFFIC {
            traffic(&mut cases, verb).await;
        }
        losing_the_link_in_a_poll(&mut cases).await;
        resting(&mut cases).await;
        cases.exchange_other().await;
    });
}
