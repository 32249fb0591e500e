//! `tb5 doctor --from` on the recording of every failure of the field, and `--probe` over the simulated provider

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Output;

use rdma_doctor::FIELD_FAILURES;
use serde_json::Value;

use crate::support::{assert_code, assert_failed, json as object, keys, simulated_provider, stdout, tool};

fn composed() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../rdma-doctor/tests/fixtures/composed")
}

/// The recordings of both hosts; the right one is healthy unless the failure has its own
fn recordings(id: &str) -> [PathBuf; 2] {
    let folder = composed().join("field").join(id);
    let right = folder.join("right.json");
    [folder.join("left.json"), if right.exists() { right } else { composed().join("reports/right.json") }]
}

fn diagnosed(id: &str, args: &[&str]) -> Output {
    let [left, right] = recordings(id);
    tool().arg("doctor").args(args).arg("--from").arg(left).arg("--from").arg(right).output().unwrap()
}

/// The rows of findings that do not pass, with their remedies: a new check that passes changes no snapshot
fn problems(text: &str) -> String {
    let mut is_problem = false;
    let mut kept = Vec::new();
    for line in text.lines() {
        match line.split_whitespace().next() {
            Some("ok") => is_problem = false,
            Some("unknown" | "warn" | "fail") => is_problem = true,
            // A remedy is below its finding.
            Some("→") => {}
            _ => is_problem = false,
        }
        if is_problem {
            // Columns are as wide as their longest text, also in rows that pass.
            kept.push(line.split_whitespace().collect::<Vec<_>>().join(" "));
        }
    }
    kept.join("\n") + "\n"
}

#[test]
fn the_text_of_every_failure_is_as_recorded() {
    let mut wrong = Vec::new();
    for failure in FIELD_FAILURES {
        let output = diagnosed(failure.id, &[]);
        let text = problems(&stdout(&output));
        assert!(text.contains(failure.check), "{}: {text}", failure.id);
        let path = composed().join("field").join(failure.id).join("doctor.txt");
        if env::var_os("UPDATE_GOLDEN").is_some() {
            fs::write(&path, &text).unwrap();
        }
        if fs::read_to_string(&path).ok().as_deref() != Some(&text) {
            wrong.push(format!("{}:\n{text}", failure.id));
        }
    }
    assert!(wrong.is_empty(), "run with UPDATE_GOLDEN=1 if it should change\n{}", wrong.join("\n"));
}

#[test]
fn the_json_of_every_failure_has_the_promised_keys_types_and_exit_code() {
    let is_text = |value: &Value| value.as_str().is_some_and(|text| !text.trim().is_empty());
    for failure in FIELD_FAILURES {
        let output = diagnosed(failure.id, &["--json"]);
        let report = object(&output);
        assert_eq!(
            keys(&report),
            ["fail", "findings", "hosts", "ok", "recorded", "unknown", "verdict", "warn"]
        );
        let findings = report["findings"].as_array().unwrap();
        let mut worst = 0;
        let mut counts = [0; 4];
        for finding in findings {
            let promised = ["check", "evidence", "faults", "host", "remedy", "subject", "verdict"];
            assert_eq!(keys(finding), promised, "{finding}");
            assert!(is_text(&finding["check"]) && is_text(&finding["evidence"]), "{finding}");
            assert!(finding["faults"].as_array().unwrap().iter().all(Value::is_u64), "{finding}");
            for key in ["host", "subject", "remedy"] {
                assert!(finding[key].is_null() || is_text(&finding[key]), "{finding}");
            }
            let names = ["ok", "unknown", "warn", "fail"];
            let verdict = names.iter().position(|name| finding["verdict"] == *name).expect("a verdict");
            assert!(verdict < 2 || !finding["remedy"].is_null(), "{finding}");
            worst = worst.max(verdict);
            counts[verdict] += 1;
        }
        for (name, count) in ["ok", "unknown", "warn", "fail"].into_iter().zip(counts) {
            assert_eq!(report[name], count, "{}", failure.id);
        }
        assert!(worst >= 2, "{} is not seen", failure.id);
        assert_code(&output, i32::from(worst == 3));
    }
}

/// The tool over the simulated provider: hosts `a` and `b` with a cable between their first ports, or with it unplugged
fn probe(targets: &[String], faults: &str) -> Output {
    let mut command = tool();
    command.args(["doctor", "--json", "--probe"]).args(targets);
    command.env("RDMA_PROVIDER", simulated_provider()).env("RDMA_SIM_FAULTS", faults).output().unwrap()
}

/// The IPv4 address of the first port of a simulated host
fn address(host: &str) -> String {
    let mut command = tool();
    command.args(["devices", "--json"]).env("RDMA_PROVIDER", simulated_provider());
    let report = object(&command.output().unwrap());
    let devices = report["devices"].as_array().unwrap();
    let device = devices.iter().find(|device| device["name"] == format!("rdma_en2@{host}")).unwrap();
    let gids = device["ports"][0]["gids"].as_array().unwrap();
    let mapped = gids.iter().find_map(|gid| gid["gid"].as_str().unwrap().strip_prefix("::ffff:"));
    mapped.unwrap().to_owned()
}

fn found(output: &Output) -> Vec<(String, String, String)> {
    let report = object(output);
    let findings = report["findings"].as_array().unwrap().iter();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    findings
        .filter(|finding| finding["check"] == "queue_pair_probe")
        .map(|finding| (text(&finding["subject"]), text(&finding["verdict"]), text(&finding["evidence"])))
        .collect()
}

#[test]
fn a_queue_pair_each_way_gets_ready_to_receive_over_the_simulated_provider() {
    let [a, b] = ["a", "b"].map(address);
    let output = probe(&[format!("rdma_en2@a={b}"), format!("rdma_en2@b={a}")], "");
    let [there, back] = &found(&output)[..] else { panic!("{}", stdout(&output)) };
    assert_eq!((there.0.as_str(), there.1.as_str()), ("rdma_en2@a", "ok"), "{there:?}");
    assert_eq!((back.0.as_str(), back.1.as_str()), ("rdma_en2@b", "ok"), "{back:?}");
    // Every probe leaves the device as it was: a second one finds the same.
    let again = probe(&[format!("rdma_en2@a={b}"), format!("rdma_en2@b={a}")], "");
    assert_eq!(found(&again), found(&output));
}

#[test]
fn a_probe_names_the_step_that_failed() {
    let cases = [
        ("rdma_en2@a=169.254.250.250", "", "does not get ready to receive, error number 60"),
        ("rdma_en2@a=169.254.250.250", "at 0s a:rdma_en2 unplug", "was not created"),
        ("rdma_en9@a=169.254.250.250", "", "was not opened"),
    ];
    for (target, faults, expected) in cases {
        let output = probe(&[target.to_owned()], faults);
        let [(_, verdict, evidence)] = &found(&output)[..] else { panic!("{}", stdout(&output)) };
        assert_eq!(verdict, "fail", "{evidence}");
        assert!(evidence.contains(expected), "{evidence}");
        assert_code(&output, 1);
    }
}

#[test]
fn a_probe_without_a_known_peer_is_unknown_and_a_target_is_checked() {
    let output = probe(&[], "");
    let report = object(&output);
    let finding = report["findings"].as_array().unwrap().iter().find(|it| it["check"] == "local_network");
    assert_eq!(finding.unwrap()["verdict"], "unknown");
    for target in ["rdma_en4", "=192.168.30.2", "rdma_en4=fe80::1", "rdma_en4="] {
        assert_failed(&tb5!["doctor", "--probe", target], 2, &["rdma_en4=192.168.30.2"]);
    }
    let [left, _] = recordings("gid-hole");
    assert_failed(&tb5!["doctor", "--probe", "--from", left], 2, &["cannot be used with"]);
}
