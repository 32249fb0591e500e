//! Every check: where it fires, and where it does not

mod cases;
#[path = "../support/mod.rs"]
mod support;

use cases::{CASES, Change, findings, pair, speeds};
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
