//! The optimum by brute force: all spanning trees or all paths, and an exact simplex method over all of them

use std::cmp::Ordering;
use std::collections::BTreeMap;

use rdma_collectives::{Cabling, Operation, Ratio};

/// A fraction with a sign, its denominator positive
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
struct Fraction(i128, i128);

impl Fraction {
    const ZERO: Self = Self(0, 1);

    fn new(numerator: i128, denominator: i128) -> Self {
        let (mut left, mut right) = (numerator.abs(), denominator.abs());
        while right != 0 {
            (left, right) = (right, left % right);
        }
        let divisor = left.max(1) * denominator.signum();
        Self(numerator / divisor, denominator / divisor)
    }

    fn times(self, other: Self) -> Self {
        Self::new(self.0 * other.0, self.1 * other.1)
    }

    fn over(self, other: Self) -> Self {
        Self::new(self.0 * other.1, self.1 * other.0)
    }

    fn minus(self, other: Self) -> Self {
        Self::new(self.0 * other.1 - other.0 * self.1, self.1 * other.1)
    }

    fn compared(self, other: Self) -> Ordering {
        (self.0 * other.1).cmp(&(other.0 * self.1))
    }
}

/// The largest first variable with `rows x <= limits`, `x >= 0` and `limits >= 0` (the simplex method with Bland's rule)
fn largest_first(rows: &[Vec<i128>], limits: &[i128]) -> Fraction {
    let (count, columns) = (rows.len(), rows[0].len());
    let mut table: Vec<Vec<Fraction>> = Vec::new();
    for (number, (row, limit)) in rows.iter().zip(limits).enumerate() {
        let slack = (0..count).map(|other| i128::from(other == number));
        table.push(row.iter().copied().chain(slack).chain([*limit]).map(|cell| Fraction(cell, 1)).collect());
    }
    let mut goal = vec![Fraction::ZERO; columns + count + 1];
    goal[0] = Fraction(-1, 1);
    let mut basis: Vec<usize> = (columns..columns + count).collect();
    let last = columns + count;
    while let Some(entering) = (0..last).find(|column| goal[*column].0 < 0) {
        let leaving = (0..count).filter(|row| table[*row][entering].0 > 0);
        let leaving = leaving.min_by(|left, right| {
            let step = |row: &usize| table[*row][last].over(table[*row][entering]);
            step(left).compared(step(right)).then(basis[*left].cmp(&basis[*right]))
        });
        let leaving = leaving.expect("the program has a limit");
        let pivot = table[leaving][entering];
        table[leaving].iter_mut().for_each(|cell| *cell = cell.over(pivot));
        let pivot_row = table[leaving].clone();
        for row in table
            .iter_mut()
            .enumerate()
            .filter(|(row, _)| *row != leaving)
            .map(|(_, row)| row)
            .chain([&mut goal])
        {
            let factor = row[entering];
            if factor.0 != 0 {
                row.iter_mut()
                    .zip(&pivot_row)
                    .for_each(|(cell, pivot)| *cell = cell.minus(factor.times(*pivot)));
            }
        }
        basis[leaving] = entering;
    }
    goal[last]
}

/// The arcs of a tree or a path
type Way = Vec<(usize, usize)>;

/// Seconds per byte of the payload in the best plan of an operation
pub(crate) fn seconds(cabling: &Cabling, operation: &Operation) -> Ratio {
    let hosts = cabling.hosts().len();
    let mut rates: BTreeMap<(usize, usize), u64> = BTreeMap::new();
    for cable in cabling.cables() {
        let [left, right] = cable.ends;
        *rates.entry((left, right)).or_default() += cable.rates[0];
        *rates.entry((right, left)).or_default() += cable.rates[1];
    }
    let arcs: Vec<_> = rates.keys().copied().collect();
    let is_towards = matches!(
        operation,
        Operation::Gather { .. } | Operation::Reduce { .. } | Operation::ReduceScatter { .. }
    );
    let is_both = *operation == Operation::AllReduce;
    // What data goes, and by which sets of arcs it may go.
    let trees = |root| trees_from(hosts, root, &arcs);
    let paths = |from, to| paths_between(&arcs, from, to, &mut vec![from]);
    let (demands, total): (Vec<(u64, Vec<Way>)>, u64) = match operation {
        Operation::AllReduce => (vec![(1, trees(0))], 1),
        Operation::Broadcast { root } | Operation::Reduce { root } => (vec![(1, trees(*root))], 1),
        Operation::AllGather { amounts } | Operation::ReduceScatter { amounts } => {
            ((0..hosts).map(|root| (amounts[root], trees(root))).collect(), amounts.iter().sum())
        }
        Operation::Gather { root, amounts } | Operation::Scatter { root, amounts } => {
            let ends = (0..hosts).filter(|end| end != root);
            (ends.map(|end| (amounts[end], paths(*root, end))).collect(), amounts.iter().sum())
        }
        Operation::AllToAll { amounts } => {
            let pairs = (0..hosts).flat_map(|from| (0..hosts).map(move |to| (from, to)));
            let pairs = pairs.filter(|(from, to)| from != to);
            let demands = pairs.map(|(from, to)| (amounts[from][to], paths(from, to))).collect();
            (demands, amounts.iter().flatten().sum())
        }
        other => unreachable!("{other:?}"),
    };
    let columns = 1 + demands.iter().map(|(_, ways)| ways.len()).sum::<usize>();
    // Rows of arcs, of hosts that send, of hosts that receive, and of the demands.
    let mut limits: Vec<i128> = arcs.iter().map(|arc| rates[arc].into()).collect();
    let caps =
        (0..hosts).map(|host| cabling.cap(host).send).chain((0..hosts).map(|host| cabling.cap(host).receive));
    limits.extend(caps.map(|cap| cap.map_or(1_000_000, i128::from)));
    let first_demand = limits.len();
    limits.extend(demands.iter().map(|_| 0));
    let mut rows = vec![vec![0_i128; columns]; limits.len()];
    let mut column = 1;
    for (number, (amount, ways)) in demands.iter().enumerate() {
        rows[first_demand + number][0] = (*amount).into();
        for way in ways {
            rows[first_demand + number][column] = -1;
            for &(parent, child) in way {
                let directions = [(parent, child, !is_towards), (child, parent, is_towards || is_both)];
                for (from, to, _) in directions.into_iter().filter(|(_, _, is_used)| *is_used) {
                    let arc = arcs.binary_search(&(from, to)).expect("an arc of the cabling");
                    rows[arc][column] += 1;
                    rows[arcs.len() + from][column] += 1;
                    rows[arcs.len() + hosts + to][column] += 1;
                }
            }
            column += 1;
        }
    }
    let Fraction(factor, below) = largest_first(&rows, &limits);
    // In a second, so many times all amounts.
    Ratio::new(below.unsigned_abs(), factor.unsigned_abs() * u128::from(total)).expect("something is sent")
}

/// All spanning trees, as arcs away from a root
fn trees_from(hosts: usize, root: usize, arcs: &[(usize, usize)]) -> Vec<Way> {
    let others: Vec<_> = (0..hosts).filter(|host| *host != root).collect();
    // Any arc into each other host, unless they are a circle.
    let choices = others.iter().fold(vec![Vec::new()], |chosen: Vec<Way>, host| {
        let into = || arcs.iter().copied().filter(|(_, to)| to == host);
        chosen
            .iter()
            .flat_map(|chosen| into().map(|arc| chosen.iter().copied().chain([arc]).collect()))
            .collect()
    });
    let reaches_root = |tree: &Way, mut host: usize| {
        (0..hosts)
            .for_each(|_| host = tree.iter().find(|(_, to)| *to == host).map_or(host, |(from, _)| *from));
        host == root
    };
    choices.into_iter().filter(|tree| others.iter().all(|host| reaches_root(tree, *host))).collect()
}

/// All paths without circles
fn paths_between(arcs: &[(usize, usize)], from: usize, to: usize, passed: &mut Vec<usize>) -> Vec<Way> {
    if from == to {
        return vec![Vec::new()];
    }
    let mut all = Vec::new();
    for &arc in arcs.iter().filter(|(tail, _)| *tail == from) {
        if !passed.contains(&arc.1) {
            passed.push(arc.1);
            let rest = paths_between(arcs, arc.1, to, passed);
            all.extend(rest.into_iter().map(|rest| [arc].into_iter().chain(rest).collect()));
            passed.pop();
        }
    }
    all
}
