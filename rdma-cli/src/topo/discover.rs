//! `tb5 topo discover`: the cables between Macs that were recorded

use anyhow::{Context as _, Result, ensure};
use rdma_doctor::report::{Bus, LinkSpeed};
use rdma_doctor::{Host, HostReport};
use rdma_sim::LineRate;
use rdma_sim::topology::Topology;

use super::convert::write;
use crate::args::TopoDiscover;
use crate::failure::{Failure, at};
use crate::file::require_other;
use crate::recorded;
use crate::report::Output;

pub(crate) fn run(args: &TopoDiscover, output: Output) -> Result<()> {
    require_other(&args.written.out, &args.reports)?;
    let mut hosts = args.reports.iter().map(|path| recorded::read(path)).collect::<Result<Vec<_>>>()?;
    for (host, path) in hosts.iter().zip(&args.reports) {
        let has_ports = host.report.hardware_ports.as_ref().is_some_and(|ports| !ports.is_empty());
        ensure!(has_ports, at(path, "does not say which interface each Thunderbolt port has"));
    }
    recorded::shorten(&mut hosts);
    write(&topology(&hosts)?, &args.written, output)
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
    let names = |bus: &Bus, other: &Bus| {
        let other = other.domain_uuid.as_deref();
        bus.hosts().any(|peer| {
            let found = peer.domain_uuid.as_deref().zip(other);
            found.is_some_and(|(found, other)| found.eq_ignore_ascii_case(other))
        })
    };
    let pairs = buses(left).iter().flat_map(|here| buses(right).iter().map(move |there| (here, there)));
    pairs.filter(|(here, there)| names(here, there) && names(there, here)).collect()
}

fn rate(speed: LinkSpeed) -> LineRate {
    LineRate { bits_per_second: u64::from(speed.gigabits) * 1_000_000_000 }
}
