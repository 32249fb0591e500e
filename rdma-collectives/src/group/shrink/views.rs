//! Which ranks go on together after others were lost: the knowledge of one rank, and its conclusion

use std::collections::BTreeMap;

use crate::cabling::hash;
use crate::group::ranks::Ranks;

/// What a rank says of itself; a newer version replaces an older one
#[derive(Clone, Debug, Default, Eq, PartialEq)]
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
        let mut bytes = attempt.to_le_bytes().to_vec();
        self.members.encode(&mut bytes);
        bytes.extend(self.pairs.as_flattened().iter().flat_map(|rank| (*rank as u16).to_le_bytes()));
        hash(&bytes).max(1)
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
    pub(super) fn has_quorum(&self, group: &Ranks) -> bool {
        let here = self.members.common(group);
        let has_lowest = || group.iter().next().is_some_and(|lowest| here.contains(lowest));
        2 * here.len() > group.len() || 2 * here.len() == group.len() && has_lowest()
    }
}

/// The views of all ranks that this one knows of, itself among them
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

    /// Notes that the session with a neighbour is over, or that this rank goes on without it
    pub(super) fn lose(&mut self, neighbour: usize) {
        self.change(|view| view.neighbours.remove(neighbour));
    }

    /// Notes that this rank does not go on without the session with a neighbour, which it had given up
    pub(super) fn take_back(&mut self, neighbour: usize) {
        self.change(|view| view.neighbours.insert(neighbour));
    }

    /// Notes whether a path to a neighbour carries data
    pub(super) fn reach(&mut self, neighbour: usize, is_reached: bool) {
        self.change(|view| match is_reached {
            true => view.unreached.remove(neighbour),
            false => view.unreached.insert(neighbour),
        });
    }

    /// Changes what this rank says of itself; `change` returns whether anything has changed
    fn change(&mut self, change: impl FnOnce(&mut View) -> bool) {
        if let Some(view) = self.views.get_mut(&self.own) {
            view.version += u64::from(change(view));
        }
    }

    /// Whether no path to a neighbour carries data
    pub(super) fn is_unreached(&self, neighbour: usize) -> bool {
        self.views.get(&self.own).is_some_and(|view| view.unreached.contains(neighbour))
    }

    /// Whether other ranks lead to a neighbour, by paths that carry data as both of their ends have said
    pub(super) fn leads_around(&self, neighbour: usize) -> bool {
        self.leads_over_others(neighbour, true)
    }

    /// As [`leads_around`](Self::leads_around), as the nearer end of each path has said: what the other end says may be older
    pub(super) fn may_lead_around(&self, neighbour: usize) -> bool {
        self.leads_over_others(neighbour, false)
    }

    fn leads_over_others(&self, neighbour: usize, need_both_ends: bool) -> bool {
        let reaches =
            |view: &View, rank: usize| view.neighbours.contains(rank) && !view.unreached.contains(rank);
        let gone = self.gone();
        let (mut reached, mut pending) = (Ranks::from_iter([self.own]), vec![self.own]);
        while let Some(rank) = pending.pop() {
            let Some(view) = self.views.get(&rank) else { continue };
            let is_direct = |other: usize| rank == self.own && other == neighbour;
            for next in view.neighbours.iter().filter(|next| reaches(view, *next) && !gone.contains(*next)) {
                let is_mutual = self.views.get(&next).is_none_or(|view| match need_both_ends {
                    true => reaches(view, rank),
                    false => view.neighbours.contains(rank),
                });
                if is_mutual && !is_direct(next) && reached.insert(next) {
                    pending.push(next);
                }
            }
        }
        reached.contains(neighbour)
    }

    /// Notes that a neighbour has left
    pub(super) fn leave(&mut self, neighbour: usize) {
        self.change(|view| view.gone.insert(neighbour));
    }

    /// Takes over what another rank knows
    pub(super) fn merge(&mut self, views: &BTreeMap<usize, View>) {
        let counts = |(rank, view): &(&usize, &View)| self.group.contains(**rank) && view.version > 0;
        for (&rank, view) in views.iter().filter(counts) {
            let known = self.views.entry(rank).or_default();
            if rank != self.own && view.version > known.version {
                let [neighbours, unreached, gone] =
                    [&view.neighbours, &view.unreached, &view.gone].map(|ranks| ranks.common(&self.group));
                *known = View { version: view.version, neighbours, unreached, gone };
            }
        }
    }

    /// The views of which a rank that knows these versions does not know the newest
    pub(super) fn newer(&self, known: &Versions) -> BTreeMap<usize, View> {
        let is_newer = |(rank, view): &(&usize, &View)| view.version > known.of(**rank);
        self.views.iter().filter(is_newer).map(|(rank, view)| (*rank, view.clone())).collect()
    }

    /// Whether a rank says that this one has left
    pub(super) fn is_excluded(&self) -> bool {
        self.views.values().any(|view| view.gone.contains(self.own))
    }

    /// The ranks that have left
    pub(super) fn gone(&self) -> Ranks {
        self.views.values().flat_map(|view| view.gone.iter()).collect()
    }

    /// The ranks that this one reaches, as soon as each of them has said which it reaches
    pub(super) fn decision(&self) -> Option<Decision> {
        let gone = self.gone();
        let (mut members, mut pending) = (Ranks::from_iter([self.own]), vec![self.own]);
        let mut pairs = Vec::new();
        while let Some(rank) = pending.pop() {
            let neighbours = self.views.get(&rank)?.neighbours.iter();
            for neighbour in neighbours.filter(|neighbour| !gone.contains(*neighbour)) {
                // A session that one end alone calls lost is lost.
                let is_mutual = self.views.get(&neighbour)?.neighbours.contains(rank);
                if is_mutual && rank < neighbour {
                    pairs.push([rank, neighbour]);
                }
                if is_mutual && members.insert(neighbour) {
                    pending.push(neighbour);
                }
            }
        }
        pairs.sort_unstable();
        Some(Decision { members, pairs })
    }
}

/// Which version of the view of each rank another rank knows
#[derive(Debug, Default)]
pub(super) struct Versions(BTreeMap<usize, u64>);

impl Versions {
    /// 0 if it knows none
    fn of(&self, rank: usize) -> u64 {
        self.0.get(&rank).copied().unwrap_or(0)
    }

    /// Notes that these views were sent to the other rank, or came from it
    pub(super) fn note(&mut self, views: &BTreeMap<usize, View>) {
        for (&rank, view) in views {
            let known = self.0.entry(rank).or_default();
            *known = view.version.max(*known);
        }
    }
}

/// The message by which a rank states its decision to a neighbour, and all views that the neighbour does not know yet
#[derive(Clone, Debug, Eq, PartialEq)]
pub(in crate::group) struct Statement {
    /// Rises when ranks begin again; the highest one counts
    pub(super) attempt: u64,
    /// Fingerprint of the decision of the sender, or 0 while it has none
    pub(super) decided: u64,
    pub(super) views: BTreeMap<usize, View>,
}

const STATEMENT: u64 = u64::from_le_bytes(*b"rdma-ngs");

impl Statement {
    /// The most bytes of one in a group whose ranks have these neighbours
    pub(in crate::group) fn max_len(cabled: &[Ranks]) -> usize {
        // Of each rank its number, its version, and three sets of neighbours.
        24 + cabled.iter().map(|neighbours| 10 + 3 * neighbours.encoded_len()).sum::<usize>()
    }

    pub(super) fn encode(&self) -> Vec<u8> {
        let words = [STATEMENT, self.attempt, self.decided];
        let mut bytes: Vec<_> = words.into_iter().flat_map(u64::to_le_bytes).collect();
        for (rank, View { version, neighbours, unreached, gone }) in &self.views {
            bytes.extend((*rank as u16).to_le_bytes());
            bytes.extend(version.to_le_bytes());
            [neighbours, unreached, gone].into_iter().for_each(|ranks| ranks.encode(&mut bytes));
        }
        bytes
    }

    pub(super) fn decode(message: &[u8]) -> Option<Self> {
        let mut rest = message;
        let [STATEMENT, attempt, decided] = [word(&mut rest)?, word(&mut rest)?, word(&mut rest)?] else {
            return None;
        };
        let mut views = BTreeMap::new();
        while !rest.is_empty() {
            let (rank, mut view) = rest.split_first_chunk()?;
            let version = word(&mut view)?;
            let [neighbours, unreached, gone] =
                [Ranks::decode(&mut view)?, Ranks::decode(&mut view)?, Ranks::decode(&mut view)?];
            let of_rank = View { version, neighbours, unreached, gone };
            views.insert(usize::from(u16::from_le_bytes(*rank)), of_rank);
            rest = view;
        }
        Some(Self { attempt, decided, views })
    }
}

/// Takes a number from the front of a message
fn word(message: &mut &[u8]) -> Option<u64> {
    let (bytes, rest) = message.split_first_chunk()?;
    *message = rest;
    Some(u64::from_le_bytes(*bytes))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::MAX_HOSTS;

    fn set<const N: usize>(ranks: [usize; N]) -> Ranks {
        ranks.into_iter().collect()
    }

    fn view(version: u64, neighbours: &[usize], gone: &[usize]) -> View {
        let [neighbours, gone] = [neighbours, gone].map(|ranks| ranks.iter().copied().collect());
        View { version, neighbours, gone, ..View::default() }
    }

    /// The views of ranks that lost these sessions, each known to rank `own`
    fn known(own: usize, neighbours: &[&[usize]]) -> Views {
        let mut views = Views::new(own, (0..64).collect(), 0, neighbours[own].iter().copied().collect());
        let all = neighbours.iter().enumerate().map(|(rank, neighbours)| (rank, view(1, neighbours, &[])));
        views.merge(&all.collect());
        views
    }

    /// Catches a rank that decides before its neighbours have spoken, and one that counts a session which the other end has lost.
    #[test]
    fn a_rank_decides_when_all_that_it_reaches_have_spoken() {
        let mut views = Views::new(0, set([0, 1, 2, 3]), 0, set([1]));
        assert_eq!(views.decision(), None);
        views.merge(&BTreeMap::from([(1, view(1, &[0, 2], &[]))]));
        assert_eq!(views.decision(), None);
        views.merge(&BTreeMap::from([(2, view(1, &[1, 3], &[]))]));
        assert_eq!(views.decision(), None);
        views.merge(&BTreeMap::from([(3, view(1, &[], &[]))]));
        let decision = Decision { members: set([0, 1, 2]), pairs: vec![[0, 1], [1, 2]] };
        assert_eq!(views.decision(), Some(decision));
        views.merge(&BTreeMap::from([(1, view(2, &[0, 2], &[2]))]));
        assert_eq!(views.decision(), Some(Decision { members: set([0, 1]), pairs: vec![[0, 1]] }));
        views.lose(1);
        assert_eq!(views.decision(), Some(Decision { members: set([0]), pairs: Vec::new() }));
        assert!(!views.is_excluded());
        views.merge(&BTreeMap::from([(3, view(2, &[], &[0]))]));
        assert!(views.is_excluded());
    }

    /// Catches two halves that both go on.
    #[test]
    fn a_minority_has_no_quorum() {
        fn of<const N: usize, const M: usize>(members: [usize; N], group: [usize; M]) -> bool {
            Decision { members: set(members), pairs: Vec::new() }.has_quorum(&set(group))
        }
        assert!(of([0, 1], [0, 1, 2]) && of([1, 2], [0, 1, 2]) && !of([0], [0, 1, 2]));
        assert!(of([0, 1], [0, 1, 2, 3]) && of([0, 3], [0, 1, 2, 3]));
        assert!(!of([2, 3], [0, 1, 2, 3]) && !of([1, 2], [0, 1, 2, 3]));
        assert!(of([2], [2]) && of([2], [2, 3]) && !of([3], [2, 3]));
        // Ranks that were not in the group do not count.
        assert!(!of([0, 4, 5], [0, 1, 2, 3]));
    }

    /// Catches a decision that depends on the rank that makes it.
    #[test]
    fn ranks_with_the_same_views_decide_the_same() {
        let mesh: [&[usize]; 5] = [&[1, 2], &[0, 2], &[0, 1, 3], &[4], &[3]];
        let decisions: Vec<_> = (0..3).map(|own| known(own, &mesh).decision()).collect();
        assert_eq!(decisions[0].as_ref().map(|decision| &decision.members), Some(&set([0, 1, 2])));
        assert!(decisions.iter().all(|decision| decision == &decisions[0]));
        assert_eq!(known(3, &mesh).decision().map(|decision| decision.members), Some(set([3, 4])));
    }

    /// Regression: a peer that named a rank which the group does not have made it a member; a rank that began to shrink a second time
    /// counted as older than what it had said the first time.
    #[test]
    fn ranks_beyond_the_group_and_older_groups_do_not_count() {
        let mut views = Views::new(0, set([0, 1]), 0, set([1]));
        let foreign = view(u64::MAX, &Vec::from_iter(0..64), &[50]);
        let excluding = View { gone: set([0, 1]), ..foreign.clone() };
        let nothing = View { version: 0, ..foreign.clone() };
        views.merge(&BTreeMap::from([(1, nothing)]));
        assert_eq!(views.decision(), None);
        views.merge(&BTreeMap::from([(1, foreign), (50, excluding)]));
        assert_eq!(views.decision(), Some(Decision { members: set([0, 1]), pairs: vec![[0, 1]] }));
        let mut first = Views::new(0, set([0, 1]), 0, set([1]));
        (0..10).for_each(|_| first.leave(5));
        let version = |views: &Views| views.newer(&Versions::default())[&0].version;
        assert!(version(&Views::new(0, set([0, 1]), 1, set([1]))) > version(&first));
    }

    /// Catches a bound that a rank exceeds which reaches none of its neighbours, because all of them have left.
    #[test]
    fn no_statement_is_longer_than_its_cabling_allows() {
        let cabled = Ranks::cabled(&crate::Cabling::circulant(MAX_HOSTS, &[1, 32], 1));
        let all =
            |of: &Ranks| View { version: 1, neighbours: of.clone(), unreached: of.clone(), gone: of.clone() };
        let views = cabled.iter().map(all).enumerate().collect();
        let statement = Statement { attempt: 1, decided: 1, views };
        assert_eq!(statement.encode().len(), Statement::max_len(&cabled));
    }

    /// Catches a view that a neighbour is sent again, and one that it never is.
    #[test]
    fn a_neighbour_is_sent_what_it_does_not_know() {
        let mut views = Views::new(0, set([0, 1, 2]), 0, set([1]));
        let mut known = Versions::default();
        views.merge(&BTreeMap::from([(2, view(7, &[1], &[]))]));
        let newer = |views: &Views, known: &Versions| Vec::from_iter(views.newer(known).into_keys());
        assert_eq!(newer(&views, &known), [0, 2]);
        // It came from this neighbour.
        known.note(&BTreeMap::from([(2, view(7, &[1], &[]))]));
        assert_eq!(newer(&views, &known), [0]);
        known.note(&views.newer(&known));
        assert!(newer(&views, &known).is_empty());
        known.note(&BTreeMap::from([(2, view(6, &[1], &[]))]));
        assert!(newer(&views, &known).is_empty());
        views.merge(&BTreeMap::from([(2, view(8, &[], &[]))]));
        assert_eq!(newer(&views, &known), [2]);
        views.lose(1);
        assert_eq!(newer(&views, &known), [0, 2]);
    }

    /// Regression: a rank took a neighbour back because of an old statement, when the others had formed the group.
    #[test]
    fn a_rank_believes_the_nearer_end_of_a_path() {
        let out =
            |unreached: &[usize], view: View| View { unreached: unreached.iter().copied().collect(), ..view };
        let leads = |zero: &[usize], two: &[usize]| {
            let mut views = Views::new(1, set([0, 1, 2]), 0, set([0, 2]));
            views.reach(2, false);
            let [zero, two] = [out(zero, view(1, &[1, 2], &[])), out(two, view(1, &[0, 1], &[]))];
            views.merge(&BTreeMap::from([(0, zero), (2, two)]));
            [views.leads_around(2), views.may_lead_around(2)]
        };
        assert_eq!(leads(&[], &[]), [true; 2]);
        assert_eq!(leads(&[], &[0]), [false, true]);
        assert_eq!(leads(&[2], &[]), [false; 2]);
    }

    fn ranks() -> impl Strategy<Value = Ranks> {
        prop::collection::vec(0..MAX_HOSTS, 0..40).prop_map(Ranks::from_iter)
    }

    proptest! {
        /// Catches two fields that share bytes, and a rank that does not fit its field.
        #[test]
        fn statements_survive_the_way(
            attempt in any::<u64>(), decided in any::<u64>(),
            views in prop::collection::btree_map(0..MAX_HOSTS, (any::<u64>(), ranks(), ranks(), ranks()), 0..64),
        ) {
            let view = |(version, neighbours, unreached, gone)| View { version, neighbours, unreached, gone };
            let views = views.into_iter().map(|(rank, parts)| (rank, view(parts))).collect();
            let statement = Statement { attempt, decided, views };
            let mut encoded = statement.encode();
            prop_assert_eq!(Statement::decode(&encoded), Some(statement));
            encoded.push(0);
            prop_assert_eq!(Statement::decode(&encoded), None);
        }

        /// Catches a panic on the bytes of a foreign program.
        #[test]
        fn other_bytes_are_no_statement(bytes in prop::collection::vec(any::<u8>(), 0..80)) {
            prop_assert_eq!(Statement::decode(&bytes), None);
        }

        /// Catches two groups that go on side by side: any two sets with a quorum of a group have a rank in common.
        #[test]
        fn two_quorums_meet(
            (group, members) in prop::collection::btree_set(0..MAX_HOSTS, 2..40).prop_flat_map(|group| {
                let (group, len) = (Vec::from_iter(group), 0..4_usize);
                // Half of the ranks on average, so that often two sets have exactly half, and foreign ones.
                let members = prop::collection::vec(any::<bool>(), group.len());
                let foreign = prop::collection::vec(0..MAX_HOSTS, len);
                (Just(group), prop::array::uniform2((members, foreign)))
            }),
        ) {
            let [one, other] = members.map(|(is_member, foreign)| {
                let members = group.iter().zip(is_member).filter(|(_, is_member)| *is_member);
                members.map(|(rank, _)| *rank).chain(foreign).collect::<Ranks>()
            });
            let group = Ranks::from_iter(group);
            let of = |members| Decision { members, pairs: Vec::new() }.has_quorum(&group);
            let common = one.common(&other).common(&group).len();
            prop_assert!(!of(one) || !of(other) || common > 0);
        }
    }
}
