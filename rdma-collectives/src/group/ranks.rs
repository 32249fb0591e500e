//! Sets of ranks

use std::sync::Arc;

use crate::{Cabling, MAX_HOSTS};

const _: () = assert!(MAX_HOSTS <= u16::MAX as usize, "a rank has 16 bits in messages");

/// A set of ranks, which takes memory for those that it has: a rank has few neighbours among a thousand ranks
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) struct Ranks(
    /// In ascending order
    Vec<u16>,
);

impl Ranks {
    /// The neighbours of each rank of a cabling
    pub(crate) fn cabled(cabling: &Cabling) -> Arc<[Self]> {
        let mut cabled = vec![Self::default(); cabling.hosts().len()];
        for [left, right] in cabling.cables().iter().map(|cable| cable.ends) {
            cabled[left].insert(right);
            cabled[right].insert(left);
        }
        cabled.into()
    }

    pub(crate) fn contains(&self, rank: usize) -> bool {
        self.place(rank).is_ok()
    }

    /// Adds a rank; returns whether it is new
    pub(crate) fn insert(&mut self, rank: usize) -> bool {
        let place = self.place(rank);
        if let Err(place) = place {
            self.0.insert(place, rank as u16);
        }
        place.is_err()
    }

    /// Removes a rank; returns whether it was there
    pub(crate) fn remove(&mut self, rank: usize) -> bool {
        let place = self.place(rank);
        if let Ok(place) = place {
            self.0.remove(place);
        }
        place.is_ok()
    }

    /// The ranks, in ascending order
    pub(crate) fn iter(&self) -> impl Iterator<Item = usize> {
        self.0.iter().copied().map(usize::from)
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// The ranks that both sets have
    pub(crate) fn common(&self, other: &Self) -> Self {
        Self(self.0.iter().copied().filter(|rank| other.contains(usize::from(*rank))).collect())
    }

    /// Appends the number of ranks and the ranks
    pub(crate) fn encode(&self, bytes: &mut Vec<u8>) {
        let numbers = [self.0.len() as u16].into_iter().chain(self.0.iter().copied());
        bytes.extend(numbers.flat_map(u16::to_le_bytes));
    }

    /// The length of the encoded set in bytes
    pub(crate) fn encoded_len(&self) -> usize {
        2 + 2 * self.len()
    }

    /// Takes an encoded set from the front of a message; its order does not count, and no rank is in it twice
    pub(crate) fn decode(message: &mut &[u8]) -> Option<Self> {
        let (len, rest) = message.split_first_chunk()?;
        let len = usize::from(u16::from_le_bytes(*len));
        let (ranks, rest) = rest.split_at_checked(2 * len)?;
        *message = rest;
        let ranks = ranks.as_chunks().0.iter().map(|bytes| usize::from(u16::from_le_bytes(*bytes)));
        Some(ranks.collect::<Self>()).filter(|ranks| ranks.len() == len)
    }

    fn place(&self, rank: usize) -> Result<usize, usize> {
        self.0.binary_search_by(|other| usize::from(*other).cmp(&rank))
    }
}

impl FromIterator<usize> for Ranks {
    fn from_iter<I: IntoIterator<Item = usize>>(ranks: I) -> Self {
        let mut ranks: Vec<_> = ranks.into_iter().map(|rank| rank as u16).collect();
        ranks.sort_unstable();
        ranks.dedup();
        Self(ranks)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Catches a rank that is twice in a set or out of order, and an encoded set whose end is taken for what follows it.
        #[test]
        fn sets_of_ranks_are_sets(one in prop::collection::vec(0..MAX_HOSTS, 0..80), other in prop::collection::vec(0..MAX_HOSTS, 0..80)) {
            let (mut ranks, others) = (one.iter().copied().collect::<Ranks>(), other.iter().copied().collect::<Ranks>());
            let (mut set, other_set) = (BTreeSet::from_iter(one), BTreeSet::from_iter(other));
            prop_assert!(ranks.common(&others).iter().eq(set.intersection(&other_set).copied()));
            for rank in &other_set {
                prop_assert_eq!(ranks.contains(*rank), set.contains(rank));
                if rank % 2 == 0 {
                    prop_assert_eq!(ranks.insert(*rank), set.insert(*rank));
                } else {
                    prop_assert_eq!(ranks.remove(*rank), set.remove(rank));
                }
            }
            prop_assert!(ranks.iter().eq(set.iter().copied()) && ranks.len() == set.len());
            let mut bytes = Vec::new();
            [&ranks, &others].into_iter().for_each(|ranks| ranks.encode(&mut bytes));
            prop_assert_eq!(bytes.len(), ranks.encoded_len() + others.encoded_len());
            let mut message = &bytes[..];
            prop_assert_eq!(Ranks::decode(&mut message), Some(ranks));
            prop_assert_eq!(Ranks::decode(&mut message), Some(others));
            prop_assert!(message.is_empty() && Ranks::decode(&mut message).is_none());
        }
    }

    /// Catches a message that names a rank again and again, and is longer than the sets of its group.
    #[test]
    fn a_set_that_has_a_rank_twice_is_refused() {
        let decode = |bytes: &[u8]| Ranks::decode(&mut &*bytes);
        assert_eq!(decode(&[2, 0, 9, 0, 7, 0]), Some(Ranks::from_iter([7, 9])));
        assert_eq!(decode(&[2, 0, 9, 0, 9, 0]), None);
    }
}
