use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use rdma_async::ConnectError;
use rdma_core::{HostfileError, MatrixError};

use crate::CablingError;

/// Why a rank does not come together with the others
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LaunchError {
    /// The first host of a hostfile has no address at which the others find rank 0
    #[error("line {line}: {host} has no address in `ips`, at which the other ranks find rank 0")]
    Address {
        /// The line of the host, counted from one
        line: usize,
        /// Its name
        host: String,
    },

    /// The hosts of the matrix are no cabling
    #[error(transparent)]
    Cabling(#[from] CablingError),

    /// The node of the rank is closed
    #[error("the node is closed")]
    Closed,

    /// Rank 0 cannot listen where the others look for it
    #[error("rank 0 cannot listen at {coordinator}: {reason}")]
    Coordinator {
        /// The address of rank 0, as the launcher has set it
        coordinator: String,
        /// The error of the system
        #[source]
        reason: io::Error,
    },

    /// Rank 0 has ended while this rank waited for the others, or something else listens in its place
    #[error("no answer of rank 0 at {coordinator}: {reason}")]
    CoordinatorGone {
        /// The address of rank 0, as the launcher has set it
        coordinator: String,
        /// The error of the connection, or of what was read
        #[source]
        reason: io::Error,
    },

    /// Two processes say that they are the same rank
    #[error("two processes are rank {rank}: {}, {}", addresses[0], addresses[1])]
    Duplicate {
        /// The rank
        rank: usize,
        /// Where both processes listen for their neighbours
        addresses: [SocketAddr; 2],
    },

    /// The file with the device matrix cannot be read
    #[error("{}: {reason}", path.display())]
    File {
        /// The file
        path: PathBuf,
        /// The error of the system
        #[source]
        reason: io::Error,
    },

    /// The hostfile has no device matrix
    #[error(transparent)]
    Hostfile(#[from] HostfileError),

    /// The system has no port at which this rank could listen for its neighbours
    #[error("no port to listen for neighbours: {reason}")]
    Listen {
        /// The error of the system
        #[source]
        reason: io::Error,
    },

    /// The file has no device matrix
    #[error("{}: {reason}", path.display())]
    Matrix {
        /// The file
        path: PathBuf,
        /// The cell or the line
        #[source]
        reason: MatrixError,
    },

    /// Ranks were not started in time, or have ended
    #[error("{} not come within {timeout:?}", ranks_have(ranks))]
    Missing {
        /// The ranks that are missing
        ranks: Vec<usize>,
        /// How long rank 0, or a neighbour of theirs, has waited
        timeout: Duration,
    },

    /// No session with a neighbour is made
    #[error("no session with rank {rank}: {reason}")]
    Neighbour {
        /// The neighbour
        rank: usize,
        /// The error of the node
        #[source]
        reason: ConnectError,
    },

    /// A neighbour has ended, or the network does not let this rank reach it
    #[error("rank {rank} cannot be reached: {reason}")]
    NeighbourUnreachable {
        /// The neighbour
        rank: usize,
        /// The error of the connection
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

    /// The system has no thread for the connections to the other ranks
    #[error("no thread for the connections to other ranks: {reason}")]
    Thread {
        /// The error of the system
        #[source]
        reason: io::Error,
    },

    /// There is no such rank
    #[error("there is no rank {rank} among {hosts} hosts")]
    Rank {
        /// The rank
        rank: usize,
        /// How many hosts the matrix has
        hosts: usize,
    },

    /// Nothing listens at the address of rank 0
    #[error("no rank 0 at {coordinator} within {timeout:?}: {reason}")]
    Unreachable {
        /// The address of rank 0, as the launcher has set it
        coordinator: String,
        /// How long this rank has tried
        timeout: Duration,
        /// The error of the last attempt
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
