use std::time::Duration;

use rdma_core::Time;

use super::{Fault, FaultPlan, Place, What, When};
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
        plan.sort_by_key(|fault| match fault.when {
            When::At(time) => time,
            When::AfterFrames(_) => Time::ZERO,
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
    let when = if choices.pick(4) == 3 { When::AfterFrames(amount.into()) } else { When::At(start) };
    let at_port = |when, what| {
        let place = Place::Port { host: host.clone(), device: device.clone() };
        Some(Fault { when, place, what })
    };
    let at_host = |time, what| Some(Fault::at_host(time, host, what));
    let end = start + lasting;
    match kind {
        0 => [at_port(when, What::Flap { down: lasting }), None],
        1 => [at_port(When::At(start), What::Unplug), at_port(When::At(end), What::Replug)],
        2 => [at_port(when, What::Lose { frames: amount }), None],
        3 => [at_port(when, What::Corrupt { frames: amount }), None],
        4 => [
            at_port(When::At(start), What::Slow { percent: amount * 10 }),
            at_port(When::At(end), What::Slow { percent: 100 }),
        ],
        5 => [
            at_port(When::At(start), What::Delay { by: lasting / 16 }),
            at_port(When::At(end), What::Delay { by: Duration::ZERO }),
        ],
        6 => [at_host(start, What::Pause), at_host(end, What::Resume)],
        7 => [at_host(start, What::Kill), at_host(end, What::Restart)],
        8 => [at_port(when, What::IdleDeath), None],
        9 => [at_host(start, What::Sleep), at_host(end, What::Wake)],
        10 => [at_port(When::At(start), What::LeakPds { count: amount }), None],
        _ => [at_port(When::At(start), What::Unresolvable), at_port(When::At(end), What::Resolvable)],
    }
}
