//! What a rank and a neighbour still have to do for each other in an operation

use std::ops::Range;

use super::plans::Prepared;

/// The most messages of the operation that is likely to follow for which any is expected
///
/// An operation with more messages takes hundreds of µs; expecting its first messages saves 12 µs, and a wrong guess costs more than that.
const MOST_FORESEEN: usize = 32;

/// A neighbour in an operation
#[derive(Default)]
pub(crate) struct Neighbour {
    /// Indices of what goes to it
    pub(crate) outs: Vec<usize>,
    /// Blocks that it still has to send
    pub(crate) expected: u32,
    /// The length of the messages with them, if it is the same for all
    len: Option<usize>,
    /// Whether the first message of the neighbour has a block
    is_at_once: bool,
    /// Whether the first message to the neighbour has a block
    pub(crate) goes_at_once: bool,
    /// Whether it has said that it has begun the operation
    pub(crate) has_begun: bool,
    /// Whether this rank has announced to it that the operation has begun here
    pub(crate) is_announced: bool,
    /// Messages that were to come when they were expected last
    asked: Option<u32>,
}

impl Neighbour {
    /// The neighbour `rank` at the beginning of an operation; a plan that has no cable to it needs nothing of it
    pub(crate) fn new(rank: usize, is_cabled: bool, prepared: &Prepared) -> Self {
        let mut new = Self { has_begun: !is_cabled, is_announced: !is_cabled, ..Self::default() };
        for from in prepared.schedule.ins.iter().filter(|from| from.from == rank) {
            let len = prepared.blocks.message(from.len);
            new.len = if new.expected == 0 { len } else { new.len.filter(|_| new.len == len) };
            new.expected += prepared.blocks.count(from.len);
            new.is_at_once |= from.is_at_once;
        }
        for (number, to) in prepared.schedule.outs.iter().enumerate().filter(|(_, to)| to.to == rank) {
            new.outs.push(number);
            new.goes_at_once |= to.feed.is_at_once();
        }
        new
    }

    /// Whether messages of this operation are still to come
    pub(crate) fn is_awaited(&self) -> bool {
        self.awaited() > 0
    }

    /// Messages of this operation that are still to come
    fn awaited(&self) -> u32 {
        self.expected + self.begins()
    }

    /// Messages that only say that it has begun, because it has no block yet
    fn begins(&self) -> u32 {
        u32::from(!self.has_begun && (!self.is_at_once || self.expected == 0))
    }

    /// The length of the messages that are still to come, and their places, if that is certain
    fn places(&self) -> Option<(usize, Range<u32>)> {
        Some((self.len?, self.begins()..self.awaited()))
    }

    /// Which messages to expect of it, in this operation and at the beginning of the one that is likely to follow; each time that one has come
    pub(crate) fn next_to_expect(
        &mut self,
        following: Option<&Self>,
    ) -> impl Iterator<Item = (usize, Range<u32>)> {
        let awaited = self.awaited();
        let is_news = self.asked.replace(awaited) != Some(awaited);
        let following = following
            .and_then(Self::places)
            .filter(|(_, places)| places.len() <= MOST_FORESEEN)
            .map(|(len, places)| (len, places.start + awaited..places.end + awaited));
        self.places().into_iter().chain(following).filter(move |_| is_news)
    }
}
