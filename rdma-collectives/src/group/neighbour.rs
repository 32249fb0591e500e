//! What a rank and a neighbour still have to do for each other in an operation

/// A neighbour in an operation
#[derive(Default)]
pub(crate) struct Neighbour {
    /// Indices of what goes to it
    pub(crate) outs: Vec<usize>,
    /// Blocks that it still has to send
    pub(crate) expected: u32,
    /// The length of the messages with them, if it is the same for all
    len: Option<usize>,
    /// Whether a block comes first
    is_at_once: bool,
    /// Whether it has said that it has begun the operation
    pub(crate) has_begun: bool,
    /// Whether this rank has told it
    pub(crate) is_told: bool,
}

impl Neighbour {
    /// Notes that `count` blocks come, in messages of `len` bytes if that is known
    pub(crate) fn expect(&mut self, len: Option<usize>, count: u32, is_at_once: bool) {
        self.len = if self.expected == 0 { len } else { self.len.filter(|_| self.len == len) };
        self.expected += count;
        self.is_at_once |= is_at_once;
    }

    /// The length of its next messages, if that is certain
    ///
    /// A neighbour that has no block yet says first that it has begun.
    pub(crate) fn len_of_next(&self) -> Option<usize> {
        self.len.filter(|_| self.has_begun || self.is_at_once)
    }

    /// Whether messages of this operation are still to come
    pub(crate) fn is_awaited(&self) -> bool {
        !self.has_begun || self.expected > 0
    }
}
