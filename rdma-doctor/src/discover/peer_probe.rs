//! An active probe of the host at the other end of a cable: a socket, `ping`, and a throw-away queue pair
//!
//! A socket of this program and `ping` of the system differ where macOS denies this program the local network. Neither is bound to the
//! cable: the route to the address is looked up, too. The queue pair goes up to ready-to-receive, where the kernel looks the address up;
//! it sends nothing, and one side shows nothing about the other: run the probe on both. Repeated failures of that transition were
//! reported to wedge a port: each probe makes one attempt. After a verb that hangs, the process is killed and destroys nothing.
//!
//! The step of the queue pair was run over the simulated provider. None of this was run on a Mac.

use std::ffi::OsStr;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::str::FromStr;
use std::time::Duration;

use rdma_core::{
    CompletionQueue as _, Device as _, Gid, QpAddress, QpInit, QueuePair as _, Transition, Verb,
};
use rdma_tb5::{OpenError, OpenOptions, Provider, VerbsDevice};

use super::outputs::route;
use super::tool::TIMEOUT;
use super::{Captured, run};
use crate::report::{HostReport, Outcome, PeerProbe, ProbeStep, QueuePairProbe, Reach, ToolRun};

/// The name of the probe among the tools of a report
pub const NAME: &str = "peer_probe";

/// The time for an answer to a connection, or to `ping`
const ANSWER: Duration = Duration::from_secs(2);

/// The port that the socket connects to: a refusal is an answer, too
const DISCARD: u16 = 9;

/// A device, and the address of the host at the other end of its cable
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct PeerTarget {
    /// The device, such as `rdma_en3`
    pub device: String,
    /// The address
    pub address: Ipv4Addr,
}

/// A text that names no target
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
#[error(
    "a device and the IPv4 address at the other end of its cable are expected, such as rdma_en4=192.168.30.2"
)]
pub struct PeerTargetError;

impl FromStr for PeerTarget {
    type Err = PeerTargetError;

    /// Reads `rdma_en3=192.168.30.2`
    ///
    /// ```
    /// use rdma_doctor::discover::peer_probe::PeerTarget;
    ///
    /// let target: PeerTarget = "rdma_en3=192.168.30.2".parse()?;
    /// assert_eq!((target.device.as_str(), target.address), ("rdma_en3", [192, 168, 30, 2].into()));
    /// assert!("rdma_en3".parse::<PeerTarget>().is_err());
    /// # Ok::<(), rdma_doctor::discover::peer_probe::PeerTargetError>(())
    /// ```
    fn from_str(text: &str) -> Result<Self, PeerTargetError> {
        let (device, address) = text.split_once('=').ok_or(PeerTargetError)?;
        let address = address.parse().map_err(|_| PeerTargetError)?;
        if device.is_empty() { Err(PeerTargetError) } else { Ok(Self { device: device.to_owned(), address }) }
    }
}

/// The device of each active port, with one address of its peer: a neighbour that is resolved, if there is one
pub fn targets(report: &HostReport) -> Vec<PeerTarget> {
    let active = report.devices.iter().flatten().filter(|device| device.active_ports().next().is_some());
    let target = |device: &crate::report::DeviceSummary| {
        let interface = device.interface()?;
        let peers = report.peer_addresses(interface);
        let is_resolved = |address: &&Ipv4Addr| {
            let mut entries = report.ipv4_neighbours_on(interface);
            entries.any(|entry| entry.address == **address && entry.ether.is_some())
        };
        let address = *peers.iter().find(is_resolved).or_else(|| peers.first())?;
        Some(PeerTarget { device: device.name.clone(), address })
    };
    active.filter_map(target).collect()
}

/// Probes each target, and adds what was found to `report`
///
/// `program` runs [`queue_pair`] and prints the result as JSON: it is started with `args` and the target, for at most `timeout` each,
/// because a verb may never return.
pub fn run_in_process(
    report: &mut HostReport,
    targets: &[PeerTarget],
    program: impl AsRef<OsStr>,
    args: &[&str],
    timeout: Duration,
) {
    for target in targets {
        let text = format!("{}={}", target.device, target.address);
        let args = [args, &[text.as_str()]].concat();
        add_route(report, target.address, |program, args| run::run(program, args, TIMEOUT));
        report.peer_probes.push(PeerProbe {
            socket: socket(target.address),
            ping: ping(target.address),
            queue_pair: answer(run::run(program.as_ref(), &args, timeout)),
            ..PeerProbe::new(&target.device, target.address)
        });
    }
    let detail = format!("peers: {}", targets.len());
    report.tools.push(ToolRun { tool: NAME.to_owned(), outcome: Outcome::Done, detail });
}

/// Adds the way to an address of a Mac's peer that the report lacks, such as one that the caller named
fn add_route(report: &mut HostReport, address: Ipv4Addr, run: impl FnOnce(&str, &[&str]) -> Captured) {
    if !report.is_mac() || report.routes.iter().flatten().any(|route| route.destination == address) {
        return;
    }
    let found = route(address, &run("route", &["-n", "get", &address.to_string()]));
    if let Some(found) = found {
        report.routes.get_or_insert_default().push(found);
    }
}

fn socket(address: Ipv4Addr) -> Reach {
    reach(TcpStream::connect_timeout(&SocketAddr::from((address, DISCARD)), ANSWER).map(drop))
}

fn reach(connected: io::Result<()>) -> Reach {
    match connected.map_err(|error| error.kind()) {
        Ok(()) | Err(io::ErrorKind::ConnectionRefused | io::ErrorKind::ConnectionReset) => Reach::Answered,
        Err(io::ErrorKind::HostUnreachable | io::ErrorKind::NetworkUnreachable) => Reach::Unreachable,
        Err(io::ErrorKind::TimedOut) => Reach::Silent,
        Err(_) => Reach::Unknown,
    }
}

fn ping(address: Ipv4Addr) -> Reach {
    let bound = if cfg!(target_os = "macos") { "-t" } else { "-w" };
    ping_reach(&run::run("ping", &["-n", "-c", "1", bound, "2", &address.to_string()], 2 * ANSWER))
}

fn ping_reach(captured: &Captured) -> Reach {
    match captured.outcome {
        Outcome::Done => Reach::Answered,
        Outcome::Failed if captured.says("no route to host") || captured.says("unreachable") => {
            Reach::Unreachable
        }
        Outcome::Failed if captured.says(" packet loss") => Reach::Silent,
        _ => Reach::Unknown,
    }
}

/// The answer of the program that makes the queue pair
fn answer(captured: Captured) -> QueuePairProbe {
    let failed = |step, detail: String| QueuePairProbe { step, errno: None, detail };
    match captured.outcome {
        Outcome::Done => serde_json::from_slice(captured.stdout.as_bytes())
            .unwrap_or_else(|error| failed(ProbeStep::Unknown, error.to_string())),
        Outcome::Hung => failed(ProbeStep::Hung, captured.stderr),
        _ => failed(ProbeStep::Unknown, format!("the process failed {}", captured.stderr.trim())),
    }
}

/// Makes a queue pair on the device of `target`, up to ready-to-receive, and destroys it
///
/// May never return, and may crash the process: run it in a process of its own.
pub fn queue_pair(target: &PeerTarget) -> QueuePairProbe {
    let found = |step, errno, detail| QueuePairProbe { step, errno, detail };
    let failed = |step, error: rdma_core::Error| found(step, Some(error.errno()), error.to_string());
    let provider = match Provider::load() {
        Ok(provider) => provider,
        Err(error) => return found(ProbeStep::Open, None, error.to_string()),
    };
    let device = match VerbsDevice::open(&provider, &target.device, OpenOptions::new()) {
        Ok(device) => device,
        Err(OpenError::Verbs(error)) if error.verb == Verb::AllocPd => {
            return failed(ProbeStep::Create, error);
        }
        Err(OpenError::Verbs(error)) => return failed(ProbeStep::Open, error),
        Err(error) => return found(ProbeStep::Open, None, error.to_string()),
    };
    let created = device.create_cq(1).and_then(|cq| cq.create_qp(&QpInit::with_frames(1)));
    let mut pair = match created {
        Ok(pair) => pair,
        Err(error) => return failed(ProbeStep::Create, error),
    };
    // Neither the number of the other queue pair nor its sequence number is on the wire.
    let peer = QpAddress { gid: Gid::from_ipv4(target.address), ..pair.address() };
    let result = match pair.modify(Transition::ReadyToReceive { peer }) {
        Ok(()) => found(ProbeStep::ReadyToReceive, None, String::new()),
        Err(error) => failed(ProbeStep::ReadyToReceive, error),
    };
    // No request was posted: whether the device stopped does not matter to any memory.
    let _ = pair.destroy();
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    fn captured(outcome: Outcome, stdout: &str, stderr: &str) -> Captured {
        Captured { outcome, stdout: stdout.to_owned(), stderr: stderr.to_owned() }
    }

    #[test]
    fn a_refusal_is_an_answer_and_a_refusal_to_send_is_not() {
        let failed = |kind: io::ErrorKind| reach(Err(kind.into()));
        assert_eq!(reach(Ok(())), Reach::Answered);
        assert_eq!(failed(io::ErrorKind::ConnectionRefused), Reach::Answered);
        assert_eq!(failed(io::ErrorKind::HostUnreachable), Reach::Unreachable);
        assert_eq!(failed(io::ErrorKind::TimedOut), Reach::Silent);
        assert_eq!(failed(io::ErrorKind::PermissionDenied), Reach::Unknown);
        assert_eq!(socket(Ipv4Addr::LOCALHOST), Reach::Answered);
    }

    /// Breaks if the route to an address that only the caller named stays unknown.
    #[test]
    fn the_route_to_a_target_is_looked_up_once() {
        let mut report: HostReport = serde_json::from_str(r#"{"platform": "macos"}"#).unwrap();
        let address = Ipv4Addr::new(10, 0, 0, 2);
        add_route(&mut report, address, |program, args| {
            assert_eq!((program, args), ("route", &["-n", "get", "10.0.0.2"][..]));
            captured(Outcome::Done, "  interface: en4\n", "")
        });
        add_route(&mut report, address, |_, _| unreachable!("the route is known"));
        let routes = report.routes.unwrap();
        assert_eq!((routes.len(), routes[0].interface.as_deref()), (1, Some("en4")));
    }

    #[test]
    fn ping_that_could_not_be_run_is_unknown() {
        let cases = [
            (captured(Outcome::Done, "1 packets received", ""), Reach::Answered),
            (captured(Outcome::Failed, "100.0% packet loss", ""), Reach::Silent),
            (captured(Outcome::Failed, "", "ping: sendto: No route to host"), Reach::Unreachable),
            (captured(Outcome::Failed, "", "ping: permission denied"), Reach::Unknown),
            (captured(Outcome::Absent, "", ""), Reach::Unknown),
            (captured(Outcome::Hung, "", ""), Reach::Unknown),
        ];
        for (captured, expected) in cases {
            assert_eq!(ping_reach(&captured), expected, "{captured:?}");
        }
    }

    #[test]
    fn a_process_that_hangs_crashes_or_prints_garbage_is_told_apart() {
        let said = |script: &str, timeout| answer(run::run("sh", &["-c", script], timeout));
        let long = Duration::from_secs(60);
        assert_eq!(said("exec sleep 1000", Duration::from_millis(50)).step, ProbeStep::Hung);
        assert_eq!(said("kill -SEGV $$", long).step, ProbeStep::Unknown);
        assert_eq!(said("echo hello", long).step, ProbeStep::Unknown);
        let ready = said(r#"echo '{"step": "ready_to_receive", "errno": 60}'"#, long);
        assert_eq!((ready.step, ready.errno), (ProbeStep::ReadyToReceive, Some(60)));
    }

    #[test]
    fn one_address_of_each_active_port_is_a_target() {
        let json = r#"{"platform": "macos",
            "devices": [{"name": "rdma_en3", "ports": [{"state": "PORT_DOWN"}]},
                        {"name": "rdma_en4", "ports": [{"state": "PORT_ACTIVE"}]}],
            "interfaces": [{"name": "en4", "ipv4": [{"address": "10.0.0.1", "prefix_len": 24}]}],
            "ipv4_neighbours": [{"address": "10.0.0.2", "interface": "en4"},
                                {"address": "10.0.0.3", "ether": "02:00:00:00:00:03", "interface": "en4"}]}"#;
        let found = targets(&serde_json::from_str(json).unwrap());
        assert_eq!(found, [PeerTarget { device: "rdma_en4".to_owned(), address: [10, 0, 0, 3].into() }]);
    }
}
