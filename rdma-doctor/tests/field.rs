//! Every failure of the field: its recorded outputs, its report, its finding, and the page that lists all of them

mod support;

use std::collections::BTreeSet;
use std::env;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use rdma_doctor::{CHECKS, FIELD_FAILURES, FieldFailure, Finding, Host, HostReport, Verdict, diagnose};
use support::{failing_pair, field, folder, names};

/// Compares with a file, or writes it if `UPDATE_GOLDEN` is set
fn assert_golden(path: &Path, text: &str) {
    if env::var_os("UPDATE_GOLDEN").is_some() {
        fs::write(path, text).unwrap();
    }
    let kept = fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    assert!(text == kept, "{} differs; run with UPDATE_GOLDEN=1 if it should change", path.display());
}

/// The findings of the check that explains a failure, without those that pass
fn explanation(failure: &FieldFailure) -> Vec<Finding> {
    let findings = diagnose(&failing_pair(failure.id)).findings;
    findings.into_iter().filter(|it| it.check == failure.check && it.verdict >= Verdict::Warn).collect()
}

/// The reports that show a failure, by their paths from the folder of all failures: that of one Mac, or both if the check compares them
fn recordings(failure: &FieldFailure) -> String {
    let id = failure.id;
    let file = |host: &Host| {
        let of_failure = format!("{id}/{}.json", host.label);
        if field(&of_failure).exists() { of_failure } else { format!("../reports/{}.json", host.label) }
    };
    let is_shown = |it: &Finding| it.check == failure.check && it.verdict >= Verdict::Warn;
    let pair = failing_pair(id);
    let shows_it = |host: &&Host| diagnose(std::slice::from_ref(*host)).findings.iter().any(is_shown);
    let files: Vec<_> = match pair.iter().find(shows_it) {
        Some(host) => vec![file(host)],
        None => pair.iter().map(file).collect(),
    };
    assert!(files.iter().all(|file| field(file).exists()), "{files:?}");
    files.iter().map(|file| format!("`{file}`")).collect::<Vec<_>>().join(" ")
}

#[test]
fn every_failure_has_a_folder_and_every_folder_a_failure() {
    let ids: BTreeSet<_> = FIELD_FAILURES.iter().map(|failure| failure.id.to_owned()).collect();
    assert_eq!(ids.len(), FIELD_FAILURES.len(), "an id is used twice");
    assert_eq!(ids.into_iter().collect::<Vec<_>>(), names(&folder().join("field")));
    assert!(FIELD_FAILURES.len() >= 25);
}

#[test]
fn every_failure_is_explained_by_its_check_with_evidence_and_a_remedy() {
    for failure in FIELD_FAILURES {
        assert!(CHECKS.iter().any(|check| check.id == failure.check), "{failure:?}");
        let found = explanation(failure);
        let [first, ..] = &found[..] else {
            panic!("{failure:?}: {:#?}", diagnose(&failing_pair(failure.id)))
        };
        assert!(!first.evidence.is_empty() && first.remedy.is_some(), "{first:?}");
        assert!(!failure.symptom.is_empty() && !failure.source.is_empty(), "{failure:?}");
    }
}

#[test]
fn the_reports_in_the_folders_are_those_of_the_outputs() {
    for failure in FIELD_FAILURES {
        for host in failing_pair(failure.id) {
            let has_outputs = field(failure.id).join(&host.label).exists();
            if !has_outputs && host.label == "right" {
                continue;
            }
            let json = serde_json::to_string(&host.report).unwrap() + "\n";
            assert_golden(&field(failure.id).join(format!("{}.json", host.label)), &json);
            assert_eq!(serde_json::from_str::<HostReport>(&json).unwrap(), host.report);
        }
    }
}

/// A command that fails or hangs tells nothing: every check that needs its output must answer `unknown`, never `ok`.
#[test]
fn without_the_output_of_a_tool_no_check_passes_that_needs_it() {
    use rdma_doctor::discover::Tool;
    use rdma_doctor::report::Outcome;

    let needs: [(Tool, &[&str]); 22] = [
        (Tool::SwVers, &["macos_version", "message_limit"]),
        (Tool::Sysctl, &[]),
        (Tool::RdmaCtl, &["rdma_enabled"]),
        (Tool::SystemProfiler, &["thunderbolt_5", "cable", "link_speed"]),
        (Tool::SystemProfilerText, &["rdma_service"]),
        (Tool::Networksetup, &["bridge", "subnets", "thunderbolt_ip", "lasting_bridge"]),
        (Tool::Ifconfig, &["bridge", "subnets", "thunderbolt_ip"]),
        (Tool::IbvDevices, &[]),
        (Tool::IbvDevinfo, &["driver", "port_state", "gid_table", "gid_holes", "device_limits"]),
        (Tool::Ioclasscount, &["protection_domains", "queue_pairs"]),
        (Tool::Pmset, &["idle_sleep"]),
        (Tool::Arp, &["neighbours"]),
        (Tool::Ndp, &[]),
        (Tool::NetworkSettings, &["lasting_addresses", "lasting_bridge"]),
        (Tool::Launchctl, &["exo_daemon"]),
        (Tool::Firewall, &["firewall"]),
        (Tool::Ps, &["stuck_processes"]),
        (Tool::IoregPorts, &["port_owners"]),
        (Tool::Uptime, &["uptime"]),
        (Tool::Memory, &["wired_memory"]),
        (Tool::VmStat, &["wired_memory"]),
        (Tool::KernelLog, &["link_flaps", "failed_connects"]),
    ];
    assert_eq!(needs.map(|(tool, _)| tool).into_iter().collect::<BTreeSet<_>>(), Tool::ALL.into());
    for (tool, checks) in needs {
        for outcome in [Outcome::Absent, Outcome::Failed, Outcome::Hung] {
            let outputs = support::outputs("left").with_outcome(tool, outcome);
            let diagnosis = diagnose(&[Host::new("left", outputs.report())]);
            for id in checks {
                let passes = |it: &&Finding| it.check == *id && it.verdict == Verdict::Ok;
                let passed = diagnosis.findings.iter().find(passes);
                assert_eq!(passed, None, "{tool} ended as {outcome:?}");
            }
        }
    }
    for (id, change) in [
        ("routes", (|outputs| outputs.routes.clear()) as fn(&mut rdma_doctor::discover::Outputs)),
        ("incidents", |outputs| outputs.incidents = None),
    ] {
        let mut outputs = support::outputs("left");
        change(&mut outputs);
        let diagnosis = diagnose(&[Host::new("left", outputs.report())]);
        let verdicts: Vec<_> =
            diagnosis.findings.iter().filter(|it| it.check == id).map(|it| it.verdict).collect();
        assert_eq!(verdicts, [Verdict::Unknown], "{id}");
    }
}

#[test]
fn the_page_lists_every_failure_with_evidence_remedy_and_source() {
    let mut page = String::from(
        "# Troubleshooting by symptom\n\n\
         Written by a test from the catalogue of `rdma-doctor`: `UPDATE_GOLDEN=1 cargo test -p rdma-doctor --test field`.\n\n\
         Each row is a failure that users reported, with the evidence that `tb5 doctor` prints for it. The recordings are composed from\n\
         these reports; none was made on a Mac by this project. `tb5 doctor --from FILE` reads them, from the folder\n\
         `rdma-doctor/tests/fixtures/composed/field/`; where two files stand, the check compares both Macs, and the command needs\n\
         `--from FILE` for each. Checks that begin a probe need `tb5 doctor --probe`.\n\n\
         | symptom | verdict | check | evidence | remedy | source | recording |\n|---|---|---|---|---|---|---|\n",
    );
    for failure in FIELD_FAILURES {
        let found = &explanation(failure)[0];
        let place: String = found.subject.iter().map(|subject| format!("{subject}: ")).collect();
        let cell = |text: &str| text.replace('|', "\\|");
        let FieldFailure { symptom, check, source, .. } = failure;
        writeln!(
            page,
            "| {} | {} | `{check}` | {} | {} | {} | {} |",
            cell(symptom),
            found.verdict,
            cell(&format!("{place}{}", found.evidence)),
            cell(found.remedy.unwrap()),
            cell(source),
            recordings(failure),
        )
        .unwrap();
    }
    assert_golden(
        &Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/troubleshooting-by-symptom.md"),
        &page,
    );
}
