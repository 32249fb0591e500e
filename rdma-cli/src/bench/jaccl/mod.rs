//! The baseline: the published schedules of JACCL, the collectives of Apple's MLX, on bare verbs
//!
//! They are written from descriptions of the algorithms, not from its code. Where a description leaves something open, the faster
//! way is taken: a receive is posted again as soon as its data was copied, whatever the order of the ranks in which data is added; a
//! cabling that is both a mesh and a ring uses at each size the schedule that is faster; a mesh uses the fastest cable of two Macs, and a ring the best
//! of all orders of the Macs, with all cables that all neighbours have. Only the network takes time: copies into and out of
//! buffers and additions take none, as for the groups that are measured beside it.

mod cables;
mod mesh;
mod ring;
mod wire;

use anyhow::Result;
use futures::future::try_join_all;
use rdma_sim::Net;
use rdma_sim::topology::Topology;

use self::cables::{Cables, RingOrder};
use self::mesh::Mesh;
use self::ring::Ring;
use self::wire::{Vectors, Wire};
use super::cluster::Macs;
use super::elements::Elements;
use super::group::{Measured, QUIET};
use super::workload::Workload;
use crate::args::OperationName;

/// The baseline for a cabling: the schedules that it has, and their cables
pub(super) struct Jaccl<'a> {
    cables: Cables<'a>,
    schedules: Vec<Schedule>,
    operation: OperationName,
}

enum Schedule {
    Mesh,
    Ring(RingOrder),
}

impl<'a> Jaccl<'a> {
    pub(super) fn new(topology: &'a Topology, operation: OperationName) -> Self {
        let cables = Cables::new(topology);
        let mesh = cables.are_mesh().then_some(Schedule::Mesh);
        let ring = cables.ring().map(Schedule::Ring);
        Self { schedules: mesh.into_iter().chain(ring).collect(), cables, operation }
    }

    /// Whether it has the operation
    fn has_operation(&self) -> bool {
        matches!(
            self.operation,
            OperationName::AllReduce | OperationName::AllGather | OperationName::ReduceScatter
        )
    }

    /// Which schedules run, or why none does
    pub(super) fn describe(&self) -> String {
        if !self.has_operation() {
            return "none: it has no such operation".to_owned();
        }
        let name = |schedule: &Schedule| match schedule {
            Schedule::Mesh => "mesh".to_owned(),
            Schedule::Ring(RingOrder { wires: 1, .. }) => "ring".to_owned(),
            Schedule::Ring(RingOrder { wires, .. }) => format!("ring with {wires} cables between neighbours"),
        };
        match &self.schedules[..] {
            [] => "none: the cabling is neither a mesh nor a ring of at most 8 Macs".to_owned(),
            [one] => name(one),
            all => format!("the faster one of {}", all.iter().map(name).collect::<Vec<_>>().join(" and ")),
        }
    }

    /// Carries out the operation by each schedule that can run, once, and returns the fastest
    pub(super) fn run_fastest(
        &self,
        macs: &Macs<'_>,
        workload: &Workload,
        elements: &Elements,
    ) -> Result<Option<Measured>> {
        if !self.has_operation() {
            return Ok(None);
        }
        let run = |schedule| {
            let (measured, _) =
                macs.simulate(async |net| self.run(&net, schedule, workload, elements).await)?;
            anyhow::Ok(measured)
        };
        let all = self.schedules.iter().map(run).collect::<Result<Vec<_>>>()?;
        Ok(all.into_iter().min_by_key(|measured| measured.time))
    }

    async fn run(
        &self,
        net: &Net,
        schedule: &Schedule,
        workload: &Workload,
        elements: &Elements,
    ) -> Result<Measured> {
        let mut ranks = match schedule {
            Schedule::Mesh => self.cables.mesh_wires(net)?,
            Schedule::Ring(order) => self.cables.ring_wires(net, order)?,
        };
        let inputs: Vec<_> =
            (0..workload.ranks).map(|rank| (elements.encode)(workload.input(rank))).collect();
        let outputs = (0..workload.ranks).map(|rank| vec![0; workload.output_len(rank) * elements.size]);
        let mut outputs: Vec<_> = outputs.collect();
        net.sleep(QUIET).await;
        let start = net.now();
        let all = ranks.iter_mut().zip(inputs.iter().zip(&mut outputs)).enumerate();
        let all = all.map(async |(rank, (wires, (input, output)))| {
            let mut vectors = Vectors { input, output, add: elements.add };
            self.operate(schedule, [rank, workload.ranks], wires, &mut vectors, elements.size).await?;
            anyhow::Ok(net.now())
        });
        let end = try_join_all(all).await?.into_iter().max().unwrap_or(start);
        Ok(Measured { start, time: end - start, outputs })
    }

    async fn operate(
        &self,
        schedule: &Schedule,
        [rank, ranks]: [usize; 2],
        wires: &mut [Wire],
        vectors: &mut Vectors<'_>,
        size: usize,
    ) -> Result<()> {
        match (schedule, self.operation) {
            (Schedule::Mesh, OperationName::AllGather) => {
                Mesh { rank, ranks, wires }.all_gather(vectors).await
            }
            (Schedule::Mesh, OperationName::ReduceScatter) => {
                Mesh { rank, ranks, wires }.reduce_scatter(vectors).await
            }
            (Schedule::Mesh, _) => Mesh { rank, ranks, wires }.all_reduce(vectors, size).await,
            (Schedule::Ring(_), OperationName::AllGather) => {
                Ring { rank, ranks, wires }.all_gather(vectors, size).await
            }
            (Schedule::Ring(_), OperationName::ReduceScatter) => {
                Ring { rank, ranks, wires }.reduce_scatter(vectors, size).await
            }
            (Schedule::Ring(_), _) => Ring { rank, ranks, wires }.all_reduce(vectors, size).await,
        }
    }
}
