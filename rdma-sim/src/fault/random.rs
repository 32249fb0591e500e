use std::time::Duration;

use rdma_core::Time;

use super::{Fault, FaultKind, FaultPlan, Target, Trigger};
use crate::{Choices, Topology};

impl FaultPlan {
    /// Up to `count` faults in the first `horizon` of a simulation, at hosts and cabled ports of `topology`
    ///
    /// Those that a connection is expected to notice or to survive: cables that are pulled and plugged in, lost and damaged
    /// frames, slow and late hardware, processes that stop, die and start.
    pub fn random(choices: &mut dyn Choices, topology: &Topology, count: u32, horizon: Duration) -> Self {
        let ports = Self::ports(topology);
        if ports.is_empty() {
            return Self::none();
        }
        let count = choices.pick(count + 1);
        let mut plan: Vec<_> =
            (0..count).flat_map(|_| random_fault(choices, &ports, horizon).into_iter().flatten()).collect();
        Self::sort(&mut plan);
        Self(plan)
    }

    /// The ports with a cable, as names of hosts and devices
    pub(super) fn ports(topology: &Topology) -> Vec<(String, String)> {
        let ends = topology.links().flat_map(|link| link.ends);
        ends.map(|end| (end.host.to_owned(), end.device.to_owned())).collect()
    }

    pub(super) fn sort(plan: &mut [Fault]) {
        plan.sort_by_key(|fault| match fault.trigger {
            Trigger::At(time) => time,
            Trigger::AfterFrames(_) => Time::ZERO,
        });
    }
}

/// A fault, and what puts it right again where nothing else would
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
    let at_port = |trigger, kind| {
        let target = Target::Port { host: host.clone(), device: device.clone() };
        Some(Fault { trigger, target, kind })
    };
    let at_host = |time, kind| Some(Fault::at_host(time, host, kind));
    let end = start + lasting;
    match kind {
        0 => [at_port(trigger, FaultKind::Flap { down: lasting }), None],
        1 => [at_port(Trigger::At(start), FaultKind::Unplug), at_port(Trigger::At(end), FaultKind::Replug)],
        2 => [at_port(trigger, FaultKind::Lose { frames: amount }), None],
        3 => [at_port(trigger, FaultKind::Corrupt { frames: amount }), None],
        4 => [
            at_port(Trigger::At(start), FaultKind::Slow { percent: amount * 10 }),
            at_port(Trigger::At(end), FaultKind::Slow { percent: 100 }),
        ],
        5 => [
            at_port(Trigger::At(start), FaultKind::Delay { by: lasting / 16 }),
            at_port(Trigger::At(end), FaultKind::Delay { by: Duration::ZERO }),
        ],
        6 => [at_host(start, FaultKind::Pause), at_host(end, FaultKind::Resume)],
        7 => [at_host(start, FaultKind::Kill), at_host(end, FaultKind::Restart)],
        8 => [at_port(trigger, FaultKind::IdleDeath), None],
        9 => [at_host(start, FaultKind::Sleep), at_host(end, FaultKind::Wake)],
        10 => [at_port(Trigger::At(start), FaultKind::LeakPds { count: amount }), None],
        _ => [
            at_port(Trigger::At(start), FaultKind::Unresolvable),
            at_port(Trigger::At(end), FaultKind::Resolvable),
        ],
    }
}
