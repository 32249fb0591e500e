//! Settings that undo what was set up: at the next start, or twice an hour

use super::check::Note;
use crate::report::{Firewall, HostReport};

/// F4, F75: the daemon of EXO edits the network settings at every start and every half hour
///
/// Source: `NetworkSetupHelper.swift` of exo. It destroys `bridge0`, selects the location `exo`, and sets DHCP on every Thunderbolt
/// service.
pub(super) fn exo_daemon(host: &HostReport) -> Note {
    const REMEDY: &str = "without EXO, run `sudo launchctl bootout system/io.exo.networksetup`, delete its file in /Library/LaunchDaemons, and select another network location; with EXO, use the addresses that it assigns, because fixed ones are undone";
    const LEFT_BEHIND: &str = "without EXO, select another network location in System Settings, Network; with EXO, use the addresses that it assigns";
    let location = host.network_settings.as_ref().and_then(|settings| settings.location.as_deref());
    let Some(daemon) = host.exo_daemon else {
        return Note::unknown("whether launchd runs io.exo.networksetup is not known");
    };
    if daemon.is_loaded {
        let interval = daemon.interval_seconds.map(|seconds| format!(" every {seconds} s"));
        let runs = daemon.runs.map(|runs| format!(", {runs} runs since the start"));
        let evidence = format!(
            "launchd runs io.exo.networksetup{}{}",
            interval.unwrap_or_default(),
            runs.unwrap_or_default()
        );
        Note::warn(evidence, REMEDY)
    } else if location == Some("exo") {
        Note::warn("the network location is exo, which EXO left behind", LEFT_BEHIND)
    } else {
        Note::ok("launchd does not run io.exo.networksetup")
    }
}

/// F4, F11: an address that was given with `ifconfig` is gone after a restart
pub(super) fn lasting_addresses(host: &HostReport) -> Vec<Note> {
    let Some(settings) = &host.network_settings else {
        return vec![Note::unknown("the network settings are not known")];
    };
    let note = |name: &str| {
        let Some(service) = settings.service(name) else {
            return Note::warn(
                "no network service in the current location",
                "add a network service for this port in System Settings, Network",
            );
        };
        let own = host.interface(name).into_iter().flat_map(|interface| &interface.ipv4);
        let is_dynamic = service.ipv4_method.as_deref() == Some("DHCP");
        let lost: Vec<_> = own
            .map(|net| net.address)
            .filter(|address| !address.is_link_local() && !service.ipv4.contains(address))
            .map(|address| address.to_string())
            .collect();
        let method = service.ipv4_method.as_deref().unwrap_or("no method");
        if lost.is_empty() {
            Note::ok(format!("the network service has the addresses of the interface ({method})"))
        } else if is_dynamic {
            Note::warn(
                format!("{} is not in its network service, which uses DHCP", lost.join(", ")),
                "set the address in the network service of this port: it is lost at the next start, and earlier if EXO runs",
            )
        } else {
            Note::warn(
                format!("{} is not in its network service ({method})", lost.join(", ")),
                "set the address in the network service of this port: it is lost at the next start",
            )
        }
    };
    host.cabled_buses().filter_map(|bus| host.interface_of(bus)).map(|name| note(name).on(name)).collect()
}

/// F74: a virtual bridge takes its members at every start, also if its service was deleted
pub(super) fn lasting_bridge(host: &HostReport) -> Vec<Note> {
    let (Some(settings), Some(_)) = (&host.network_settings, &host.hardware_ports) else {
        return vec![Note::unknown("the network settings or the ports are not known")];
    };
    let mut notes = Vec::new();
    for bridge in &settings.bridges {
        let ports: Vec<_> = host
            .thunderbolt_interfaces()
            .filter(|port| bridge.members.iter().any(|member| member == port))
            .collect();
        if !ports.is_empty() {
            let note = Note::warn(
                format!("takes {} at every start", ports.join(", ")),
                "delete the bridge under Manage Virtual Interfaces in System Settings, Network, and add a network service per port",
            );
            notes.push(note.on(&bridge.name));
        }
    }
    if notes.is_empty() {
        notes.push(Note::ok("no virtual bridge takes a Thunderbolt port"));
    }
    notes
}

/// F23: a firewall that blocks all connections blocks the side channel, over which programs exchange their queue pairs
pub(super) fn firewall(host: &HostReport) -> Note {
    match host.firewall {
        Some(Firewall::Off) => Note::ok("off"),
        Some(Firewall::On) => Note::ok("on: each program that listens needs a permission"),
        Some(Firewall::BlocksAll) => Note::warn(
            "blocks all incoming connections",
            "switch `Block all incoming connections` off in System Settings, Network, Firewall, Options, or let the other host listen",
        ),
        Some(Firewall::Unknown) => Note::unknown("a state that is not understood"),
        None => Note::unknown("socketfilterfw printed no state"),
    }
}
