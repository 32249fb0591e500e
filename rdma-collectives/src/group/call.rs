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
    /// [`Group::send`](crate::Group::send) and [`Group::recv`](crate::Group::recv)
    Send,
    /// [`Group::split`](crate::Group::split)
    Split,
    /// [`Group::transfer`](crate::Group::transfer)
    Transfer,
}

impl OperationKind {
    const ALL: [Self; 14] = [
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
        Self::Send,
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
            Self::Send => "send",
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
    /// The rank that gets what another one sends
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
    pub(super) const LEN: usize = 18;
    /// The byte whose upper half a call leaves free
    pub(super) const HALF_FREE: usize = 8;

    pub(super) fn encode(&self) -> [u8; Self::LEN] {
        let operation = OperationKind::ALL.iter().position(|kind| *kind == self.operation);
        let element = ElementType::ALL.iter().position(|kind| *kind == self.element);
        let reduction =
            self.reduction.and_then(|kind| Reduction::ALL.iter().position(|other| *other == kind));
        let [operation, element] = [operation, element].map(|index| index.map_or(NONE, |index| index as u8));
        let reduction = reduction.map_or(0, |index| index as u8 + 1);
        let rank = |rank: Option<usize>| rank.map_or(u16::MAX, |rank| rank as u16).to_le_bytes();
        let mut bytes = [0; Self::LEN];
        bytes[..8].copy_from_slice(&self.count.to_le_bytes());
        bytes[8..10].copy_from_slice(&[operation, element | reduction << 4]);
        bytes[10..12].copy_from_slice(&rank(self.root));
        bytes[12..14].copy_from_slice(&rank(self.to));
        bytes[14..].copy_from_slice(&self.counts.map_or(0, NonZeroU32::get).to_le_bytes());
        bytes
    }

    pub(super) fn decode(bytes: &[u8; Self::LEN]) -> Option<Self> {
        let rank = |bytes: [u8; 2]| match u16::from_le_bytes(bytes) {
            u16::MAX => None,
            rank => Some(usize::from(rank)),
        };
        let &[_, _, _, _, _, _, _, _, operation, kinds, a, b, c, d, ref counts @ ..] = bytes;
        Some(Self {
            operation: *OperationKind::ALL.get(usize::from(operation & LOW_HALF))?,
            element: *ElementType::ALL.get(usize::from(kinds & LOW_HALF))?,
            reduction: match kinds >> 4 {
                0 => None,
                number => Some(*Reduction::ALL.get(usize::from(number) - 1)?),
            },
            root: rank([a, b]),
            to: rank([c, d]),
            count: u64::from_le_bytes(*bytes.first_chunk()?),
            counts: NonZeroU32::new(u32::from_le_bytes(*counts)),
        })
    }
}

/// Half a byte that stands for none
const NONE: u8 = 0xf;
/// The bits of the lower half of a byte
const LOW_HALF: u8 = 0xf;
const _: () =
    assert!(OperationKind::ALL.len() <= 15 && ElementType::ALL.len() <= 15 && Reduction::ALL.len() <= 15);

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
