//! How fast `rdma_sim::check` is: many seeds of a two-phase commit among three Macs with random faults
//!
//! Prints seeds per second of one core, what a second one is worth, and virtual time as a multiple of real time: under load, and idle.
//! The bound beside a figure is the aim on a quiet machine. Speed is not asserted, because it is that of the machine; that no participant
//! commits what another aborts is.
//!
//! `RDMA_SIM_RUNS` is the number of seeds, as in every check. Programs of other crates are built without optimisation:
//! `CARGO_PROFILE_DEV_OPT_LEVEL=0 cargo bench -p rdma-tests --bench check --profile dev`.

use std::collections::BTreeMap;
use std::error::Error;
use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use futures::StreamExt as _;
use futures::channel::mpsc::{UnboundedReceiver, UnboundedSender, unbounded};
use futures::future::join;
use rdma_async::time::{sleep, timeout};
use rdma_async::{Node, NodeOptions, Session};
use rdma_sim::{Check, Net, RandomFaults, Sim, SimDevice, SimHost, SimStream, Topology, check};
use rdma_tests::{connected, now};

type Result<T = ()> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

const SEEDS: u64 = 1_000;
const FAULTS: u32 = 6;
/// When faults begin at the latest
const HORIZON: Duration = Duration::from_secs(2);
const TRANSACTIONS: u32 = 20;
/// What the coordinator spends on other things between two transactions
const PAUSE: Duration = Duration::from_millis(100);
/// After which a run ends that cannot make progress
const PATIENCE: Duration = Duration::from_secs(30);
/// How long a participant may take to answer before the coordinator connects again
const ANSWER: Duration = Duration::from_secs(1);
const PARTICIPANTS: [&str; 2] = ["b", "c"];

const PREPARE: u8 = 1;
const COMMIT: u8 = 2;
const ABORT: u8 = 3;
const YES: u8 = 4;
const NO: u8 = 5;
const DONE: u8 = 6;

/// What survives the processes: their logs, and where the participants listen
struct Cluster {
    decisions: Mutex<BTreeMap<u32, bool>>,
    participants: [Participant; 2],
}

struct Participant {
    /// By transaction: prepared, and the outcome once it is known
    log: Mutex<BTreeMap<u32, Option<bool>>>,
    /// The devices at the cable between it and the coordinator, beginning with that of the coordinator
    devices: [String; 2],
    dialled: UnboundedSender<SimStream>,
    listening: futures::lock::Mutex<UnboundedReceiver<SimStream>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().expect("no task panics with the lock")
}

impl Cluster {
    fn new(topology: &Topology) -> Self {
        let participants = PARTICIPANTS.map(|name| {
            let link = topology.links().find(|link| link.ends.map(|end| end.host) == ["a", name]);
            let (dialled, listening) = unbounded();
            Participant {
                log: Mutex::default(),
                devices: link
                    .expect("each is joined to the coordinator")
                    .ends
                    .map(|end| end.device.to_owned()),
                dialled,
                listening: listening.into(),
            }
        });
        Self { decisions: Mutex::default(), participants }
    }

    /// Panics if a participant has committed what the other has aborted or not prepared
    fn assert_atomic(&self) {
        let [b, c] = [0, 1].map(|index| lock(&self.participants[index].log));
        for (transaction, outcome) in b.iter() {
            let other = c.get(transaction).copied().flatten();
            assert!(
                outcome.is_none() || other.is_none() || *outcome == other,
                "transaction {transaction} was committed by one participant and aborted by the other"
            );
        }
    }

    fn is_done(&self) -> bool {
        let is_decided = |participant: &Participant| {
            let log = lock(&participant.log);
            (0..TRANSACTIONS).all(|transaction| log.get(&transaction).copied().flatten().is_some())
        };
        self.participants.iter().all(is_decided)
    }
}

fn node(host: &SimHost, name: &str, device: &str) -> Result<Node<SimDevice>> {
    let options =
        NodeOptions::new().connect_timeout(Duration::from_secs(1)).peer_timeout(Duration::from_secs(1));
    let builder = Node::builder(host.net().opener(name, device)).runtime(host.runtime());
    Ok(builder.options(options).build()?)
}

fn message(kind: u8, transaction: u32) -> [u8; 5] {
    let [a, b, c, d] = transaction.to_le_bytes();
    [kind, a, b, c, d]
}

fn parse(message: &[u8]) -> Result<(u8, u32)> {
    let (kind, transaction) = message.split_first().ok_or("an empty message")?;
    Ok((*kind, u32::from_le_bytes(transaction.try_into()?)))
}

/// A participant, as the coordinator sees it
struct Remote {
    host: SimHost,
    cluster: Arc<Cluster>,
    index: usize,
    session: Option<Session<SimDevice>>,
}

impl Remote {
    fn new(host: &SimHost, cluster: &Arc<Cluster>, index: usize) -> Self {
        Self { host: host.clone(), cluster: Arc::clone(cluster), index, session: None }
    }

    /// Asks the participant, over a new session if there is none
    async fn ask(&mut self, kind: u8, transaction: u32) -> Result<u8> {
        let session = match self.session.take() {
            Some(session) => session,
            None => {
                let participant = &self.cluster.participants[self.index];
                let node = node(&self.host, "a", &participant.devices[0])?;
                let (here, there) = self.host.net().tcp();
                participant.dialled.unbounded_send(there).map_err(|_| "the simulation is over")?;
                node.connect(here).await?
            }
        };
        let runtime = self.host.runtime();
        let answer = timeout(&*runtime, ANSWER, async {
            session.send_bytes(&message(kind, transaction)).await?;
            parse(&session.recv().await?.ok_or("the participant closed the session")?)
        });
        let (kind, answered) = answer.await.ok_or("no answer")??;
        assert_eq!(answered, transaction, "answers come in order");
        self.session = Some(session);
        Ok(kind)
    }

    /// Asks until there is an answer
    async fn insist(&mut self, kind: u8, transaction: u32) {
        while self.ask(kind, transaction).await.is_err() {
            sleep(&*self.host.runtime(), Duration::from_millis(100)).await;
        }
    }
}

async fn coordinate(host: SimHost, cluster: Arc<Cluster>) {
    let [mut b, mut c] = [0, 1].map(|index| Remote::new(&host, &cluster, index));
    for transaction in 0..TRANSACTIONS {
        let logged = lock(&cluster.decisions).get(&transaction).copied();
        let commits = match logged {
            Some(commits) => commits,
            None => {
                let votes = join(b.ask(PREPARE, transaction), c.ask(PREPARE, transaction)).await;
                matches!(votes, (Ok(YES), Ok(YES)))
            }
        };
        lock(&cluster.decisions).insert(transaction, commits);
        let kind = if commits { COMMIT } else { ABORT };
        join(b.insist(kind, transaction), c.insist(kind, transaction)).await;
        if logged.is_none() {
            sleep(&*host.runtime(), PAUSE).await;
        }
    }
}

async fn participate(host: SimHost, cluster: Arc<Cluster>, index: usize) {
    loop {
        // A session that ends is replaced by the coordinator's next one.
        let _ = serve(&host, &cluster, index).await;
        sleep(&*host.runtime(), Duration::from_millis(50)).await;
    }
}

async fn serve(host: &SimHost, cluster: &Cluster, index: usize) -> Result {
    let participant = &cluster.participants[index];
    let stream = participant.listening.lock().await.next().await.ok_or("the simulation is over")?;
    let node = node(host, PARTICIPANTS[index], &participant.devices[1])?;
    node.serve(stream).await?;
    let session = timeout(&*host.runtime(), ANSWER, node.accept()).await.flatten();
    let session = session.ok_or("the coordinator opened no session")?;
    while let Some(request) = session.recv().await? {
        let (kind, transaction) = parse(&request)?;
        let answer = match kind {
            PREPARE if host.net().pick(8) == 7 => NO,
            PREPARE => {
                lock(&participant.log).entry(transaction).or_insert(None);
                YES
            }
            _ => {
                lock(&participant.log).insert(transaction, Some(kind == COMMIT));
                cluster.assert_atomic();
                DONE
            }
        };
        session.send_bytes(&message(answer, transaction)).await?;
    }
    Ok(())
}

/// Runs the cluster until all is decided, or for as long as it may take
async fn commit(net: &Net, topology: &Topology) -> bool {
    let cluster = Arc::new(Cluster::new(topology));
    let coordinator = Arc::clone(&cluster);
    net.host("a").start(move |host| coordinate(host, Arc::clone(&coordinator)));
    for (index, name) in PARTICIPANTS.into_iter().enumerate() {
        let cluster = Arc::clone(&cluster);
        net.host(name).start(move |host| participate(host, Arc::clone(&cluster), index));
    }
    let start = net.now();
    while !cluster.is_done() && net.now() - start < PATIENCE {
        sleep(&*net.runtime(), Duration::from_millis(100)).await;
    }
    cluster.assert_atomic();
    cluster.is_done()
}

/// What many seeds took
struct Figures {
    seeds: u64,
    /// How many of them decided everything
    done: u64,
    simulated: Duration,
    spent: Duration,
}

/// Checks many seeds on so many threads
fn explore(topology: &Topology, threads: NonZeroUsize) -> Figures {
    let (seeds, done, nanos) = (AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0));
    let settings = Check::new()
        .runs(SEEDS)
        .threads(threads)
        .topology(topology.clone())
        .random_faults(RandomFaults::up_to(FAULTS).within(HORIZON));
    let start = now();
    check(settings, async |net| {
        let is_done = commit(&net, topology).await;
        seeds.fetch_add(1, Ordering::Relaxed);
        done.fetch_add(is_done.into(), Ordering::Relaxed);
        nanos.fetch_add(net.now().as_nanos(), Ordering::Relaxed);
    });
    let spent = start.elapsed();
    let [seeds, done, nanos] = [seeds, done, nanos].map(AtomicU64::into_inner);
    Figures { seeds, done, simulated: Duration::from_nanos(nanos), spent }
}

#[expect(clippy::print_stdout, reason = "a benchmark prints its figures")]
fn main() {
    let topology = Topology::mesh(3, 4).expect("three Macs have the ports");
    let one = explore(&topology, NonZeroUsize::MIN);
    let (seconds, simulated) = (one.spent.as_secs_f64(), one.simulated.as_secs_f64());
    println!(
        "two-phase commit on one core: {} seeds in {seconds:.2} s, {:.0} per second, {:.1} % of them done; {simulated:.0} s simulated, \
         {:.0} × real time (at least 700)",
        one.seeds,
        one.seeds as f64 / seconds,
        100.0 * one.done as f64 / one.seeds as f64,
        simulated / seconds
    );
    if std::thread::available_parallelism().is_ok_and(|cores| cores.get() > 1) {
        let two = explore(&topology, NonZeroUsize::MIN.saturating_add(1)).spent.as_secs_f64();
        println!("  on two cores: {two:.2} s, {:.2} of that (near 0.5)", two / seconds);
    } else {
        println!("  this machine has one core: what a second one is worth is not measured");
    }

    // Nothing but keep-alives, for an hour.
    let idle = Duration::from_hours(1);
    let start = now();
    Sim::new().sanitize(true).run(async |net| {
        let pair = connected(&net, &NodeOptions::new()).await;
        sleep(&*net.runtime(), idle).await;
        drop(pair);
    });
    let spent = start.elapsed().as_secs_f64();
    println!(
        "idle: {idle:?} simulated in {spent:.2} s, {:.0} × real time (at least 10,000)",
        idle.as_secs_f64() / spent
    );
}
