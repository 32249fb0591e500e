//! Why an operation or a group fails

use rdma_async::{AllocError, OpenError, RecvError, SendError, SessionError};

use super::call::Call;
use super::cause::Cause;
use super::element::ElementType;
use super::reduction::Reduction;
use crate::PlanError;

/// Why an operation failed
///
/// After [`Argument`](Self::Argument), [`Counts`](Self::Counts), [`OwnRank`](Self::OwnRank), [`Plan`](Self::Plan), [`Rank`](Self::Rank) and
/// [`Unsupported`](Self::Unsupported) nothing was sent and the group goes on. After the others it is over: each further operation returns
/// the same error, and operations of all ranks that can be reached fail. The ranks mostly have the same error; of calls that differ, each rank
/// names those that it has learned of first. The contents of the output are then undefined. The ranks that are left can
/// [shrink](super::Group::shrink) the group and go on.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum GroupError {
    /// A slice has another length than the operation needs
    #[error("`{name}`: {found} elements were given; {expected} are needed")]
    Argument {
        /// Which argument
        name: &'static str,
        /// The length that it has to have, in elements
        expected: usize,
        /// Its length in elements
        found: usize,
    },

    /// The parts of all ranks together have more elements than a slice can have
    #[error("the counts add up to {elements} elements; a slice has at most {max}")]
    Counts {
        /// The sum, or the greatest number that there is
        elements: usize,
        /// The most elements of this type in a slice
        max: usize,
    },

    /// A rank has dropped the future of an operation before its end
    #[error("rank {rank} has dropped operation {sequence} before its end")]
    Cancelled {
        /// The rank
        rank: usize,
        /// Number of the operation, from 0
        sequence: u32,
    },

    /// A rank has left the group, or has failed to join it, while others need it
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
        /// Why the session with it ended, if this rank has one
        reason: Option<SessionError>,
    },

    /// Two ranks asked for different operations
    #[error(
        "operation {sequence} is {} on rank {}, and {} on rank {}: all ranks have to {}",
        calls[0], ranks[0], calls[1], ranks[1], agreement(calls)
    )]
    Mismatch {
        /// Number of the operation, from 0; of a send or recv, among those of the two ranks with each other
        sequence: u32,
        /// The two ranks
        ranks: [usize; 2],
        /// The call of each
        calls: [Call; 2],
    },

    /// A rank sends to itself, or receives from itself
    #[error("rank {rank} is this rank: send to others, and receive from others")]
    OwnRank {
        /// The rank
        rank: usize,
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
    Rank {
        /// The rank
        rank: usize,
        /// How many ranks there are
        size: usize,
    },

    /// A rank has revoked the group
    #[error("rank {rank} has revoked the group")]
    Revoked {
        /// The rank
        rank: usize,
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
    /// The meaning of `error` of the session with `rank` for the group
    pub(super) fn of_recv(rank: usize, error: RecvError) -> Self {
        match error {
            RecvError::Lost(reason) => match Cause::of(&reason) {
                Some(Cause { rank, is_lost: false }) => Self::Left { rank },
                Some(Cause { rank, is_lost: true }) => Self::Lost { rank, reason: None },
                None => Self::Lost { rank, reason: Some(reason) },
            },
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
    #[error("ranks {} and {} disagree on the {what}{}", ranks[0], ranks[1], disagreement(what, *values))]
    Disagreement {
        /// This rank, and the neighbour
        ranks: [usize; 2],
        /// On what they disagree
        what: &'static str,
        /// The value of each; a hash for cablings and plans
        values: [u64; 2],
    },

    /// Another rank could not join, or has dropped its attempt
    #[error("rank {rank} could not join the group: its own error says why")]
    Failed {
        /// The rank, which need not be a neighbour
        rank: usize,
    },

    /// A neighbour has closed its session, or sent something else than its greeting
    #[error("rank {rank} does not join: it has closed the session, or runs another protocol on it")]
    Greeting {
        /// The neighbour
        rank: usize,
    },

    /// The group beside which ranks were to make another one is over; the sessions go on
    #[error("the group beside which the ranks make another one is over: {0}")]
    Group(GroupError),

    /// A cabling for a group that [grows](super::Group::grow) lacks a host of it
    #[error(
        "the cabling has no host {host}, which is in the group: give it all hosts of the group, by their names"
    )]
    Host {
        /// The host
        host: String,
    },

    /// Another rank is lost: its process has ended, or no way leads to it
    #[error("rank {rank} is lost{}", because(reason.as_ref()))]
    Lost {
        /// The rank, which need not be a neighbour
        rank: usize,
        /// Why the session with it ended, if this rank has one
        reason: Option<SessionError>,
    },

    /// Memory for sending is not free
    #[error(
        "memory for what is sent to rank {rank}: {reason}; lower block_bytes, or raise send_memory of the node"
    )]
    Memory {
        /// The neighbour that it is for
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

    /// The peer takes no messages as long as those by which ranks [go on](super::Group::shrink) without others
    #[error(
        "rank {rank} takes messages of up to {max} bytes, and ranks that shrink need {len}: raise max_message of its node"
    )]
    Statement {
        /// The neighbour
        rank: usize,
        /// The longest message that it takes, in bytes
        max: usize,
        /// The length of the longest message that ranks of this cabling may send, in bytes
        len: usize,
    },

    /// No more streams can be opened to a neighbour
    #[error(
        "a group needs {needed} streams to rank {rank}, which takes no more: drop others, or raise max_streams of its node"
    )]
    Streams {
        /// The neighbour
        rank: usize,
        /// How many a group needs to each neighbour
        needed: usize,
    },
}

impl JoinError {
    /// The cause for the neighbours of rank `own`
    pub(super) fn cause(&self, own: usize) -> Cause {
        match *self {
            Self::Failed { rank } | Self::Greeting { rank } => Cause { rank, is_lost: false },
            Self::Lost { rank, .. } => Cause { rank, is_lost: true },
            _ => Cause { rank: own, is_lost: false },
        }
    }

    /// The meaning of an error of the first operation, for which all ranks have to be there
    pub(super) fn of_group(error: GroupError) -> Self {
        match error {
            GroupError::Lost { rank, reason } => Self::Lost { rank, reason },
            GroupError::Plan(error) => Self::Plan(error),
            GroupError::Cancelled { rank, .. }
            | GroupError::Left { rank }
            | GroupError::Revoked { rank }
            | GroupError::Rank { rank, .. } => Self::Failed { rank },
            GroupError::Mismatch { ranks: [_, rank], .. } | GroupError::Protocol { rank, .. } => {
                Self::Greeting { rank }
            }
            GroupError::Argument { .. }
            | GroupError::Counts { .. }
            | GroupError::OwnRank { .. }
            | GroupError::Unsupported { .. } => {
                unreachable!("integers have a maximum, and the vectors one length")
            }
        }
    }

    /// The meaning of an error of the operation in which the ranks of a group come together to make another one
    pub(super) fn of_call(error: GroupError) -> Self {
        match error {
            GroupError::Plan(error) => Self::Plan(error),
            error => Self::Group(error),
        }
    }

    /// The same with other numbers of ranks
    pub(super) fn renumbered(self, number: impl Fn(usize) -> Result<usize, Self>) -> Self {
        let renumbered = match self {
            Self::Failed { rank } => number(rank).map(|rank| Self::Failed { rank }),
            Self::Greeting { rank } => number(rank).map(|rank| Self::Greeting { rank }),
            Self::Lost { rank, reason } => number(rank).map(|rank| Self::Lost { rank, reason }),
            other => Ok(other),
        };
        renumbered.unwrap_or_else(|error| error)
    }

    /// Whether another attempt would fail as well
    pub(super) fn is_lasting(&self) -> bool {
        !matches!(self, Self::Failed { .. } | Self::Greeting { .. } | Self::Lost { .. })
    }

    fn lost(rank: usize, reason: SessionError) -> Self {
        match Cause::of(&reason) {
            Some(Cause { rank, is_lost: false }) => Self::Failed { rank },
            Some(Cause { rank, is_lost: true }) => Self::Lost { rank, reason: None },
            None => Self::Lost { rank, reason: Some(reason) },
        }
    }

    pub(super) fn of_open(rank: usize, error: OpenError) -> Self {
        match error {
            OpenError::Lost(reason) => Self::lost(rank, reason),
            _ => Self::Greeting { rank },
        }
    }

    pub(super) fn of_recv(rank: usize, error: RecvError) -> Self {
        match error {
            RecvError::Lost(reason) => Self::lost(rank, reason),
            _ => Self::Greeting { rank },
        }
    }

    pub(super) fn of_send(rank: usize, error: SendError) -> Self {
        match error {
            SendError::Lost(reason) => Self::lost(rank, reason),
            _ => Self::Greeting { rank },
        }
    }
}

/// Why the ranks that are left do not go on
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum ShrinkError {
    /// The others take this rank for one that has left
    #[error("the other ranks go on without {host}: they have seen it leave the group")]
    Excluded {
        /// The host of this rank
        host: String,
    },

    /// A group of the ranks that are left can not come together
    #[error(transparent)]
    Join(#[from] JoinError),

    /// Too few ranks are left: the others may be a group of their own
    #[error("{} of {size} ranks are left ({}): too few to go on", hosts.len(), hosts.join(", "))]
    Minority {
        /// The hosts of the ranks that this one reaches, itself among them, without those that have given up before
        hosts: Vec<String>,
        /// How many ranks the group had
        size: usize,
    },
}

/// What all ranks have to do that have made different calls
fn agreement([one, other]: &[Call; 2]) -> &'static str {
    let has_counts = one.counts.is_some() && other.counts.is_some();
    match has_counts && (Call { counts: one.counts, count: one.count, ..*other }) == *one {
        true => {
            "pass the same counts in the same order; only hashes of them are exchanged, so print those of these two ranks"
        }
        false => "call the same operations in the same order",
    }
}

/// The name of a value that is a hash: a person compares the cablings instead.
pub(super) const CABLING: &str = "cabling";
/// The name of a value that is a hash: the same version makes the same plan.
pub(super) const PLAN: &str = "plan of all_reduce";

fn disagreement(what: &str, [own, other]: [u64; 2]) -> String {
    match what {
        CABLING => ": give all the same hosts, cables, rates and latencies".to_owned(),
        PLAN => ": run the same version on all".to_owned(),
        _ => format!(": {own} and {other}"),
    }
}
