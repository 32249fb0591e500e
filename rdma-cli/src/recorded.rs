//! Host reports of this machine and from files

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use rdma_tb5::discover::{self, HostReport};
use rdma_tb5::preflight::Host;

use crate::Failure;
use crate::report::Output;

/// Longer than any report of a real host
const MAX_BYTES: u64 = 4 << 20;

/// A report that cannot be read or written
#[derive(Debug, thiserror::Error)]
#[error("{}: {reason}", path.display())]
pub(crate) struct RecordError {
    path: PathBuf,
    reason: Reason,
}

#[derive(Debug, thiserror::Error)]
enum Reason {
    #[error("cannot be {verb}: {error}")]
    Io { verb: &'static str, error: io::Error },
    #[error("is not a host report: it is longer than {MAX_BYTES} bytes")]
    Long,
    // The JSON error names line and column.
    #[error("is not a host report: {0}")]
    NoReport(serde_json::Error),
}

impl RecordError {
    fn new(path: &Path, reason: Reason) -> Self {
        Self { path: path.to_owned(), reason }
    }

    fn io(path: &Path, verb: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |error| Self::new(path, Reason::Io { verb, error })
    }
}

/// Inspects this machine
pub(crate) fn this_machine() -> Host {
    let mut report = discover::collect();
    #[cfg(unix)]
    if let Ok(program) = std::env::current_exe() {
        discover::provider::ask(&mut report, program, &["provider"], PATIENCE);
    }
    Host::new("this machine", report)
}

/// Time that the verbs provider has to list its devices.
#[cfg(unix)]
const PATIENCE: std::time::Duration = std::time::Duration::from_secs(5);

/// Prints the devices of the verbs provider for the parent process
pub(crate) fn print_answer() -> Result<(), Failure> {
    #[cfg(unix)]
    let answer = discover::provider::Answer::of_this_process();
    #[cfg(not(unix))]
    let answer = serde_json::json!({});
    Output::Json.print(&answer, String::new)
}

/// Reads a report, labelled with the path of its file
pub(crate) fn read(path: &Path) -> Result<Host, RecordError> {
    let mut json = Vec::new();
    let file = File::open(path).map_err(RecordError::io(path, "read"))?;
    file.take(MAX_BYTES + 1).read_to_end(&mut json).map_err(RecordError::io(path, "read"))?;
    if json.len() as u64 > MAX_BYTES {
        return Err(RecordError::new(path, Reason::Long));
    }
    let report =
        serde_json::from_slice(&json).map_err(|error| RecordError::new(path, Reason::NoReport(error)))?;
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
pub(crate) fn write(path: &Path, report: &HostReport) -> Result<(), RecordError> {
    let mut json = serde_json::to_string_pretty(report)
        .map_err(|error| RecordError::new(path, Reason::Io { verb: "written", error: error.into() }))?;
    json.push('\n');
    fs::write(path, json).map_err(RecordError::io(path, "written"))
}

/// Label, system and model of a host
pub(crate) fn summary(host: &Host) -> String {
    let report = &host.report;
    let platform = match report.platform {
        discover::Platform::Linux => "Linux".to_owned(),
        discover::Platform::Macos => {
            format!("macOS {}", report.macos_version.as_deref().unwrap_or("of unknown version"))
        }
        _ => "unknown system".to_owned(),
    };
    match &report.hardware_model {
        Some(model) => format!("{}: {platform}, {model}", host.label),
        None => format!("{}: {platform}", host.label),
    }
}
