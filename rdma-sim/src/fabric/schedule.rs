//! The clock of a fabric and its scheduled events

use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::iter;

use rdma_core::Time;

/// The time, the events to come, and how far time may advance
///
/// Events are ordered by time and, at the same time, by when they were added. Those of the next microseconds are in buckets by their
/// time, of which only the first is in order; the others are in a heap.
#[derive(Debug)]
pub(crate) struct Schedule<E> {
    now: Time,
    limit: Time,
    /// The events of the first bucket, in order; if it is empty, so are the other buckets
    near: Vec<Entry<E>>,
    /// How many of `near` were taken
    taken: usize,
    /// The number of the first bucket
    first: u64,
    /// The buckets behind it in turn, each in the order in which its events were added
    buckets: Vec<Vec<Entry<E>>>,
    /// A bit for each of `buckets` that is not empty
    occupied: u64,
    /// The events that were too far off for the buckets
    far: BinaryHeap<Entry<E>>,
    next_seq: u64,
}

/// How many buckets there are: one for each bit of a number
const BUCKETS: u64 = 64;
/// A bucket is two to this power of nanoseconds long
const BUCKET_BITS: u32 = 7;
/// So few events are kept in order at once, without buckets
const FEW: usize = 8;
/// Places of `near` are used again when so many are empty
const MOST_TAKEN: usize = 64;
/// Most events of one instant of which any may be next; the others follow
const MOST_TIES: usize = 16;

#[derive(Clone, Copy, Debug)]
struct Entry<E> {
    at: Time,
    seq: u64,
    event: E,
}

impl<E: Copy> Schedule<E> {
    pub(super) fn new() -> Self {
        Self {
            now: Time::ZERO,
            limit: Time::ZERO,
            near: Vec::new(),
            taken: 0,
            first: 0,
            buckets: iter::repeat_with(Vec::new).take(BUCKETS as usize).collect(),
            occupied: 0,
            far: BinaryHeap::new(),
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
        match (self.near.get(self.taken), self.far.peek()) {
            (Some(first), None) | (None, Some(first)) => Some(first.at),
            (Some(first), Some(other)) => Some(first.at.min(other.at)),
            (None, None) => None,
        }
    }

    // Inlined, so that events are not copied from where they were just written: processors wait for that.
    #[inline(always)]
    pub(super) fn add(&mut self, at: Time, event: E) {
        let seq = self.next_seq;
        self.next_seq += 1;
        let entry = || Entry { at, seq, event };
        let bucket = at.as_nanos() >> BUCKET_BITS;
        let waiting = self.near.len() - self.taken;
        if bucket > self.first || waiting == 0 {
            let is_soon = bucket.saturating_sub(self.now.as_nanos() >> BUCKET_BITS) < BUCKETS;
            if self.occupied == 0 && waiting < FEW && is_soon {
                self.first = bucket;
            } else if waiting > 0 && bucket - self.first < BUCKETS {
                let position = bucket % BUCKETS;
                self.occupied |= 1 << position;
                return self.buckets[position as usize].push(entry());
            } else {
                return self.far.push(entry());
            }
        }
        // At the same time, the event that was added earlier comes first.
        match self.near[self.taken..].iter().rev().take_while(|other| other.at > at).count() {
            0 => self.near.push(entry()),
            later => {
                let first = self.near.len() - later;
                self.near.push(self.near[self.near.len() - 1]);
                if later > 1 {
                    self.near.copy_within(first..first + later - 1, first + 1);
                }
                self.near[first] = entry();
            }
        }
    }

    /// Takes the next event, if it is due by `limit`
    #[inline(always)]
    fn take(&mut self, limit: Time) -> Option<Entry<E>> {
        // An entry comes from one place: one that may come from another is copied on its way, and processors wait for that.
        if self.is_far_first(limit) {
            self.bring_near();
        }
        let first = *self.near.get(self.taken)?;
        if first.at > limit {
            return None;
        }
        self.taken += 1;
        if self.taken == self.near.len() {
            self.open_bucket();
        } else if self.taken == MOST_TAKEN {
            self.near.drain(..MOST_TAKEN);
            self.taken = 0;
        }
        Some(first)
    }

    /// Whether the next event is in the heap, and due by `limit`
    #[inline(always)]
    fn is_far_first(&self, limit: Time) -> bool {
        let near = self.near.get(self.taken);
        self.far.peek().is_some_and(|far| far.at <= limit && near.is_none_or(|near| far.key() < near.key()))
    }

    /// Puts the first event of the heap in front of all others; it is taken at once
    #[cold]
    #[inline(never)]
    fn bring_near(&mut self) {
        let first = self.far.pop();
        self.put_in_front(first);
    }

    /// Puts events in front of all others
    fn put_in_front(&mut self, entries: impl IntoIterator<Item = Entry<E>>) {
        // The place of one that was taken is free.
        let free = self.taken.saturating_sub(1);
        self.near.splice(free..self.taken, entries);
        self.taken = free;
    }

    /// Replaces the first bucket, which is empty, by the next one that is not, if there is one
    fn open_bucket(&mut self) {
        self.near.clear();
        self.taken = 0;
        if self.occupied == 0 {
            return;
        }
        let position = (self.first % BUCKETS) as u32;
        self.first += u64::from(self.occupied.rotate_right(position).trailing_zeros());
        let position = self.first % BUCKETS;
        self.occupied &= !(1 << position);
        std::mem::swap(&mut self.near, &mut self.buckets[position as usize]);
        self.near.sort_unstable_by_key(Entry::key);
    }

    /// Adds the events that a component returned
    #[inline(always)]
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
    #[inline(always)]
    pub(super) fn pop(&mut self) -> Option<E> {
        let entry = self.take(self.limit)?;
        self.now = entry.at;
        Some(entry.event)
    }

    /// Makes the event next that `pick` picks of those that are due at the next instant, if that is within the limit
    #[inline(never)]
    pub(super) fn pick_next(&mut self, pick: impl FnOnce(&[&E]) -> usize) {
        let Some(first) = self.take(self.limit) else { return };
        let Some(second) = self.take(first.at) else { return self.put_in_front([first]) };
        let mut ties = vec![first, second];
        while ties.len() < MOST_TIES
            && let Some(entry) = self.take(first.at)
        {
            ties.push(entry);
        }
        let picked = pick(&ties.iter().map(|entry| &entry.event).collect::<Vec<_>>());
        ties[..=picked].rotate_right(1);
        self.put_in_front(ties);
    }

    /// Takes the first event that is due now and for which `is_it` holds
    pub(super) fn take_due(&mut self, is_it: impl Fn(&E) -> bool) -> Option<E> {
        let mut entries = std::mem::take(&mut self.far).into_vec();
        entries.extend(self.near.drain(..).skip(self.taken));
        self.buckets.iter_mut().for_each(|bucket| entries.append(bucket));
        (self.taken, self.occupied) = (0, 0);
        let due = entries.iter().enumerate().filter(|(_, entry)| entry.at <= self.now && is_it(&entry.event));
        let position = due.min_by_key(|(_, entry)| entry.key()).map(|(position, _)| position);
        let taken = position.map(|position| entries.swap_remove(position).event);
        self.far = entries.into();
        taken
    }

    /// The events that are due now, in no particular order but that of their times
    pub(super) fn due(&self) -> impl Iterator<Item = &E> {
        let near = self.near[self.taken..].iter().chain(self.buckets.iter().flatten());
        let mut due: Vec<_> = near.chain(&self.far).filter(|entry| entry.at <= self.now).collect();
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
    #[inline(always)]
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
        /// Against a stable sort, with times of one bucket, of all buckets, and beyond them.
        ///
        /// Catches a bucket that is not put in order, one that is opened too late, and events of the heap that come too late, or before they
        /// are due.
        #[test]
        fn events_come_by_time_and_then_in_the_order_of_scheduling(ops in prop::collection::vec(
            prop::option::of(prop_oneof![0u64..20, 0u64..2_000, 0u64..20_000]), 0..400)
        ) {
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
                        if let Some((at, _)) = expected.first()
                            && let Some(before) = at.checked_sub(1).filter(|at| *at >= schedule.now().as_nanos())
                        {
                            schedule.set_limit(Time::from_nanos(before));
                            prop_assert_eq!(schedule.pop(), None);
                            schedule.set_limit(Time::MAX);
                        }
                        let next = (!expected.is_empty()).then(|| expected.remove(0));
                        prop_assert_eq!(schedule.next().map(Time::as_nanos), next.map(|(at, _)| at));
                        prop_assert_eq!(schedule.pop(), next.map(|(_, event)| event));
                    }
                }
            }
        }

        /// Against a list in order, with more events of one instant than are offered.
        ///
        /// Catches an event that is lost or comes twice because another one of its instant was picked, events that are put back in another
        /// order or behind later ones, and one that is offered too early or is missing among those of its instant.
        #[test]
        fn of_the_events_of_one_instant_the_one_that_is_picked_comes_next(ops in prop::collection::vec((
            prop::option::of(prop_oneof![4 => 0u64..3, 1 => 0u64..2_000, 1 => 0u64..20_000]),
            any::<prop::sample::Index>(),
        ), 0..400)) {
            let mut schedule = Schedule::new();
            schedule.set_limit(Time::MAX);
            let mut expected: Vec<(u64, usize)> = Vec::new();
            for (number, (after, index)) in ops.into_iter().enumerate() {
                let Some(after) = after else {
                    let due = expected.iter().take_while(|(at, _)| *at == expected[0].0).count();
                    let due = due.min(MOST_TIES);
                    let mut offered = Vec::new();
                    schedule.pick_next(|ties| {
                        offered = ties.iter().map(|event| **event).collect();
                        index.index(ties.len())
                    });
                    let next = schedule.pop();
                    // A single event is not offered.
                    let ties = expected.iter().take(if due > 1 { due } else { 0 });
                    prop_assert_eq!(&offered, &ties.map(|(_, event)| *event).collect::<Vec<_>>());
                    let picked = (due > 0).then(|| expected.remove(index.index(due)));
                    prop_assert_eq!(next, picked.map(|(_, event)| event));
                    prop_assert!(picked.is_none_or(|(at, _)| schedule.now().as_nanos() == at));
                    continue;
                };
                let at = schedule.now().as_nanos() + after;
                schedule.add(Time::from_nanos(at), number);
                expected.insert(expected.partition_point(|(other, _)| *other <= at), (at, number));
            }
        }
    }
}
