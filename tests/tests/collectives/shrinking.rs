//! Groups that go on without ranks that were lost

use std::time::Duration;

use futures::future::{Either, join_all, select};
use rdma_async::NodeOptions;
use rdma_collectives::{Group, GroupError, Reduction, ShrinkError};
use rdma_core::Device as _;
use rdma_sim::{Net, SimDevice};

use crate::cluster::{Cluster, Shape, cabling, connect, joined, name, on_all, sim};

const MESH_4: Shape = (4, &[(0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 3)]);
const MESH_5: Shape = (5, &[(0, 1), (0, 2), (0, 3), (0, 4), (1, 2), (1, 3), (1, 4), (2, 3), (2, 4), (3, 4)]);
const RING_5: Shape = (5, &[(0, 1), (1, 2), (2, 3), (3, 4), (4, 0)]);
const LINE_4: Shape = (4, &[(0, 1), (1, 2), (2, 3)]);

/// How long the ranks that are left may take from the error to the result of their next operation
const BOUND: Duration = Duration::from_millis(10);

fn quick() -> NodeOptions {
    NodeOptions::new().peer_timeout(Duration::from_millis(40))
}

/// Runs `program` with the groups of these hosts
fn on<T>((hosts, edges): Shape, program: impl AsyncFnOnce(Net, Cluster, Vec<Group<SimDevice>>) -> T) -> T {
    let cabling = cabling(hosts, edges);
    sim(hosts, edges)
        .run(async |net| {
            let cluster = connect(&net, &cabling, &quick()).await;
            let groups = joined(&cluster, &cabling).await;
            program(net, cluster, groups).await
        })
        .value
}

fn kill(net: &Net, rank: usize) {
    net.inject(format!("at 0us {} kill", name(rank)).parse().unwrap());
}

/// Cuts or mends the cable between two hosts
fn plug(net: &Net, [one, other]: [usize; 2], fault: &str) {
    let device = net.host(&name(one)).open_to(&name(other)).unwrap();
    net.inject(format!("at 0us {}:{} {fault}", name(one), device.name()).parse().unwrap());
}

/// Sums up `len` copies of `1 << rank of the founding group`, and compares the result with that of these hosts
async fn sum(group: &mut Group<SimDevice>, own: usize, len: usize) -> Result<(), GroupError> {
    let mut vector = vec![1_u64 << own; len];
    group.all_reduce(&mut vector, Reduction::Sum).await?;
    let expected: u64 = group.hosts().iter().map(|host| 1_u64 << (host.as_bytes()[0] - b'a')).sum();
    assert!(vector.into_iter().all(|element| element == expected), "{:?}", group.hosts());
    Ok(())
}

/// Operations until one fails
async fn work(group: &mut Group<SimDevice>, own: usize, len: usize) -> GroupError {
    loop {
        if let Err(error) = sum(group, own, len).await {
            return error;
        }
    }
}

fn hosts(ranks: impl IntoIterator<Item = usize>) -> Vec<String> {
    ranks.into_iter().map(name).collect()
}

/// Catches ranks that are numbered differently on two hosts, memory of the old group that never comes back, and a plan over a host that is gone.
#[test]
fn the_ranks_that_are_left_go_on() {
    for (shape, lost) in [(MESH_4, 0), (MESH_4, 2), (RING_5, 0), (RING_5, 3), (LINE_4, 0), (LINE_4, 3)] {
        for len in [1, 1 << 20] {
            on(shape, async |net, cluster, groups| {
                let left: Vec<_> = (0..shape.0).filter(|rank| *rank != lost).collect();
                let ranks = groups.into_iter().enumerate().map(async |(rank, mut group)| {
                    if rank == lost {
                        let pause = Box::pin(net.sleep(Duration::from_micros(300)));
                        let _ = select(Box::pin(work(&mut group, rank, len)), pause).await;
                        kill(&net, lost);
                        net.sleep(Duration::from_millis(500)).await;
                        return;
                    }
                    let error = work(&mut group, rank, len).await;
                    assert!(matches!(error, GroupError::Lost { rank, .. } if rank == lost), "{error:?}");
                    let start = net.now();
                    let mut group = group.shrink().await.unwrap();
                    assert_eq!(group.hosts(), hosts(left.iter().copied()));
                    assert_eq!(group.rank(), left.iter().position(|other| *other == rank).unwrap());
                    assert_eq!((group.epoch(), group.sequence()), (1, 1));
                    for len in [len, 1000, len] {
                        sum(&mut group, rank, len).await.unwrap();
                        let after = net.now() - start;
                        assert!(after < BOUND * 3, "{after:?} on rank {rank} without {lost}");
                    }
                });
                join_all(ranks).await;
                drop(cluster);
            });
        }
    }
}

/// Catches survivors that take different ranks for lost, and one that waits for ever for a rank that is lost while they agree.
#[test]
fn a_rank_that_is_lost_while_the_others_agree_is_left_out_too() {
    for after in (0..60).map(|step| Duration::from_micros(2 * step * step)) {
        on(MESH_5, async |net, cluster, groups| {
            let ranks = groups.into_iter().enumerate().map(async |(rank, mut group)| {
                match rank {
                    1 => kill(&net, 1),
                    _ => assert!(matches!(
                        work(&mut group, rank, 1000).await,
                        GroupError::Lost { rank: 1, .. }
                    )),
                }
                if rank == 1 {
                    net.sleep(Duration::from_millis(500)).await;
                    return None;
                }
                if rank == 3 {
                    let pause = Box::pin(net.sleep(after));
                    let ended = select(Box::pin(group.shrink()), pause).await;
                    kill(&net, 3);
                    net.sleep(Duration::from_millis(500)).await;
                    drop(ended);
                    return None;
                }
                // The third rank may be lost before or after the others have come together.
                let mut group = group.shrink().await.unwrap();
                while group.size() > 3 {
                    assert_eq!(group.size(), 4);
                    let error = work(&mut group, rank, 1000).await;
                    let Some(GroupError::Lost { rank: 2, .. }) = Some(&error) else { panic!("{error}") };
                    group = group.shrink().await.unwrap();
                }
                sum(&mut group, rank, 1000).await.unwrap();
                Some((group.hosts().to_vec(), group.epoch()))
            });
            let ends: Vec<_> = join_all(ranks).await.into_iter().flatten().collect();
            assert_eq!(ends.len(), 3);
            assert!(
                ends.iter().all(|end| *end == ends[0] && end.0 == hosts([0, 2, 4])),
                "{after:?}: {ends:?}"
            );
            drop(cluster);
        });
    }
}

/// Catches two halves that go on side by side.
#[test]
fn a_minority_does_not_go_on() {
    // The first part goes on, if any does.
    let parts: [(Shape, [&[usize]; 2]); 5] = [
        (MESH_4, [&[0, 1], &[2, 3]]),
        (MESH_4, [&[0, 3], &[1, 2]]),
        (MESH_4, [&[1, 2, 3], &[0]]),
        (MESH_5, [&[2, 3, 4], &[0, 1]]),
        (LINE_4, [&[0, 1], &[2, 3]]),
    ];
    for (shape, parts) in parts {
        on(shape, async |net, cluster, groups| {
            for &(left, right) in shape.1 {
                if parts[0].contains(&left) != parts[0].contains(&right) {
                    plug(&net, [left, right], "unplug");
                }
            }
            let ranks = groups.into_iter().enumerate().map(async |(rank, mut group)| {
                let error = work(&mut group, rank, 1000).await;
                assert!(matches!(error, GroupError::Lost { .. }), "{error}");
                match group.shrink().await {
                    Ok(mut group) => {
                        assert!(parts[0].contains(&rank));
                        assert_eq!(group.hosts(), hosts(parts[0].iter().copied()));
                        sum(&mut group, rank, 1000).await.unwrap();
                    }
                    Err(error) => {
                        let minority = hosts(parts[1].iter().copied());
                        assert!(parts[1].contains(&rank), "{error}");
                        assert_eq!(error, ShrinkError::Minority { hosts: minority, size: shape.0 });
                    }
                }
            });
            join_all(ranks).await;
            drop(cluster);
        });
    }
}

/// Catches a rank in the middle of a line whose loss leaves no majority, and a lone rank that goes on.
#[test]
fn without_a_majority_no_rank_goes_on() {
    on(LINE_4, async |net, cluster, groups| {
        let ranks = groups.into_iter().enumerate().map(async |(rank, mut group)| {
            if rank == 1 {
                kill(&net, 1);
                net.sleep(Duration::from_millis(500)).await;
                return None;
            }
            work(&mut group, rank, 1000).await;
            Some(group.shrink().await.unwrap_err().to_string())
        });
        let ends = join_all(ranks).await;
        let alone = "1 of 4 ranks are left (a): too few to go on";
        let half = "2 of 4 ranks are left (c, d): too few to go on";
        assert_eq!(ends, [Some(alone), None, Some(half), Some(half)].map(|end| end.map(str::to_owned)));
        drop(cluster);
    });
}

/// Catches a group that can only go on when a rank is lost, and an operation under way that a revocation does not end.
#[test]
fn all_ranks_of_a_revoked_group_go_on() {
    on(RING_5, async |net, cluster, groups| {
        let ranks = groups.into_iter().enumerate().map(async |(rank, mut group)| {
            for epoch in 1..4 {
                if rank == epoch {
                    net.sleep(Duration::from_millis(1)).await;
                    group.revoke();
                    group.revoke();
                    assert_eq!(group.end(), Some(&GroupError::Revoked { rank }));
                } else {
                    let error = work(&mut group, rank, 100_000).await;
                    assert_eq!(error, GroupError::Revoked { rank: epoch });
                }
                group = group.shrink().await.unwrap();
                assert_eq!((group.size(), group.epoch()), (5, epoch as u64));
                sum(&mut group, rank, 100_000).await.unwrap();
            }
            // Without an error before: the others are told.
            group = match rank {
                0 => group.shrink().await.unwrap(),
                _ => {
                    let error = work(&mut group, rank, 1000).await;
                    assert_eq!(error, GroupError::Revoked { rank: 0 });
                    group.shrink().await.unwrap()
                }
            };
            sum(&mut group, rank, 1000).await.unwrap();
        });
        join_all(ranks).await;
        drop(cluster);
    });
}

/// Catches ranks that wait for one that has left while its sessions live on, and for one that gives up agreeing.
#[test]
fn a_rank_that_leaves_is_left_out() {
    for gives_up in [false, true] {
        on(MESH_4, async |net, cluster, groups| {
            let ranks = groups.into_iter().enumerate().map(async |(rank, mut group)| {
                if rank == 2 {
                    sum(&mut group, rank, 1000).await.unwrap();
                    if gives_up {
                        group.revoke();
                        // The others wait for it, as it has not come so far that it waits for them.
                        let pause = Box::pin(net.sleep(Duration::from_micros(3)));
                        assert!(matches!(select(Box::pin(group.shrink()), pause).await, Either::Right(_)));
                    }
                    return;
                }
                let error = work(&mut group, rank, 1000).await;
                let expected =
                    if gives_up { GroupError::Revoked { rank: 2 } } else { GroupError::Left { rank: 2 } };
                assert_eq!(error, expected);
                let mut group = group.shrink().await.unwrap();
                assert_eq!(group.hosts(), hosts([0, 1, 3]));
                sum(&mut group, rank, 1000).await.unwrap();
            });
            join_all(ranks).await;
            drop(cluster);
        });
    }
}

/// Catches a lost session that divides two ranks which others join: both go on, without the cable.
#[test]
fn a_lost_session_is_no_lost_rank_if_others_lead_to_it() {
    on(MESH_4, async |net, cluster, mut groups| {
        on_all(&mut groups, async |rank, group| sum(group, rank, 10).await.unwrap()).await;
        plug(&net, [0, 1], "unplug");
        let ranks = groups.into_iter().enumerate().map(async |(rank, mut group)| {
            work(&mut group, rank, 100_000).await;
            let mut group = group.shrink().await.unwrap();
            assert_eq!(group.hosts(), hosts(0..4));
            sum(&mut group, rank, 100_000).await.unwrap();
        });
        join_all(ranks).await;
        drop(cluster);
    });
}
