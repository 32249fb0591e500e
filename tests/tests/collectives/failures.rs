//! The errors of ranks that disagree, or of which one is gone

use std::pin::pin;
use std::time::Duration;

use futures::future::{Either, join_all, select};
use rdma_async::NodeOptions;
use rdma_collectives::{Group, GroupError, GroupOptions, JoinError, Reduction};
use rdma_sim::{Net, SimDevice};

use crate::cluster::{Cluster, cabling, connect, joined, on_all, sim};

const LINE_4: (usize, &[(usize, usize)]) = (4, &[(0, 1), (1, 2), (2, 3)]);
/// How long an error may take to reach all ranks: two heartbeats at the timeout of `quick`, and the way
const BOUND: Duration = Duration::from_millis(50);

fn quick() -> NodeOptions {
    NodeOptions::new().peer_timeout(Duration::from_millis(40))
}

/// Runs `program` with the groups of a line of four hosts
fn on_line<T>(program: impl AsyncFnOnce(Net, Cluster, Vec<Group<SimDevice>>) -> T) -> T {
    let (hosts, edges) = LINE_4;
    let cabling = cabling(hosts, edges);
    sim(hosts, edges)
        .run(async |net| {
            let cluster = connect(&net, &cabling, &quick()).await;
            let groups = joined(&cluster, &cabling).await;
            program(net, cluster, groups).await
        })
        .value
}

/// Why the group is over beside which this rank was to make another one
fn ended<T>(made: Result<T, JoinError>) -> Result<(), GroupError> {
    match made {
        Ok(_) => Ok(()),
        Err(JoinError::Group(error)) => Err(error),
        Err(error) => panic!("{error}"),
    }
}

/// Catches a header that is not compared, and an error that only neighbours learn: without it, the far ranks hang.
#[test]
fn a_different_call_is_an_error_that_names_both_ranks() {
    type Call = fn(&mut Group<SimDevice>) -> futures::future::LocalBoxFuture<'_, Result<(), GroupError>>;
    let others: [(&str, Call); 8] = [
        ("all_reduce of 8 i32, sum", |group| {
            Box::pin(async { group.all_reduce(&mut [0_i32; 8], Reduction::Sum).await })
        }),
        ("all_reduce of 9 f32, sum", |group| {
            Box::pin(async { group.all_reduce(&mut [0_f32; 9], Reduction::Sum).await })
        }),
        ("all_reduce of 0 f32, sum", |group| {
            Box::pin(async { group.all_reduce::<f32>(&mut [], Reduction::Sum).await })
        }),
        ("all_reduce of 8 f32, max", |group| {
            Box::pin(async { group.all_reduce(&mut [0_f32; 8], Reduction::Max).await })
        }),
        ("broadcast of 8 f32, root 0", |group| Box::pin(async { group.broadcast(0, &mut [0_f32; 8]).await })),
        ("barrier", |group| Box::pin(async { group.barrier().await })),
        ("duplicate", |group| Box::pin(async { ended(group.duplicate(GroupOptions::new()).await) })),
        ("split", |group| Box::pin(async { ended(group.split(Some(0), 0, GroupOptions::new()).await) })),
    ];
    for (expected, other) in others {
        on_line(async |net, _cluster, mut groups| {
            on_all(&mut groups, async |_, group| group.barrier().await.unwrap()).await;
            let start = net.now();
            let errors = on_all(&mut groups, async |rank, group| {
                match rank {
                    3 => other(group).await,
                    _ => group.all_reduce(&mut [0_f32; 8], Reduction::Sum).await,
                }
                .unwrap_err()
            })
            .await;
            assert!(net.now() - start < BOUND);
            for error in &errors {
                let GroupError::Mismatch { sequence: 1, ranks, calls } = error else {
                    panic!("{expected}: {error}")
                };
                let of = |rank| calls[ranks.iter().position(|found| *found == rank).unwrap()].to_string();
                assert_eq!([of(2), of(3)], ["all_reduce of 8 f32, sum", expected]);
            }
            // The group is over.
            let again = on_all(&mut groups, async |_, group| group.barrier().await.unwrap_err()).await;
            assert_eq!(again, errors);
        });
    }
}

/// Catches a root that is not compared: a rank would take the vector of another one.
#[test]
fn a_different_root_is_an_error_that_names_both_ranks() {
    on_line(async |_net, _cluster, mut groups| {
        let errors = on_all(&mut groups, async |rank, group| {
            // A rank that only sends may learn of it in its next operation.
            match group.broadcast(usize::from(rank == 3), &mut [0_f32; 8]).await {
                Ok(()) => group.barrier().await.unwrap_err(),
                Err(error) => error,
            }
        })
        .await;
        for error in errors {
            let GroupError::Mismatch { sequence: 0, ranks, calls } = &error else { panic!("{error}") };
            let of = |rank| calls[ranks.iter().position(|found| *found == rank).unwrap()].to_string();
            assert_eq!([of(2), of(3)], ["broadcast of 8 f32, root 0", "broadcast of 8 f32, root 1"]);
        }
    });
}

/// A rank that is one call behind the others, and one that has left out a call
#[test]
fn another_order_of_calls_is_an_error() {
    on_line(async |_net, _cluster, mut groups| {
        let errors = on_all(&mut groups, async |rank, group| {
            let first = if rank == 1 { 5 } else { 4 };
            group.all_reduce(&mut vec![0_u8; first], Reduction::Sum).await?;
            group.all_reduce(&mut vec![0_u8; 9 - first], Reduction::Sum).await
        })
        .await;
        for error in errors {
            assert!(matches!(error, Err(GroupError::Mismatch { sequence: 0, .. })), "{error:?}");
        }
    });
}

/// Catches an error of the next call that overtakes the last blocks of the one before, and fails that on a slower rank.
#[test]
fn an_error_leaves_the_calls_before_it_alone() {
    let (hosts, edges) = LINE_4;
    let cabling = &cabling(hosts, edges);
    for len in [10, 100_000, 1 << 20, 8 << 20] {
        for ending in ["differs", "cancels", "leaves"] {
            let content = |rank: usize| vec![if rank == 0 { 7_u8 } else { 0 }; len];
            // The way to the last rank is long.
            let sim = sim(hosts, edges).faults("at 0s d:rdma_en2 slow 5%".parse().unwrap());
            let run = sim.run(async |net| {
                let cluster = connect(&net, cabling, &quick()).await;
                let groups = joined(&cluster, cabling).await;
                let calls = groups.into_iter().enumerate().map(|(rank, mut group)| async move {
                    let mut vector = content(rank);
                    let first = group.broadcast(0, &mut vector).await;
                    assert_eq!(first, Ok(()), "{len} {ending}: rank {rank}");
                    assert!(vector == content(0));
                    let mut next = vec![0_u8; 1 << 20];
                    let call = group.all_reduce(&mut next, Reduction::Sum);
                    match (rank, ending) {
                        (0, "cancels") => {
                            let mut call = pin!(call);
                            assert!(futures::poll!(call.as_mut()).is_pending());
                            Ok(())
                        }
                        (0, "leaves") => Ok(()),
                        (0, _) => {
                            drop(call);
                            group.barrier().await
                        }
                        _ => call.await,
                    }
                });
                join_all(calls).await
            });
            let expected = |error: &GroupError| match ending {
                "differs" => {
                    matches!(error, GroupError::Mismatch { sequence: 1, ranks, .. } if ranks.contains(&0))
                }
                "cancels" => *error == GroupError::Cancelled { rank: 0, sequence: 1 },
                _ => *error == GroupError::Left { rank: 0 },
            };
            for (rank, error) in run.value.iter().enumerate().skip(1) {
                assert!(error.as_ref().is_err_and(expected), "{len} {ending}: rank {rank}: {error:?}");
            }
        }
    }
}

/// Catches a loss that only the neighbours of the lost rank learn of, or that names another rank.
#[test]
fn the_loss_of_a_rank_is_an_error_that_names_it_on_all_others() {
    for lost in 0..4 {
        for len in [10, 8 << 20] {
            on_line(async |net, mut cluster, groups| {
                let mut groups: Vec<_> = groups.into_iter().enumerate().collect();
                let (_, gone) = groups.remove(lost);
                let fail = async |rank: usize, mut group: Group<SimDevice>| {
                    group
                        .all_reduce(&mut vec![1_u8; len], Reduction::Sum)
                        .await
                        .map_err(|error| (rank, error))
                };
                let losing = async {
                    // It takes part for a while, and is then gone with its nodes and sessions.
                    let operation = fail(lost, gone);
                    let pause = net.sleep(Duration::from_micros(if len > 10 { 300 } else { 0 }));
                    let ended = select(Box::pin(operation), Box::pin(pause)).await;
                    let Either::Right((_, operation)) = ended else { panic!("it cannot end so soon") };
                    net.inject(format!("at 0us {} kill", crate::cluster::name(lost)).parse().unwrap());
                    net.sleep(Duration::from_millis(200)).await;
                    drop(operation);
                };
                let start = net.now();
                let survive = join_all(groups.into_iter().map(async |(rank, group)| {
                    let (_, error) = fail(rank, group).await.unwrap_err();
                    (rank, error, net.now() - start)
                }));
                let ((), errors) = futures::future::join(losing, survive).await;
                for (rank, error, after) in errors {
                    assert!(
                        matches!(error, GroupError::Lost { rank, .. } if rank == lost),
                        "{rank}: {error:?}"
                    );
                    assert!(after <= BOUND, "rank {rank} learned of {lost} after {after:?}");
                }
                cluster.nodes.clear();
            });
        }
    }
}

/// Catches a dropped operation after which the others wait for ever.
#[test]
fn a_dropped_operation_ends_the_group_on_all_ranks() {
    on_line(async |net, _cluster, mut groups| {
        let start = net.now();
        let errors = on_all(&mut groups, async |rank, group| {
            if rank == 0 {
                let mut vector = vec![1_u32; 1 << 20];
                let operation = Box::pin(group.all_reduce(&mut vector, Reduction::Sum));
                let pause = Box::pin(net.sleep(Duration::from_micros(100)));
                assert!(matches!(select(operation, pause).await, Either::Right(_)));
            }
            group.all_reduce(&mut vec![1_u32; 1 << 20], Reduction::Sum).await.unwrap_err()
        })
        .await;
        assert!(net.now() - start < BOUND);
        for error in errors {
            assert_eq!(error, GroupError::Cancelled { rank: 0, sequence: 0 });
        }
    });
}

/// Catches an argument that is found wrong only after something was sent: the group would be over.
#[test]
fn wrong_arguments_leave_the_group_as_it_is() {
    on_line(async |_net, _cluster, mut groups| {
        on_all(&mut groups, async |_, group| {
            let error = group.all_gather(&[1, 2], &mut [0; 7]).await.unwrap_err();
            assert_eq!(error, GroupError::Argument { name: "all", expected: 8, found: 7 });
            let error = group.broadcast(4, &mut [0; 7]).await.unwrap_err();
            assert_eq!(error, GroupError::Rank { rank: 4, size: 4 });
            let error = group.all_reduce(&mut [true], Reduction::Average).await.unwrap_err();
            assert_eq!(error.to_string(), "elements of type bool have no average");
            assert_eq!(group.sequence(), 0);
            group.barrier().await.unwrap();
        })
        .await;
    });
}
