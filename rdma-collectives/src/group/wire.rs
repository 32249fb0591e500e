//! The messages between ranks

use super::call::Call;
use super::error::{CABLING, GroupError, PLAN};

/// Which stream of blocks: a tree of the plan, and whether towards its root
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) struct Channel {
    pub(crate) tree: u16,
    pub(crate) is_up: bool,
}

/// The first bytes of each message of an operation
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Header {
    pub(crate) sequence: u32,
    pub(crate) call: Call,
    /// `None` if the message only says that the rank has begun the operation
    pub(crate) block: Option<(Channel, u32)>,
    /// Whether ranks want to plan anew, as far as the sender knows
    pub(crate) wants_plan: bool,
}

impl Header {
    /// Its length in bytes, a multiple of the size of every element
    pub(crate) const LEN: usize = 32;
    /// Where the number of the message is, which is written when it is sent
    pub(crate) const NUMBER: usize = 28;

    pub(crate) fn encode(&self) -> [u8; Self::LEN] {
        let (flags, tree, block) = match self.block {
            None => (0, 0, 0),
            Some((Channel { tree, is_up }, block)) => (1 | u8::from(is_up) << 1, tree, block),
        };
        let mut bytes = [0; Self::LEN];
        bytes[..Call::LEN].copy_from_slice(&self.call.encode());
        bytes[Call::HALF_FREE] |= (flags | u8::from(self.wants_plan) << 2) << 4;
        bytes[18..20].copy_from_slice(&tree.to_le_bytes());
        bytes[20..24].copy_from_slice(&self.sequence.to_le_bytes());
        bytes[24..28].copy_from_slice(&block.to_le_bytes());
        bytes
    }

    pub(crate) fn decode(message: &[u8]) -> Option<Self> {
        let bytes: &[u8; Self::LEN] = message.first_chunk()?;
        let [sequence, block] = [20, 24].map(|at| u32_at(bytes, at));
        let flags = bytes[Call::HALF_FREE] >> 4;
        let channel = Channel { tree: u16::from_le_bytes([bytes[18], bytes[19]]), is_up: flags & 2 != 0 };
        Some(Self {
            sequence,
            call: Call::decode(bytes.first_chunk()?)?,
            block: (flags & 1 != 0).then_some((channel, block)),
            wants_plan: flags & 4 != 0,
        })
    }
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..at + 4).and_then(|bytes| bytes.try_into().ok()).map_or(0, u32::from_le_bytes)
}

/// So many more blocks of a channel may be sent
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Credit {
    pub(crate) sequence: u32,
    pub(crate) channel: Channel,
    pub(crate) blocks: u32,
}

impl Credit {
    pub(crate) const LEN: usize = 12;
    /// Where the number of the message is, which is written when it is sent
    pub(crate) const NUMBER: usize = 8;
    /// No window has so many blocks.
    const MAX_BLOCKS: u32 = 1 << 15;

    pub(crate) fn encode(&self) -> [u8; Self::LEN] {
        let Self { sequence, channel: Channel { tree, is_up }, blocks } = self;
        debug_assert!(*blocks < Self::MAX_BLOCKS, "a window is shorter");
        encode_words([*sequence, *blocks << 17 | u32::from(*tree) << 1 | u32::from(*is_up), 0])
    }

    pub(crate) fn decode(message: &[u8]) -> Option<Self> {
        let bytes: &[u8; Self::LEN] = message.try_into().ok()?;
        let [sequence, word] = [0, 4].map(|at| u32_at(bytes, at));
        let channel = Channel { tree: (word >> 1) as u16, is_up: word & 1 != 0 };
        Some(Self { sequence, channel, blocks: word >> 17 })
    }
}

/// The number of the operation in which all ranks come together, before those of the application.
pub(crate) const FIRST: u32 = u32::MAX;

/// The message of a rank that leaves, on the stream of ends
pub(crate) const LEAVING: [u8; 1] = [0];

/// The same over other ranks: with the number of the next message of operations, which there will not be
pub(crate) fn leaving_after(next: u32) -> [u8; 5] {
    let [a, b, c, d] = next.to_le_bytes();
    [0, a, b, c, d]
}

/// The number in a message of [`leaving_after`]
pub(crate) fn left_after(message: &[u8]) -> Option<u32> {
    let [0, number @ ..]: [u8; 5] = message.try_into().ok()? else { return None };
    Some(u32::from_le_bytes(number))
}

/// Why the group is over
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct End {
    pub(crate) error: GroupError,
    /// The first operation that the rank which says so has not completed
    pub(crate) sequence: u32,
}

impl End {
    pub(crate) const LEN: usize = 20 + 2 * Call::LEN;

    pub(crate) fn encode(&self) -> [u8; Self::LEN] {
        let (kind, sequence, ranks, calls) = match &self.error {
            GroupError::Cancelled { rank, sequence } => (1, *sequence, [*rank, 0], None),
            GroupError::Left { rank } => (2, 0, [*rank, 0], None),
            GroupError::Lost { rank, .. } => (3, 0, [*rank, 0], None),
            GroupError::Mismatch { sequence, ranks, calls } => (4, *sequence, *ranks, Some(calls)),
            GroupError::Protocol { rank, sequence } => (5, *sequence, [*rank, 0], None),
            GroupError::Revoked { rank } => (6, 0, [*rank, 0], None),
            // These end no group.
            GroupError::Argument { .. }
            | GroupError::Counts { .. }
            | GroupError::OwnRank { .. }
            | GroupError::Plan(_)
            | GroupError::Rank { .. }
            | GroupError::Unsupported { .. } => (0, 0, [0; 2], None),
        };
        let [first, second] = ranks.map(|rank| rank as u32);
        let mut bytes = [0; Self::LEN];
        bytes[..20].copy_from_slice(&encode_words::<5, 20>([self.sequence, kind, sequence, first, second]));
        if let Some([left, right]) = calls {
            bytes[20..20 + Call::LEN].copy_from_slice(&left.encode());
            bytes[20 + Call::LEN..].copy_from_slice(&right.encode());
        }
        bytes
    }

    pub(crate) fn decode(message: &[u8]) -> Option<Self> {
        let bytes: &[u8; Self::LEN] = message.try_into().ok()?;
        let [own, kind, sequence, first, second] = [0, 4, 8, 12, 16].map(|at| u32_at(bytes, at));
        let rank = first as usize;
        let error = match kind {
            1 => GroupError::Cancelled { rank, sequence },
            2 => GroupError::Left { rank },
            3 => GroupError::Lost { rank, reason: None },
            4 => {
                let call = |at: usize| Call::decode(bytes[at..].first_chunk()?);
                GroupError::Mismatch {
                    sequence,
                    ranks: [rank, second as usize],
                    calls: [call(20)?, call(20 + Call::LEN)?],
                }
            }
            5 => GroupError::Protocol { rank, sequence },
            6 => GroupError::Revoked { rank },
            _ => return None,
        };
        Some(Self { error, sequence: own })
    }

    /// Whether operation `sequence` fails because of it
    ///
    /// An operation before the one in which the rank has failed can be completed: the rank has done its part of it, and may have sent this
    /// past it. A lost rank and a revoked group end the operation under way, but for joining, in which every rank has done its part when
    /// one has joined.
    pub(crate) fn ends(&self, sequence: u32) -> bool {
        match self.error {
            GroupError::Lost { .. } | GroupError::Revoked { .. } if sequence != FIRST => true,
            _ => !self.is_after(sequence),
        }
    }

    /// Whether the rank that says so has completed operation `sequence`
    pub(crate) fn is_after(&self, sequence: u32) -> bool {
        (self.sequence.wrapping_sub(sequence) as i32) > 0
    }
}

/// A message between two ranks that send and receive without the others
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum PairMessage<'a> {
    /// The rank has made this call; with a block, bytes of the vector follow
    Call(Header, &'a [u8]),
    /// The group is over at the rank
    End(End),
}

impl<'a> PairMessage<'a> {
    /// The length of what precedes the bytes of a vector
    pub(crate) const HEADER: usize = 1 + Header::LEN;

    pub(crate) fn encode(&self) -> Box<[u8]> {
        match self {
            Self::Call(header, bytes) => [&[0], &header.encode()[..], bytes].concat().into(),
            Self::End(end) => [&[1], &end.encode()[..]].concat().into(),
        }
    }

    pub(crate) fn decode(message: &'a [u8]) -> Option<Self> {
        match message.split_first()? {
            (0, rest) => Some(Self::Call(Header::decode(rest)?, &rest[Header::LEN..])),
            (1, rest) => Some(Self::End(End::decode(rest)?)),
            _ => None,
        }
    }
}

fn encode_words<const WORDS: usize, const LEN: usize>(words: [u32; WORDS]) -> [u8; LEN] {
    let mut bytes = [0; LEN];
    for (bytes, word) in bytes.chunks_exact_mut(4).zip(words) {
        bytes.copy_from_slice(&word.to_le_bytes());
    }
    bytes
}

/// The first message to a neighbour, which has to agree with this side
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Greeting {
    pub(crate) rank: u64,
    /// The longest message that the node of the neighbour takes, in bytes, which the neighbour cannot ask for itself
    pub(crate) max_message: u64,
    /// Has to be the same on both sides; in the order of [`NAMES`](Self::NAMES)
    pub(crate) values: [u64; 7],
}

const GREETING: u64 = u64::from_le_bytes(*b"rdma-grp");

impl Greeting {
    /// The length of an encoded greeting in bytes
    pub(crate) const LEN: usize = 80;
    pub(crate) const NAMES: [&'static str; 7] = [
        "version of the protocol",
        "number of ranks",
        CABLING,
        PLAN,
        "block_bytes",
        "receive_bytes",
        "keep_plan",
    ];

    pub(crate) fn encode(&self) -> [u8; Self::LEN] {
        let mut bytes = [0; Self::LEN];
        let words = [GREETING, self.rank, self.max_message].into_iter().chain(self.values);
        for (bytes, value) in bytes.chunks_exact_mut(8).zip(words) {
            bytes.copy_from_slice(&value.to_le_bytes());
        }
        bytes
    }

    pub(crate) fn decode(message: &[u8]) -> Option<Self> {
        let (words, rest) = message.as_chunks::<8>();
        let words: [u64; 10] =
            words.iter().map(|word| u64::from_le_bytes(*word)).collect::<Vec<_>>().try_into().ok()?;
        let [magic, rank, max_message, values @ ..] = words;
        (rest.is_empty() && magic == GREETING).then_some(Self { rank, max_message, values })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{ElementType, MAX_HOSTS, OperationKind, Reduction};

    fn call(count: u64, root: Option<usize>) -> Call {
        let (operation, element) = (OperationKind::Reduce, ElementType::U64);
        Call {
            operation,
            element,
            reduction: Some(Reduction::Sum),
            root,
            to: None,
            count,
            counts: std::num::NonZeroU32::new(7),
        }
    }

    proptest! {
        /// Catches two fields that share bytes.
        #[test]
        fn messages_survive_the_way(
            [sequence, number, blocks, own] in any::<[u32; 4]>(), tree in any::<u16>(), is_up in any::<bool>(),
            count in any::<u64>(), root in prop::option::of(0..MAX_HOSTS), ranks in [0..MAX_HOSTS, 0..MAX_HOSTS],
            has_block in any::<bool>(),
        ) {
            let (channel, call) = (Channel { tree, is_up }, Call { to: Some(ranks[1]), ..call(count, root) });
            let wants_plan = number % 2 == 0;
            let header = Header { sequence, call, block: has_block.then_some((channel, number)), wants_plan };
            prop_assert_eq!(Header::decode(&header.encode()), Some(header));
            let [rank, _] = ranks;
            let message = PairMessage::Call(header, &[7; 3]);
            let bytes = message.encode();
            prop_assert_eq!(PairMessage::decode(&bytes), Some(message.clone()));
            let credit = Credit { sequence, channel, blocks: blocks % Credit::MAX_BLOCKS };
            prop_assert_eq!(Credit::decode(&credit.encode()), Some(credit));
            for error in [
                GroupError::Cancelled { rank, sequence },
                GroupError::Left { rank },
                GroupError::Lost { rank, reason: None },
                GroupError::Mismatch { sequence, ranks, calls: [call, Call { count: 0, ..call }] },
                GroupError::Protocol { rank, sequence },
                GroupError::Revoked { rank },
            ] {
                let end = End { error, sequence: own };
                prop_assert_eq!(End::decode(&end.encode()), Some(end.clone()));
                let message = PairMessage::End(end);
                let bytes = message.encode();
                prop_assert_eq!(PairMessage::decode(&bytes), Some(message.clone()));
            }
            let greeting = Greeting { rank: count, max_message: 7, values: [1, 2, 3, 4, 5, 6, u64::from(number)] };
            prop_assert_eq!(Greeting::decode(&greeting.encode()), Some(greeting));
        }

        /// Catches a panic on the bytes of a foreign program.
        #[test]
        fn other_bytes_are_refused_without_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..80)) {
            let _ = (Header::decode(&bytes), Credit::decode(&bytes), End::decode(&bytes));
            let _ = PairMessage::decode(&bytes);
            prop_assert_eq!(Greeting::decode(&bytes), None);
        }
    }

    /// Catches numbers that are compared without their wrap, and the number of the error in place of that of the rank.
    #[test]
    fn a_rank_ends_what_it_has_not_completed() {
        let rank = 3;
        for own in [0, 1, 7, u32::MAX - 1] {
            let before = own.wrapping_sub(1);
            for named in [own, own.wrapping_add(1)] {
                for error in [
                    GroupError::Cancelled { rank, sequence: named },
                    GroupError::Left { rank },
                    GroupError::Mismatch { sequence: named, ranks: [rank, 1], calls: [call(1, None); 2] },
                    GroupError::Protocol { rank, sequence: named },
                ] {
                    let end = End { error, sequence: own };
                    let found = [before, own, own.wrapping_add(1)].map(|sequence| end.ends(sequence));
                    assert_eq!(found, [false, true, true], "{end:?}");
                }
            }
            for error in [GroupError::Lost { rank, reason: None }, GroupError::Revoked { rank }] {
                let end = End { error, sequence: own };
                let is_joined = before == FIRST;
                assert_eq!(end.ends(before), !is_joined, "{end:?}");
                assert!(end.ends(own) && end.ends(own.wrapping_add(1)), "{end:?}");
            }
        }
        for error in [GroupError::Left { rank }, GroupError::Lost { rank, reason: None }] {
            assert!(End { error, sequence: FIRST }.ends(FIRST));
        }
    }
}
