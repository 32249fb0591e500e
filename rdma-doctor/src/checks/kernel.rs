//! Objects of the driver that outlive their processes

use rdma_core::Caps;

use super::check::Note;
use crate::report::{DeviceSummary, HostReport, Process};

/// F15, F19, F28: protection domains that a crashed process or a replugged cable has left behind
pub(super) fn protection_domains(host: &HostReport) -> Vec<Note> {
    let per_device = |device: &DeviceSummary| device.max_pd.unwrap_or_else(|| Caps::tb5().max_pd.into());
    count(host, "protection domains", host.kernel_objects.protection_domains, per_device)
}

/// F15, F16, F19, F26: queue pairs that a crashed process has left behind; the limit holds across processes
pub(super) fn queue_pairs(host: &HostReport) -> Vec<Note> {
    // The device advertises one queue pair more than it gives.
    let usable = u64::from(Caps::tb5().max_qp);
    let per_device = |device: &DeviceSummary| device.max_qp.map_or(usable, |max_qp| max_qp.min(usable));
    count(host, "queue pairs", host.kernel_objects.queue_pairs, per_device)
}

/// Compares the count of the whole host with the limits of all its devices together
fn count(
    host: &HostReport,
    what: &str,
    live: Option<u64>,
    per_device: impl Fn(&DeviceSummary) -> u64,
) -> Vec<Note> {
    if host.devices.as_deref() == Some(&[]) {
        return Vec::new();
    }
    let Some(live) = live else { return vec![Note::unknown(format!("the number of {what} is not known"))] };
    let limit: u64 = host.devices.iter().flatten().map(per_device).fold(0, u64::saturating_add);
    let owners = host.kernel_objects.owners.as_deref();
    let evidence = match owners {
        Some([]) => format!("{live} {what}, and no process has the driver open"),
        Some(owners) => format!("{live} {what}; the driver is open in {}", owners.join("; ")),
        None => format!("{live} {what}"),
    };
    vec![if live > 0 && limit > 0 && live >= limit {
        Note::fail(
            format!("{evidence}; all {limit} are in use"),
            "end the processes that hold them, and restart the host if they stay",
        )
    } else if live > 0 && owners == Some(&[]) {
        Note::warn(evidence, "restart the host before they run out")
    } else {
        Note::ok(evidence)
    }]
}

/// F15, F64: two programs on one live port were reported to disturb each other
pub(super) fn port_owners(host: &HostReport) -> Vec<Note> {
    let Some(ports) = &host.port_owners else {
        return vec![Note::unknown("which processes have the driver open at which port is not known")];
    };
    let used = ports.iter().filter(|port| !port.owners.is_empty());
    let notes: Vec<_> = used
        .map(|port| {
            let owners = port.owners.join("; ");
            let note = if port.owners.len() > 1 {
                Note::warn(owners, "run one program per port: end the others")
            } else {
                Note::ok(owners)
            };
            note.on(&port.interface)
        })
        .collect();
    if !notes.is_empty() {
        return notes;
    }
    vec![match host.kernel_objects.owners.as_deref() {
        Some([]) => Note::ok("no process has the driver open at a port"),
        Some(owners) => {
            Note::unknown(format!("at which port it is open is not known: {}", owners.join("; ")))
        }
        None => Note::unknown("no port lists a process, and whether one has the driver open is not known"),
    }]
}

/// F53, F57: a process that waits in the driver and cannot be interrupted keeps its objects until a restart
pub(super) fn stuck_processes(host: &HostReport) -> Vec<Note> {
    const TOOLS: [&str; 3] = ["ibv_devinfo", "ibv_devices", "ibv_uc_pingpong"];
    let Some(waiting) = &host.waiting_processes else {
        return vec![Note::unknown("ps listed no processes")];
    };
    let is_owner = |process: &Process| {
        let owner = format!("pid {},", process.pid);
        let of_ports = host.port_owners.iter().flatten().flat_map(|port| &port.owners);
        host.kernel_objects.owners.iter().flatten().chain(of_ports).any(|name| name.starts_with(&owner))
    };
    // Every process waits in the kernel now and then: only those are stuck that are ending, or that use the driver.
    let is_stuck = |process: &&Process| {
        process.is_unkillable() || is_owner(process) || TOOLS.contains(&process.program.as_str())
    };
    let notes: Vec<_> = waiting
        .iter()
        .filter(is_stuck)
        .map(|process| {
            let Process { pid, program, state, elapsed } = process;
            let evidence = format!("pid {pid}, {program} is in state {state}, started {elapsed} ago");
            if process.is_unkillable() {
                Note::fail(
                    evidence,
                    "replug its cable, and restart the host if the process stays: no signal ends it, and its memory and queue pairs stay in use",
                )
            } else {
                // One sample does not distinguish a short wait, as every program at work has, from an endless one.
                Note::warn(
                    evidence,
                    "run this again: the process is at work if its state changes, and waits in the driver if it does not",
                )
            }
        })
        .collect();
    if notes.is_empty() { vec![Note::ok("no process is stuck in the driver")] } else { notes }
}
