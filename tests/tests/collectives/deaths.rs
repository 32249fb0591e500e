//! The death of a rank: every survivor gets an error that names it

use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::future::select;
use rdma_async::{NodeOptions, Time};
use rdma_collectives::{Group, GroupError, Reduction};
use rdma_sim::{Net, SimDevice};

use crate::cluster::{Shape, cabling, connect, joined, name, sim};

const LINE_4: Shape = (4, &[(0, 1), (1, 2), (2, 3)]);
const RING_5: Shape = (5, &[(0, 1), (1, 2), (2, 3), (3, 4), (4, 0)]);
const TIMEOUT: Duration = Duration::from_millis(20);
/// How long after the death all survivors may need: the timeout of a session, and the way of the error over all cables
const BOUND: Duration = Duration::from_millis(25);
/// When the rank dies, after the groups have been joined
const DEATH: Duration = Duration::from_millis(3);

/// How the rank spends the time before its death
#[derive(Clone, Copy, Debug, PartialEq)]
enum Last {
    /// Carries out operations
    Works,
    /// Begins an operation, and does not go on: senders use up their credit, and receivers wait for data
    Stalls,
    /// Does not begin another operation
    Idles,
}

/// Longer than what neighbours send without credit
const LEN: usize = 5 << 20;

/// An operation whose ranks play different parts: sender, receiver, relay
async fn operate(group: &mut Group<SimDevice>, number: usize, len: usize) -> Result<(), GroupError> {
    let (last, mut vector) = (group.size() - 1, vec![1_u8; len]);
    match number % 5 {
        0 => group.broadcast(0, &mut vector).await,
        1 => group.reduce(last, &mut vector, Reduction::Max).await,
        2 => group.all_reduce(&mut vector, Reduction::Max).await,
        3 => group.transfer(last, 0, &mut vector).await,
        _ => {
            let mut all = vec![0; len];
            group.all_gather(&vector[..len / group.size()], &mut all[..len / group.size() * (last + 1)]).await
        }
    }
}

/// The errors of the survivors, and how long after the death they got them
async fn deaths(
    net: &Net,
    shape: Shape,
    dead: usize,
    last: Last,
    number: usize,
) -> Vec<Option<(GroupError, Duration)>> {
    let cabling = cabling(shape.0, shape.1);
    // Little memory: hundreds of nodes are made.
    let options = NodeOptions::new().peer_timeout(TIMEOUT).max_peers(1).max_sessions(1);
    let cluster = connect(net, &cabling, &options).await;
    let groups = joined(&cluster, &cabling).await;
    // Only the groups keep the sessions: a rank that has its error goes at once.
    drop(cluster);
    let ends = Arc::new(Mutex::new(vec![None; shape.0]));
    for (rank, mut group) in groups.into_iter().enumerate() {
        let (task_net, ends) = (net.clone(), Arc::clone(&ends));
        // Part of the host: it dies with it.
        net.host(&name(rank)).spawn(async move {
            group.barrier().await.unwrap();
            if rank == dead && last != Last::Works {
                if last == Last::Stalls {
                    let operation = Box::pin(operate(&mut group, number, LEN));
                    let pause = Box::pin(task_net.sleep(Duration::from_micros(200)));
                    let begun = select(operation, pause).await;
                    task_net.sleep(4 * BOUND).await;
                    drop(begun);
                }
                return task_net.sleep(4 * BOUND).await;
            }
            let error = loop {
                if let Err(error) = operate(&mut group, number, LEN).await {
                    break error;
                }
            };
            ends.lock().unwrap()[rank] = Some((error, task_net.now()));
        });
    }
    net.sleep(DEATH).await;
    let death = net.now();
    net.inject(format!("at 0us {} kill", name(dead)).parse().unwrap());
    net.sleep(2 * BOUND).await;
    let after = |(error, at): (GroupError, Time)| (error, at.since(death));
    let ends = std::mem::take(&mut *ends.lock().unwrap());
    ends.into_iter().map(|end| end.map(after)).collect()
}

/// Catches a rank that waits for credit, for data or for the beginning of a dead one and never learns of its death, an error that
/// only neighbours learn, and one that names a rank which only passed the error on and left.
#[test]
fn every_survivor_learns_which_rank_died() {
    let mut wrong = Vec::new();
    use Last::{Idles, Stalls, Works};
    for (shape, states) in [(LINE_4, &[Works, Stalls, Idles][..]), (RING_5, &[Stalls])] {
        for (dead, number) in (0..shape.0).flat_map(|dead| (0..5).map(move |number| (dead, number))) {
            for &last in states {
                let simulation = sim(shape.0, shape.1).sanitize(false);
                let ends = simulation.run(async |net| deaths(&net, shape, dead, last, number).await);
                for (rank, end) in ends.value.into_iter().enumerate().filter(|(rank, _)| *rank != dead) {
                    let is_right = end.as_ref().is_some_and(|(error, after)| {
                        matches!(error, GroupError::Lost { rank, .. } if *rank == dead) && *after <= BOUND
                    });
                    if !is_right {
                        wrong.push(format!("{}, {dead} {last:?}, {number}: {rank} got {end:?}", shape.0));
                    }
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
