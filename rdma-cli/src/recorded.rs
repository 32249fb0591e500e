//! Host reports of this machine and from files

use std::collections::BTreeSet;
use std::io::Read;
use std::path::Path;

use anyhow::{Context as _, Result, bail};
use rdma_doctor::discover::{
    peer_probe::{self, PeerTarget},
    provider_probe::{self, ProviderProbe},
};
use rdma_doctor::report::Platform;
use rdma_doctor::{Host, HostReport, collect};
use serde_json::{Map, Value};

use crate::args::ProviderArgs;
use crate::failure::{at, shown};
use crate::report::Output;
use crate::{file, progress};

/// Longer than any report of a real host
const MAX_BYTES: u64 = 4 << 20;

/// Inspects this machine
pub(crate) fn this_machine() -> Host {
    let progress = progress::spinner("inspecting this machine");
    let mut report = collect();
    if let Ok(program) = std::env::current_exe() {
        provider_probe::run_in_process(&mut report, program, &["provider"], PROBE_TIMEOUT);
    }
    progress.finish_and_clear();
    Host::new("this machine", report)
}

/// The time after which a probe of the verbs provider is given up.
const PROBE_TIMEOUT: std::time::Duration = std::time::Duration::from_secs(5);

/// The time after which a probe of a peer is given up: a queue pair waits a second for an address that is not resolved
const PEER_TIMEOUT: std::time::Duration = std::time::Duration::from_secs(10);

/// Probes the hosts at the other ends of cables: the targets, or one for each active port if there are none
pub(crate) fn probe_peers(report: &mut HostReport, targets: &[PeerTarget]) -> Result<()> {
    let found = if targets.is_empty() { peer_probe::targets(report) } else { targets.to_vec() };
    let program = std::env::current_exe().context("the path of this program is not known")?;
    peer_probe::run_in_process(report, &found, program, &["provider"], PEER_TIMEOUT);
    Ok(())
}

/// Probes the verbs provider, or a peer with it, for the process that started this one
pub(crate) fn print_probe(args: &ProviderArgs) -> Result<()> {
    match &args.peer {
        Some(target) => Output::Json.print(&peer_probe::queue_pair(target), String::new),
        None => Output::Json.print(&ProviderProbe::run(), String::new),
    }
}

/// The platforms that reports have
const PLATFORMS: [&str; 3] = ["linux", "macos", "other"];

/// Reads a report, labelled with the path of its file
pub(crate) fn read(path: &Path) -> Result<Host> {
    let mut json = Vec::new();
    file::open(path)?
        .take(MAX_BYTES + 1)
        .read_to_end(&mut json)
        .with_context(|| at(path, "cannot be read"))?;
    if json.len() as u64 > MAX_BYTES {
        bail!(at(path, format_args!("is not a host report: it is longer than {MAX_BYTES} bytes")));
    }
    // The JSON error names line and column.
    let invalid = || at(path, "is not a host report");
    // Every key may be missing but this one: otherwise any other JSON would pass for a report.
    let keys: Map<String, Value> = serde_json::from_slice(&json).with_context(invalid)?;
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
    let report = HostReport::from_json(&json).with_context(invalid)?;
    Ok(Host::new(shown(path), report))
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
    let label = stem(&host.label).unwrap_or(&host.label);
    match &report.hardware_model {
        Some(model) => format!("{label}: {platform}, {model}"),
        None => format!("{label}: {platform}"),
    }
}
