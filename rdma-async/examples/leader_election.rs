//! A leader election among three Macs whose processes die and start anew, checked by seed
//!
//! A member that stands for election asks the others for their votes in a term, over a session for each, and leads with two of three.
//! A vote is on the disk of its member before the answer leaves, and the disk survives the process.
//!
//! `cargo run --example leader_election` tries 500 seeds. With `-- --forgetful`, members lose their disks when they start anew: the check
//! finds two leaders of one term, and prints a line that repeats the run; with `RDMA_SIM_PAGE=run.html` it writes a page of it.
#![allow(clippy::print_stdout, reason = "a program")]

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use futures::future::join;
use rdma_async::time::timeout;
use rdma_async::{Node, NodeOptions};
use rdma_sim::{Check, FaultKind, Net, RandomFaults, SimDevice, SimHost, SimStream, Topology};
use rdma_sim::{always, check, sometimes, state};

const MEMBERS: [&str; 3] = ["a", "b", "c"];
const PORT: u16 = 7000;
/// How long a member waits for a vote
const PATIENCE: Duration = Duration::from_millis(50);

/// What a member has promised
#[derive(Default)]
struct Disk {
    term: u8,
    /// The member that it has voted for in this term
    vote: Option<String>,
}

/// What outlives the processes
#[derive(Default)]
struct Cluster {
    disks: [Mutex<Disk>; 3],
    /// The leader of each term
    leaders: Mutex<BTreeMap<u8, String>>,
}

/// A process of one host
#[derive(Clone)]
struct Member {
    host: SimHost,
    number: usize,
    cluster: Arc<Cluster>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().expect("no task panics with the lock")
}

impl Member {
    fn disk(&self) -> MutexGuard<'_, Disk> {
        lock(&self.cluster.disks[self.number])
    }

    /// A node at the cable to `peer`
    fn node(&self, peer: &str) -> Option<Node<SimDevice>> {
        let (host, peer) = (self.host.clone(), peer.to_owned());
        let options = NodeOptions::new().connect_timeout(PATIENCE).peer_timeout(PATIENCE);
        let builder = Node::builder(move || host.open_to(&peer)).runtime(self.host.runtime());
        builder.options(options).build().ok()
    }

    /// Votes for `candidate`, unless this member has voted for another one in this term, or in a later one
    fn vote(&self, term: u8, candidate: &str) -> bool {
        let mut disk = self.disk();
        if term > disk.term {
            *disk = Disk { term, vote: None };
        }
        term == disk.term && *disk.vote.get_or_insert_with(|| candidate.to_owned()) == candidate
    }

    /// Asks `peer` for its vote; `None` without an answer
    async fn ask(&self, peer: &str, term: u8) -> Option<bool> {
        let node = self.node(peer)?;
        let stream = self.host.dial(peer, PORT).await.ok()?;
        let session = node.connect(stream).await.ok()?;
        session.send_bytes(&[term]).await.ok()?;
        let answer = session.recv().await.ok()??;
        Some(answer[0] == 1)
    }

    /// Answers a member that asks for a vote
    async fn answer(&self, stream: SimStream, from: &str) -> Option<()> {
        let node = self.node(from)?;
        node.serve(stream).await.ok()?;
        let session = node.accept().await?;
        let request = session.recv().await.ok()??;
        let vote = self.vote(request[0], from);
        session.send_bytes(&[vote.into()]).await.ok()?;
        session.close().await.ok()
    }

    async fn answer_all(self) {
        let Ok(listener) = self.host.listen(PORT) else { return };
        while let Ok((stream, from)) = listener.accept().await {
            let member = self.clone();
            self.host.spawn(async move {
                let runtime = member.host.runtime();
                // A candidate that has vanished gets no answer.
                let _ = timeout(&*runtime, 2 * PATIENCE, member.answer(stream, &from)).await;
            });
        }
    }

    /// Stands for election once
    async fn stand(&self) {
        let name = MEMBERS[self.number];
        let term = self.disk().term + 1;
        if !self.vote(term, name) {
            return;
        }
        state!("candidate", term);
        let runtime = self.host.runtime();
        let [one, other] = [1, 2].map(|step| {
            let peer = MEMBERS[(self.number + step) % 3];
            timeout(&*runtime, PATIENCE, self.ask(peer, term))
        });
        let (one, other) = join(one, other).await;
        let votes = [one.flatten(), other.flatten()];
        sometimes!(votes.contains(&None), "a member does not answer");
        if votes.contains(&Some(true)) {
            let leader = lock(&self.cluster.leaders).entry(term).or_insert_with(|| name.to_owned()).clone();
            always!(leader == name, "a term has one leader");
        }
    }

    /// The main task of a process
    async fn run(self, is_forgetful: bool) {
        if is_forgetful {
            *self.disk() = Disk::default();
        }
        self.host.spawn(self.clone().answer_all());
        loop {
            // The least wait differs by member: in the plain run, `pick` is always 0.
            let wait = 5 * (1 + self.number as u64) + u64::from(self.host.net().pick(20));
            self.host.net().sleep(Duration::from_millis(wait)).await;
            self.stand().await;
        }
    }
}

async fn elect(net: Net, is_forgetful: bool) {
    let cluster = Arc::new(Cluster::default());
    for (number, name) in MEMBERS.into_iter().enumerate() {
        let cluster = Arc::clone(&cluster);
        net.host(name)
            .start(move |host| Member { host, number, cluster: Arc::clone(&cluster) }.run(is_forgetful));
    }
    while lock(&cluster.leaders).len() < 4 {
        net.sleep(Duration::from_millis(10)).await;
    }
}

fn main() {
    let is_forgetful = std::env::args().any(|argument| argument == "--forgetful");
    let faults = RandomFaults::up_to(6).within(Duration::from_millis(30)).kinds([
        FaultKind::Kill,
        FaultKind::Unplug,
        FaultKind::Pause,
    ]);
    let settings = Check::new()
        .name("leader_election")
        .runs(500)
        .topology(Topology::mesh(3, 3).expect("three Macs have the ports"))
        .random_faults(faults)
        .liveness(Duration::from_secs(20));
    check(settings, async |net| elect(net, is_forgetful).await);
    println!("each term has one leader");
}
