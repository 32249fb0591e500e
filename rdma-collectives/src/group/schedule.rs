//! A plan as one rank carries it out: what it receives, combines, keeps and sends on

use std::collections::BTreeMap;

use super::counts::Counts;
use super::wire::Channel;
use crate::{Operation, Plan, Tree};

/// The part of one rank in an operation; offsets and lengths are in bytes
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) struct Schedule {
    pub(crate) ins: Vec<In>,
    pub(crate) outs: Vec<Out>,
    pub(crate) sinks: Vec<Sink>,
    /// The part that the rank has for itself
    pub(crate) copy: Copy,
}

/// Blocks from a neighbour
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct In {
    pub(crate) from: usize,
    pub(crate) channel: Channel,
    pub(crate) len: usize,
    /// Whether the neighbour has all blocks from the start: [`Feed::is_at_once`] there
    pub(crate) is_at_once: bool,
}

/// Blocks to a neighbour
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Out {
    pub(crate) to: usize,
    pub(crate) channel: Channel,
    pub(crate) len: usize,
    pub(crate) feed: Feed,
    /// How many cables further a block goes, itself or what it becomes
    pub(crate) beyond: u32,
}

/// Where blocks to a neighbour come from
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum Feed {
    /// The rank's own input, if it takes part, combined with blocks that arrive, in this order
    Combined { own: Option<usize>, ins: Vec<usize> },
    /// The input from an offset on
    Input(usize),
    /// The blocks that a sink has kept
    Sink(usize),
}

impl Feed {
    /// Whether all blocks are there from the start
    pub(crate) fn is_at_once(&self) -> bool {
        match self {
            Self::Combined { ins, .. } => ins.is_empty(),
            Self::Input(_) => true,
            Self::Sink(_) => false,
        }
    }
}

/// Blocks that the rank keeps: its own input combined with blocks that arrive
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Sink {
    pub(crate) own: Option<usize>,
    pub(crate) ins: Vec<usize>,
    pub(crate) output: usize,
    pub(crate) len: usize,
}

/// Bytes of the input that belong into the output
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) struct Copy {
    pub(crate) input: usize,
    pub(crate) output: usize,
    pub(crate) len: usize,
}

impl Schedule {
    /// The part of `rank` for elements of `size` bytes
    pub(crate) fn new(plan: &Plan, rank: usize, counts: &Counts, size: usize) -> Self {
        let operation = &plan.operation;
        let mut schedule = Self { copy: own_part(operation, rank, counts, size), ..Self::default() };
        for ((tree, [start, end]), number) in parts(plan, counts).into_iter().zip(0..) {
            let place = Place { operation, tree, counts };
            let at = |offset: Option<usize>| offset.map(|offset| (offset + start) * size);
            let (input, output) = (at(place.input(rank)), at(place.output(rank)));
            if end > start {
                schedule.add(
                    tree,
                    rank,
                    number,
                    (end - start) * size,
                    [input, output],
                    directions(operation),
                );
            }
        }
        schedule
    }

    /// The part of a single rank, which copies `len` bytes of its input to its output
    pub(crate) fn alone(len: usize) -> Self {
        Self { copy: Copy { input: 0, output: 0, len }, ..Self::default() }
    }

    /// Adds the part of the rank in one tree
    fn add(
        &mut self,
        tree: &Tree,
        rank: usize,
        number: u16,
        len: usize,
        [input, output]: [Option<usize>; 2],
        [up, down]: [bool; 2],
    ) {
        let parent = tree.arcs.iter().find(|(_, child)| *child == rank).map(|(parent, _)| *parent);
        let is_root = tree.root == rank;
        if parent.is_none() && !is_root {
            return;
        }
        let children: Vec<_> =
            tree.arcs.iter().filter(|(parent, _)| *parent == rank).map(|(_, child)| *child).collect();
        let hops = Hops::of(tree);
        let mut kept = None;
        if up {
            let channel = Channel { tree: number, is_up: true };
            let receive = |&from: &usize| {
                let is_at_once = hops.heights[from] == 0;
                self.receive(In { from, channel, len, is_at_once })
            };
            let ins: Vec<_> = children.iter().map(receive).collect();
            match (parent, output) {
                (Some(to), _) => {
                    let back = if down { hops.heights[tree.root] } else { 0 };
                    let beyond = hops.depths[to] + back;
                    self.outs.push(Out {
                        to,
                        channel,
                        len,
                        feed: Feed::Combined { own: input, ins },
                        beyond,
                    });
                }
                (None, Some(output)) => kept = Some(self.keep(Sink { own: input, ins, output, len })),
                (None, None) => (),
            }
        }
        if down {
            let channel = Channel { tree: number, is_up: false };
            let mut feed = kept.map(Feed::Sink).or_else(|| input.filter(|_| is_root).map(Feed::Input));
            if let Some(from) = parent {
                let is_at_once = !up && from == tree.root;
                let ins = vec![self.receive(In { from, channel, len, is_at_once })];
                feed = Some(match output {
                    Some(output) => Feed::Sink(self.keep(Sink { own: None, ins, output, len })),
                    // A relay, whose tree is a path.
                    None => Feed::Combined { own: None, ins },
                });
            }
            let Some(feed) = feed else { return };
            self.outs.extend(children.into_iter().map(|to| {
                let beyond = hops.heights[to];
                Out { to, channel, len, feed: feed.clone(), beyond }
            }));
        }
    }

    fn receive(&mut self, from: In) -> usize {
        self.ins.push(from);
        self.ins.len() - 1
    }

    fn keep(&mut self, sink: Sink) -> usize {
        self.sinks.push(sink);
        self.sinks.len() - 1
    }
}

/// How far the hosts of a tree are, by host
struct Hops {
    /// From the root
    depths: Vec<u32>,
    /// From the furthest one below
    heights: Vec<u32>,
}

impl Hops {
    fn of(tree: &Tree) -> Self {
        let hosts = tree.arcs.iter().map(|(_, child)| child + 1).fold(tree.root + 1, usize::max);
        let mut hops = Self { depths: vec![0; hosts], heights: vec![0; hosts] };
        // Each arc comes after the one into its tail.
        for &(parent, child) in &tree.arcs {
            hops.depths[child] = hops.depths[parent] + 1;
        }
        for &(parent, child) in tree.arcs.iter().rev() {
            hops.heights[parent] = hops.heights[parent].max(hops.heights[child] + 1);
        }
        hops
    }
}

/// Whether data goes up the trees, and whether down
pub(crate) fn directions(operation: &Operation) -> [bool; 2] {
    match operation {
        Operation::AllReduce | Operation::AllReduceAmong { .. } => [true, true],
        Operation::Gather { .. } | Operation::Reduce { .. } | Operation::ReduceScatter { .. } => {
            [true, false]
        }
        Operation::AllGather { .. }
        | Operation::AllToAll { .. }
        | Operation::Broadcast { .. }
        | Operation::Scatter { .. } => [false, true],
    }
}

/// The part that a rank has for itself
fn own_part(operation: &Operation, rank: usize, counts: &Counts, size: usize) -> Copy {
    let (there, part) = (counts.before(rank), counts.part(rank));
    let pair = [rank; 2];
    let [input, output, len] = match operation {
        Operation::AllGather { .. } => [0, there, part],
        Operation::AllToAll { .. } => {
            [counts.sent_before(pair), counts.received_before(pair), counts.pair(pair)]
        }
        Operation::Gather { root, .. } if *root == rank => [0, there, part],
        Operation::Scatter { root, .. } if *root == rank => [there, 0, part],
        _ => [0; 3],
    };
    Copy { input: input * size, output: output * size, len: len * size }
}

/// A tree with the elements that it carries
struct Place<'a> {
    operation: &'a Operation,
    tree: &'a Tree,
    counts: &'a Counts,
}

impl Place<'_> {
    /// The last host, of a tree that is a path
    fn end(&self) -> usize {
        self.tree.arcs.last().map_or(self.tree.root, |(_, child)| *child)
    }

    /// From which element on of its input the rank takes what it contributes
    fn input(&self, rank: usize) -> Option<usize> {
        let Self { operation, tree, counts } = self;
        let is_root = rank == tree.root;
        match operation {
            Operation::AllReduce | Operation::Reduce { .. } => Some(0),
            Operation::AllReduceAmong { members } => members.contains(&rank).then_some(0),
            Operation::AllGather { .. } | Operation::Broadcast { .. } => is_root.then_some(0),
            Operation::Gather { .. } => (rank == self.end()).then_some(0),
            Operation::ReduceScatter { .. } => Some(counts.before(tree.root)),
            Operation::Scatter { .. } => is_root.then(|| counts.before(self.end())),
            Operation::AllToAll { .. } => is_root.then(|| counts.sent_before([tree.root, self.end()])),
        }
    }

    /// From which element on of its output the rank keeps what the tree carries
    fn output(&self, rank: usize) -> Option<usize> {
        let Self { operation, tree, counts } = self;
        let (is_root, is_end) = (rank == tree.root, rank == self.end());
        match operation {
            Operation::AllReduce => Some(0),
            Operation::AllReduceAmong { members } => members.contains(&rank).then_some(0),
            Operation::Broadcast { .. } => (!is_root).then_some(0),
            Operation::Reduce { .. } | Operation::ReduceScatter { .. } => is_root.then_some(0),
            Operation::AllGather { .. } => (!is_root).then(|| counts.before(tree.root)),
            Operation::Gather { .. } => is_root.then(|| counts.before(self.end())),
            Operation::Scatter { .. } => is_end.then_some(0),
            Operation::AllToAll { .. } => is_end.then(|| counts.received_before([tree.root, self.end()])),
        }
    }
}

/// The trees, and which elements of the part that they share each carries
///
/// Computed in floats: every host gets the same result, because sums, products and quotients are rounded the same way everywhere.
pub(crate) fn parts<'a>(plan: &'a Plan, counts: &Counts) -> Vec<(&'a Tree, [usize; 2])> {
    // Trees with the same key divide a vector, or a part of it, among them.
    let key = |tree: &Tree| match plan.operation {
        Operation::AllGather { .. } | Operation::ReduceScatter { .. } => (tree.root, 0),
        Operation::AllToAll { .. } | Operation::Gather { .. } | Operation::Scatter { .. } => {
            (tree.root, tree.arcs.last().map_or(tree.root, |(_, child)| *child))
        }
        _ => (0, 0),
    };
    let count = |tree: &Tree| match plan.operation {
        Operation::AllToAll { .. } => counts.pair(key(tree).into()),
        Operation::AllGather { .. } | Operation::ReduceScatter { .. } => counts.part(tree.root),
        _ => counts.part(key(tree).1),
    };
    let mut totals: BTreeMap<_, f64> = BTreeMap::new();
    let mut last = BTreeMap::new();
    for (number, tree) in plan.trees.iter().enumerate() {
        *totals.entry(key(tree)).or_default() += tree.share.to_f64();
        last.insert(key(tree), number);
    }
    let mut done: BTreeMap<_, (f64, usize)> = BTreeMap::new();
    let part = |(number, tree): (usize, &Tree)| -> [usize; 2] {
        let count = count(tree);
        let (share, start) = done.entry(key(tree)).or_default();
        *share += tree.share.to_f64();
        let end = (count as f64 * (*share / totals[&key(tree)])).round() as usize;
        let end = if last[&key(tree)] == number { count } else { end.clamp(*start, count) };
        let range = [*start, end];
        *start = end;
        range
    };
    let ranges: Vec<_> = plan.trees.iter().enumerate().map(part).collect();
    plan.trees.iter().zip(ranges).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Cabling, plan};

    /// Catches two ends of a cable of which one waits for a first message with a block, while the other one sends one without: what is
    /// expected behind it would not come there.
    #[test]
    fn both_ends_know_which_blocks_are_there_from_the_start() {
        let line = Cabling::line(4, 1);
        let cables = [(0, 1), (1, 2), (2, 3), (3, 0), (0, 2), (2, 4), (3, 4)];
        let cables = cables.map(|(left, right)| crate::Cable::new(left, right, 1)).to_vec();
        let irregular = Cabling::new((0..5).map(|host| host.to_string()), cables).unwrap();
        let mut at_once = 0;
        for cabling in [line, irregular] {
            let hosts = cabling.hosts().len();
            let amounts = vec![1; hosts];
            let to_all =
                (0..hosts).map(|from| (0..hosts).map(|to| u64::from(from != to)).collect()).collect();
            let operations = [
                Operation::AllReduce,
                Operation::AllGather { amounts: amounts.clone() },
                Operation::AllToAll { amounts: to_all },
                Operation::Broadcast { root: 1 },
                Operation::Gather { root: 2, amounts: amounts.clone() },
                Operation::Reduce { root: 3 },
                Operation::ReduceScatter { amounts: amounts.clone() },
                Operation::Scatter { root: 0, amounts },
            ];
            for operation in operations {
                let made = plan(&cabling, &operation).unwrap();
                let ranks: Vec<_> =
                    (0..hosts).map(|rank| Schedule::new(&made, rank, &Counts::Even(1 << 20), 4)).collect();
                let outs: usize = ranks.iter().map(|schedule| schedule.outs.len()).sum();
                let ins: usize = ranks.iter().map(|schedule| schedule.ins.len()).sum();
                assert_eq!(outs, ins, "{operation:?}");
                for (rank, schedule) in ranks.iter().enumerate() {
                    for to in &schedule.outs {
                        let mut ins = ranks[to.to].ins.iter();
                        let found = ins.find(|from| (from.from, from.channel) == (rank, to.channel));
                        let found = found.map(|from| (from.is_at_once, from.len));
                        assert_eq!(found, Some((to.feed.is_at_once(), to.len)), "{operation:?}");
                        at_once += usize::from(to.feed.is_at_once());
                    }
                }
            }
        }
        assert!(at_once > 0);
    }
}
