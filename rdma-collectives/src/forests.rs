use std::collections::VecDeque;

/// Edge-disjoint spanning trees of a graph whose edges have several copies, grown together (matroid union)
///
/// An edge that closes a cycle in each forest may still enter one if others change places: the search for such a chain labels the edges of
/// each cycle, and the cycles of those in the other forests. If it fails, all that it has labelled fills the hosts that these edges join:
/// no tree has room for a further edge among them, now or later.
pub(crate) struct Forests {
    hosts: usize,
    /// By copy of an edge
    ends: Vec<(usize, usize)>,
    /// By copy, the forest that has it
    forest_of: Vec<Option<usize>>,
    forests: Vec<Forest>,
    /// Sets of hosts that are full, as a partition: by host, another one of its set, or itself
    full: Vec<usize>,
}

#[derive(Clone)]
struct Forest {
    copies: usize,
    /// By host, neighbours and the copies to them
    neighbours: Vec<Vec<(usize, usize)>>,
    /// By host: the first host of its tree, how deep it is below that, and the host and the copy above it
    root: Vec<usize>,
    depth: Vec<usize>,
    above: Vec<Option<(usize, usize)>>,
}

impl Forests {
    /// Packs `count` trees; if that is impossible, the error is a partition of the hosts with too few copies between its parts
    ///
    /// All trees begin at host `centre` and take the copies in the order in which they reach hosts, so that they are low; the
    /// others then enter in the order of `ends`.
    ///
    /// # Errors
    ///
    /// The part of each host, as another host of it.
    pub(crate) fn pack(
        hosts: usize,
        ends: Vec<(usize, usize)>,
        count: usize,
        centre: usize,
    ) -> Result<Vec<Vec<(usize, usize)>>, Vec<usize>> {
        let forest_of = vec![None; ends.len()];
        let forests = vec![Forest::new(hosts); count];
        let mut packing = Self { hosts, ends, forest_of, forests, full: (0..hosts).collect() };
        packing.grow(centre);
        for copy in 0..packing.ends.len() {
            if packing.forest_of[copy].is_none() {
                packing.enter(copy);
            }
        }
        if packing.forests.iter().any(|forest| forest.copies + 1 < hosts) {
            return Err((0..hosts).map(|host| first(&mut packing.full, host)).collect());
        }
        let of =
            |forest| packing.ends.iter().zip(&packing.forest_of).filter(move |(_, of)| **of == Some(forest));
        Ok((0..count).map(|forest| of(forest).map(|(ends, _)| *ends).collect()).collect())
    }

    /// Grows all trees from one host, by turns
    fn grow(&mut self, centre: usize) {
        let mut copies_of = vec![Vec::new(); self.hosts];
        for (copy, &(left, right)) in self.ends.iter().enumerate() {
            copies_of[left].push((right, copy));
            copies_of[right].push((left, copy));
        }
        let mut queues = vec![VecDeque::from([centre]); self.forests.len()];
        let mut reached = vec![vec![false; self.hosts]; self.forests.len()];
        reached.iter_mut().for_each(|reached| reached[centre] = true);
        while queues.iter().any(|queue| !queue.is_empty()) {
            for (forest, queue) in queues.iter_mut().enumerate() {
                let Some(&host) = queue.front() else { continue };
                let mut free = copies_of[host].iter().filter(|(_, copy)| self.forest_of[*copy].is_none());
                match free.find(|(other, _)| !reached[forest][*other]) {
                    Some(&(other, copy)) => {
                        self.forest_of[copy] = Some(forest);
                        self.forests[forest].add(self.ends[copy], copy);
                        reached[forest][other] = true;
                        queue.push_back(other);
                    }
                    None => drop(queue.pop_front()),
                }
            }
        }
        self.forests.iter_mut().for_each(Forest::number);
    }

    /// Lets a copy enter a forest, if others can make room for it
    fn enter(&mut self, copy: usize) {
        let (left, right) = self.ends[copy];
        if first(&mut self.full, left) == first(&mut self.full, right) {
            return;
        }
        // `cause`: for each labelled copy, the copy in whose cycle it is. `above`: for each forest and host, the nearest host above it whose
        // copy is not labelled.
        let mut cause = vec![None; self.ends.len()];
        let mut above: Vec<Vec<usize>> = vec![(0..self.hosts).collect(); self.forests.len()];
        let mut labelled = vec![copy];
        let mut next = 0;
        while let Some(&entering) = labelled.get(next) {
            next += 1;
            let (left, right) = self.ends[entering];
            for (number, forest) in self.forests.iter().enumerate() {
                if self.forest_of[entering] == Some(number) {
                    continue;
                }
                if forest.root[left] != forest.root[right] {
                    return self.exchange(&cause, entering, number);
                }
                let (mut one, mut other) =
                    (first(&mut above[number], left), first(&mut above[number], right));
                while one != other {
                    if forest.depth[one] < forest.depth[other] {
                        std::mem::swap(&mut one, &mut other);
                    }
                    let Some((upper, of_cycle)) = forest.above[one] else { break };
                    if of_cycle != copy && cause[of_cycle].is_none() {
                        cause[of_cycle] = Some(entering);
                        labelled.push(of_cycle);
                    }
                    above[number][one] = upper;
                    one = first(&mut above[number], upper);
                }
            }
        }
        for copy in labelled {
            let (left, right) = self.ends[copy];
            let (left, right) = (first(&mut self.full, left), first(&mut self.full, right));
            self.full[left.max(right)] = left.min(right);
        }
    }

    /// Moves a copy into a forest, the copy that it makes room for into the forest that it leaves, and so on
    fn exchange(&mut self, cause: &[Option<usize>], mut entering: usize, mut forest: usize) {
        loop {
            let left = self.forest_of[entering].replace(forest);
            if let Some(left) = left {
                self.forests[left].remove(self.ends[entering], entering);
            }
            self.forests[forest].add(self.ends[entering], entering);
            self.forests[forest].number();
            let (Some(before), Some(left)) = (cause[entering], left) else { return };
            (entering, forest) = (before, left);
        }
    }
}

/// The first host of a set, which all others of it lead to
fn first(sets: &mut [usize], host: usize) -> usize {
    let mut at = host;
    while sets[at] != at {
        sets[at] = sets[sets[at]];
        at = sets[at];
    }
    at
}

impl Forest {
    fn new(hosts: usize) -> Self {
        let root = (0..hosts).collect();
        Self {
            copies: 0,
            neighbours: vec![Vec::new(); hosts],
            root,
            depth: vec![0; hosts],
            above: vec![None; hosts],
        }
    }

    fn add(&mut self, (left, right): (usize, usize), copy: usize) {
        self.copies += 1;
        self.neighbours[left].push((right, copy));
        self.neighbours[right].push((left, copy));
    }

    fn remove(&mut self, (left, right): (usize, usize), copy: usize) {
        self.copies -= 1;
        for host in [left, right] {
            self.neighbours[host].retain(|(_, other)| *other != copy);
        }
    }

    /// Finds out anew what is above each host
    fn number(&mut self) {
        self.root.fill(usize::MAX);
        let mut pending = Vec::new();
        for root in 0..self.root.len() {
            if self.root[root] != usize::MAX {
                continue;
            }
            (self.root[root], self.depth[root], self.above[root]) = (root, 0, None);
            pending.push(root);
            while let Some(host) = pending.pop() {
                for &(other, copy) in &self.neighbours[host] {
                    if self.root[other] == usize::MAX {
                        let depth = self.depth[host] + 1;
                        (self.root[other], self.depth[other], self.above[other]) =
                            (root, depth, Some((host, copy)));
                        pending.push(other);
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The least whole number of trees that any partition permits, by trying all of them
    fn most_trees(hosts: usize, ends: &[(usize, usize)]) -> usize {
        let mut most = usize::MAX;
        let mut parts = vec![0; hosts];
        loop {
            let count = parts.iter().max().map_or(0, |most| most + 1);
            if count > 1 {
                let between = ends.iter().filter(|(left, right)| parts[*left] != parts[*right]).count();
                most = most.min(between / (count - 1));
            }
            // The next string in which each number is at most one above all before it.
            let Some(at) =
                (1..hosts).rev().find(|&at| parts[..at].iter().max().is_some_and(|most| parts[at] <= *most))
            else {
                return most;
            };
            parts[at] += 1;
            parts[at + 1..].fill(0);
        }
    }

    proptest! {
        /// Catches trees that share a copy or miss a host, fewer trees than there are, and a partition that does not forbid more.
        #[test]
        fn as_many_trees_are_packed_as_partitions_permit(
            more in prop::collection::vec((0..6_usize, 0..6_usize), 0..24), centre in 0..6_usize,
        ) {
            let more = more.into_iter().filter(|(left, right)| left != right);
            let ends: Vec<_> = (1..6).map(|host| (host - 1, host)).chain(more).collect();
            let most = most_trees(6, &ends);
            let trees = Forests::pack(6, ends.clone(), most, centre);
            let Ok(trees) = trees else { return Err(TestCaseError::fail(format!("{most} trees"))) };
            let mut left = ends.clone();
            for tree in trees {
                let mut joined: Vec<usize> = (0..6).collect();
                prop_assert_eq!(tree.len(), 5);
                for ends in tree {
                    let place = left.iter().position(|other| *other == ends);
                    prop_assert!(place.is_some());
                    left.swap_remove(place.unwrap());
                    let (one, other) = (first(&mut joined, ends.0), first(&mut joined, ends.1));
                    prop_assert!(one != other);
                    joined[one] = other;
                }
            }
            let Err(parts) = Forests::pack(6, ends.clone(), most + 1, centre) else {
                return Err(TestCaseError::fail("too many trees"));
            };
            let between = ends.iter().filter(|(left, right)| parts[*left] != parts[*right]).count();
            let count = (0..6).filter(|host| parts[*host] == *host).count();
            prop_assert!(count > 1 && between < (most + 1) * (count - 1), "{:?}", parts);
        }
    }
}
