//! Cables that are out while ranks work: what a neighbour does not have goes over others

use std::time::Duration;

use futures::future::{Either, join, join_all, select, try_join, try_join_all};
use rdma_async::{Device as _, Node, NodeOptions};
use rdma_collectives::{Cabling, Group, GroupError, GroupOptions, Operation, Reduction, bound};
use rdma_sim::{Net, SimDevice};

use crate::cluster::{
    LINE_3, MESH_4, RING_3, Shape, cabling, connect, joined, joined_with, name, on_all, sim,
};
use crate::oracle::all_operations;
use crate::shrinking;

const RING_5: Shape = (5, &[(0, 1), (1, 2), (2, 3), (3, 4), (4, 0)]);
/// A ring of four with a chord, and a fifth Mac with two cables
const IRREGULAR_5: Shape = (5, &[(0, 1), (1, 2), (2, 3), (3, 0), (0, 2), (2, 4), (3, 4)]);

/// The end of the cable between two ranks at the first of them
pub(crate) fn port(net: &Net, [one, other]: [usize; 2]) -> String {
    let device = net.host(&name(one)).open_to(&name(other)).expect("a cable joins them");
    format!("{}:{}", name(one), device.name())
}

/// Lets something happen to a port or a host after a time
pub(crate) fn inject(net: &Net, after: Duration, port: &str, what: &str) {
    let at = (net.now() + after).as_nanos();
    net.inject(format!("at {at}ns {port} {what}").parse().expect("a fault"));
}

/// Little memory, because hundreds of nodes are made, and a death that is soon noticed
pub(crate) fn quick() -> NodeOptions {
    NodeOptions::new().max_peers(1).max_sessions(1).peer_timeout(Duration::from_millis(20))
}

/// Runs `program` with the groups of all ranks of a cabling, and the ports between these ranks
fn on_ranks<T>(
    shape: Shape,
    seed: u64,
    program: impl AsyncFnOnce(&Net, &mut Vec<Group<SimDevice>>, &dyn Fn(usize, usize) -> String) -> T,
) -> T {
    let cabling = cabling(shape.0, shape.1);
    let run = sim(shape.0, shape.1).seed(seed).run(async |net| {
        let cluster = connect(&net, &cabling, &quick()).await;
        let mut groups = joined(&cluster, &cabling).await;
        let ports: Vec<_> = shape.1.iter().map(|&(one, other)| port(&net, [one, other])).collect();
        let port = |one, other| {
            let at = shape.1.iter().position(|cable| [(one, other), (other, one)].contains(cable));
            ports[at.expect("a cable joins them")].clone()
        };
        let value = program(&net, &mut groups, &port).await;
        drop(groups);
        // What goes on for others ends.
        net.sleep(Duration::from_millis(1)).await;
        value
    });
    assert_eq!(run.findings, [], "{shape:?}, {seed}");
    run.value
}

/// Catches blocks and credit that are lost, repeated or out of order when they change to another way, in every operation and at every cable.
#[test]
fn every_operation_goes_on_without_a_cable() {
    for (number, shape) in [RING_3, MESH_4, RING_5, IRREGULAR_5].into_iter().enumerate() {
        for (at, &(one, other)) in shape.1.iter().enumerate() {
            for (len, step) in [(1000, 17), (60_000, 171)] {
                let seed = (10 * number + at) as u64;
                on_ranks(shape, seed, async |net, groups, port| {
                    let after = Duration::from_micros((at as u64 + 1) * step);
                    inject(net, after, &port(one, other), "unplug");
                    on_all(groups, async |rank, group| all_operations(rank, group, len, at).await).await;
                });
            }
        }
    }
}

/// Catches a second outage that is taken for the first, a way over a cable that is out, and what comes twice when a cable is back.
#[test]
fn cables_come_and_go() {
    for (shape, first, second) in
        [(MESH_4, (0, 1), (2, 3)), (IRREGULAR_5, (0, 1), (2, 4)), (MESH_4, (0, 1), (0, 2))]
    {
        for seed in 0..4 {
            on_ranks(shape, seed, async |net, groups, port| {
                let at = |micros| Duration::from_micros(micros + 37 * seed);
                for (micros, (one, other), what) in [
                    (100, first, "unplug"),
                    (700, second, "unplug"),
                    (2500, first, "replug"),
                    (3500, second, "replug"),
                    (4000, first, "unplug"),
                    // Back before the ranks plan anew.
                    (4100, first, "replug"),
                    (5000, second, "unplug"),
                ] {
                    inject(net, at(micros), &port(one, other), what);
                }
                for seed in 0..6 {
                    let len = [1000, 50_000][seed % 2];
                    on_all(groups, async |rank, group| all_operations(rank, group, len, seed).await).await;
                }
            });
        }
    }
}

/// Catches a plan that is not made, or not carried out, when a cable is out or back, and a stall of the operation under way.
#[test]
fn ranks_plan_for_the_cables_that_work() {
    const LEN: usize = 16 << 20;
    const BYTES: f64 = 4.0 * LEN as f64;
    let without: Vec<_> = MESH_4.1.iter().copied().filter(|cable| *cable != (0, 1)).collect();
    let seconds = |edges: &[(usize, usize)]| {
        bound(&cabling(4, edges), &Operation::AllReduce).unwrap().0.to_f64() * BYTES
    };
    let (whole, degraded) = (seconds(MESH_4.1), seconds(&without));
    assert!((degraded / whole - 6.0 / 5.0).abs() < 1e-9);
    let times = on_ranks(MESH_4, 0, async |net, groups, port| {
        let port = port(0, 1);
        let mut times = Vec::new();
        for what in ["", "", "unplug", "", "", "replug", "", ""] {
            let start = net.now();
            if !what.is_empty() {
                inject(net, Duration::from_millis(1), &port, what);
            }
            on_all(groups, async |rank, group| {
                let mut vector = vec![rank as f32 + 1.0; LEN];
                group.all_reduce(&mut vector, Reduction::Sum).await.unwrap();
                assert!(vector.iter().all(|element| *element == 10.0));
            })
            .await;
            times.push((net.now() - start).as_secs_f64());
        }
        times
    });
    let [_, before, cut, next, _, back, _, after] = times[..] else { panic!("{times:?}") };
    assert!(next <= degraded / 0.95, "{next} where {degraded} is the bound: {times:?}");
    assert!((after / before - 1.0).abs() < 0.01, "{times:?}");
    // Of the operation under way, each block goes over two cables in the place of one at most.
    assert!(cut < 2.0 * before, "{times:?}");
    assert!(back < 1.01 * next, "{times:?}");
}

/// Catches a plan that is made although the ranks keep theirs, and bits that depend on the way of a block.
#[test]
fn ranks_that_keep_their_plan_get_the_same_bits_without_a_cable() {
    let bits = |options: GroupOptions, is_cut: bool| {
        let cabling = cabling(MESH_4.0, MESH_4.1);
        let run = sim(MESH_4.0, MESH_4.1).run(async |net| {
            let cluster = connect(&net, &cabling, &NodeOptions::new()).await;
            let mut groups = joined_with(options, &cluster, &cabling).await;
            if is_cut {
                inject(&net, Duration::from_micros(50), &port(&net, [0, 1]), "unplug");
            }
            let results = on_all(&mut groups, async |rank, group| {
                let mut bits = Vec::new();
                for _ in 0..20 {
                    let mut vector: Vec<f32> =
                        (0..100_000).map(|at| 1.0 / (at + 3 * rank + 1) as f32).collect();
                    group.all_reduce(&mut vector, Reduction::Sum).await.unwrap();
                    bits.extend(vector.into_iter().map(f32::to_bits));
                }
                bits
            })
            .await;
            assert!(results.iter().all(|result| *result == results[0]));
            results[0].clone()
        });
        run.value
    };
    let keep = GroupOptions::new().keep_plan();
    assert!(bits(keep, true) == bits(keep, false));
    assert!(bits(GroupOptions::new(), true) != bits(GroupOptions::new(), false), "the plans differ");
}

/// Catches ranks that relay only while they carry an operation out themselves, and operations that need others' help to end.
#[test]
fn ranks_relay_while_they_do_something_else() {
    on_ranks(RING_3, 0, async |net, groups, port| {
        inject(net, Duration::from_micros(50), &port(0, 1), "unplug");
        on_all(groups, async |rank, group| {
            let mut vector = vec![rank as u8; 3 << 20];
            // Rank 2 is at the end of the tree: its part is done before that of the others.
            for _ in 0..3 {
                group.broadcast(0, &mut vector).await.unwrap();
                assert!(vector.iter().all(|element| *element == 0));
                if rank == 2 {
                    net.sleep(Duration::from_millis(4)).await;
                }
                vector.fill(rank as u8);
            }
            for _ in 0..3 {
                let mut moved = vec![rank as u8; 3 << 20];
                if rank == 2 {
                    net.sleep(Duration::from_millis(4)).await;
                }
                group.transfer(0, 1, &mut moved).await.unwrap();
                assert!(moved[0] == if rank == 1 { 0 } else { rank as u8 });
            }
        })
        .await;
    });
}

/// Catches an error that does not reach a rank whose neighbours learn of it over a cable that is out, also if its sender has dropped the group.
#[test]
fn errors_go_over_others_too() {
    let errors = on_ranks(RING_3, 0, async |net, groups, port| {
        inject(net, Duration::from_micros(50), &port(0, 1), "unplug");
        let ranks = std::mem::take(groups).into_iter().enumerate().map(async |(rank, mut group)| {
            net.sleep(Duration::from_millis(1)).await;
            let mut vector = vec![1_u8; 1 << 20];
            if rank == 2 {
                // It neither begins the operation nor looks at what others say.
                net.sleep(Duration::from_millis(30)).await;
            }
            let operation = Box::pin(group.all_reduce(&mut vector, Reduction::Sum));
            let patience = Duration::from_millis(if rank == 0 { 1 } else { 100 });
            let is_over = matches!(select(operation, Box::pin(net.sleep(patience))).await, Either::Left(_));
            assert_eq!(is_over, rank > 0);
            (group.end().cloned().unwrap(), net.now())
        });
        join_all(ranks).await
    });
    let [(_, cancelled), (_, learned), _] = errors[..] else { panic!("{errors:?}") };
    assert!(learned - cancelled < Duration::from_micros(100), "{errors:?}");
    assert!(
        errors.iter().all(|(error, _)| *error == GroupError::Cancelled { rank: 0, sequence: 0 }),
        "{errors:?}"
    );
}

/// Catches an operation that takes the outage of a session for its end, where there is no other way.
#[test]
fn without_another_way_operations_wait_for_the_cable() {
    let elapsed = on_ranks(LINE_3, 0, async |net, groups, port| {
        let port = port(1, 2);
        inject(net, Duration::from_micros(100), &port, "unplug");
        inject(net, Duration::from_millis(8), &port, "replug");
        let start = net.now();
        on_all(groups, async |rank, group| all_operations(rank, group, 100_000, 8).await).await;
        net.now() - start
    });
    assert!(elapsed > Duration::from_millis(8), "{elapsed:?}");
}

/// Catches messages that have no place in their stream when its cable is pulled, and are forgotten.
#[test]
fn messages_without_a_place_go_over_others() {
    let cabling = cabling(RING_3.0, RING_3.1);
    for cut in (0..20).map(|step| 40 * step) {
        let run = sim(RING_3.0, RING_3.1).run(async |net| {
            let options = NodeOptions::new().max_in_flight_sends(1);
            let cluster = connect(&net, &cabling, &options).await;
            let mut groups = joined(&cluster, &cabling).await;
            inject(&net, Duration::from_micros(cut), &port(&net, [0, 1]), "unplug");
            let work = on_all(&mut groups, async |rank, group| all_operations(rank, group, 60_000, 1).await);
            join(work, net.sleep(Duration::from_micros(1))).await;
        });
        assert_eq!(run.findings, [], "{cut}");
    }
}

/// Catches a group that ends with a session although others reach both of its ranks, and a rank that is not named because it may only be cut off.
#[test]
fn a_session_that_ends_with_its_cable_ends_no_group() {
    const TIMEOUT: Duration = Duration::from_millis(40);
    for is_planned in [true, false] {
        let ends = shrinking::on(MESH_4, async |net, mut groups, cut| {
            cut(&|one, other| (one, other) == (0, 1));
            on_all(&mut groups, async |rank, group| {
                for number in 0..40 {
                    if is_planned {
                        all_operations(rank, group, 2000, number).await;
                    } else {
                        // In these the ranks agree on nothing, and the plan stays that for all cables.
                        let mut vector = vec![rank as u64; 20_000];
                        group.broadcast(number % 4, &mut vector).await.unwrap();
                        assert!(vector.iter().all(|element| *element == number as u64 % 4));
                        group.transfer(0, 1, &mut vector).await.unwrap();
                    }
                    net.sleep(TIMEOUT / 10).await;
                }
            })
            .await;
            let death = net.now();
            net.inject("at 0us b kill".parse().unwrap());
            let ends = on_all(&mut groups, async |rank, group| match rank {
                1 => None,
                _ => Some((group.barrier().await.unwrap_err(), net.now() - death)),
            })
            .await;
            ends.into_iter().flatten().collect::<Vec<_>>()
        });
        assert_eq!(ends.len(), 3);
        for (error, after) in ends {
            let is_named = matches!(error, GroupError::Lost { rank: 1, .. });
            assert!(is_named && after < 2 * TIMEOUT, "{error} after {after:?}");
        }
    }
}

/// Catches a group that ends because the only cable around the cable of an ended session is out for a moment.
#[test]
fn the_only_way_around_may_be_gone_for_a_moment() {
    for (after, micros) in [(10, 10), (30, 500), (50, 3000), (120, 1000)] {
        shrinking::on(RING_3, async |net, mut groups, cut| {
            cut(&|one, other| (one, other) == (0, 1));
            let work = async |rank: usize, group: &mut Group<SimDevice>, rounds| {
                for _ in 0..rounds {
                    // No plan is agreed on without the cable: ranks 0 and 1 need each other.
                    let mut vector = vec![rank as u64; 50_000];
                    group.broadcast(0, &mut vector).await.unwrap();
                    assert!(vector.iter().all(|element| *element == 0));
                    net.sleep(Duration::from_micros(100)).await;
                }
            };
            // By then the session of ranks 0 and 1 is over.
            on_all(&mut groups, async |rank, group| work(rank, group, 500).await).await;
            let way = port(&net, [1, 2]);
            inject(&net, Duration::from_micros(after), &way, "unplug");
            inject(&net, Duration::from_micros(after + micros), &way, "replug");
            on_all(&mut groups, async |rank, group| work(rank, group, 50).await).await;
        });
    }
}

/// Catches ranks that wait for a neighbour whose cable is out when they go on without one that died, and beside the group.
#[test]
fn ranks_go_on_without_a_cable_and_without_a_rank() {
    on_ranks(MESH_4, 0, async |net, groups, port| {
        inject(net, Duration::ZERO, &port(0, 1), "unplug");
        // Blocks that are under way, the plan for what is left, and another group with it.
        on_all(&mut *groups, async |rank, group| {
            let mut vector = vec![rank as u64; 100_000];
            for _ in 0..3 {
                group.all_reduce(&mut vector, Reduction::Max).await.unwrap();
            }
            let mut other = group.duplicate(GroupOptions::new()).await.unwrap();
            other.all_reduce(&mut vector, Reduction::Sum).await.unwrap();
            assert!(vector.iter().all(|element| *element == 12));
            let color = u64::from(rank < 3);
            let mut part = group.split(Some(color), 0, GroupOptions::new()).await.unwrap().unwrap();
            part.all_reduce(&mut vector, Reduction::Sum).await.unwrap();
            assert!(vector.iter().all(|element| *element == 12 * part.size() as u64));
        })
        .await;
        net.inject("at 0us c kill".parse().unwrap());
        let survivors = std::mem::take(groups).into_iter().filter(|group| group.rank() != 2);
        let ends = survivors.map(async |mut group| {
            let error = group.barrier().await.unwrap_err();
            assert!(matches!(error, GroupError::Lost { rank: 2, .. }), "{error}");
            let start = net.now();
            let mut group = group.shrink().await.unwrap();
            let mut vector = vec![1_u64 << group.rank(); 1000];
            group.all_reduce(&mut vector, Reduction::Sum).await.unwrap();
            assert!(vector.iter().all(|element| *element == 7), "{vector:?}");
            net.now() - start
        });
        let longest = join_all(ends).await.into_iter().max().unwrap();
        assert!(longest < Duration::from_millis(10), "{longest:?}");
    });
}

/// Catches a plan for two cables where one works: that cable would carry twice as much as any other. It may be out before the ranks join.
#[test]
fn ranks_plan_for_one_of_two_cables() {
    let [before, after] = plan_for_one_of_two_cables(false);
    let [_, after_joining] = plan_for_one_of_two_cables(true);
    for time in [after, after_joining] {
        assert!((time / before - 1.0).abs() < 0.02, "{time} where {before} was undisturbed");
    }
}

/// The seconds of an operation before a cable is pulled, or the ranks join without it, and when it is back
fn plan_for_one_of_two_cables(is_out_before: bool) -> [f64; 2] {
    const EDGES: [(usize, usize); 4] = [(0, 1), (0, 1), (1, 2), (2, 0)];
    const LEN: usize = 4 << 20;
    let whole = cabling(3, &EDGES);
    let seconds =
        |cabling: &Cabling| bound(cabling, &Operation::AllReduce).unwrap().0.to_f64() * 4.0 * LEN as f64;
    let degraded = seconds(&cabling(3, &EDGES[1..]));
    assert!(degraded / seconds(&whole) > 1.3);
    let run = sim(3, &EDGES).run(async |net| {
        let node = |host: &str, devices: &[&str]| {
            let first = Node::builder(net.opener(host, devices[0])).runtime(net.host(host).runtime());
            let more = devices[1..].iter().fold(first, |node, device| node.device(net.opener(host, device)));
            more.build().expect("the devices are there")
        };
        let links = [
            ([0, 1], [node("a", &["rdma_en2", "rdma_en3"]), node("b", &["rdma_en2", "rdma_en3"])]),
            ([1, 2], [node("b", &["rdma_en4"]), node("c", &["rdma_en2"])]),
            ([2, 0], [node("c", &["rdma_en3"]), node("a", &["rdma_en4"])]),
        ];
        let mut sessions = [Vec::new(), Vec::new(), Vec::new()];
        for ([one, other], [left, right]) in &links {
            let (to_right, to_left) = tokio::io::duplex(1024);
            let (session, ()) = try_join(left.connect(to_right), right.serve(to_left)).await.unwrap();
            sessions[*one].push((*other, session));
            sessions[*other].push((*one, right.accept().await.expect("the node is open")));
        }
        if is_out_before {
            inject(&net, Duration::ZERO, "a:rdma_en3", "unplug");
            net.sleep(Duration::from_millis(1)).await;
        }
        let joins = sessions.into_iter().enumerate();
        let joins = joins.map(|(rank, sessions)| Group::<SimDevice>::join(rank, &whole, sessions));
        let mut groups = try_join_all(joins).await.unwrap();
        let mut times = Vec::new();
        let unplug = if is_out_before { "" } else { "unplug" };
        for fault in ["", "", unplug, "", "", "replug", "", "", ""] {
            if !fault.is_empty() {
                inject(&net, Duration::from_micros(500), "a:rdma_en3", fault);
            }
            let start = net.now();
            on_all(&mut groups, async |_, group| {
                let mut vector = vec![1_f32; LEN];
                group.all_reduce(&mut vector, Reduction::Sum).await.unwrap();
                assert!(vector.iter().all(|element| *element == 3.0));
            })
            .await;
            times.push((net.now() - start).as_secs_f64());
            if fault == "replug" {
                // The longer the cable was out, the longer it may take until the path is made.
                net.sleep(Duration::from_millis(20)).await;
            }
        }
        times
    });
    let [first, before, _, next, .., after] = run.value[..] else { panic!("{:?}", run.value) };
    let next = if is_out_before { next.max(first) } else { next };
    assert!(next < degraded / 0.95, "{:?} where {degraded} is the bound", run.value);
    [before, after]
}
