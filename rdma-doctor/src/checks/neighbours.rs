//! Neighbours and routes: where the kernel looks the peer's address up when a queue pair becomes ready to receive

use std::net::{IpAddr, Ipv4Addr};

use super::check::Note;
use crate::report::HostReport;

/// The findings of `look` about each address that the other end of each cable can have
fn each_peer(host: &HostReport, look: impl Fn(&str, Ipv4Addr) -> Option<Note>) -> Vec<Note> {
    const ADVICE: &str =
        "ping the address of the other host on this cable, and run this again: that fills the table";
    let mut notes = Vec::new();
    for name in host.cabled_buses().filter_map(|bus| host.interface_of(bus)) {
        let peers = host.peer_addresses(name);
        if peers.is_empty() {
            notes.push(Note::unknown("no address of the other host is known").advise(ADVICE).on(name));
        }
        notes.extend(peers.into_iter().filter_map(|address| Some(look(name, address)?.on(name))));
    }
    notes
}

/// F14: an address that the kernel cannot resolve fails with error number 60, or 1 on some versions
pub(super) fn neighbours(host: &HostReport) -> Vec<Note> {
    if host.ipv4_neighbours.is_none() {
        return vec![Note::unknown("the ARP table is not known")];
    }
    let ether = |name: &str, address: Ipv4Addr| {
        let mut entries = host.ipv4_neighbours_on(name).filter(|entry| entry.address == IpAddr::V4(address));
        entries.find_map(|entry| entry.ether.as_deref())
    };
    each_peer(host, |name, address| {
        let is_listed = host.ipv4_neighbours_on(name).any(|entry| entry.address == IpAddr::V4(address));
        // A cable has one other end: if that is resolved, its other addresses are old ones.
        let is_peer_resolved = || host.peer_addresses(name).iter().any(|&peer| ether(name, peer).is_some());
        match ether(name, address) {
            Some(ether) => Some(Note::ok(format!("{address} is at {ether}"))),
            None if is_peer_resolved() => None,
            None if is_listed => Some(Note::fail(
                match host.ipv6_peer_on(name) {
                    Some(ether) => format!(
                        "{address} is at (incomplete), and {ether} answers over IPv6: the cable works, and the other host does not have this IPv4 address"
                    ),
                    None => format!("{address} is at (incomplete): the other host did not answer"),
                },
                "give both ends of the cable addresses of one network, and take both ports out of the bridge; clear a stale entry with `sudo arp -d ADDRESS`",
            )),
            None => Some(
                Note::unknown(format!("{address} is not in the ARP table"))
                    .advise("ping it, and run this again: that fills the table"),
            ),
        }
    })
}

/// F14: a route over another interface sends the lookup to the wrong cable, or to Wi-Fi
pub(super) fn routes(host: &HostReport) -> Vec<Note> {
    const OTHER: &str = "give both ends of the cable addresses and masks of one network, which no other interface has: the network decides the way";
    const MISSING: &str = "give both ends of the cable addresses and masks of one network; if they have them, run `sudo route add -host ADDRESS -interface INTERFACE` with the address and the interface of this finding";
    let Some(routes) = &host.routes else {
        return vec![Note::unknown("no route to the other end of a cable was looked up")];
    };
    each_peer(host, |name, address| {
        let route = routes.iter().find(|route| route.destination == address);
        Some(match route.map(|route| route.interface.as_deref()) {
            Some(Some(other)) if other == name => Note::ok(format!("{address} is reached over {name}")),
            Some(Some(other)) => {
                Note::fail(format!("{address} is reached over {other}, not over {name}"), OTHER)
            }
            Some(None) => Note::fail(format!("there is no route to {address}"), MISSING),
            None => Note::unknown(format!("the route to {address} is not known")),
        })
    })
}
