//! Devices that do not return from a verb, with real threads: the executor is one thread, which no verb may keep

use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use futures::future::join;
use rdma_async::{ConnectError, Node, Session};
use rdma_core::{Device, Verb};
use rdma_sim::driver::realtime;
use rdma_sim::{LineRate, Net, Sim};
use rdma_tests::{DEVICE, Hooked, Hooks, connect, message, options};

use super::figures::cables;

/// How long a device may take
const LIMIT: Duration = Duration::from_millis(100);
/// Longer than anything takes unless it waits for ever
const FOR_EVER: Duration = Duration::from_secs(60);

/// Keeps the threads that call a verb while it is closed
struct Gate {
    verb: Verb,
    /// Whether it is closed, and how many calls wait
    state: Mutex<(bool, usize)>,
    opened: Condvar,
}

impl Gate {
    fn new(verb: Verb) -> Arc<Self> {
        Arc::new(Self { verb, state: Mutex::new((false, 0)), opened: Condvar::new() })
    }

    fn close(&self) {
        self.state.lock().unwrap().0 = true;
    }

    fn open(&self) {
        self.state.lock().unwrap().0 = false;
        self.opened.notify_all();
    }

    fn waiting(&self) -> usize {
        self.state.lock().unwrap().1
    }
}

impl Hooks for Gate {
    fn call(&self, verb: Verb) {
        if verb == self.verb {
            let mut state = self.state.lock().unwrap();
            state.1 += 1;
            let (mut state, waited) =
                self.opened.wait_timeout_while(state, FOR_EVER, |(is_closed, _)| *is_closed).unwrap();
            state.1 -= 1;
            assert!(!waited.timed_out(), "{verb} keeps the thread that would open the gate");
        }
    }
}

async fn until(is_reached: impl Fn() -> bool) {
    while !is_reached() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

/// A node on the runtime of the caller
fn node<D: Device>(open: impl Fn() -> D + Send + Sync + 'static) -> Node<D> {
    let builder = Node::builder(move || Ok::<_, rdma_core::Error>(open()));
    builder.options(options().device_timeout(LIMIT)).build().unwrap()
}

fn gated(net: &Net, host: &str, gate: &Arc<Gate>) -> Node<Hooked<Gate>> {
    let (open, gate) = (net.opener(host, DEVICE), Arc::clone(gate));
    node(move || Hooked::new(open().unwrap(), &gate))
}

async fn exchange<A: Device, B: Device>(ab: &Session<A>, ba: &Session<B>) {
    for number in 0..20 {
        let (sent, got) = join(ab.send_bytes(&message(number, 100_000)), ba.recv()).await;
        sent.unwrap();
        assert!(*got.unwrap().unwrap() == message(number, 100_000));
    }
}

/// Runs `program` on one thread, over two cables in real time, with a session over the second one
fn with_other_session(
    program: impl AsyncFnOnce(&Net, &dyn Fn() -> futures::future::LocalBoxFuture<'static, ()>),
) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let handle = runtime.handle().clone();
    let sim = Sim::new().topology(cables(&[LineRate::TB5; 2]));
    let running = realtime::start(sim, move |task| drop(handle.spawn(task))).unwrap();
    let net = running.net().clone();
    runtime.block_on(async {
        let [a, b] = ["a", "b"].map(|host| {
            let open = net.opener(host, "rdma_en3");
            node(move || open().unwrap())
        });
        let (ab, ba) = connect(&a, &b).await.unwrap();
        let (of_ab, of_ba) = (ab.clone(), ba.clone());
        program(&net, &move || {
            let (ab, ba) = (of_ab.clone(), of_ba.clone());
            Box::pin(async move { exchange(&ab, &ba).await })
        })
        .await;
        exchange(&ab, &ba).await;
        let (closed, end) = join(ab.close(), ba.recv()).await;
        closed.unwrap();
        assert!(end.unwrap().is_none());
        assert_eq!(net.findings(), []);
    });
}

/// Catches a verb of connecting on the thread of the executor: the gate would never open.
#[test]
fn a_verb_of_connecting_keeps_its_own_thread() {
    for verb in [Verb::RegMr, Verb::CreateQp, Verb::ModifyQp] {
        with_other_session(async |net, exchange_other| {
            let gate = Gate::new(verb);
            let [a, b] = ["a", "b"].map(|host| gated(net, host, &gate));
            gate.close();
            let connecting = async {
                let error = connect(&a, &b).await.err();
                assert!(matches!(error, Some(ConnectError::Blocked(_))), "{verb}: {error:?}");
            };
            let other = async {
                until(|| gate.waiting() > 0).await;
                exchange_other().await;
            };
            join(connecting, other).await;
            until(|| a.device_stats().blocked_calls + b.device_stats().blocked_calls > 0).await;
            gate.open();
            // What comes late is given back, and the device is used again.
            until(|| a.device_stats().blocked_calls + b.device_stats().blocked_calls == 0).await;
            let (ab, ba) = connect(&a, &b).await.unwrap();
            exchange(&ab, &ba).await;
        });
    }
}

/// Catches a verb of teardown on the thread of the executor, and memory that is used again before the device has stopped.
#[test]
fn a_verb_of_teardown_keeps_its_own_thread() {
    for verb in [Verb::DestroyQp, Verb::DeregMr] {
        with_other_session(async |net, exchange_other| {
            let gate = Gate::new(verb);
            let [a, b] = ["a", "b"].map(|host| gated(net, host, &gate));
            let (ab, ba) = connect(&a, &b).await.unwrap();
            exchange(&ab, &ba).await;
            gate.close();
            ab.close().await.unwrap();
            drop((ab, ba));
            until(|| gate.waiting() > 0).await;
            exchange_other().await;
            join(a.wait_idle(), b.wait_idle()).await;
            assert_eq!(a.device_stats().abandoned, 1, "{verb}: the path with what was posted");
            assert!(!a.pool_stats().is_whole(), "{verb}");
            gate.open();
            until(|| a.device_stats().blocked_calls + b.device_stats().blocked_calls == 0).await;
            let (ab, ba) = connect(&a, &b).await.unwrap();
            exchange(&ab, &ba).await;
        });
    }
}
