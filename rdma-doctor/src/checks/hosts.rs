//! Several hosts compared

use std::collections::BTreeMap;
use std::net::IpAddr;

use super::check::{Host, Note};
use crate::report::{Bus, HostReport, Interface, Neighbour};

/// F3: ports of hosts with different versions or builds of macOS were reported not to discover each other
pub(super) fn same_macos(hosts: &[Host]) -> Vec<Note> {
    let macs: Vec<_> = hosts.iter().filter(|host| host.report.is_mac()).collect();
    let [first, others @ ..] = &macs[..] else { return Vec::new() };
    if others.is_empty() {
        return Vec::new();
    }
    if macs.iter().any(|host| host.report.macos_version.is_none()) {
        return vec![Note::unknown("the version of a host is not known")];
    }
    let version = |report: &HostReport| (report.macos_version.clone(), report.macos_build.clone());
    if others.iter().all(|other| version(&other.report) == version(&first.report)) {
        let version = first.report.macos_version.as_deref().unwrap_or_default();
        return vec![Note::ok(format!("all run macOS {version}"))];
    }
    let text = |host: &&Host| {
        let report = &host.report;
        let build = report.macos_build.as_deref().unwrap_or("no build");
        format!("{}: {} ({build})", host.label, report.macos_version.as_deref().unwrap_or_default())
    };
    let evidence: Vec<_> = macs.iter().map(text).collect();
    vec![Note::warn(evidence.join(", "), "install the same version and build on all hosts")]
}

/// A cable with both ends in the reports
struct Cable<'a> {
    ends: [(usize, &'a Bus); 2],
}

/// The host, by its index, and the bus of each domain
fn domains(hosts: &[Host]) -> BTreeMap<String, (usize, &Bus)> {
    let buses = hosts
        .iter()
        .enumerate()
        .flat_map(|(index, host)| host.report.thunderbolt.iter().flatten().map(move |bus| (index, bus)));
    buses.filter_map(|(index, bus)| Some((key(bus.domain_uuid.as_deref()?), (index, bus)))).collect()
}

fn key(domain: &str) -> String {
    domain.to_ascii_lowercase()
}

/// Whether a bus names this domain as its peer
fn names_peer(bus: &Bus, domain: &str) -> bool {
    bus.hosts().any(|peer| peer.domain_uuid.as_deref().is_some_and(|other| key(other) == domain))
}

/// Cables whose ends name each other, each once
fn cables(hosts: &[Host]) -> Vec<Cable<'_>> {
    let domains = domains(hosts);
    let mut cables = Vec::new();
    for (domain, &(here, bus)) in &domains {
        for peer in bus.hosts() {
            let other = peer.domain_uuid.as_deref().map(key).unwrap_or_default();
            if let Some(&(there, remote)) = domains.get(&other)
                && *domain < other
                && names_peer(remote, domain)
            {
                cables.push(Cable { ends: [(here, bus), (there, remote)] });
            }
        }
    }
    cables
}

fn end(hosts: &[Host], (index, bus): (usize, &Bus)) -> String {
    let host = &hosts[index];
    match host.report.device_of(bus) {
        Some(device) => format!("{} {} ({})", host.label, bus.label(), device.name),
        None => format!("{} {}", host.label, bus.label()),
    }
}

/// F4, F20, F73, F77: the receptacles that a cable connects, as both ends see it, matched by the UUIDs of the domains
pub(super) fn cable_ends(hosts: &[Host]) -> Vec<Note> {
    let domains = domains(hosts);
    let mut notes = Vec::new();
    for (here, host) in hosts.iter().enumerate() {
        for bus in host.report.cabled_buses() {
            let Some(own) = bus.domain_uuid.as_deref().map(key) else {
                notes.push(
                    Note::unknown("the UUID of its own domain is not known").on(end(hosts, (here, bus))),
                );
                continue;
            };
            for peer in bus.hosts() {
                let other = peer.domain_uuid.as_deref().map(key).unwrap_or_default();
                let note = match domains.get(&other) {
                    None => {
                        Note::unknown(format!("{}, whose report was not given", peer.name)).advise(RECORD)
                    }
                    Some(&(there, remote)) if names_peer(remote, &own) => {
                        // Both ends see the same cable: it is reported once.
                        if own > other {
                            continue;
                        }
                        Note::ok(end(hosts, (there, remote)))
                    }
                    Some(&remote) => Note::fail(
                        format!("names {}, which does not name it", end(hosts, remote)),
                        "record both reports again: the cables were moved in between, or one end lost the link",
                    ),
                };
                notes.push(note.on(end(hosts, (here, bus))));
            }
        }
    }
    notes
}

const RECORD: &str = "record a report there with `tb5 doctor --record` and give both with `--from`";

/// F20, F77: with two crossed cables between the same hosts, pairing devices by number connects the wrong ends
pub(super) fn parallel_cables(hosts: &[Host]) -> Vec<Note> {
    let mut pairs: BTreeMap<(usize, usize), Vec<(u32, u32)>> = BTreeMap::new();
    for Cable { ends: [(a, local), (b, remote)] } in cables(hosts) {
        if let (Some(local), Some(remote)) = (local.receptacle, remote.receptacle) {
            let (pair, ports) = if a <= b { ((a, b), (local, remote)) } else { ((b, a), (remote, local)) };
            pairs.entry(pair).or_default().push(ports);
        }
    }
    let mut notes = Vec::new();
    for ((a, b), mut ports) in pairs {
        if ports.len() < 2 {
            continue;
        }
        ports.sort_unstable();
        let text: Vec<_> = ports.iter().map(|(local, remote)| format!("{local}–{remote}")).collect();
        let evidence = format!("receptacles {}", text.join(", "));
        let note = if ports.is_sorted_by_key(|&(_, remote)| remote) {
            Note::ok(evidence)
        } else {
            Note::warn(
                format!("{evidence}: crossed"),
                "pair cables by the UUIDs of their domains, or swap two plugs so that both ends are in the same order",
            )
        };
        notes.push(note.on(format!("{} and {}", hosts[a].label, hosts[b].label)));
    }
    notes
}

/// An end of a cable with its interface, if that is known
fn interface<'a>(hosts: &'a [Host], (index, bus): (usize, &Bus)) -> Option<&'a Interface> {
    let report = &hosts[index].report;
    report.interface(report.interface_of(bus)?)
}

/// F14: ends of a cable without a common network cannot resolve each other (error number 60)
pub(super) fn common_network(hosts: &[Host]) -> Vec<Note> {
    let mut notes = Vec::new();
    for Cable { ends: [left, right] } in cables(hosts) {
        let (Some(a), Some(b)) = (interface(hosts, left), interface(hosts, right)) else { continue };
        if a.ipv4.is_empty() || b.ipv4.is_empty() {
            continue;
        }
        let list = |interface: &Interface| {
            let addresses = interface.ipv4.iter().map(|net| format!("{}/{}", net.address, net.prefix_len));
            addresses.collect::<Vec<_>>().join(", ")
        };
        let evidence = format!("{} here and {} on {}", list(a), list(b), end(hosts, right));
        let pairs = || a.ipv4.iter().flat_map(|x| b.ipv4.iter().map(move |y| (x, y)));
        let note = if pairs().any(|(x, y)| x.address == y.address) {
            Note::fail(
                format!("{evidence}: the same address"),
                "give each end of the cable an address of its own",
            )
        } else if pairs().any(|(x, y)| x.overlaps(y)) {
            Note::ok(evidence)
        } else {
            Note::fail(
                format!("{evidence}: no common network"),
                "give both ends of the cable addresses of one network, such as a /30",
            )
        };
        notes.push(note.on(end(hosts, left)));
    }
    notes
}

/// F14: an entry of the ARP table that names another hardware address than that of the other end is stale
pub(super) fn neighbour_identity(hosts: &[Host]) -> Vec<Note> {
    let mut notes = Vec::new();
    for Cable { ends: [left, right] } in cables(hosts) {
        for (here, there) in [(left, right), (right, left)] {
            let (Some(own), Some(other)) = (interface(hosts, here), interface(hosts, there)) else {
                continue;
            };
            let Some(expected) = other.ether.as_deref() else { continue };
            let has_address =
                |entry: &&Neighbour| other.ipv4.iter().any(|net| IpAddr::V4(net.address) == entry.address);
            let entries = hosts[here.0].report.ipv4_neighbours_on(&own.name).filter(has_address);
            for (address, found) in entries.filter_map(|entry| Some((entry.address, entry.ether.as_deref()?)))
            {
                let note = if found == expected {
                    Note::ok(format!("{address} is at {found}, which is {}", end(hosts, there)))
                } else {
                    Note::fail(
                        format!("{address} is at {found}, and {} has {expected}", end(hosts, there)),
                        "clear the entry with `sudo arp -d ADDRESS` and ping the address again",
                    )
                };
                notes.push(note.on(end(hosts, here)));
            }
        }
    }
    notes
}

/// F13: in a ring of bridges every broadcast circulates for ever
pub(super) fn bridged_ring(hosts: &[Host]) -> Vec<Note> {
    let is_bridged = |&(index, bus): &(usize, &Bus)| {
        let report = &hosts[index].report;
        let bridge = report.interface_of(bus).and_then(|interface| report.bridge_of(interface));
        bridge.is_some_and(|bridge| bridge.is_up())
    };
    let bridged: Vec<_> =
        cables(hosts).into_iter().filter(|cable| cable.ends.iter().all(is_bridged)).collect();
    if bridged.is_empty() {
        return Vec::new();
    }
    // A cable between two hosts that are already connected closes a ring.
    let mut group: Vec<usize> = (0..hosts.len()).collect();
    for cable in &bridged {
        let [(a, _), (b, _)] = cable.ends;
        let (from, to) = (group[a], group[b]);
        if from == to {
            let evidence = format!(
                "{} and {} close a ring of bridges",
                end(hosts, cable.ends[0]),
                end(hosts, cable.ends[1])
            );
            return vec![Note::fail(evidence, "make the Thunderbolt Bridge inactive on all hosts")];
        }
        for member in &mut group {
            if *member == from {
                *member = to;
            }
        }
    }
    vec![Note::ok(format!("bridged cables: {}, no ring", bridged.len()))]
}
