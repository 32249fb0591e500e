//! The cabling of a topology

use std::path::Path;

use anyhow::{Context as _, Result, anyhow};
use rdma_collectives::{Cable, Cabling, HostCap, PlanError};
use rdma_sim::topology::Topology;
use rdma_sim::{LineRate, Timing};

use crate::failure::at;
use crate::report::plain;
use crate::{args, cabled_macs};

/// The topology that the arguments name
pub(super) fn read(args: &args::Topology) -> Result<Topology> {
    cabled_macs::read(&args.topology, args.hosts)
}

/// The cabling of the topology called `name`: what a cable carries is its payload in full frames, and its latency that of the simulator
///
/// Without caps, as the simulator does not slow Macs down.
pub(crate) fn cabling(name: &str, topology: &Topology) -> Result<Cabling> {
    let hosts = topology.hosts().iter().map(|host| host.name().to_owned()).collect::<Vec<_>>();
    let index = |name: &str| hosts.iter().position(|host| host == name).context("a cable ends at no host");
    let timing = Timing::default();
    let latency_ns = timing.doorbell_ns + timing.propagation_ns + timing.delivery_ns;
    let cables = topology.links().map(|link| {
        let [left, right] = link.ends;
        let cable = Cable::new(index(left.host)?, index(right.host)?, bytes_per_second(link.rate));
        Ok(cable.latency_ns(latency_ns))
    });
    let cabling = Cabling::new(hosts.iter().cloned(), cables.collect::<Result<Vec<_>>>()?);
    cabling.map_err(|error| cabled_macs::refused(name, &error))
}

/// As [`cabling`], with the caps of Macs, which are payload in full frames as well
pub(super) fn capped(name: &str, topology: &Topology) -> Result<Cabling> {
    let caps = topology.hosts().iter().enumerate().filter_map(|(host, mac)| Some((host, mac.cap()?)));
    let capped = caps.into_iter().try_fold(cabling(name, topology)?, |cabling, (host, cap)| {
        cabling.with_cap(host, HostCap::new(bytes_per_second(cap)))
    });
    capped.map_err(|error| cabled_macs::refused(name, &error))
}

/// The payload that a cable carries in full frames
pub(super) fn bytes_per_second(rate: LineRate) -> u64 {
    rate.ceiling_bytes_per_second() as u64
}

/// Why there is no plan for the cabling of the topology called `topology`: the groups of hosts that no cables join, or another reason of the planner
pub(crate) fn unplanned(topology: &str, error: &PlanError, cabling: &Cabling) -> anyhow::Error {
    let parts = cabling.components();
    if parts.len() == 1 {
        return anyhow!(at(Path::new(topology), error));
    }
    let name = |part: &Vec<usize>| {
        part.iter().map(|host| cabling.hosts()[*host].as_str()).collect::<Vec<_>>().join(", ")
    };
    let parts = parts.iter().map(name).collect::<Vec<_>>().join(" | ");
    anyhow!(at(Path::new(topology), format_args!("no cables join these groups of hosts: {parts}")))
}

/// A cable by the ports at its ends
pub(super) fn cable([left, right]: [[&str; 2]; 2]) -> String {
    plain(&format!("{} – {}", left.join(":"), right.join(":")))
}
