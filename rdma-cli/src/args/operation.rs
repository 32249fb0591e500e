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

impl OperationName {
    /// Whether it begins or ends at one host
    pub(crate) fn has_root(self) -> bool {
        matches!(self, Self::Broadcast | Self::Gather | Self::Reduce | Self::Scatter)
    }
}
