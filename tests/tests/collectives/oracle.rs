//! Every operation against a scalar oracle

use std::time::Duration;

use rdma_async::NodeOptions;
use rdma_collectives::{Cabling, Complex64, Element, Group, Reduction};
use rdma_sim::SimDevice;

use crate::cluster::{cabling, connect, joined, on_all, sim};

/// Rank counts with a cabling each: one cable, a line, and five hosts with an irregular one
const SHAPES: [(usize, &[(usize, usize)]); 4] = [
    (1, &[]),
    (2, &[(0, 1)]),
    (3, &[(0, 1), (1, 2)]),
    (5, &[(0, 1), (1, 2), (2, 3), (3, 0), (0, 2), (2, 4), (3, 4)]),
];
const LENS: [usize; 5] = [0, 1, 7, 1000, 100_000];

/// Element `at` of the vector of `rank`: whole numbers, whose sums have no rounding
fn value(rank: usize, at: usize) -> i64 {
    ((rank + 1) * 7 + at * 3 + at / 97) as i64 % 101 - 50
}

fn vector(rank: usize, len: usize) -> Vec<i64> {
    (0..len).map(|at| value(rank, at)).collect()
}

fn folded(ranks: usize, len: usize, reduction: Reduction) -> Vec<i64> {
    let fold = |a: i64, b: i64| match reduction {
        Reduction::Max => a.max(b),
        Reduction::Min => a.min(b),
        Reduction::Product => a.wrapping_mul(b),
        _ => a + b,
    };
    let divisor = if reduction == Reduction::Average { ranks as i64 } else { 1 };
    let element = |at| (0..ranks).map(|rank| value(rank, at)).reduce(fold).map_or(0, |sum| sum / divisor);
    (0..len).map(element).collect()
}

/// All operations once, with parts of `len` elements, and the roots that `seed` chooses
pub(crate) async fn all_operations(rank: usize, group: &mut Group<SimDevice>, len: usize, seed: usize) {
    let ranks = group.size();
    let (root, to) = (seed % ranks, (seed / ranks) % ranks);
    let reduction =
        [Reduction::Sum, Reduction::Max, Reduction::Min, Reduction::Product, Reduction::Average][seed % 5];
    let own = vector(rank, len);
    let parts: Vec<i64> = (0..ranks).flat_map(|rank| vector(rank, len)).collect();
    let long = vector(rank, len * ranks);
    let of_rank = |vector: &[i64]| vector[rank * len..][..len].to_vec();

    let mut reduced = own.clone();
    group.all_reduce(&mut reduced, reduction).await.unwrap();
    assert_eq!(reduced, folded(ranks, len, reduction), "all_reduce, {reduction}");

    let mut everywhere = own.clone();
    group.broadcast(root, &mut everywhere).await.unwrap();
    assert_eq!(everywhere, vector(root, len), "broadcast from {root}");

    let mut reduced = own.clone();
    group.reduce(root, &mut reduced, reduction).await.unwrap();
    let expected = if rank == root { folded(ranks, len, reduction) } else { own.clone() };
    assert_eq!(reduced, expected, "reduce to {root}, {reduction}");

    let mut gathered = vec![0; len * ranks];
    group.all_gather(&own, &mut gathered).await.unwrap();
    assert_eq!(gathered, parts, "all_gather");

    let mut part = vec![0; len];
    group.reduce_scatter(&long, &mut part, reduction).await.unwrap();
    assert_eq!(part, of_rank(&folded(ranks, len * ranks, reduction)), "reduce_scatter, {reduction}");

    let mut part = vec![0; len];
    let all = if rank == root { long.clone() } else { Vec::new() };
    group.scatter(root, &all, &mut part).await.unwrap();
    assert_eq!(part, of_rank(&vector(root, len * ranks)), "scatter from {root}");

    let mut all = if rank == root { vec![0; len * ranks] } else { Vec::new() };
    group.gather(root, &own, &mut all).await.unwrap();
    assert!(rank != root || all == parts, "gather to {root}");

    let mut received = vec![0; len * ranks];
    group.all_to_all(&long, &mut received).await.unwrap();
    let expected: Vec<i64> = (0..ranks).flat_map(|from| of_rank(&vector(from, len * ranks))).collect();
    assert_eq!(received, expected, "all_to_all");

    let mut moved = own.clone();
    group.transfer(root, to, &mut moved).await.unwrap();
    let expected = if rank == to { vector(root, len) } else { own };
    assert_eq!(moved, expected, "transfer from {root} to {to}");

    group.barrier().await.unwrap();
}

/// Catches a block that is combined twice or not at all, an offset that is wrong for one rank, and a root that is ignored.
#[test]
fn every_operation_agrees_with_a_scalar_oracle() {
    for (number, (hosts, edges)) in SHAPES.into_iter().enumerate() {
        let cabling = cabling(hosts, edges);
        let simulation = sim(hosts, edges).seed(number as u64);
        let run = simulation.run(async |net| {
            let cluster = connect(&net, &cabling, &NodeOptions::new()).await;
            let mut groups = joined(&cluster, &cabling).await;
            for (seed, len) in LENS.into_iter().enumerate() {
                on_all(&mut groups, async |rank, group| {
                    all_operations(rank, group, len, 3 * seed + number).await;
                })
                .await;
            }
        });
        assert_eq!(run.findings, [], "{hosts} hosts");
    }
}

/// Catches an order of reduction that depends on arrival, by sums that are rounded, and bits of a NaN or a zero that depend on the order.
#[test]
fn results_are_the_same_bits_on_all_ranks_and_in_each_run() {
    let (hosts, edges) = SHAPES[3];
    let cabling = cabling(hosts, edges);
    let bits = |seed: u64| {
        let simulation = sim(hosts, edges).seed(seed).sanitize(false);
        simulation.run(async |net| {
            let cluster = connect(&net, &cabling, &NodeOptions::new()).await;
            let mut groups = joined(&cluster, &cabling).await;
            let results = on_all(&mut groups, async |rank, group| {
                // Another rank is the last to begin: blocks of other children wait for theirs.
                net.sleep(Duration::from_micros(200 * ((rank as u64 + 2 * seed) % 5))).await;
                let mut results = Vec::new();
                for len in [3, 300_000] {
                    let mut vector: Vec<f32> = (0..len).map(|at| 1.0 / (at + 3 * rank + 1) as f32).collect();
                    // A NaN of its own on each rank, and zeros of both signs.
                    vector[1] = f32::from_bits(0xffc0_0001 + rank as u32);
                    group.all_reduce(&mut vector, Reduction::Sum).await.unwrap();
                    assert_eq!(vector[1].to_bits(), f32::NAN.to_bits());
                    results.extend(vector.into_iter().map(f32::to_bits));
                    let mut zeros = vec![if rank % 2 == 0 { -0.0_f32 } else { 0.0 }; len];
                    group.all_reduce(&mut zeros, Reduction::Min).await.unwrap();
                    assert!(zeros.iter().all(|zero| zero.to_bits() == 1 << 31));
                }
                results
            })
            .await;
            assert!(results.iter().all(|result| *result == results[0]));
            results[0].clone()
        })
    };
    let [run, again, other] = [1, 1, 2].map(bits);
    assert_eq!(run.digest, again.digest);
    assert_ne!(run.digest, other.digest);
    assert!(run.value == other.value, "the order of arrival changes the result");
}

/// Runs an all_reduce of one type on three hosts, and compares with the oracle
async fn reduced<T: Element + std::fmt::Debug + PartialEq>(
    groups: &mut [Group<SimDevice>],
    reduction: Reduction,
    vector: impl Fn(usize) -> Vec<T>,
    expected: Vec<T>,
) {
    let found = on_all(groups, async |rank, group| {
        let mut vector = vector(rank);
        group.all_reduce(&mut vector, reduction).await.unwrap();
        vector
    })
    .await;
    for vector in found {
        assert_eq!(vector, expected, "{} of {}", reduction, T::TYPE);
    }
}

/// Catches a type whose elements are taken for others, in flooded vectors and in those that go over trees.
#[test]
fn every_type_of_element_is_reduced() {
    const LEN: usize = 70_001;
    let (hosts, edges) = SHAPES[2];
    let cabling: Cabling = cabling(hosts, edges);
    sim(hosts, edges).run(async |net| {
        let cluster = connect(&net, &cabling, &NodeOptions::new()).await;
        let mut groups = joined(&cluster, &cabling).await;
        macro_rules! numbers {
            ($($element:ty: $from:expr;)*) => {$(
                for len in [5, LEN] {
                    let from: fn(i64) -> $element = $from;
                    let vector = |rank: usize| (0..len).map(|at| from((rank + at % 9) as i64)).collect();
                    // rank + at % 9, of ranks 0 to 2
                    let sum = (0..len).map(|at| from(3 + 3 * (at % 9) as i64)).collect();
                    reduced(&mut groups, Reduction::Sum, vector, sum).await;
                    let average = (0..len).map(|at| from(1 + (at % 9) as i64)).collect();
                    reduced(&mut groups, Reduction::Average, vector, average).await;
                    let max = (0..len).map(|at| from(2 + (at % 9) as i64)).collect();
                    reduced(&mut groups, Reduction::Max, vector, max).await;
                }
            )*};
        }
        numbers! {
            i8: |n| n as i8;
            i16: |n| n as i16;
            i32: |n| n as i32;
            i64: |n| n;
            u8: |n| n as u8;
            u16: |n| n as u16;
            u32: |n| n as u32;
            u64: |n| n as u64;
            f32: |n| n as f32;
            f64: |n| n as f64;
            half::f16: |n| half::f16::from_f32(n as f32);
            half::bf16: |n| half::bf16::from_f32(n as f32);
        }
        let any = (0..LEN).map(|at| at % 9 < 3).collect();
        reduced(&mut groups, Reduction::Sum, |rank| (0..LEN).map(|at| at % 9 == rank).collect(), any).await;
        let all = (0..LEN).map(|at| at % 9 > 2).collect();
        reduced(&mut groups, Reduction::Product, |rank| (0..LEN).map(|at| at % 9 != rank).collect(), all)
            .await;
        // i^3 = -i, and (1 + i) + (1 + 2i) + (1 + 3i)
        let product = vec![Complex64 { re: 0.0, im: -1.0 }; LEN];
        let factor = |_| vec![Complex64 { re: 0.0, im: 1.0 }; LEN];
        reduced(&mut groups, Reduction::Product, factor, product).await;
        let sum = vec![Complex64 { re: 3.0, im: 6.0 }; 9];
        let summand = |rank| vec![Complex64 { re: 1.0, im: rank as f32 + 1.0 }; 9];
        reduced(&mut groups, Reduction::Sum, summand, sum).await;
    });
}
