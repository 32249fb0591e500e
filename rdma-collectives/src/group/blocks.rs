//! How a part of a vector is divided into blocks

use rdma_async::{FRAGMENT, MAX_EAGER};

use super::wire::Header;
use crate::predict::Forecast;

/// A way of messages over a session, as measured over simulated sessions
#[derive(Clone, Copy)]
struct Lane {
    /// How much longer bytes take than the cable alone needs for them, with both directions busy
    stretch: f64,
    /// The time of a block beside that of its bytes, in seconds, without and with blocks of other trees on its cables
    block: [f64; 2],
    /// How often a message crosses the cable until it has arrived
    crossings: f64,
    /// The part of the time in which blocks fill the trees that delays others, without and with blocks of other trees on their cables
    fill: [f64; 2],
    /// The shortest and the longest message, in bytes
    range: [usize; 2],
}

const EAGER: Lane =
    Lane { stretch: 1.29, block: [0.2e-6, 0.3e-6], crossings: 1.0, fill: [1.0; 2], range: [1, MAX_EAGER] };
/// A message is announced, and memory for it granted, before it is sent; where messages have the same length, most are granted ahead,
/// those at the beginning of an operation that was likely to follow while the one before was under way.
const BULK: Lane = Lane {
    stretch: 1.012,
    block: [0.4e-6, 1.4e-6],
    crossings: 1.5,
    fill: [1.0, 0.3],
    range: [MAX_EAGER + 1, usize::MAX],
};
/// The bulk lane where messages differ in their lengths, so that none are granted ahead
const APART: Lane = Lane { crossings: 3.0, fill: [1.0, 0.6], ..BULK };
/// How many numbers of blocks are tried, at least: with a few more, parts of different lengths may have whole numbers of them.
const MIN_TRIED: usize = 16;
/// No more numbers of blocks are tried, however long a part is said to be.
const MAX_TRIED: usize = 1024;

impl Lane {
    /// The time of an operation with the best number of blocks for a part of `len` bytes, and that number
    fn best(&self, len: usize, forecast: &Forecast, payload: f64) -> Option<(f64, u64)> {
        let [fewest, most] = self.counts(len);
        let [fill, block] = self.costs(forecast);
        let blocks = (fill * self.transfer(forecast, payload) / block).sqrt().round();
        // The cast saturates, also from infinity.
        let blocks = (blocks as u64).min(most).max(fewest);
        (blocks <= most.max(1)).then(|| (self.seconds(blocks, forecast, payload), blocks))
    }

    /// The fewest and the most blocks of a part of `len` bytes
    fn counts(&self, len: usize) -> [u64; 2] {
        let [shortest, longest] = self.range.map(|message| message.saturating_sub(Header::LEN).max(1));
        [len.div_ceil(longest).max(1) as u64, (len / shortest) as u64]
    }

    /// How many blocks pass before the first one is at the end, as far as they delay others, and the time of a block beside that of its bytes
    fn costs(&self, forecast: &Forecast) -> [f64; 2] {
        let which = usize::from(forecast.is_shared);
        [forecast.fill * self.fill[which], self.block[which]]
    }

    fn transfer(&self, forecast: &Forecast, payload: f64) -> f64 {
        payload * forecast.time * self.stretch
    }

    /// The time of an operation with so many blocks
    fn seconds(&self, blocks: u64, forecast: &Forecast, payload: f64) -> f64 {
        let ([fill, block], blocks) = (self.costs(forecast), blocks as f64);
        forecast.latency * self.crossings
            + (fill + blocks) * (self.transfer(forecast, payload) / blocks + block)
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
    /// The length of all messages, if it is one
    common: Option<usize>,
}

impl Blocks {
    /// The blocks with which an operation takes the least time, for parts of these lengths
    pub(crate) fn best(
        lens: &[usize],
        forecast: &Forecast,
        payload: u64,
        message: usize,
        size: usize,
    ) -> Self {
        let (longest, payload) = (lens.iter().copied().max().unwrap_or(0), payload as f64);
        let is_even = lens.iter().all(|len| longest - len < UNIT);
        let lanes = [EAGER, if is_even { BULK } else { APART }];
        let best = lanes.iter().filter_map(|lane| lane.best(longest, forecast, payload));
        let best = best.min_by(|(one, _), (other, _)| one.total_cmp(other));
        let of_one_length = Self::of_one_length(lens, forecast, payload, message, size);
        match (best, of_one_length) {
            (Some((seconds, _)), Some((shorter, blocks))) if shorter < seconds => blocks,
            _ => Self::new(longest, best.map_or(1, |(_, blocks)| blocks), message, size),
        }
    }

    /// The best blocks for the bulk lane if each message is padded to one common length, and the time of an operation with these blocks
    fn of_one_length(
        lens: &[usize],
        forecast: &Forecast,
        payload: f64,
        message: usize,
        size: usize,
    ) -> Option<(f64, Self)> {
        let len = lens.iter().copied().max()?;
        let (_, best) = BULK.best(len, forecast, payload)?;
        let [_, most] = BULK.counts(len);
        let all = lens.iter().fold(0_usize, |sum, len| sum.saturating_add(*len));
        let of_count = |count: u64| {
            let longest = (len / size).div_ceil(count as usize) * size;
            if longest > message {
                return None;
            }
            let common = Header::LEN + (longest + LEAST).next_multiple_of(UNIT);
            let padded = |len: &usize| len.div_ceil(longest).saturating_mul(longest);
            let sent = lens.iter().map(padded).fold(0, usize::saturating_add);
            let seconds = BULK.seconds(count, forecast, payload * sent as f64 / all as f64);
            let is_possible = (MAX_EAGER + 1..=message).contains(&common);
            is_possible.then_some((seconds, Self { longest, size, common: Some(common) }))
        };
        let fewest = (len as u64).div_ceil(message as u64).max(best / 2).max(1);
        let counts = (fewest..=most).take((best as usize).clamp(MIN_TRIED, MAX_TRIED));
        counts.filter_map(of_count).min_by(|(one, _), (other, _)| one.total_cmp(other))
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
        Self { longest: (longest - Header::LEN) / size * size, size, common: None }
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
        if self.common.is_some() {
            return self.common;
        }
        let count = self.count(len).max(1) as usize;
        let longest = (len / self.size).div_ceil(count) * self.size;
        let message = Header::LEN + (longest + LEAST).next_multiple_of(UNIT);
        (self.longest + Header::LEN > MAX_EAGER && message > MAX_EAGER).then_some(message)
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
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

    /// Catches messages of different lengths where the shares of the trees differ: a rank would expect none of these messages.
    #[test]
    fn messages_of_different_parts_have_one_length() {
        // Time over a cable of 80 Gb/s, and the trees of a prism.
        let forecast =
            Forecast { latency: 3e-5, fill: 4.0, time: 7e-11, is_shared: true, reach: 6e-6, bound: 7e-11 };
        for shares in [&[1, 2, 2][..], &[8, 3, 6, 2, 7, 3, 13, 8, 4], &[5, 7, 11]] {
            let all: usize = shares.iter().sum();
            for payload in [4 << 20, 16 << 20, 64 << 20] {
                let lens = shares.iter().map(|share| payload / 4 / all * share * 4).collect::<Vec<_>>();
                let blocks = Blocks::best(&lens, &forecast, payload as u64, 256 << 10, 4);
                let messages = lens.iter().map(|len| blocks.message(*len)).collect::<Vec<_>>();
                assert!(
                    messages[0].is_some() && messages.iter().all(|message| *message == messages[0]),
                    "{messages:?}"
                );
                let sent = |len: &usize| blocks.count(*len) as usize * messages[0].unwrap();
                let sent: usize = lens.iter().map(sent).sum();
                assert!(sent as f64 <= 1.1 * payload as f64, "{shares:?} of {payload}: {sent} in {blocks:?}");
            }
        }
    }

    /// Blocks follow each other without a gap, hold whole elements, and fit into messages: catches a range that is off by one.
    fn cover_a_part(blocks: &Blocks, len: usize, message: usize, size: usize) -> Result<(), TestCaseError> {
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
        Ok(())
    }

    proptest! {
        #[test]
        fn blocks_cover_a_part(
            len in 0..1_000_000_usize, best in 0..400_u64, message in 1..200_usize, size in 0..4_u32,
        ) {
            let (size, message) = (1_usize << size, message * FRAME);
            let blocks = Blocks::new(len * size, best, message, size);
            cover_a_part(&blocks, len * size, message, size)?;
        }

        #[test]
        fn the_best_blocks_cover_each_part(
            lens in vec(0..3_000_000_usize, 1..10), hops in 0..9_u8, is_shared: bool, message in 1..200_usize,
            size in 0..4_u32,
        ) {
            let (size, message) = (1_usize << size, message * FRAME);
            let lens = lens.into_iter().map(|len| len * size).collect::<Vec<_>>();
            let (latency, fill) = (f64::from(hops) * 6e-6, f64::from(hops));
            let forecast = Forecast { latency, fill, time: 1e-10, is_shared, reach: latency, bound: 1e-10 };
            let blocks = Blocks::best(&lens, &forecast, lens.iter().sum::<usize>() as u64, message, size);
            for len in lens {
                cover_a_part(&blocks, len, message, size)?;
            }
        }
    }
}
