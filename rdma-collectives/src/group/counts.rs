//! How many elements the parts of ranks have

/// Numbers of elements, the same on all ranks
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) enum Counts {
    /// Of the vector, or of each part
    Even(usize),
    /// Of the part of each rank
    Parts(Vec<usize>),
    /// Of the part that each rank sends to each other one: by sender, then by receiver
    Pairs(Vec<Vec<usize>>),
}

/// Counts are planned for as if the largest one were so many: counts that differ little share a plan, and fractions stay small.
const STEPS: u128 = 256;

impl Counts {
    /// How many elements the vector, or the part of a rank, has
    pub(crate) fn part(&self, rank: usize) -> usize {
        match self {
            Self::Even(count) => *count,
            Self::Parts(counts) => counts[rank],
            Self::Pairs(counts) => counts[rank].iter().sum(),
        }
    }

    /// How many elements there are before the part of a rank, where all parts follow each other
    pub(crate) fn before(&self, rank: usize) -> usize {
        match self {
            Self::Even(count) => rank * count,
            Self::Parts(_) | Self::Pairs(_) => (0..rank).map(|other| self.part(other)).sum(),
        }
    }

    /// How many elements one rank sends to another
    pub(crate) fn pair(&self, [from, to]: [usize; 2]) -> usize {
        match self {
            Self::Pairs(counts) => counts[from][to],
            Self::Even(_) | Self::Parts(_) => self.part(from),
        }
    }

    /// How many elements the sender has before those of a pair
    pub(crate) fn sent_before(&self, [from, to]: [usize; 2]) -> usize {
        match self {
            Self::Even(count) => to * count,
            Self::Parts(_) | Self::Pairs(_) => (0..to).map(|other| self.pair([from, other])).sum(),
        }
    }

    /// How many elements the receiver has before those of a pair
    pub(crate) fn received_before(&self, [from, to]: [usize; 2]) -> usize {
        match self {
            Self::Even(count) => from * count,
            Self::Parts(_) | Self::Pairs(_) => (0..from).map(|other| self.pair([other, to])).sum(),
        }
    }

    /// How many elements there are, for an operation with so many parts if they are even
    pub(crate) fn total(&self, parts: u64) -> u64 {
        match self {
            Self::Even(count) => parts.saturating_mul(*count as u64),
            Self::Parts(counts) => sum(counts),
            Self::Pairs(counts) => counts.iter().map(|counts| sum(counts)).fold(0, u64::saturating_add),
        }
    }

    /// The relations between the counts, in whole numbers up to 256: a count that is not 0 stays so
    pub(crate) fn scaled(&self) -> Self {
        let scale = |counts: &[usize], [divisor, most]: [usize; 2]| -> Vec<usize> {
            let scale = |count: usize| match (most / divisor) as u128 {
                0..=STEPS => count / divisor,
                _ => (count as u128 * STEPS).div_ceil(most as u128) as usize,
            };
            counts.iter().copied().map(scale).collect()
        };
        match self {
            Self::Even(_) => Self::Even(1),
            Self::Parts(counts) => Self::Parts(scale(counts, range(counts.iter()))),
            Self::Pairs(pairs) => {
                let range = range(pairs.iter().flatten());
                Self::Pairs(pairs.iter().map(|counts| scale(counts, range)).collect())
            }
        }
    }
}

fn sum(counts: &[usize]) -> u64 {
    counts.iter().fold(0, |sum, &count| sum.saturating_add(count as u64))
}

/// The greatest common divisor, at least 1, and the greatest of all counts
fn range<'a>(counts: impl Iterator<Item = &'a usize> + Clone) -> [usize; 2] {
    let divisor = counts.clone().fold(0, |mut left, &right| {
        let mut rest = right;
        while rest > 0 {
            (left, rest) = (rest, left % rest);
        }
        left
    });
    [divisor.max(1), counts.copied().max().unwrap_or(0)]
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Catches a count that vanishes, so that no path carries its elements, and one that is planned for as another.
        #[test]
        fn scaled_counts_keep_their_relations(counts in prop::collection::vec(0..5_000_000_usize, 1..9)) {
            let Counts::Parts(scaled) = Counts::Parts(counts.clone()).scaled() else { unreachable!() };
            let [_, most] = range(counts.iter());
            for (count, scaled) in counts.iter().zip(scaled) {
                prop_assert!(scaled <= STEPS as usize);
                prop_assert_eq!(*count == 0, scaled == 0);
                let [exact, step] = [*count as f64 / most.max(1) as f64, 1.0 / STEPS as f64];
                prop_assert!((scaled as f64 * step - exact).abs() <= step || range(counts.iter())[0] > 1);
            }
        }
    }

    #[test]
    fn counts_with_small_relations_are_planned_for_exactly() {
        let counts = Counts::Pairs(vec![vec![0, 3_000_000], vec![768_000_000, 0]]);
        assert_eq!(counts.scaled(), Counts::Pairs(vec![vec![0, 1], vec![256, 0]]));
    }
}
