//! Operations as ranks call them

use std::fmt;
use std::num::NonZeroU32;

use super::counts::Counts;
use super::element::ElementType;
use super::reduction::Reduction;

/// The kind of an operation of a group
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
#[non_exhaustive]
pub enum OperationKind {
    /// [`Group::all_gather`](crate::Group::all_gather)
    AllGather,
    /// [`Group::all_reduce`](crate::Group::all_reduce)
    AllReduce,
    /// [`Group::all_to_all`](crate::Group::all_to_all)
    AllToAll,
    /// [`Group::barrier`](crate::Group::barrier)
    Barrier,
    /// [`Group::broadcast`](crate::Group::broadcast)
    Broadcast,
    /// [`Group::duplicate`](crate::Group::duplicate)
    Duplicate,
    /// [`Group::gather`](crate::Group::gather)
    Gather,
    /// [`Group::reduce`](crate::Group::reduce)
    Reduce,
    /// [`Group::reduce_scatter`](crate::Group::reduce_scatter)
    ReduceScatter,
    /// What ranks do between two operations to plan for the cables that work
    Replan,
    /// [`Group::scatter`](crate::Group::scatter)
    Scatter,
    /// [`Group::split`](crate::Group::split)
    Split,
    /// [`Group::transfer`](crate::Group::transfer)
    Transfer,
}

impl OperationKind {
    const ALL: [Self; 13] = [
        Self::AllGather,
        Self::AllReduce,
        Self::AllToAll,
        Self::Barrier,
        Self::Broadcast,
        Self::Duplicate,
        Self::Gather,
        Self::Reduce,
        Self::ReduceScatter,
        Self::Replan,
        Self::Scatter,
        Self::Split,
        Self::Transfer,
    ];
}

impl fmt::Display for OperationKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::AllGather => "all_gather",
            Self::AllReduce => "all_reduce",
            Self::AllToAll => "all_to_all",
            Self::Barrier => "barrier",
            Self::Broadcast => "broadcast",
            Self::Duplicate => "duplicate",
            Self::Gather => "gather",
            Self::Reduce => "reduce",
            Self::ReduceScatter => "reduce_scatter",
            Self::Replan => "replan",
            Self::Scatter => "scatter",
            Self::Split => "split",
            Self::Transfer => "transfer",
        })
    }
}

/// An operation with what all ranks have to agree on
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub struct Call {
    /// The operation
    pub operation: OperationKind,
    /// The type of the elements
    pub element: ElementType,
    /// How elements are combined, if they are
    pub reduction: Option<Reduction>,
    /// The rank that has or gets everything, if there is one
    pub root: Option<usize>,
    /// The rank that gets a transfer
    pub to: Option<usize>,
    /// How many elements: of the vector of one rank, or of the part of each rank; of all parts if their lengths differ
    pub count: u64,
    /// A hash of the lengths of all parts, where they differ
    pub counts: Option<NonZeroU32>,
}

impl Call {
    /// Whether each rank gets something of each other one
    pub(super) fn is_agreeing(&self, counts: &Counts) -> bool {
        let is_symmetric = matches!(
            self.operation,
            OperationKind::AllGather
                | OperationKind::AllReduce
                | OperationKind::AllToAll
                | OperationKind::Barrier
                | OperationKind::Duplicate
                | OperationKind::ReduceScatter
                | OperationKind::Split
        );
        is_symmetric && matches!(counts, Counts::Even(count) if *count > 0)
    }

    /// The length of an encoded call in bytes
    pub(super) const LEN: usize = 20;

    pub(super) fn encode(&self) -> [u8; Self::LEN] {
        let index = |found: Option<usize>| found.map_or(u8::MAX, |index| index as u8);
        let operation = OperationKind::ALL.iter().position(|kind| *kind == self.operation);
        let element = ElementType::ALL.iter().position(|kind| *kind == self.element);
        let reduction =
            self.reduction.and_then(|kind| Reduction::ALL.iter().position(|other| *other == kind));
        let mut bytes = [0; Self::LEN];
        bytes[..8].copy_from_slice(&self.count.to_le_bytes());
        bytes[8..13].copy_from_slice(&[
            index(operation),
            index(element),
            index(reduction),
            index(self.root),
            index(self.to),
        ]);
        bytes[16..].copy_from_slice(&self.counts.map_or(0, NonZeroU32::get).to_le_bytes());
        bytes
    }

    pub(super) fn decode(bytes: &[u8; Self::LEN]) -> Option<Self> {
        let rank = |byte: u8| (byte != u8::MAX).then_some(usize::from(byte));
        let [_, _, _, _, _, _, _, _, operation, element, reduction, root, to, ..] = *bytes;
        Some(Self {
            operation: *OperationKind::ALL.get(usize::from(operation))?,
            element: *ElementType::ALL.get(usize::from(element))?,
            reduction: match rank(reduction) {
                Some(index) => Some(*Reduction::ALL.get(index)?),
                None => None,
            },
            root: rank(root),
            to: rank(to),
            count: u64::from_le_bytes(*bytes.first_chunk()?),
            counts: NonZeroU32::new(u32::from_le_bytes(*bytes.last_chunk()?)),
        })
    }
}

impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { operation, element, reduction, root, to, count, counts } = self;
        // They move nothing of the application.
        if matches!(
            operation,
            OperationKind::Barrier | OperationKind::Duplicate | OperationKind::Replan | OperationKind::Split
        ) {
            return operation.fmt(f);
        }
        match counts {
            Some(hash) => write!(f, "{operation}_v of {count} {element} with counts of hash {hash:08x}")?,
            None => write!(f, "{operation} of {count} {element}")?,
        }
        if let Some(reduction) = reduction {
            write!(f, ", {reduction}")?;
        }
        match (root, to) {
            (Some(root), Some(to)) => write!(f, ", from rank {root} to rank {to}"),
            (Some(root), None) => write!(f, ", root {root}"),
            _ => Ok(()),
        }
    }
}
