//! Random faults at random times, for programs that go on without the ranks they lose

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rdma_async::time::timeout;
use rdma_async::{NodeOptions, Runtime};
use rdma_collectives::{Cabling, Group, GroupError, Reduction, ShrinkError};
use rdma_sim::{Net, SimDevice, sometimes};

use crate::cluster::{RATE, connect, joined, name};
use crate::drawn_faults::{Fault, inject_all, left, seeds};

const TIMEOUT: Duration = Duration::from_millis(10);
/// How long operations may take before a program goes on without the ranks that it does not reach
const IMPATIENCE: Duration = Duration::from_millis(60);
/// By when all programs have ended
const PATIENCE: Duration = Duration::from_millis(500);
/// How many seeds of each cabling are tried in the gate
const FEW: u64 = 48;
/// Operations of a program
const ROUNDS: u64 = 12;

/// The hosts of the last group of a rank, or why it has none
type End = Option<Result<BTreeSet<String>, ShrinkError>>;

/// Operations until all are done; ranks that are behind begin with the others after a loss
async fn operate(group: &mut Group<SimDevice>, done: &mut u64, len: usize) -> Result<(), GroupError> {
    let mut latest = [*done];
    group.all_reduce(&mut latest, Reduction::Max).await?;
    [*done] = latest;
    while *done < ROUNDS {
        let mut ones = vec![1_u64; len];
        group.all_reduce(&mut ones, Reduction::Sum).await?;
        assert_eq!(ones, vec![group.size() as u64; len]);
        *done += 1;
    }
    group.barrier().await
}

/// Operates, and shrinks after each loss, and when operations wait for a cable for too long
async fn live(
    runtime: Arc<dyn Runtime>,
    mut group: Group<SimDevice>,
    len: usize,
) -> Result<BTreeSet<String>, ShrinkError> {
    let mut done = 0;
    while timeout(&*runtime, IMPATIENCE, operate(&mut group, &mut done, len)).await != Some(Ok(())) {
        group = group.shrink().await?;
    }
    Ok(group.hosts().iter().cloned().collect())
}

async fn program(net: &Net, cabling: &Cabling) {
    let ranks = cabling.hosts().len();
    let options = NodeOptions::new().max_peers(1).max_sessions(1).peer_timeout(TIMEOUT);
    let cluster = connect(net, cabling, &options).await;
    let groups = joined(&cluster, cabling).await;
    let len = [1, 600, 10_000][net.pick(3) as usize];
    let faults: Vec<_> = (0..1 + net.pick(5)).map(|_| Fault::draw(net, cabling)).collect();
    let last = inject_all(net, cabling, &faults, 16);
    let ends: Arc<Mutex<Vec<End>>> = Arc::new(Mutex::new((0..ranks).map(|_| None).collect()));
    for (rank, group) in groups.into_iter().enumerate() {
        let ends = Arc::clone(&ends);
        let host = net.host(&name(rank));
        let runtime = host.runtime();
        host.spawn(async move {
            let end = live(runtime, group, len).await;
            ends.lock().unwrap()[rank] = Some(end);
        });
    }
    net.sleep_until(last + PATIENCE).await;
    let ends = std::mem::take(&mut *ends.lock().unwrap());
    let (rest, killed) = left(cabling, &faults);
    let is_at_end = |rank: usize| matches!(&ends[rank], Some(Ok(_) | Err(ShrinkError::Minority { .. })));
    for part in rest.components() {
        let survivors = || part.iter().copied().filter(|rank| !killed.contains(rank));
        let goes_on = survivors().any(|rank| matches!(ends[rank], Some(Ok(_))));
        let is_right = survivors().all(is_at_end) && (goes_on || 2 * survivors().count() <= ranks);
        assert!(is_right, "{part:?} of {faults:?}: {ends:?}");
    }
    let last_groups = ends.iter().filter_map(|end| end.as_ref()?.as_ref().ok());
    for (one, other) in last_groups.clone().flat_map(|one| last_groups.clone().map(move |other| (one, other)))
    {
        assert!(one.is_subset(other) || other.is_subset(one), "{faults:?}: {ends:?}");
    }
    sometimes!(last_groups.clone().any(|group| group.len() < ranks), "ranks go on without others");
    sometimes!(ends.iter().any(|end| matches!(end, Some(Err(_)))), "a minority ends");
}

/// Catches ranks that wait for ever for others which are dead, cut off or done, two groups that go on side by side, and a majority that ends.
#[test]
fn a_mesh_of_four_goes_on_without_the_ranks_it_loses() {
    seeds(program, &Cabling::mesh(4, RATE), FEW);
}

/// Catches what the mesh shows, where two cables divide the ranks.
#[test]
fn a_ring_of_five_goes_on_without_the_ranks_it_loses() {
    seeds(program, &Cabling::ring(5, RATE), FEW);
}

/// Catches what the mesh shows, where each way has a way around.
#[test]
fn a_prism_of_six_goes_on_without_the_ranks_it_loses() {
    seeds(program, &Cabling::prism(3, RATE), FEW);
}

/// As above, with many more seeds: `cargo test --release -p rdma-tests --test collectives many_lives -- --ignored --test-threads 1`
mod many_lives {
    use super::*;

    const MANY: u64 = 3000;

    #[test]
    #[ignore = "takes minutes"]
    fn a_mesh_of_four() {
        seeds(program, &Cabling::mesh(4, RATE), MANY);
    }

    #[test]
    #[ignore = "takes minutes"]
    fn a_ring_of_five() {
        seeds(program, &Cabling::ring(5, RATE), MANY);
    }

    #[test]
    #[ignore = "takes minutes"]
    fn a_prism_of_six() {
        seeds(program, &Cabling::prism(3, RATE), MANY);
    }

    #[test]
    #[ignore = "takes minutes"]
    fn a_line_of_six() {
        seeds(program, &Cabling::line(6, RATE), MANY);
    }

    #[test]
    #[ignore = "takes minutes"]
    fn a_cube_of_eight() {
        seeds(program, &Cabling::hypercube(3, RATE), MANY);
    }
}
