//! Plans of all_reduce: their bounds against an oracle over all partitions, and the plans against the verifier

mod common;

use std::collections::BTreeMap;

use common::{Numbers, best_partition_bound, connected_graphs, random_cabling};
use rdma_collectives::{Cabling, PlanError, Ratio, Tree, all_reduce, flood, verify};

/// Bytes per second of a cable of 80 Gb/s.
const RATE: u64 = 9_200_000_000;

/// Catches a strength that misses a partition, orientations and packings that overload a cable or lose a tree, and trees
/// that do not span: the verifier adds everything up again. Trees are low: 751 cablings have none above their radius.
#[test]
fn all_994_cablings_of_3_to_7_hosts_are_planned_at_the_bound() {
    let graphs = connected_graphs(7);
    assert_eq!(graphs.len(), 994);
    let mut lowest = 0;
    for (hosts, pairs) in graphs {
        let cabling = Cabling::of_pairs(hosts, pairs, RATE);
        let plan = all_reduce(&cabling).unwrap();
        assert_eq!(verify(&cabling, &plan), Ok(Ratio::ONE), "{cabling:?}\n{plan:?}");
        assert_eq!(plan.bound, best_partition_bound(&cabling), "{cabling:?}");
        assert!(plan.trees.len() <= cabling.cables().len(), "few trees: {plan}");
        let radius = flood(&cabling).unwrap().trees.iter().map(height).min().unwrap();
        let above = plan.trees.iter().map(height).max().unwrap() - radius;
        assert!(above <= 2, "low trees: {plan}");
        lowest += usize::from(above == 0);
    }
    assert!(lowest >= 751, "{lowest}");
}

/// Hops from the root to the host that is furthest from it
fn height(tree: &Tree) -> usize {
    let mut depths = BTreeMap::from([(tree.root, 0)]);
    for (parent, child) in &tree.arcs {
        depths.insert(*child, depths[parent] + 1);
    }
    depths.into_values().max().unwrap()
}

/// As above with rates without a common unit, and with parallel cables.
#[test]
fn a_thousand_random_cablings_of_mixed_speed_are_planned_at_the_bound() {
    let mut numbers = Numbers(1);
    for round in 0..1000 {
        let rates: &[u64] = match round % 3 {
            0 => &[RATE, RATE / 2],
            1 => &[9_217_345_619, 4_608_123_457, 2_499_999_999, 8_999_999_937],
            _ => &[1, 2, 3, 4, 5, 6, 7, 1_000_000_000_000],
        };
        let cabling = random_cabling(&mut numbers, 8, rates);
        let plan = all_reduce(&cabling).unwrap();
        assert_eq!(verify(&cabling, &plan), Ok(Ratio::ONE), "{cabling:?}");
        assert_eq!(plan.bound, best_partition_bound(&cabling), "{cabling:?}");
        assert!(plan.trees.len() <= 16, "few trees: {plan}");
    }
}

#[test]
fn hosts_that_cannot_reach_each_other_are_named() {
    let cabling = Cabling::of_pairs(4, [(0, 2), (1, 3)], RATE);
    let error = all_reduce(&cabling).unwrap_err();
    assert_eq!(error.to_string(), "a, c cannot reach b, d: connect them by a cable");
    assert_eq!(all_reduce(&Cabling::mesh(1, RATE)), Err(PlanError::OneHost));
}
