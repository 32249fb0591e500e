//! State of the messages between two ranks that send and receive alone

use std::collections::BTreeMap;

use super::numbered::Numbered;
use super::retry::Retry;

/// Messages between this rank and others, each of which sends and receives with it alone
pub(super) struct Pairs {
    /// By rank
    pub(super) pairs: BTreeMap<usize, Pair>,
    /// The rank with which a call is under way
    pub(super) active: Option<usize>,
    /// The message that says why the group is over here
    pub(super) over: Option<Box<[u8]>>,
    pub(super) retry: Retry,
}

/// Messages between this rank and another one, in both directions
#[derive(Default)]
pub(super) struct Pair {
    pub(super) messages: Numbered,
    /// How many calls with the other rank this one has begun
    pub(super) calls: u32,
    /// Whether the end of the group here was sent to the other rank
    pub(super) is_refused: bool,
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
