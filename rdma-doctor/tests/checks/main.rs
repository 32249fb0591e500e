//! Every check: where it fires, and where it does not

mod cases;
#[path = "../support/mod.rs"]
mod support;

use cases::{CASES, Change, findings, pair, route, settings, speeds, waiting};
use rdma_doctor::report::{Platform, RdmaCtl};
use rdma_doctor::{CHECKS, Host, HostReport, Verdict, diagnose};

#[test]
fn each_case_has_its_verdict() {
    let mut wrong = Vec::new();
    for (number, &(id, expected, change)) in CASES.iter().enumerate() {
        let found = findings(id, change);
        let worst = found.iter().map(|finding| finding.verdict).max();
        if worst != Some(expected) {
            wrong.push(format!("case {number}, {id}: {expected} expected, {found:#?}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn every_check_has_a_case_that_passes_and_one_that_does_not() {
    for check in CHECKS {
        let has_case = |is_wanted: fn(Verdict) -> bool| {
            CASES.iter().any(|(id, verdict, _)| *id == check.id && is_wanted(*verdict))
        };
        let passes_unchanged = check.run(&pair()).iter().any(|finding| finding.verdict == Verdict::Ok);
        assert!(passes_unchanged || has_case(|verdict| verdict == Verdict::Ok), "{} never passes", check.id);
        assert!(has_case(|verdict| verdict >= Verdict::Warn), "{} never fires", check.id);
    }
}

#[test]
fn findings_have_evidence_and_bad_ones_a_remedy_in_one_sentence() {
    for &(id, _, change) in CASES {
        for finding in findings(id, change) {
            assert!(!finding.evidence.trim().is_empty(), "{finding:?}");
            let Some(remedy) = finding.remedy else {
                assert!(finding.verdict <= Verdict::Unknown, "{finding:?}");
                continue;
            };
            assert!(!remedy.contains(". ") && !remedy.ends_with('.'), "{finding:?}");
        }
    }
}

#[test]
fn two_macs_with_nothing_wrong_pass_every_check() {
    let diagnosis = diagnose(&pair());
    let others: Vec<_> = diagnosis.findings.iter().filter(|finding| finding.verdict != Verdict::Ok).collect();
    assert!(others.is_empty(), "{others:#?}");
    assert_eq!(diagnosis.verdict(), Verdict::Ok);
}

#[test]
fn one_report_alone_leaves_the_other_end_unknown() {
    let [left, _] = pair();
    let diagnosis = diagnose(&[left]);
    assert_eq!(diagnosis.verdict(), Verdict::Unknown);
    let open: Vec<_> = diagnosis.findings.iter().filter(|finding| finding.verdict != Verdict::Ok).collect();
    assert_eq!(open.len(), 1, "{open:#?}");
    assert_eq!(
        (open[0].check, open[0].subject.as_deref()),
        ("cable_ends", Some("left receptacle 3 (rdma_en4)"))
    );
}

#[test]
fn an_empty_report_of_a_mac_is_unknown_and_never_ok() {
    let mut report = HostReport::default();
    report.platform = Platform::Macos;
    let diagnosis = diagnose(&[Host::new("blank", report)]);
    assert!(diagnosis.findings.iter().all(|finding| finding.verdict == Verdict::Unknown), "{diagnosis:#?}");
    assert!(!diagnosis.findings.is_empty());
}

#[test]
fn a_missing_restart_and_thunderbolt_4_have_different_remedies() {
    let remedy = |change: Change| {
        let found = findings("verbs_devices", change);
        found.into_iter().find(|finding| finding.verdict == Verdict::Fail).unwrap().remedy.unwrap()
    };
    assert!(remedy(|h| h[0].report.devices = Some(Vec::new())).starts_with("restart the Mac"));
    assert!(
        remedy(|h| {
            h[0].report.devices = Some(Vec::new());
            speeds(h, "40 Gb/s", "Up to 40 Gb/s");
        })
        .contains("Thunderbolt 5")
    );
    assert!(
        remedy(|h| {
            h[0].report.devices = Some(Vec::new());
            h[0].report.rdma_ctl = RdmaCtl::Disabled;
        })
        .contains("rdma_ctl enable")
    );
}

#[test]
fn checks_about_macos_find_nothing_on_linux() {
    let mut report = HostReport::default();
    report.platform = Platform::Linux;
    report.devices = Some(Vec::new());
    let without = diagnose(&[Host::new("linux", report.clone())]);
    let [finding] = &without.findings[..] else { panic!("{without:#?}") };
    assert_eq!((finding.check, finding.verdict), ("verbs_devices", Verdict::Fail));

    let json = r#"[{"name": "rxe0", "ports": [{"number": 1, "state": "PORT_ACTIVE",
        "gids": [{"index": 0, "gid": "fe80::1"}]}, {"number": 2, "state": "PORT_DOWN"}]}]"#;
    report.devices = Some(serde_json::from_str(json).unwrap());
    let with = diagnose(&[Host::new("linux", report)]);
    let seen: Vec<_> = with.findings.iter().map(|finding| (finding.check, finding.verdict)).collect();
    let expected = [
        ("verbs_devices", Verdict::Ok),
        ("port_state", Verdict::Ok),
        ("port_state", Verdict::Warn),
        ("gid_table", Verdict::Ok),
    ];
    assert_eq!(seen, expected);
}

/// The evidence and the remedies of the findings of a check
fn words(id: &str, change: Change) -> (String, String) {
    let found = findings(id, change);
    let evidence: Vec<_> = found.iter().map(|finding| finding.evidence.as_str()).collect();
    let remedies: Vec<_> = found.iter().filter_map(|finding| finding.remedy).collect();
    (evidence.join("; "), remedies.join("; "))
}

/// Breaks if the user is told to pull the cable of a process that may be at work.
#[test]
fn a_process_that_waits_once_is_not_to_be_replugged() {
    let (evidence, remedy) = words("stuck_processes", |h| waiting(h, 412, "U", "ibv_devinfo"));
    assert!(evidence.contains("state U"), "{evidence}");
    assert!(!remedy.contains("replug") && remedy.contains("run this again"), "{remedy}");
    assert!(words("stuck_processes", |h| waiting(h, 412, "UE", "python3")).1.contains("replug"));
}

/// Breaks if a missing route is to be changed, or a default route: `route change` adds no entry.
#[test]
fn a_missing_route_is_added_and_another_one_is_not_changed() {
    let (_, missing) = words("routes", |h| route(h).interface = None);
    assert!(missing.contains("route add -host") && !missing.contains("route change"), "{missing}");
    let (_, other) = words("routes", |h| route(h).interface = Some("en0".into()));
    assert!(other.starts_with("give ") && !other.contains("route change"), "{other}");
}

/// Breaks if the words of the kernel, which are assumed, are taken for the state of the link.
#[test]
fn a_log_without_messages_is_no_link_that_stayed_up() {
    let (evidence, _) = words("link_flaps", |_| ());
    assert!(evidence.contains("no `link down` message was logged"), "{evidence}");
}

/// Breaks if a daemon that is not loaded is to be booted out, which fails.
#[test]
fn only_a_loaded_daemon_is_booted_out() {
    let (_, left_behind) = words("exo_daemon", |h| settings(h).location = Some("exo".into()));
    assert!(!left_behind.contains("bootout") && left_behind.contains("location"), "{left_behind}");
    let (_, loaded) = words("exo_daemon", |h| h[0].report.exo_daemon.as_mut().unwrap().is_loaded = true);
    assert!(loaded.contains("bootout"), "{loaded}");
}

/// Breaks if a host without a single readable report looks like one whose reports were all read.
#[test]
fn the_number_of_reports_that_were_read_is_evidence() {
    let (evidence, _) = words("incidents", |h| h[0].report.incident_reports = Some(7));
    assert!(evidence.contains("were read: 7; none names RDMA"), "{evidence}");
}
