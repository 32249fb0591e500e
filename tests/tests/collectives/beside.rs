//! Several groups over the same sessions

use std::time::Duration;

use futures::future::{Either, join, join_all, select};
use rdma_async::time::timeout;
use rdma_async::{NodeOptions, Priority};
use rdma_collectives::{Group, GroupError, GroupOptions, JoinError, PlanError, Reduction};
use rdma_sim::{Net, Sim, SimDevice};

use crate::cluster::{LINE_3, Shape, cabling, connect, joined, on_all, sim};

const IRREGULAR_5: Shape = (5, &[(0, 1), (1, 2), (2, 3), (3, 0), (0, 2), (2, 4), (3, 4)]);

fn on<T>(
    (hosts, edges): Shape,
    options: &NodeOptions,
    change: impl Fn(Sim) -> Sim,
    program: impl AsyncFnOnce(Net, Vec<Group<SimDevice>>) -> T,
) -> T {
    let cabling = cabling(hosts, edges);
    let run = change(sim(hosts, edges)).run(async |net| {
        let cluster = connect(&net, &cabling, options).await;
        let groups = joined(&cluster, &cabling).await;
        program(net, groups).await
    });
    assert_eq!(run.findings, []);
    run.value
}

async fn duplicates(groups: &mut [Group<SimDevice>], options: GroupOptions) -> Vec<Group<SimDevice>> {
    let made = on_all(groups, async |_, group| group.duplicate(options).await.unwrap());
    made.await
}

async fn sum(group: &mut Group<SimDevice>, len: usize) -> Result<(), GroupError> {
    let mut vector = vec![1_u32 << group.rank(); len];
    group.all_reduce(&mut vector, Reduction::Sum).await?;
    let expected = (1 << group.size()) - 1;
    assert!(vector.into_iter().all(|element| element == expected));
    Ok(())
}

/// Ranks begin the operations of two groups in different orders, and a cable is out for a while: catches messages of one group that the
/// other takes, and an operation that waits for one of the other group.
#[test]
fn operations_of_two_groups_are_under_way_at_once() {
    for faults in ["", "at 1200us c:rdma_en2 unplug; at 4ms c:rdma_en2 replug"] {
        let change = |sim: Sim| sim.faults(faults.parse().unwrap());
        on(IRREGULAR_5, &NodeOptions::new(), change, async |net, mut groups| {
            let mut others = duplicates(&mut groups, GroupOptions::new()).await;
            let pairs = groups.iter_mut().zip(&mut others).enumerate();
            let ranks = pairs.map(async |(rank, (one, other))| {
                let pause = Duration::from_micros(500);
                let first = async {
                    net.sleep(pause * (rank % 2) as u32).await;
                    sum(one, 600_000).await.unwrap();
                    sum(one, 3).await.unwrap();
                };
                let second = async {
                    net.sleep(pause * ((rank + 1) % 2) as u32).await;
                    sum(other, 5).await.unwrap();
                    sum(other, 700_000).await.unwrap();
                };
                join(first, second).await;
            });
            join_all(ranks).await;
        });
    }
}

/// How long an all_reduce of 1 KiB takes on average: alone, or while another group with this priority is busy with packets of the eager lane
async fn latency(net: &Net, groups: &mut [Group<SimDevice>], beside: Option<Priority>) -> Duration {
    const TIMES: u32 = 20;
    let short = async |groups: &mut [Group<SimDevice>]| {
        let start = net.now();
        for _ in 0..TIMES {
            on_all(groups, async |_, group| sum(group, 256).await.unwrap()).await;
        }
        (net.now() - start) / TIMES
    };
    let Some(priority) = beside else { return short(groups).await };
    let mut others = duplicates(groups, GroupOptions::new().block_bytes(64 << 10).priority(priority)).await;
    let long = on_all(&mut others, async |_, group| {
        for _ in 0..100 {
            sum(group, 60_000).await.unwrap();
        }
    });
    let measured = async {
        net.sleep(Duration::from_millis(1)).await;
        short(groups).await
    };
    match select(Box::pin(measured), Box::pin(long)).await {
        Either::Left((latency, long)) => {
            long.await;
            latency
        }
        Either::Right(_) => panic!("the long operation has ended before the short ones"),
    }
}

/// Catches a priority that is not passed on to the streams, and a group whose short messages wait for the long ones of another.
#[test]
fn a_short_operation_hardly_waits_for_a_long_one_of_lower_priority() {
    let options = rdma_tests::options();
    let [alone, low, normal] = [None, Some(Priority::Low), Some(Priority::Normal)].map(|beside| {
        on(
            LINE_3,
            &options,
            |sim| sim.sanitize(false),
            async |net, mut groups| latency(&net, &mut groups, beside).await,
        )
    });
    assert!(2 * low < normal, "{low:?} beside one of low priority, {normal:?} beside one of the same");
    assert!(2 * low < 3 * alone, "{alone:?} alone, {low:?} beside one of low priority");
}

/// Catches ranks that are numbered by another key, cables that lead out of a group, and groups that disturb each other.
#[test]
fn ranks_divide_into_groups_that_work_beside_the_whole() {
    on(
        IRREGULAR_5,
        &NodeOptions::new(),
        |sim| sim,
        async |_, mut groups| {
            let options = GroupOptions::new();
            // 2, 4 and 3, in this order; 0 and 1.
            let colors = [1, 1, 7, 7, 7];
            let keys = [0, 0, -1, 9, 4];
            let parts = on_all(&mut groups, async |rank, group| {
                group.split(Some(colors[rank]), keys[rank], options).await.unwrap().unwrap()
            });
            let mut parts = parts.await;
            let hosts: Vec<_> = parts.iter().map(|part| part.hosts().join("")).collect();
            assert_eq!(hosts, ["ab", "ab", "ced", "ced", "ced"]);
            let numbers: Vec<_> = parts.iter().map(Group::rank).collect();
            assert_eq!(numbers, [0, 1, 0, 2, 1]);
            let ranks = groups.iter_mut().zip(&mut parts).map(async |(whole, part)| {
                let long = async {
                    for _ in 0..3 {
                        sum(part, 100_000).await.unwrap();
                    }
                };
                join(sum(whole, 300_000), long).await.0.unwrap();
            });
            join_all(ranks).await;
        },
    );
}

/// Catches members that wait for each other without a cable, and an error that ends the group or that other members get.
#[test]
fn members_without_cables_between_them_are_no_group() {
    on(
        LINE_3,
        &NodeOptions::new(),
        |sim| sim,
        async |_, mut groups| {
            let made = on_all(&mut groups, async |rank, group| {
                group.split(Some((rank % 2) as u64), 0, GroupOptions::new()).await
            });
            let made = made.await;
            for apart in [&made[0], &made[2]] {
                let Err(JoinError::Plan(PlanError::Disconnected { parts })) = apart else {
                    panic!("{apart:?}")
                };
                assert_eq!(*parts, [["a"], ["c"]]);
            }
            assert_eq!(made[1].as_ref().unwrap().as_ref().unwrap().size(), 1);
            let none = on_all(&mut groups, async |rank, group| {
                group.split((rank > 0).then_some(3), 0, GroupOptions::new()).await.unwrap()
            });
            let sizes: Vec<_> = none.await.iter().map(|part| part.as_ref().map(Group::size)).collect();
            assert_eq!(sizes, [None, Some(2), Some(2)]);
            on_all(&mut groups, async |_, group| sum(group, 10).await.unwrap()).await;
        },
    );
}

/// Catches memory or streams of a group that stay after it, and a group that ends with another one.
#[test]
fn groups_come_and_go_beside_another_one() {
    on(
        LINE_3,
        &NodeOptions::new(),
        |sim| sim,
        async |net, mut groups| {
            for _ in 0..30 {
                let mut others = duplicates(&mut groups, GroupOptions::new()).await;
                on_all(&mut others, async |_, group| sum(group, 50_000).await.unwrap()).await;
                drop(others);
                // Until the ends of the streams have arrived.
                net.sleep(Duration::from_millis(1)).await;
            }
            let mut others = duplicates(&mut groups, GroupOptions::new()).await;
            others[1].revoke();
            on_all(&mut others, async |_, group| sum(group, 1).await.unwrap_err()).await;
            on_all(&mut groups, async |_, group| sum(group, 10).await.unwrap()).await;
        },
    );
}

/// Catches a rank that is lost for one group only, and ranks that cannot go on because they have another group.
#[test]
fn a_lost_rank_ends_all_its_groups_and_the_rest_go_on() {
    let options = NodeOptions::new().peer_timeout(Duration::from_millis(40));
    on(
        (3, &[(0, 1), (1, 2), (0, 2)]),
        &options,
        |sim| sim,
        async |net, mut groups| {
            let mut others = duplicates(&mut groups, GroupOptions::new()).await;
            net.inject("at 0us c kill".parse().unwrap());
            net.sleep(Duration::from_millis(1)).await;
            drop((groups.pop(), others.pop()));
            for groups in [&mut others, &mut groups] {
                let errors = on_all(groups, async |_, group| sum(group, 10).await.unwrap_err()).await;
                for error in errors {
                    assert!(matches!(error, GroupError::Lost { rank: 2, .. }), "{error}");
                }
            }
            drop(others);
            let left = join_all(groups.into_iter().map(Group::shrink)).await;
            let mut left: Vec<_> = left.into_iter().map(Result::unwrap).collect();
            let mut others = duplicates(&mut left, GroupOptions::new()).await;
            for groups in [&mut others, &mut left] {
                on_all(groups, async |_, group| sum(group, 1000).await.unwrap()).await;
            }
        },
    );
}

/// Catches a rank that waits for one that makes no other group: it revokes this one instead, or gives up while the others join (`failures` has
/// those that call another operation). The ranks that are left go on, unless they were joining.
#[test]
fn no_rank_waits_for_one_that_does_not_come() {
    let options = NodeOptions::new().peer_timeout(Duration::from_millis(40));
    let quick = Duration::from_secs(1);
    for shape in [LINE_3, (3, &[(0, 1), (1, 2), (0, 2)][..])] {
        let (mut went_on, mut joining, mut completed) = (0, 0, 0);
        for micros in 0..150 {
            on(
                shape,
                &options,
                |sim| sim,
                async |net, mut groups| {
                    let made = on_all(&mut groups, async |rank, group| {
                        let duplicated = Box::pin(group.duplicate(GroupOptions::new()));
                        if rank < 2 {
                            return Some(
                                timeout(&*net.runtime(), quick, duplicated)
                                    .await
                                    .expect("no rank waits for ever"),
                            );
                        }
                        let pause = net.sleep(Duration::from_micros(micros));
                        if micros < 5 {
                            drop(duplicated);
                            pause.await;
                            group.revoke();
                            return None;
                        }
                        // The others know from the start that it has called.
                        let dropped = Box::pin(pause);
                        match select(duplicated, dropped).await {
                            Either::Left((made, _)) => Some(made),
                            Either::Right(_) => None,
                        }
                    });
                    let made = made.await;
                    if made[2].is_some() {
                        completed += 1;
                        return assert!(made.iter().all(|made| matches!(made, Some(Ok(_)))), "{made:?}");
                    }
                    match &made[..2] {
                        [Some(Err(JoinError::Group(_))), Some(Err(JoinError::Group(_)))] => {
                            went_on += 1;
                            drop((made, groups.pop()));
                            let left = groups
                                .into_iter()
                                .map(|group| timeout(&*net.runtime(), quick, group.shrink()));
                            for group in join_all(left).await {
                                assert_eq!(group.unwrap().unwrap().size(), 2);
                            }
                        }
                        _ => joining += 1,
                    }
                },
            );
        }
        assert!(went_on > 3 && joining > 3 && completed > 3, "{shape:?}: {went_on}, {joining}, {completed}");
    }
}
