//! How a part of a vector is divided into blocks

use super::options::MIN_BLOCK;
use super::wire::Header;

/// The lengths of blocks, in bytes: the same on all ranks
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Blocks {
    /// The most bytes of a block
    longest: usize,
}

impl Blocks {
    /// Blocks of elements of `size` bytes, in messages of at most `message` bytes, for a part of `len` bytes of which so many are best
    pub(crate) fn new(len: usize, best: u64, message: usize, size: usize) -> Self {
        let even = len.div_ceil(usize::try_from(best.max(1)).unwrap_or(usize::MAX));
        // Whole frames with the header.
        let even = even.saturating_add(Header::LEN).next_multiple_of(MIN_BLOCK);
        let payload = even.clamp(MIN_BLOCK, message) - Header::LEN;
        Self { longest: payload / size * size }
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
        let start = number as usize * self.longest;
        [start, self.longest.min(len - start)]
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Blocks follow each other without a gap, hold whole elements, and fit into messages: catches a range that is off by one.
        #[test]
        fn blocks_cover_a_part(
            len in 0..1_000_000_usize, best in 0..400_u64, message in 1..200_usize, size in 0..4_u32,
        ) {
            let (size, message) = (1_usize << size, message * MIN_BLOCK);
            let len = len * size;
            let blocks = Blocks::new(len, best, message, size);
            let mut end = 0;
            for number in 0..blocks.count(len) {
                let [start, block] = blocks.range(number, len);
                prop_assert_eq!((start, block % size), (end, 0));
                prop_assert!((1..=message - Header::LEN).contains(&block));
                end += block;
            }
            prop_assert_eq!(end, len);
        }
    }
}
