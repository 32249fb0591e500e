//! Why an operation or a group fails

use rdma_async::{AllocError, OpenError, RecvError, SendError, SessionError};

use super::call::Call;
use super::element::ElementType;
use super::reduction::Reduction;
use crate::PlanError;

/// Why an operation failed
///
/// After [`Argument`](Self::Argument), [`Plan`](Self::Plan), [`Root`](Self::Root) and [`Unsupported`](Self::Unsupported) nothing was sent and
/// the group goes on. After the others it is over: each further operation returns the same error, and so do those of all ranks that can be
/// reached. What the operation has written by then is undefined.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum GroupError {
    /// A slice has another length than the operation needs
    #[error("the {name} has {found} elements; {expected} are needed")]
    Argument {
        /// Which argument
        name: &'static str,
        /// The length that it has to have, in elements
        expected: usize,
        /// Its length in elements
        found: usize,
    },

    /// A rank has dropped the future of an operation before its end
    #[error("rank {rank} has dropped operation {sequence} before its end")]
    Cancelled {
        /// The rank
        rank: usize,
        /// Number of the operation, from 0
        sequence: u32,
    },

    /// A rank has left the group while others need it
    #[error("rank {rank} has left the group")]
    Left {
        /// The rank
        rank: usize,
    },

    /// A rank is lost: its process has ended, or no way leads to it
    #[error("rank {rank} is lost{}", because(reason.as_ref()))]
    Lost {
        /// The rank
        rank: usize,
        /// What the session with it reported, if this rank has one
        reason: Option<SessionError>,
    },

    /// Two ranks asked for different operations
    #[error(
        "operation {sequence} is {} on rank {}, and {} on rank {}: all ranks have to call the same operations in the same order",
        calls[0], ranks[0], calls[1], ranks[1]
    )]
    Mismatch {
        /// Number of the operation, from 0
        sequence: u32,
        /// The two ranks
        ranks: [usize; 2],
        /// What each asked for
        calls: [Call; 2],
    },

    /// The operation cannot be planned
    #[error(transparent)]
    Plan(#[from] PlanError),

    /// A rank sent what does not belong to the operation
    #[error(
        "rank {rank} sent what operation {sequence} does not need: all ranks have to run the same version"
    )]
    Protocol {
        /// The rank
        rank: usize,
        /// Number of the operation, from 0
        sequence: u32,
    },

    /// There is no such rank
    #[error("rank {rank} does not exist in a group of {size}: count ranks from 0")]
    Root {
        /// The rank
        rank: usize,
        /// How many ranks there are
        size: usize,
    },

    /// Elements of this type have no such reduction
    #[error("elements of type {element} have no {reduction}")]
    Unsupported {
        /// The type
        element: ElementType,
        /// The reduction
        reduction: Reduction,
    },
}

impl GroupError {
    /// What `error` of the session with `rank` means to the group
    pub(super) fn of_recv(rank: usize, error: RecvError) -> Self {
        match error {
            RecvError::Lost(reason) => Self::Lost { rank, reason: Some(reason) },
            _ => Self::Left { rank },
        }
    }

    /// As [`of_recv`](Self::of_recv)
    pub(super) fn of_send(rank: usize, error: SendError) -> Self {
        match error {
            SendError::Lost(reason) => Self::Lost { rank, reason: Some(reason) },
            _ => Self::Left { rank },
        }
    }
}

fn because(reason: Option<&SessionError>) -> String {
    reason.map_or_else(String::new, |reason| format!(": {reason}"))
}

/// Why a rank could not join a group
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum JoinError {
    /// Two ranks would be in different groups
    #[error("ranks {} and {} disagree on the {what}: {:#x} and {:#x}", ranks[0], ranks[1], values[0], values[1])]
    Disagreement {
        /// This rank, and the neighbour
        ranks: [usize; 2],
        /// On what they disagree
        what: &'static str,
        /// What each has
        values: [u64; 2],
    },

    /// A neighbour has closed its session, or sent something else than its greeting
    #[error("rank {rank} does not join: it has closed the session, or runs another protocol on it")]
    Greeting {
        /// The neighbour
        rank: usize,
    },

    /// The session with a neighbour is lost
    #[error("rank {rank} is lost: {reason}")]
    Lost {
        /// The neighbour
        rank: usize,
        /// Why the session is lost
        reason: SessionError,
    },

    /// Memory for sending cannot be had
    #[error("blocks for rank {rank}: {reason}; lower block_bytes, or raise send_memory of the node")]
    Memory {
        /// The neighbour that blocks are for
        rank: usize,
        /// Why
        reason: AllocError,
    },

    /// The peer takes no messages of the length of a block
    #[error("rank {rank} takes messages of up to {max} bytes, and a block has {len}: lower block_bytes")]
    MaxMessage {
        /// The neighbour
        rank: usize,
        /// The longest message that it takes, in bytes
        max: usize,
        /// The length of a block in bytes
        len: usize,
    },

    /// The cabling has no plan
    #[error(transparent)]
    Plan(#[from] PlanError),

    /// The rank is not a host of the cabling
    #[error("rank {rank} does not exist in a cabling of {size} hosts: count ranks from 0")]
    Rank {
        /// The rank
        rank: usize,
        /// How many hosts there are
        size: usize,
    },

    /// The sessions are not one for each neighbour
    #[error("rank {rank} has {found} sessions with rank {neighbour}; the cabling needs {expected}")]
    Sessions {
        /// This rank
        rank: usize,
        /// The other rank
        neighbour: usize,
        /// How many sessions are needed: 1 with a neighbour, 0 with others
        expected: usize,
        /// How many were given
        found: usize,
    },
}

impl JoinError {
    pub(super) fn of_open(rank: usize, error: OpenError) -> Self {
        match error {
            OpenError::Lost(reason) => Self::Lost { rank, reason },
            _ => Self::Greeting { rank },
        }
    }

    pub(super) fn of_recv(rank: usize, error: RecvError) -> Self {
        match error {
            RecvError::Lost(reason) => Self::Lost { rank, reason },
            _ => Self::Greeting { rank },
        }
    }

    pub(super) fn of_send(rank: usize, error: SendError) -> Self {
        match error {
            SendError::Lost(reason) => Self::Lost { rank, reason },
            SendError::Alloc(reason) => Self::Memory { rank, reason },
            SendError::TooLong { len, max } => Self::MaxMessage { rank, max, len },
            _ => Self::Greeting { rank },
        }
    }
}
