//! `tb5 topo discover`: the cables between Macs that were recorded

use anyhow::{Context as _, Result, ensure};
use rdma_doctor::report::{Bus, LinkSpeed, Peer};
use rdma_doctor::{Host, HostReport};
use rdma_sim::LineRate;
use rdma_sim::topology::Topology;

use super::convert::write;
use crate::args::TopoDiscover;
use crate::failure::{Failure, at};
use crate::file::require_other;
use crate::recorded;
use crate::report::{Output, note};

pub(crate) fn run(args: &TopoDiscover, output: Output) -> Result<()> {
    require_other(&args.written.out, &args.reports)?;
    let hosts = recorded::read_all(&args.reports)?;
    for (host, path) in hosts.iter().zip(&args.reports) {
        let has_ports = host.report.hardware_ports.as_ref().is_some_and(|ports| !ports.is_empty());
        ensure!(has_ports, at(path, "does not say which interface each Thunderbolt port has"));
    }
    let topology = topology(&hosts)?;
    left_out(&hosts).iter().for_each(|why| note(why));
    write(&topology, &args.written, output)
}

/// The Macs of some reports, and the cables that both ends name
fn topology(hosts: &[Host]) -> Result<Topology> {
    let mut topology = Topology::new();
    for host in hosts {
        let numbers: Vec<u16> = host
            .report
            .thunderbolt_interfaces()
            .filter_map(|interface| interface.strip_prefix("en")?.parse().ok())
            .collect();
        let first = numbers.iter().copied().min().context("a Mac has no Thunderbolt port")?;
        let last = numbers.into_iter().max().unwrap_or(first);
        topology.add_host_from(&host.label, usize::from(last - first) + 1, first).map_err(Failure::usage)?;
    }
    for (number, left) in hosts.iter().enumerate() {
        for right in &hosts[number + 1..] {
            for (here, there) in cables(&left.report, &right.report) {
                let rate = here.link_speed().filter(|speed| !speed.is_limit).map_or(LineRate::TB5, rate);
                let ends = [(left, here), (right, there)].map(|(host, bus)| {
                    host.report.interface_of(bus).map(|interface| format!("rdma_{interface}"))
                });
                let [Some(here), Some(there)] = ends else { continue };
                let ends = [(left.label.as_str(), here.as_str()), (right.label.as_str(), there.as_str())];
                topology.add_cable(ends[0], ends[1], rate)?;
            }
        }
    }
    Ok(topology)
}

/// The buses at both ends of each cable: each names the identifier of the other
fn cables<'a>(left: &'a HostReport, right: &'a HostReport) -> Vec<(&'a Bus, &'a Bus)> {
    let buses = |report: &'a HostReport| report.thunderbolt.as_deref().unwrap_or_default();
    let pairs = buses(left).iter().flat_map(|here| buses(right).iter().map(move |there| (here, there)));
    pairs.filter(|(here, there)| names(here, there) && names(there, here)).collect()
}

/// Whether a bus names another one as that of its peer
fn names(bus: &Bus, other: &Bus) -> bool {
    bus.hosts().any(|peer| is_bus_of(peer, other))
}

fn is_bus_of(peer: &Peer, bus: &Bus) -> bool {
    let ids = peer.domain_uuid.as_deref().zip(bus.domain_uuid.as_deref());
    ids.is_some_and(|(named, own)| named.eq_ignore_ascii_case(own))
}

/// Why the topology lacks cables that a report names, a line for each
fn left_out(hosts: &[Host]) -> Vec<String> {
    let buses = || hosts.iter().flat_map(|host| host.report.cabled_buses().map(move |bus| (host, bus)));
    let all =
        || hosts.iter().flat_map(|host| host.report.thunderbolt.iter().flatten().map(move |bus| (host, bus)));
    let mut reasons = Vec::new();
    for (host, bus) in buses() {
        let here = format!("{} of {}", bus.label(), host.label);
        for peer in bus.hosts() {
            let Some((other, remote)) = all().find(|(_, remote)| is_bus_of(peer, remote)) else {
                reasons.push(format!("{here} leads to {}, which is in no report", peer.name));
                continue;
            };
            let there = format!("{} of {}", remote.label(), other.label);
            if std::ptr::eq(host, other) {
                reasons.push(format!("{here} leads to {there}, which is the same Mac"));
            } else if !names(remote, bus) {
                reasons.push(format!(
                    "{here} leads to {there}, which does not name it: record both reports again, the cables may have been moved in between"
                ));
            } else if host.report.interface_of(bus).is_none() {
                reasons.push(format!("{here} leads to {there}, and its interface is not known"));
            }
        }
    }
    reasons
}

fn rate(speed: LinkSpeed) -> LineRate {
    LineRate { bits_per_second: u64::from(speed.gigabits) * 1_000_000_000 }
}
