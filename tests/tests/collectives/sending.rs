//! Sending and receiving between two ranks, while the others call nothing

use std::cell::RefCell;
use std::pin::pin;
use std::time::Duration;

use futures::future::{Either, join, join_all, join3, select};
use rdma_async::NodeOptions;
use rdma_collectives::{Group, GroupError, Reduction};
use rdma_sim::{Net, Scheduler, SimDevice};

use crate::cluster::{LINE_3, MESH_4, RING_3, Shape, cabling, connect, joined, name, on_all, sim};
use crate::outages::{inject, port};

const LINE_4: Shape = (4, &[(0, 1), (1, 2), (2, 3)]);
const TIMEOUT: Duration = Duration::from_millis(20);
/// How long after a death both ranks may need: the timeout of a session, and the way of the news
const BOUND: Duration = Duration::from_millis(25);

type Groups = Vec<Option<Group<SimDevice>>>;

/// Runs `program` with the groups of all ranks
fn on_ranks<T>(shape: Shape, program: impl AsyncFnOnce(&Net, &mut Groups) -> T) -> T {
    let cabling = cabling(shape.0, shape.1);
    let run = sim(shape.0, shape.1).run(async |net| {
        let cluster = connect(&net, &cabling, &NodeOptions::new().peer_timeout(TIMEOUT)).await;
        let mut groups: Groups = joined(&cluster, &cabling).await.into_iter().map(Some).collect();
        program(&net, &mut groups).await
    });
    assert_eq!(run.findings, [], "{shape:?}");
    run.value
}

/// The groups of two ranks; the others stay where they are, and call nothing
fn pair(groups: &mut Groups, ranks: [usize; 2]) -> [Group<SimDevice>; 2] {
    ranks.map(|rank| groups[rank].take().expect("each rank is taken once"))
}

pub(crate) fn content(seed: usize, len: usize) -> Vec<u32> {
    (0..len).map(|at| (seed * 7_919 + at * 31) as u32).collect()
}

/// Sends vectors of many lengths both ways, in turn
async fn exchange(mut left: Group<SimDevice>, mut right: Group<SimDevice>) -> [Group<SimDevice>; 2] {
    const LENS: [usize; 8] = [0, 1, 5, 1000, 16_000, 100_000, 7, 700_000];
    let ranks = [left.rank(), right.rank()];
    let work = async |group: &mut Group<SimDevice>, is_first: bool| {
        let other = ranks[usize::from(is_first)];
        for (number, len) in LENS.into_iter().enumerate() {
            for turn in [true, false] {
                let seed = 2 * number + usize::from(turn);
                if turn == is_first {
                    group.send(other, &content(seed, len)).await.unwrap();
                } else {
                    let mut vector = vec![7; len];
                    group.recv(other, &mut vector).await.unwrap();
                    assert!(vector == content(seed, len), "{number}: {len} elements to {}", group.rank());
                }
            }
        }
    };
    join(work(&mut left, true), work(&mut right, false)).await;
    [left, right]
}

/// Catches a way that needs a call of the ranks on it, blocks out of order, a call that takes messages of the next one, and a rank that waits for
/// an empty vector.
#[test]
fn two_ranks_exchange_vectors_without_the_others() {
    for (shape, ranks) in
        [(LINE_4, [0, 1]), (LINE_4, [0, 3]), (LINE_4, [3, 1]), (MESH_4, [1, 2]), (RING_3, [2, 0])]
    {
        on_ranks(shape, async |_net, groups| {
            let [left, right] = pair(groups, ranks);
            exchange(left, right).await;
        });
    }
}

/// Catches a number that all calls share: ranks then take other calls for theirs, or another operation.
#[test]
fn pairs_and_all_ranks_do_not_wait_for_each_other() {
    on_ranks(LINE_4, async |_net, groups| {
        let mut groups: Vec<_> = groups.iter_mut().map(|group| group.take().unwrap()).collect();
        on_all(&mut groups, async |rank, group| {
            let mut vector = [0_u8; 3];
            for round in 0..4 {
                match rank {
                    // Ranks 1 and 2 are in the all_reduce meanwhile.
                    0 => group.send(3, &[round; 3]).await.unwrap(),
                    3 => {
                        group.recv(0, &mut vector).await.unwrap();
                        assert_eq!(vector, [round; 3]);
                    }
                    2 if round == 2 => group.send(1, &[true, false]).await.unwrap(),
                    1 if round == 2 => {
                        let mut flags = [false; 2];
                        group.recv(2, &mut flags).await.unwrap();
                        assert_eq!(flags, [true, false]);
                    }
                    _ => (),
                }
                let mut sum = vec![1_u32; 50_000];
                group.all_reduce(&mut sum, Reduction::Sum).await.unwrap();
                assert!(sum.iter().all(|element| *element == 4));
            }
            assert_eq!(group.sequence(), 4);
        })
        .await;
    });
}

/// Catches a length, a type or a direction that is not compared: two ranks that both send would wait for ever.
#[test]
fn calls_that_differ_are_errors_that_name_both_ranks() {
    type Call = fn(&mut Group<SimDevice>) -> futures::future::LocalBoxFuture<'_, Result<(), GroupError>>;
    let others: [(&str, Call); 4] = [
        ("send of 4 f32, from rank 0 to rank 2", |group| {
            Box::pin(async { group.recv(0, &mut [0_f32; 4]).await })
        }),
        ("send of 3 i32, from rank 0 to rank 2", |group| {
            Box::pin(async { group.recv(0, &mut [0_i32; 3]).await })
        }),
        ("send of 3 f32, from rank 2 to rank 0", |group| {
            Box::pin(async { group.send(0, &[0_f32; 3]).await })
        }),
        ("send of 0 f32, from rank 0 to rank 2", |group| {
            Box::pin(async { group.recv::<f32>(0, &mut []).await })
        }),
    ];
    for (expected, other) in others {
        on_ranks(LINE_3, async |_net, groups| {
            let [mut left, mut right] = pair(groups, [0, 2]);
            let first = join(left.send(2, &[1_u8]), right.recv(0, &mut [0_u8])).await;
            assert_eq!(first, (Ok(()), Ok(())));
            let (sent, received) = join(left.send(2, &[0_f32; 3]), other(&mut right)).await;
            for (error, own) in [(sent.unwrap_err(), 0), (received.unwrap_err(), 2)] {
                let GroupError::Mismatch { sequence: 1, ranks, calls } = &error else { panic!("{error}") };
                assert_eq!(ranks[0], own);
                let of = |rank| calls[ranks.iter().position(|found| *found == rank).unwrap()].to_string();
                assert_eq!([of(0), of(2)], ["send of 3 f32, from rank 0 to rank 2", expected]);
            }
            assert!(matches!(left.end(), Some(GroupError::Mismatch { .. })));
            // Rank 1 learns of it in its next operation.
            let error = groups[1].as_mut().unwrap().barrier().await.unwrap_err();
            assert!(matches!(error, GroupError::Mismatch { .. }), "{error}");
        });
    }
}

#[test]
fn a_rank_sends_to_others_that_exist() {
    on_ranks(LINE_3, async |_net, groups| {
        let [mut group] = [groups[1].take().unwrap()];
        assert_eq!(group.send(3, &[0_u8]).await, Err(GroupError::Rank { rank: 3, size: 3 }));
        assert_eq!(group.recv(1, &mut [0_u8]).await, Err(GroupError::OwnRank { rank: 1 }));
        assert_eq!(group.end(), None);
    });
}

/// What a call of rank 0 with rank 3 of a line returns, and one of rank 3 if it calls as well, and how long after `event`, which comes when
/// both are in the middle of a long vector
fn ends(
    sends: bool,
    both_call: bool,
    event: impl AsyncFn(&Net, &mut Groups, &RefCell<Option<Group<SimDevice>>>),
) -> Vec<(usize, Result<(), GroupError>, Duration)> {
    const PAUSE: Duration = Duration::from_millis(2);
    let cabling = cabling(LINE_4.0, LINE_4.1);
    sim(LINE_4.0, LINE_4.1)
        .run(async |net| {
            let cluster = connect(&net, &cabling, &NodeOptions::new().peer_timeout(TIMEOUT)).await;
            let mut groups: Groups = joined(&cluster, &cabling).await.into_iter().map(Some).collect();
            let [mut near, far] = pair(&mut groups, [0, 3]);
            let (ends, at) = (RefCell::new(Vec::new()), net.now() + PAUSE);
            let call = async |group: &mut Group<SimDevice>, sends: bool| {
                let (rank, other) = (group.rank(), 3 - group.rank());
                let mut vector = vec![1_u8; 64 << 20];
                let result = match sends {
                    true => group.send(other, &vector).await,
                    false => group.recv(other, &mut vector).await,
                };
                ends.borrow_mut().push((rank, result, net.now() - at));
            };
            let far = RefCell::new(Some(far));
            let far_calls = async {
                if both_call && let Some(mut group) = far.take() {
                    call(&mut group, !sends).await;
                }
            };
            let happens = async {
                net.sleep(PAUSE).await;
                event(&net, &mut groups, &far).await;
            };
            let all = pin!(join3(call(&mut near, sends), far_calls, happens));
            select(all, pin!(net.sleep(Duration::from_millis(1500)))).await;
            ends.take()
        })
        .value
}

/// Catches a loss that only neighbours learn of, one that is named only while blocks are under way, and one of a rank on the only way.
#[test]
fn the_loss_of_a_rank_or_of_the_way_to_it_is_named() {
    for (dead, sends, both_call) in (1..4)
        .flat_map(|dead| [(dead, true, true), (dead, false, true), (dead, true, false), (dead, false, false)])
    {
        let what = format!("{dead}, {sends}, {both_call}");
        let ends = ends(sends, both_call, async |net, _groups, _far| {
            inject(net, Duration::ZERO, &name(dead), "kill");
        });
        let survivors = ends.iter().filter(|(rank, ..)| *rank != dead).collect::<Vec<_>>();
        assert_eq!(survivors.len(), 1 + usize::from(both_call && dead != 3), "{what}: {ends:?}");
        for (rank, result, after) in survivors {
            let lost = 3 - rank;
            let is_named = matches!(result, Err(GroupError::Lost { rank, .. }) if *rank == lost);
            assert!(is_named && *after <= BOUND, "{what}: rank {rank} got {result:?} after {after:?}");
        }
    }
}

/// Catches a rank that waits for ever for one that has left, or for one behind it.
#[test]
fn a_rank_that_leaves_ends_the_calls_over_it() {
    for (leaves, sends, both_call) in [
        (3, true, false),
        (3, false, false),
        (2, true, false),
        (1, false, true),
        (2, true, true),
        (2, false, true),
    ] {
        let ends = ends(sends, both_call, async |_net, groups, far| match leaves {
            3 => drop(far.take()),
            rank => drop(groups[rank].take()),
        });
        assert_eq!(ends.len(), 1 + usize::from(both_call), "{leaves}, {sends}: {ends:?}");
        for (rank, result, _) in &ends {
            let other = 3 - rank;
            let expected = match leaves {
                3 => GroupError::Left { rank: other },
                _ => GroupError::Lost { rank: other, reason: None },
            };
            assert_eq!(*result, Err(expected), "{leaves}, {sends}: rank {rank}");
        }
    }
}

/// Catches a rank that waits for one whose call was dropped, or whose group is over.
#[test]
fn a_call_that_is_dropped_and_a_group_that_is_revoked_end_the_calls_of_the_other_rank() {
    for is_early in [true, false] {
        on_ranks(LINE_4, async |net, groups| {
            let [mut near, mut far] = pair(groups, [0, 3]);
            let (sent, mut received) = (vec![1_u8; 16 << 20], vec![0_u8; 16 << 20]);
            let start = async |group: &mut Group<SimDevice>, pause| {
                let call = pin!(group.send(3, &sent));
                matches!(select(call, pin!(net.sleep(pause))).await, Either::Right(_))
            };
            let receive = async {
                if is_early {
                    net.sleep(Duration::from_millis(3)).await;
                }
                far.recv(0, &mut received).await
            };
            let (is_dropped, result) = join(start(&mut near, Duration::from_millis(1)), receive).await;
            assert!(is_dropped);
            let cancelled = GroupError::Cancelled { rank: 0, sequence: 0 };
            assert_eq!((result, near.end()), (Err(cancelled.clone()), Some(&cancelled)), "{is_early}");
        });
        on_ranks(LINE_4, async |net, groups| {
            let [mut near, mut far] = pair(groups, [0, 3]);
            let revoke = async {
                if !is_early {
                    net.sleep(Duration::from_millis(3)).await;
                }
                far.revoke();
            };
            let (result, ()) = join(near.send(3, &[1_u8]), revoke).await;
            assert_eq!(result, Err(GroupError::Revoked { rank: 3 }), "{is_early}");
        });
    }
}

/// Catches messages that are lost, repeated or out of order when a cable of the way is out, and a rank that gives up although it is back in time.
#[test]
fn vectors_arrive_while_cables_come_and_go() {
    for (shape, ranks) in [(RING_3, [0, 1]), (LINE_3, [0, 2]), (LINE_3, [0, 1]), (MESH_4, [0, 3])] {
        for seed in 0..6 {
            let cabling = cabling(shape.0, shape.1);
            let scheduler = [Scheduler::Fifo, Scheduler::Random][seed as usize % 2];
            let run = sim(shape.0, shape.1).seed(seed).scheduler(scheduler).run(async |net| {
                let cluster = connect(&net, &cabling, &NodeOptions::new().peer_timeout(TIMEOUT)).await;
                let mut groups: Groups = joined(&cluster, &cabling).await.into_iter().map(Some).collect();
                for number in 0..3 {
                    let cable = shape.1[(seed as usize + number) % shape.1.len()];
                    let (port, at) = (port(&net, cable.into()), 90 + 331 * number as u64 + 53 * seed);
                    inject(&net, Duration::from_micros(at), &port, "unplug");
                    inject(&net, Duration::from_micros(at + 40 + 700 * (seed % 3)), &port, "replug");
                    inject(&net, Duration::from_micros(at + 17), &port, "corrupt 2");
                }
                let [left, right] = pair(&mut groups, ranks);
                let mut both = exchange(left, right).await;
                // The others have not noticed anything.
                let [left, right] = &mut both;
                let calls = groups.iter_mut().flatten().chain([left, right]).map(Group::barrier);
                assert!(join_all(calls).await.iter().all(Result::is_ok));
            });
            assert_eq!(run.findings, [], "{shape:?}, {seed}");
        }
    }
}

/// Catches a vector that goes ahead of the call that receives it, and one of which more goes than the receiver takes.
#[test]
fn no_more_is_under_way_than_a_window() {
    let shape: Shape = (2, &[(0, 1)]);
    let cabling = cabling(shape.0, shape.1);
    sim(shape.0, shape.1).run(async |net| {
        let cluster = connect(&net, &cabling, &NodeOptions::new()).await;
        let mut groups: Groups = joined(&cluster, &cabling).await.into_iter().map(Some).collect();
        let session = cluster.sessions[0][0].1.clone();
        let bytes = || {
            let snapshot = session.snapshot();
            let lanes = snapshot.paths.iter().flat_map(|path| [path.counts.eager, path.counts.bulk]);
            lanes.map(|lane| lane.bytes_sent).sum::<u64>()
        };
        let [mut left, mut right] = pair(&mut groups, [0, 1]);
        let (sent, mut received) = (content(3, 2 << 20), vec![0; 2 << 20]);
        let sending = left.send(1, &sent);
        let receiving = async {
            net.sleep(Duration::from_millis(5)).await;
            let early = bytes();
            assert!(early < 64 << 10, "{early} bytes without a call that receives them");
            let mut call = pin!(right.recv(0, &mut received));
            // Long enough to call, and not polled then.
            assert!(matches!(
                select(call.as_mut(), pin!(net.sleep(Duration::from_nanos(1)))).await,
                Either::Right(_)
            ));
            net.sleep(Duration::from_millis(5)).await;
            let window = bytes() - early;
            assert!(
                (256 << 10..(1 << 20) + (256 << 10)).contains(&window),
                "{window} bytes that are not taken"
            );
            call.await
        };
        assert_eq!(join(sending, receiving).await, (Ok(()), Ok(())));
        assert!(received == sent);
    });
}

/// Catches a rank that receives, has nothing on its way, and never learns that a rank between has left.
#[test]
fn a_rank_that_waits_for_a_silent_one_learns_that_no_way_is_left() {
    on_ranks(LINE_4, async |net, groups| {
        let [mut near, mut far] = pair(groups, [0, 3]);
        let (sent, mut received) = (vec![1_u8; 8 << 20], vec![0_u8; 8 << 20]);
        let mut sending = Box::pin(far.send(0, &sent));
        let receiving = near.recv(3, &mut received);
        let silence = async {
            // Rank 3 is not polled any more.
            let pause = pin!(net.sleep(Duration::from_micros(300)));
            assert!(matches!(select(sending.as_mut(), pause).await, Either::Right(_)));
            net.sleep(Duration::from_millis(200)).await;
            drop(groups[2].take());
        };
        let (result, ()) = join(receiving, silence).await;
        assert_eq!(result, Err(GroupError::Lost { rank: 3, reason: None }));
    });
}

/// Catches a confirmation that is lost with a cable and never repeated: the rank that received makes no further call.
#[test]
fn a_vector_that_was_received_is_confirmed_after_an_outage() {
    for micros in 0..60 {
        on_ranks(LINE_3, async |net, groups| {
            let [mut left, mut right] = pair(groups, [0, 2]);
            let port = port(net, [1, 2]);
            inject(net, Duration::from_micros(micros), &port, "unplug");
            inject(net, Duration::from_micros(micros + 2000), &port, "replug");
            let mut received = [0_u8; 9];
            let ends = join(left.send(2, &[7_u8; 9]), right.recv(0, &mut received)).await;
            assert_eq!((ends, received), ((Ok(()), Ok(())), [7; 9]), "{micros}");
        });
    }
}

/// Catches a rank that leaves with what it has confirmed: the one that sends would take it for one that has not received.
#[test]
fn a_rank_may_leave_as_soon_as_it_has_received() {
    for (shape, ranks) in [(LINE_4, [0, 3]), (LINE_3, [1, 2])] {
        for len in [0, 1, 100_000] {
            on_ranks(shape, async |_net, groups| {
                let [mut left, mut right] = pair(groups, ranks);
                let leaves = async {
                    let mut received = vec![0_u8; len];
                    right.recv(ranks[0], &mut received).await.unwrap();
                    drop(right);
                };
                let (sent, ()) = join(left.send(ranks[1], &vec![1_u8; len]), leaves).await;
                assert_eq!(sent, Ok(()), "{shape:?}, {len}");
            });
        }
    }
}

/// Catches a rank that confirms what has arrived, at once or when it confirms again, although the call that takes it is not polled.
#[test]
fn a_vector_is_sent_once_it_is_taken() {
    for (shape, ranks) in [(LINE_3, [0, 2]), (LINE_3, [1, 2])] {
        on_ranks(shape, async |net, groups| {
            let [mut left, mut right] = pair(groups, ranks);
            let (sent, mut received) = (content(1, 1000), vec![0; 1000]);
            let (mut sending, mut receiving) =
                (Box::pin(left.send(ranks[1], &sent)), Box::pin(right.recv(ranks[0], &mut received)));
            // Long enough to call, and not polled then.
            let moment = pin!(net.sleep(Duration::from_nanos(1)));
            assert!(matches!(select(receiving.as_mut(), moment).await, Either::Right(_)));
            // Both ranks repeat meanwhile what they have sent.
            let pause = pin!(net.sleep(Duration::from_millis(200)));
            let first = select(sending.as_mut(), pause).await;
            assert!(matches!(first, Either::Right(_)), "{ranks:?}: no call has taken the vector");
            assert_eq!(join(sending, receiving).await, (Ok(()), Ok(())));
            assert!(received == sent, "{ranks:?}");
        });
    }
}
