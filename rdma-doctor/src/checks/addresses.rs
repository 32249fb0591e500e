//! Bridges, GID tables, IP addresses

use super::check::Note;
use crate::report::{Address, GidEntry, HostReport, Interface};

/// F13, F74: a port that a bridge has captured gets no GIDs of its own
///
/// A port with an IPv4 address of its own works nevertheless; other projects measured it beside an active `bridge0`.
pub(super) fn bridge(host: &HostReport) -> Vec<Note> {
    const REMEDY: &str = "delete the bridge under Manage Virtual Interfaces in System Settings, Network, and add a network service per port";
    let note = |name: &str| {
        let Some(bridge) = host.bridge_of(name) else { return Note::ok("not a member of a bridge") };
        let evidence = format!("member of {}", bridge.name);
        match host.interface(name) {
            Some(interface) if !interface.ipv4.is_empty() => Note::warn(
                format!("{evidence}, with an IPv4 address of its own"),
                "delete the bridge, or make it inactive at least where cables form a ring",
            ),
            Some(_) => Note::fail(format!("{evidence}, without an IPv4 address of its own"), REMEDY),
            None => Note::fail(evidence, REMEDY),
        }
    };
    if host.interfaces.is_none() || host.hardware_ports.is_none() {
        return vec![Note::unknown("interfaces and ports are not known")];
    }
    host.thunderbolt_interfaces().map(|name| note(name).on(name)).collect()
}

/// F13: a bridge with several cables is a hub, and frames circle in a ring of hubs for ever
///
/// The report of one host does not show the ring; [`bridged_ring`](super::hosts::bridged_ring) finds it in the reports of all hosts.
pub(super) fn bridge_loop(host: &HostReport) -> Vec<Note> {
    let is_on = |bridge: &&Interface| bridge.is_bridge() && bridge.is_up();
    let mut notes = Vec::new();
    for bridge in host.interfaces.iter().flatten().filter(is_on) {
        let is_member = |name: &&str| bridge.members.iter().any(|member| member == name);
        let cabled: Vec<_> =
            host.cabled_buses().filter_map(|bus| host.interface_of(bus)).filter(is_member).collect();
        let note = if cabled.len() > 1 {
            Note::warn(
                format!("bridges {}, each with a cable to another host", cabled.join(" and ")),
                "make the bridge inactive if cables form a ring",
            )
        } else {
            Note::ok(format!("{} of its members have a cable to another host", cabled.len()))
        };
        notes.push(note.on(&bridge.name));
    }
    notes
}

/// A note for each active port whose GID table is known and about which `note` says something
fn each_table(host: &HostReport, note: impl Fn(&[GidEntry]) -> Option<Note>) -> Vec<Note> {
    let unknown = || Some(Note::unknown("the GID table is not known"));
    let ports = host
        .devices
        .iter()
        .flatten()
        .flat_map(|device| device.active_ports().map(move |port| (device, port)));
    ports
        .filter_map(|(device, port)| {
            Some(port.gids.as_deref().map_or_else(unknown, &note)?.on(device.label(port)))
        })
        .collect()
}

/// F13, F19, F74: without any GID, connecting fails with error number 96
pub(super) fn gid_table(host: &HostReport) -> Vec<Note> {
    each_table(host, |gids| {
        Some(match gids {
            [] => Note::fail(
                "the GID table is empty",
                "take the port out of the Thunderbolt Bridge and give it a network service and an address of its own",
            ),
            gids => Note::ok(list(gids)),
        })
    })
}

fn list(gids: &[GidEntry]) -> String {
    const SHOWN: usize = 4;
    let mut parts: Vec<_> =
        gids.iter().take(SHOWN).map(|gid| format!("[{}] {}", gid.index, gid.gid)).collect();
    if gids.len() > SHOWN {
        parts.push(format!("and {} more", gids.len() - SHOWN));
    }
    parts.join(", ")
}

fn ipv4_entry(gids: &[GidEntry]) -> Option<&GidEntry> {
    gids.iter().find(|gid| gid.ipv4().is_some())
}

/// F11, F13: with `fe80::` GIDs only, most programs cannot connect (error number 22)
pub(super) fn ipv4_gid(host: &HostReport) -> Vec<Note> {
    each_table(host, |gids| {
        Some(match ipv4_entry(gids) {
            Some(gid) => Note::ok(list(&[*gid])),
            None => Note::fail(
                "no entry of the GID table maps an IPv4 address",
                "give the interface of the port an IPv4 address, on a network of its own",
            ),
        })
    })
}

/// F12: this library looks the entry up; other programs take entry 1 without looking (error number 22)
pub(super) fn ipv4_gid_index(host: &HostReport) -> Vec<Note> {
    each_table(host, |gids| {
        let first = ipv4_entry(gids)?;
        Some(if gids.iter().any(|gid| gid.index == 1 && gid.ipv4().is_some()) {
            Note::ok("entry 1 maps an IPv4 address")
        } else {
            Note::warn(
                list(&[*first]),
                "remove other addresses from the interface before running programs that expect the IPv4 address in entry 1",
            )
        })
    })
}

/// F12, F51: after a flap the IPv4 entry can move and leave its old place empty
pub(super) fn gid_holes(host: &HostReport) -> Vec<Note> {
    each_table(host, |gids| {
        let last = gids.iter().map(|gid| gid.index).max()?;
        let is_set = |index: &u32| gids.iter().any(|gid| gid.index == *index);
        // A table has 1024 entries at most; a report can claim any index.
        let holes: Vec<_> = (0..last.min(1024)).filter(|index| !is_set(index)).collect();
        let shown: Vec<_> = holes.iter().take(4).map(ToString::to_string).collect();
        Some(if holes.is_empty() {
            Note::ok(format!("entries 0 to {last} are set"))
        } else {
            Note::warn(
                format!("entry {} is empty, and entry {last} is set", shown.join(", ")),
                "reset the interface of the device, such as en4 for rdma_en4: `sudo ifconfig en4 down`, then `sudo ifconfig en4 up`; programs that expect the IPv4 address in entry 1 fail until then",
            )
        })
    })
}

/// F75: connections were reported to fail (error number 60) with addresses of 169.254 only; Apple's example uses them
pub(super) fn link_local(host: &HostReport) -> Vec<Note> {
    each_table(host, |gids| {
        let addresses: Vec<_> = gids.iter().filter_map(GidEntry::ipv4).collect();
        let text = addresses.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
        if addresses.is_empty() {
            return None;
        }
        Some(if addresses.iter().all(|address| address.is_link_local()) {
            Note::warn(
                text,
                "if connections fail with error number 60, give both ends of the cable fixed addresses in a network of their own, such as a /30",
            )
        } else {
            Note::ok(text)
        })
    })
}

/// F14: ports that share a network are reached through the first route, which may be the other cable
pub(super) fn subnets(host: &HostReport) -> Vec<Note> {
    let (Some(_), Some(_)) = (&host.interfaces, &host.hardware_ports) else {
        return vec![Note::unknown("interfaces and ports are not known")];
    };
    let mut networks = Vec::new();
    let mut notes = Vec::new();
    for name in host.thunderbolt_interfaces() {
        // 169.254/16 is the same on every interface, and scoped to it.
        let own = host.interface(name).into_iter().flat_map(|interface| &interface.ipv4);
        for address in own.filter(|net| !net.address.is_link_local()) {
            let same = networks
                .iter()
                .find(|(other, net): &&(&str, Address)| *other != name && net.overlaps(address));
            if let Some((other, net)) = same {
                let evidence = format!(
                    "{}/{} here and {}/{} on {other}",
                    address.address, address.prefix_len, net.address, net.prefix_len
                );
                notes.push(
                    Note::warn(evidence, "give each cable a network of its own, such as a /30").on(name),
                );
            }
            networks.push((name, *address));
        }
    }
    if notes.is_empty() {
        notes.push(Note::ok(format!("fixed addresses: {}, in networks of their own", networks.len())));
    }
    notes
}
