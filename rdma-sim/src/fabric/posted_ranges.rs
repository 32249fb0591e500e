//! Which bytes of a region posted requests name

use super::ids::Span;

/// The bytes of a region that posted requests name, as runs in order that do not overlap
///
/// Each byte of a run is named by as many requests as the others. Runs that touch differ in that, so a window of receives is one run.
/// Bytes that no request names are in no run.
#[derive(Debug, Default)]
pub(super) struct PostedRanges {
    runs: Vec<Run>,
    requests: usize,
}

#[derive(Clone, Copy, Debug)]
struct Run {
    start: usize,
    end: usize,
    /// How many requests the device reads for
    reads: u32,
    /// How many requests the device writes for
    fills: u32,
}

impl Run {
    fn count(&mut self, fills: bool) -> &mut u32 {
        if fills { &mut self.fills } else { &mut self.reads }
    }
}

impl PostedRanges {
    /// Whether no request names memory of the region, not even none of its bytes
    pub(super) fn is_empty(&self) -> bool {
        self.requests == 0
    }

    /// Adds the range of a request, into which the device writes if it `fills`; returns whether it overlaps another range, and the device
    /// writes into one of the two
    pub(super) fn add(&mut self, span: Span, fills: bool) -> bool {
        let (mut start, end) = (span.offset, span.offset + span.len);
        let first = self.first_beyond(start);
        let (mut at, mut clashes) = (first, false);
        self.requests += 1;
        while start < end {
            match self.runs.get(at) {
                Some(run) if run.start <= start => {
                    at += self.split(at, start);
                    self.split(at, end);
                }
                next => {
                    let end = next.map_or(end, |next| next.start.min(end));
                    self.runs.insert(at, Run { start, end, reads: 0, fills: 0 });
                }
            }
            let run = &mut self.runs[at];
            clashes |= run.fills > 0 || fills && run.reads > 0;
            *run.count(fills) += 1;
            start = run.end;
            at += 1;
        }
        self.join(first, at);
        clashes
    }

    /// Removes a range that was added
    pub(super) fn remove(&mut self, span: Span, fills: bool) {
        let (mut start, end) = (span.offset, span.offset + span.len);
        let first = self.first_beyond(start);
        let mut at = first;
        self.requests -= 1;
        while start < end {
            at += self.split(at, start);
            self.split(at, end);
            let run = &mut self.runs[at];
            start = run.end;
            *run.count(fills) -= 1;
            if run.reads + run.fills == 0 {
                self.runs.remove(at);
            } else {
                at += 1;
            }
        }
        self.join(first, at);
    }

    /// The first run that ends beyond `offset`
    fn first_beyond(&self, offset: usize) -> usize {
        self.runs.partition_point(|run| run.end <= offset)
    }

    /// Joins equal runs that touch, from the one before `first` to the one at `last`
    fn join(&mut self, first: usize, last: usize) {
        let mut at = last.min(self.runs.len().saturating_sub(1));
        while at >= first.max(1) {
            let (before, run) = (self.runs[at - 1], self.runs[at]);
            if before.end == run.start && before.reads == run.reads && before.fills == run.fills {
                self.runs[at - 1].end = run.end;
                self.runs.remove(at);
            }
            at -= 1;
        }
    }

    /// Splits the run at `at` at `offset`, if that is inside of it; returns how many runs are new
    fn split(&mut self, at: usize, offset: usize) -> usize {
        let run = &mut self.runs[at];
        if offset <= run.start || offset >= run.end {
            return 0;
        }
        let before = Run { end: offset, ..*run };
        run.start = offset;
        self.runs.insert(at, before);
        1
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::fabric::ids::RegionKey;

    fn span(offset: usize, len: usize) -> Span {
        Span { region: RegionKey::default(), offset, len }
    }

    proptest! {
        /// Against a comparison with every other range; catches that ranges which are only read count as clashing.
        #[test]
        fn a_range_clashes_with_one_that_it_overlaps_unless_both_are_only_read(
            ops in prop::collection::vec((0usize..40, 0usize..12, any::<bool>(), 0u8..3), 1..60),
        ) {
            let mut ranges = PostedRanges::default();
            let mut posts: Vec<(Span, bool)> = Vec::new();
            for (offset, len, fills, op) in ops {
                if op == 0 && !posts.is_empty() {
                    let (span, fills) = posts.swap_remove(offset % posts.len());
                    ranges.remove(span, fills);
                } else {
                    let clashes = |(span, other): &(Span, bool)| {
                        let starts = span.offset.max(offset);
                        let ends = (span.offset + span.len).min(offset + len);
                        (fills || *other) && starts < ends
                    };
                    prop_assert_eq!(ranges.add(span(offset, len), fills), posts.iter().any(clashes));
                    posts.push((span(offset, len), fills));
                }
                prop_assert_eq!(ranges.is_empty(), posts.is_empty());
                prop_assert_eq!(ranges.runs.is_empty(), posts.iter().all(|(span, _)| span.len == 0));
                let is_joined = |one: &Run, next: &Run| {
                    one.end < next.start || one.end == next.start && (one.reads, one.fills) != (next.reads, next.fills)
                };
                prop_assert!(ranges.runs.is_sorted_by(is_joined));
            }
        }
    }
}
