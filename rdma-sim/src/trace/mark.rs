//! What a program states of itself, at its time

use rdma_core::Time;
use rdma_core::probe::{Statement, StatementKind};

/// A state or a statement of the program
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Mark {
    pub(crate) time: Time,
    /// The host of the task that stated it, if it has one
    pub(crate) host: Option<u32>,
    pub(crate) content: MarkContent,
}

#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub(crate) enum MarkContent {
    /// The label and value of a `state!`
    State(&'static str, u64),
    /// A statement that was evaluated, and whether it held
    Statement(Statement, bool),
}

/// How a mark is drawn
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Look {
    State,
    Holds,
    HoldsNot,
    Violated,
}

impl MarkContent {
    /// What is stated
    pub(super) fn text(self) -> String {
        match self {
            Self::State(label, 0) => format!("state {label}"),
            Self::State(label, value) => format!("state {label} = {value}"),
            Self::Statement(Statement { kind, label, .. }, true) => format!("{kind}: {label}"),
            Self::Statement(Statement { kind: StatementKind::Always, label, .. }, false) => {
                format!("always, violated: {label}")
            }
            Self::Statement(Statement { kind, label, .. }, false) => {
                format!("{kind}, does not hold: {label}")
            }
        }
    }

    /// The line of the program that states it, if that is known
    pub(super) fn site(self) -> Option<String> {
        match self {
            Self::State(..) => None,
            Self::Statement(Statement { file, line, .. }, _) => Some(format!("{file}:{line}")),
        }
    }

    pub(super) fn look(self) -> Look {
        match self {
            Self::State(..) => Look::State,
            Self::Statement(_, true) => Look::Holds,
            Self::Statement(Statement { kind: StatementKind::Always, .. }, false) => Look::Violated,
            Self::Statement(_, false) => Look::HoldsNot,
        }
    }
}
