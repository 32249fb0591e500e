//! The cheapest spanning tree of arcs away from a root (Chu and Liu, Edmonds)

/// The arcs of the cheapest tree from `root` to all nodes, as indices, each after the one into its tail
///
/// # Panics
///
/// If some node cannot be reached.
pub(crate) fn arborescence(nodes: usize, root: usize, arcs: &[(usize, usize)], costs: &[f64]) -> Vec<usize> {
    let into = cheapest(nodes, root, arcs, costs);
    let mut level = vec![root];
    let mut chosen = Vec::with_capacity(nodes - 1);
    while !level.is_empty() {
        let below: Vec<_> =
            into.iter().flatten().copied().filter(|&arc| level.contains(&arcs[arc].0)).collect();
        level = below.iter().map(|&arc| arcs[arc].1).collect();
        chosen.extend(below);
    }
    chosen
}

/// By node, the arc of the tree into it; the cheapest ones, and where these are a circle, it is taken for one node
fn cheapest(nodes: usize, root: usize, arcs: &[(usize, usize)], costs: &[f64]) -> Vec<Option<usize>> {
    let mut into: Vec<Option<usize>> = vec![None; nodes];
    for (arc, &(from, to)) in arcs.iter().enumerate().filter(|(_, (_, to))| *to != root) {
        if from != to && into[to].is_none_or(|best: usize| costs[arc] < costs[best]) {
            into[to] = Some(arc);
        }
    }
    let (numbers, count) = circles(root, &into, arcs);
    if count == nodes {
        return into;
    }
    let (mut within, mut cheaper, mut original) = (Vec::new(), Vec::new(), Vec::new());
    for (arc, &(from, to)) in arcs.iter().enumerate().filter(|(_, (_, to))| *to != root) {
        if numbers[from] != numbers[to] {
            within.push((numbers[from], numbers[to]));
            cheaper.push(costs[arc] - into[to].map_or(0.0, |best| costs[best]));
            original.push(arc);
        }
    }
    for arc in cheapest(count, numbers[root], &within, &cheaper).into_iter().flatten() {
        let arc = original[arc];
        into[arcs[arc].1] = Some(arc);
    }
    into
}

/// By node, a number, the same one for all of a circle of `into`, and how many numbers there are
fn circles(root: usize, into: &[Option<usize>], arcs: &[(usize, usize)]) -> (Vec<usize>, usize) {
    let before = |node: usize| arcs[into[node].expect("an arc leads into each node")].0;
    let mut numbers = vec![usize::MAX; into.len()];
    let mut seen_from = vec![usize::MAX; into.len()];
    let mut count = 0;
    for start in 0..into.len() {
        let mut node = start;
        while node != root && seen_from[node] == usize::MAX {
            seen_from[node] = start;
            node = before(node);
        }
        if node != root && seen_from[node] == start && numbers[node] == usize::MAX {
            while numbers[node] == usize::MAX {
                numbers[node] = count;
                node = before(node);
            }
            count += 1;
        }
    }
    for number in numbers.iter_mut().filter(|number| **number == usize::MAX) {
        *number = count;
        count += 1;
    }
    (numbers, count)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Catches a circle that is opened in the wrong place, and one that is left, by trying all choices of an arc into each node.
        #[test]
        fn no_tree_is_cheaper(costs in prop::collection::vec(0_u8..9, 20)) {
            let arcs: Vec<_> = (0..5).flat_map(|from| (0..5).map(move |to| (from, to))).filter(|(from, to)| from != to).collect();
            let costs: Vec<_> = costs.into_iter().map(f64::from).collect();
            let reaches = |chosen: &[usize], mut node: usize| {
                (0..5).any(|_| {
                    node = chosen.iter().find(|arc| arcs[**arc].1 == node).map_or(node, |arc| arcs[*arc].0);
                    node == 2
                })
            };
            let heads = [0, 1, 3, 4];
            let mut least = f64::INFINITY;
            for code in 0..256 {
                let chosen: Vec<_> = heads.iter().enumerate().map(|(place, head)| {
                    let mut of_head = (0..20).filter(|arc| arcs[*arc].1 == *head);
                    of_head.nth(code >> (2 * place) & 3).unwrap()
                }).collect();
                if heads.iter().all(|head| reaches(&chosen, *head)) {
                    least = least.min(chosen.iter().map(|arc| costs[*arc]).sum());
                }
            }
            let found = arborescence(5, 2, &arcs, &costs);
            prop_assert_eq!(found.iter().map(|arc| costs[*arc]).sum::<f64>(), least);
            let mut reached = vec![2];
            for arc in found {
                prop_assert!(reached.contains(&arcs[arc].0) && !reached.contains(&arcs[arc].1));
                reached.push(arcs[arc].1);
            }
            prop_assert_eq!(reached.len(), 5);
        }
    }
}
