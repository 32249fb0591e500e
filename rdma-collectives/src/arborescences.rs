use crate::flow::{Flow, INFINITE};
use crate::network::Network;

/// A tree of arcs away from its root, that counts so many times
#[derive(Clone, Debug)]
pub(crate) struct Arborescence {
    pub(crate) root: usize,
    pub(crate) count: u128,
    /// Each after the arc into its tail
    pub(crate) arcs: Vec<(usize, usize)>,
}

/// Latency and hops from the root to a host
type Depth = (u64, u64);

/// Trees that are still to span all hosts, all alike
#[derive(Clone, Debug)]
struct Partial {
    tree: Arborescence,
    /// A bit for each host
    members: u64,
    depths: Vec<Depth>,
    /// By tail, the heads of arcs that no tree of this kind can take any more
    closed: Vec<u64>,
}

/// Packs spanning arborescences into the capacities of `network`: `count` with each root
///
/// They exist if each set of hosts has at least as much capacity into it as there are trees with their roots outside
/// (Edmonds' disjoint branchings). Trees grow by one arc at a time, always by the one that keeps the depth small, and only as many
/// trees take it as leave that condition true for the others; the rest grows otherwise. Packing as many trees as possible at once
/// is what keeps the number of different trees small.
pub(crate) fn pack(network: &Network, roots: &[(usize, u128)]) -> Vec<Arborescence> {
    let mut packing = Packing { network, left: network.clone(), partial: Vec::new() };
    for &(root, count) in roots.iter().rev().filter(|(_, count)| *count > 0) {
        packing.partial.push(Partial {
            tree: Arborescence { root, count, arcs: Vec::new() },
            members: 1 << root,
            depths: vec![(0, 0); network.hosts()],
            closed: vec![0; network.hosts()],
        });
    }
    let mut packed = Vec::new();
    while let Some(next) = packing.partial.pop() {
        packed.push(packing.complete(next));
    }
    packed
}

struct Packing<'a> {
    network: &'a Network,
    /// Capacity that no tree has taken
    left: Network,
    /// Trees that do not span all hosts, without the one that grows
    partial: Vec<Partial>,
}

impl Packing<'_> {
    fn complete(&mut self, mut growing: Partial) -> Arborescence {
        while growing.tree.arcs.len() + 1 < self.network.hosts() {
            let (arc, depth, count) = self.next_arc(&mut growing);
            let (from, to) = arc;
            if count < growing.tree.count {
                let mut rest = growing.clone();
                rest.tree.count -= count;
                self.partial.push(rest);
                growing.tree.count = count;
            }
            self.left = self.left.map(|tail, head| {
                self.left.capacity(tail, head) - if (tail, head) == arc { count } else { 0 }
            });
            growing.tree.arcs.push((from, to));
            growing.members |= 1 << to;
            growing.depths[to] = depth;
        }
        growing.tree
    }

    /// The arc to grow by, the depth of its head, and how many of the trees may take it
    fn next_arc(&self, growing: &mut Partial) -> ((usize, usize), Depth, u128) {
        let inside = |host: usize| growing.members >> host & 1 == 1;
        let leaving =
            |&(from, to): &(usize, usize)| inside(from) && !inside(to) && growing.closed[from] >> to & 1 == 0;
        let mut candidates: Vec<_> = self
            .left
            .arcs()
            .filter(leaving)
            .map(|(from, to)| {
                let (latency, hops) = growing.depths[from];
                let depth = (latency.saturating_add(self.network.latency(from, to)), hops + 1);
                (depth, u128::MAX - self.left.capacity(from, to), (from, to))
            })
            .collect();
        candidates.sort_unstable();
        let mut best: Option<((usize, usize), Depth, u128)> = None;
        for (depth, _, arc) in candidates {
            if best.is_some_and(|(_, least, _)| least < depth) {
                break;
            }
            let count = self.allowed(growing, arc);
            if count == 0 {
                // The sets that forbid it stay as they are: trees only enter them together with capacity.
                growing.closed[arc.0] |= 1 << arc.1;
            }
            if count > best.map_or(0, |(_, _, most)| most) {
                best = Some((arc, depth, count));
            }
            if count == growing.tree.count {
                break;
            }
        }
        best.unwrap_or_else(|| unreachable!("Edmonds' condition holds, so some arc can be taken"))
    }

    /// How many of the growing trees can take an arc so that all others can still be completed
    ///
    /// A set that the arc enters, with the tail outside and a member of the growing tree inside, loses capacity and gets nothing
    /// for it. What such sets have to spare is a minimum cut between the arc's ends, in which each kind of tree adds a way from
    /// the tail into its members.
    fn allowed(&self, growing: &Partial, (from, to): (usize, usize)) -> u128 {
        let hosts = self.network.hosts();
        let mut kinds: Vec<(u64, u128)> = Vec::new();
        for other in &self.partial {
            // With the head as a member, trees are inside each such set; with the tail alone, in none.
            if other.members >> to & 1 == 1 || other.members == 1 << from {
                continue;
            }
            match kinds.iter_mut().find(|(members, _)| *members == other.members) {
                Some((_, count)) => *count += other.tree.count,
                None => kinds.push((other.members, other.tree.count)),
            }
        }
        let absent: u128 = self
            .partial
            .iter()
            .filter(|other| other.members == 1 << from)
            .map(|other| other.tree.count)
            .sum();
        let mut flow = Flow::new(hosts + kinds.len());
        for (tail, head) in self.left.arcs().filter(|&(tail, head)| head != from && tail != to) {
            flow.add(tail, head, self.left.capacity(tail, head), 0);
        }
        let mut needed = absent;
        for (node, &(members, count)) in (hosts..).zip(&kinds) {
            needed += count;
            flow.add(from, node, count, 0);
            for member in (0..hosts).filter(|member| members >> member & 1 == 1) {
                flow.add(node, member, INFINITE, 0);
            }
        }
        let wanted = growing.tree.count.min(self.left.capacity(from, to));
        flow.send(from, to, needed + wanted).saturating_sub(needed)
    }
}
