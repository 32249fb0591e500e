//! Operations by name

use rdma_collectives::Operation;

use crate::args::{OperationName, TopoPlan};
use crate::failure::Failure;

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

/// The host that the arguments name as root
pub(super) fn root(args: &TopoPlan, hosts: &[String]) -> Result<usize, Failure> {
    match &args.root {
        Some(_) if !args.operation.has_root() => {
            Err(Failure::usage("--root is for broadcast, gather, reduce and scatter: leave it out"))
        }
        None => Ok(0),
        Some(name) => hosts
            .iter()
            .position(|host| host == name)
            .ok_or_else(|| Failure::usage(format!("--root {name}: the hosts are {}", hosts.join(", ")))),
    }
}
