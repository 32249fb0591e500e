//! Operations whose parts have different lengths

use rdma_async::NodeOptions;
use rdma_collectives::{Cabling, Group, GroupError, HostCap, Operation, Reduction, bound};
use rdma_sim::SimDevice;
use rdma_tests::options;

use crate::cluster::{RATE, Shape, cabling, connect, joined, on_all, sim, sim_of};

const SHAPES: [Shape; 4] = [
    (1, &[]),
    (2, &[(0, 1)]),
    (3, &[(0, 1), (1, 2)]),
    (5, &[(0, 1), (1, 2), (2, 3), (3, 0), (0, 2), (2, 4), (3, 4)]),
];

/// Runs `program` on all ranks at once, and returns what each returns
fn on<T>((hosts, edges): Shape, program: impl AsyncFn(usize, &mut Group<SimDevice>) -> T) -> Vec<T> {
    on_cabling(&cabling(hosts, edges), program)
}

fn on_cabling<T>(cabling: &Cabling, program: impl AsyncFn(usize, &mut Group<SimDevice>) -> T) -> Vec<T> {
    let run = sim_of(cabling).run(async |net| {
        let cluster = connect(&net, cabling, &NodeOptions::new()).await;
        let mut groups = joined(&cluster, cabling).await;
        on_all(&mut groups, program).await
    });
    assert_eq!(run.findings, [], "{cabling:?}");
    run.value
}

/// The number of elements of a part: none, one, a packet, or several blocks
fn count(seed: usize, from: usize, to: usize) -> usize {
    [0, 1, 1009, 40_000, 0, 3][(seed + 5 * from + 3 * to + from * to) % 6]
}

/// Element `at` of the part from one rank to another
fn value(from: usize, to: usize, at: usize) -> i32 {
    (from * 1000 + to * 100) as i32 + (at % 97) as i32
}

fn part(from: usize, to: usize, count: usize) -> Vec<i32> {
    (0..count).map(|at| value(from, to, at)).collect()
}

async fn all_operations(rank: usize, group: &mut Group<SimDevice>, seed: usize) {
    let ranks = group.size();
    let root = seed % ranks;
    let counts: Vec<_> = (0..ranks).map(|rank| count(seed, rank, seed % 2)).collect();
    let total = counts.iter().sum();
    let parts: Vec<_> = (0..ranks).map(|from| part(from, 0, counts[from])).collect();
    let own = &parts[rank];

    let mut all = vec![-1; total];
    group.all_gather_v(own, &counts, &mut all).await.unwrap();
    assert_eq!(all, parts.concat(), "all_gather_v of {counts:?}");

    let mut all = if rank == root { vec![-1; total] } else { Vec::new() };
    group.gather_v(root, own, &counts, &mut all).await.unwrap();
    assert!(rank != root || all == parts.concat(), "gather_v of {counts:?} to {root}");

    let mut received = vec![-1; counts[rank]];
    let all = if rank == root { parts.concat() } else { Vec::new() };
    group.scatter_v(root, &all, &counts, &mut received).await.unwrap();
    assert_eq!(&received, own, "scatter_v of {counts:?} from {root}");

    let mut reduced = vec![-1; counts[rank]];
    let vector: Vec<_> = parts.concat().iter().map(|element| element + rank as i32).collect();
    group.reduce_scatter_v(&vector, &counts, &mut reduced, Reduction::Sum).await.unwrap();
    let ranks_sum = (ranks * (ranks - 1) / 2) as i32;
    let expected: Vec<_> = own.iter().map(|element| element * ranks as i32 + ranks_sum).collect();
    assert_eq!(reduced, expected, "reduce_scatter_v of {counts:?}");

    let sent_counts: Vec<_> = (0..ranks).map(|to| count(seed, rank, to)).collect();
    let received_counts: Vec<_> = (0..ranks).map(|from| count(seed, from, rank)).collect();
    let sent: Vec<_> = (0..ranks).flat_map(|to| part(rank, to, sent_counts[to])).collect();
    let mut received = vec![-1; received_counts.iter().sum()];
    group.all_to_all_v(&sent, &sent_counts, &mut received, &received_counts).await.unwrap();
    let expected: Vec<_> = (0..ranks).flat_map(|from| part(from, rank, received_counts[from])).collect();
    assert_eq!(received, expected, "all_to_all_v of {received_counts:?}");
}

/// Catches an offset that is counted in parts of equal lengths, and parts that are empty for some ranks, or for all.
#[test]
fn parts_of_different_lengths_agree_with_an_oracle() {
    for shape in SHAPES {
        on(shape, async |rank, group| {
            for seed in 0..12 {
                all_operations(rank, group, seed).await;
            }
            let none = vec![0; group.size()];
            group.all_gather_v::<u8>(&[], &none, &mut []).await.unwrap();
            group.gather_v::<u8>(0, &[], &none, &mut []).await.unwrap();
            group.all_to_all_v::<u8>(&[], &none, &mut [], &none).await.unwrap();
        });
    }
}

/// The trees and paths under caps are others. Catches ranks that do not join because they plan them differently, and plans that groups cannot carry out.
#[test]
fn hosts_with_caps_agree_with_an_oracle() {
    let (hosts, edges) = SHAPES[3];
    let slow_root = HostCap { send: Some(RATE / 2), receive: Some(RATE) };
    let capped = cabling(hosts, edges).with_cap(0, slow_root).unwrap();
    let capped =
        capped.with_cap(2, HostCap::new(RATE)).unwrap().with_cap(3, HostCap::new(RATE * 4 / 3)).unwrap();
    on_cabling(&capped, async |rank, group| {
        for seed in 0..6 {
            all_operations(rank, group, seed).await;
        }
        let mut sum: Vec<_> = (0..100_000).map(|at| at + rank as i32).collect();
        group.all_reduce(&mut sum, Reduction::Sum).await.unwrap();
        assert!(sum.iter().zip(0..).all(|(sum, at)| *sum == 5 * at + 10));
        group.broadcast(0, &mut sum).await.unwrap();
        group.reduce(0, &mut sum, Reduction::Max).await.unwrap();
    });
}

/// What each rank gets if rank 1 of three calls all_gather_v with other counts than the rest
fn errors_of(counts: [[usize; 3]; 2]) -> Vec<GroupError> {
    on(SHAPES[2], async |rank, group| {
        let counts = counts[usize::from(rank == 1)];
        let mut all = vec![0_u8; counts.iter().sum()];
        group.all_gather_v(&vec![0; counts[rank]], &counts, &mut all).await.unwrap_err()
    })
}

/// Catches counts that are not compared: the same total, divided otherwise, and nothing at all beside something.
#[test]
fn ranks_that_disagree_about_the_counts_find_out() {
    for counts in [[[100, 200, 300], [200, 100, 300]], [[0; 3], [0, 1, 0]], [[70_000, 0, 0], [0; 3]]] {
        for error in errors_of(counts) {
            let GroupError::Mismatch { sequence: 0, calls, .. } = &error else { panic!("{error}") };
            assert_ne!(calls[0].counts, calls[1].counts, "{error}");
            let text = error.to_string();
            assert!(
                text.contains(" u8 with counts of hash ") && text.contains("pass the same counts in"),
                "{text}"
            );
        }
    }
}

/// Catches a rank that waits for elements that no rank sends: all of them learn which two disagree.
#[test]
fn a_rank_that_expects_another_count_than_is_sent_is_named() {
    let errors = on(SHAPES[2], async |rank, group| {
        let received_counts = if rank == 2 { [4, 5, 4] } else { [4; 3] };
        let mut received = vec![0; received_counts.iter().sum()];
        group.all_to_all_v(&[0_i16; 12], &[4; 3], &mut received, &received_counts).await.unwrap_err()
    });
    for error in errors {
        let GroupError::Mismatch { ranks: [1, 2], calls, .. } = &error else { panic!("{error}") };
        assert_eq!(calls.map(|call| call.count), [4, 5], "{error}");
    }
}

/// Catches slices that are as long as for other counts.
#[test]
fn wrong_lengths_are_refused_before_anything_is_sent() {
    on(SHAPES[1], async |_, group| {
        let found = [
            group.all_gather_v(&[1_u8], &[1, 1, 1], &mut [0; 3]).await,
            group.all_gather_v(&[1_u8; 3], &[1, 2], &mut [0; 3]).await,
            group.gather_v(2, &[1_u8; 2], &[2, 2], &mut []).await,
            group.all_to_all_v(&[1_u8; 3], &[1, 1], &mut [0; 2], &[1, 1]).await,
            // More than a slice has, where the rank has a short part.
            group.all_gather_v(&[1_u8], &[1, usize::MAX], &mut []).await,
            group.gather_v(1, &[1_u64], &[1, usize::MAX / 16], &mut []).await,
            group.scatter_v(1, &[], &[1, isize::MAX as usize], &mut [0_u8]).await,
        ];
        let wrong = found.map(|found| found.unwrap_err());
        assert!(matches!(&wrong[0], GroupError::Argument { name: "counts", expected: 2, found: 3 }));
        assert!(matches!(&wrong[1], GroupError::Argument { name: "part", .. }));
        assert!(matches!(&wrong[2], GroupError::Rank { rank: 2, size: 2 }));
        assert!(wrong[4..].iter().all(|error| matches!(error, GroupError::Counts { .. })), "{wrong:?}");
        assert!(matches!(&wrong[3], GroupError::Argument { name: "sent", expected: 2, found: 3 }));
        group.barrier().await.unwrap();
    });
}

/// The time of an operation on four Macs in a ring that all begin at once, as a part of its bound, in which rank 0 gets or has most
fn efficiency(
    operation: &Operation,
    unit: usize,
    program: impl AsyncFn(usize, &mut Group<SimDevice>),
) -> f64 {
    let (hosts, edges) = (4, &[(0, 1), (1, 2), (2, 3), (3, 0)][..]);
    let cabling = cabling(hosts, edges);
    let run = sim(hosts, edges).sanitize(false).run(async |net| {
        let cluster = connect(&net, &cabling, &options()).await;
        let mut groups = joined(&cluster, &cabling).await;
        on_all(&mut groups, async |_, group| group.barrier().await.unwrap()).await;
        let start = net.now();
        on_all(&mut groups, &program).await;
        net.now() - start
    });
    let amounts: u64 = match operation {
        Operation::AllGather { amounts } | Operation::ReduceScatter { amounts } => amounts.iter().sum(),
        Operation::AllToAll { amounts } => amounts.iter().flatten().sum(),
        _ => unreachable!("it is not measured"),
    };
    let (bound, _) = bound(&cabling, operation).unwrap();
    amounts as f64 * unit as f64 * bound.to_f64() / run.value.as_secs_f64()
}

/// Catches parts that are planned for as if they were equal: a hot expert then takes twice as long.
#[test]
fn uneven_parts_have_plans_of_their_own() {
    const UNIT: usize = 1 << 20;
    let amounts = [29_u64, 5, 1, 7];
    let counts = amounts.map(|amount| amount as usize * UNIT);
    let gather =
        efficiency(&Operation::AllGather { amounts: amounts.to_vec() }, UNIT, async |rank, group| {
            let mut all = vec![0_u8; counts.iter().sum()];
            group.all_gather_v(&vec![1; counts[rank]], &counts, &mut all).await.unwrap();
        });
    let scatter =
        efficiency(&Operation::ReduceScatter { amounts: amounts.to_vec() }, UNIT, async |rank, group| {
            let all = vec![1_u8; counts.iter().sum()];
            group.reduce_scatter_v(&all, &counts, &mut vec![0; counts[rank]], Reduction::Sum).await.unwrap();
        });
    // Every rank sends most to rank 0, which has the hot expert.
    let pairs = vec![amounts.to_vec(); 4];
    let dispatch = efficiency(&Operation::AllToAll { amounts: pairs }, UNIT, async |rank, group| {
        let (sent, mut received) = (vec![1_u8; counts.iter().sum()], vec![0; 4 * counts[rank]]);
        group.all_to_all_v(&sent, &counts, &mut received, &[counts[rank]; 4]).await.unwrap();
    });
    let found = [gather, scatter, dispatch];
    assert!(found.iter().all(|found| (0.95..=1.0).contains(found)), "{found:.4?} of the bounds");
}
