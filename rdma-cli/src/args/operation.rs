//! Names of collective operations

/// A collective operation
#[derive(Clone, Copy, Debug, Default, clap::ValueEnum)]
pub(crate) enum OperationName {
    #[default]
    AllReduce,
    AllGather,
    ReduceScatter,
    Broadcast,
    Reduce,
    Scatter,
    Gather,
    AllToAll,
}
