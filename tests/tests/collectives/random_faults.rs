//! Random faults at random times, for groups that are too large for a fault at each frame

use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::future::join;
use rdma_async::NodeOptions;
use rdma_collectives::{Cabling, Group, GroupError, GroupOptions};
use rdma_sim::{Net, SimDevice, sometimes};

use crate::cluster::{RATE, connect, joined, name, on_all};
use crate::drawn_faults::{End, Fault, inject_all, judge, seeds};
use crate::each_frame::work;

const TIMEOUT: Duration = Duration::from_millis(10);
/// How long after the last fault all survivors may need to learn which rank is gone: two timeouts, and the way of the error
const BOUND: Duration = Duration::from_millis(25);
/// By when all operations are done that come to an end: random orders of tasks delay them
const PATIENCE: Duration = Duration::from_millis(150);
/// How many seeds of each cabling are tried in the gate
const FEW: u64 = 16;

/// All operations twice
async fn rounds(group: &mut Group<SimDevice>, len: usize) -> Result<(), GroupError> {
    work(group, len).await?;
    work(group, len / 3).await
}

/// Groups of the same ranks beside these, for some seeds
async fn duplicates(net: &Net, groups: &mut [Group<SimDevice>]) -> Vec<Option<Group<SimDevice>>> {
    if net.pick(3) > 0 {
        return groups.iter().map(|_| None).collect();
    }
    let made =
        on_all(groups, async |_, group| group.duplicate(GroupOptions::new()).await.expect("all ranks live"));
    made.await.into_iter().map(Some).collect()
}

/// Each rank carries all operations out while faults come; those that live are done or name a rank that is gone
async fn program(net: &Net, cabling: &Cabling) {
    let ranks = cabling.hosts().len();
    let options = NodeOptions::new().max_peers(1).max_sessions(1).peer_timeout(TIMEOUT);
    let cluster = connect(net, cabling, &options).await;
    let mut groups = joined(&cluster, cabling).await;
    let beside = duplicates(net, &mut groups).await;
    let len = [600, 10_000][net.pick(2) as usize];
    let leaves = net.pick(2) == 1;
    let faults: Vec<_> = (0..net.pick(4)).map(|_| Fault::draw(net, cabling)).collect();
    let last = inject_all(net, cabling, &faults, 13);
    let has_beside = beside[0].is_some();
    let ends = Arc::new(Mutex::new([vec![None; ranks], vec![None; ranks]]));
    for (rank, (mut group, mut beside)) in groups.into_iter().zip(beside).enumerate() {
        let (task_net, ends) = (net.clone(), Arc::clone(&ends));
        // Part of the host: it dies with it.
        net.host(&name(rank)).spawn(async move {
            let end = async |which: usize, group: Option<&mut Group<SimDevice>>| {
                let result = if let Some(group) = group { rounds(group, len).await } else { Ok(()) };
                ends.lock().unwrap()[which][rank] = Some((result, task_net.now()));
            };
            join(end(0, Some(&mut group)), end(1, beside.as_mut())).await;
            if !leaves {
                // As a program does that goes on.
                std::future::pending::<()>().await;
            }
        });
    }
    net.sleep_until(last + PATIENCE).await;
    let ends = std::mem::take(&mut *ends.lock().unwrap());
    let judge = |ends: &[End]| {
        let program = format_args!("{len} elements{}", if has_beside { " in two groups" } else { "" });
        judge(cabling, &faults, ends, last + BOUND, program)
    };
    let has_failed = ends.iter().map(|ends| judge(ends)).fold(false, |any, has_failed| any | has_failed);
    sometimes!(has_failed, "survivors name a rank");
    sometimes!(has_beside && !faults.is_empty(), "faults come while two groups operate");
    sometimes!(!faults.is_empty() && !has_failed, "all operations complete in spite of a fault");
}

/// Catches a rank that waits for ever for a dead one or for blocks that went over a cable, a wrong result after blocks changed their way, and an
/// error that names a rank which lives and can be reached.
#[test]
fn a_prism_of_six_survives_faults_at_random_times() {
    seeds(program, &Cabling::prism(3, RATE), FEW);
}

/// Catches what the prism shows, where neighbours have no neighbour in common: each way around has three cables.
#[test]
fn two_threes_of_six_survive_faults_at_random_times() {
    seeds(program, &Cabling::bipartite(3, 3, RATE), FEW);
}

/// Catches what the prism shows, over longer ways.
#[test]
fn a_cube_of_eight_survives_faults_at_random_times() {
    seeds(program, &Cabling::hypercube(3, RATE), FEW);
}

/// Catches what the prism shows, and ranks that wait for ever for others, or forget which are gone, where two faults leave no way.
#[test]
fn a_ring_of_eight_survives_faults_at_random_times() {
    seeds(program, &Cabling::ring(8, RATE), FEW);
}

/// Catches what the prism shows, with many ranks between which only one way is short.
#[test]
fn a_petersen_graph_of_ten_survives_faults_at_random_times() {
    seeds(program, &Cabling::petersen(RATE), FEW);
}

/// As above, with many more seeds: `cargo test --release -p rdma-tests --test collectives many_faults -- --ignored --test-threads 1`
mod many_faults {
    use super::*;

    const MANY: u64 = 1000;

    #[test]
    #[ignore = "takes minutes"]
    fn a_prism_of_six() {
        seeds(program, &Cabling::prism(3, RATE), MANY);
    }

    #[test]
    #[ignore = "takes minutes"]
    fn two_threes_of_six() {
        seeds(program, &Cabling::bipartite(3, 3, RATE), MANY);
    }

    #[test]
    #[ignore = "takes minutes"]
    fn a_cube_of_eight() {
        seeds(program, &Cabling::hypercube(3, RATE), MANY);
    }

    #[test]
    #[ignore = "takes minutes"]
    fn a_ring_of_eight() {
        seeds(program, &Cabling::ring(8, RATE), MANY);
    }

    #[test]
    #[ignore = "takes minutes"]
    fn a_petersen_graph_of_ten() {
        seeds(program, &Cabling::petersen(RATE), MANY);
    }
}
