//! Simulated Macs that are the ranks of a group

use std::collections::BTreeSet;

use anyhow::{Context as _, Result};
use futures::future::{try_join, try_join_all};
use rdma_async::{Node, NodeOptions, Session, Time};
use rdma_collectives::{Cabling, Group};
use rdma_sim::topology::Topology;
use rdma_sim::{Net, Sim, SimDevice};

/// Macs, and the cables between them
pub(super) struct Macs<'a> {
    pub(super) topology: &'a Topology,
    pub(super) cabling: &'a Cabling,
    pub(super) seed: u64,
}

/// Longer than any measurement: sessions go on for ever, so that nothing else ends one that hangs.
const TIME_LIMIT: Time = Time::from_nanos(600_000_000_000);

/// How many neighbours the node of a Mac has memory for, unless it has more ports.
const DEFAULT_PEERS: u32 = 5;

impl Macs<'_> {
    /// Runs a program in a simulation of these Macs
    pub(super) fn simulate<T, F>(&self, program: impl FnOnce(Net) -> F) -> Result<T>
    where
        F: Future<Output = Result<T>>,
    {
        let sim = Sim::new().seed(self.seed).topology(self.topology.clone()).time_limit(TIME_LIMIT);
        // The sanitizer takes most of the time of a run, and has tests of its own.
        sim.sanitize(false).try_run(program)?.value
    }

    /// Has all Macs join a group, and calls `program` with their groups
    pub(super) async fn with_groups<T>(
        &self,
        net: &Net,
        program: impl AsyncFnOnce(Vec<Group<SimDevice>>) -> Result<T>,
    ) -> Result<T> {
        let hosts = self.cabling.hosts();
        let nodes = hosts.iter().map(|host| self.node(net, host)).collect::<Result<Vec<_>>>()?;
        let mut sessions: Vec<Vec<(usize, Session<SimDevice>)>> = hosts.iter().map(|_| Vec::new()).collect();
        // Cables between the same Macs are paths of one session.
        let neighbours: BTreeSet<_> = self.cabling.cables().iter().map(|cable| cable.ends).collect();
        for [left, right] in neighbours {
            if sessions[left].iter().any(|(rank, _)| *rank == right) {
                continue;
            }
            let (to_right, to_left) = tokio::io::duplex(64 << 10);
            let (session, ()) = try_join(nodes[left].connect(to_right), nodes[right].serve(to_left)).await?;
            sessions[left].push((right, session));
            sessions[right].push((left, nodes[right].accept().await.context("the node is closed")?));
        }
        let joins = sessions.into_iter().enumerate();
        let joins = joins.map(|(rank, sessions)| Group::join(rank, self.cabling, sessions));
        program(try_join_all(joins).await?).await
    }

    /// A node on all ports of a Mac that have a cable; it finds out by itself where each one leads
    fn node(&self, net: &Net, host: &str) -> Result<Node<SimDevice>> {
        let ends = self.topology.links().flat_map(|link| link.ends).filter(|end| end.host == host);
        let mut devices = ends.map(|end| net.opener(host, end.device));
        let builder = Node::builder(devices.next().context("a Mac has no cable")?);
        let (builder, ports) =
            devices.fold((builder, 1), |(builder, ports), device| (builder.device(device), ports + 1));
        let options = NodeOptions::new().max_peers(ports.max(DEFAULT_PEERS));
        Ok(builder.runtime(net.host(host).runtime()).options(options).build()?)
    }
}
