//! Groups that go on without ranks that were lost

use std::cell::Cell;
use std::collections::BTreeSet;
use std::io;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use futures::future::{Either, join_all, select};
use rdma_async::{BootstrapStream, NodeOptions};
use rdma_collectives::{Group, GroupError, Reduction, ShrinkError};
use rdma_core::Device as _;
use rdma_sim::{Net, Scheduler, Sim, SimDevice};
use tokio::io::DuplexStream;

use crate::cluster::{MESH_4, Shape, cabling, connect, connect_over, joined, name, on_all, sim};
use crate::outages::inject;

const MESH_5: Shape = (5, &[(0, 1), (0, 2), (0, 3), (0, 4), (1, 2), (1, 3), (1, 4), (2, 3), (2, 4), (3, 4)]);
const RING_5: Shape = (5, &[(0, 1), (1, 2), (2, 3), (3, 4), (4, 0)]);
const LINE_4: Shape = (4, &[(0, 1), (1, 2), (2, 3)]);

/// How long the ranks that are left may take from the error to the result of their next operation
const BOUND: Duration = Duration::from_millis(10);

fn quick() -> NodeOptions {
    NodeOptions::new().peer_timeout(Duration::from_millis(40))
}

/// A byte stream between two processes, until nothing goes between their hosts any more
struct Cut {
    stream: DuplexStream,
    ends: [usize; 2],
    pairs: Pairs,
}

/// The hosts between which nothing goes any more
type Pairs = Arc<Mutex<BTreeSet<[usize; 2]>>>;

impl Cut {
    fn is_cut(&self) -> bool {
        self.pairs.lock().unwrap().contains(&self.ends)
    }
}

impl BootstrapStream for Cut {
    fn poll_read(&mut self, cx: &mut Context<'_>, bytes: &mut [u8]) -> Poll<io::Result<usize>> {
        if self.is_cut() { Poll::Pending } else { BootstrapStream::poll_read(&mut self.stream, cx, bytes) }
    }

    fn poll_write(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        if self.is_cut() {
            Poll::Ready(Ok(bytes.len()))
        } else {
            BootstrapStream::poll_write(&mut self.stream, cx, bytes)
        }
    }

    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        BootstrapStream::poll_flush(&mut self.stream, cx)
    }
}

/// Runs `program` with the groups of these hosts
pub(crate) fn on<T>(
    shape: Shape,
    program: impl AsyncFnOnce(Net, Vec<Group<SimDevice>>, &dyn Fn(&dyn Fn(usize, usize) -> bool)) -> T,
) -> T {
    on_seed(sim(shape.0, shape.1), shape, program)
}

/// Runs `program` in `sim` with the groups of these hosts
fn on_seed<T>(
    sim: Sim,
    (hosts, edges): Shape,
    program: impl AsyncFnOnce(Net, Vec<Group<SimDevice>>, &dyn Fn(&dyn Fn(usize, usize) -> bool)) -> T,
) -> T {
    let cabling = cabling(hosts, edges);
    sim.run(async |net| {
        let pairs = Pairs::default();
        let stream = |ends| {
            let (one, other) = tokio::io::duplex(1024);
            let end = |stream| Cut { stream, ends, pairs: Arc::clone(&pairs) };
            (end(one), end(other))
        };
        let cluster = connect_over(&net, &cabling, &quick(), stream).await;
        let groups = joined(&cluster, &cabling).await;
        let cut = |are_apart: &dyn Fn(usize, usize) -> bool| {
            for &(one, other) in edges.iter().filter(|(one, other)| are_apart(*one, *other)) {
                let device = net.host(&name(one)).open_to(&name(other)).unwrap();
                net.inject(format!("at 0us {}:{} unplug", name(one), device.name()).parse().unwrap());
                pairs.lock().unwrap().insert([one, other]);
            }
        };
        program(net.clone(), groups, &cut).await
    })
    .value
}

fn kill(net: &Net, rank: usize) {
    net.inject(format!("at 0us {} kill", name(rank)).parse().unwrap());
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
            on(shape, async |net, groups, _| {
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
                    assert_eq!((group.epoch(), group.sequence()), (1, 0));
                    sum(&mut group, rank, len).await.unwrap();
                    let after = net.now() - start;
                    assert!(after < BOUND, "{after:?} on rank {rank} without {lost}");
                    sum(&mut group, rank, 1000).await.unwrap();
                });
                join_all(ranks).await;
            });
        }
    }
}

/// Regression: survivors waited for ever for a rank whose cables were out, as long as byte streams brought messages of its process. Catches a rank that
/// is left out although its cable comes back in time.
#[test]
fn a_rank_whose_cables_are_out_for_good_is_left_out() {
    for ((ranks, edges), back) in [(LINE_4, None), (MESH_4, None), (LINE_4, Some(30)), (MESH_4, Some(30))] {
        let (cabling, last) = (cabling(ranks, edges), ranks - 1);
        sim(ranks, edges).run(async |net| {
            let cluster = connect(&net, &cabling, &quick()).await;
            let groups = joined(&cluster, &cabling).await;
            for &(one, other) in edges.iter().filter(|(_, other)| *other == last) {
                let device = net.host(&name(one)).open_to(&name(other)).unwrap();
                let end = format!("{}:{}", name(one), device.name());
                inject(&net, Duration::ZERO, &end, "unplug");
                if let Some(back) = back {
                    inject(&net, Duration::from_millis(back), &end, "replug");
                }
            }
            let at = net.now();
            let ranks = groups.into_iter().enumerate().map(async |(rank, mut group)| {
                let patience = Box::pin(net.sleep(Duration::from_millis(5)));
                let operation = select(Box::pin(work(&mut group, rank, 1000)), patience).await;
                assert!(matches!(operation, Either::Right(_)), "the operation waits for the cable");
                drop(operation);
                let shrunk = group.shrink().await;
                assert!(net.now() < at + Duration::from_millis(60), "{:?}", net.now());
                if back.is_some() || rank != last {
                    let mut group = shrunk.unwrap();
                    assert_eq!(group.hosts(), hosts(0..last + usize::from(back.is_some())));
                    sum(&mut group, rank, 1000).await.unwrap();
                } else {
                    let error = ShrinkError::Minority { hosts: hosts([last]), size: last + 1 };
                    assert_eq!(shrunk.err(), Some(error));
                }
            });
            join_all(ranks).await;
        });
    }
}

/// Catches survivors that take different ranks for lost, and one that waits for ever for a rank that is lost while they agree.
#[test]
fn a_rank_that_is_lost_while_the_others_agree_is_left_out_too() {
    // How often the third rank was lost before, and after the others had come together with it.
    let counts = [Cell::new(0), Cell::new(0)];
    for after in (0..60).map(|step| Duration::from_micros(2 * step * step)) {
        on(MESH_5, async |net, groups, _| {
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
                let mut group = group.shrink().await.unwrap();
                let count = &counts[usize::from(group.size() == 4)];
                count.set(count.get() + 1);
                if group.size() == 4 {
                    let error = work(&mut group, rank, 1000).await;
                    assert!(matches!(error, GroupError::Lost { rank: 2, .. }), "{error}");
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
        });
    }
    assert!(counts.iter().all(|count| count.get() > 10), "{counts:?}");
}

/// Catches two halves that go on side by side.
#[test]
fn a_minority_does_not_go_on() {
    // The part of each rank; the first goes on.
    let parts: [(Shape, &[usize]); 5] = [
        (MESH_4, &[0, 0, 1, 1]),
        (MESH_4, &[0, 1, 1, 0]),
        (MESH_4, &[1, 0, 0, 0]),
        (MESH_5, &[1, 1, 0, 0, 0]),
        (LINE_4, &[0, 0, 1, 1]),
    ];
    for (shape, parts) in parts {
        on(shape, async |_net, groups, cut| {
            cut(&|one, other| parts[one] != parts[other]);
            let part = |of: usize| hosts((0..shape.0).filter(|rank| parts[*rank] == of));
            let ranks = groups.into_iter().enumerate().map(async |(rank, mut group)| {
                let error = work(&mut group, rank, 1000).await;
                assert!(matches!(error, GroupError::Lost { .. }), "{error}");
                match group.shrink().await {
                    Ok(mut group) => {
                        assert_eq!((parts[rank], group.hosts()), (0, &part(0)[..]));
                        sum(&mut group, rank, 1000).await.unwrap();
                    }
                    Err(error) => {
                        assert_eq!(parts[rank], 1, "{error}");
                        let ShrinkError::Minority { hosts, size } = error else { panic!("{error}") };
                        // Without those that gave up before.
                        assert!(
                            hosts.contains(&name(rank)) && hosts.iter().all(|host| part(1).contains(host))
                        );
                        assert_eq!(size, shape.0);
                    }
                }
            });
            join_all(ranks).await;
        });
    }
}

/// Catches a rank in the middle of a line whose loss leaves no majority, and a lone rank that goes on.
#[test]
fn without_a_majority_no_rank_goes_on() {
    on(LINE_4, async |net, groups, _| {
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
        assert_eq!(ends[0].as_deref(), Some("1 of 4 ranks are left (a): too few to go on"));
        let half = "2 of 4 ranks are left (c, d): too few to go on";
        assert!(ends[2..].iter().flatten().any(|end| end == half), "{ends:?}");
        assert!(ends[2..].iter().flatten().all(|end| end.ends_with("too few to go on")), "{ends:?}");
    });
}

/// Catches a group that can only go on when a rank is lost, and an operation under way that a revocation does not end.
#[test]
fn all_ranks_of_a_revoked_group_go_on() {
    on(RING_5, async |net, groups, _| {
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
    });
}

/// How a rank leaves
#[derive(Clone, Copy, Debug, PartialEq)]
enum Leaving {
    /// Without an error
    AtOnce,
    /// After an error, at once or while the others wait for it
    AfterError(Duration),
    /// While it agrees with the others
    WhileAgreeing,
}

/// Catches ranks that wait for one that has left while its sessions live on, and for one that gives up agreeing.
#[test]
fn a_rank_that_leaves_is_left_out() {
    let late = Leaving::AfterError(Duration::from_millis(5));
    for leaving in [Leaving::AtOnce, Leaving::AfterError(Duration::ZERO), late, Leaving::WhileAgreeing] {
        on(MESH_4, async |net, groups, _| {
            let ranks = groups.into_iter().enumerate().map(async |(rank, mut group)| {
                if rank == 2 {
                    sum(&mut group, rank, 1000).await.unwrap();
                    match leaving {
                        Leaving::AtOnce => (),
                        Leaving::AfterError(pause) => {
                            group.revoke();
                            net.sleep(pause).await;
                        }
                        Leaving::WhileAgreeing => {
                            group.revoke();
                            // The others wait for it, as it has not come so far that it waits for them.
                            let pause = Box::pin(net.sleep(Duration::from_micros(3)));
                            assert!(matches!(
                                select(Box::pin(group.shrink()), pause).await,
                                Either::Right(_)
                            ));
                        }
                    }
                    return;
                }
                let error = work(&mut group, rank, 1000).await;
                let expected = match leaving {
                    Leaving::AtOnce => GroupError::Left { rank: 2 },
                    _ => GroupError::Revoked { rank: 2 },
                };
                assert_eq!(error, expected);
                let mut group = group.shrink().await.unwrap();
                assert_eq!(group.hosts(), hosts([0, 1, 3]));
                sum(&mut group, rank, 1000).await.unwrap();
            });
            join_all(ranks).await;
        });
    }
}

/// Catches two ranks that take each other for lost although others reach both: they go on, without the cable.
#[test]
fn a_lost_session_is_no_lost_rank_if_others_lead_to_it() {
    on(MESH_4, async |net, mut groups, cut| {
        on_all(&mut groups, async |rank, group| sum(group, rank, 10).await.unwrap()).await;
        cut(&|one, other| [one, other] == [0, 1]);
        let ranks = groups.into_iter().enumerate().map(async |(rank, mut group)| {
            for _ in 0..60 {
                sum(&mut group, rank, 10_000).await.unwrap();
                net.sleep(Duration::from_millis(1)).await;
            }
            let mut group = group.shrink().await.unwrap();
            assert_eq!(group.hosts(), hosts(0..4));
            sum(&mut group, rank, 100_000).await.unwrap();
        });
        join_all(ranks).await;
    });
}

/// How many operations a rank carries out in a group that stays as it is: longer than a loss takes to be found.
const ENOUGH: u32 = 100;

/// Kills and cuts at random times while groups work and agree. Catches two groups side by side, a rank that takes itself for a member of a group
/// that goes on without it, and one that waits for ever.
#[test]
fn at_most_one_group_goes_on_whatever_is_lost_when() {
    const SEEDS: u64 = 300;
    let (mut went_on, mut gave_up) = (0, 0);
    for seed in 0..SEEDS {
        let shape = [MESH_5, RING_5, MESH_4][seed as usize % 3];
        let sim = sim(shape.0, shape.1).seed(seed).scheduler(Scheduler::Random);
        on_seed(sim, shape, async |net, groups, cut| {
            // The first loss, and others about when it is found, or when the ranks that are left agree.
            let mut random = (1..).map(|number: u64| {
                let mixed = (seed * 1000 + number).wrapping_mul(0x9e37_79b9_7f4a_7c15);
                (mixed ^ mixed >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 33
            });
            let mut draw = |below: u64| random.next().unwrap() % below;
            let killed = [draw(5) as usize, draw(8) as usize];
            let apart = [draw(5) as usize, draw(5) as usize];
            let [first, second, third] = [draw(5_000), 20_000 + draw(30_000), 20_000 + draw(30_000)];
            let faults = async {
                let sleep = async |from: u64, to: u64| net.sleep(Duration::from_micros(to - from)).await;
                let kill = |rank: usize| {
                    if rank < shape.0 {
                        net.inject(format!("at 0us {} kill", name(rank)).parse().unwrap());
                    }
                };
                sleep(0, first).await;
                kill(killed[0]);
                sleep(first, first + second).await;
                cut(&|one, other| [one, other] == apart || [other, one] == apart);
                sleep(0, third).await;
                kill(killed[1]);
            };
            let ranks = groups.into_iter().enumerate().map(async |(rank, mut group)| {
                let work = async {
                    loop {
                        if sum(&mut group, rank, 1000).await.is_err() {
                            group = group.shrink().await?;
                        } else if group.sequence() > ENOUGH {
                            return Ok::<_, ShrinkError>((group.hosts().to_vec(), group.epoch()));
                        } else {
                            net.sleep(Duration::from_millis(2)).await;
                        }
                    }
                };
                // A killed process does nothing more.
                let end = select(Box::pin(work), Box::pin(net.sleep(Duration::from_millis(1900)))).await;
                match end {
                    Either::Left((end, _)) => Some(end),
                    Either::Right(_) => None,
                }
            });
            let (ends, ()) = futures::future::join(join_all(ranks), faults).await;
            for (rank, end) in ends.iter().enumerate() {
                assert!(end.is_some() || killed.contains(&rank), "seed {seed}: rank {rank} waits: {ends:?}");
            }
            // No rank leaves before all have done enough.
            for (rank, end) in ends.iter().enumerate().filter(|(rank, _)| !killed.contains(rank)) {
                let is_right = matches!(end, Some(Ok(_) | Err(ShrinkError::Minority { .. })));
                assert!(is_right, "seed {seed}, rank {rank}: {ends:?}");
            }
            let last = ends.iter().flatten().flatten().max_by_key(|(_, epoch)| *epoch);
            let Some((members, _)) = last else {
                gave_up += 1;
                return;
            };
            went_on += 1;
            let working =
                ends.iter().enumerate().filter(|(_, end)| matches!(end, Some(Ok(end)) if Some(end) == last));
            assert_eq!(hosts(working.map(|(rank, _)| rank)), *members, "seed {seed}: {ends:?}");
            let others = ends
                .iter()
                .enumerate()
                .filter(|(rank, end)| matches!(end, Some(Ok(_))) && !members.contains(&name(*rank)));
            assert_eq!(others.count(), 0, "seed {seed}: {ends:?}");
        });
    }
    assert!(went_on > SEEDS / 2 && gave_up > 0, "{went_on} groups went on, {gave_up} did not");
}
