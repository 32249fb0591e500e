//! The findings of an active probe of peers

use super::check::Note;
use crate::report::{HostReport, PeerProbe, ProbeStep, Reach};

/// F23: without the permission for the local network, a program gets `EHOSTUNREACH` where `ping` gets an answer
pub(super) fn local_network(host: &HostReport) -> Vec<Note> {
    const UNSENT: &str = "the system refuses to send from this program (EHOSTUNREACH)";
    const NO_PEER: &str = "see the findings about neighbours and routes, and whether the other host is on";
    let answer = |probe: &PeerProbe| {
        let address = probe.address;
        match (probe.socket, probe.ping) {
            (Reach::Answered, _) => Note::ok(format!("{address} answers this program")),
            (Reach::Unreachable, Reach::Answered) => Note::fail(
                format!("{UNSENT}, and {address} answers ping"),
                "allow the program, or the terminal that starts it, under System Settings, Privacy & Security, Local Network, and start it again",
            ),
            (Reach::Unreachable, Reach::Silent | Reach::Unreachable) => {
                Note::fail(format!("{UNSENT}, and {address} does not answer ping"), NO_PEER)
            }
            (Reach::Silent, Reach::Answered) => Note::warn(
                format!("{address} answers ping and drops the connection of this program"),
                "let the program through the firewall of the other host",
            ),
            // A firewall in stealth mode does not answer either, and does not stop RDMA.
            (Reach::Silent, Reach::Silent | Reach::Unreachable) => {
                Note::warn(format!("{address} answers neither this program nor ping"), NO_PEER)
            }
            _ => Note::unknown(format!("whether {address} answers is not known")),
        }
    };
    // Neither the socket nor ping is bound to the cable: over another interface, another host may have the address.
    let note = |probe: &PeerProbe| {
        let address = probe.address;
        let route = host.routes.iter().flatten().find(|route| route.destination == address);
        let note = match route.map(|route| route.interface.as_deref()) {
            Some(Some(interface)) if Some(interface) == probe.interface() => answer(probe),
            Some(Some(other)) => Note::unknown(format!(
                "{address} is reached over {other}: another host may have this address"
            ))
            .advise("see the finding about routes"),
            Some(None) => Note::unknown(format!("there is no route to {address}")),
            None => Note::unknown(format!(
                "the route to {address} is not known: another host may have this address"
            )),
        };
        note.on(&probe.device)
    };
    if host.peer_probes.is_empty() && host.tool("peer_probe").is_some() {
        let none = Note::unknown("no active port has a known address of the other host");
        return vec![none.advise("name both with `tb5 doctor --probe DEVICE=ADDRESS`")];
    }
    host.peer_probes.iter().map(note).collect()
}

/// F11, F14, F15, F19, F53, F74: one queue pair, up to ready-to-receive, which looks the peer's address up
pub(super) fn queue_pair_probe(host: &HostReport) -> Vec<Note> {
    const TO: &str = "a queue pair to";
    let note = |probe: &PeerProbe| {
        let (address, found) = (probe.address, &probe.queue_pair);
        let detail = if found.detail.is_empty() { String::new() } else { format!(": {}", found.detail) };
        match (found.step, found.errno) {
            (ProbeStep::ReadyToReceive, None) => Note::ok(format!("{TO} {address} gets ready to receive")),
            (ProbeStep::ReadyToReceive, Some(errno)) => Note::fail(
                format!("{TO} {address} does not get ready to receive, error number {errno}{detail}"),
                ready_to_receive(errno),
            ),
            (ProbeStep::Create, errno) => Note::fail(
                format!("{TO} {address} was not created, {}{detail}", number(errno)),
                "see the findings about ports, protection domains and queue pairs; end the programs that hold them, or restart the host",
            ),
            (ProbeStep::Open, errno) => Note::fail(
                format!("the device was not opened, {}{detail}", number(errno)),
                "use a device that `tb5 devices` lists; restart the host if it lists this one",
            ),
            (ProbeStep::Hung, _) => Note::fail(
                format!("a verb did not return{detail}"),
                "replug the cable, and restart the host if that does not help",
            ),
            (ProbeStep::Unknown, _) => Note::unknown(format!("no queue pair to {address} was tried{detail}")),
        }
        .on(&probe.device)
    };
    host.peer_probes.iter().map(note).collect()
}

fn number(errno: Option<i32>) -> String {
    errno.map_or_else(|| "without an error number".to_owned(), |errno| format!("error number {errno}"))
}

/// The remedy for an error number of macOS
fn ready_to_receive(errno: i32) -> &'static str {
    match errno {
        1 | 60 => "see the findings about neighbours and routes: the kernel did not resolve the address",
        16 => "end the processes that have the driver open at this port, or restart the host",
        22 => {
            "see the findings about GIDs and bridges: the port has no GID of an IPv4 address, or another index"
        }
        96 => "take the port out of the Thunderbolt Bridge; restart the host if its GID table is not empty",
        _ => "do not connect again and again, which wedges the port; restart the host if the error stays",
    }
}
