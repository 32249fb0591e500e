//! How long an operation of a group takes

use std::time::Duration;

use anyhow::Result;
use futures::future::try_join_all;
use rdma_collectives::{Group, GroupError, Reduction};
use rdma_core::Time;
use rdma_sim::{History, SimDevice};

use super::cluster::Macs;
use super::number::Number;
use super::workload::{ROOT, Workload};
use crate::args::OperationName;

/// The quiet before a measurement, in which acknowledgements and credits of what came before arrive.
pub(super) const QUIET: Duration = Duration::from_millis(1);

/// The result of an operation
pub(super) struct Measured<T> {
    /// When all ranks started
    pub(super) start: Time,
    /// From the start of all ranks, at the same time, to the end of the last one
    pub(super) time: Duration,
    /// By rank
    pub(super) outputs: Vec<Vec<T>>,
}

/// Carries out the operation once, after a barrier
pub(super) fn measure<T: Number>(macs: &Macs<'_>, workload: &Workload) -> Result<(Measured<T>, History)> {
    macs.simulate(async |net| {
        macs.with_groups(&net, async |mut groups| {
            try_join_all(groups.iter_mut().map(Group::barrier)).await?;
            let mut vectors: Vec<_> =
                (0..workload.ranks).map(|rank| Vectors::<T>::new(workload, rank)).collect();
            net.sleep(QUIET).await;
            let start = net.now();
            let ranks = groups.iter_mut().zip(&mut vectors).map(async |(group, vectors)| {
                vectors.operate(group, workload.operation).await?;
                Ok::<_, GroupError>(net.now())
            });
            let ends = try_join_all(ranks).await?;
            let end = ends.into_iter().max().unwrap_or(start);
            let outputs = vectors.into_iter().map(|vectors| vectors.output).collect();
            Ok(Measured { start, time: end - start, outputs })
        })
        .await
    })
}

/// The vectors of a rank
struct Vectors<T> {
    /// Empty if the operation is in place
    input: Vec<T>,
    output: Vec<T>,
}

impl<T: Number> Vectors<T> {
    fn new(workload: &Workload, rank: usize) -> Self {
        let (input, len) = (workload.input(rank), workload.output_len(rank));
        match workload.operation {
            OperationName::AllReduce | OperationName::Broadcast | OperationName::Reduce => {
                let mut output = input;
                output.resize(len, T::default());
                Self { input: Vec::new(), output }
            }
            _ => Self { input, output: vec![T::default(); len] },
        }
    }

    async fn operate(
        &mut self,
        group: &mut Group<SimDevice>,
        operation: OperationName,
    ) -> Result<(), GroupError> {
        let Self { input, output } = self;
        match operation {
            OperationName::AllReduce => group.all_reduce(output, Reduction::Sum).await,
            OperationName::AllGather => group.all_gather(input, output).await,
            OperationName::ReduceScatter => group.reduce_scatter(input, output, Reduction::Sum).await,
            OperationName::Broadcast => group.broadcast(ROOT, output).await,
            OperationName::Reduce => group.reduce(ROOT, output, Reduction::Sum).await,
            OperationName::Scatter => group.scatter(ROOT, input, output).await,
            OperationName::Gather => group.gather(ROOT, input, output).await,
            OperationName::AllToAll => group.all_to_all(input, output).await,
        }
    }
}
