//! Random faults at random times, for groups that are too large for a fault at each frame

use std::collections::BTreeSet;
use std::fmt::Debug;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::future::join;
use rdma_async::{NodeOptions, Time};
use rdma_collectives::{Cabling, Group, GroupError, GroupOptions};
use rdma_sim::{Check, Net, SimDevice, sometimes};

use crate::cluster::{LATENCY_NS, RATE, connect, joined, macs, name, on_all};
use crate::each_frame::work;
use crate::outages::{inject, port};

const TIMEOUT: Duration = Duration::from_millis(10);
/// How long after the last fault all survivors may need to learn which rank is gone: two timeouts, and the way of the error
const BOUND: Duration = Duration::from_millis(25);
/// By when all operations are done that come to an end: random orders of tasks delay them
const PATIENCE: Duration = Duration::from_millis(150);
/// How many seeds of each cabling are tried in the gate
const FEW: u64 = 16;

/// A fault, and what of it lasts
#[derive(Clone, Copy, Debug)]
pub(crate) enum Fault {
    /// The cable of this number is out and comes back
    Flap(usize, Duration),
    Kill(usize),
    Pause(usize, Duration),
    /// The cable of this number stays out
    Unplug(usize),
}

impl Fault {
    pub(crate) fn draw(net: &Net, cabling: &Cabling) -> Self {
        let cable = net.pick(cabling.cables().len() as u32) as usize;
        let host = net.pick(cabling.hosts().len() as u32) as usize;
        // Shorter than the timeout.
        let pause = Duration::from_micros(u64::from(50 + net.pick(5_000)));
        match net.pick(4) {
            0 => Self::Unplug(cable),
            1 => Self::Flap(cable, pause),
            2 => Self::Pause(host, pause),
            _ => Self::Kill(host),
        }
    }

    /// Schedules the fault after a time; returns when it ends, or when it begins if it is permanent
    pub(crate) fn inject(self, net: &Net, cabling: &Cabling, after: Duration) -> Time {
        let end = |cable: usize| port(net, cabling.cables()[cable].ends);
        let start = net.now() + after;
        match self {
            Self::Unplug(cable) => inject(net, after, &end(cable), "unplug"),
            Self::Kill(host) => inject(net, after, &name(host), "kill"),
            Self::Flap(cable, pause) => {
                inject(net, after, &end(cable), "unplug");
                inject(net, after + pause, &end(cable), "replug");
                return start + pause;
            }
            Self::Pause(host, pause) => {
                inject(net, after, &name(host), "pause");
                inject(net, after + pause, &name(host), "resume");
                return start + pause;
            }
        }
        start
    }
}

/// How the program of a rank has ended, and when
pub(crate) type End = Option<(Result<(), GroupError>, Time)>;

/// Panics unless each rank that lives is done, or names a rank that is gone, not after `by`, or waits for the cable to one that lives; returns
/// whether one names a rank
pub(crate) fn judge(
    cabling: &Cabling,
    faults: &[Fault],
    ends: &[End],
    by: Time,
    program: impl Debug,
) -> bool {
    let (rest, killed) = left(cabling, faults);
    let parts = rest.components();
    let survivors = || (0..ends.len()).filter(|rank| !killed.contains(rank));
    let is_divided = parts.iter().filter(|part| !part.iter().all(|rank| killed.contains(rank))).count() > 1;
    for rank in survivors() {
        let part = parts.iter().find(|part| part.contains(&rank)).expect("each rank is in a part");
        let is_right = match &ends[rank] {
            Some((Ok(()), _)) => true,
            // It is dead, or no cables lead to it any more.
            Some((Err(GroupError::Lost { rank, .. }), at)) => !part.contains(rank) && *at <= by,
            Some((Err(_), _)) => false,
            None => is_divided,
        };
        assert!(is_right, "rank {rank}, {program:?}, {faults:?}, by {by:?}: {ends:?}");
    }
    survivors().any(|rank| matches!(ends[rank], Some((Err(_), _))))
}

/// The cabling without what faults took for good, and the killed ranks
pub(crate) fn left(cabling: &Cabling, faults: &[Fault]) -> (Cabling, BTreeSet<usize>) {
    let killed: BTreeSet<_> = faults
        .iter()
        .filter_map(|fault| if let Fault::Kill(host) = fault { Some(*host) } else { None })
        .collect();
    let out: BTreeSet<_> = faults
        .iter()
        .filter_map(|fault| if let Fault::Unplug(cable) = fault { Some(*cable) } else { None })
        .collect();
    let cables = cabling.cables().iter().enumerate().filter(|(number, cable)| {
        !out.contains(number) && !cable.ends.iter().any(|end| killed.contains(end))
    });
    let cables: Vec<_> = cables.map(|(_, cable)| *cable).collect();
    (Cabling::new(cabling.hosts().iter().cloned(), cables).expect("fewer cables"), killed)
}

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
    let mut last = net.now();
    for fault in &faults {
        let magnitude = net.pick(13);
        let after = Duration::from_micros(net.pick(1 << magnitude).into());
        last = last.max(fault.inject(net, cabling, after));
    }
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
    sometimes!(has_failed && has_beside, "survivors name a rank in two groups");
    sometimes!(!faults.is_empty() && !has_failed, "all operations complete in spite of a fault");
}

fn seeds(cabling: &Cabling, runs: u64) {
    let cabling = cabling.with_latency(LATENCY_NS);
    let check = Check::new().topology(macs(&cabling)).runs(runs).time_limit(Time::from_nanos(1_000_000_000));
    rdma_sim::check(check, async |net| program(&net, &cabling).await);
}

/// Catches a rank that waits for ever for a dead one or for blocks that went over a cable, a wrong result after blocks changed their way, and an
/// error that names a rank which lives and can be reached.
#[test]
fn a_prism_of_six_survives_faults_at_random_times() {
    seeds(&Cabling::prism(3, RATE), FEW);
}

/// Catches what the prism shows, where neighbours have no neighbour in common: each way around has three cables.
#[test]
fn two_threes_of_six_survive_faults_at_random_times() {
    seeds(&Cabling::bipartite(3, 3, RATE), FEW);
}

/// Catches what the prism shows, over longer ways.
#[test]
fn a_cube_of_eight_survives_faults_at_random_times() {
    seeds(&Cabling::hypercube(3, RATE), FEW);
}

/// Catches what the prism shows, and ranks that wait for ever for others, or forget which are gone, where two faults leave no way.
#[test]
fn a_ring_of_eight_survives_faults_at_random_times() {
    seeds(&Cabling::ring(8, RATE), FEW);
}

/// Catches what the prism shows, with many ranks between which only one way is short.
#[test]
fn a_petersen_graph_of_ten_survives_faults_at_random_times() {
    seeds(&Cabling::petersen(RATE), FEW);
}

/// As above, with many more seeds: `cargo test --release -p rdma-tests --test collectives many_faults -- --ignored --test-threads 1`
mod many_faults {
    use super::*;

    const MANY: u64 = 1000;

    #[test]
    #[ignore = "takes minutes"]
    fn a_prism_of_six() {
        seeds(&Cabling::prism(3, RATE), MANY);
    }

    #[test]
    #[ignore = "takes minutes"]
    fn two_threes_of_six() {
        seeds(&Cabling::bipartite(3, 3, RATE), MANY);
    }

    #[test]
    #[ignore = "takes minutes"]
    fn a_cube_of_eight() {
        seeds(&Cabling::hypercube(3, RATE), MANY);
    }

    #[test]
    #[ignore = "takes minutes"]
    fn a_ring_of_eight() {
        seeds(&Cabling::ring(8, RATE), MANY);
    }

    #[test]
    #[ignore = "takes minutes"]
    fn a_petersen_graph_of_ten() {
        seeds(&Cabling::petersen(RATE), MANY);
    }
}
