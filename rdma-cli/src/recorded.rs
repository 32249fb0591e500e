//! Host reports of this machine and from files

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, bail};
use rdma_doctor::discover::{
    peer_probe::{self, PeerTarget},
    provider_probe::{self, ProviderProbe},
};
use rdma_doctor::report::Platform;
use rdma_doctor::{Host, HostReport, collect};
use rdma_sim::TopologyError;
use rustix::process::{Pid, getppid};
use serde_json::{Map, Value};

use crate::args::ProviderArgs;
use crate::failure::{Failure, at, shown};
use crate::input::{read_named, require_one_standard};
use crate::report::Output;
use crate::{file, progress, signals};

/// Longer than any report of a real host
const MAX_BYTES: u64 = 4 << 20;

/// Inspects this machine
///
/// # Errors
///
/// Fails if the program is asked to stop meanwhile: a driver that hangs takes seconds.
pub(crate) fn this_machine() -> Result<Host> {
    let progress = progress::spinner("inspecting this machine");
    let (inspected, reports) = mpsc::channel();
    // The receiver is gone if the program was asked to stop.
    let inspect = move || drop(inspected.send(inspect()));
    thread::Builder::new().name("inspection".to_owned()).spawn(inspect)?;
    let report = loop {
        match reports.recv_timeout(CHECK_INTERVAL) {
            Ok(report) => break Ok(report),
            Err(RecvTimeoutError::Timeout) => {
                if let Err(interrupted) = signals::check() {
                    break Err(interrupted.into());
                }
            }
            Err(RecvTimeoutError::Disconnected) => break Err(anyhow!("this machine could not be inspected")),
        }
    };
    progress.finish_and_clear();
    report.map(|report| Host::new("this machine", report))
}

fn inspect() -> HostReport {
    let mut report = collect();
    if let Ok(program) = std::env::current_exe() {
        let parent = own_id();
        let words = ["provider", "--parent", &parent];
        provider_probe::run_in_process(&mut report, program, &words, PROBE_TIMEOUT);
    }
    report
}

/// The time after which a probe of the verbs provider is given up.
const PROBE_TIMEOUT: Duration = Duration::from_secs(5);

/// The time after which a probe of a peer is given up: a queue pair waits a second for an address that is not resolved
const PEER_TIMEOUT: Duration = Duration::from_secs(10);

/// Interval at which a process that waits looks whether the program goes on
const CHECK_INTERVAL: Duration = Duration::from_millis(20);

/// Probes the hosts at the other ends of cables: the targets, or one for each active port if there are none
pub(crate) fn probe_peers(report: &mut HostReport, targets: &[PeerTarget]) -> Result<()> {
    let found = if targets.is_empty() { peer_probe::targets(report) } else { targets.to_vec() };
    let program = std::env::current_exe().context("the path of this program is not known")?;
    let parent = own_id();
    peer_probe::run_in_process(report, &found, program, &["provider", "--parent", &parent], PEER_TIMEOUT);
    Ok(())
}

/// Probes the verbs provider, or a peer with it, for the process that started this one
pub(crate) fn print_probe(args: &ProviderArgs) -> Result<()> {
    end_with_parent(args.parent.map_or_else(getppid, Pid::from_raw))?;
    match &args.peer {
        Some(target) => Output::Json.print(&peer_probe::queue_pair(target), String::new),
        None => Output::Json.print(&ProviderProbe::run(), String::new),
    }
}

fn own_id() -> String {
    std::process::id().to_string()
}

/// Ends this process soon after `parent`, which may be ended while a verb hangs here, or before this one looks for the first time
fn end_with_parent(parent: Option<Pid>) -> Result<()> {
    let (begins, begun) = mpsc::channel::<()>();
    let watch = move || {
        drop(begins);
        while getppid() == parent {
            thread::sleep(CHECK_INTERVAL);
        }
        signal_hook::low_level::exit(1);
    };
    thread::Builder::new().name("watch of the parent".to_owned()).spawn(watch)?;
    // A library that hangs while it is loaded holds a lock that a thread takes as it begins, and an end in order takes, too.
    while begun.recv().is_ok() {}
    Ok(())
}

/// The platforms that reports have
const PLATFORMS: [&str; 3] = ["linux", "macos", "other"];

/// Reads a report, labelled with the path of its file
pub(crate) fn read(path: &Path) -> Result<Host> {
    let json = read_named(path, MAX_BYTES)?;
    // The JSON error names line and column.
    let invalid = || at(path, "is not a host report");
    // Every key may be missing but this one: otherwise any other JSON would pass for a report.
    let keys: Map<String, Value> = serde_json::from_str(&json).with_context(invalid)?;
    let Some(platform) = keys.get("platform") else {
        bail!(at(
            path,
            "is not a host report: missing field `platform`; record one with `tb5 doctor --record FILE`"
        ));
    };
    if !PLATFORMS.iter().any(|known| platform == known) {
        let known = PLATFORMS.join(", ");
        bail!(at(
            path,
            format_args!("is not a host report: its platform is {platform}, and not one of {known}")
        ));
    }
    let report = HostReport::from_json(json.as_bytes()).with_context(invalid)?;
    Ok(Host::new(shown(path), report))
}

/// Reads the reports of several Macs, labelled with the names of their files, or with their paths if names are equal
///
/// # Errors
///
/// Fails if a report cannot be read, and with [`Failure::Usage`] if one is given twice: a Mac would be compared with itself.
pub(crate) fn read_all(paths: &[PathBuf]) -> Result<Vec<Host>> {
    require_one_standard(paths)?;
    let mut hosts = paths.iter().map(|path| read(path)).collect::<Result<Vec<_>>>()?;
    shorten(&mut hosts);
    let mut labels = BTreeSet::new();
    if let Some(twice) = hosts.iter().find(|host| !labels.insert(&host.label)) {
        let why = TopologyError::DuplicateHost { host: twice.label.clone() };
        return Err(Failure::usage(why).into());
    }
    Ok(hosts)
}

/// Shortens the labels to file names without extension, if those differ
pub(crate) fn shorten(hosts: &mut [Host]) {
    let stem = |host: &Host| stem(&host.label).map(str::to_owned);
    let Some(stems) = hosts.iter().map(stem).collect::<Option<Vec<_>>>() else { return };
    if stems.iter().collect::<BTreeSet<_>>().len() == hosts.len() {
        for (host, stem) in hosts.iter_mut().zip(stems) {
            host.label = stem;
        }
    }
}

/// A label without folders and extension
fn stem(label: &str) -> Option<&str> {
    Path::new(label).file_stem()?.to_str()
}

/// Writes a report as indented JSON
pub(crate) fn write(path: &Path, report: &HostReport) -> Result<()> {
    let json = report.to_json()? + "\n";
    file::write_all(path, &json)
}

/// Short label, system and model of a host
pub(crate) fn summary(host: &Host) -> String {
    let report = &host.report;
    let platform = match report.platform {
        Platform::Linux => "Linux".to_owned(),
        Platform::Macos => {
            format!("macOS {}", report.macos_version.as_deref().unwrap_or("of unknown version"))
        }
        _ => "unknown system".to_owned(),
    };
    let label = &host.label;
    match &report.hardware_model {
        Some(model) => format!("{label}: {platform}, {model}"),
        None => format!("{label}: {platform}"),
    }
}
