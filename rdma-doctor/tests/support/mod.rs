//! The composed outputs of two Macs, healthy and with the failures of the field

#![allow(dead_code, reason = "each test uses some of it")]

use std::fs;
use std::path::{Path, PathBuf};

use rdma_doctor::discover::{Captured, Outputs, Tool};
use rdma_doctor::report::Outcome;
use rdma_doctor::{Host, HostReport, parse};

/// The folder of the composed outputs
pub(crate) fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/composed")
}

/// The text of a fixture
pub(crate) fn fixture(name: &str) -> String {
    read(&folder().join(name))
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Where the output of a tool is kept: the name of its program, or what it reads if several tools are one program
fn file_name(tool: Tool) -> String {
    match tool {
        Tool::Memory => "memsize.txt".to_owned(),
        Tool::NetworkSettings => "plutil.json".to_owned(),
        Tool::SystemProfiler => "system_profiler.json".to_owned(),
        other => format!("{}.txt", other.command()[0].rsplit('/').next().unwrap()),
    }
}

/// The outputs of all tools on `left` or `right`
pub(crate) fn outputs(host: &str) -> Outputs {
    let mut outputs = Outputs::default();
    overlay(&mut outputs, &folder().join(host));
    assert_eq!(outputs.tools.len(), Tool::ALL.len());
    outputs
}

/// Replaces the outputs that the folder has
///
/// `route-ADDRESS.txt` is an output of `route`, `incident-*` a report of a panic or a crash, and `owners.txt` has the processes that
/// the I/O Registry lists. `outcomes.txt` says how tools ended that did not succeed, by the name of their file.
fn overlay(outputs: &mut Outputs, folder: &Path) {
    for tool in Tool::ALL {
        let path = folder.join(file_name(tool));
        if path.exists() {
            *outputs = std::mem::take(outputs).with(tool, read(&path));
        }
    }
    let mut incidents = Vec::new();
    for name in names(folder) {
        let path = folder.join(&name);
        if let Some(address) = name.strip_prefix("route-").and_then(|rest| rest.strip_suffix(".txt")) {
            let captured = Captured { outcome: Outcome::Done, stdout: read(&path), stderr: String::new() };
            outputs.routes.insert(address.parse().unwrap(), captured);
        } else if name.starts_with("incident-") {
            incidents.push(parse::incident(&read(&path)).unwrap_or_else(|| panic!("{name} names nothing")));
        } else if name == "owners.txt" {
            outputs.owners = Some(read(&path).lines().map(str::to_owned).collect());
        }
    }
    if !incidents.is_empty() || outputs.incidents.is_none() {
        outputs.incident_reports = Some(incidents.len().try_into().unwrap());
        outputs.incidents = Some(incidents);
    }
    let outcomes = folder.join("outcomes.txt");
    for line in outcomes.exists().then(|| read(&outcomes)).iter().flat_map(|text| text.lines()) {
        let (name, outcome) = line.split_once(' ').unwrap();
        let tool = Tool::ALL.into_iter().find(|&tool| file_name(tool) == name).unwrap();
        let captured = outputs.tools.get_mut(&tool).unwrap();
        captured.outcome = serde_json::from_str(&format!("{outcome:?}")).unwrap();
        assert_ne!(captured.outcome, Outcome::Unknown, "{line}");
        if matches!(captured.outcome, Outcome::Absent | Outcome::Hung) {
            captured.stdout.clear();
        }
    }
}

/// The names in a folder, sorted
pub(crate) fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

/// The folder of a failure of the field
pub(crate) fn field(id: &str) -> PathBuf {
    folder().join("field").join(id)
}

/// Both Macs with a failure of the field: the healthy pair, and what the folder of the failure replaces
pub(crate) fn failing_pair(id: &str) -> [Host; 2] {
    ["left", "right"].map(|name| Host::new(name, failing(id, name)))
}

fn failing(id: &str, host: &str) -> HostReport {
    let folder = field(id).join(host);
    let mut outputs = outputs(host);
    if folder.exists() {
        overlay(&mut outputs, &folder);
    }
    let mut report = outputs.report();
    let probes = folder.join("peer_probes.json");
    if probes.exists() {
        report.peer_probes = serde_json::from_str(&read(&probes)).unwrap();
    }
    report
}
