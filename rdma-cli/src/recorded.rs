//! Host reports of this machine and from files

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::Read;
use std::path::Path;

use anyhow::{Context as _, Result, bail};
#[cfg(unix)]
use rdma_doctor::discover::provider_probe::{self, ProviderProbe};
use rdma_doctor::report::Platform;
use rdma_doctor::{Host, HostReport, collect};
use serde::Deserialize;

use crate::failure::at;
use crate::report::Output;

/// Longer than any report of a real host
const MAX_BYTES: u64 = 4 << 20;

/// Inspects this machine
pub(crate) fn this_machine() -> Host {
    let mut report = collect();
    #[cfg(unix)]
    if let Ok(program) = std::env::current_exe() {
        provider_probe::run_in_process(&mut report, program, &["provider"], PROBE_TIMEOUT);
    }
    Host::new("this machine", report)
}

/// The time after which a probe of the verbs provider is given up.
#[cfg(unix)]
const PROBE_TIMEOUT: std::time::Duration = std::time::Duration::from_secs(5);

/// Probes the verbs provider, for the process that started this one
pub(crate) fn print_probe() -> Result<()> {
    #[cfg(unix)]
    let probe = ProviderProbe::run();
    #[cfg(not(unix))]
    let probe = serde_json::json!({});
    Output::Json.print(&probe, String::new)
}

/// The key that every recorded report has: the others may be missing, and any other JSON object would pass
#[derive(Deserialize)]
struct Head {
    #[serde(rename = "platform")]
    _platform: Platform,
}

/// Reads a report, labelled with the path of its file
pub(crate) fn read(path: &Path) -> Result<Host> {
    let mut json = Vec::new();
    let file = File::open(path).with_context(|| at(path, "cannot be read"))?;
    file.take(MAX_BYTES + 1).read_to_end(&mut json).with_context(|| at(path, "cannot be read"))?;
    if json.len() as u64 > MAX_BYTES {
        bail!(at(path, format_args!("is not a host report: it is longer than {MAX_BYTES} bytes")));
    }
    // The JSON error names line and column.
    let invalid = || at(path, "is not a host report");
    let Head { .. } = serde_json::from_slice(&json).with_context(invalid)?;
    let report = serde_json::from_slice(&json).with_context(invalid)?;
    Ok(Host::new(path.display().to_string(), report))
}

/// Shortens the labels to file names without extension, if those differ
pub(crate) fn shorten(hosts: &mut [Host]) {
    let stem = |host: &Host| Some(Path::new(&host.label).file_stem()?.to_str()?.to_owned());
    let Some(stems) = hosts.iter().map(stem).collect::<Option<Vec<_>>>() else { return };
    if stems.iter().collect::<BTreeSet<_>>().len() == hosts.len() {
        for (host, stem) in hosts.iter_mut().zip(stems) {
            host.label = stem;
        }
    }
}

/// Writes a report as indented JSON
pub(crate) fn write(path: &Path, report: &HostReport) -> Result<()> {
    let json = serde_json::to_string_pretty(report)? + "\n";
    fs::write(path, json).with_context(|| at(path, "cannot be written"))
}

/// Label, system and model of a host
pub(crate) fn summary(host: &Host) -> String {
    let report = &host.report;
    let platform = match report.platform {
        Platform::Linux => "Linux".to_owned(),
        Platform::Macos => {
            format!("macOS {}", report.macos_version.as_deref().unwrap_or("of unknown version"))
        }
        _ => "unknown system".to_owned(),
    };
    match &report.hardware_model {
        Some(model) => format!("{}: {platform}, {model}", host.label),
        None => format!("{}: {platform}", host.label),
    }
}
