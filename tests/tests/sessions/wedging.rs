//! Sessions of several Macs find their cables without transitions to ready to receive that fail: a few of those wedge a port

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use futures::future::{join, join_all};
use rdma_async::{ConnectError, Error, Node};
use rdma_core::Cause;
use rdma_sim::{LineRate, Model, Net, Sim, Topology};
use rdma_tests::{Hooked, Hooks, message, options};

use super::pairing::{exchange_of, paths_up};

/// Counts the transitions that a port has refused
#[derive(Default)]
struct Port {
    refused: AtomicU32,
}

impl Hooks for Port {
    fn modified(&self, outcome: &Result<(), Error>) {
        self.refused.fetch_add(u32::from(outcome.is_err()), Ordering::Relaxed);
    }
}

type PortNode = Node<Hooked<Port>>;

/// The nodes of a Mac, each with the Macs that its ports lead to
struct Mac {
    nodes: Vec<(Vec<String>, PortNode)>,
    ports: Vec<(String, Arc<Port>)>,
}

/// As many neighbours as a node can have
const NEIGHBOURS: usize = 6;

impl Mac {
    /// Nodes on all ports of `host` that have a cable, which know its name
    fn new(net: &Net, topology: &Topology, host: &str) -> Self {
        let links = topology.links().map(|link| link.ends);
        let ends = links.flat_map(|[left, right]| [[left, right], [right, left]]);
        let ends = ends.filter(|[own, _]| own.host == host).collect::<Vec<_>>();
        let mut neighbours = ends.iter().map(|[_, other]| other.host.to_owned()).collect::<Vec<_>>();
        neighbours.sort();
        neighbours.dedup();
        let mut ports = Vec::new();
        let mut node = |neighbours: &[String]| {
            let mut builder = None;
            for [own, _] in ends.iter().filter(|[_, other]| neighbours.iter().any(|name| name == other.host))
            {
                let (open, port) = (net.opener(host, own.device), Arc::new(Port::default()));
                ports.push((format!("{host}:{}", own.device), Arc::clone(&port)));
                let open = move || open().map(|device| Hooked::new(device, &port));
                let with_device = match builder {
                    None => Node::builder(open),
                    Some(builder) => rdma_async::NodeBuilder::device(builder, open),
                };
                let (net, host, device) = (net.clone(), host.to_owned(), own.device.to_owned());
                builder = Some(with_device.link(move || net.link(&host, &device)));
            }
            let options = options().max_peers(neighbours.len() as u32);
            let builder = builder.unwrap().runtime(net.host(host).runtime()).options(options);
            (neighbours.to_vec(), builder.build().unwrap())
        };
        let nodes = neighbours.chunks(NEIGHBOURS).map(&mut node).collect();
        Self { nodes, ports }
    }

    fn node_to(&self, neighbour: &str) -> &PortNode {
        let leads_there = |(names, _): &&(Vec<String>, PortNode)| names.iter().any(|name| name == neighbour);
        &self.nodes.iter().find(leads_there).expect("a cable leads there").1
    }
}

/// Connects each two Macs that a cable joins, one pair after another or all at once, and sends messages over each session
async fn connect_all(net: &Net, topology: &Topology, at_once: bool) {
    let names = topology.hosts().iter().map(|host| host.name().to_owned()).collect::<Vec<_>>();
    let macs = names.iter().map(|name| Mac::new(net, topology, name)).collect::<Vec<_>>();
    let position = |name: &str| names.iter().position(|other| other == name).unwrap();
    let mut pairs = topology.links().map(|link| link.ends.map(|end| position(end.host))).collect::<Vec<_>>();
    pairs.iter_mut().for_each(|pair| pair.sort_unstable());
    pairs.sort_unstable();
    let cables = |pair| pairs.iter().filter(|other| **other == pair).count();
    let mut peers = pairs.clone();
    peers.dedup();
    let connect = async |[left, right]: [usize; 2]| {
        let (a, b) = (macs[left].node_to(&names[right]), macs[right].node_to(&names[left]));
        let (to_b, to_a) = tokio::io::duplex(1024);
        let (connected, served) = join(a.connect(to_b), b.serve(to_a)).await;
        let failure = (connected.as_ref().err(), served.as_ref().err());
        assert!(matches!(failure, (None, None)), "{left} to {right}: {failure:?}");
        connected.unwrap()
    };
    let mut sessions = Vec::new();
    if at_once {
        sessions = join_all(peers.iter().map(|&pair| connect(pair))).await;
    } else {
        for &pair in &peers {
            sessions.push(connect(pair).await);
        }
    }
    // Long enough for attempts that are made when the names of cables may be wrong.
    net.sleep(Duration::from_secs(60)).await;
    for (&[left, right], ab) in peers.iter().zip(&sessions) {
        assert_eq!(paths_up(ab), cables([left, right]), "{left} to {right}");
        ab.send_bytes(&message(left, 200_000)).await.unwrap();
    }
    for [left, right] in &peers {
        let ba = macs[*right].node_to(&names[*left]).accept().await.unwrap();
        assert_eq!(ba.recv().await.unwrap().unwrap().len(), 200_000);
    }
    for (name, port) in macs.iter().flat_map(|mac| &mac.ports) {
        assert_eq!(port.refused.load(Ordering::Relaxed), 0, "{name}");
    }
}

/// Models on which a port is wedged after so many failures
fn models() -> [Model; 2] {
    let mut worn = Model::tb5();
    worn.rules.failed_rtr_wedges = Some(3);
    worn.timing.verbs_take_time = true;
    [Model::tb5_strict(), worn]
}

/// Catches attempts to connect ports that no cable joins: after a few of them a port connects nothing until its Mac restarts.
/// Regression: a mesh of five did not connect.
#[test]
fn no_port_fails_to_connect_where_cables_have_names() {
    let meshes = (3..=8).map(|count| Topology::mesh(count, count - 1).unwrap());
    let ring = Topology::ring(8, 3).unwrap();
    let star = Topology::star(6, 6).unwrap();
    let crossed = Topology::new().host("a", 3).host("b", 3);
    let crossed = crossed.cable(("a", 0), ("b", 2), LineRate::TB5).cable(("a", 1), ("b", 0), LineRate::TB5);
    for topology in meshes.chain([ring, star, crossed]) {
        for (model, at_once) in models().into_iter().flat_map(|model| [(model.clone(), false), (model, true)])
        {
            let run = Sim::new().topology(topology.clone()).model(model).run(async |net| {
                connect_all(&net, &topology, at_once).await;
            });
            assert_eq!(run.findings, []);
        }
    }
}

/// Catches ports that are tried again and again although their cables lead to a Mac without a session: three failures wedge a port.
#[test]
fn a_cable_to_a_mac_without_a_session_wedges_no_port() {
    let topology = Topology::mesh(4, 3).unwrap();
    for model in models() {
        Sim::new().topology(topology.clone()).model(model).run(async |net| {
            let names = topology.hosts().iter().map(|host| host.name().to_owned()).collect::<Vec<_>>();
            let macs = names.iter().map(|name| Mac::new(&net, &topology, name)).collect::<Vec<_>>();
            let connect = async |left: usize, right: usize| {
                let (a, b) = (macs[left].node_to(&names[right]), macs[right].node_to(&names[left]));
                rdma_tests::connect(a, b).await.unwrap()
            };
            let first = connect(0, 1).await;
            net.sleep(Duration::from_mins(30)).await;
            let others = [connect(2, 0).await, connect(1, 2).await, connect(3, 1).await];
            net.sleep(Duration::from_mins(30)).await;
            for (ab, ba) in others.iter().chain([&first]) {
                exchange_of(&[100, 300_000], ab, ba).await;
            }
            for (name, port) in macs.iter().flat_map(|mac| &mac.ports) {
                let refused = port.refused.load(Ordering::Relaxed);
                assert!(refused <= 2, "{name}: {refused}");
            }
        });
    }
}

/// Catches an error that names the cable of another port instead of the port that is wedged, and one that says nothing of another process, which may
/// have the port.
#[test]
fn a_busy_port_is_named() {
    let mut wedged = Model::tb5();
    wedged.rules.failed_rtr_wedges = Some(0);
    let taken = Sim::new().faults("at 0s b:rdma_en2 busy".parse().unwrap());
    for sim in [Sim::new().model(wedged), taken] {
        sim.run(async |net| {
            net.sleep(Duration::from_micros(1)).await;
            let [a, b] = ["a", "b"].map(|host| rdma_tests::node(&net, host, &options()));
            let (to_b, to_a) = tokio::io::duplex(1024);
            let (connected, served) = join(a.connect(to_b), b.serve(to_a)).await;
            assert!(connected.is_err());
            let error = served.unwrap_err();
            let is_named = matches!(&error, ConnectError::PortBusy { port, error } if port == rdma_tests::DEVICE && error.cause == Cause::Busy);
            let text = error.to_string();
            assert!(is_named && text.ends_with("another process has it, or it is wedged"), "{text}");
        });
    }
}
