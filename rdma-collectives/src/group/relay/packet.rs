//! Packets of messages that go over other ranks

use super::super::ranks::Ranks;
use super::numbered::{Part, Purpose};
use super::routes::Reach;

/// A message between ranks that relay
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum Packet<'a> {
    /// What a rank says of itself; goes to all
    Reach { rank: usize, reach: Reach },
    /// A piece of a message
    Part { way: Endpoints, purpose: Purpose, part: Part<'a> },
    /// The sender has all messages before number `next`
    Confirmation { way: Endpoints, purpose: Purpose, next: u32 },
}

/// Between which ranks something goes
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Endpoints {
    pub(crate) from: usize,
    pub(crate) to: usize,
}

impl Packet<'_> {
    /// The length of what precedes the bytes of a part
    pub(crate) const HEADER: usize = 20;
    /// Where the number of ranks is that have passed it on
    const HOPS: usize = 18;

    pub(crate) fn encode(&self) -> Box<[u8]> {
        let mut bytes = vec![0; Self::HEADER];
        let (kind, [from, to], purpose, words, rest) = match *self {
            Packet::Reach {
                rank,
                reach: Reach { version, ref neighbours, ref lost, ref left, has_left },
            } => {
                [neighbours, lost, left].into_iter().for_each(|ranks| ranks.encode(&mut bytes));
                (0, [rank, usize::from(has_left)], 0, [version, 0, 0], &[][..])
            }
            Packet::Part { way, purpose, part: Part { number, offset, total, bytes } } => {
                (1, [way.from, way.to], purpose as u8, [number, offset as u32, total as u32], bytes)
            }
            Packet::Confirmation { way, purpose, next } => {
                (2, [way.from, way.to], purpose as u8, [next, 0, 0], &[][..])
            }
        };
        bytes[..2].copy_from_slice(&[kind, purpose]);
        bytes[2..4].copy_from_slice(&(from as u16).to_le_bytes());
        bytes[4..6].copy_from_slice(&(to as u16).to_le_bytes());
        for (bytes, word) in bytes[6..Self::HOPS].chunks_exact_mut(4).zip(words) {
            bytes.copy_from_slice(&word.to_le_bytes());
        }
        bytes.extend_from_slice(rest);
        bytes.into()
    }

    pub(crate) fn decode(message: &[u8]) -> Option<Packet<'_>> {
        let (header, bytes) = message.split_first_chunk::<{ Packet::HEADER }>()?;
        let word = |at: usize| header[at..].first_chunk().map_or(0, |bytes| u32::from_le_bytes(*bytes));
        let rank = |at: usize| usize::from(u16_at(header, at));
        let (way, words) = (Endpoints { from: rank(2), to: rank(4) }, [word(6), word(10), word(14)]);
        let purpose = Purpose::ALL.get(usize::from(header[1])).copied()?;
        Some(match (header[0], words) {
            (0, [version, ..]) => {
                let mut rest = bytes;
                let mut ranks = || Ranks::decode(&mut rest);
                let [neighbours, lost, left] = [ranks()?, ranks()?, ranks()?];
                let reach = Reach { version, neighbours, lost, left, has_left: way.to != 0 };
                if !rest.is_empty() {
                    return None;
                }
                Packet::Reach { rank: way.from, reach }
            }
            (1, [number, offset, total]) => {
                let part = Part { number, offset: offset as usize, total: total as usize, bytes };
                Packet::Part { way, purpose, part }
            }
            (2, [next, ..]) if bytes.is_empty() => Packet::Confirmation { way, purpose, next },
            _ => return None,
        })
    }

    /// The most bytes of a [`Reach`] in a group whose ranks have these neighbours
    pub(crate) fn max_reach_len(cabled: &[Ranks]) -> usize {
        // Neighbours that are reached, that are lost, and that have left.
        Self::HEADER + 3 * cabled.iter().map(Ranks::encoded_len).max().unwrap_or(0)
    }

    /// Whether it is about ranks of a group of so many
    pub(crate) fn is_among(&self, ranks: usize) -> bool {
        match *self {
            Packet::Reach { rank, .. } => rank < ranks,
            Packet::Part { way, .. } | Packet::Confirmation { way, .. } => way.from < ranks && way.to < ranks,
        }
    }

    /// Whether an encoded packet is the same as another one, but for the ranks that have passed it on
    pub(crate) fn is_repeated(one: &[u8], other: &[u8]) -> bool {
        one[..Self::HOPS] == other[..Self::HOPS] && one.len() == other.len()
    }

    /// Whether an encoded packet is an earlier statement of a rank than another one
    pub(crate) fn is_outdated(one: &[u8], other: &[u8]) -> bool {
        one[0] == 0 && one[..4] == other[..4]
    }

    /// How many ranks have passed a packet on
    pub(crate) fn count_hop(message: &mut [u8]) -> u16 {
        let Some(bytes) = message.get_mut(Self::HOPS..Self::HEADER) else { return u16::MAX };
        let hops = u16_at(bytes, 0).saturating_add(1);
        bytes.copy_from_slice(&hops.to_le_bytes());
        hops
    }
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    bytes[at..].first_chunk().map_or(0, |bytes| u16::from_le_bytes(*bytes))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::MAX_HOSTS;

    proptest! {
        /// Catches two fields that share bytes, and a packet that another rank changes as it passes it on.
        #[test]
        fn packets_survive_the_way(
            ranks in [0..MAX_HOSTS, 0..MAX_HOSTS], [number, offset, total] in any::<[u32; 3]>(),
            sets in prop::array::uniform3(prop::collection::vec(0..MAX_HOSTS, 0..80)),
            has_left in any::<bool>(), bytes in prop::collection::vec(any::<u8>(), 0..40), purpose in 0..4_usize,
        ) {
            let (way, purpose) = (Endpoints { from: ranks[0], to: ranks[1] }, Purpose::ALL[purpose]);
            let part = Part { number, offset: offset as usize, total: total as usize, bytes: &bytes };
            let [neighbours, lost, left] = sets.map(|ranks| ranks.into_iter().collect());
            let reach = Reach { version: number, neighbours, lost, left, has_left };
            for packet in [
                Packet::Reach { rank: ranks[0], reach },
                Packet::Part { way, purpose, part },
                Packet::Confirmation { way, purpose, next: number },
            ] {
                let mut message = packet.encode();
                prop_assert_eq!(Packet::decode(&message), Some(packet.clone()));
                let first = message.clone();
                prop_assert_eq!([Packet::count_hop(&mut message), Packet::count_hop(&mut message)], [1, 2]);
                prop_assert!(Packet::is_repeated(&first, &message));
                prop_assert_eq!(Packet::decode(&message), Some(packet));
            }
        }

        /// Catches a confirmation that is longer than the packets for which a rank has memory.
        #[test]
        fn a_confirmation_has_no_tail(next in any::<u32>(), tail in prop::collection::vec(any::<u8>(), 1..9)) {
            let way = Endpoints { from: 0, to: 1 };
            let message = Packet::Confirmation { way, purpose: Purpose::Data, next }.encode();
            let longer = [&message[..], &tail].concat();
            prop_assert_eq!(Packet::decode(&longer), None);
        }

        /// Regression: a packet whose hops no longer fitted a byte went in circles of more ranks for ever.
        #[test]
        fn hops_count_beyond_a_byte(next in any::<u32>()) {
            let way = Endpoints { from: 0, to: MAX_HOSTS - 1 };
            let mut message = Packet::Confirmation { way, purpose: Purpose::Data, next }.encode();
            let hops = (0..=MAX_HOSTS).map(|_| Packet::count_hop(&mut message));
            prop_assert_eq!(hops.last().map(usize::from), Some(MAX_HOSTS + 1));
        }

        /// Catches a panic on the bytes of a foreign program.
        #[test]
        fn other_bytes_are_refused_without_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..40)) {
            let _ = Packet::decode(&bytes);
            let _ = Packet::count_hop(&mut bytes.clone());
        }
    }
}
