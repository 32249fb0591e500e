//! Simulated Macs, cabled and connected

use std::error::Error;

use futures::future::try_join;
use rdma_async::{Node, Session};
use rdma_collectives::Cabling;
use rdma_sim::{Net, SimDevice};

pub(crate) type Result<T = ()> = std::result::Result<T, Box<dyn Error>>;

/// What a cable of 80 Gb/s carries in one direction, in bytes per second
pub(crate) const RATE: u64 = 9_200_000_000;

/// The neighbours of a Mac, with a session to each
pub(crate) type Sessions = Vec<(usize, Session<SimDevice>)>;

/// A node on all devices of each Mac, and a session for each cable, as both of its Macs see it, by Mac
pub(crate) async fn connect(net: &Net, cabling: &Cabling) -> Result<(Vec<Node<SimDevice>>, Vec<Sessions>)> {
    let node = |mac: &String| {
        let [first, second, third] =
            ["rdma_en2", "rdma_en3", "rdma_en4"].map(|device| net.opener(mac, device));
        // It finds out by itself where each cable leads.
        Node::builder(first).device(second).device(third).runtime(net.host(mac).runtime()).build()
    };
    let nodes: Vec<_> = cabling.hosts().iter().map(node).collect::<std::result::Result<_, _>>()?;
    let mut sessions: Vec<Sessions> = nodes.iter().map(|_| Vec::new()).collect();
    for cable in cabling.cables() {
        let [left, right] = cable.ends;
        // Between Macs, this is a TCP connection over another network.
        let (to_right, to_left) = tokio::io::duplex(1024);
        let (session, ()) = try_join(nodes[left].connect(to_right), nodes[right].serve(to_left)).await?;
        sessions[left].push((right, session));
        sessions[right].push((left, nodes[right].accept().await.ok_or("the node is closed")?));
    }
    Ok((nodes, sessions))
}
