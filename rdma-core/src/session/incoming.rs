//! One direction of a stream at its receiver

use std::collections::VecDeque;
use std::ops::Range;

use super::IncomingId;

/// The messages of a stream that the application was not handed yet
#[derive(Debug, Default)]
pub(super) struct IncomingStream {
    /// Number of the first message in `entries`.
    next: u32,
    entries: VecDeque<Entry>,
    /// How many entries at the beginning are known, and were returned by `newly_known`.
    known: usize,
    /// How many entries are expected.
    expected: u32,
    /// Number of the end, once it has arrived.
    end: Option<u32>,
    is_finished: bool,
}

/// What is known of a message
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) enum Entry {
    /// Nothing: a message behind it has begun to arrive
    #[default]
    Unknown,
    /// Nothing, but this side expects it
    Expected(IncomingId),
    /// It is arriving
    Partial(IncomingId),
    /// It is here
    Complete(IncomingId),
    /// The stream ends here
    Finish,
}

impl IncomingStream {
    /// What is known of message `number`; `None` if it was handed on
    ///
    /// At most `window` messages may be waited for: `Err` beyond them.
    pub(super) fn entry(&mut self, number: u32, window: u32) -> Result<Option<&mut Entry>, ()> {
        let index = number.wrapping_sub(self.next);
        if index > u32::MAX / 2 || self.is_finished {
            return Ok(None);
        }
        // Nothing follows the end.
        let is_behind = self.end.is_some_and(|end| index > end.wrapping_sub(self.next));
        if index >= window || is_behind {
            return Err(());
        }
        let index = index as usize;
        if index >= self.entries.len() {
            self.entries.resize(index + 1, Entry::Unknown);
        }
        Ok(Some(&mut self.entries[index]))
    }

    /// The index of the first message at `places` of which nothing is known, if fewer than `max` are expected
    pub(super) fn next_to_expect(&self, places: Range<u32>, max: u32) -> Option<usize> {
        if self.end.is_some() || self.expected >= max {
            return None;
        }
        let is_unknown = |index: &usize| matches!(self.entries.get(*index), None | Some(Entry::Unknown));
        (places.start as usize..places.end as usize).find(is_unknown)
    }

    /// Expects the message with an index that was [found](Self::next_to_expect); `new` gets its number
    pub(super) fn expect(&mut self, index: usize, new: impl FnOnce(u32) -> IncomingId) -> IncomingId {
        let number = self.next.wrapping_add(index as u32);
        if index >= self.entries.len() {
            self.entries.resize(index + 1, Entry::Unknown);
        }
        let id = new(number);
        self.entries[index] = Entry::Expected(id);
        self.expected += 1;
        id
    }

    /// Whether a message is expected
    #[inline]
    pub(super) fn is_expecting(&self) -> bool {
        self.expected > 0
    }

    /// The messages that are expected, in order
    pub(super) fn expected(&self) -> impl Iterator<Item = IncomingId> {
        self.entries.iter().filter_map(|entry| match entry {
            Entry::Expected(id) => Some(*id),
            _ => None,
        })
    }

    /// The message that is expected as number `number`
    pub(super) fn expected_as(&self, number: u32) -> Option<IncomingId> {
        match self.entries.get(number.wrapping_sub(self.next) as usize) {
            Some(Entry::Expected(id)) => Some(*id),
            _ => None,
        }
    }

    /// Whether a message is expected as number `end`, with which the stream ends, or behind
    pub(super) fn expects_behind(&self, end: u32) -> bool {
        let mut behind = self.entries.iter().skip(end.wrapping_sub(self.next) as usize);
        behind.any(|entry| matches!(entry, Entry::Expected(_)))
    }

    /// Takes out a message that is expected, the last one first, down to message `first` if there is one
    pub(super) fn take_expected(&mut self, first: Option<u32>) -> Option<IncomingId> {
        let index = self.entries.iter().rposition(|entry| matches!(entry, Entry::Expected(_)))?;
        let first = first.map_or(0, |first| first.wrapping_sub(self.next) as usize);
        if index < first {
            return None;
        }
        let Entry::Expected(id) = std::mem::take(&mut self.entries[index]) else { return None };
        // Nothing has begun to arrive behind an entry that is unknown.
        while self.entries.pop_back_if(|entry| *entry == Entry::Unknown).is_some() {}
        self.expected -= 1;
        Some(id)
    }

    /// Notes that a message that was expected has become one that arrives
    pub(super) fn was_announced(&mut self) {
        self.expected -= 1;
    }

    /// Notes that the stream ends with number `number`; false if a message behind it has arrived
    pub(super) fn set_end(&mut self, number: u32) -> bool {
        let index = number.wrapping_sub(self.next) as usize;
        let is_last = self.entries.len() == index + 1;
        self.entries[index] = Entry::Finish;
        self.end = Some(number);
        is_last
    }

    /// The next message before which nothing is unknown; each once
    ///
    /// Memory for long messages is found in this order: if a later one got the last of it, it could not be handed on before
    /// an earlier one that finds none.
    pub(super) fn newly_known(&mut self) -> Option<IncomingId> {
        loop {
            let entry = *self.entries.get(self.known)?;
            if matches!(entry, Entry::Unknown | Entry::Expected(_)) {
                return None;
            }
            self.known += 1;
            if let Entry::Partial(id) | Entry::Complete(id) = entry {
                return Some(id);
            }
        }
    }

    /// The next message that is complete, or the end
    pub(super) fn pop(&mut self) -> Option<Entry> {
        let is_ready = matches!(self.entries.front()?, Entry::Complete(_) | Entry::Finish);
        let entry = if is_ready && !self.is_finished { self.entries.pop_front() } else { None }?;
        self.next = self.next.wrapping_add(1);
        self.known = self.known.saturating_sub(1);
        self.is_finished = entry == Entry::Finish;
        Some(entry)
    }

    /// Whether message `number` is the first one that was not handed on
    pub(super) fn is_next(&self, number: u32) -> bool {
        number == self.next
    }

    /// Whether the end was handed on
    pub(super) fn is_finished(&self) -> bool {
        self.is_finished
    }

    /// The messages that were not handed on, when the stream is given up
    pub(super) fn abandon(&mut self) -> impl Iterator<Item = IncomingId> {
        self.known = 0;
        self.expected = 0;
        self.entries.drain(..).filter_map(|entry| match entry {
            Entry::Expected(id) | Entry::Partial(id) | Entry::Complete(id) => Some(id),
            Entry::Unknown | Entry::Finish => None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Catches messages that are handed on out of order, or twice.
    #[test]
    fn messages_are_handed_on_in_order_once() {
        let mut stream = IncomingStream::default();
        let id = |number| Entry::Complete(IncomingId(number));
        *stream.entry(1, 4).unwrap().unwrap() = id(1);
        assert_eq!(stream.pop(), None, "message 0 is missing");
        stream.entry(2, 4).unwrap().unwrap();
        assert!(stream.set_end(2));
        assert_eq!(stream.entry(3, 4), Err(()), "nothing follows the end");
        *stream.entry(0, 4).unwrap().unwrap() = Entry::Partial(IncomingId(0));
        assert_eq!(stream.pop(), None, "message 0 is not complete");
        *stream.entry(0, 4).unwrap().unwrap() = id(0);
        let popped = std::iter::from_fn(|| stream.pop()).collect::<Vec<_>>();
        assert_eq!(popped, [id(0), id(1), Entry::Finish]);
        assert!(stream.is_finished());
        assert_eq!(stream.entry(1, 4), Ok(None), "it was handed on");
    }

    #[test]
    fn messages_beyond_the_window_are_refused() {
        let mut stream = IncomingStream::default();
        assert!(stream.entry(3, 4).is_ok());
        assert_eq!(stream.entry(4, 4), Err(()));
        // As far behind as a number can be, or else before.
        assert_eq!(stream.entry(u32::MAX / 2, 4), Err(()));
        assert_eq!(stream.entry(u32::MAX / 2 + 1, 4), Ok(None));
    }

    #[test]
    fn the_next_message_is_the_first_that_was_not_handed_on() {
        let mut stream = IncomingStream::default();
        assert_eq!([0, 1].map(|number| stream.is_next(number)), [true, false]);
        *stream.entry(0, 4).unwrap().unwrap() = Entry::Complete(IncomingId(0));
        stream.pop();
        assert_eq!([0, 1, 2].map(|number| stream.is_next(number)), [false, true, false]);
    }
}
