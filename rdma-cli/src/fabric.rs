//! `tb5 fabric`: lists and shows the simulated fabrics of this machine, and schedules faults in them

use anyhow::anyhow;
use rdma_sim::topology::Link;
use rdma_sim::{CableStats, Fault, FaultPlan};
use rdma_sim_verbs::shared::{FabricError, SharedFabric};
use serde::Serialize;

use crate::args::Fabric;
use crate::fault_text;
use crate::report::{Output, SIMULATOR, table};
use crate::run::{FaultOutcome, columns, faults_of, open};

#[derive(Debug, Serialize)]
struct List {
    backend: &'static str,
    fabrics: Vec<Listed>,
}

#[derive(Debug, Serialize)]
struct Listed {
    name: String,
    hosts: usize,
    processes: usize,
    age_seconds: f64,
}

#[derive(Debug, Serialize)]
struct Shown {
    backend: &'static str,
    name: String,
    age_seconds: f64,
    /// How often the bytes of a message are copied between two processes
    copies: u32,
    hosts: Vec<HostShown>,
    faults: Vec<FaultOutcome>,
}

#[derive(Debug, Serialize)]
struct HostShown {
    host: String,
    /// Empty if no process is one of the host.
    pids: Vec<u32>,
    ports: Vec<PortShown>,
}

#[derive(Debug, Serialize)]
struct PortShown {
    device: String,
    /// The other end of the cable: a host and its device.
    peer: Option<String>,
    #[serde(flatten)]
    sent: CableStats,
}

#[derive(Debug, Serialize)]
struct Scheduled {
    backend: &'static str,
    name: String,
    faults: Vec<String>,
}

pub(crate) fn run(args: &Fabric, output: Output) -> anyhow::Result<()> {
    let Some(name) = &args.name else { return list(output) };
    let fabric = open(name).map_err(with_names)?;
    if args.fault.is_empty() {
        return show(&fabric, output);
    }
    let text = args.fault.join(" ");
    let topology = fabric.settings().topology();
    let FaultPlan(plan) = fault_text::parse(&text, fabric.now_ns() / 1_000_000, topology)?;
    for (number, fault) in plan.iter().enumerate() {
        fabric.add_fault(&fault.to_string()).map_err(|error| match number {
            0 => anyhow::Error::from(error),
            _ => anyhow!("{fault}: {error}; the {number} before it are scheduled"),
        })?;
    }
    let faults = plan.iter().map(Fault::to_string).collect();
    let scheduled = Scheduled { backend: SIMULATOR, name: name.clone(), faults };
    output.print(&scheduled, || scheduled.faults.join("\n"))
}

/// Adds the names of the fabrics that run to the error of an unknown name
fn with_names(error: anyhow::Error) -> anyhow::Error {
    if !matches!(error.downcast_ref(), Some(FabricError::Missing(_))) {
        return error;
    }
    match SharedFabric::list() {
        Ok(names) => anyhow!("{error}; {}", running(&names)),
        Err(_) => error,
    }
}

fn running(names: &[String]) -> String {
    if names.is_empty() { "none runs".to_owned() } else { format!("there are: {}", names.join(", ")) }
}

fn age(fabric: &SharedFabric) -> f64 {
    fabric.now_ns() as f64 / 1e9
}

fn list(output: Output) -> anyhow::Result<()> {
    let names = SharedFabric::list()?;
    // A fabric that was removed since the listing is left out.
    let fabrics = names.iter().filter_map(|name| SharedFabric::open(name).ok());
    let listed = |fabric: SharedFabric| {
        let hosts = fabric.settings().topology().hosts().len();
        let processes = (0..hosts).map(|host| fabric.processes_of(host).len()).sum();
        Listed { name: fabric.name().to_owned(), hosts, processes, age_seconds: age(&fabric) }
    };
    let list = List { backend: SIMULATOR, fabrics: fabrics.map(listed).collect() };
    output.print(&list, || {
        if list.fabrics.is_empty() {
            return "no fabrics: tb5 run makes one".to_owned();
        }
        let heading = ["fabric", "hosts", "processes", "age"].map(str::to_owned);
        let row = |listed: &Listed| {
            let age = format!("{:.1} s", listed.age_seconds);
            [listed.name.clone(), listed.hosts.to_string(), listed.processes.to_string(), age]
        };
        table(std::iter::once(heading).chain(list.fabrics.iter().map(row)))
    })
}

fn show(fabric: &SharedFabric, output: Output) -> anyhow::Result<()> {
    let topology = fabric.settings().topology();
    let peer = |host: &str, device: &str| {
        let mut ends = topology.links().flat_map(|Link { ends: [a, b], .. }| [(a, b), (b, a)]);
        let (_, peer) = ends.find(|(end, _)| (end.host, end.device) == (host, device))?;
        Some(format!("{}:{}", peer.host, peer.device))
    };
    let mut sent = fabric.sent().into_iter();
    let hosts = topology.hosts().iter().enumerate().map(|(number, host)| HostShown {
        host: host.name().to_owned(),
        pids: fabric.processes_of(number),
        ports: host
            .ports()
            .iter()
            .zip(&mut sent)
            .map(|(port, sent)| PortShown {
                device: port.device().to_owned(),
                peer: peer(host.name(), port.device()),
                sent,
            })
            .collect(),
    });
    let shown = Shown {
        backend: SIMULATOR,
        name: fabric.name().to_owned(),
        hosts: hosts.collect(),
        age_seconds: age(fabric),
        copies: SharedFabric::COPIES,
        faults: faults_of(fabric),
    };
    output.print(&shown, || text(&shown))
}

fn text(shown: &Shown) -> String {
    let heading = ["host", "processes", "port", "cable to", "messages", "bytes", "stalls"].map(str::to_owned);
    let rows = shown.hosts.iter().flat_map(|host| {
        let pids = host.pids.iter().map(u32::to_string).collect::<Vec<_>>().join(" ");
        let pids = if pids.is_empty() { "-".to_owned() } else { pids };
        host.ports.iter().map(move |port| {
            let [messages, bytes, stalls] = columns(&port.sent);
            let peer = port.peer.clone().unwrap_or_else(|| "-".to_owned());
            [host.host.clone(), pids.clone(), port.device.clone(), peer, messages, bytes, stalls]
        })
    });
    let mut lines = vec![format!(
        "fabric {}, {:.1} s old; between processes bytes are copied {} times",
        shown.name, shown.age_seconds, shown.copies
    )];
    lines.push(table(std::iter::once(heading).chain(rows)));
    for FaultOutcome { fault, fired } in &shown.faults {
        lines.push(format!("fault {fault}{}", if *fired { "" } else { " (not yet)" }));
    }
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fabrics_that_run_are_listed() {
        assert_eq!(running(&[]), "none runs");
        assert_eq!(running(&["lab".to_owned(), "run-1-2".to_owned()]), "there are: lab, run-1-2");
    }
}
