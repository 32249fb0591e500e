//! Predictions with latency, and the choice between trees and flooding

mod common;

use common::{Numbers, connected_graphs, random_cabling};
use rdma_collectives::{Algorithm, AllReducePlans, Cabling, Costs, Ratio, flood, verify};

const RATE: u64 = 9_200_000_000;
const LATENCY_NS: u64 = 7_000;
const COSTS: Costs = Costs { block_ns: 500 };

/// Catches flooding that overloads a cable, and ways that are not the shortest.
#[test]
fn flooding_reaches_every_host_in_the_latency_of_the_shortest_way() {
    let mut numbers = Numbers(11);
    for _ in 0..200 {
        let cabling = random_cabling(&mut numbers, 8, &[1, 2, 3]).with_latency(LATENCY_NS);
        let plan = flood(&cabling).unwrap();
        assert!(verify(&cabling, &plan).unwrap() >= Ratio::ONE);
        let tiny = plan.predict(&cabling, 0, Costs::default()).unwrap();
        assert_eq!(tiny.seconds, tiny.lower_bound);
    }
}

#[test]
fn small_vectors_flood_and_large_ones_go_over_trees() {
    for cabling in [Cabling::ring(4, RATE), Cabling::mesh(4, RATE), Cabling::petersen(RATE)] {
        let cabling = cabling.with_latency(LATENCY_NS);
        let plans = AllReducePlans::new(&cabling).unwrap();
        let choose = |bytes| plans.choose(&cabling, bytes, COSTS).unwrap();
        assert_eq!(choose(1024).0, Algorithm::Flood);
        assert_eq!(choose(64 << 20).0, Algorithm::Trees);
        let sizes: Vec<_> = (4..30).map(|bits| choose(1 << bits)).collect();
        let flooded = sizes.iter().take_while(|(algorithm, _)| *algorithm == Algorithm::Flood).count();
        assert!(sizes[flooded..].iter().all(|(algorithm, _)| *algorithm == Algorithm::Trees));
        assert!(sizes.is_sorted_by_key(|(_, prediction)| prediction.seconds));
        assert!(sizes.iter().all(|(_, prediction)| prediction.seconds >= prediction.lower_bound));
    }
}

/// Catches trees that are too high for the target, and a model that forgets to pipeline.
#[test]
fn vectors_of_16_mib_are_within_a_fifth_of_the_bound_on_all_cablings_of_3_to_7_hosts() {
    let mut worst: f64 = 1.0;
    for (hosts, pairs) in connected_graphs(7) {
        let cabling = Cabling::of_pairs(hosts, pairs, RATE).with_latency(LATENCY_NS);
        let plans = AllReducePlans::new(&cabling).unwrap();
        let (_, prediction) = plans.choose(&cabling, 16 << 20, COSTS).unwrap();
        worst = worst.min(prediction.lower_bound / prediction.seconds);
    }
    assert!(worst >= 0.8, "{worst}");
}

/// Catches sums of latencies that overflow.
#[test]
fn absurd_latencies_make_no_panic() {
    let cabling = Cabling::ring(6, RATE).with_latency(u64::MAX);
    let plans = AllReducePlans::new(&cabling).unwrap();
    let (_, prediction) = plans.choose(&cabling, 1 << 20, COSTS).unwrap();
    assert!(prediction.seconds.is_finite());
    assert!(verify(&cabling, &plans.trees).is_ok());
}
