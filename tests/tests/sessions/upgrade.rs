//! A session that begins on a slow device, as over TCP, and moves to a fast one when that can be opened

use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use futures::future::join;
use rdma_async::{Node, NodeOptions, PathStatus};
use rdma_sim::{LineRate, Model, Net, Sim, SimDevice};
use rdma_tests::{DEVICE, Pair, connect, message, options, value_of};

use super::exchange;
use super::figures::cables;

const FAST: &str = "rdma_en3";
/// A tenth of Thunderbolt 5
const SLOW_RATE: LineRate = LineRate { bits_per_second: 8_000_000_000 };
/// The longest pause between two attempts to open a device, and some time for one of them.
const RETRY: Duration = Duration::from_secs(6);
/// 17 ms over the slow cable, 1.8 ms over the fast one
const LONG: usize = 16 << 20;

/// Whether the fast device of either host can be opened
#[derive(Clone, Default)]
struct Appearance([Arc<AtomicBool>; 2]);

impl Appearance {
    fn appear(&self) {
        self.0.iter().for_each(|is_there| is_there.store(true, Relaxed));
    }
}

fn node(net: &Net, host: &str, is_there: &Arc<AtomicBool>, options: &NodeOptions) -> Node<SimDevice> {
    let (is_there, open) = (Arc::clone(is_there), net.opener(host, FAST));
    let fast = move || -> Result<SimDevice, Box<dyn Error + Send + Sync>> {
        if is_there.load(Relaxed) { Ok(open()?) } else { Err("there is no such device".into()) }
    };
    let builder = Node::builder(net.opener(host, DEVICE)).device(fast).options(options.clone());
    builder.runtime(net.host(host).runtime()).build().unwrap()
}

/// Runs `program` with a session between hosts whose fast devices are still to appear, on each kind of device
fn upgrading(program: impl AsyncFn(&Net, &Pair, &Appearance)) {
    for model in [Model::tb5(), Model::roce()] {
        let sim = Sim::new().model(model).topology(cables(&[SLOW_RATE, LineRate::TB5])).sanitize(false);
        value_of(sim, async |net| {
            let there = Appearance::default();
            let options = options().max_message(LONG).receive_memory(2 * LONG).send_memory(2 * LONG);
            let [a, b] = [("a", &there.0[0]), ("b", &there.0[1])]
                .map(|(host, is_there)| node(&net, host, is_there, &options));
            let (ab, ba) = connect(&a, &b).await.unwrap();
            program(&net, &Pair { a, b, ab, ba }, &there).await;
        });
    }
}

/// Injects a fault now
fn fault(net: &Net, what: &str) {
    net.inject(format!("at 0s {what}").parse().unwrap());
}

fn is_fast(pair: &Pair) -> bool {
    [&pair.ab, &pair.ba]
        .iter()
        .all(|session| session.snapshot().paths.get(1).is_some_and(|path| path.status == PathStatus::Up))
}

/// Bytes of long messages that `b` has let come over the slow and over the fast path
fn granted(pair: &Pair) -> [u64; 2] {
    let paths = pair.ba.snapshot().paths;
    [0, 1].map(|path| paths.get(path).map_or(0, |path| path.counts.bulk_bytes_granted))
}

/// Waits for the fast path; fails if it takes longer than `limit`
async fn wait_for_fast(net: &Net, pair: &Pair, limit: Duration) {
    let start = net.now();
    while !is_fast(pair) {
        net.sleep(Duration::from_micros(10)).await;
        assert!(net.now() - start <= limit, "{}", pair.ba.snapshot());
    }
}

/// Sends a long message while `beside` runs; how long the message takes
async fn long_message(net: &Net, pair: &Pair, number: usize, beside: impl Future) -> Duration {
    let start = net.now();
    let sent = message(number, LONG);
    let receive = async {
        let got = pair.ba.recv().await.unwrap().unwrap();
        assert!(*got == sent, "message {number}");
        net.now() - start
    };
    let send = async { pair.ab.send_bytes(&sent).await.unwrap() };
    join(join(receive, send), beside).await.0.0
}

/// Catches a device that is not tried again while nothing is sent, and one that is tried less often the longer it is away.
#[test]
fn an_idle_session_moves_when_the_device_appears() {
    for idle in [Duration::from_secs(1), Duration::from_mins(31)] {
        upgrading(async |net, pair, there| {
            exchange_one(pair, 1).await;
            net.sleep(idle).await;
            // On one side alone it is of no use.
            there.0[0].store(true, Relaxed);
            net.sleep(RETRY).await;
            assert!(!is_fast(pair));
            there.0[1].store(true, Relaxed);
            wait_for_fast(net, pair, RETRY).await;
            let before = granted(pair);
            long_message(net, pair, 2, async {}).await;
            let after = granted(pair);
            let [slow, fast] = [after[0] - before[0], after[1] - before[1]];
            assert!(fast > 4 * slow, "{fast} bytes over the fast path, {slow} over the other");
        });
    }
}

/// A short message
async fn exchange_one(pair: &Pair, number: usize) {
    pair.ab.send_bytes(&message(number, 100)).await.unwrap();
    assert!(*pair.ba.recv().await.unwrap().unwrap() == message(number, 100));
}

/// Catches a message that stays on the path on which it began.
#[test]
fn a_message_that_is_under_way_moves_when_the_device_appears() {
    upgrading(async |net, pair, there| {
        let appears = async {
            net.sleep(Duration::from_millis(1)).await;
            there.appear();
        };
        let took = long_message(net, pair, 1, appears).await;
        let alone = Duration::from_secs_f64(LONG as f64 / SLOW_RATE.ceiling_bytes_per_second());
        let [slow, fast] = granted(pair);
        assert!(is_fast(pair) && slow > 0 && took < alone * 9 / 10, "{took:?}, {slow} and {fast} bytes");
    });
}

/// Catches bytes that are lost or repeated with the new path, and a session that waits for it.
#[test]
fn a_message_survives_the_loss_of_the_new_cable() {
    // From the moment on at which the path is up: before and after its first packets, and its first parts of the message.
    for after in [0, 10, 100, 1_000] {
        for end in ["a", "b"] {
            upgrading(async |net, pair, there| {
                there.appear();
                let loss = async {
                    wait_for_fast(net, pair, RETRY).await;
                    net.sleep(Duration::from_micros(after)).await;
                    fault(net, &format!("{end}:{FAST} unplug"));
                };
                let took = long_message(net, pair, 1, loss).await;
                assert!(!is_fast(pair), "{after} µs, {end}");
                assert!(took < Duration::from_millis(30), "{after} µs, {end}: {took:?}");
                // And the session moves again.
                fault(net, &format!("{end}:{FAST} replug"));
                wait_for_fast(net, pair, RETRY).await;
                let took = long_message(net, pair, 2, async {}).await;
                assert!(took < Duration::from_millis(5), "{after} µs, {end}: {took:?}");
            });
        }
    }
}

/// Catches a session that ends, or loses messages, when only the new cable is left and then goes, too.
#[test]
fn a_session_goes_from_cable_to_cable() {
    upgrading(async |net, pair, there| {
        there.appear();
        wait_for_fast(net, pair, RETRY).await;
        for (lost, kept) in [(DEVICE, FAST), (FAST, DEVICE)] {
            fault(net, &format!("b:{lost} unplug"));
            let loss = async {
                net.sleep(Duration::from_millis(2)).await;
                fault(net, &format!("b:{kept} unplug"));
                net.sleep(Duration::from_millis(5)).await;
                fault(net, &format!("b:{kept} replug"));
            };
            long_message(net, pair, 1, loss).await;
            fault(net, &format!("b:{lost} replug"));
            wait_for_fast(net, pair, RETRY).await;
        }
        exchange(pair, &[0, 100, 68_545, 1 << 20]).await;
    });
}
