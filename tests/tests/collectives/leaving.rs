//! Ranks that drop their groups, or go on to another one, while others still need them

use std::time::Duration;

use futures::future::{join, join_all, try_join_all};
use rdma_async::NodeOptions;
use rdma_collectives::{Group, GroupError, Reduction};
use rdma_sim::Scheduler;

use crate::cluster::{LINE_3, MESH_4, RING_3, cabling, connect, joined, sim};
use crate::outages::{inject, port};

/// Catches a rank that is gone with what it relays, or with its own last blocks, and one that stays for ever.
#[test]
fn ranks_that_leave_relay_until_the_others_have_left() {
    for cut in [20, 100, 150, 200, 300] {
        let cabling = cabling(RING_3.0, RING_3.1);
        let run = sim(RING_3.0, RING_3.1).run(async |net| {
            let cluster = connect(&net, &cabling, &NodeOptions::new()).await;
            let groups = joined(&cluster, &cabling).await;
            let sessions: Vec<_> =
                cluster.sessions.iter().flatten().map(|(_, session)| session.clone()).collect();
            inject(&net, Duration::from_micros(cut), &port(&net, [0, 1]), "unplug");
            let ranks = groups.into_iter().enumerate().map(async |(rank, mut group)| {
                group.barrier().await.unwrap();
                let mut vector = vec![rank as u8 + 1; 2 << 20];
                let sequence = group.sequence();
                // Ranks 0 and 2 are done long before rank 1 begins.
                if rank == 1 {
                    net.sleep(Duration::from_millis(3)).await;
                }
                group.broadcast(0, &mut vector).await.unwrap();
                assert!(vector.iter().all(|element| *element == 1), "{rank}");
                assert_eq!(group.sequence(), sequence + 1);
            });
            futures::future::join_all(ranks).await;
            net.sleep(Duration::from_millis(1)).await;
            // The streams of the group are over, but for those of the cable that is out.
            sessions.iter().map(|session| session.snapshot().streams).collect::<Vec<_>>()
        });
        assert_eq!(run.findings, [], "{cut}");
        assert_eq!(run.value.iter().filter(|streams| **streams == 1).count(), 4, "{cut}: {:?}", run.value);
    }
}

/// Catches a rank that is gone with its group while others send each other blocks over it.
#[test]
fn a_rank_that_is_done_relays_for_those_that_are_not() {
    let cabling = cabling(RING_3.0, RING_3.1);
    let run = sim(RING_3.0, RING_3.1).run(async |net| {
        let cluster = connect(&net, &cabling, &NodeOptions::new()).await;
        let groups = joined(&cluster, &cabling).await;
        inject(&net, Duration::from_micros(50), &port(&net, [0, 1]), "unplug");
        let ranks = groups.into_iter().enumerate().map(async |(rank, mut group)| {
            // The part for each other rank takes the cable to it, so that rank 2 has a way of its own to both.
            const PART: usize = 8 << 20;
            let (sent, mut received) = (vec![rank as u8 + 1; 3 * PART], vec![0; 3 * PART]);
            group.all_to_all(&sent, &mut received).await.unwrap();
            assert!(received.iter().enumerate().all(|(at, byte)| usize::from(*byte) == at / PART + 1));
            drop(group);
            net.now()
        });
        join_all(ranks).await
    });
    assert_eq!(run.findings, []);
    let [zero, one, two] = run.value[..] else { panic!("{:?}", run.value) };
    assert!(two + Duration::from_micros(200) < zero.max(one), "rank 2 is done before: {:?}", run.value);
}

/// Catches a rank that relays no more when it goes on to a larger group, and ranks that look for each other over a cable that is out.
#[test]
fn ranks_grow_behind_those_that_still_work() {
    const EDGES: [(usize, usize); 5] = [(0, 1), (1, 2), (2, 0), (0, 3), (1, 3)];
    let (small, large) = (cabling(3, &EDGES[..3]), cabling(4, &EDGES));
    let run = sim(4, &EDGES).run(async |net| {
        let cluster = connect(&net, &large, &NodeOptions::new()).await;
        let mut sessions = cluster.sessions.clone();
        let mut new = Vec::new();
        for of_rank in &mut sessions[..3] {
            new.push(of_rank.extract_if(.., |(other, _)| *other == 3).collect::<Vec<_>>());
        }
        let of_3 = sessions.pop().expect("four hosts");
        let joins =
            sessions.into_iter().enumerate().map(|(rank, sessions)| Group::join(rank, &small, sessions));
        let groups = try_join_all(joins).await.unwrap();
        let cut = port(&net, [0, 1]);
        inject(&net, Duration::from_micros(50), &cut, "unplug");
        // So that the ranks can join, but not before ranks 0 and 1 need rank 2.
        inject(&net, Duration::from_millis(20), &cut, "replug");
        let ranks = groups.into_iter().zip(new).enumerate().map(async |(rank, (mut group, with_3))| {
            const PART: usize = 8 << 20;
            let (sent, mut received) = (vec![rank as u8 + 1; 3 * PART], vec![0; 3 * PART]);
            group.all_to_all(&sent, &mut received).await.unwrap();
            assert!(received.iter().enumerate().all(|(at, byte)| usize::from(*byte) == at / PART + 1));
            let done = net.now();
            let mut group = group.grow(&large, with_3).await.unwrap();
            group.barrier().await.unwrap();
            done
        });
        let newcomer = async {
            let mut group = Group::join(3, &large, of_3).await.unwrap();
            group.barrier().await.unwrap();
        };
        join(join_all(ranks), newcomer).await.0
    });
    assert_eq!(run.findings, []);
    let [zero, one, two] = run.value[..] else { panic!("{:?}", run.value) };
    assert!(two + Duration::from_micros(200) < zero.max(one), "rank 2 is done before: {:?}", run.value);
}

/// Catches ranks that go on for others after a group was dropped on cables that all work.
#[test]
fn ranks_leave_one_after_another_without_an_outage() {
    let cabling = cabling(RING_3.0, RING_3.1);
    let run = sim(RING_3.0, RING_3.1).run(async |net| {
        let cluster = connect(&net, &cabling, &NodeOptions::new()).await;
        let mut groups = joined(&cluster, &cabling).await;
        let _kept = groups.pop();
        for group in groups {
            drop(group);
            net.sleep(Duration::from_millis(1)).await;
        }
        let between = cluster.sessions[0].iter().find(|(other, _)| *other == 1).expect("a cable joins them");
        between.1.snapshot().streams
    });
    // The main one: rank 2 needs nothing of the others.
    assert_eq!(run.value, 1);
}

/// Regression: a rank that relayed for others had its streams open after it had left, and those that waited for it did not notice.
#[test]
fn a_rank_that_leaves_during_an_outage_is_missed() {
    for (micros, is_back) in [(0, false), (100, false), (5000, false), (100, true), (5000, true)] {
        let cabling = cabling(RING_3.0, RING_3.1);
        let run = sim(RING_3.0, RING_3.1).run(async |net| {
            let cluster = connect(&net, &cabling, &NodeOptions::new()).await;
            let mut groups = joined(&cluster, &cabling).await;
            let cut = port(&net, [2, 0]);
            inject(&net, Duration::ZERO, &cut, "unplug");
            net.sleep(Duration::from_micros(micros)).await;
            drop(groups.pop());
            if is_back {
                inject(&net, Duration::from_millis(1), &cut, "replug");
            }
            let errors = groups.iter_mut().map(async |group| group.barrier().await.unwrap_err());
            join_all(errors).await
        });
        assert_eq!(run.value, vec![GroupError::Left { rank: 2 }; 2], "{micros} µs, {is_back}");
    }
}

/// Regression: the same without an outage, when frames were damaged and their path was made again.
#[test]
fn a_rank_that_leaves_is_missed_although_frames_are_damaged() {
    for seed in 0..40 {
        let cabling = cabling(LINE_3.0, LINE_3.1);
        let run = sim(LINE_3.0, LINE_3.1).seed(seed).run(async |net| {
            let cluster = connect(&net, &cabling, &NodeOptions::new()).await;
            let groups = joined(&cluster, &cabling).await;
            inject(&net, Duration::from_micros(10 * seed), "c:rdma_en2", "corrupt 2");
            let ends = groups.into_iter().enumerate().map(async |(rank, mut group)| {
                for _ in 0..4 {
                    group.broadcast(0, &mut vec![rank as u8; 100_000]).await.unwrap();
                }
                if rank == 0 {
                    return None;
                }
                group.barrier().await.err()
            });
            join_all(ends).await
        });
        let left = Some(GroupError::Left { rank: 0 });
        assert_eq!(run.value, [None, left.clone(), left], "{seed}");
    }
}

/// Regression: ranks that looked for each other waited for one whose cable was pulled just before or meanwhile.
#[test]
fn ranks_shrink_while_a_cable_is_pulled() {
    for (number, micros) in [-5000, -100, -1, 1, 2, 8, 15, 30, 60, 100, 200].into_iter().enumerate() {
        for scheduler in [Scheduler::Fifo, Scheduler::Random] {
            let cabling = cabling(MESH_4.0, MESH_4.1);
            let run = sim(MESH_4.0, MESH_4.1).seed(number as u64).scheduler(scheduler).run(async |net| {
                let cluster = connect(&net, &cabling, &NodeOptions::new()).await;
                let groups = joined(&cluster, &cabling).await;
                let cut = port(&net, [0, 1]);
                let shrink = async {
                    net.sleep(Duration::from_micros(i64::max(0, -micros) as u64)).await;
                    let shrunk = groups.into_iter().map(async |group| {
                        let mut group = group.shrink().await.unwrap();
                        let mut sum = [1_u64];
                        // Where it has come together, and not at a rank that noticed the outage then, it is tried again.
                        while group.all_reduce(&mut sum, Reduction::Sum).await.is_err() {
                            (group, sum) = (group.shrink().await.unwrap(), [1]);
                        }
                        (group, sum)
                    });
                    // No rank drops its group before all are done.
                    let shrunk = join_all(shrunk).await;
                    shrunk.into_iter().map(|(group, sum)| (group.size(), sum)).collect::<Vec<_>>()
                };
                inject(&net, Duration::from_micros(i64::max(0, micros) as u64), &cut, "unplug");
                shrink.await
            });
            assert_eq!(run.value, [(4, [4]); 4], "{micros} µs, {scheduler:?}");
        }
    }
}

/// Catches a rank that goes with its last messages, or without relaying them, when a cable is pulled just behind the end of its group.
#[test]
fn a_cable_is_pulled_behind_a_rank_that_has_left() {
    for (shape, cut) in [(RING_3, [0, 1]), (MESH_4, [0, 1]), (MESH_4, [0, 2])] {
        for len in [10, 5_000, 1 << 20] {
            for after in [0, 1, 3, 10, 30, 100] {
                let cabling = cabling(shape.0, shape.1);
                let run = sim(shape.0, shape.1).run(async |net| {
                    let cluster = connect(&net, &cabling, &NodeOptions::new()).await;
                    let groups = joined(&cluster, &cabling).await;
                    let ranks = groups.into_iter().enumerate().map(async |(rank, mut group)| {
                        let mut vector = vec![rank as u8 + 1; len];
                        group.broadcast(0, &mut vector).await.unwrap();
                        assert!(vector.iter().all(|element| *element == 1), "{rank}");
                        drop(group);
                        if rank == 0 {
                            inject(&net, Duration::from_micros(after), &port(&net, cut), "unplug");
                        }
                        net.now()
                    });
                    join_all(ranks).await
                });
                assert_eq!(run.findings, [], "{shape:?}, {cut:?}, {len}, {after}");
                let last = run.value.iter().max().expect("there are ranks");
                let stall = *last - run.value[0];
                assert!(stall < Duration::from_millis(1), "{shape:?}, {cut:?}, {len}, {after}: {stall:?}");
            }
        }
    }
}

/// Catches a rank that goes with messages for which there is no way over other ranks any more, although their cable comes back.
#[test]
fn what_has_no_way_any_more_goes_when_a_cable_is_back() {
    for after in [0, 2, 5, 10, 20, 50, 100] {
        for first in [0, 1] {
            let cabling = cabling(RING_3.0, RING_3.1);
            let run = sim(RING_3.0, RING_3.1).run(async |net| {
                let cluster = connect(&net, &cabling, &NodeOptions::new()).await;
                let groups = joined(&cluster, &cabling).await;
                let ports = [[0, 1], [1, 2]].map(|cut| port(&net, cut));
                let at = |micros, port, what| inject(&net, Duration::from_micros(micros), port, what);
                at(0, &ports[1], "unplug");
                net.sleep(Duration::from_micros(100)).await;
                let ranks = groups.into_iter().enumerate().map(async |(rank, mut group)| {
                    let mut vector = vec![rank as u8; 1 << 20];
                    group.broadcast(1, &mut vector).await.unwrap();
                    assert!(vector.iter().all(|element| *element == 1), "{rank}");
                    drop(group);
                    if rank == 1 {
                        at(after, &ports[0], "unplug");
                        at(after + 2000, &ports[first], "replug");
                        at(after + 4000, &ports[1 - first], "replug");
                    }
                });
                join_all(ranks).await;
                net.sleep(Duration::from_millis(100)).await;
                let sessions = cluster.sessions.iter().flatten();
                sessions.map(|(_, session)| session.snapshot().streams).collect::<Vec<_>>()
            });
            assert_eq!((run.findings, run.value), (vec![], vec![1; 6]), "{after}, {first}");
        }
    }
}
