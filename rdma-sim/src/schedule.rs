use std::cmp::Ordering;
use std::collections::BinaryHeap;

use rdma_core::Time;

/// What will happen when, in order of time and, at the same time, of scheduling
///
/// The earliest event is kept apart: on a quiet fabric each event causes the next, which then never enters the heap.
#[derive(Debug)]
pub(crate) struct Schedule<E> {
    first: Option<Entry<E>>,
    heap: BinaryHeap<Entry<E>>,
    next_seq: u64,
}

#[derive(Debug)]
struct Entry<E> {
    at: Time,
    seq: u64,
    event: E,
}

impl<E> Schedule<E> {
    pub(crate) fn new() -> Self {
        Self { first: None, heap: BinaryHeap::with_capacity(1024), next_seq: 0 }
    }

    #[inline]
    pub(crate) fn add(&mut self, at: Time, event: E) {
        let seq = self.next_seq;
        self.next_seq += 1;
        // At the same time, whatever was there before comes first.
        if self.next().is_none_or(|earliest| at < earliest) {
            if let Some(second) = self.first.take() {
                self.heap.push(second);
            }
            self.first = Some(Entry { at, seq, event });
        } else {
            self.heap.push(Entry { at, seq, event });
        }
    }

    /// When the next event is due
    #[inline]
    pub(crate) fn next(&self) -> Option<Time> {
        self.first.as_ref().or_else(|| self.heap.peek()).map(|entry| entry.at)
    }

    /// The next event, if it is due by `limit`
    #[inline]
    pub(crate) fn pop_by(&mut self, limit: Time) -> Option<(Time, E)> {
        if self.next()? > limit {
            return None;
        }
        self.first.take().or_else(|| self.heap.pop()).map(|entry| (entry.at, entry.event))
    }
}

impl<E> Ord for Entry<E> {
    /// The heap is a max-heap: earlier is greater.
    fn cmp(&self, other: &Self) -> Ordering {
        (other.at, other.seq).cmp(&(self.at, self.seq))
    }
}

impl<E> PartialOrd for Entry<E> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<E> PartialEq for Entry<E> {
    fn eq(&self, other: &Self) -> bool {
        self.seq == other.seq
    }
}

impl<E> Eq for Entry<E> {}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Against a stable sort.
        #[test]
        fn events_come_by_time_and_then_by_turn(ops in prop::collection::vec(prop::option::of(0u64..20), 0..200)) {
            let mut schedule = Schedule::new();
            let mut expected: Vec<(u64, usize)> = Vec::new();
            for (number, op) in ops.into_iter().enumerate() {
                match op {
                    Some(at) => {
                        schedule.add(Time::from_nanos(at), number);
                        let position = expected.partition_point(|(other, _)| *other <= at);
                        expected.insert(position, (at, number));
                    }
                    None => {
                        let next = (!expected.is_empty()).then(|| expected.remove(0));
                        prop_assert_eq!(schedule.next().map(Time::as_nanos), next.map(|(at, _)| at));
                        let popped = schedule.pop_by(Time::MAX).map(|(at, event)| (at.as_nanos(), event));
                        prop_assert_eq!(popped, next);
                    }
                }
            }
        }
    }
}
