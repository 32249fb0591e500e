//! Which neighbours each rank reaches, and the way to a rank over the others

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use super::super::error::GroupError;
use super::super::ranks::Ranks;

/// A statement of a rank on itself; a later version replaces an earlier one
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Reach {
    pub(crate) version: u32,
    /// The neighbours to which a path carries data
    pub(crate) neighbours: Ranks,
    /// The neighbours the session with which is over
    pub(crate) lost: Ranks,
    /// The neighbours that have left the group
    pub(crate) left: Ranks,
    /// Whether the rank has left the group, and goes on only for the others
    pub(crate) has_left: bool,
}

/// What a rank knows of the cables of a group
#[derive(Clone, Debug)]
pub(crate) struct Routes {
    own: usize,
    /// By rank
    cabled: Arc<[Ranks]>,
    /// What ranks have said of themselves; each of the others reaches all its neighbours
    reaches: BTreeMap<usize, Reach>,
    /// The neighbours whose group is over, and those that have left their group
    closed: Ranks,
    /// By rank, what [`next_hops`](Self::next_hops) has found since the last change
    hops: BTreeMap<usize, Vec<usize>>,
    /// How often it had to search
    #[cfg(test)]
    searches: usize,
}

impl Routes {
    /// Of rank `own`, while all cables work
    pub(crate) fn new(own: usize, cabled: Arc<[Ranks]>) -> Self {
        let (lost, left) = Default::default();
        let reach = Reach { version: 0, neighbours: cabled[own].clone(), lost, left, has_left: false };
        Self {
            own,
            reaches: BTreeMap::from([(own, reach)]),
            cabled,
            closed: Ranks::default(),
            hops: BTreeMap::new(),
            #[cfg(test)]
            searches: 0,
        }
    }

    /// How many ranks there are
    pub(crate) fn ranks(&self) -> usize {
        self.cabled.len()
    }

    /// What this rank says of itself
    pub(crate) fn reach(&self) -> &Reach {
        &self.reaches[&self.own]
    }

    fn own_reach(&mut self) -> &mut Reach {
        self.reaches.get_mut(&self.own).unwrap_or_else(|| unreachable!("a rank knows itself"))
    }

    /// The neighbours that a rank reaches, as far as this one knows
    fn neighbours(&self, rank: usize) -> &Ranks {
        self.reaches.get(&rank).map_or(&self.cabled[rank], |reach| &reach.neighbours)
    }

    /// Notes whether a path to a neighbour carries data; returns whether that is news
    pub(crate) fn set_reached(&mut self, neighbour: usize, is_reached: bool) -> bool {
        let reach = self.own_reach();
        let is_news = match is_reached {
            true => reach.neighbours.insert(neighbour),
            false => reach.neighbours.remove(neighbour),
        };
        reach.version += u32::from(is_news);
        if is_news {
            self.hops.clear();
        }
        is_news
    }

    /// Notes that a neighbour relays no more because its group is over, or it has left
    pub(crate) fn close(&mut self, neighbour: usize) {
        self.closed.insert(neighbour);
        self.set_reached(neighbour, false);
    }

    /// Notes that nothing comes any more from a neighbour, which has left or is lost
    pub(crate) fn note_over(&mut self, neighbour: usize, has_left: bool) {
        let reach = self.own_reach();
        let ranks = if has_left { &mut reach.left } else { &mut reach.lost };
        reach.version += u32::from(ranks.insert(neighbour));
    }

    /// Notes that this rank has left the group
    pub(crate) fn leave(&mut self) {
        let reach = self.own_reach();
        (reach.version, reach.has_left) = (reach.version + 1, true);
    }

    /// Notes what another rank says of itself; returns whether that is news
    pub(crate) fn update(&mut self, rank: usize, reach: Reach) -> bool {
        let known = self.reaches.get(&rank).map_or(0, |reach| reach.version);
        let is_news = rank != self.own && rank < self.ranks() && known < reach.version;
        let is_news = is_news && {
            let most = self.cabled[rank].len();
            [&reach.neighbours, &reach.lost, &reach.left].iter().all(|ranks| ranks.len() <= most)
        };
        if is_news {
            let neighbours = reach.neighbours.common(&self.cabled[rank]);
            self.reaches.insert(rank, Reach { neighbours, ..reach });
            self.hops.clear();
        }
        is_news
    }

    /// Whether a cable is out, as far as this rank knows
    pub(crate) fn has_outage(&self) -> bool {
        let mut ranks = self.reaches.iter().filter(|(rank, _)| !self.closed.contains(**rank));
        ranks.any(|(rank, reach)| {
            let mut cabled = self.cabled[*rank].iter();
            cabled.any(|other| !reach.neighbours.contains(other) && !self.closed.contains(other))
        })
    }

    /// Whether all ranks that are reached have left the group
    pub(crate) fn have_all_left(&self) -> bool {
        let distances = self.distances(self.own);
        let mut reached = (0..self.ranks()).filter(|rank| distances[*rank].is_some());
        reached.all(|rank| self.has_left(rank))
    }

    /// Whether a rank has left the group, as far as this one knows
    pub(crate) fn has_left(&self, rank: usize) -> bool {
        self.reaches.get(&rank).is_some_and(|reach| reach.has_left) || self.closed.contains(rank)
    }

    /// The neighbours over which the shortest ways to rank `to` go: packets ask for each, so they are searched once after a change
    pub(crate) fn next_hops(&mut self, to: usize) -> &[usize] {
        if !self.hops.contains_key(&to) {
            let hops = self.find_hops(to);
            self.hops.insert(to, hops);
            #[cfg(test)]
            {
                self.searches += 1;
            }
        }
        &self.hops[&to]
    }

    fn find_hops(&self, to: usize) -> Vec<usize> {
        let neighbours = || self.mutual_neighbours(self.own);
        if neighbours().any(|neighbour| neighbour == to) {
            return vec![to];
        }
        let distances = self.distances(to);
        let shortest = neighbours().filter_map(|neighbour| distances[neighbour]).min();
        neighbours().filter(|neighbour| shortest.is_some() && distances[*neighbour] == shortest).collect()
    }

    /// The neighbours of a rank that both say so
    fn mutual_neighbours(&self, rank: usize) -> impl Iterator<Item = usize> {
        self.neighbours(rank).iter().filter(move |other| self.neighbours(*other).contains(rank))
    }

    /// Why no way will lead to a rank again, as far as this one knows
    pub(crate) fn end_of(&self, rank: usize) -> Option<GroupError> {
        // Most of the time there is nothing to look for.
        let is_over = |reach: &Reach| reach.lost.len() + reach.left.len() > 0;
        if !self.reaches.values().any(is_over) {
            return None;
        }
        let is_over = |one: usize, other: usize| {
            let reach = self.reaches.get(&one);
            reach.is_some_and(|reach| reach.lost.contains(other) || reach.left.contains(other))
        };
        let remaining = |rank: usize| {
            self.cabled[rank].iter().filter(move |other| !is_over(rank, *other) && !is_over(*other, rank))
        };
        if distances(self.own, self.ranks(), remaining)[rank].is_some() {
            return None;
        }
        let has_left = self.reaches.get(&rank).is_some_and(|reach| reach.has_left)
            || self.reaches.values().any(|reach| reach.left.contains(rank));
        Some(if has_left { GroupError::Left { rank } } else { GroupError::Lost { rank, reason: None } })
    }

    /// How many cables lead to each rank, if any do
    fn distances(&self, from: usize) -> Vec<Option<usize>> {
        distances(from, self.ranks(), |rank| self.mutual_neighbours(rank))
    }
}

/// How many steps lead from one rank to each of `ranks`
fn distances<I>(from: usize, ranks: usize, neighbours: impl Fn(usize) -> I) -> Vec<Option<usize>>
where
    I: Iterator<Item = usize>,
{
    let mut distances = vec![None; ranks];
    distances[from] = Some(0);
    let mut queue = VecDeque::from([(from, 0)]);
    while let Some((rank, distance)) = queue.pop_front() {
        for neighbour in neighbours(rank) {
            if distances[neighbour].is_none() {
                distances[neighbour] = Some(distance + 1);
                queue.push_back((neighbour, distance + 1));
            }
        }
    }
    distances
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Cabling;

    fn set<const N: usize>(ranks: [usize; N]) -> Ranks {
        ranks.into_iter().collect()
    }

    fn routes_over(cabling: &Cabling) -> Routes {
        Routes::new(0, Ranks::cabled(cabling))
    }

    fn without(neighbours: &Ranks, rank: usize, version: u32) -> Reach {
        let mut neighbours = neighbours.clone();
        neighbours.remove(rank);
        Reach { version, neighbours, lost: set([]), left: set([]), has_left: false }
    }

    /// Catches a way over a cable that is out, one that is longer than needed, and news that is older than what is known.
    #[test]
    fn the_way_goes_around_cables_that_are_out() {
        let mut routes = routes_over(&Cabling::ring(5, 1));
        let hops = |routes: &mut Routes| [1, 2, 3].map(|to| routes.next_hops(to).to_vec());
        assert_eq!(hops(&mut routes), [[1], [1], [4]]);
        assert!(!routes.has_outage());
        assert!(routes.set_reached(1, false) && !routes.set_reached(1, false));
        assert!(routes.has_outage());
        assert_eq!(hops(&mut routes), [[4], [4], [4]]);
        let of_3 = set([2, 4]);
        assert!(routes.update(3, without(&of_3, 2, 2)));
        assert_eq!(hops(&mut routes), [vec![], vec![], vec![4]]);
        assert!(!routes.update(3, without(&of_3, 5, 1)) && routes.next_hops(2).is_empty());
        assert!(routes.update(3, without(&of_3, 5, 3)));
        assert_eq!(routes.next_hops(1), [4]);
        assert_eq!(routes_over(&Cabling::ring(4, 1)).next_hops(2), [1, 3]);
        // A neighbour that has left is no cable that is out.
        let mut routes = routes_over(&Cabling::ring(3, 1));
        routes.close(2);
        assert!(!routes.has_outage() && routes.next_hops(2) == [1]);
        assert!(routes.set_reached(1, false) && routes.has_outage());
        // What others say of this rank does not count.
        let mut routes = routes_over(&Cabling::ring(5, 1));
        assert!(!routes.update(0, without(&set([1, 4]), 4, 9)));
    }

    /// Regression: the ways were searched for each packet. Also catches a way that is kept although a cable is out or back, here or elsewhere.
    #[test]
    fn ways_are_searched_once_after_each_change() {
        const PACKETS: usize = 1000;
        let mut routes = routes_over(&Cabling::ring(6, 1));
        let of_4 = set([3, 5]);
        let mut search = |change: &dyn Fn(&mut Routes) -> bool, expected: &[usize]| {
            assert!(change(&mut routes));
            let before = routes.searches;
            for _ in 0..PACKETS {
                assert_eq!(routes.next_hops(3), expected);
            }
            routes.searches - before
        };
        let searches = [
            search(&|_| true, &[1, 5]),
            search(&|routes| routes.set_reached(1, false), &[5]),
            search(&|routes| routes.set_reached(1, true), &[1, 5]),
            search(&|routes| routes.update(4, without(&of_4, 3, 1)), &[1]),
            search(&|routes| routes.update(4, without(&of_4, 9, 2)), &[1, 5]),
            // Nothing has changed.
            search(&|routes| !routes.update(4, without(&of_4, 3, 1)), &[1, 5]),
        ];
        assert_eq!(searches, [1, 1, 1, 1, 1, 0]);
    }

    /// Catches a statement of a rank that is kept and passed on although it names more neighbours than the rank has.
    #[test]
    fn a_rank_with_more_neighbours_than_cables_is_not_believed() {
        let mut routes = routes_over(&Cabling::ring(5, 1));
        let reach = |[neighbours, lost, left]: [Ranks; 3]| Reach {
            version: 1,
            neighbours,
            lost,
            left,
            has_left: false,
        };
        let (two, three) = (set([2, 4]), set([1, 2, 4]));
        for at in 0..3 {
            let mut sets = [(); 3].map(|()| two.clone());
            sets[at] = three.clone();
            assert!(!routes.update(3, reach(sets)), "{at}");
        }
        assert!(routes.update(3, reach([(); 3].map(|()| two.clone()))));
    }

    /// Catches a rank that waits for ranks which it does not reach, and one that does not wait for those it reaches.
    #[test]
    fn ranks_go_when_all_that_they_reach_have_left() {
        let mut routes = routes_over(&Cabling::line(3, 1));
        let left = |neighbours: Ranks| Reach {
            version: 1,
            neighbours,
            lost: set([]),
            left: set([]),
            has_left: true,
        };
        routes.leave();
        assert!(!routes.have_all_left());
        assert!(routes.update(1, left(set([0, 2]))) && !routes.have_all_left());
        assert!(routes.update(2, left(set([1]))) && routes.have_all_left());
        let mut alone = routes_over(&Cabling::line(2, 1));
        alone.leave();
        assert!(!alone.have_all_left());
        alone.set_reached(1, false);
        assert!(alone.have_all_left());
    }
}
