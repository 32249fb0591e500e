//! What ranks send each other

use super::call::Call;
use super::error::GroupError;

/// Which stream of blocks: a tree of the plan, and whether towards its root
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) struct Channel {
    pub(crate) tree: u16,
    pub(crate) is_up: bool,
}

/// What stands before the bytes of each message of an operation
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Header {
    pub(crate) sequence: u32,
    pub(crate) call: Call,
    /// `None` if the message only says that the rank has begun the operation
    pub(crate) block: Option<(Channel, u32)>,
}

impl Header {
    /// Its length in bytes, a multiple of the size of every element
    pub(crate) const LEN: usize = 32;

    pub(crate) fn encode(&self) -> [u8; Self::LEN] {
        let (flags, tree, block) = match self.block {
            None => (0, 0, 0),
            Some((Channel { tree, is_up }, block)) => (1 | u16::from(is_up) << 1, tree, block),
        };
        let mut bytes = [0; Self::LEN];
        bytes[..16].copy_from_slice(&self.call.encode());
        bytes[16..20].copy_from_slice(&self.sequence.to_le_bytes());
        bytes[20..24].copy_from_slice(&block.to_le_bytes());
        bytes[24..26].copy_from_slice(&tree.to_le_bytes());
        bytes[26..28].copy_from_slice(&flags.to_le_bytes());
        bytes
    }

    pub(crate) fn decode(message: &[u8]) -> Option<Self> {
        let bytes: &[u8; Self::LEN] = message.first_chunk()?;
        let [at_16, at_20, at_24] = [16, 20, 24].map(|at| u32_at(bytes, at));
        let (tree, flags) = (at_24 as u16, at_24 >> 16);
        let channel = Channel { tree, is_up: flags & 2 != 0 };
        Some(Self {
            sequence: at_16,
            call: Call::decode(bytes.first_chunk()?)?,
            block: (flags & 1 != 0).then_some((channel, at_20)),
        })
    }
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..at + 4).and_then(|bytes| bytes.try_into().ok()).map_or(0, u32::from_le_bytes)
}

/// A message beside the data
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum Control {
    /// So many more blocks of a channel may be sent
    Credit { sequence: u32, channel: Channel, blocks: u32 },
    /// The group is over
    End(GroupError),
}

impl Control {
    pub(crate) const LEN: usize = 48;

    pub(crate) fn encode(&self) -> [u8; Self::LEN] {
        let mut bytes = [0; Self::LEN];
        let mut words = |kind: u32, words: [u32; 3]| {
            for (at, word) in [kind].iter().chain(&words).enumerate() {
                bytes[4 * at..][..4].copy_from_slice(&word.to_le_bytes());
            }
        };
        let rank = |rank: usize| rank as u32;
        match self {
            Self::Credit { sequence, channel: Channel { tree, is_up }, blocks } => {
                words(0, [*sequence, u32::from(*tree) << 1 | u32::from(*is_up), *blocks]);
            }
            Self::End(GroupError::Mismatch { sequence, ranks, calls }) => {
                words(1, [*sequence, rank(ranks[0]), rank(ranks[1])]);
                bytes[16..32].copy_from_slice(&calls[0].encode());
                bytes[32..48].copy_from_slice(&calls[1].encode());
            }
            Self::End(GroupError::Cancelled { rank: cancelled, sequence }) => {
                words(2, [*sequence, rank(*cancelled), 0]);
            }
            Self::End(GroupError::Lost { rank: lost, .. }) => words(3, [0, rank(*lost), 0]),
            Self::End(GroupError::Protocol { rank: wrong, sequence }) => {
                words(4, [*sequence, rank(*wrong), 0]);
            }
            Self::End(GroupError::Left { rank: left }) => words(5, [0, rank(*left), 0]),
            // No other error ends a group on other ranks.
            Self::End(_) => words(6, [0; 3]),
        }
        bytes
    }

    pub(crate) fn decode(message: &[u8]) -> Option<Self> {
        let bytes: &[u8; Self::LEN] = message.try_into().ok()?;
        let [kind, sequence, first, second] = [0, 4, 8, 12].map(|at| u32_at(bytes, at));
        let rank = first as usize;
        Some(match kind {
            0 => {
                let channel = Channel { tree: (first >> 1) as u16, is_up: first & 1 != 0 };
                Self::Credit { sequence, channel, blocks: second }
            }
            1 => {
                let [left, right] = [16, 32]
                    .map(|at| bytes.get(at..at + 16).and_then(|call| Call::decode(call.try_into().ok()?)));
                Self::End(GroupError::Mismatch {
                    sequence,
                    ranks: [rank, second as usize],
                    calls: [left?, right?],
                })
            }
            2 => Self::End(GroupError::Cancelled { rank, sequence }),
            3 => Self::End(GroupError::Lost { rank, reason: None }),
            4 => Self::End(GroupError::Protocol { rank, sequence }),
            5 => Self::End(GroupError::Left { rank }),
            _ => return None,
        })
    }
}

/// What neighbours have to agree on before the first operation
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Greeting {
    /// In the order of [`NAMES`](Self::NAMES)
    pub(crate) values: [u64; 6],
    pub(crate) rank: u64,
}

impl Greeting {
    /// The length of an encoded greeting in bytes
    pub(crate) const LEN: usize = 64;
    pub(crate) const NAMES: [&'static str; 6] = [
        "version of the protocol",
        "number of ranks",
        "cabling",
        "plan of all_reduce",
        "block_bytes",
        "receive_bytes",
    ];

    pub(crate) fn encode(&self) -> [u8; Self::LEN] {
        let mut bytes = [0; Self::LEN];
        for (at, value) in
            [u64::from_le_bytes(*b"rdma-grp"), self.rank].iter().chain(&self.values).enumerate()
        {
            bytes[8 * at..][..8].copy_from_slice(&value.to_le_bytes());
        }
        bytes
    }

    pub(crate) fn decode(message: &[u8]) -> Option<Self> {
        let (words, rest) = message.as_chunks::<8>();
        let words: [u64; 8] =
            words.iter().map(|word| u64::from_le_bytes(*word)).collect::<Vec<_>>().try_into().ok()?;
        let [magic, rank, values @ ..] = words;
        (rest.is_empty() && magic == u64::from_le_bytes(*b"rdma-grp")).then_some(Self { values, rank })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{ElementType, OperationKind, Reduction};

    fn call(count: u64, root: Option<usize>) -> Call {
        let (operation, element) = (OperationKind::Reduce, ElementType::U64);
        Call { operation, element, reduction: Some(Reduction::Sum), root, to: None, count }
    }

    proptest! {
        /// Catches two fields that share bytes.
        #[test]
        fn messages_survive_the_way(
            [sequence, number, blocks] in any::<[u32; 3]>(), tree in any::<u16>(), is_up in any::<bool>(),
            count in any::<u64>(), root in prop::option::of(0..64_usize), ranks in [0..64_usize, 0..64_usize],
            has_block in any::<bool>(),
        ) {
            let (channel, call) = (Channel { tree, is_up }, call(count, root));
            let header = Header { sequence, call, block: has_block.then_some((channel, number)) };
            prop_assert_eq!(Header::decode(&header.encode()), Some(header));
            let [rank, _] = ranks;
            for control in [
                Control::Credit { sequence, channel, blocks },
                Control::End(GroupError::Mismatch { sequence, ranks, calls: [call, Call { count: 0, ..call }] }),
                Control::End(GroupError::Cancelled { rank, sequence }),
                Control::End(GroupError::Lost { rank, reason: None }),
                Control::End(GroupError::Protocol { rank, sequence }),
                Control::End(GroupError::Left { rank }),
            ] {
                prop_assert_eq!(Control::decode(&control.encode()), Some(control));
            }
            let greeting = Greeting { rank: count, values: [1, 2, 3, 4, 5, u64::from(number)] };
            prop_assert_eq!(Greeting::decode(&greeting.encode()), Some(greeting));
        }

        /// Catches a panic on what a foreign program sends.
        #[test]
        fn other_bytes_are_refused_without_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..80)) {
            let _ = (Header::decode(&bytes), Control::decode(&bytes));
            prop_assert_eq!(Greeting::decode(&bytes), None);
        }
    }
}
