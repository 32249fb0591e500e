//! A message that arrives

use std::collections::{BTreeMap, VecDeque};

use slab::Slab;

use super::super::{Address, Event, IncomingId};
use crate::probe::{self, ProtocolState};

/// A message that arrives
#[derive(Debug)]
pub(super) struct Incoming {
    pub(super) address: Address,
    pub(super) len: u64,
    pub(super) progress: Progress,
}

impl Incoming {
    /// Its parts, if it is a message of the bulk lane that was not given up
    pub(super) fn parts(&self) -> Option<&Parts> {
        match &self.progress {
            Progress::Bulk(parts) => Some(parts),
            Progress::Eager { .. } | Progress::Withdrawn => None,
        }
    }
}

#[derive(Debug)]
pub(super) enum Progress {
    /// It was given up
    Withdrawn,
    /// The packets that are here, a bit each
    Eager { received: u32 },
    /// The parts that are here, or granted
    Bulk(Parts),
}

/// The parts of a message of the bulk lane
#[derive(Debug, Default)]
pub(super) struct Parts {
    /// Bytes that are here
    pub(super) received: u64,
    /// Where the part begins that was never granted
    next: u64,
    /// Parts to be granted again: their offsets and lengths
    lost: BTreeMap<u64, u32>,
    /// Whether the peer has announced the message
    pub(super) is_announced: bool,
    /// Whether it had memory before it was announced
    pub(super) was_expected: bool,
}

impl Parts {
    /// Those of a message that the peer has announced
    pub(super) fn announced() -> Self {
        Self { is_announced: true, ..Self::default() }
    }

    /// Those of a message that this side expects
    pub(super) fn expected() -> Self {
        Self { was_expected: true, ..Self::default() }
    }

    /// The next part to grant of a message of `total` bytes, in parts of `largest`: its offset and length
    pub(super) fn next(&self, total: u64, largest: u32) -> Option<(u64, u32)> {
        let lost = self.lost.first_key_value().map(|(offset, len)| (*offset, *len));
        lost.or_else(|| {
            let len = (total - self.next).min(largest.into()) as u32;
            (len > 0).then_some((self.next, len))
        })
    }

    /// Notes that the [next](Self::next) part, of `len` bytes, was granted; whether it was granted before
    pub(super) fn granted(&mut self, len: u32) -> bool {
        let is_repeat = self.lost.pop_first().is_some();
        if !is_repeat {
            self.next += u64::from(len);
        }
        is_repeat
    }

    /// Bytes that are here or granted, before the message is announced
    pub(super) fn ahead(&self) -> u64 {
        self.next - self.lost.values().map(|len| u64::from(*len)).sum::<u64>()
    }

    /// Notes that a part must be granted again
    pub(super) fn lose(&mut self, (offset, len): (u64, u32)) {
        self.lost.insert(offset, len);
    }
}

/// Notes that a message will not be complete
pub(super) fn withdraw(incoming: &mut Slab<Incoming>, events: &mut VecDeque<Event>, id: IncomingId) {
    if let Some(message) = incoming.get_mut(id.0 as usize) {
        message.progress = Progress::Withdrawn;
        probe::reached(ProtocolState::MessageWithdrawn);
        events.push_back(Event::Withdrawn(id));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Catches lost parts that are granted again in another order than that of their bytes.
    #[test]
    fn lost_parts_come_first_and_in_order() {
        let mut parts = Parts::announced();
        for offset in [0, 10, 20] {
            assert_eq!(parts.next(35, 10), Some((offset, 10)));
            assert!(!parts.granted(10));
        }
        for offset in [20, 0, 10] {
            parts.lose((offset, 10));
        }
        assert_eq!(parts.ahead(), 0);
        for offset in [0, 10, 20] {
            assert_eq!(parts.next(35, 10), Some((offset, 10)));
            assert!(parts.granted(10));
        }
        assert_eq!((parts.ahead(), parts.next(35, 10)), (30, Some((30, 5))));
    }
}
