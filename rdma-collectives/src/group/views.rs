//! Which ranks go on together after others were lost: the knowledge of one rank, and its conclusion

use std::collections::BTreeMap;

use crate::cabling::hash;

/// A set of ranks of the founding group: bit `r` for rank `r`
pub(super) type Ranks = u64;

pub(super) fn set(ranks: impl IntoIterator<Item = usize>) -> Ranks {
    ranks.into_iter().fold(0, |set, rank| set | 1 << rank)
}

pub(super) fn members(set: Ranks) -> impl Iterator<Item = usize> {
    (0..Ranks::BITS as usize).filter(move |rank| set >> rank & 1 == 1)
}

/// What a rank says of itself; a newer version replaces an older one
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) struct View {
    pub(super) version: u64,
    /// The ranks with which it has a session that works
    pub(super) neighbours: Ranks,
    /// Those of them to which no path carries data now
    pub(super) unreached: Ranks,
    /// The ranks of which it knows that they have left
    pub(super) gone: Ranks,
}

/// The ranks that go on, and the pairs of them that have a session
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Decision {
    pub(super) members: Ranks,
    /// In ascending order, the lower rank first
    pub(super) pairs: Vec<[usize; 2]>,
}

impl Decision {
    /// The same on two ranks only if they decided the same in the same attempt; never 0
    pub(super) fn fingerprint(&self, attempt: u64) -> u64 {
        hash(format!("{attempt} {self:?}").as_bytes()).max(1)
    }

    /// The ranks with which `rank` has a session
    pub(super) fn neighbours(&self, rank: usize) -> impl Iterator<Item = usize> {
        self.pairs.iter().filter_map(move |&[left, right]| match rank {
            _ if rank == left => Some(right),
            _ if rank == right => Some(left),
            _ => None,
        })
    }

    /// Whether these ranks may go on if all of `group` was a group: more than half of it, or half with its lowest rank
    pub(super) fn has_quorum(&self, group: Ranks) -> bool {
        let (here, all) = (self.members & group, group.count_ones());
        2 * here.count_ones() > all || 2 * here.count_ones() == all && here >> group.trailing_zeros() & 1 == 1
    }
}

/// The views of all ranks from which this one has heard, itself among them
#[derive(Clone, Debug)]
pub(super) struct Views {
    own: usize,
    /// The ranks of the group: what others say of further ranks does not count
    group: Ranks,
    views: BTreeMap<usize, View>,
}

impl Views {
    /// What rank `own` of `group` knows at first; the epoch of the group makes it newer than all that was said in earlier ones
    pub(super) fn new(own: usize, group: Ranks, epoch: u64, neighbours: Ranks) -> Self {
        let view = View { version: epoch.saturating_add(1) << 32, neighbours, ..View::default() };
        Self { own, group, views: BTreeMap::from([(own, view)]) }
    }

    pub(super) fn views(&self) -> &BTreeMap<usize, View> {
        &self.views
    }

    /// Notes that the session with a neighbour is over, or that this rank goes on without it
    pub(super) fn lose(&mut self, neighbour: usize) {
        self.change(|view| view.neighbours &= !(1 << neighbour));
    }

    /// Notes that this rank does not go on without the session with a neighbour, which it had given up
    pub(super) fn take_back(&mut self, neighbour: usize) {
        self.change(|view| view.neighbours |= 1 << neighbour);
    }

    /// Notes whether a path to a neighbour carries data
    pub(super) fn reach(&mut self, neighbour: usize, is_reached: bool) {
        self.change(|view| {
            view.unreached = view.unreached & !(1 << neighbour) | Ranks::from(!is_reached) << neighbour;
        });
    }

    /// Changes what this rank says of itself
    fn change(&mut self, change: impl FnOnce(&mut View)) {
        let Some(view) = self.views.get_mut(&self.own) else { return };
        let before = *view;
        change(view);
        view.version += u64::from(*view != before);
    }

    /// Whether no path to a neighbour carries data
    pub(super) fn is_unreached(&self, neighbour: usize) -> bool {
        self.views.get(&self.own).is_some_and(|view| view.unreached >> neighbour & 1 == 1)
    }

    /// Whether others that this rank reaches reach a neighbour, by paths that carry data as far as both of their ends have said
    pub(super) fn leads_around(&self, neighbour: usize) -> bool {
        let reaches = |view: &View, rank: usize| (view.neighbours & !view.unreached) >> rank & 1 == 1;
        let (mut reached, mut pending, gone) = (1 << self.own, vec![self.own], self.gone());
        while let Some(rank) = pending.pop() {
            let Some(view) = self.views.get(&rank) else { continue };
            let is_direct = |other: usize| rank == self.own && other == neighbour;
            for next in members(view.neighbours & !view.unreached & !gone & !reached) {
                let is_mutual = self.views.get(&next).is_none_or(|view| reaches(view, rank));
                if is_mutual && !is_direct(next) {
                    reached |= 1 << next;
                    pending.push(next);
                }
            }
        }
        reached >> neighbour & 1 == 1
    }

    /// Notes that a neighbour has left
    pub(super) fn leave(&mut self, neighbour: usize) {
        self.change(|view| view.gone |= 1 << neighbour);
    }

    /// Takes over what another rank knows
    pub(super) fn merge(&mut self, views: &BTreeMap<usize, View>) {
        let counts = |(rank, view): &(&usize, &View)| self.group >> **rank & 1 == 1 && view.version > 0;
        for (&rank, view) in views.iter().filter(counts) {
            let known = self.views.entry(rank).or_default();
            if rank != self.own && view.version > known.version {
                let [neighbours, unreached, gone] =
                    [view.neighbours, view.unreached, view.gone].map(|ranks| ranks & self.group);
                *known = View { version: view.version, neighbours, unreached, gone };
            }
        }
    }

    /// Whether a rank says that this one has left
    pub(super) fn is_excluded(&self) -> bool {
        self.gone() >> self.own & 1 == 1
    }

    /// The ranks that have left
    pub(super) fn gone(&self) -> Ranks {
        self.views.values().fold(0, |gone, view| gone | view.gone)
    }

    /// The ranks that this one reaches, as soon as each of them has said which it reaches
    pub(super) fn decision(&self) -> Option<Decision> {
        let gone = self.gone();
        let (mut members, mut pending, mut pairs) = (1 << self.own, vec![self.own], Vec::new());
        while let Some(rank) = pending.pop() {
            for neighbour in self::members(self.views.get(&rank)?.neighbours & !gone) {
                // A session that one end alone calls lost is lost.
                let is_mutual = self.views.get(&neighbour)?.neighbours >> rank & 1 == 1;
                if is_mutual && rank < neighbour {
                    pairs.push([rank, neighbour]);
                }
                if is_mutual && members >> neighbour & 1 == 0 {
                    members |= 1 << neighbour;
                    pending.push(neighbour);
                }
            }
        }
        pairs.sort_unstable();
        Some(Decision { members, pairs })
    }
}

/// The message by which ranks tell each other all views that they know
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Statement {
    /// Rises when ranks begin again; the highest one counts
    pub(super) attempt: u64,
    /// Fingerprint of the decision of the sender, or 0 while it has none
    pub(super) decided: u64,
    pub(super) views: BTreeMap<usize, View>,
}

const STATEMENT: u64 = u64::from_le_bytes(*b"rdma-ngs");

impl Statement {
    pub(super) fn encode(&self) -> Vec<u8> {
        let views = self.views.iter().flat_map(|(rank, view)| {
            [*rank as u64, view.version, view.neighbours, view.unreached, view.gone]
        });
        let words = [STATEMENT, self.attempt, self.decided].into_iter().chain(views);
        words.flat_map(u64::to_le_bytes).collect()
    }

    pub(super) fn decode(message: &[u8]) -> Option<Self> {
        let (words, rest) = message.as_chunks::<8>();
        let words: Vec<_> = words.iter().map(|word| u64::from_le_bytes(*word)).collect();
        let [STATEMENT, attempt, decided, views @ ..] = &words[..] else { return None };
        let (views, others) = views.as_chunks::<5>();
        let views: BTreeMap<_, _> = views
            .iter()
            .filter(|[rank, ..]| *rank < u64::from(Ranks::BITS))
            .map(|&[rank, version, neighbours, unreached, gone]| {
                (rank as usize, View { version, neighbours, unreached, gone })
            })
            .collect();
        (rest.is_empty() && others.is_empty()).then_some(Self { attempt: *attempt, decided: *decided, views })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The views of ranks that lost these sessions, each known to rank `own`
    fn known(own: usize, neighbours: &[&[usize]]) -> Views {
        let mut views = Views::new(own, Ranks::MAX, 0, set(neighbours[own].iter().copied()));
        let all = neighbours.iter().enumerate().map(|(rank, neighbours)| {
            (rank, View { version: 1, neighbours: set(neighbours.iter().copied()), ..View::default() })
        });
        views.merge(&all.collect());
        views
    }

    /// Catches a rank that decides before its neighbours have spoken, and one that counts a session which the other end has lost.
    #[test]
    fn a_rank_decides_when_all_that_it_reaches_have_spoken() {
        let mut views = Views::new(0, 0b1111, 0, 0b10);
        assert_eq!(views.decision(), None);
        views.merge(&BTreeMap::from([(1, View { version: 1, neighbours: 0b101, ..View::default() })]));
        assert_eq!(views.decision(), None);
        views.merge(&BTreeMap::from([(2, View { version: 1, neighbours: 0b1010, ..View::default() })]));
        assert_eq!(views.decision(), None);
        views.merge(&BTreeMap::from([(3, View { version: 1, ..View::default() })]));
        let decision = Decision { members: 0b111, pairs: vec![[0, 1], [1, 2]] };
        assert_eq!(views.decision(), Some(decision));
        views.merge(&BTreeMap::from([(
            1,
            View { version: 2, neighbours: 0b101, gone: 0b100, ..View::default() },
        )]));
        assert_eq!(views.decision(), Some(Decision { members: 0b11, pairs: vec![[0, 1]] }));
        views.lose(1);
        assert_eq!(views.decision(), Some(Decision { members: 1, pairs: Vec::new() }));
        assert!(!views.is_excluded());
        views.merge(&BTreeMap::from([(3, View { version: 2, gone: 1, ..View::default() })]));
        assert!(views.is_excluded());
    }

    /// Catches two halves that both go on.
    #[test]
    fn a_minority_has_no_quorum() {
        let of = |members: Ranks, group: Ranks| Decision { members, pairs: Vec::new() }.has_quorum(group);
        assert!(of(0b011, 0b111) && of(0b110, 0b111) && !of(0b001, 0b111));
        assert!(of(0b0011, 0b1111) && of(0b1001, 0b1111) && !of(0b1100, 0b1111) && !of(0b0110, 0b1111));
        assert!(of(0b100, 0b100) && of(0b100, 0b1100) && !of(0b1000, 0b1100));
        // Ranks that were not in the group do not count.
        assert!(!of(0b11_0001, 0b1111));
    }

    /// Catches a decision that depends on the rank that makes it.
    #[test]
    fn ranks_with_the_same_views_decide_the_same() {
        let mesh: [&[usize]; 5] = [&[1, 2], &[0, 2], &[0, 1, 3], &[4], &[3]];
        let decisions: Vec<_> = (0..3).map(|own| known(own, &mesh).decision()).collect();
        assert_eq!(decisions[0].as_ref().map(|decision| decision.members), Some(0b111));
        assert!(decisions.iter().all(|decision| decision == &decisions[0]));
        assert_eq!(known(3, &mesh).decision().map(|decision| decision.members), Some(0b11000));
    }

    /// Regression: a peer that named a rank which the group does not have made it a member; a rank that began to shrink a second time
    /// counted as older than what it had said the first time.
    #[test]
    fn ranks_beyond_the_group_and_older_groups_do_not_count() {
        let mut views = Views::new(0, 0b11, 0, 0b10);
        let foreign = View { version: u64::MAX, neighbours: u64::MAX, unreached: 1 << 50, gone: 1 << 50 };
        let excluding = View { gone: 0b11, ..foreign };
        let nothing = View { version: 0, ..foreign };
        views.merge(&BTreeMap::from([(1, nothing)]));
        assert_eq!(views.decision(), None);
        views.merge(&BTreeMap::from([(1, foreign), (50, excluding)]));
        assert_eq!(views.decision(), Some(Decision { members: 0b11, pairs: vec![[0, 1]] }));
        let mut first = Views::new(0, 0b11, 0, 0b10);
        (0..10).for_each(|_| first.leave(5));
        assert!(Views::new(0, 0b11, 1, 0b10).views()[&0].version > first.views()[&0].version);
    }

    proptest! {
        /// Catches two fields that share bytes.
        #[test]
        fn statements_survive_the_way(
            attempt in any::<u64>(), decided in any::<u64>(),
            views in prop::collection::btree_map(0..64_usize, any::<[u64; 4]>(), 0..64),
        ) {
            let view = |[version, neighbours, unreached, gone]: [u64; 4]| View { version, neighbours, unreached, gone };
            let views = views.into_iter().map(|(rank, words)| (rank, view(words))).collect();
            let statement = Statement { attempt, decided, views };
            prop_assert_eq!(Statement::decode(&statement.encode()), Some(statement));
        }

        /// Catches a panic on the bytes of a foreign program.
        #[test]
        fn other_bytes_are_no_statement(bytes in prop::collection::vec(any::<u8>(), 0..80)) {
            prop_assert_eq!(Statement::decode(&bytes), None);
        }

        /// Catches two groups that go on side by side: any two sets with a quorum of a group have a rank in common.
        #[test]
        fn two_quorums_meet(group in 1..u64::MAX, one in any::<u64>(), other in any::<u64>()) {
            let of = |members| Decision { members, pairs: Vec::new() }.has_quorum(group);
            prop_assert!(!of(one) || !of(other) || one & other & group != 0);
        }
    }
}
