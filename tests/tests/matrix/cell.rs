//! A cell of the matrix: a program over a carrier, in a situation, on a kind of device

use std::cell;
use std::collections::BTreeSet;
use std::iter;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures::future::{join, join_all, join3};
use rdma_async::{Node, NodeOptions, Priority, Session, Snapshot};
use rdma_core::{Teardown, Time};
use rdma_sim::rules::SendCompletion;
use rdma_sim::{LineRate, Model, Net, Sim, Topology};
use rdma_tests::{DEVICE, Hooked, Hooks, hooked_node_over, options};
use tokio::io::AsyncWriteExt as _;

use super::program::{Ends, Promise, Seen, close, empty, fill, open, transfer};
use super::remote::Remote;

/// What the data goes over
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Carrier {
    /// Messages of the eager lane
    Eager,
    /// Messages of the bulk lane
    Bulk,
    /// Messages of the bulk lane, and short ones between them; the receiver says how long each is before it comes, sometimes wrongly
    Expected,
    /// Messages of both lanes, over two cables
    Cables,
    /// Messages of both lanes, on streams of a session
    Streams,
    /// Copies of messages of both lanes, while leases have all memory to send from
    Copies,
    /// Writes and reads of both lengths, in a region of the peer
    Region,
}

impl Carrier {
    pub(crate) const ALL: [Self; 7] =
        [Self::Eager, Self::Bulk, Self::Expected, Self::Cables, Self::Streams, Self::Copies, Self::Region];

    pub(crate) fn name(self) -> &'static str {
        ["eager", "bulk", "expected", "two cables", "streams", "copies", "put and get"][self as usize]
    }

    fn ports(self) -> &'static [&'static str] {
        if self == Self::Cables { &[DEVICE, "rdma_en3"] } else { &[DEVICE] }
    }

    /// Lengths of messages, equal ones behind each other among them
    fn lens(self) -> Vec<usize> {
        let lens: &[usize] = match self {
            Self::Eager => &[64, 64, 4032, 4033, 20_000, 20_000, 0, 68_544],
            Self::Bulk => &[100_000, 100_000, 68_545, 300_000, 300_000, 1 << 20],
            Self::Expected => &[100_000, 100_000, 100_000, 300_000, 300_000, 64, 1 << 20],
            Self::Cables | Self::Streams | Self::Copies | Self::Region => {
                &[64, 100_000, 100_000, 5_000, 5_000, 300_000]
            }
        };
        lens.iter().copied().cycle().take(30).collect()
    }
}

/// What kind of device
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Kind {
    Tb5,
    /// Messages of the device have one frame
    Macos262,
    Roce,
}

impl Kind {
    pub(crate) const ALL: [Self; 3] = [Self::Tb5, Self::Macos262, Self::Roce];

    pub(crate) fn name(self) -> &'static str {
        ["tb5", "tb5-macos-26.2", "roce"][self as usize]
    }
}

/// What happens while the data is under way
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Situation {
    Nothing,
    Loss,
    Corruption,
    Idle,
    UnplugForGood,
    Replug,
    Pause,
    Kill,
    Restart,
    LateBootstrap,
    GarbageBootstrap,
    ExhaustedCaps,
    EarlyCompletion,
    UnprovenTeardown,
    BlockedVerb,
}

impl Situation {
    pub(crate) const ALL: [Self; 15] = [
        Self::Nothing,
        Self::Loss,
        Self::Corruption,
        Self::Idle,
        Self::UnplugForGood,
        Self::Replug,
        Self::Pause,
        Self::Kill,
        Self::Restart,
        Self::LateBootstrap,
        Self::GarbageBootstrap,
        Self::ExhaustedCaps,
        Self::EarlyCompletion,
        Self::UnprovenTeardown,
        Self::BlockedVerb,
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Nothing => "none",
            Self::Loss => "loss (3 messages)",
            Self::Corruption => "corruption (3 frames)",
            Self::Idle => "idle for 30 minutes",
            Self::UnplugForGood => "unplug, for good",
            Self::Replug => "unplug, replug after 6 ms",
            Self::Pause => "pause of the peer for 60 ms",
            Self::Kill => "kill of the peer",
            Self::Restart => "kill and restart of the peer",
            Self::LateBootstrap => "bootstrap a byte at a time, after 5.5 s",
            Self::GarbageBootstrap => "strangers on the bootstrap",
            Self::ExhaustedCaps => "no queue pairs left after a replug",
            Self::EarlyCompletion => "completions before the bytes are read",
            Self::UnprovenTeardown => "a device that never proves that it stopped",
            Self::BlockedVerb => "a verb that does not return after a replug",
        }
    }

    /// The faults in the middle of the transfer
    fn faults(self) -> &'static [&'static str] {
        match self {
            Self::Loss => &["b:rdma_en2 lose 3"],
            Self::Corruption => &["b:rdma_en2 corrupt 3", "a:rdma_en2 corrupt 3"],
            Self::UnplugForGood => &["b:rdma_en2 unplug"],
            Self::Replug | Self::UnprovenTeardown => &["b:rdma_en2 flap 6ms"],
            Self::Pause => &["b pause"],
            Self::Kill | Self::Restart => &["b kill"],
            Self::ExhaustedCaps => &["b:rdma_en2 flap 6ms", "b:rdma_en2 leak-qps 10"],
            Self::BlockedVerb => &["b:rdma_en2 flap 6ms", "b:rdma_en2 hang create_qp"],
            _ => &[],
        }
    }
}

/// A cell
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cell {
    pub(crate) kind: Kind,
    pub(crate) carrier: Carrier,
    pub(crate) situation: Situation,
}

impl Cell {
    /// Whether the session ends
    fn is_lost(self) -> bool {
        use Situation::{Kill, Restart, UnprovenTeardown};
        self.waits_for_its_path() || matches!(self.situation, Kill | Restart | UnprovenTeardown)
    }

    /// The main stream of a session
    fn main_streams(self, ab: &MatrixSession, ba: &MatrixSession) -> Ends<Hooked<Stops>, Hooked<Stops>> {
        let (from, to) = (ab.main_stream().clone(), ba.main_stream().clone());
        Ends { from, to, expects: self.carrier == Carrier::Expected, copies: self.carrier == Carrier::Copies }
    }

    /// Whether the session is left without a path for good
    fn waits_for_its_path(self) -> bool {
        use Situation::{BlockedVerb, ExhaustedCaps, UnplugForGood};
        matches!(self.situation, UnplugForGood | ExhaustedCaps | BlockedVerb)
            && self.carrier != Carrier::Cables
    }
}

/// Whether the devices prove that they have stopped
#[derive(Default)]
struct Stops(AtomicBool);

impl Hooks for Stops {
    fn destroy(&self, _: u32) -> Option<Teardown> {
        self.0.load(Ordering::Relaxed).then_some(Teardown::Unknown)
    }

    fn deregister(&self) -> Option<Teardown> {
        self.0.load(Ordering::Relaxed).then_some(Teardown::Unknown)
    }
}

type MatrixNode = Node<Hooked<Stops>>;
type MatrixSession = Session<Hooked<Stops>>;

const PEER_TIMEOUT: Duration = Duration::from_millis(200);
/// Length of the messages that nobody reads, in bytes
const UNREAD: usize = 70_000;
/// How long a session without a path waits here.
const WAIT: Duration = Duration::from_millis(500);
/// Beyond the peer timeout, for the looks of both sides at their ports and streams.
const GRACE: Duration = Duration::from_millis(20);

/// Runs the program of a cell; the promises that it has put to the test
pub(crate) fn run(cell: Cell) -> BTreeSet<Promise> {
    let mut all = BTreeSet::new();
    for seed in 0..2 {
        let mut model = match cell.kind {
            Kind::Tb5 => Model::tb5(),
            Kind::Macos262 => Model::tb5_macos_26_2(),
            Kind::Roce => Model::roce(),
        };
        if cell.situation == Situation::ExhaustedCaps {
            model.caps.max_qp = 10;
        }
        if cell.situation == Situation::EarlyCompletion {
            model.rules.send_completion = SendCompletion::HandOff;
        }
        let ports = cell.carrier.ports().len();
        let mut topology = Topology::new().host("a", ports).host("b", ports);
        for port in 0..ports {
            topology = topology.cable(("a", port), ("b", port), LineRate::TB5);
        }
        let sim = Sim::new().seed(seed).model(model).topology(topology);
        let sim = sim.time_limit(Time::ZERO + Duration::from_hours(1));
        let run = sim.try_run(async |net| {
            let seen = Seen::default();
            program(&net, cell, seed == 1, &seen).await;
            seen.into_set()
        });
        let run = run.unwrap_or_else(|error| panic!("{cell:?}: {error}"));
        assert_eq!(run.findings, [], "{cell:?}");
        all.extend(run.value);
    }
    all
}

fn node(net: &Net, host: &str, cell: Cell, stops: &Arc<Stops>, options: &NodeOptions) -> MatrixNode {
    hooked_node_over(net, host, cell.carrier.ports(), stops, options)
}

/// Connects both nodes as the situation has it
async fn connect(net: &Net, cell: Cell, a: &MatrixNode, b: &MatrixNode) -> (MatrixSession, MatrixSession) {
    let buffer = if cell.situation == Situation::LateBootstrap { 1 } else { 1024 };
    let (to_b, to_a) = tokio::io::duplex(buffer);
    let serve = async {
        if cell.situation == Situation::LateBootstrap {
            net.sleep(Duration::from_millis(5500)).await;
        }
        if cell.situation == Situation::GarbageBootstrap {
            strangers(b).await;
        }
        b.serve(to_a).await.expect("honest peers connect");
    };
    let (ab, ()) = join(a.connect(to_b), serve).await;
    (ab.expect("honest peers connect"), b.accept().await.expect("the node is open"))
}

/// Those who say nothing, too little, or something else
async fn strangers(b: &MatrixNode) {
    for bytes in [b"".as_slice(), b"tb5", b"GET / HTTP/1.1\r\n\r\n", &[0; 200]] {
        let (mut stranger, stream) = tokio::io::duplex(1024);
        stranger.write_all(bytes).await.expect("the stream takes it");
        drop(stranger);
        assert!(b.serve(stream).await.is_err(), "{bytes:?} is no hello");
    }
}

async fn program(net: &Net, cell: Cell, delivers: bool, seen: &Seen) {
    let stops = Arc::new(Stops::default());
    let options = options().peer_timeout(PEER_TIMEOUT);
    let (a, b) = (node(net, "a", cell, &stops, &options), node(net, "b", cell, &stops, &options));
    let (ab, ba) = connect(net, cell, &a, &b).await;
    // Filled, and not read until the end.
    let unread = open(&ab, &ba, Priority::Normal).await;
    let filled = fill(&unread.from, UNREAD).await;
    let ends = match cell.carrier {
        Carrier::Streams => vec![open(&ab, &ba, Priority::High).await, open(&ab, &ba, Priority::Low).await],
        _ => vec![cell.main_streams(&ab, &ba)],
    };
    let remote = if cell.carrier == Carrier::Region { Some(Remote::new(&ab, &b).await) } else { None };
    let mut held = Vec::new();
    if cell.carrier == Carrier::Copies {
        held.extend(iter::from_fn(|| a.try_alloc(1).ok()));
    }
    let half = cell::Cell::new(None);
    let at_half = || {
        if half.replace(Some(net.now())).is_none() {
            begin(net, cell, &stops);
            seen.note(Promise::Pressure);
        }
    };
    let lens = cell.carrier.lens();
    let transfers = async || match &remote {
        Some(remote) => vec![remote.transfer(&lens, seen, &at_half).await],
        None => join_all(ends.iter().map(|ends| transfer(ends, &lens, delivers, seen, &at_half))).await,
    };
    if cell.is_lost() {
        let tasks = async {
            let waiting = join3(ab.recv(), ab.closed(), ab.accept_stream());
            let (has_arrived, waiting) = join(transfers(), waiting).await;
            assert!(has_arrived.contains(&false), "{cell:?}: everything has arrived at a peer that is gone");
            assert!(waiting.0.is_err() && waiting.1.is_err() && waiting.2.is_err(), "{cell:?}: {waiting:?}");
        };
        let ended = cell.waits_for_its_path().then_some(async {
            // Without a path, but with a word of the peer now and then, the session waits.
            net.sleep(WAIT).await;
            assert_eq!(ab.close_reason(), None, "{cell:?}");
            half.set(Some(net.now()));
            net.inject("at 0s b kill".parse().expect("a fault"));
        });
        join(tasks, join_all(ended)).await;
        let took = net.now() - half.get().expect("the transfer has come so far");
        assert!(took <= PEER_TIMEOUT + GRACE, "{cell:?}: its tasks ended {took:?} after its peer");
        seen.note(Promise::Bound);
    } else {
        assert!(!transfers().await.contains(&false), "{cell:?}: a transfer has ended before its end");
        if cell.situation == Situation::Idle {
            net.sleep(Duration::from_mins(30)).await;
            assert!(!transfers().await.contains(&false), "{cell:?}: after the rest");
        }
        unread.from.finish();
        empty(&unread.to, filled, UNREAD).await;
        close(&ab, &ba, seen).await;
    }
    assert!(has_shown(cell, &[&ab.snapshot(), &ba.snapshot()]), "{cell:?}: the fault has done nothing");
    drop((unread, ends, remote, held, ab, ba));
    net.sleep(Duration::from_millis(50)).await;
    if matches!(cell.situation, Situation::UnprovenTeardown | Situation::BlockedVerb) {
        return;
    }
    assert!(a.pool_stats().is_whole(), "{cell:?}: {:?}", a.pool_stats());
    if !cell.is_lost() {
        assert!(b.pool_stats().is_whole(), "{cell:?}: {:?}", b.pool_stats());
    }
    seen.note(Promise::Clean);
    if cell.situation == Situation::Restart {
        drop(b);
        net.inject("at 0s b restart".parse().expect("a fault"));
        net.sleep(Duration::from_millis(1)).await;
        let b = node(net, "b", cell, &stops, &options);
        let (ab, ba) = connect(net, cell, &a, &b).await;
        let ends = cell.main_streams(&ab, &ba);
        assert!(transfer(&ends, &lens, delivers, seen, &|| ()).await, "{cell:?}: after the restart");
        close(&ab, &ba, seen).await;
    }
}

/// Whether the fault has met the data
fn has_shown(cell: Cell, snapshots: &[&Snapshot]) -> bool {
    use Situation::{
        BlockedVerb, Corruption, ExhaustedCaps, Kill, Loss, Replug, Restart, UnplugForGood, UnprovenTeardown,
    };
    let mut counts = snapshots.iter().flat_map(|snapshot| &snapshot.paths).map(|path| path.counts);
    match cell.situation {
        Loss | Corruption => counts.any(|counts| counts.eager.lost > 0 || counts.last_loss.is_some()),
        UnplugForGood | Kill | Restart | ExhaustedCaps | UnprovenTeardown | BlockedVerb => {
            counts.any(|counts| counts.last_loss.is_some())
        }
        // Two cables are done before the other one is back.
        Replug if cell.carrier == Carrier::Cables => counts.any(|counts| counts.last_loss.is_some()),
        Replug => counts.any(|counts| counts.made > 1),
        _ => true,
    }
}

/// Lets the situation happen
fn begin(net: &Net, cell: Cell, stops: &Stops) {
    for fault in cell.situation.faults() {
        net.inject(format!("at 0s {fault}").parse().expect("a fault"));
    }
    if cell.situation == Situation::Pause {
        let end = net.now() + Duration::from_millis(60);
        net.inject(format!("at {}ns b resume", end.as_nanos()).parse().expect("a fault"));
    }
    stops.0.store(cell.situation == Situation::UnprovenTeardown, Ordering::Relaxed);
}
