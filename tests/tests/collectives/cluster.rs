//! Simulated Macs that are the ranks of a group

use futures::future::{join_all, try_join};
use rdma_async::{BootstrapStream, Node, NodeOptions, Session, Time};
use rdma_collectives::{Cable, Cabling, Group, GroupOptions};
use rdma_sim::{LineRate, Net, Sim, SimDevice, Topology};

/// The payload that a cable of 80 Gb/s carries in one direction, in bytes per second
pub(crate) const RATE: u64 = 9_200_000_000;
/// From posting a short message to its arrival: doorbell, propagation, delivery, and a frame
pub(crate) const LATENCY_NS: u64 = 6_300;

/// How many hosts, and which have a cable
pub(crate) type Shape = (usize, &'static [(usize, usize)]);

/// The cabling of a topology, for the planner
pub(crate) fn cabling(hosts: usize, edges: &[(usize, usize)]) -> Cabling {
    let names: Vec<_> = (0..hosts).map(name).collect();
    let cables: Vec<_> =
        edges.iter().map(|&(left, right)| Cable::new(left, right, RATE).latency_ns(LATENCY_NS)).collect();
    Cabling::new(names, cables).expect("the hosts exist")
}

/// A simulation of the Macs `a`, `b`, … with these cables, which fails when an operation hangs: sessions alone go on for ever
pub(crate) fn sim(hosts: usize, edges: &[(usize, usize)]) -> Sim {
    sim_of(&cabling(hosts, edges))
}

/// As [`sim`], of the Macs of a cabling
pub(crate) fn sim_of(cabling: &Cabling) -> Sim {
    Sim::new().topology(macs(cabling)).time_limit(Time::from_nanos(2_000_000_000))
}

pub(crate) const LINE_3: Shape = (3, &[(0, 1), (1, 2)]);
pub(crate) const RING_3: Shape = (3, &[(0, 1), (1, 2), (2, 0)]);
pub(crate) const MESH_4: Shape = (4, &[(0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 3)]);

/// `a` to `z`, then `aa`, `ab`, …
pub(crate) fn name(rank: usize) -> String {
    const LETTERS: usize = 26;
    let last = char::from(b'a' + (rank % LETTERS) as u8);
    let before = (rank / LETTERS).checked_sub(1).map_or_else(String::new, name);
    format!("{before}{last}")
}

/// The sessions of each rank, with their neighbours, and the nodes, which have to live
pub(crate) struct Cluster {
    pub(crate) sessions: Vec<Vec<(usize, Session<SimDevice>)>>,
    pub(crate) nodes: Vec<(usize, Node<SimDevice>)>,
}

/// The Macs of a cabling: a cable below [`RATE`] is one of Thunderbolt 4, and each cable is in the first free port of both its Macs
pub(crate) fn macs(cabling: &Cabling) -> Topology {
    let hosts = cabling.hosts();
    let mut next = vec![0; hosts.len()];
    let empty = hosts.iter().fold(Topology::new(), |macs, host| macs.host(host, 6));
    cabling.cables().iter().fold(empty, |macs, cable| {
        let [left, right] = cable.ends;
        let rate = if cable.rates[0] < RATE { LineRate::TB4 } else { LineRate::TB5 };
        let macs = macs.cable((&*hosts[left], next[left]), (&*hosts[right], next[right]), rate);
        cable.ends.into_iter().for_each(|end| next[end] += 1);
        macs
    })
}

/// The neighbours of a cabling, each two once, in the order of their first cables
fn pairs(cabling: &Cabling) -> Vec<[usize; 2]> {
    let mut pairs: Vec<[usize; 2]> = Vec::new();
    for &Cable { ends: [left, right], .. } in cabling.cables() {
        if !pairs.contains(&[left, right]) && !pairs.contains(&[right, left]) {
            pairs.push([left, right]);
        }
    }
    pairs
}

/// Connects each two neighbours over all their cables, by nodes of their own: the first ports of two nodes pair
pub(crate) async fn connect(net: &Net, cabling: &Cabling, options: &NodeOptions) -> Cluster {
    connect_over(net, cabling, options, |_| tokio::io::duplex(1024)).await
}

/// As [`connect`], over the two ends of a byte stream between these ranks
pub(crate) async fn connect_over<S: BootstrapStream + Send + 'static>(
    net: &Net,
    cabling: &Cabling,
    options: &NodeOptions,
    stream: impl Fn([usize; 2]) -> (S, S),
) -> Cluster {
    let hosts = cabling.hosts();
    let mut sessions: Vec<Vec<_>> = hosts.iter().map(|_| Vec::new()).collect();
    let mut nodes = Vec::new();
    let macs = macs(cabling);
    for [left, right] in pairs(cabling) {
        let node = |host: usize, peer: usize| {
            let (from, to) = (net.host(&hosts[host]), hosts[peer].clone());
            let runtime = from.runtime();
            let links = macs.links().flat_map(|link| [link.ends, [link.ends[1], link.ends[0]]]);
            let more = links.filter(|[own, other]| own.host == hosts[host] && other.host == to).skip(1);
            let more: Vec<_> = more.map(|[own, _]| net.opener(own.host, own.device)).collect();
            let builder = Node::builder(move || from.open_to(&to)).runtime(runtime);
            let builder = more.into_iter().fold(builder, |builder, opener| builder.device(opener));
            builder.options(options.clone()).build().expect("the options are usable")
        };
        let (a, b) = (node(left, right), node(right, left));
        let (to_b, to_a) = stream([left, right]);
        let connected = try_join(a.connect(to_b), b.serve(to_a)).await;
        let (ab, ()) = connected.expect("a cable joins them");
        let ba = b.accept().await.expect("the node is open");
        sessions[left].push((right, ab));
        sessions[right].push((left, ba));
        nodes.extend([(left, a), (right, b)]);
    }
    Cluster { sessions, nodes }
}

/// The groups of all ranks
pub(crate) async fn joined(cluster: &Cluster, cabling: &Cabling) -> Vec<Group<SimDevice>> {
    joined_with(GroupOptions::new(), cluster, cabling).await
}

/// The groups of all ranks, with these options
pub(crate) async fn joined_with(
    options: GroupOptions,
    cluster: &Cluster,
    cabling: &Cabling,
) -> Vec<Group<SimDevice>> {
    let joins = cluster.sessions.iter().cloned().enumerate();
    let joins = joins.map(|(rank, sessions)| Group::join_with(rank, cabling, sessions, options));
    let joined = join_all(joins).await;
    joined.into_iter().map(|group| group.unwrap_or_else(|error| panic!("{error}"))).collect()
}

/// Runs `program` on all ranks at once, and returns what each returns
pub(crate) async fn on_all<T>(
    groups: &mut [Group<SimDevice>],
    program: impl AsyncFn(usize, &mut Group<SimDevice>) -> T,
) -> Vec<T> {
    let program = &program;
    join_all(groups.iter_mut().enumerate().map(async |(rank, group)| program(rank, group).await)).await
}
