//! How fast operations are, in virtual time: exact figures of the model

use std::time::Duration;

use futures::future::LocalBoxFuture;
use rdma_collectives::{Group, GroupError, Operation, Reduction, bound};
use rdma_sim::SimDevice;
use rdma_tests::options;

use crate::cluster::{Shape, cabling, connect, joined, on_all, sim};

const K2: Shape = (2, &[(0, 1)]);
const MESH_4: Shape = (4, &[(0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 3)]);
const RING_4: Shape = (4, &[(0, 1), (1, 2), (2, 3), (3, 0)]);
const LINE_3: Shape = (3, &[(0, 1), (1, 2)]);
/// A ring of four with a chord, and a fifth Mac with two cables
const IRREGULAR_5: (usize, &[(usize, usize)]) =
    (5, &[(0, 1), (1, 2), (2, 3), (3, 0), (0, 2), (2, 4), (3, 4)]);

const SHAPES: [(&str, Shape); 5] = [
    ("pair", K2),
    ("mesh of 4", MESH_4),
    ("ring of 4", RING_4),
    ("line of 3", LINE_3),
    ("irregular", IRREGULAR_5),
];

/// What each rank does
trait Program: for<'a> Fn(&'a mut Group<SimDevice>) -> LocalBoxFuture<'a, Result<(), GroupError>> {}

impl<F: for<'a> Fn(&'a mut Group<SimDevice>) -> LocalBoxFuture<'a, Result<(), GroupError>>> Program for F {}

/// How long it takes until all ranks have done it, when they begin at the same time
fn time_of((hosts, edges): Shape, program: &dyn Program) -> Duration {
    let cabling = cabling(hosts, edges);
    let run = sim(hosts, edges).sanitize(false).run(async |net| {
        let cluster = connect(&net, &cabling, &options()).await;
        let mut groups = joined(&cluster, &cabling).await;
        on_all(&mut groups, async |_, group| group.barrier().await.unwrap()).await;
        net.sleep(Duration::from_millis(1)).await;
        let start = net.now();
        let ends = on_all(&mut groups, async |_, group| {
            program(group).await.unwrap();
            net.now()
        });
        ends.await.into_iter().max().unwrap() - start
    });
    run.value
}

/// The part of the rate of the bound that an operation with so many bytes of payload reaches
fn efficiency(shape: Shape, operation: &Operation, payload: usize, program: &dyn Program) -> f64 {
    let (bound, _) = bound(&cabling(shape.0, shape.1), operation).unwrap();
    payload as f64 * bound.to_f64() / time_of(shape, program).as_secs_f64()
}

/// Catches a plan that is not followed, blocks that wait for each other, and cables that carry a byte twice.
#[test]
fn the_other_operations_are_near_their_bounds() {
    for (name, shape) in SHAPES {
        let (root, amounts) = (0, vec![1; shape.0]);
        let part = (64 << 20) / 8 / shape.0;
        let len = part * shape.0;
        let check = |operation: Operation, copies: usize, program: &dyn Program| {
            let found = efficiency(shape, &operation, 8 * len * copies, program);
            assert!((0.95..=1.0).contains(&found), "{name}, {operation:?}: {found:.4} of the bound");
        };
        check(Operation::Broadcast { root }, 1, &|group| {
            Box::pin(async move { group.broadcast(0, &mut vec![1_u64; len]).await })
        });
        check(Operation::Reduce { root }, 1, &|group| {
            Box::pin(async move { group.reduce(0, &mut vec![1_u64; len], Reduction::Sum).await })
        });
        check(Operation::AllGather { amounts: amounts.clone() }, 1, &|group| {
            Box::pin(async move { group.all_gather(&vec![1_u64; part], &mut vec![0; len]).await })
        });
        check(Operation::ReduceScatter { amounts: amounts.clone() }, 1, &|group| {
            Box::pin(async move {
                group.reduce_scatter(&vec![1_u64; len], &mut vec![0; part], Reduction::Sum).await
            })
        });
        check(Operation::Scatter { root, amounts: amounts.clone() }, 1, &|group| {
            Box::pin(async move { group.scatter(0, &vec![1_u64; len], &mut vec![0; part]).await })
        });
        check(Operation::Gather { root, amounts: amounts.clone() }, 1, &|group| {
            Box::pin(async move { group.gather(0, &vec![1_u64; part], &mut vec![0; len]).await })
        });
        check(Operation::AllToAll { amounts: vec![amounts; shape.0] }, shape.0, &|group| {
            Box::pin(async move { group.all_to_all(&vec![1_u64; len], &mut vec![0; len]).await })
        });
    }
}

/// Catches a small vector that goes over trees, or waits for an announcement or a credit.
#[test]
fn short_vectors_take_the_latency_of_the_way() {
    // From posting a frame to reading it, without jitter.
    let hop = Duration::from_nanos(5_900);
    for ((name, shape), hops) in SHAPES.into_iter().zip([1, 1, 2, 2, 2]) {
        for (len, percent) in [(1, 103), (1024, 105), (4000, 113)] {
            let time = time_of(shape, &|group| {
                Box::pin(async move { group.all_reduce(&mut vec![1_u8; len], Reduction::Sum).await })
            });
            assert!(time <= hops * hop * percent / 100, "{name}, {len} bytes: {time:?} over {hops} cables");
        }
    }
}

/// Catches an order of blocks in which trees wait for each other at the end.
#[test]
fn large_vectors_are_reduced_at_the_bound() {
    for ((name, shape), least) in SHAPES.into_iter().zip([0.975, 0.975, 0.965, 0.975, 0.945]) {
        let found = efficiency(shape, &Operation::AllReduce, 64 << 20, &|group| {
            Box::pin(async move { group.all_reduce(&mut vec![1_f32; 16 << 20], Reduction::Sum).await })
        });
        assert!((least..=1.0).contains(&found), "{name}: {found:.4} of the bound, {least} expected");
    }
}
