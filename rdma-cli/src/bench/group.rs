//! One operation of a group, and how long it takes

use std::time::Duration;

use anyhow::Result;
use futures::future::try_join_all;
use rdma_collectives::GroupError;
use rdma_core::Time;
use rdma_sim::History;

use super::cluster::Macs;
use super::elements::Elements;
use super::workload::{ROOT, Workload};
use crate::args::OperationName;

/// The quiet before a measurement, in which acknowledgements and credits of what came before arrive.
pub(super) const QUIET: Duration = Duration::from_millis(1);

/// The result of an operation
pub(super) struct Measured {
    /// When all ranks started
    pub(super) start: Time,
    /// From the start of all ranks, at the same time, to the end of the last one
    pub(super) time: Duration,
    /// The elements of each rank
    pub(super) outputs: Vec<Vec<u8>>,
}

/// How often an operation is carried out before it is measured: a group then has seen that it follows itself
const WARM_UP: usize = 2;

/// Carries the operation out, and measures it once it is warm
pub(super) fn run_operation(
    macs: &Macs<'_>,
    workload: &Workload,
    elements: &Elements,
) -> Result<(Measured, History)> {
    let is_in_place = matches!(
        workload.operation,
        OperationName::AllReduce | OperationName::Broadcast | OperationName::Reduce
    );
    let vectors = |rank| (elements.vectors)(workload.input(rank), workload.output_len(rank), is_in_place);
    macs.simulate(async |net| {
        macs.with_groups(&net, async |mut groups| {
            let mut run = async || {
                let mut vectors: Vec<_> = (0..workload.ranks).map(vectors).collect();
                net.sleep(QUIET).await;
                let start = net.now();
                let ranks = groups.iter_mut().zip(&mut vectors).map(async |(group, vectors)| {
                    vectors.operate(group, workload.operation, ROOT).await?;
                    Ok::<_, GroupError>(net.now())
                });
                let ends = try_join_all(ranks).await?;
                let end = ends.into_iter().max().unwrap_or(start);
                let outputs = vectors.into_iter().map(|vectors| vectors.output().to_vec()).collect();
                Ok(Measured { start, time: end - start, outputs })
            };
            for _ in 0..WARM_UP {
                run().await?;
            }
            run().await
        })
        .await
    })
}
