//! How fast operations are, in virtual time: exact figures of the model

use rdma_collectives::{Group, Operation, Reduction, bound};
use rdma_sim::{Sim, SimDevice};
use rdma_tests::options;

use crate::cluster::{cabling, connect, joined, on_all, topology};

const K2: (usize, &[(usize, usize)]) = (2, &[(0, 1)]);
const MESH_4: (usize, &[(usize, usize)]) = (4, &[(0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 3)]);
const RING_4: (usize, &[(usize, usize)]) = (4, &[(0, 1), (1, 2), (2, 3), (3, 0)]);
const LINE_3: (usize, &[(usize, usize)]) = (3, &[(0, 1), (1, 2)]);
/// A ring of four with a chord, and a fifth Mac with two cables
const IRREGULAR_5: (usize, &[(usize, usize)]) =
    (5, &[(0, 1), (1, 2), (2, 3), (3, 0), (0, 2), (2, 4), (3, 4)]);

/// The part of the rate of the bound that an all_reduce of `f32` with so many bytes reaches
fn efficiency((hosts, edges): (usize, &[(usize, usize)]), bytes: usize) -> f64 {
    let cabling = cabling(hosts, edges);
    let (bound, _) = bound(&cabling, &Operation::AllReduce).unwrap();
    let run = Sim::new().topology(topology(hosts, edges)).sanitize(false).run(async |net| {
        let cluster = connect(&net, &cabling, &options()).await;
        let mut groups = joined(&cluster, &cabling).await;
        on_all(&mut groups, async |_, group| group.barrier().await.unwrap()).await;
        let start = net.now();
        let done = on_all(&mut groups, async |rank, group| {
            let mut vector = vec![rank as f32 + 1.0; bytes / 4];
            group.all_reduce(&mut vector, Reduction::Sum).await.unwrap();
            let sum = (hosts * (hosts + 1) / 2) as f32;
            assert!(vector.iter().all(|element| *element == sum));
            net.now()
        });
        let end = done.await.into_iter().max().unwrap();
        bytes as f64 * bound.to_f64() / (end - start).as_secs_f64()
    });
    run.value
}

/// The part of the rate of the bound that an operation with vectors, or parts, of so many bytes reaches
fn efficiency_of(
    (hosts, edges): (usize, &[(usize, usize)]),
    operation: &Operation,
    payload: usize,
    program: impl AsyncFn(usize, &mut Group<SimDevice>),
) -> f64 {
    let cabling = cabling(hosts, edges);
    let (bound, _) = bound(&cabling, operation).unwrap();
    let run = Sim::new().topology(topology(hosts, edges)).sanitize(false).run(async |net| {
        let cluster = connect(&net, &cabling, &options()).await;
        let mut groups = joined(&cluster, &cabling).await;
        on_all(&mut groups, async |_, group| group.barrier().await.unwrap()).await;
        let start = net.now();
        let done = on_all(&mut groups, async |rank, group| {
            program(rank, group).await;
            net.now()
        });
        let end = done.await.into_iter().max().unwrap();
        payload as f64 * bound.to_f64() / (end - start).as_secs_f64()
    });
    run.value
}

#[test]
fn the_other_operations_are_near_their_bounds() {
    for (name, shape) in [
        ("pair", K2),
        ("mesh of 4", MESH_4),
        ("ring of 4", RING_4),
        ("line of 3", LINE_3),
        ("irregular", IRREGULAR_5),
    ] {
        let hosts = shape.0;
        let (root, amounts) = (0, vec![1; hosts]);
        let vector = 64 << 20;
        let part = vector / 8 / hosts;
        let len = part * hosts;
        let found = [
            efficiency_of(shape, &Operation::Broadcast { root }, vector, async |_, group| {
                group.broadcast(0, &mut vec![1_u64; vector / 8]).await.unwrap();
            }),
            efficiency_of(shape, &Operation::Reduce { root }, vector, async |_, group| {
                group.reduce(0, &mut vec![1_u64; vector / 8], Reduction::Sum).await.unwrap();
            }),
            efficiency_of(
                shape,
                &Operation::AllGather { amounts: amounts.clone() },
                8 * len,
                async |_, group| {
                    group.all_gather(&vec![1_u64; part], &mut vec![0; len]).await.unwrap();
                },
            ),
            efficiency_of(
                shape,
                &Operation::ReduceScatter { amounts: amounts.clone() },
                8 * len,
                async |_, group| {
                    group
                        .reduce_scatter(&vec![1_u64; len], &mut vec![0; part], Reduction::Sum)
                        .await
                        .unwrap();
                },
            ),
            efficiency_of(
                shape,
                &Operation::Scatter { root, amounts: amounts.clone() },
                8 * len,
                async |_, group| {
                    group.scatter(0, &vec![1_u64; len], &mut vec![0; part]).await.unwrap();
                },
            ),
            efficiency_of(
                shape,
                &Operation::Gather { root, amounts: amounts.clone() },
                8 * len,
                async |_, group| {
                    group.gather(0, &vec![1_u64; part], &mut vec![0; len]).await.unwrap();
                },
            ),
            efficiency_of(
                shape,
                &Operation::AllToAll { amounts: vec![amounts.clone(); hosts] },
                8 * len * hosts,
                async |_, group| {
                    group.all_to_all(&vec![1_u64; len], &mut vec![0; len]).await.unwrap();
                },
            ),
        ];
        println!("{name}: {found:.3?}");
    }
}

#[test]
fn short_vectors_take_the_latency_of_the_way() {
    for (name, shape) in [
        ("pair", K2),
        ("mesh of 4", MESH_4),
        ("ring of 4", RING_4),
        ("line of 3", LINE_3),
        ("irregular", IRREGULAR_5),
    ] {
        let (hosts, edges) = shape;
        let cabling = cabling(hosts, edges);
        for len in [1, 1024, 4096, 16384, 65536, 262144, 1 << 20] {
            let time = Sim::new()
                .topology(topology(hosts, edges))
                .run(async |net| {
                    let cluster = connect(&net, &cabling, &options()).await;
                    let mut groups = joined(&cluster, &cabling).await;
                    on_all(&mut groups, async |_, group| {
                        group.all_reduce(&mut vec![1_u8; len], Reduction::Sum).await.unwrap();
                        group.barrier().await.unwrap()
                    })
                    .await;
                    net.sleep(std::time::Duration::from_millis(1)).await;
                    let start = net.now();
                    let done = on_all(&mut groups, async |_, group| {
                        group.all_reduce(&mut vec![1_u8; len], Reduction::Sum).await.unwrap();
                        net.now()
                    });
                    done.await.into_iter().max().unwrap() - start
                })
                .value;
            println!("{name} {len}: {time:?}");
        }
    }
}

#[test]
fn large_vectors_are_reduced_at_the_bound() {
    for (name, shape, least) in [
        ("pair", K2, 0.975),
        ("mesh of 4", MESH_4, 0.975),
        ("ring of 4", RING_4, 0.965),
        ("line of 3", LINE_3, 0.975),
        ("irregular", IRREGULAR_5, 0.945),
    ] {
        let found = efficiency(shape, 64 << 20);
        assert!(found >= least, "{name}: {found:.4} of the bound, at least {least} expected");
    }
}
