//! What a rank waits for, as other tasks see it

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use super::call::Call;

/// Shows what a rank waits for, also while an operation is under way; [`Group::monitor`](super::Group::monitor) makes one
#[derive(Clone, Debug)]
pub struct Monitor {
    waits: Arc<Mutex<Waits>>,
}

/// What a rank waits for at a moment
///
/// Prints as a sentence. A rank that its neighbours wait for and that waits for none itself is the one that holds up the group.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Waits {
    /// The rank
    pub rank: usize,
    /// Number of the operation under way, or of the next one
    pub sequence: u32,
    /// The operation under way, if there is one
    pub call: Option<Call>,
    /// The ranks that have to do something before the rank goes on; empty also while the rank itself works
    pub neighbours: Vec<Wait>,
}

/// A neighbour that a rank waits for, or the rank that it sends to or receives from
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Wait {
    /// The rank that has to do something
    pub rank: usize,
    /// What it has to do
    pub reason: WaitReason,
}

/// What a rank has to do that another one waits for
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum WaitReason {
    /// Call the operation
    Begin,
    /// Send so many blocks
    Blocks(u32),
    /// Send its vector
    Send,
    /// Take what was sent to it
    Take,
}

impl Monitor {
    pub(super) fn new(rank: usize) -> Self {
        Self { waits: Arc::new(Mutex::new(Waits { rank, ..Waits::default() })) }
    }

    /// What the rank waits for now
    #[must_use]
    pub fn waits(&self) -> Waits {
        self.waits.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Whether the application has one
    pub(super) fn is_watched(&self) -> bool {
        Arc::strong_count(&self.waits) > 1
    }

    pub(super) fn update(&self, change: impl FnOnce(&mut Waits)) {
        change(&mut self.waits.lock().unwrap_or_else(PoisonError::into_inner));
    }
}

impl fmt::Display for Waits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { rank, sequence, call, neighbours } = self;
        let Some(call) = call else {
            return write!(f, "rank {rank} has not called operation {sequence}");
        };
        write!(f, "rank {rank} is in operation {sequence} ({call})")?;
        for (index, Wait { rank, reason }) in neighbours.iter().enumerate() {
            f.write_str(if index == 0 { " and waits for " } else { ", " })?;
            match reason {
                WaitReason::Begin => write!(f, "rank {rank} to call it"),
                WaitReason::Blocks(1) => write!(f, "a block of rank {rank}"),
                WaitReason::Blocks(blocks) => write!(f, "{blocks} blocks of rank {rank}"),
                WaitReason::Send => write!(f, "rank {rank} to send"),
                WaitReason::Take => write!(f, "rank {rank} to take what was sent"),
            }?;
        }
        Ok(())
    }
}
