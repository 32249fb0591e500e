//! What goes between a rank and others without calls of the rest

use std::collections::BTreeMap;

use super::numbered::Numbered;
use super::retry::Retry;

/// What goes between this rank and others without calls of the rest
pub(super) struct Pairs {
    /// By rank
    pub(super) pairs: BTreeMap<usize, Pair>,
    /// The rank with which a call is under way
    pub(super) active: Option<usize>,
    /// The message that says why the group is over here
    pub(super) over: Option<Box<[u8]>>,
    pub(super) retry: Retry,
}

/// What goes between a rank and another one
#[derive(Default)]
pub(super) struct Pair {
    pub(super) messages: Numbered,
    /// How many calls with the other rank this one has begun
    pub(super) calls: u32,
    /// Whether the other rank is told that the group is over here
    pub(super) is_told: bool,
}

impl Default for Pairs {
    fn default() -> Self {
        Self { pairs: BTreeMap::new(), active: None, over: None, retry: Retry::NEW }
    }
}

impl Pairs {
    /// Whether the group is over here
    pub(super) fn is_over(&self) -> bool {
        self.over.is_some()
    }

    /// Messages that other ranks may not have taken
    pub(super) fn unconfirmed(&self) -> impl Iterator<Item = (usize, u32, &[u8])> {
        let pairs = self.pairs.iter();
        pairs.flat_map(|(to, pair)| {
            pair.messages.unconfirmed().map(|(number, message)| (*to, number, message))
        })
    }

    /// Whether this rank waits for another one
    pub(super) fn is_awaited(&self) -> bool {
        self.active.is_some() || self.unconfirmed().next().is_some()
    }
}
