//! Operations by name

use rdma_collectives::Operation;

use crate::args::OperationName;

/// The operation with equal amounts from each host; `root` counts for those that have one
pub(crate) fn operation(name: OperationName, hosts: usize, root: usize) -> Operation {
    let amounts = vec![1; hosts];
    match name {
        OperationName::AllReduce => Operation::AllReduce,
        OperationName::AllGather => Operation::AllGather { amounts },
        OperationName::ReduceScatter => Operation::ReduceScatter { amounts },
        OperationName::Broadcast => Operation::Broadcast { root },
        OperationName::Reduce => Operation::Reduce { root },
        OperationName::Scatter => Operation::Scatter { root, amounts },
        OperationName::Gather => Operation::Gather { root, amounts },
        OperationName::AllToAll => Operation::AllToAll { amounts: vec![amounts; hosts] },
    }
}
