//! Groups that go on with further ranks

use std::time::Duration;

use futures::future::{join, join_all};
use rdma_async::NodeOptions;
use rdma_collectives::{Cable, Cabling, Group, GroupError, JoinError, Reduction};
use rdma_sim::{Scheduler, SimDevice};

use crate::cluster::{cabling, connect, sim};

const EDGES: &[(usize, usize)] = &[(0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 3)];

async fn sum(group: &mut Group<SimDevice>) -> Result<u32, GroupError> {
    let mut vector = vec![1; 10_000];
    group.all_reduce(&mut vector, Reduction::Sum).await?;
    assert!(vector.iter().all(|element| *element == vector[0]));
    Ok(vector[0])
}

/// Catches a new rank that does not learn the epoch, sessions that get another rank, and a plan that leaves the new rank out.
#[test]
fn a_rank_that_comes_late_takes_part() {
    let (three, four) = (cabling(3, &[(0, 1), (0, 2), (1, 2)]), cabling(4, EDGES));
    sim(4, EDGES).run(async |net| {
        let cluster = connect(&net, &four, &NodeOptions::new()).await;
        let sessions = |rank: usize, with: &dyn Fn(usize) -> bool| {
            let sessions = cluster.sessions[rank].iter().filter(|(neighbour, _)| with(*neighbour));
            sessions.cloned().collect::<Vec<_>>()
        };
        let member = async |rank: usize| {
            let mut group = Group::join(rank, &three, sessions(rank, &|other| other < 3)).await?;
            assert_eq!(sum(&mut group).await.unwrap(), 3);
            group.revoke();
            // As after a loss.
            let mut group = group.shrink().await.unwrap();
            assert_eq!(sum(&mut group).await.unwrap(), 3);
            let mut group = group.grow(&four, sessions(rank, &|other| other == 3)).await?;
            assert_eq!((group.epoch(), group.size(), group.rank()), (2, 4, rank));
            assert_eq!(sum(&mut group).await.unwrap(), 4);
            Ok::<_, JoinError>(group.shrink().await.unwrap().size())
        };
        let newcomer = async {
            let mut group = Group::join(3, &four, sessions(3, &|_| true)).await?;
            assert_eq!((group.epoch(), group.size(), group.rank()), (2, 4, 3));
            assert_eq!(sum(&mut group).await.unwrap(), 4);
            let error = sum(&mut group).await.unwrap_err();
            assert!(matches!(error, GroupError::Revoked { .. }), "{error}");
            Ok::<_, JoinError>(group.shrink().await.unwrap().size())
        };
        let (members, newcomer) = join(join_all((0..3).map(member)), newcomer).await;
        assert_eq!((members, newcomer), (vec![Ok(4); 3], Ok(4)));
    });
}

/// Catches a host of the group that gets the number of another one, and sessions that stay open.
#[test]
fn a_cabling_without_a_host_of_the_group_is_refused() {
    let pair = cabling(2, &[(0, 1)]);
    sim(2, &[(0, 1)]).run(async |net| {
        let cluster = connect(&net, &pair, &NodeOptions::new()).await;
        let joins = [0, 1].map(|rank| Group::join(rank, &pair, cluster.sessions[rank].clone()));
        let groups = join_all(joins).await;
        let other = Cabling::new(["a", "c"], [Cable::new(0, 1, crate::cluster::RATE)]).unwrap();
        let grown = join_all(groups.into_iter().map(|group| group.unwrap().grow(&other, []))).await;
        let errors: Vec<_> = grown.into_iter().map(Result::unwrap_err).collect();
        // Rank 0 lacks its neighbour as well, and does not wait for it.
        assert_eq!(errors, [0, 1].map(|_| JoinError::Host { host: "b".to_owned() }));
    });
}

/// Regression: a rank that grew the group waited for ever for one that had lost a third rank and shrank it.
#[test]
fn a_rank_that_grows_and_one_that_shrinks_do_not_wait_for_each_other() {
    for (grows, shrinks) in [(0, 1), (1, 0)] {
        let pair = cabling(2, &[(0, 1)]);
        sim(2, &[(0, 1)]).run(async |net| {
            let cluster = connect(&net, &pair, &NodeOptions::new()).await;
            let joins = [0, 1].map(|rank| Group::join(rank, &pair, cluster.sessions[rank].clone()));
            let mut groups: Vec<_> =
                join_all(joins).await.into_iter().map(|group| Some(group.unwrap())).collect();
            let [growing, mut shrinking] = [grows, shrinks].map(|rank| groups[rank].take().unwrap());
            shrinking.revoke();
            let (grown, shrunk) = join(growing.grow(&pair, []), shrinking.shrink()).await;
            assert_eq!(grown.map(drop), Err(JoinError::Failed { rank: shrinks }));
            // Alone it is half of the group: with the lowest rank it goes on.
            assert_eq!(shrunk.map(|group| group.size()).ok(), (shrinks == 0).then_some(1));
        });
    }
}

/// Regression: `grow` waited for ever for a rank that had revoked the group, if this rank had received that while it joined.
#[test]
fn a_revocation_that_came_during_joining_is_no_reason_to_wait() {
    let line = &cabling(3, &[(0, 1), (1, 2)]);
    for seed in 0..40 {
        let sim = sim(3, &[(0, 1), (1, 2)]).seed(seed).scheduler(Scheduler::Random);
        sim.run(async |net| {
            let cluster = connect(&net, line, &NodeOptions::new()).await;
            let ranks = cluster.sessions.iter().cloned().enumerate();
            let ranks = ranks.map(async |(rank, sessions)| {
                let mut group = Group::join(rank, line, sessions).await.unwrap();
                let start = net.now();
                if rank == 1 {
                    group.revoke();
                    net.sleep(Duration::from_secs(1)).await;
                } else {
                    let grown = group.grow(line, []).await;
                    assert_eq!(
                        grown.map(drop),
                        Err(JoinError::Failed { rank: 1 }),
                        "seed {seed}: rank {rank}"
                    );
                    assert!(net.now() - start < Duration::from_secs(1), "seed {seed}: rank {rank}");
                }
            });
            join_all(ranks).await;
        });
    }
}

/// Regression: ranks that grew the group after a death got `Sessions`, or the rank that had found the death, in place of the dead one.
#[test]
fn a_death_before_ranks_grow_or_meanwhile_is_named_by_all_others() {
    const TIMEOUT: Duration = Duration::from_millis(20);
    const DEAD: usize = 3;
    for edges in [&[(0, 1), (1, 2), (2, 3)][..], EDGES] {
        let more = [edges, &[(0, 4)]].concat();
        let (four, five) = (cabling(4, edges), cabling(5, &more));
        // In another order, so that the dead rank has another number.
        let hosts: Vec<_> = five.hosts().iter().rev().cloned().collect();
        let turned = |cable: &Cable| Cable { ends: cable.ends.map(|end| 4 - end), ..*cable };
        let grown = &Cabling::new(hosts, five.cables().iter().map(turned).collect::<Vec<_>>()).unwrap();
        for (pause, finds_it_before) in [(TIMEOUT / 4, false), (2 * TIMEOUT, false), (2 * TIMEOUT, true)] {
            let ends = sim(5, &more).run(async |net| {
                let cluster = connect(&net, &five, &NodeOptions::new().peer_timeout(TIMEOUT)).await;
                let sessions = |rank: usize, is_new: bool| {
                    let sessions = cluster.sessions[rank].iter().cloned();
                    sessions.filter(move |(other, _)| (*other == 4) == is_new).collect::<Vec<_>>()
                };
                let joins = (0..4).map(|rank| Group::join(rank, &four, sessions(rank, false)));
                let mut groups: Vec<_> = join_all(joins).await.into_iter().map(Result::unwrap).collect();
                let _dead = groups.pop();
                net.inject("at 0us d kill".parse().unwrap());
                let members = groups.into_iter().enumerate().map(async |(rank, mut group)| {
                    if finds_it_before && rank == 2 {
                        let error = sum(&mut group).await.unwrap_err();
                        assert!(matches!(error, GroupError::Lost { rank: DEAD, .. }), "{error}");
                    }
                    net.sleep(pause).await;
                    let sessions = sessions(rank, true).into_iter().map(|(_, session)| (0, session));
                    group.grow(grown, sessions).await.map(drop)
                });
                let newcomer = Group::join(0, grown, [(4, cluster.sessions[4][0].1.clone())]);
                let (mut ends, newcomer) = join(join_all(members), newcomer).await;
                ends.push(newcomer.map(drop));
                ends
            });
            for (rank, end) in ends.value.into_iter().enumerate() {
                let is_named = matches!(end, Err(JoinError::Lost { rank, .. }) if rank == 4 - DEAD);
                assert!(is_named, "{edges:?}, {pause:?}, {finds_it_before}: rank {rank} got {end:?}");
            }
        }
    }
}
