//! Random faults at random times, for programs in which two ranks at a time send and receive

use std::sync::{Arc, Mutex};
use std::time::Duration;

use rdma_async::NodeOptions;
use rdma_collectives::{Cabling, Group, GroupError, Reduction};
use rdma_sim::{Net, SimDevice, sometimes};

use crate::cluster::{RATE, connect, joined, name};
use crate::drawn_faults::{Fault, inject_all, judge, seeds};
use crate::sending::content;

const TIMEOUT: Duration = Duration::from_millis(10);
/// By when all calls have come to an end: what is dropped on the way is sent again after 20 ms, 40 ms, and so on
const PATIENCE: Duration = Duration::from_millis(500);

/// A vector of so many elements from one rank to another; from a rank to itself, an operation of all ranks
#[derive(Clone, Copy, Debug)]
struct Step {
    from: usize,
    to: usize,
    len: usize,
}

impl Step {
    fn draw(net: &Net, ranks: usize) -> Self {
        let rank = || net.pick(ranks as u32) as usize;
        let [from, to] = [rank(), rank()];
        Self { from, to, len: [0, 1, 1000, 40_000][net.pick(4) as usize] }
    }

    /// The part of a rank in the step, which is the one of this number
    async fn carry_out(self, number: usize, group: &mut Group<SimDevice>) -> Result<(), GroupError> {
        let (rank, size, Self { from, to, len }) = (group.rank(), group.size(), self);
        if from == to {
            let mut vector = vec![rank as u64; len];
            group.all_reduce(&mut vector, Reduction::Max).await?;
            assert!(vector.iter().all(|element| *element == size as u64 - 1), "{number}: {self:?}");
        } else if rank == from {
            group.send(to, &content(number, len)).await?;
        } else if rank == to {
            let mut vector = vec![7; len];
            group.recv(from, &mut vector).await?;
            assert!(vector == content(number, len), "{number}: {self:?}");
        }
        Ok(())
    }
}

/// Each rank carries out its steps, in one order on all ranks, while faults come; those that live are done or name a rank that is gone
async fn program(net: &Net, cabling: &Cabling) {
    let ranks = cabling.hosts().len();
    let options = NodeOptions::new().max_peers(1).max_sessions(1).peer_timeout(TIMEOUT);
    let cluster = connect(net, cabling, &options).await;
    let groups = joined(&cluster, cabling).await;
    let steps: Arc<[_]> = (0..1 + net.pick(12)).map(|_| Step::draw(net, ranks)).collect();
    let faults = (0..net.pick(4)).map(|_| Fault::draw(net, cabling));
    // Cables come back: a call waits for one over which the other rank may be reached.
    let faults: Vec<_> = faults.filter(|fault| !matches!(fault, Fault::Unplug(_))).collect();
    let last = inject_all(net, cabling, &faults, 13);
    let ends = Arc::new(Mutex::new(vec![None; ranks]));
    for (rank, mut group) in groups.into_iter().enumerate() {
        let (task_net, steps, ends) = (net.clone(), Arc::clone(&steps), Arc::clone(&ends));
        // Part of the host: it dies with it.
        net.host(&name(rank)).spawn(async move {
            let work = async {
                for (number, step) in steps.iter().enumerate() {
                    step.carry_out(number, &mut group).await?;
                }
                // Others may still send over this rank.
                group.barrier().await
            };
            let result = work.await;
            let has_failed = result.is_err();
            ends.lock().unwrap()[rank] = Some((result, task_net.now()));
            if has_failed {
                // It says why as long as it has its group.
                std::future::pending::<()>().await;
            }
        });
    }
    net.sleep_until(last + PATIENCE).await;
    let ends = std::mem::take(&mut *ends.lock().unwrap());
    let has_failed = judge(cabling, &faults, &ends, last + PATIENCE, steps);
    sometimes!(has_failed, "survivors name a rank");
    sometimes!(!faults.is_empty() && !has_failed, "all calls complete in spite of a fault");
}

/// Catches a call that waits for ever for a dead rank or for messages that went over a cable, an element that is lost, repeated or of another call,
/// and an error that names a rank which lives and can be reached.
#[test]
fn pairs_of_a_prism_survive_faults_at_random_times() {
    seeds(program, &Cabling::prism(3, RATE), 16);
}

/// Regression: a call with a lost neighbour asked its link for the reason under the lock that the link takes, and kept its thread for ever.
/// Seed 124: a rank that had left before any cable was out was taken for a way to a lost one.
///
/// Catches what the prism shows, where one fault leaves a line, and two leave no way.
#[test]
fn pairs_of_a_ring_survive_faults_at_random_times() {
    seeds(program, &Cabling::ring(6, RATE), 128);
}

/// As above, with many more seeds: `cargo test --release -p rdma-tests --test collectives many_faults -- --ignored --test-threads 1`
mod many_faults {
    use super::*;

    const MANY: u64 = 1000;

    #[test]
    #[ignore = "takes minutes"]
    fn pairs_of_a_prism() {
        seeds(program, &Cabling::prism(3, RATE), MANY);
    }

    #[test]
    #[ignore = "takes minutes"]
    fn pairs_of_a_ring() {
        seeds(program, &Cabling::ring(6, RATE), MANY);
    }
}
