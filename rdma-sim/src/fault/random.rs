//! Faults that [`Choices`] pick

use std::time::Duration;

use rdma_core::Time;

use super::kind::FaultKind;
use super::plan::{Fault, FaultPlan, Target, Trigger};
use crate::choices::Choices;
use crate::topology::Topology;

/// The most faults that are drawn for one plan: more would take the memory of the machine
const MOST: u32 = 10_000;

impl FaultPlan {
    /// Up to `count` faults that begin in the first `horizon` of a simulation, at hosts and cabled ports of `topology`
    ///
    /// Only faults that a connection is expected to notice or to survive: `corrupt`, `flap`, `idle-death`, `lose`, and with the fault
    /// that ends each, up to a quarter of `horizon` later, `delay`, `kill`, `pause`, `sleep`, `slow`, `unplug` and `unresolvable`. Also
    /// `leak-pds`, which only a reboot repairs. A plan therefore has up to twice `count` entries. A `count` above 10,000 is as 10,000.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use rdma_sim::{FaultPlan, Seeded, Topology};
    ///
    /// let topology = Topology::pair();
    /// let plan = |seed| FaultPlan::random(&mut Seeded::new(seed), &topology, 5, Duration::from_millis(10));
    /// assert_eq!(plan(7), plan(7));
    /// assert_eq!(plan(7).check(&topology), Ok(()));
    /// ```
    pub fn random(choices: &mut dyn Choices, topology: &Topology, count: u32, horizon: Duration) -> Self {
        let ports = Self::ports(topology);
        if ports.is_empty() {
            return Self::none();
        }
        let count = choices.pick(count.min(MOST) + 1);
        let faults = (0..count).flat_map(|_| random_fault(choices, &ports, horizon).into_iter().flatten());
        Self::sorted(faults.collect())
    }

    /// The ports with a cable, as names of hosts and devices
    pub(super) fn ports(topology: &Topology) -> Vec<(String, String)> {
        let ends = topology.links().flat_map(|link| link.ends);
        ends.map(|end| (end.host.to_owned(), end.device.to_owned())).collect()
    }

    pub(super) fn sorted(mut faults: Vec<Fault>) -> Self {
        faults.sort_by_key(|fault| match fault.trigger {
            Trigger::At(time) => time,
            Trigger::AfterFrames(_) => Time::ZERO,
        });
        Self(faults)
    }
}

/// A fault, and the fault that ends its effect if nothing else does
pub(super) fn random_fault(
    choices: &mut dyn Choices,
    ports: &[(String, String)],
    horizon: Duration,
) -> [Option<Fault>; 2] {
    let micros = u32::try_from(horizon.as_micros()).unwrap_or(u32::MAX);
    let (host, device) = &ports[choices.pick(ports.len() as u32) as usize];
    let start = Time::ZERO + Duration::from_micros(choices.pick(micros).into());
    let lasting = Duration::from_micros(u64::from(choices.pick(micros / 4 + 1)) + 1);
    let kind = choices.pick(12);
    let amount = choices.pick(8) + 1;
    let trigger = if choices.pick(4) == 3 { Trigger::AfterFrames(amount.into()) } else { Trigger::At(start) };
    let end = start + lasting;
    let once = |kind| {
        let target = Target::Port { host: host.clone(), device: device.clone() };
        [Some(Fault { trigger, target, kind }), None]
    };
    let port = |kind, until| {
        [(start, kind), (end, until)].map(|(time, kind)| Some(Fault::at_port(time, host, device, kind)))
    };
    let processes = |kind, until| {
        [(start, kind), (end, until)].map(|(time, kind)| Some(Fault::at_host(time, host, kind)))
    };
    match kind {
        0 => once(FaultKind::Flap { down: lasting }),
        1 => port(FaultKind::Unplug, FaultKind::Replug),
        2 => once(FaultKind::Lose { frames: amount }),
        3 => once(FaultKind::Corrupt { frames: amount }),
        4 => port(FaultKind::Slow { percent: amount * 10 }, FaultKind::Slow { percent: 100 }),
        5 => port(FaultKind::Delay { by: lasting / 16 }, FaultKind::Delay { by: Duration::ZERO }),
        6 => processes(FaultKind::Pause, FaultKind::Resume),
        7 => processes(FaultKind::Kill, FaultKind::Restart),
        8 => once(FaultKind::IdleDeath),
        9 => processes(FaultKind::Sleep, FaultKind::Wake),
        10 => [Some(Fault::at_port(start, host, device, FaultKind::LeakPds { count: amount })), None],
        _ => port(FaultKind::Unresolvable, FaultKind::Resolvable),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Seeded;

    /// Regression: the largest count overflowed, and the next ones took the memory of the machine.
    #[test]
    fn however_many_faults_are_asked_for_a_plan_is_made() {
        let plan = |seed, count| {
            let horizon = Duration::from_secs(1);
            FaultPlan::random(&mut Seeded::new(seed), &Topology::pair(), count, horizon)
        };
        for seed in 0..5 {
            assert_eq!(plan(seed, u32::MAX), plan(seed, 10_000));
            assert!(plan(seed, u32::MAX).0.len() <= 20_000);
        }
    }
}
