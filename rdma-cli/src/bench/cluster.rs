//! Simulated Macs that are the ranks of a group

use std::collections::BTreeSet;

use anyhow::{Context as _, Result};
use futures::future::{try_join, try_join_all};
use rdma_async::{AnyDevice, Node, NodeOptions, Session, Time};
use rdma_collectives::{Cabling, Group};
use rdma_sim::topology::{LinkEnd, Topology};
use rdma_sim::{FaultPlan, History, Model, Net, Sim};

use crate::mac;

/// Macs, and the cables between them
pub(super) struct Macs<'a> {
    pub(super) topology: &'a Topology,
    pub(super) cabling: &'a Cabling,
    pub(super) model: Model,
    pub(super) seed: u64,
    pub(super) faults: FaultPlan,
    /// Whether a run keeps its history
    pub(super) keeps_records: bool,
}

/// Longer than any measurement: sessions go on for ever, so that nothing else ends one that hangs.
const TIME_LIMIT: Time = Time::from_nanos(600_000_000_000);

/// Neighbours of a node, at most: so many paths have room in a completion queue. No Mac has more ports.
const NEIGHBOURS: usize = 6;

impl Macs<'_> {
    /// Runs a program in a simulation of these Macs
    pub(super) fn simulate<T, F>(&self, program: impl FnOnce(Net) -> F) -> Result<(T, History)>
    where
        F: Future<Output = Result<T>>,
    {
        let sim = Sim::new().model(self.model.clone()).seed(self.seed);
        let sim = sim.topology(self.topology.clone()).time_limit(TIME_LIMIT);
        // The sanitizer takes most of the time of a run, and has tests of its own.
        let sim = sim.faults(self.faults.clone()).sanitize(false);
        let run = if self.keeps_records { sim.keep_records() } else { sim }.try_run(program)?;
        Ok((run.value?, run.history))
    }

    /// Has all Macs join a group, and calls `program` with their groups
    pub(super) async fn with_groups<T>(
        &self,
        net: &Net,
        program: impl AsyncFnOnce(Vec<Group<AnyDevice>>) -> Result<T>,
    ) -> Result<T> {
        let ranks = self.cabling.hosts().len();
        let nodes = (0..ranks).map(|rank| self.nodes(net, rank)).collect::<Result<Vec<_>>>()?;
        let node = |rank: usize, neighbour: usize| {
            let position = nodes[rank].iter().position(|(neighbours, _)| neighbours.contains(&neighbour));
            position.map(|position| &nodes[rank][position].1).context("no cable leads to a neighbour")
        };
        let mut sessions: Vec<Vec<(usize, Session<AnyDevice>)>> = (0..ranks).map(|_| Vec::new()).collect();
        for left in 0..ranks {
            for right in self.neighbours(left).into_iter().filter(|right| left < *right) {
                let (a, b) = (node(left, right)?, node(right, left)?);
                let (to_right, to_left) = tokio::io::duplex(64 << 10);
                let (session, ()) = try_join(a.connect(to_right), b.serve(to_left)).await?;
                sessions[left].push((right, session));
                sessions[right].push((left, b.accept().await.context("the node is closed")?));
            }
        }
        let joins = sessions.into_iter().enumerate();
        let joins = joins.map(|(rank, sessions)| Group::join(rank, self.cabling, sessions));
        program(try_join_all(joins).await?).await
    }

    /// The ranks that a cable joins to one
    fn neighbours(&self, rank: usize) -> Vec<usize> {
        let ends = self.cabling.cables().iter().map(|cable| cable.ends);
        let neighbours = ends.filter_map(|[left, right]| match rank {
            _ if rank == left => Some(right),
            _ if rank == right => Some(left),
            _ => None,
        });
        neighbours.collect::<BTreeSet<_>>().into_iter().collect()
    }

    /// A node on all ports of a Mac that have a cable, with the neighbours; it finds out by the names of the cables where each port leads,
    /// as that of a Mac does: ports that are tried in vain may be wedged
    ///
    /// A Mac with more ports than there are gets several nodes.
    fn nodes(&self, net: &Net, rank: usize) -> Result<Vec<(Vec<usize>, Node<AnyDevice>)>> {
        let hosts = self.cabling.hosts();
        let host = &hosts[rank];
        let node = |neighbours: &[usize]| {
            let leads_there = |ends: &[LinkEnd<'_>; 2]| {
                ends[0].host == host && neighbours.iter().any(|neighbour| ends[1].host == hosts[*neighbour])
            };
            let links = self.topology.links().map(|link| link.ends);
            let ends = links.flat_map(|[left, right]| [[left, right], [right, left]]).filter(leads_there);
            let mut devices = ends.map(|[own, _]| own.device);
            let first = devices.next().context("a Mac has no cable")?;
            let builder = mac::named(net, host, first, Node::builder(mac::opener(net, host, first)));
            let builder = devices.fold(builder, |builder, device| {
                mac::named(net, host, device, builder.device(mac::opener(net, host, device)))
            });
            let options = NodeOptions::new().max_peers(neighbours.len() as u32);
            let node = builder.runtime(net.host(host).runtime()).options(options).build()?;
            Ok((neighbours.to_vec(), node))
        };
        self.neighbours(rank).chunks(NEIGHBOURS).map(node).collect()
    }
}
