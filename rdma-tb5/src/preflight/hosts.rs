use std::collections::BTreeMap;

use super::Host;
use super::check::Note;
use crate::discover::{Bus, HostReport};

/// F3: with different versions or builds ports were seen not to discover each other
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

/// A cable of which both ends are known
struct Cable<'a> {
    ends: [(usize, &'a Bus); 2],
}

/// Where a domain is: the host, by its place, and the bus
fn domains(hosts: &[Host]) -> BTreeMap<String, (usize, &Bus)> {
    let buses = hosts
        .iter()
        .enumerate()
        .flat_map(|(place, host)| host.report.thunderbolt.iter().flatten().map(move |bus| (place, bus)));
    buses.filter_map(|(place, bus)| Some((key(bus.domain_uuid.as_deref()?), (place, bus)))).collect()
}

fn key(domain: &str) -> String {
    domain.to_ascii_lowercase()
}

/// Whether a bus has the host of this domain at its other end
fn names(bus: &Bus, domain: &str) -> bool {
    bus.hosts().any(|peer| peer.domain_uuid.as_deref().is_some_and(|other| key(other) == domain))
}

/// Cables whose ends name each other, each once
fn cables(hosts: &[Host]) -> Vec<Cable<'_>> {
    let domains = domains(hosts);
    let mut cables = Vec::new();
    for (domain, &(here, bus)) in &domains {
        for peer in bus.hosts() {
            let other = peer.domain_uuid.as_deref().map(key).unwrap_or_default();
            if let Some(&(there, far)) = domains.get(&other)
                && *domain < other
                && names(far, domain)
            {
                cables.push(Cable { ends: [(here, bus), (there, far)] });
            }
        }
    }
    cables
}

fn end(hosts: &[Host], (place, bus): (usize, &Bus)) -> String {
    let host = &hosts[place];
    match host.report.device_of(bus) {
        Some(device) => format!("{} {} ({})", host.label, bus.label(), device.name),
        None => format!("{} {}", host.label, bus.label()),
    }
}

/// F4, F20, F73, F77: which receptacle is connected to which, from both ends, by the identity of the domains
pub(super) fn cable_ends(hosts: &[Host]) -> Vec<Note> {
    let domains = domains(hosts);
    let mut notes = Vec::new();
    for (here, host) in hosts.iter().enumerate() {
        for bus in host.report.cabled() {
            let Some(own) = bus.domain_uuid.as_deref().map(key) else {
                notes.push(Note::unknown("its own domain is not known").on(end(hosts, (here, bus))));
                continue;
            };
            for peer in bus.hosts() {
                let other = peer.domain_uuid.as_deref().map(key).unwrap_or_default();
                let note = match domains.get(&other) {
                    None => Note::unknown(format!("{}, whose report is not here", peer.name)).advise(RECORD),
                    Some(&(there, far)) if names(far, &own) => {
                        // Both ends see the same cable: it is told once.
                        if own > other {
                            continue;
                        }
                        Note::ok(end(hosts, (there, far)))
                    }
                    Some(&far) => Note::fail(
                        format!("names {}, which does not name it", end(hosts, far)),
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

/// F20, F77: with two cables between the same hosts, who pairs them by number connects the wrong ends
pub(super) fn parallel_cables(hosts: &[Host]) -> Vec<Note> {
    let mut pairs: BTreeMap<(usize, usize), Vec<(u32, u32)>> = BTreeMap::new();
    for Cable { ends: [(a, near), (b, far)] } in cables(hosts) {
        if let (Some(near), Some(far)) = (near.receptacle, far.receptacle) {
            let (pair, ports) = if a <= b { ((a, b), (near, far)) } else { ((b, a), (far, near)) };
            pairs.entry(pair).or_default().push(ports);
        }
    }
    let mut notes = Vec::new();
    for ((a, b), mut ports) in pairs {
        if ports.len() < 2 {
            continue;
        }
        ports.sort_unstable();
        let text: Vec<_> = ports.iter().map(|(near, far)| format!("{near}–{far}")).collect();
        let evidence = format!("receptacles {}", text.join(", "));
        let note = if ports.is_sorted_by_key(|&(_, far)| far) {
            Note::ok(evidence)
        } else {
            Note::warn(
                format!("{evidence}: crossed"),
                "pair cables by the UUIDs of their domains, or swap two plugs so that both ends count alike",
            )
        };
        notes.push(note.on(format!("{} and {}", hosts[a].label, hosts[b].label)));
    }
    notes
}

/// F13: bridges that are joined to a ring carry every broadcast round and round
pub(super) fn bridged_ring(hosts: &[Host]) -> Vec<Note> {
    let is_bridged = |&(place, bus): &(usize, &Bus)| {
        let report = &hosts[place].report;
        let bridge = report.interface_of(bus).and_then(|interface| report.bridge_of(interface));
        bridge.is_some_and(|bridge| bridge.is_up())
    };
    let bridged: Vec<_> =
        cables(hosts).into_iter().filter(|cable| cable.ends.iter().all(is_bridged)).collect();
    if bridged.is_empty() {
        return Vec::new();
    }
    // Hosts that are joined already and joined once more are a ring.
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
