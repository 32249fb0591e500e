//! How a part of a vector is divided into blocks

use rdma_async::{FRAGMENT, MAX_EAGER};

use super::wire::Header;
use crate::predict::Forecast;

/// A way of messages over a session, as measured over simulated sessions
struct Lane {
    /// How much longer bytes take than the cable alone needs for them, with both directions busy
    stretch: f64,
    /// The time of a block beside that of its bytes, in seconds, among the blocks of other trees
    block: f64,
    /// How often a message crosses the cable until it has arrived
    crossings: f64,
    /// The part of the time in which blocks fill the trees that delays the others
    fill: f64,
    /// The shortest and the longest message, in bytes
    range: [usize; 2],
}

const EAGER: Lane = Lane { stretch: 1.29, block: 0.3e-6, crossings: 1.0, fill: 1.0, range: [1, MAX_EAGER] };
/// A message is announced, and memory for it granted, before it is sent; where messages have the same length, most are granted ahead,
/// those at the beginning of an operation when another one is over that it has followed before.
const BULK: Lane =
    Lane { stretch: 1.012, block: 1.4e-6, crossings: 1.5, fill: 0.3, range: [MAX_EAGER + 1, usize::MAX] };

impl Lane {
    /// The time of an operation with the best number of blocks for a part of `len` bytes, and that number
    fn best(&self, len: usize, forecast: &Forecast, payload: u64) -> Option<(f64, u64)> {
        let Forecast { latency, time, .. } = forecast;
        let fill = forecast.fill * self.fill;
        let [shortest, longest] = self.range.map(|message| message.saturating_sub(Header::LEN).max(1));
        let fewest = len.div_ceil(longest).max(1) as u64;
        let most = (len / shortest) as u64;
        let transfer = payload as f64 * time * self.stretch;
        let blocks = (fill * transfer / self.block).sqrt().round();
        // The cast saturates, also from infinity.
        let blocks = (blocks as u64).min(most).max(fewest);
        let seconds =
            latency * self.crossings + (fill + blocks as f64) * (transfer / blocks as f64 + self.block);
        (blocks <= most.max(1)).then_some((seconds, blocks))
    }
}

/// The bytes behind the header of a message with a long block are a multiple of this, [`LEAST`] or more of them behind the block: so the
/// messages of an operation mostly have the same length, although blocks and parts differ by a few elements.
const UNIT: usize = 64;
/// No multiple of [`UNIT`], because the lengths of blocks often are.
const LEAST: usize = 24;

/// The lengths of blocks, in bytes: the same on all ranks
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Blocks {
    /// The most bytes of a block
    longest: usize,
    /// The length of an element
    size: usize,
}

impl Blocks {
    /// The blocks with which an operation takes the least time, whose longest part has `len` bytes
    pub(crate) fn best(len: usize, forecast: &Forecast, payload: u64, message: usize, size: usize) -> Self {
        let lanes = [EAGER, BULK].iter().filter_map(|lane| lane.best(len, forecast, payload));
        let best = lanes.min_by(|(one, _), (other, _)| one.total_cmp(other));
        Self::new(len, best.map_or(1, |(_, blocks)| blocks), message, size)
    }

    /// Blocks of elements of `size` bytes, in messages of at most `message` bytes, for a part of `len` bytes of which so many are best
    pub(crate) fn new(len: usize, best: u64, message: usize, size: usize) -> Self {
        let even = len.div_ceil(usize::try_from(best.max(1)).unwrap_or(usize::MAX));
        let even = even.saturating_add(Header::LEN);
        let longest = if even <= MAX_EAGER {
            // Whole packets of the eager lane, with the header.
            even.next_multiple_of(FRAGMENT).min(message)
        } else {
            even.saturating_add(size).min(message - LEAST - UNIT)
        };
        Self { longest: (longest - Header::LEN) / size * size, size }
    }

    /// The most bytes of a block
    pub(crate) fn longest(&self) -> usize {
        self.longest
    }

    /// How many blocks a part of `len` bytes has
    pub(crate) fn count(&self, len: usize) -> u32 {
        len.div_ceil(self.longest) as u32
    }

    /// Where a block of a part of `len` bytes begins, and how long it is
    pub(crate) fn range(&self, number: u32, len: usize) -> [usize; 2] {
        let number = number as usize;
        if self.message(len).is_none() {
            let start = number * self.longest;
            return [start, self.longest.min(len - start)];
        }
        let (elements, count) = (len / self.size, self.count(len) as usize);
        let (each, longer) = (elements / count, elements % count);
        let start = number * each + number.min(longer);
        [start * self.size, (each + usize::from(number < longer)) * self.size]
    }

    /// The length of each message with a block of a part of `len` bytes, if they are long enough for the bulk lane
    pub(crate) fn message(&self, len: usize) -> Option<usize> {
        let count = self.count(len).max(1) as usize;
        let longest = (len / self.size).div_ceil(count) * self.size;
        let message = Header::LEN + (longest + LEAST).next_multiple_of(UNIT);
        (self.longest + Header::LEN > MAX_EAGER && message > MAX_EAGER).then_some(message)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rdma_async::FRAME;

    use super::*;

    /// Catches parts of nearly the same length whose messages differ, so that none of them would be expected.
    #[test]
    fn messages_of_nearly_equal_parts_have_one_length() {
        for size in [1, 2, 4, 8] {
            let part = (1 << 20) / 3 / size * size;
            let lens = [part, part + size, part + 2 * size]
                .map(|len| Blocks::new(part, 4, 1 << 18, size).message(len));
            assert!(lens[0].is_some() && lens.iter().all(|len| *len == lens[0]), "{lens:?}");
        }
    }

    proptest! {
        /// Blocks follow each other without a gap, hold whole elements, and fit into messages: catches a range that is off by one.
        #[test]
        fn blocks_cover_a_part(
            len in 0..1_000_000_usize, best in 0..400_u64, message in 1..200_usize, size in 0..4_u32,
        ) {
            let (size, message) = (1_usize << size, message * FRAME);
            let len = len * size;
            let blocks = Blocks::new(len, best, message, size);
            let mut end = 0;
            for number in 0..blocks.count(len) {
                let [start, block] = blocks.range(number, len);
                prop_assert_eq!((start, block % size), (end, 0));
                prop_assert!((1..=blocks.longest()).contains(&block));
                let sent = blocks.message(len).unwrap_or(Header::LEN + block);
                prop_assert!((Header::LEN + block..=message).contains(&sent));
                end += block;
            }
            prop_assert_eq!(end, len);
        }
    }
}
