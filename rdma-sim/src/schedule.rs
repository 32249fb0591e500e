use std::cmp::Ordering;
use std::collections::BinaryHeap;

use rdma_core::Time;

/// What will happen when, in order of time and, at the same time, of scheduling
#[derive(Debug)]
pub(crate) struct Schedule<E> {
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
        Self { heap: BinaryHeap::with_capacity(1024), next_seq: 0 }
    }

    pub(crate) fn add(&mut self, at: Time, event: E) {
        self.heap.push(Entry { at, seq: self.next_seq, event });
        self.next_seq += 1;
    }

    /// When the next event is due
    pub(crate) fn next(&self) -> Option<Time> {
        self.heap.peek().map(|entry| entry.at)
    }

    /// The next event, if it is due by `limit`
    pub(crate) fn pop_by(&mut self, limit: Time) -> Option<(Time, E)> {
        if self.next()? > limit {
            return None;
        }
        self.heap.pop().map(|entry| (entry.at, entry.event))
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
