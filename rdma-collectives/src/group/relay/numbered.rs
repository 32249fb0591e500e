//! Numbered messages to and from a neighbour, which may come from its stream and over other ranks

use std::collections::VecDeque;

use super::super::wire::{Credit, Header};

/// The purpose of the messages of a stream of a link
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Purpose {
    /// Messages of operations
    Data,
    /// Credit for these
    Credit,
    /// Why the group is over
    End,
    /// Between two ranks that send and receive without the others, over any number of these; in no stream of a link
    Pair,
}

impl Purpose {
    pub(crate) const ALL: [Self; 4] = [Self::Data, Self::Credit, Self::End, Self::Pair];
    /// Those of the streams of a link
    pub(crate) const OF_LINK: [Self; 3] = [Self::Data, Self::Credit, Self::End];

    /// Where a message has its number; those of ends have none, and may come twice
    fn at(self) -> Option<usize> {
        match self {
            Self::Data => Some(Header::NUMBER),
            Self::Credit => Some(Credit::NUMBER),
            Self::End | Self::Pair => None,
        }
    }

    /// The number that a message has in itself
    pub(crate) fn number(self, message: &[u8]) -> Option<u32> {
        Some(u32::from_le_bytes(*message.get(self.at()?..)?.first_chunk()?))
    }

    /// Writes its number into a message
    pub(crate) fn write_number(self, message: &mut [u8], number: u32) {
        if let Some(place) = self.at().and_then(|at| message.get_mut(at..)?.first_chunk_mut()) {
            *place = number.to_le_bytes();
        }
    }
}

/// A message from the stream of a neighbour, by its number
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Arrival {
    /// It is the next one
    Next,
    /// Other ranks have brought it before
    Repeated,
    /// It comes before its time
    Early,
}

/// A piece of a message that goes over other ranks
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Part<'a> {
    pub(crate) number: u32,
    /// Where it begins in the message
    pub(crate) offset: usize,
    /// The length of the message
    pub(crate) total: usize,
    pub(crate) bytes: &'a [u8],
}

/// A message of which parts have come
#[derive(Debug, Default)]
struct Begun {
    bytes: Vec<u8>,
    is_whole: bool,
}

/// So many messages of a neighbour may overtake each other on different ways.
const MAX_BEGUN: usize = 1024;
/// No more bytes wait for the application: credit allows far less.
const MAX_ARRIVED: usize = 128 << 20;

/// The messages for one purpose between this rank and a neighbour
#[derive(Debug, Default)]
pub(crate) struct Numbered {
    /// The number of the next message to the neighbour
    next_out: u32,
    /// Messages that go over other ranks, until the neighbour has them; their numbers follow each other
    unconfirmed: VecDeque<(u32, Box<[u8]>)>,
    /// The sum of their lengths
    unconfirmed_bytes: usize,
    /// The number of the next message of the neighbour
    next_in: u32,
    /// What has come over other ranks of that message and of those behind it
    begun: VecDeque<Begun>,
    /// Messages that came over other ranks
    arrived: VecDeque<Box<[u8]>>,
    /// The sum of their lengths
    arrived_bytes: usize,
}

impl Numbered {
    /// The number of another message to the neighbour
    pub(crate) fn take_number(&mut self) -> u32 {
        let number = self.next_out;
        self.next_out = number.wrapping_add(1);
        number
    }

    /// The number of the next message to the neighbour
    pub(crate) fn next_out(&self) -> u32 {
        self.next_out
    }

    /// Keeps messages with their numbers until the neighbour has them
    pub(crate) fn keep(&mut self, mut messages: Vec<(u32, Box<[u8]>)>) {
        messages.sort_by_key(|(number, _)| number.wrapping_sub(self.next_out));
        self.unconfirmed_bytes += messages.iter().map(|(_, message)| message.len()).sum::<usize>();
        self.unconfirmed.extend(messages);
    }

    /// Messages that the neighbour may not have, in their order
    pub(crate) fn unconfirmed(&self) -> impl Iterator<Item = (u32, &[u8])> {
        self.unconfirmed.iter().map(|(number, message)| (*number, &**message))
    }

    pub(crate) fn unconfirmed_bytes(&self) -> usize {
        self.unconfirmed_bytes
    }

    /// The neighbour has all messages before number `next`; returns whether there is news
    pub(crate) fn confirm(&mut self, next: u32) -> bool {
        let before = self.unconfirmed.len();
        while let Some((_, message)) = self.unconfirmed.pop_front_if(|(number, _)| precedes(*number, next)) {
            self.unconfirmed_bytes -= message.len();
        }
        self.unconfirmed.len() < before
    }

    /// Forgets what the neighbour will never confirm
    pub(crate) fn give_up(&mut self) {
        self.unconfirmed.clear();
        self.unconfirmed_bytes = 0;
    }

    /// A message has come from the stream of the neighbour
    pub(crate) fn arrives(&mut self, number: u32) -> Arrival {
        if precedes(number, self.next_in) {
            return Arrival::Repeated;
        }
        if number != self.next_in {
            return Arrival::Early;
        }
        self.advance();
        self.arrive_begun();
        Arrival::Next
    }

    /// A piece of a message has come over other ranks; returns whether it ends a message, or repeats one
    ///
    /// Messages may overtake each other. The pieces of one follow each other, or some are lost: the neighbour sends them again.
    pub(crate) fn receive(&mut self, part: Part<'_>) -> bool {
        if precedes(part.number, self.next_in) {
            return true;
        }
        let ahead = part.number.wrapping_sub(self.next_in) as usize;
        if ahead >= MAX_BEGUN || self.arrived_bytes > MAX_ARRIVED {
            return false;
        }
        if self.begun.len() <= ahead {
            self.begun.resize_with(ahead + 1, Begun::default);
        }
        let Begun { bytes, is_whole } = &mut self.begun[ahead];
        let is_in_place = part.offset <= bytes.len() && part.offset + part.bytes.len() <= part.total;
        if *is_whole || !is_in_place {
            return false;
        }
        let repeated = bytes.len() - part.offset;
        bytes.extend_from_slice(part.bytes.get(repeated..).unwrap_or_default());
        *is_whole = bytes.len() == part.total;
        let ends = *is_whole;
        self.arrive_begun();
        ends
    }

    /// Gives out messages that came over other ranks and have no other one before them any more
    fn arrive_begun(&mut self) {
        while let Some(begun) = self.begun.front_mut().filter(|begun| begun.is_whole) {
            let message = std::mem::take(&mut begun.bytes);
            self.arrived_bytes += message.len();
            self.arrived.push_back(message.into());
            self.advance();
        }
    }

    /// Before which number all messages of the neighbour have come
    pub(crate) fn next_in(&self) -> u32 {
        self.next_in
    }

    /// Before which number the application has all messages
    pub(crate) fn taken(&self) -> u32 {
        self.next_in.wrapping_sub(self.arrived.len() as u32)
    }

    /// The message that [`pop`](Self::pop) would return
    pub(crate) fn front(&self) -> Option<&[u8]> {
        self.arrived.front().map(|message| &**message)
    }

    /// Whether the application has all messages before number `next`
    pub(crate) fn is_read_until(&self, next: u32) -> bool {
        self.next_in == next && self.arrived.is_empty()
    }

    /// The next message that came over other ranks; it precedes those in the stream that are not [repeated](Arrival::Repeated)
    pub(crate) fn pop(&mut self) -> Option<Box<[u8]>> {
        let message = self.arrived.pop_front()?;
        self.arrived_bytes -= message.len();
        Some(message)
    }

    fn advance(&mut self) {
        self.next_in = self.next_in.wrapping_add(1);
        self.begun.pop_front();
    }
}

/// Whether message `one` precedes message `other`; numbers wrap
pub(crate) fn precedes(one: u32, other: u32) -> bool {
    (one.wrapping_sub(other) as i32) < 0
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Messages come once and in order, whatever order of the two ways they come by, and whichever pieces are repeated or lost: catches numbers
        /// that are compared without their wrap, pieces that are joined wrongly, and a message of the stream that is given out beside its copy.
        #[test]
        fn messages_come_once_and_in_order(
            first in any::<u32>(), lens in vec(0..9_usize, 1..12), steps in vec((0..3_u8, any::<u8>(), 1..4_usize), 0..200),
        ) {
            let messages: Vec<Vec<u8>> = lens.iter().enumerate().map(|(at, len)| vec![at as u8; *len + 1]).collect();
            let number = |at: usize| first.wrapping_add(at as u32);
            let mut numbered = Numbered { next_in: first, ..Numbered::default() };
            let (mut in_stream, mut found) = (0, Vec::new());
            let drain = |numbered: &mut Numbered, found: &mut Vec<Vec<u8>>| {
                while let Some(message) = numbered.pop() {
                    found.push(message.into());
                }
            };
            for (kind, which, len) in steps {
                let at = usize::from(which) % messages.len();
                match kind {
                    // The stream brings its next message, as long as it precedes none that only other ranks bring.
                    0 if in_stream < messages.len() => {
                        drain(&mut numbered, &mut found);
                        match numbered.arrives(number(in_stream)) {
                            Arrival::Next => found.push(messages[in_stream].clone()),
                            Arrival::Repeated => (),
                            Arrival::Early => prop_assert!(false, "the stream is in order"),
                        }
                        in_stream += 1;
                    }
                    1 => {
                        // A piece of any message, also of one that the stream has brought.
                        let offset = usize::from(which) % messages[at].len();
                        let bytes = &messages[at][offset..][..len.min(messages[at].len() - offset)];
                        numbered.receive(Part { number: number(at), offset, total: messages[at].len(), bytes });
                    }
                    _ => drain(&mut numbered, &mut found),
                }
            }
            for (at, message) in messages.iter().enumerate() {
                numbered.receive(Part { number: number(at), offset: 0, total: message.len(), bytes: message });
            }
            drain(&mut numbered, &mut found);
            prop_assert_eq!(found, messages);
            prop_assert_eq!(numbered.next_in(), number(lens.len()));
        }
    }

    /// Catches messages that are kept for ever, or forgotten before the neighbour has them.
    #[test]
    fn messages_are_kept_until_they_are_confirmed() {
        let mut numbered = Numbered { next_out: u32::MAX - 1, ..Numbered::default() };
        let numbers: Vec<_> = (0..4).map(|_| numbered.take_number()).collect();
        assert_eq!(numbers, [u32::MAX - 1, u32::MAX, 0, 1]);
        numbered.keep(numbers.iter().rev().map(|number| (*number, Box::from([7; 3]))).collect());
        assert_eq!(numbered.unconfirmed().map(|(number, _)| number).collect::<Vec<_>>(), numbers);
        assert!(!numbered.confirm(u32::MAX - 1) && numbered.unconfirmed_bytes() == 12);
        assert!(numbered.confirm(0) && numbered.unconfirmed_bytes() == 6);
        assert_eq!(numbered.unconfirmed().map(|(number, _)| number).collect::<Vec<_>>(), [0, 1]);
        assert!(numbered.confirm(2) && numbered.unconfirmed_bytes() == 0);
    }
}
