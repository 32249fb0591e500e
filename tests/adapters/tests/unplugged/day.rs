//! A day of a gRPC service under random faults: its user notices nothing but time

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Poll, Waker};
use std::time::Duration;

use futures::future::join;
use rdma_async::time::timeout;
use rdma_async::{BlockingCall, Node, Runtime, Time, Timer, Work};
use rdma_sim::{Driver, LineRate, Model, Net, Sim, SimDevice, Topology};
use rdma_tests::{Pair, connect, options};

use super::paths_made;
use super::tonic::{Client, GET, file, with_server};

const DAY: Duration = Duration::from_hours(24);
const PORTS: [&str; 2] = ["rdma_en2", "rdma_en3"];
/// The longest rest of the user, and of the faults
const MAX_REST: Duration = Duration::from_mins(18);
/// How long the longest outage lasts
const MAX_OUTAGE: Duration = Duration::from_mins(2);
/// After this time, a peer that is silent counts as lost; a day at rest has fewer events if it is long
const PEER_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a process is paused at most
const MAX_PAUSE: Duration = Duration::from_secs(5);
/// More than several outages in a row
const MAX_WAIT: Duration = Duration::from_hours(1);
/// A request takes as long without a fault
const REQUEST: Duration = Duration::from_micros(150);

/// Spawns the tasks of a node, which stop while it is paused; those of the service and its user go on
#[derive(Debug)]
struct Tasks {
    runtime: Arc<dyn Runtime>,
    gate: Arc<Gate>,
}

#[derive(Debug, Default)]
struct Gate {
    is_paused: AtomicBool,
    held: Mutex<Vec<Waker>>,
}

impl Gate {
    fn pause(&self) {
        self.is_paused.store(true, Ordering::Relaxed);
    }

    fn resume(&self) {
        self.is_paused.store(false, Ordering::Relaxed);
        let held = std::mem::take(&mut *self.held.lock().unwrap());
        held.into_iter().for_each(Waker::wake);
    }
}

impl Runtime for Tasks {
    fn now(&self) -> Time {
        self.runtime.now()
    }

    fn spawn(&self, mut task: Pin<Box<dyn Future<Output = ()> + Send>>) {
        let gate = Arc::clone(&self.gate);
        self.runtime.spawn(Box::pin(poll_fn(move |cx| {
            if gate.is_paused.load(Ordering::Relaxed) {
                gate.held.lock().unwrap().push(cx.waker().clone());
                return Poll::Pending;
            }
            task.as_mut().poll(cx)
        })));
    }

    fn spawn_blocking(&self, call: BlockingCall) {
        self.runtime.spawn_blocking(call);
    }

    fn timer(&self) -> Pin<Box<dyn Timer>> {
        self.runtime.timer()
    }

    fn random(&self) -> u64 {
        self.runtime.random()
    }

    fn is_killed(&self) -> bool {
        self.runtime.is_killed()
    }

    fn spend(&self, work: Work) {
        self.runtime.spend(work);
    }
}

/// Runs `sim` in the current tokio runtime: when all tasks wait, its time jumps to the next event
///
/// tokio's clock shows a millisecond for each event: programs here have no timers of tokio.
fn start(sim: Sim) -> Net {
    let driver = Driver::new(sim, |task| drop(tokio::spawn(task))).expect("there are no faults yet");
    let net = driver.net().clone();
    tokio::spawn(async move {
        loop {
            // The paused clock advances when all tasks wait.
            tokio::time::sleep(Duration::from_millis(1)).await;
            driver.advance_to(driver.next().unwrap_or(Time::MAX));
        }
    });
    net
}

/// A part of `most`: each order of magnitude is as likely as the others, down to `most` by two to the power `bits`
fn part(net: &Net, most: Duration, bits: u32) -> Duration {
    let scale = 1 << net.pick(bits);
    most / (scale + net.pick(scale))
}

/// A Mac, and the gate that pauses the tasks of its node
struct Mac {
    name: &'static str,
    node: Node<SimDevice>,
    gate: Arc<Gate>,
}

impl Mac {
    fn new(net: &Net, name: &'static str) -> Self {
        let gate = Arc::<Gate>::default();
        let runtime = Tasks { runtime: net.host(name).runtime(), gate: Arc::clone(&gate) };
        let builder = Node::builder(net.opener(name, PORTS[0])).device(net.opener(name, PORTS[1]));
        let builder = builder.runtime(Arc::new(runtime)).options(options().peer_timeout(PEER_TIMEOUT));
        let node = builder.build().expect("the options are usable");
        Self { name, node, gate }
    }

    /// Injects a fault of this Mac after `delay`, and its end
    async fn inject_any(&self, net: &Net, delay: Duration) {
        let host = self.name;
        let inject = |fault: String| net.inject(fault.parse().expect("a fault"));
        let first = net.pick(2) as usize;
        let ports = match net.pick(3) {
            0 => &PORTS[..],
            _ => &PORTS[first..=first],
        };
        let start = (net.now() + delay).as_nanos();
        match net.pick(4) {
            0 => {
                let down = part(net, Duration::from_millis(100), 16).as_nanos();
                ports.iter().for_each(|port| inject(format!("at {start}ns {host}:{port} flap {down}ns")));
            }
            1 => {
                net.sleep(delay).await;
                self.gate.pause();
                net.sleep(part(net, MAX_PAUSE, 16)).await;
                self.gate.resume();
            }
            2 => ports.iter().for_each(|port| inject(format!("at {start}ns {host}:{port} lose 30"))),
            _ => {
                for port in ports {
                    let end = start + part(net, MAX_OUTAGE, 16).as_nanos() as u64;
                    inject(format!("at {start}ns {host}:{port} unplug"));
                    inject(format!("at {end}ns {host}:{port} replug"));
                }
            }
        }
    }
}

/// The requests of the user
#[derive(Debug, Default)]
struct Seen {
    requests: u32,
    /// Requests that took longer than ten would without a fault
    slow: u32,
}

/// Asks the service until `end`, after rests of any length, often in the moment of a fault
async fn ask(net: &Net, client: &mut Client, macs: &[Mac; 2], end: Time) -> Seen {
    let mut seen = Seen::default();
    while net.now() < end {
        net.sleep(part(net, MAX_REST, 8)).await;
        let number = u64::from(seen.requests);
        let start = net.now();
        let request = async {
            if number.is_multiple_of(4) {
                let mut files = client.list(3).await.expect("an answer");
                for number in 0..3 {
                    assert!(files.message().await.expect("no error") == Some(file(number)));
                }
                assert!(files.message().await.expect("no error").is_none());
            } else {
                assert!(client.get(GET, number).await.expect("an answer") == file(number));
            }
            net.now() - start
        };
        let fault = async {
            if net.pick(3) == 0 {
                let delay = REQUEST * net.pick(100) / 100;
                macs[net.pick(2) as usize].inject_any(net, delay).await;
            }
        };
        let answered = timeout(&*net.runtime(), MAX_WAIT, join(request, fault)).await;
        let (took, ()) = answered.expect("every outage is over long before");
        seen.requests += 1;
        seen.slow += u32::from(took > 10 * REQUEST);
    }
    seen
}

/// Injects faults of both Macs until `end`
async fn inject_all(net: &Net, macs: &[Mac; 2], end: Time) {
    while net.now() < end {
        net.sleep(part(net, MAX_REST, 4)).await;
        macs[net.pick(2) as usize].inject_any(net, Duration::ZERO).await;
    }
}

/// The requests of the user in a day, and how many paths were made
async fn day(seed: u64) -> (Seen, u64) {
    let hosts = Topology::new().host("a", 2).host("b", 2);
    let cabled = (0..2).fold(hosts, |hosts, port| hosts.cable(("a", port), ("b", port), LineRate::TB5));
    let mut model = Model::tb5();
    // Each replug costs one of eleven protection domains until a restart (measured): a day has more replugs.
    model.rules.replug_leaks_pds = 0;
    let net = start(Sim::new().topology(cabled).model(model).seed(seed));
    let macs = ["a", "b"].map(|name| Mac::new(&net, name));
    let (ab, ba) = connect(&macs[0].node, &macs[1].node).await.expect("no fault has happened");
    let pair = Pair { a: macs[0].node.clone(), b: macs[1].node.clone(), ab, ba };
    with_server(&pair, async {
        let end = Time::ZERO + DAY;
        let mut client = Client::connect(&pair).await;
        let (seen, ()) = join(ask(&net, &mut client, &macs, end), inject_all(&net, &macs, end)).await;
        drop(client);
        pair.ab.close().await.expect("the peer is there");
        (seen, paths_made(&pair.ab))
    })
    .await
}

/// As [`day`], in a runtime of its own, which drops all tasks
fn run(seed: u64) -> (Seen, u64) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    runtime.expect("a runtime").block_on(day(seed))
}

/// Catches a fault that the user of a service notices otherwise than by time, a request that is never answered, and faults that hit nothing.
#[test]
fn the_user_of_a_service_notices_nothing_for_a_day() {
    for seed in 1..=2 {
        let (seen, made) = run(seed);
        let is_busy = seen.requests > 300 && seen.slow > 10 && made > 100;
        assert!(is_busy, "{seen:?}, {made} paths");
    }
}
