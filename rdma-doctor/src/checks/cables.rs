//! Cables and links

use super::check::Note;
use crate::report::{Bus, HostReport};

/// F1, F73: a device reaches exactly the host at the other end of its cable
pub(super) fn cable(host: &HostReport) -> Note {
    let Some(buses) = host.thunderbolt.as_deref() else {
        return Note::unknown("system_profiler listed no Thunderbolt buses");
    };
    let cables: Vec<_> = host
        .cabled_buses()
        .map(|bus| {
            let names: Vec<_> = bus.hosts().map(|peer| peer.name.as_str()).collect();
            format!("{}: {}", bus.label(), names.join(", "))
        })
        .collect();
    if !cables.is_empty() {
        return Note::ok(cables.join("; "));
    }
    let others = buses.iter().map(|bus| bus.peers.len()).sum::<usize>();
    let evidence = if others == 0 {
        "nothing is connected to any receptacle".to_owned()
    } else {
        format!("devices connected: {others}, none of them a computer")
    };
    Note::fail(evidence, "connect another Mac with a Thunderbolt 5 cable, directly")
}

/// F2: a link of 40 Gb/s is one of Thunderbolt 4, by a cable or by a Mac: some programs run for weeks on it, others do not start
///
/// Sources: hellas, M4 Max over 40 Gb/s; a rig of two M2 Ultra in daily use; against it mlx#4485, exo#1881. Below 40 Gb/s no
/// success was reported.
pub(super) fn link_speed(host: &HostReport) -> Vec<Note> {
    const REMEDY: &str =
        "use a Thunderbolt 5 cable between Thunderbolt 5 receptacles: RDMA is documented for 80 Gb/s";
    let note = |bus: &Bus| {
        let text = bus.speed.as_deref().unwrap_or("no speed");
        match bus.link_speed() {
            Some(speed) if speed.is_limit => Note::unknown(text),
            Some(speed) if speed.gigabits < 40 => Note::fail(text, REMEDY),
            Some(speed) if speed.gigabits == 40 => Note::warn(text, REMEDY),
            Some(_) => Note::ok(text),
            None => Note::unknown(text),
        }
        .on(bus.label())
    };
    host.cabled_buses().map(note).collect()
}

/// F5: the port next to Ethernet of a Mac Studio is not reliable
///
/// Sources: the README of exo, and its warning (#1551), which takes that port for `en2`.
pub(super) fn studio_port(host: &HostReport) -> Vec<Note> {
    let studio = |name: Option<&str>| matches!(name, Some("Mac Studio" | "Mac15,14" | "Mac16,9"));
    let is_studio = studio(host.hardware_model.as_deref())
        || host.thunderbolt.iter().flatten().any(|bus| studio(bus.device_name.as_deref()));
    if !is_studio {
        return Vec::new();
    }
    if host.thunderbolt.is_none() || host.hardware_ports.is_none() {
        return vec![Note::unknown("which receptacle is en2 is not known").on("en2")];
    }
    vec![
        match host.cabled_buses().find(|bus| host.interface_of(bus) == Some("en2")) {
            Some(bus) => Note::warn(
                format!("{} is en2 and has a cable to another host", bus.label()),
                "move the cable to another port than the one next to Ethernet",
            ),
            None => Note::ok("no other host is connected to en2"),
        }
        .on("en2"),
    ]
}

/// F1, F9: a peer with RDMA switched off is listed without the service `rdma`
pub(super) fn rdma_service(host: &HostReport) -> Vec<Note> {
    const REMEDY: &str = "enable RDMA on that host too, and restart it";
    let live = host.live_links.as_ref().and_then(|links| links.rdma_services);
    let connected = host.cabled_buses().flat_map(|bus| bus.hosts()).count();
    let mut notes = Vec::new();
    for bus in host.cabled_buses() {
        for peer in bus.hosts() {
            let note = match (peer.rdma_service, live) {
                (Some(true), _) => Note::ok(format!("{} advertises rdma", peer.name)),
                (Some(false), _) => Note::fail(format!("{} does not advertise rdma", peer.name), REMEDY),
                (None, Some(0)) => Note::fail("the I/O Registry lists no host that advertises rdma", REMEDY),
                (None, Some(count)) if count as usize >= connected => {
                    Note::ok(format!("hosts that advertise rdma by the I/O Registry: {count}"))
                }
                (None, Some(count)) => Note::unknown(format!("{count} of {connected} hosts advertise rdma")),
                (None, None) => Note::unknown(format!("the services of {} are not known", peer.name)),
            };
            notes.push(note.on(bus.label()));
        }
    }
    notes
}

/// F7, F54: a cable whose IP link is not active: the connection between the hosts was not set up
///
/// In that state `alloc_pd` returns NULL (F7), or addresses are not resolved (F54).
pub(super) fn thunderbolt_ip(host: &HostReport) -> Vec<Note> {
    const REMEDY: &str = "unplug the cable and plug it in again";
    let note = |bus: &Bus| {
        let Some(name) = host.interface_of(bus) else {
            return Note::unknown("its interface is not known").on(bus.label());
        };
        let links = host.live_links.iter().flat_map(|links| &links.ip_links);
        let live =
            links.filter(|link| link.interface.as_deref() == Some(name)).find_map(|link| link.is_active());
        let status = host.interface(name).and_then(|interface| interface.status.as_deref());
        match (live, status) {
            (Some(false), _) => Note::fail(
                "a host is connected, and the I/O Registry says that the link is not active",
                REMEDY,
            ),
            (_, Some("inactive")) => {
                Note::fail("a host is connected, and ifconfig says status: inactive", REMEDY)
            }
            (Some(true), _) => Note::ok("the I/O Registry says that the link is active"),
            (None, Some(status)) => Note::ok(format!("ifconfig says status: {status}")),
            (None, None) => {
                Note::unknown("neither ifconfig nor the I/O Registry shows the state of the link")
            }
        }
        .on(name)
    };
    host.cabled_buses().map(note).collect()
}
