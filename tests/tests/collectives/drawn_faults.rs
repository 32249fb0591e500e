//! Faults that are drawn, and how programs of ranks may end under them

use std::collections::BTreeSet;
use std::fmt::Debug;
use std::time::Duration;

use rdma_async::Time;
use rdma_collectives::{Cabling, GroupError};
use rdma_sim::{Check, Net};

use crate::cluster::{LATENCY_NS, macs, name};
use crate::outages::{inject, port};

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
    fn inject(self, net: &Net, cabling: &Cabling, after: Duration) -> Time {
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

/// Schedules the faults, each after a time of less than 2^`magnitudes` / 2 µs, of which short ones are as likely; returns when the last one ends
pub(crate) fn inject_all(net: &Net, cabling: &Cabling, faults: &[Fault], magnitudes: u32) -> Time {
    let inject = |last: Time, fault: &Fault| {
        let magnitude = net.pick(magnitudes);
        let after = Duration::from_micros(net.pick(1 << magnitude).into());
        last.max(fault.inject(net, cabling, after))
    };
    faults.iter().fold(net.now(), inject)
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

/// Runs `program` on the Macs of a cabling, under so many seeds
pub(crate) fn seeds(program: impl AsyncFn(&Net, &Cabling) + Sync, cabling: &Cabling, runs: u64) {
    let cabling = cabling.with_latency(LATENCY_NS);
    let check = Check::new().topology(macs(&cabling)).runs(runs).time_limit(Time::from_nanos(1_000_000_000));
    rdma_sim::check(check, async |net| program(&net, &cabling).await);
}
