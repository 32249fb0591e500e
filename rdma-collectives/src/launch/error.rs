use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use rdma_async::ConnectError;
use rdma_core::MatrixError;

use crate::CablingError;

/// Why a rank does not come together with the others
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LaunchError {
    /// The hosts of the matrix are no cabling
    #[error(transparent)]
    Cabling(#[from] CablingError),

    /// The rank is closed: its node takes no peers any more
    #[error("the node is closed")]
    Closed,

    /// Rank 0 cannot listen where the others look for it
    #[error("rank 0 cannot listen at {coordinator}: {reason}")]
    Coordinator {
        /// The address that the launcher has given
        coordinator: String,
        /// Why
        #[source]
        reason: io::Error,
    },

    /// Rank 0 has ended, or given up, while this rank waited for the others
    #[error("rank 0 at {coordinator} has gone while others were still missing")]
    CoordinatorGone {
        /// Its address
        coordinator: String,
    },

    /// Two processes say that they are the same rank
    #[error("two processes are rank {rank}: {}, {}", addresses[0], addresses[1])]
    Duplicate {
        /// The rank
        rank: usize,
        /// Where they are
        addresses: [SocketAddr; 2],
    },

    /// The file with the device matrix cannot be read
    #[error("{}: {reason}", path.display())]
    File {
        /// The file
        path: PathBuf,
        /// Why
        #[source]
        reason: io::Error,
    },

    /// This rank cannot wait for its neighbours
    #[error("a port for the neighbours: {reason}")]
    Listen {
        /// Why
        #[source]
        reason: io::Error,
    },

    /// What is in the file is no device matrix
    #[error("{}: {reason}", path.display())]
    Matrix {
        /// The file
        path: PathBuf,
        /// Why
        #[source]
        reason: MatrixError,
    },

    /// Ranks have not come in time
    #[error("{} not come within {timeout:?}", ranks_have(ranks))]
    Missing {
        /// Which
        ranks: Vec<usize>,
        /// How long this rank has waited
        timeout: Duration,
    },

    /// No session with a neighbour is made
    #[error("no session with rank {rank}: {reason}")]
    Neighbour {
        /// The neighbour
        rank: usize,
        /// Why
        #[source]
        reason: ConnectError,
    },

    /// A neighbour is not reached where it listens
    #[error("rank {rank} is not reached at {address}: {reason}")]
    NeighbourUnreachable {
        /// The neighbour
        rank: usize,
        /// Where it listens, as rank 0 sees it
        address: SocketAddr,
        /// Why
        #[source]
        reason: io::Error,
    },

    /// No device of the rank leads to another one
    #[error("rank {rank} has no cable to any other one")]
    NoCable {
        /// The rank
        rank: usize,
    },

    /// A variable does not have a number
    #[error("{} or {} is {value:?}, which is no number of a rank", names[0], names[1])]
    Number {
        /// Its names
        names: [&'static str; 2],
        /// Its value
        value: String,
    },

    /// Ranks were given different device matrices
    #[error("rank {rank} has another device matrix than rank 0")]
    OtherMatrix {
        /// The rank whose matrix differs from that of rank 0
        rank: usize,
    },

    /// There is no such rank
    #[error("there is no rank {rank} among {hosts} hosts")]
    Rank {
        /// The rank
        rank: usize,
        /// How many hosts the matrix has
        hosts: usize,
    },

    /// Rank 0 is not there
    #[error("no rank 0 at {coordinator} within {timeout:?}: {reason}")]
    Unreachable {
        /// The address that the launcher has given
        coordinator: String,
        /// How long this rank has tried
        timeout: Duration,
        /// The last reason
        #[source]
        reason: io::Error,
    },

    /// A variable is not set
    #[error("neither {} nor {} is set: start the ranks by `mlx.launch --backend jaccl` or `tb5 run`", names[0], names[1])]
    Variable {
        /// Its names
        names: [&'static str; 2],
    },
}

fn ranks_have(ranks: &[usize]) -> String {
    match ranks {
        [rank] => format!("rank {rank} has"),
        _ => format!("ranks {} have", ranks.iter().map(usize::to_string).collect::<Vec<_>>().join(", ")),
    }
}
