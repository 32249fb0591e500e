//! Groups whose ranks do not all join

use std::time::Duration;

use futures::future::{Either, join_all, select};
use rdma_async::{AllocError, NodeOptions, Priority};
use rdma_collectives::{Cabling, Group, GroupError, GroupOptions, HostCap, JoinError};
use rdma_sim::{Scheduler, SimDevice};

use crate::cluster::{Cluster, LINE_3, RATE, Shape, cabling, connect, sim};

/// Joins two hosts with these cablings, ranks and options
fn join_errors(
    cablings: [&Cabling; 2],
    ranks: [(usize, usize); 2],
    options: [GroupOptions; 2],
) -> [Result<(), JoinError>; 2] {
    let pair = cabling(2, &[(0, 1)]);
    sim(2, &[(0, 1)])
        .run(async |net| {
            let mut cluster = connect(&net, &pair, &NodeOptions::new()).await;
            let [a, b] = [0, 1].map(|host| {
                let (_, session) = cluster.sessions[host].remove(0);
                let (rank, neighbour) = ranks[host];
                Group::join_with(rank, cablings[host], [(neighbour, session)], options[host])
            });
            let (a, b) = futures::future::join(a, b).await;
            [a.map(drop), b.map(drop)]
        })
        .value
}

/// Catches a greeting that is not compared: the ranks would then carry out different plans.
#[test]
fn ranks_that_disagree_do_not_join() {
    let pair = cabling(2, &[(0, 1)]);
    let slow = Cabling::line(2, RATE / 2);
    let three = cabling(3, &[(0, 1), (1, 2), (0, 2)]);
    let (default, short) = (GroupOptions::new(), GroupOptions::new().block_bytes(64 << 10));
    let what = |results: [Result<(), JoinError>; 2]| {
        results.map(|result| match result.unwrap_err() {
            JoinError::Disagreement { ranks, what, .. } => (ranks, what),
            other => panic!("{other}"),
        })
    };
    let right = [(0, 1), (1, 0)];
    let both = |what| [([0, 1], what), ([1, 0], what)];
    assert_eq!(what(join_errors([&pair, &slow], right, [default; 2])), both("cabling"));
    let capped = pair.with_cap(1, HostCap::new(RATE / 2)).unwrap();
    assert_eq!(what(join_errors([&pair, &capped], right, [default; 2])), both("cabling"));
    assert_eq!(what(join_errors([&pair, &pair], right, [default, short])), both("block_bytes"));
    let found = join_errors([&pair, &three], right, [default; 2]);
    let missing = JoinError::Sessions { rank: 1, neighbour: 2, expected: 1, found: 0 };
    assert_eq!(found, [Err(JoinError::Failed { rank: 1 }), Err(missing)]);
    let error = join_errors([&pair, &pair], [(0, 1), (2, 0)], [default; 2])[1].clone();
    assert_eq!(error, Err(JoinError::Rank { rank: 2, size: 2 }));
}

/// The end of a rank that joins: why it did not, or why its first operation failed
#[derive(Debug, PartialEq)]
enum Ended {
    Joining(JoinError),
    Working(GroupError),
}

/// Regression: both ends opened streams, or both waited for streams, if they took each other for another rank, and joining never ended.
#[test]
fn ranks_that_take_each_other_for_another_do_not_join() {
    let mesh = cabling(3, &[(0, 1), (1, 2), (0, 2)]);
    // Each host has a session with both others; these ranks join, and take the sessions for those with these ranks.
    let ends = |claims: [(usize, [usize; 2]); 3]| {
        sim(3, &[(0, 1), (1, 2), (0, 2)])
            .run(async |net| {
                let mut cluster = connect(&net, &mesh, &NodeOptions::new()).await;
                for sessions in &mut cluster.sessions {
                    sessions.sort_by_key(|(neighbour, _)| *neighbour);
                }
                let ends =
                    claims.into_iter().zip(&cluster.sessions).map(async |((rank, labels), sessions)| {
                        let sessions = sessions.iter().map(|(_, session)| session.clone());
                        let sessions: Vec<_> = labels.into_iter().zip(sessions).collect();
                        match Group::<SimDevice>::join(rank, &mesh, sessions).await {
                            Ok(mut group) => group.barrier().await.err().map(Ended::Working),
                            Err(error) => Some(Ended::Joining(error)),
                        }
                    });
                join_all(ends).await
            })
            .value
    };
    let right = [(0, [1, 2]), (1, [0, 2]), (2, [0, 1])];
    assert_eq!(ends(right), [None, None, None]);
    // One rank has swapped its sessions, and two hosts join as the same rank.
    for wrong in [
        [(0, [2, 1]), right[1], right[2]],
        [right[0], (1, [2, 0]), right[2]],
        [right[0], right[1], (2, [1, 0])],
        [(1, [0, 2]), right[1], right[2]],
        [right[0], (0, [1, 2]), right[2]],
        [right[0], right[1], (0, [1, 2])],
    ] {
        let ends = ends(wrong);
        let is_found = ends.iter().flatten().any(|end| {
            matches!(end, Ended::Joining(JoinError::Disagreement { what: "rank of the neighbour", .. }))
        });
        assert!(is_found && ends.iter().all(Option::is_some), "{wrong:?}: {ends:?}");
    }
}

/// Joins the hosts of a line, whose applications keep the sessions and `hinder` them before; then each has a barrier
fn ends_on_line<T>(
    options: &NodeOptions,
    join: [GroupOptions; 3],
    hinder: impl AsyncFnOnce(&mut Cluster) -> T,
) -> Vec<Option<Ended>> {
    let cabling = cabling(LINE_3.0, LINE_3.1);
    sim(LINE_3.0, LINE_3.1)
        .run(async |net| {
            let mut cluster = connect(&net, &cabling, options).await;
            let hindrance = hinder(&mut cluster).await;
            let ends = cluster.sessions.iter().cloned().enumerate().map(async |(rank, sessions)| {
                let mut group =
                    match Group::<SimDevice>::join_with(rank, &cabling, sessions, join[rank]).await {
                        Ok(group) => group,
                        Err(error) => return Some(Ended::Joining(error)),
                    };
                group.barrier().await.err().map(Ended::Working)
            });
            let ends = join_all(ends).await;
            drop(hindrance);
            ends
        })
        .value
}

/// Regression: joining waited for send memory that the rank itself had, and its neighbours waited for it.
#[test]
fn a_rank_without_send_memory_fails_and_its_neighbours_do_not_wait() {
    // The application has all but 1 MiB of the memory for what rank 1 sends to rank 2; a group needs 2 MiB.
    let ends = ends_on_line(&NodeOptions::new(), [GroupOptions::new(); 3], async |cluster: &mut Cluster| {
        cluster.sessions[1][1].1.alloc(15 << 20).await.unwrap()
    });
    let own = JoinError::Memory { rank: 2, reason: AllocError::WouldBlock };
    let failed = JoinError::Failed { rank: 1 };
    assert_eq!(ends, [failed.clone(), own, failed].map(|error| Some(Ended::Joining(error))));
    let text = JoinError::Memory { rank: 2, reason: AllocError::WouldBlock }.to_string();
    assert!(text.contains("no memory is free now; lower block_bytes, or raise send_memory"), "{text}");
}

/// Regression: joining waited for streams that the peer does not take, and its neighbours waited for it.
#[test]
fn a_rank_without_streams_fails_and_its_neighbours_do_not_wait() {
    let options = NodeOptions::new().max_streams(4);
    let streams = |opener: usize| {
        ends_on_line(&options, [GroupOptions::new(); 3], async |cluster: &mut Cluster| {
            let session = &cluster.sessions[opener].last().unwrap().1;
            session.open_stream(Priority::Normal).await.unwrap()
        })
    };
    let own = |rank| Some(Ended::Joining(JoinError::Streams { rank, needed: 4 }));
    let failed = |rank| Some(Ended::Joining(JoinError::Failed { rank }));
    assert_eq!(streams(0), [own(1), failed(0), failed(0)]);
    assert_eq!(streams(1), [failed(1), own(2), failed(1)]);
}

/// Catches a rank that ends its session before the neighbour has found the same difference, and one that has joined and waits.
#[test]
fn a_rank_that_is_called_with_other_options_ends_all_others() {
    let mut options = [GroupOptions::new(); 3];
    options[2] = options[2].receive_bytes(1 << 20);
    let ends = ends_on_line(&NodeOptions::new(), options, async |_: &mut Cluster| ());
    let differ = |ranks, values| {
        Some(Ended::Joining(JoinError::Disagreement { ranks, what: "receive_bytes", values }))
    };
    let (most, least) = (12 << 20, 1 << 20);
    assert_eq!(ends[1..], [differ([1, 2], [most, least]), differ([2, 1], [least, most])]);
    assert_eq!(ends[0], Some(Ended::Joining(JoinError::Failed { rank: 1 })));
}

/// Regression: the neighbours of a rank that gave up joining waited for ever if its application kept the sessions.
#[test]
fn a_rank_that_gives_up_joining_ends_all_others() {
    let cabling = cabling(LINE_3.0, LINE_3.1);
    sim(LINE_3.0, LINE_3.1).run(async |net| {
        let cluster = connect(&net, &cabling, &NodeOptions::new()).await;
        let join = async |rank: usize| {
            let joined = Group::<SimDevice>::join(rank, &cabling, cluster.sessions[rank].clone()).await;
            joined.map(drop)
        };
        // Rank 2 joins late, and rank 1 does not wait for it.
        let gives_up = async {
            let pause = Box::pin(net.sleep(Duration::from_millis(1)));
            assert!(matches!(select(Box::pin(join(1)), pause).await, Either::Right(_)));
        };
        let failed = Err(JoinError::Failed { rank: 1 });
        assert_eq!(futures::future::join(gives_up, join(0)).await, ((), failed.clone()));
        assert_eq!(join(2).await, failed);
    });
}

/// Catches a death that ranks further away take for a failure of the rank that found it.
#[test]
fn the_death_of_a_rank_that_should_join_is_named_by_all_others() {
    let options = NodeOptions::new().peer_timeout(Duration::from_millis(20));
    let cabling = cabling(4, &[(0, 1), (1, 2), (2, 3)]);
    sim(4, &[(0, 1), (1, 2), (2, 3)]).run(async |net| {
        let cluster = connect(&net, &cabling, &options).await;
        net.inject("at 0us d kill".parse().unwrap());
        let joins = [0, 1, 2].map(async |rank| {
            Group::<SimDevice>::join(rank, &cabling, cluster.sessions[rank].clone()).await.map(drop)
        });
        let ends = join_all(joins).await;
        assert!(matches!(ends[2], Err(JoinError::Lost { rank: 3, reason: Some(_) })), "{ends:?}");
        let lost = Err(JoinError::Lost { rank: 3, reason: None });
        assert_eq!(ends[..2], [lost.clone(), lost]);
    });
}

/// Catches hashes in an error that a person reads, and numbers that are left out.
#[test]
fn a_disagreement_says_what_to_do() {
    let differ = |what| JoinError::Disagreement { ranks: [0, 3], what, values: [4096, 65_536] }.to_string();
    assert_eq!(differ("block_bytes"), "ranks 0 and 3 disagree on the block_bytes: 4096 and 65536");
    let cabling =
        "ranks 0 and 3 disagree on the cabling: give all the same hosts, cables, rates and latencies";
    assert_eq!(differ("cabling"), cabling);
}

/// Catches a revocation that overtakes the end of joining: ranks that were still joining failed to, and others had a group without them.
#[test]
fn a_rank_that_revokes_its_group_at_once_keeps_no_other_from_joining() {
    let shapes: [Shape; 3] = [(2, &[(0, 1)]), (3, &[(0, 1), (1, 2)]), (4, &[(0, 1), (1, 2), (2, 3), (3, 0)])];
    for (hosts, edges) in shapes {
        for seed in 0..40 {
            let cabling = &cabling(hosts, edges);
            let run = sim(hosts, edges).seed(seed).scheduler(Scheduler::Random).run(async |net| {
                let cluster = connect(&net, cabling, &NodeOptions::new()).await;
                let ranks = cluster.sessions.iter().cloned().enumerate();
                let ranks = ranks.map(async |(rank, sessions)| {
                    let mut group = Group::join(rank, cabling, sessions).await.unwrap();
                    let mut epochs = Vec::new();
                    for _ in 0..3 {
                        let ended = if rank == 1 {
                            group.revoke();
                            group.end().cloned()
                        } else {
                            group.barrier().await.err()
                        };
                        assert_eq!(ended, Some(GroupError::Revoked { rank: 1 }), "seed {seed}: rank {rank}");
                        group = group.shrink().await.unwrap();
                        epochs.push((group.epoch(), group.size()));
                    }
                    group.barrier().await.unwrap();
                    epochs
                });
                join_all(ranks).await
            });
            for epochs in run.value {
                assert_eq!(epochs, [(1, hosts), (2, hosts), (3, hosts)], "{hosts} hosts, seed {seed}");
            }
        }
    }
}
