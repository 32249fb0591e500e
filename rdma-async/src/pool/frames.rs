//! Which frames of a zone are free

use std::ops::Range;

/// A bitmap of frames, allocated in runs
///
/// Single frames come from the low end and longer runs from the high end, so that small leases do not cut the space for
/// large ones to pieces.
#[derive(Debug)]
pub(crate) struct Frames {
    /// One bit per frame, set when taken; bits past the end are set.
    words: Box<[u64]>,
    free: u32,
    /// No word before this one has a free bit.
    first_free_word: usize,
    /// No single frame was ever taken from here on.
    singles: u32,
    /// No longer run was ever taken before it.
    runs: u32,
}

impl Frames {
    /// `len` free frames
    pub(crate) fn new(len: u32) -> Self {
        let mut words = vec![0; (len as usize).div_ceil(64)].into_boxed_slice();
        if let (Some(last), 1..) = (words.last_mut(), len % 64) {
            *last = u64::MAX << (len % 64);
        }
        Self { words, free: len, first_free_word: 0, singles: 0, runs: len }
    }

    pub(crate) fn free(&self) -> u32 {
        self.free
    }

    /// Where frames may ever have been taken
    pub(crate) fn ever_taken(&self, len: u32) -> [Range<u32>; 2] {
        [0..self.singles.min(self.runs), self.runs..len]
    }

    /// Takes a run of `n` frames; where it starts
    pub(crate) fn take(&mut self, n: u32) -> Option<u32> {
        if n == 0 || n > self.free {
            return None;
        }
        let start = if n == 1 { self.lowest()? } else { self.highest_run(n)? };
        self.mark(start, n);
        Some(start)
    }

    /// As [`take`](Self::take), among the first `end` frames, if `left` more of these stay free
    pub(crate) fn take_below(&mut self, end: u32, n: u32, left: u32) -> Option<u32> {
        let mut free = end;
        for_words(0, end, |word, mask| free -= (self.words[word] & mask).count_ones());
        if n == 0 || free < n.saturating_add(left) {
            return None;
        }
        let start = if n == 1 { self.lowest()? } else { self.highest_run_below(end, n)? };
        self.mark(start, n);
        Some(start)
    }

    /// As [`take`](Self::take), from frame `begin` on, if a run of `reserve` frames stays free there
    pub(crate) fn take_leaving(&mut self, begin: u32, n: u32, reserve: u32) -> Option<u32> {
        if self.free < n.saturating_add(reserve) {
            return None;
        }
        let start = self.take(n)?;
        let is_left = start >= begin && (reserve == 0 || self.highest_run(reserve) >= Some(begin));
        if !is_left {
            self.give(start, n);
        }
        is_left.then_some(start)
    }

    /// How many frames are free from frame `begin` on
    pub(crate) fn free_from(&self, begin: u32) -> u32 {
        let mut free = self.free;
        for_words(0, begin, |word, mask| free -= (!self.words[word] & mask).count_ones());
        free
    }

    /// Takes the run of `n` frames at `start`, if it is free and inside
    pub(crate) fn take_at(&mut self, start: u32, n: u32) -> bool {
        let end = start.checked_add(n).filter(|end| n > 0 && (*end as usize) <= self.words.len() * 64);
        if end.is_none() {
            return false;
        }
        let mut is_free = true;
        for_words(start, n, |word, mask| is_free &= self.words[word] & mask == 0);
        if is_free {
            self.mark(start, n);
        }
        is_free
    }

    /// Marks a free run as taken
    fn mark(&mut self, start: u32, n: u32) {
        for_words(start, n, |word, mask| self.words[word] |= mask);
        self.free -= n;
        if n == 1 {
            self.singles = self.singles.max(start + 1);
        } else {
            self.runs = self.runs.min(start);
        }
    }

    /// Gives a run back
    pub(crate) fn give(&mut self, start: u32, n: u32) {
        for_words(start, n, |word, mask| {
            debug_assert_eq!(self.words[word] & mask, mask, "a frame was given back twice");
            self.words[word] &= !mask;
        });
        self.free += n;
        self.first_free_word = self.first_free_word.min(start as usize / 64);
    }

    fn lowest(&mut self) -> Option<u32> {
        let from = self.first_free_word;
        let word = from + self.words[from..].iter().position(|word| *word != u64::MAX)?;
        self.first_free_word = word;
        Some(word as u32 * 64 + self.words[word].trailing_ones())
    }

    /// The free run of `n` frames that ends highest
    fn highest_run(&self, n: u32) -> Option<u32> {
        self.highest_run_below(self.words.len() as u32 * 64, n)
    }

    /// The free run of `n` of the first `end` frames that ends highest
    fn highest_run_below(&self, end: u32, n: u32) -> Option<u32> {
        let mut run = 0;
        for (index, &word) in self.words.iter().enumerate().take(end.div_ceil(64) as usize).rev() {
            let beyond = end - (index as u32 * 64);
            let word = if beyond < 64 { word | u64::MAX << beyond } else { word };
            if word == u64::MAX {
                run = 0;
                continue;
            }
            if word == 0 {
                run += 64;
                if run >= n {
                    return Some(index as u32 * 64 + (run - n));
                }
                continue;
            }
            for bit in (0..64).rev() {
                run = if word >> bit & 1 == 0 { run + 1 } else { 0 };
                if run == n {
                    return Some(index as u32 * 64 + bit);
                }
            }
        }
        None
    }
}

/// Calls `f` with each word that frames `start..start + n` touch, and the bits that they are
fn for_words(start: u32, n: u32, mut f: impl FnMut(usize, u64)) {
    let end = start + n;
    let mut at = start;
    while at < end {
        let bit = at % 64;
        let count = (64 - bit).min(end - at);
        let mask = if count == 64 { u64::MAX } else { ((1 << count) - 1) << bit };
        f(at as usize / 64, mask);
        at += count;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Against a plain vector of booleans; catches a run from another place than the documented one.
        #[test]
        fn single_frames_are_the_lowest_and_runs_the_highest_that_are_free(
            len in 1u32..300,
            ops in prop::collection::vec((prop_oneof![Just(1u32), 1u32..90], any::<bool>()), 1..200),
        ) {
            let mut frames = Frames::new(len);
            let mut taken = vec![false; len as usize];
            let mut runs = Vec::new();
            for (n, is_take) in ops {
                if is_take || runs.is_empty() {
                    let is_free = |start: &u32| !taken[*start as usize..(start + n) as usize].contains(&true);
                    let mut starts = 0..(len + 1).saturating_sub(n);
                    let expected = if n == 1 { starts.find(is_free) } else { starts.rfind(is_free) };
                    prop_assert_eq!(frames.take(n), expected);
                    if let Some(start) = expected {
                        taken[start as usize..(start + n) as usize].fill(true);
                        let is_inside = |range: Range<u32>| range.start <= start && start + n <= range.end;
                        prop_assert!(frames.ever_taken(len).into_iter().any(is_inside));
                        runs.push((start, n));
                    }
                } else {
                    let (start, n) = runs.swap_remove(n as usize % runs.len());
                    frames.give(start, n);
                    taken[start as usize..(start + n) as usize].fill(false);
                }
                let free = taken.iter().filter(|is_taken| !**is_taken).count();
                prop_assert_eq!(frames.free() as usize, free);
            }
        }
    }

    #[test]
    fn single_frames_come_from_below_and_runs_from_above() {
        let mut frames = Frames::new(100);
        assert_eq!(frames.take(1), Some(0));
        assert_eq!(frames.take(10), Some(90));
        assert_eq!(frames.take(1), Some(1));
        assert_eq!(frames.take(89), None);
        assert_eq!(frames.take(88), Some(2));
        assert_eq!(frames.free(), 0);
        frames.give(1, 1);
        assert_eq!(frames.take(1), Some(1));
    }

    /// Catches frames beyond the end, and free ones there that are counted.
    #[test]
    fn frames_below_an_end_leave_some_there() {
        let mut frames = Frames::new(200);
        assert_eq!((frames.take_below(100, 10, 90), frames.take_below(100, 1, 0)), (Some(90), Some(0)));
        assert_eq!(frames.take(5), Some(195));
        assert_eq!(frames.take_below(100, 80, 10), None, "89 are free below");
        assert_eq!(frames.take_below(100, 80, 9), Some(10));
        assert_eq!((frames.take_below(100, 5, 0), frames.take_below(100, 5, 0)), (Some(5), None));
        assert_eq!((frames.free(), frames.take(95)), (99, Some(100)));
    }

    /// Catches a reserve that is free in pieces only, and frames that are lost when it is not.
    #[test]
    fn a_reserve_stays_free_in_one_piece() {
        let mut frames = Frames::new(100);
        assert_eq!(frames.take(30), Some(70));
        assert_eq!(frames.take(10), Some(60));
        frames.give(70, 30);
        assert_eq!(frames.take_leaving(0, 20, 61), None, "60 and 30 are free");
        assert_eq!(frames.take_leaving(0, 31, 30), Some(29), "29 and 30 are left");
        frames.give(29, 31);
        assert_eq!(frames.take_leaving(0, 31, 31), None, "29 and 30 would be left");
        assert_eq!((frames.free(), frames.take_leaving(0, 30, 60)), (90, Some(70)));
        assert_eq!((frames.take_leaving(0, 1, 60), frames.take_leaving(0, 60, 0)), (None, Some(0)));
    }

    /// Catches a run, or a reserve, that begins before the first frame that may be taken, and frames that are counted on its wrong side.
    #[test]
    fn frames_before_the_first_one_stay_free() {
        let mut frames = Frames::new(200);
        assert_eq!((frames.free_from(0), frames.free_from(70), frames.free_from(200)), (200, 130, 0));
        assert_eq!((frames.take_leaving(70, 100, 31), frames.take_leaving(70, 100, 30)), (None, Some(100)));
        assert_eq!((frames.take_leaving(70, 31, 0), frames.take_leaving(70, 30, 0)), (None, Some(70)));
        assert_eq!((frames.free_from(0), frames.free_from(70), frames.take(70)), (70, 0, Some(0)));
    }

    #[test]
    fn a_run_of_no_frames_is_refused() {
        let mut frames = Frames::new(100);
        assert_eq!((frames.take(0), frames.free()), (None, 100));
    }

    /// Catches a hint that stays behind the frame that was given back.
    #[test]
    fn a_frame_that_comes_back_is_the_next_to_be_taken() {
        let mut frames = Frames::new(256);
        for frame in 0..200 {
            assert_eq!(frames.take(1), Some(frame));
        }
        for frame in [3, 64, 66, 190] {
            frames.give(frame, 1);
            assert_eq!(frames.take(1), Some(frame));
        }
        assert_eq!(frames.take(1), Some(200));
    }

    #[test]
    fn a_run_ends_as_high_as_it_can() {
        let mut frames = Frames::new(256);
        assert_eq!(frames.take(2), Some(254), "in the last word");
        assert_eq!(frames.take(70), Some(184), "over two words");
        assert_eq!(frames.take(150), Some(34), "over whole words that are free");
        frames.give(184, 70);
        frames.give(254, 2);
        assert_eq!(frames.take(35), Some(221));
        assert_eq!(frames.take(38), None, "37 frames are free in one piece, and 34 in another");
        assert_eq!(frames.take(34), Some(187));
    }
}
