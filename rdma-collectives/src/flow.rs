use std::collections::VecDeque;

/// A capacity that no cut contains
pub(crate) const INFINITE: u128 = u128::MAX / 4;

/// A network of arcs with integer capacities, for one maximum flow after the other (Dinic's algorithm)
#[derive(Debug, Default)]
pub(crate) struct Flow {
    nodes: Vec<Vec<u32>>,
    arcs: Vec<Arc>,
    level: Vec<u32>,
    next: Vec<usize>,
}

#[derive(Clone, Copy, Debug)]
struct Arc {
    to: usize,
    /// What it still takes; the arc back, whose index differs in the last bit, has the rest
    residual: u128,
    capacity: u128,
}

impl Flow {
    /// A network of so many nodes, without arcs
    pub(crate) fn new(nodes: usize) -> Self {
        Self { nodes: vec![Vec::new(); nodes], ..Self::default() }
    }

    /// Adds an arc, and returns its index; `back` is the capacity in the other direction
    pub(crate) fn add(&mut self, from: usize, to: usize, capacity: u128, back: u128) -> usize {
        let index = self.arcs.len();
        self.arcs.push(Arc { to, residual: capacity, capacity });
        self.arcs.push(Arc { to: from, residual: back, capacity: back });
        self.nodes[from].push(index as u32);
        self.nodes[to].push(index as u32 + 1);
        index
    }

    /// Gives an arc another capacity; the flow through it stays
    pub(crate) fn raise(&mut self, arc: usize, by: u128) {
        self.arcs[arc].capacity += by;
        self.arcs[arc].residual += by;
    }

    /// What flows through an arc, net of what flows back
    pub(crate) fn through(&self, arc: usize) -> u128 {
        self.arcs[arc].capacity.saturating_sub(self.arcs[arc].residual)
    }

    /// Sends up to `limit` more from `source` to `sink`, and returns how much went
    pub(crate) fn send(&mut self, source: usize, sink: usize, limit: u128) -> u128 {
        let mut sent = 0;
        while sent < limit && self.number_levels(source, Some(sink)) {
            self.next.clear();
            self.next.resize(self.nodes.len(), 0);
            sent += self.push(source, sink, limit - sent);
        }
        sent
    }

    /// The nodes that more flow could reach from `source`: the source side of a minimum cut after an unlimited
    /// [`send`](Self::send)
    pub(crate) fn reached(&mut self, source: usize) -> Vec<bool> {
        self.number_levels(source, None);
        self.level.iter().map(|&level| level != u32::MAX).collect()
    }

    fn number_levels(&mut self, source: usize, sink: Option<usize>) -> bool {
        self.level.clear();
        self.level.resize(self.nodes.len(), u32::MAX);
        self.level[source] = 0;
        let mut queue = VecDeque::from([source]);
        while let Some(node) = queue.pop_front() {
            for &arc in &self.nodes[node] {
                let Arc { to, residual, .. } = self.arcs[arc as usize];
                if residual > 0 && self.level[to] == u32::MAX {
                    self.level[to] = self.level[node] + 1;
                    if Some(to) == sink {
                        return true;
                    }
                    queue.push_back(to);
                }
            }
        }
        false
    }

    fn push(&mut self, node: usize, sink: usize, limit: u128) -> u128 {
        if node == sink {
            return limit;
        }
        let mut sent = 0;
        while self.next[node] < self.nodes[node].len() {
            let arc = self.nodes[node][self.next[node]] as usize;
            let Arc { to, residual, .. } = self.arcs[arc];
            if residual > 0 && self.level[to] == self.level[node] + 1 {
                let pushed = self.push(to, sink, residual.min(limit - sent));
                self.arcs[arc].residual -= pushed;
                self.arcs[arc ^ 1].residual += pushed;
                sent += pushed;
                if sent == limit {
                    return sent;
                }
            }
            self.next[node] += 1;
        }
        sent
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Catches a flow that stops early, and a cut taken from the wrong side.
        #[test]
        fn the_flow_equals_the_smallest_of_all_cuts(
            arcs in prop::collection::vec((0usize..6, 0usize..6, 0u128..20, 0u128..20), 0..20),
        ) {
            let mut flow = Flow::new(6);
            for &(from, to, capacity, back) in &arcs {
                flow.add(from, to, capacity, back);
            }
            let cut = |inside: &dyn Fn(usize) -> bool| -> u128 {
                let crossing = |from, to| inside(from) && !inside(to);
                arcs.iter().map(|&(from, to, there, back)| {
                    if crossing(from, to) { there } else if crossing(to, from) { back } else { 0 }
                }).sum()
            };
            let smallest = (0u32..16).map(|mask| cut(&|node| node == 0 || node != 5 && mask >> (node - 1) & 1 == 1)).min();
            prop_assert_eq!(Some(flow.send(0, 5, INFINITE)), smallest);
            let reached = flow.reached(0);
            prop_assert_eq!(Some(cut(&|node| reached[node])), smallest);
        }
    }
}
