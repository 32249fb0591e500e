//! The clock of a fabric and its scheduled events

use std::cmp::Ordering;
use std::collections::{BinaryHeap, VecDeque};

use rdma_core::Time;

/// The time, the events to come, and how far time may advance
///
/// Events are ordered by time and, at the same time, by when they were added. Most events are added about in the order of their
/// times: they join a line, at its end or a few places before, and only the others enter a heap.
#[derive(Debug)]
pub(crate) struct Schedule<E> {
    now: Time,
    limit: Time,
    line: VecDeque<Entry<E>>,
    heap: BinaryHeap<Entry<E>>,
    next_seq: u64,
}

/// Most places that an event moves forward in the line
const MOST_MOVES: usize = 8;
/// Events that are farther off do not join the line: most others would come before them
const NEAR_NS: u64 = 100_000;
/// Most events of one instant of which any may be next; the others follow
const MOST_TIES: usize = 16;

#[derive(Debug)]
struct Entry<E> {
    at: Time,
    seq: u64,
    event: E,
}

impl<E> Schedule<E> {
    pub(super) fn new() -> Self {
        Self {
            now: Time::ZERO,
            limit: Time::ZERO,
            line: VecDeque::new(),
            heap: BinaryHeap::new(),
            next_seq: 0,
        }
    }

    /// The virtual time
    #[inline]
    pub(crate) fn now(&self) -> Time {
        self.now
    }

    /// When the next event is due
    #[inline]
    pub(crate) fn next(&self) -> Option<Time> {
        match (self.line.front(), self.heap.peek()) {
            (Some(first), None) | (None, Some(first)) => Some(first.at),
            (Some(first), Some(other)) => Some(first.at.min(other.at)),
            (None, None) => None,
        }
    }

    #[inline]
    pub(super) fn add(&mut self, at: Time, event: E) {
        let entry = Entry { at, seq: self.next_seq, event };
        self.next_seq += 1;
        let mut place = self.line.len();
        // At the same time, the event that was added earlier comes first.
        while place > 0 && self.line[place - 1].at > at {
            place -= 1;
            if self.line.len() - place > MOST_MOVES {
                return self.heap.push(entry);
            }
        }
        if at.as_nanos() > self.now.as_nanos().saturating_add(NEAR_NS) {
            return self.heap.push(entry);
        }
        self.line.push_back(entry);
        for moved in (place + 1..self.line.len()).rev() {
            self.line.swap(moved, moved - 1);
        }
    }

    /// Takes the next event, if it is due by `limit`
    #[inline(always)]
    fn take(&mut self, limit: Time) -> Option<Entry<E>> {
        let is_in_line = match (self.line.front(), self.heap.peek()) {
            (Some(first), Some(other)) => first.key() < other.key(),
            (first, _) => first.is_some(),
        };
        if is_in_line {
            self.line.pop_front_if(|entry| entry.at <= limit)
        } else if self.heap.peek()?.at <= limit {
            self.heap.pop()
        } else {
            None
        }
    }

    /// Adds the events that a component returned
    #[inline]
    pub(super) fn add_all(&mut self, events: impl IntoIterator<Item = (Time, E)>) {
        for (at, event) in events {
            self.add(at, event);
        }
    }

    /// Permits time to advance to `limit`
    pub(super) fn set_limit(&mut self, limit: Time) {
        debug_assert!(limit >= self.now, "time does not go back");
        self.limit = limit;
    }

    /// Permits no more than the other events of this very moment
    pub(super) fn stop(&mut self) {
        self.limit = self.now;
    }

    /// The latest time that comes before every other event and within the limit
    #[inline]
    pub(super) fn quiet_until(&self) -> Time {
        match self.next() {
            Some(next) => self.limit.min(Time::from_nanos(next.as_nanos().saturating_sub(1))),
            None => self.limit,
        }
    }

    /// Advances to the next event, if it is due within the limit
    #[inline]
    pub(super) fn pop(&mut self) -> Option<E> {
        let entry = self.take(self.limit)?;
        self.now = entry.at;
        Some(entry.event)
    }

    /// Advances to the next event, if it is due within the limit; `pick` decides between those of one instant
    pub(super) fn pop_any(&mut self, pick: impl FnOnce(&[&E]) -> usize) -> Option<E> {
        let first = self.take(self.limit)?;
        self.now = first.at;
        let Some(second) = self.take(self.now) else { return Some(first.event) };
        let mut ties = vec![first, second];
        while ties.len() < MOST_TIES
            && let Some(entry) = self.take(self.now)
        {
            ties.push(entry);
        }
        let picked = pick(&ties.iter().map(|entry| &entry.event).collect::<Vec<_>>());
        let picked = ties.remove(picked);
        ties.into_iter().rev().for_each(|entry| self.line.push_front(entry));
        Some(picked.event)
    }

    /// Takes the first event that is due now and for which `is_it` holds
    pub(super) fn take_due(&mut self, is_it: impl Fn(&E) -> bool) -> Option<E> {
        self.heap.extend(self.line.drain(..));
        let mut entries = std::mem::take(&mut self.heap).into_vec();
        let due = entries.iter().enumerate().filter(|(_, entry)| entry.at <= self.now && is_it(&entry.event));
        let position = due.min_by_key(|(_, entry)| entry.key()).map(|(position, _)| position);
        let taken = position.map(|position| entries.swap_remove(position).event);
        self.heap = entries.into();
        taken
    }

    /// The events that are due now, in no particular order but that of their times
    pub(super) fn due(&self) -> impl Iterator<Item = &E> {
        let mut due: Vec<_> =
            self.line.iter().chain(&self.heap).filter(|entry| entry.at <= self.now).collect();
        due.sort_by_key(|entry| entry.key());
        due.into_iter().map(|entry| &entry.event)
    }

    /// Advances to `time`, at which events may be due, without firing them
    pub(crate) fn wait_until(&mut self, time: Time) {
        debug_assert!(
            time >= self.now && self.next().is_none_or(|next| next >= time),
            "an event is due before"
        );
        self.now = time;
    }

    /// Advances to `time`, before which no event is due
    pub(super) fn skip_to(&mut self, time: Time) {
        debug_assert!(time >= self.now && self.next().is_none_or(|next| next > time), "an event is due");
        self.now = time;
    }
}

impl<E> Entry<E> {
    #[inline]
    fn key(&self) -> (Time, u64) {
        (self.at, self.seq)
    }
}

impl<E> Ord for Entry<E> {
    /// The heap is a max-heap: earlier is greater.
    fn cmp(&self, other: &Self) -> Ordering {
        other.key().cmp(&self.key())
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
        fn events_come_by_time_and_then_in_the_order_of_scheduling(ops in prop::collection::vec(prop::option::of(0u64..20), 0..200)) {
            let mut schedule = Schedule::new();
            schedule.set_limit(Time::MAX);
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
                        prop_assert_eq!(schedule.pop(), next.map(|(_, event)| event));
                    }
                }
            }
        }
    }
}
