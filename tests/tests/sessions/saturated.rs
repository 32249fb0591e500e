//! A completion queue that is never found empty: a peer that sends nothing more is noticed all the same

use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use futures::future::{join, join_all, poll_fn};
use rdma_async::{Device, Node, RecvError, Session, SessionError};
use rdma_core::{BlockingCall, Completion, Runtime, Time, Timer};
use rdma_sim::{LineRate, Model, Net, Sim};
use rdma_tests::{DEVICE, Hooks, connect, hooked_node_over, node_over, options};

use super::figures::cables;

const PORTS: [&str; 2] = [DEVICE, "rdma_en3"];
const PEER_TIMEOUT: Duration = Duration::from_millis(100);
/// For the looks of a node at its paths, and for the completions that it takes in before it believes that a peer is silent.
const GRACE: Duration = Duration::from_millis(15);
/// Peers beside the one that falls silent: together they have more packets under way than a node takes in before other tasks run.
const FLOODING: usize = 8;
/// Tasks that send in each session that floods
const SENDERS: usize = 32;
/// Completions that a node takes from a queue at once.
const BATCH: usize = 32;

/// How often polls found as many completions as they had room for, and how often fewer
#[derive(Default)]
struct Polls {
    full: AtomicU64,
    others: AtomicU64,
}

impl Hooks for Polls {
    fn polled(&self, completions: &mut [Completion]) {
        let count = if completions.len() < BATCH { &self.others } else { &self.full };
        count.fetch_add(1, Relaxed);
    }
}

/// How a process stops
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Stop {
    /// It runs no more, and keeps what it has
    Pause,
    /// Its bootstrap streams end, and its queue pairs are destroyed
    Kill,
}

/// The runtime of one process of a host, which stops while others of the host go on
#[derive(Clone, Debug)]
struct Process {
    runtime: Arc<dyn Runtime>,
    stop: Arc<Mutex<Option<Stop>>>,
    tasks: Arc<Mutex<Vec<Waker>>>,
}

impl Process {
    fn new(net: &Net, host: &str) -> Self {
        Self { runtime: net.host(host).runtime(), stop: Arc::default(), tasks: Arc::default() }
    }

    fn stop(&self, stop: Stop) {
        *self.stop.lock().unwrap() = Some(stop);
        let tasks = std::mem::take(&mut *self.tasks.lock().unwrap());
        tasks.into_iter().for_each(Waker::wake);
    }

    /// Polls a task of the process
    fn poll(
        &self,
        task: &mut Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
        cx: &mut Context<'_>,
    ) -> Poll<()> {
        let stop = *self.stop.lock().unwrap();
        match (stop, task.as_mut()) {
            (None, Some(task)) => {
                let mut tasks = self.tasks.lock().unwrap();
                if !tasks.iter().any(|waker| waker.will_wake(cx.waker())) {
                    tasks.push(cx.waker().clone());
                }
                drop(tasks);
                task.as_mut().poll(cx)
            }
            (Some(Stop::Pause), _) => Poll::Pending,
            (Some(Stop::Kill) | None, _) => {
                *task = None;
                Poll::Ready(())
            }
        }
    }
}

impl Runtime for Process {
    fn now(&self) -> Time {
        self.runtime.now()
    }

    fn spawn(&self, task: Pin<Box<dyn Future<Output = ()> + Send>>) {
        let (process, mut task) = (self.clone(), Some(task));
        self.runtime.spawn(Box::pin(poll_fn(move |cx| process.poll(&mut task, cx))));
    }

    fn spawn_blocking(&self, call: BlockingCall) {
        self.runtime.spawn_blocking(call);
    }

    fn is_killed(&self) -> bool {
        *self.stop.lock().unwrap() == Some(Stop::Kill)
    }

    fn timer(&self) -> Pin<Box<dyn Timer>> {
        self.runtime.timer()
    }

    fn random(&self) -> u64 {
        self.runtime.random()
    }
}

/// Sends messages of two packets as fast as they are taken, and reads what comes
async fn flood<D: Device>(session: Session<D>) {
    let send = async |_| while session.send_bytes(&[7; 5000]).await.is_ok() {};
    let receive = async { while let Ok(Some(_)) = session.recv().await {} };
    join(join_all((0..SENDERS).map(send)), receive).await;
}

/// How long `b` takes to notice that one of its peers has stopped, while the others flood the completion queues that they share with it
fn notices(model: Model, ports: &[&str], stop: Stop) -> Duration {
    let sim = Sim::new().model(model).sanitize(false).topology(cables(&vec![LineRate::TB5; ports.len()]));
    let sim = sim.time_limit(Time::ZERO + 10 * PEER_TIMEOUT);
    let run = sim.run(async |net| {
        let options = options().peer_timeout(PEER_TIMEOUT).max_peers(FLOODING as u32 + 1).max_sessions(1);
        let polls = Arc::new(Polls::default());
        let b = hooked_node_over(&net, "b", ports, &polls, &options);
        let (process, others) = (Process::new(&net, "a"), node_over(&net, "a", ports, &options));
        let (first, rest) = ports.split_first().expect("there is a cable");
        let builder = Node::builder(net.opener("a", first));
        let builder = rest.iter().fold(builder, |builder, port| builder.device(net.opener("a", port)));
        let a = builder.runtime(Arc::new(process.clone())).options(options).build().unwrap();
        let (ab, ba) = connect(&a, &b).await.unwrap();
        for _ in 0..FLOODING {
            let (to, from) = connect(&others, &b).await.unwrap();
            net.spawn(flood(to));
            net.spawn(flood(from));
        }
        ab.send_bytes(b"hello").await.unwrap();
        assert_eq!(*ba.recv().await.unwrap().unwrap(), *b"hello");
        for port in ports {
            net.inject(format!("at 0s b:{port} slow-verb poll_cq=80us").parse().unwrap());
        }
        net.sleep(Duration::from_millis(20)).await;
        polls.full.store(0, Relaxed);
        polls.others.store(0, Relaxed);
        let start = net.now();
        process.stop(stop);
        let lost = ba.recv().await.unwrap_err();
        assert_eq!(lost, RecvError::Lost(SessionError::PeerLost(PEER_TIMEOUT)));
        let took = net.now() - start;
        let [full, others] = [&polls.full, &polls.others].map(|count| count.load(Relaxed));
        assert!(
            full > 500 && others <= full / 100,
            "{full} polls found more than they took, {others} did not"
        );
        took
    });
    run.value
}

/// Catches a silence that is looked for only when the completion queues are empty.
#[test]
fn a_peer_is_lost_within_the_timeout_while_the_completion_queue_is_saturated() {
    for mut model in [Model::tb5(), Model::roce()] {
        (model.caps.max_qp, model.caps.max_cqe) = (64, 8192);
        for ports in [&PORTS[..1], &PORTS[..]] {
            for stop in [Stop::Pause, Stop::Kill] {
                let took = notices(model.clone(), ports, stop);
                assert!(took <= PEER_TIMEOUT + GRACE, "{stop:?} over {ports:?}: {took:?}");
            }
        }
    }
}
