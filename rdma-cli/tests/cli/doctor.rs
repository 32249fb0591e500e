//! `tb5 devices` and `tb5 doctor`, on this machine and on composed reports of others

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Output;

use serde_json::{Value, json};

use crate::support::{
    Folder, assert_code, assert_failed, assert_refused, json as object, keys, simulated_provider, stderr,
    stdout, tool,
};

/// A composed report of the fixtures of `rdma-doctor`
fn composed(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join(format!("../rdma-doctor/tests/fixtures/composed/reports/{name}.json"))
}

/// A composed report with a change, as a file
fn changed(folder: &Folder, name: &str, change: impl FnOnce(&mut Value)) -> PathBuf {
    let mut report: Value = serde_json::from_slice(&fs::read(composed(name)).unwrap()).unwrap();
    change(&mut report);
    folder.write(&format!("{name}.json"), report.to_string())
}

/// Findings of a check, from the output of `doctor --json`
fn found<'a>(report: &'a Value, check: &str) -> Vec<&'a Value> {
    report["findings"].as_array().unwrap().iter().filter(|finding| finding["check"] == check).collect()
}

#[test]
fn this_machine_is_inspected() {
    let devices = tb5!["devices", "--json"];
    assert_code(&devices, 0);
    let devices = object(&devices);
    assert_eq!(keys(&devices), ["devices", "platform", "rdma", "source"]);
    assert!(tb5!["devices"].status.success());
    let doctor = tb5!["doctor", "--json"];
    let failed = object(&doctor)["fail"] != 0;
    assert_eq!(doctor.status.code(), Some(i32::from(failed)), "{}", stderr(&doctor));
    if devices["rdma"] == false {
        assert!(stdout(&tb5!["devices"]).ends_with("\nno RDMA devices\n"));
        let doctor = tb5!["doctor"];
        assert!(stdout(&doctor).contains("this machine has no RDMA\n"));
        assert_eq!((doctor.status.code(), stderr(&doctor).as_str()), (Some(1), ""));
    }
}

#[test]
fn a_recorded_report_is_diagnosed_like_the_machine() {
    let folder = Folder::new();
    let path = folder.path("here.json");
    let here = object(&tb5!["doctor", "--json", "--record", &path]);
    assert_eq!(here["recorded"], json!(path));
    let there = object(&tb5!["doctor", "--json", "--from", &path]);
    assert_eq!(here["verdict"], there["verdict"]);
    let evidence = |report: &Value| -> Vec<Value> {
        report["findings"].as_array().unwrap().iter().map(|finding| finding["evidence"].clone()).collect()
    };
    assert_eq!(evidence(&here), evidence(&there));
    assert_eq!(object(&tb5!["devices", "--json", "--from", &path])["platform"], here["hosts"][0]["platform"]);
}

#[test]
fn devices_are_listed_with_their_cables_and_peers() {
    let left = composed("left");
    let report = object(&tb5!["devices", "--json", "--from", &left]);
    assert_eq!(report["rdma"], true);
    let device = &report["devices"][2];
    assert_eq!((&device["name"], &device["interface"]), (&json!("rdma_en4"), &json!("en4")));
    assert_eq!((&device["receptacle"], &device["speed"]), (&json!(3), &json!("80 Gb/s")));
    assert_eq!(device["peers"][0]["name"], "Mac Studio");
    assert_eq!(device["ports"][0]["gids"][1], json!({"index": 1, "gid": "::ffff:192.168.30.1"}));
    let text = stdout(&tb5!["devices", "--from", &left]);
    let row = text.lines().find(|line| line.contains("rdma_en4")).unwrap();
    for word in ["PORT_ACTIVE", "80 Gb/s", "Mac Studio", "::ffff:192.168.30.1"] {
        assert!(row.contains(word), "{row}");
    }
}

#[test]
fn two_healthy_macs_pass() {
    let [left, right] = ["left", "right"].map(composed);
    let output = tb5!["doctor", "--json", "--from", &left, "--from", &right];
    assert_code(&output, 0);
    let report = object(&output);
    let promised = ["fail", "findings", "hosts", "ok", "recorded", "unknown", "verdict", "warn"];
    assert_eq!(keys(&report), promised);
    assert_eq!(report["verdict"], "ok");
    let promised = ["hardware_model", "host", "macos_build", "macos_version", "platform"];
    assert_eq!(keys(&report["hosts"][0]), promised);
    let promised = ["check", "evidence", "faults", "host", "remedy", "subject", "verdict"];
    assert_eq!(keys(&report["findings"][0]), promised);
    let cable = found(&report, "cable_ends")[0];
    assert_eq!(cable["subject"], "left receptacle 3 (rdma_en4)");
    assert_eq!(cable["evidence"], "right receptacle 2 (rdma_en3)");
    let text = stdout(&tb5!["doctor", "--from", &left, "--from", &right]);
    assert!(text.ends_with("0 unknown, 0 warn, 0 fail)\n") && text.contains("verdict: ok"), "{text}");
}

#[test]
fn a_single_report_is_not_a_failure() {
    let output = tb5!["doctor", "--from", composed("left")];
    assert_code(&output, 0);
    assert!(stdout(&output).contains("→ record a report there"), "{}", stdout(&output));
}

#[test]
fn a_failed_check_prints_its_remedy_and_fails_the_command() {
    let folder = Folder::new();
    let path = changed(&folder, "left", |report| report["rdma_ctl"] = "disabled".into());
    let output = tb5!["doctor", "--from", &path];
    assert_eq!((output.status.code(), stderr(&output).as_str()), (Some(1), ""));
    let text = stdout(&output);
    assert!(
        text.contains("rdma_ctl status: disabled") && text.contains("→ start the Mac in Recovery"),
        "{text}"
    );
    let report = object(&tb5!["doctor", "--json", "--from", &path]);
    assert_eq!(found(&report, "rdma_enabled")[0]["verdict"], "fail");
}

#[test]
fn a_warning_is_not_a_failure() {
    let folder = Folder::new();
    let path = changed(&folder, "left", |report| report["idle_sleep_minutes"] = 10.into());
    let output = tb5!["doctor", "--json", "--from", &path];
    assert_code(&output, 0);
    assert_eq!(object(&output)["verdict"], "warn");
}

#[test]
fn a_moved_cable_and_different_versions_are_reported() {
    let folder = Folder::new();
    let left = changed(&folder, "left", |report| report["macos_version"] = "26.4".into());
    let right = changed(&folder, "right", |report| {
        let buses = report["thunderbolt"].as_array_mut().unwrap();
        let peer = buses[1]["peers"].take();
        (buses[1]["peers"], buses[2]["peers"]) = (json!([]), peer);
    });
    let output = tb5!["doctor", "--json", "--from", &left, "--from", &right];
    assert_code(&output, 1);
    let report = object(&output);
    assert_eq!(found(&report, "cable_ends")[0]["verdict"], "fail");
    assert_eq!(found(&report, "same_macos")[0]["verdict"], "warn");
}

#[test]
fn reports_of_the_same_file_name_are_labelled_with_their_paths() {
    let folder = Folder::new();
    let _folders = ["a", "b"].map(|name| folder.directory(name));
    let [a, b] = [("left", "a/mac.json"), ("right", "b/mac.json")]
        .map(|(name, path)| folder.write(path, fs::read(composed(name)).unwrap()));
    let report = object(&tb5!["doctor", "--json", "--from", &a, "--from", &b]);
    assert_eq!((&report["hosts"][0]["host"], &report["hosts"][1]["host"]), (&json!(a), &json!(b)));

    // Regression: both summaries named `mac`, and those of `mac.v1` and `mac.v2`, too.
    let versions = ["mac.v1", "mac.v2"]
        .map(|name| folder.write(&format!("{name}.json"), fs::read(composed("left")).unwrap()));
    for ([one, other], labels) in [
        ([&a, &b], [&a, &b].map(|path| path.display().to_string())),
        (versions.each_ref(), ["mac.v1", "mac.v2"].map(str::to_owned)),
    ] {
        let text = stdout(&tb5!["doctor", "--from", one, "--from", other]);
        assert!(labels.iter().all(|label| text.contains(&format!("{label}: macOS"))), "{text}");
    }
}

#[test]
fn invalid_reports_are_refused_with_file_and_line() {
    let folder = Folder::new();
    let cases = [
        (folder.write("type.json", "{\n \"platform\": \"macos\",\n \"devices\": 7\n}"), "line 3"),
        (folder.write("cut.json", "{\n \"devices\": ["), "line 2"),
        (folder.write("empty.json", ""), "line 1"),
        (folder.write("bytes.json", b"\xff\xfe{}"), "is not UTF-8 text: line 1"),
        (
            folder
                .write("gid.json", "{\"platform\":\"macos\",\"devices\":[{\"ports\":[{\"gids\":[{\"index\":0,\"gid\":\"x\"}]}]}]}"),
            "line 1",
        ),
        (folder.write("deep.json", "{\"new\":".to_owned() + &"[".repeat(10_000)), "line 1"),
        (folder.write("long.json", " ".repeat((4 << 20) + 1)), "longer"),
        (folder.path("absent.json"), "cannot be read"),
        (folder.path(""), "cannot be read"),
    ];
    for (path, why) in cases {
        for command in ["devices", "doctor"] {
            let output = tb5![command, "--from", &path];
            assert_refused(&output, &path, why);
            assert!(output.stdout.is_empty());
        }
    }
}

#[test]
fn a_report_that_cannot_be_written_is_named() {
    let folder = Folder::new();
    let path = folder.path("no/such/folder.json");
    assert_refused(&tb5!["doctor", "--record", &path], &path, "cannot be written");
}

/// Catches a Mac that is compared with itself.
#[test]
fn a_report_that_is_given_twice_is_refused() {
    let left = composed("left");
    let why = format!("two hosts are called {}: give one of them another name", left.display());
    assert_failed(&tb5!["doctor", "--from", &left, "--from", &left], 2, &[&why]);
    assert_failed(&tb5!["topo", "discover", &left, &left], 2, &[&why]);
}

#[test]
fn empty_and_newer_reports_are_read() {
    let folder = Folder::new();
    let blank = folder.write("blank.json", r#"{"platform": "macos"}"#);
    let newer = folder.write("newer.json", r#"{"platform": "macos", "wormholes": [{"to": "Mars"}]}"#);
    for path in [blank, newer] {
        let output = tb5!["doctor", "--json", "--from", &path];
        assert_code(&output, 0);
        assert_eq!(object(&output)["verdict"], "unknown");
        let text = stdout(&tb5!["devices", "--from", &path]);
        let remedy = format!("could not be listed: try `tb5 doctor --from {}`", path.display());
        assert!(text.contains(&remedy), "{text}");
    }
}

/// Regression: any JSON object passed as a report of which nothing is known, a trace of the simulator among them; a list of texts
/// passed for the fields in their order, and an image of a container for a report of its platform.
#[test]
fn other_json_is_no_report() {
    let folder = Folder::new();
    let diagnosis = stdout(&tb5!["doctor", "--json", "--from", composed("left")]);
    for (text, why) in [
        ("{}", "missing field `platform`"),
        (r#"{"traceEvents": []}"#, "missing field `platform`"),
        (diagnosis.as_str(), "missing field `platform`"),
        (r#"["hello"]"#, "expected a map"),
        ("7", "expected a map"),
        ("null", "expected a map"),
        (r#"{"platform": "linux/arm64"}"#, "not one of linux, macos, other"),
        (r#"{"platform": 7}"#, "not one of linux, macos, other"),
    ] {
        let path = folder.write("other.json", text);
        for command in ["doctor", "devices"] {
            assert_refused(&tb5![command, "--from", &path], &path, why);
        }
    }
}

#[test]
fn control_characters_of_a_report_are_not_printed() {
    let folder = Folder::new();
    let path = changed(&folder, "left", |report| {
        report["hardware_model"] = "\u{1b}[31mMac\r".into();
        report["thunderbolt"][0]["peers"][0]["name"] = "\u{1b}]0;title\u{7}".into();
        report["devices"][0]["name"] = "rdma_en2\u{1b}[2J".into();
    });
    for command in ["devices", "doctor"] {
        let text = stdout(&tb5![command, "--from", &path]);
        assert!(text.chars().all(|c| c == '\n' || !c.is_control()), "{text:?}");
    }
}

/// The tool, with the verbs library at `provider`
fn with_provider(provider: &Path, args: &[&str]) -> Output {
    let mut command = tool();
    command.args(args).env("RDMA_PROVIDER", provider).env("RDMA_SIM_FAULTS", "at 0s a:rdma_en3 unplug");
    command.output().unwrap()
}

#[test]
fn devices_of_the_provider_are_listed_with_limits_ports_and_gids() {
    let output = with_provider(&simulated_provider(), &["devices", "--json"]);
    assert_code(&output, 0);
    let report = object(&output);
    assert_eq!(report["rdma"], true);
    let devices = report["devices"].as_array().unwrap();
    let device = devices.iter().find(|device| device["name"] == "rdma_en2@a").expect("the device is listed");
    assert_eq!((&device["max_qp"], &device["max_mr"]), (&json!(11), &json!(100)));
    let port = &device["ports"][0];
    assert_eq!((&port["state"], &port["active_width"]), (&json!("PORT_ACTIVE"), &json!("8X (4)")));
    assert_eq!((&port["active_mtu"], &port["link_layer"]), (&json!(4096), &json!("Thunderbolt")));
    let gid = port["gids"][1]["gid"].as_str().unwrap();
    assert!(gid.starts_with("::ffff:169.254."), "{gid}");
    let idle = devices.iter().find(|device| device["name"] == "rdma_en3@a").unwrap();
    assert_eq!(idle["ports"][0]["state"], "PORT_DOWN");
    let text = stdout(&with_provider(&simulated_provider(), &["devices"]));
    assert!(text.contains("PORT_ACTIVE") && text.contains(gid), "{text}");
    let doctor = object(&with_provider(&simulated_provider(), &["doctor", "--json"]));
    let provider = found(&doctor, "provider")[0];
    assert_eq!((&provider["verdict"], &provider["evidence"]), (&json!("ok"), &json!(simulated_provider())));
    assert_eq!(found(&doctor, "verbs_devices")[0]["verdict"], "ok");
}

/// Loading a pipe without a writer never ends.
#[test]
fn a_provider_that_hangs_is_given_up_after_five_seconds() {
    let output = with_provider(&Folder::new().pipe("pipe"), &["doctor", "--json"]);
    let report = object(&output);
    let provider = found(&report, "provider")[0];
    assert_eq!(provider["verdict"], "unknown");
    assert_eq!(provider["evidence"], "no answer within 5 s");
    assert_eq!(found(&report, "verbs_devices")[0]["verdict"], "unknown");
}

#[test]
fn a_missing_or_foreign_provider_is_named() {
    let folder = Folder::new();
    let absent = folder.path("absent.so");
    let output = with_provider(&absent, &["doctor", "--json"]);
    assert_code(&output, 1);
    let report = object(&output);
    let evidence = found(&report, "verbs_devices")[0]["evidence"].as_str().unwrap();
    let expected = format!("RDMA_PROVIDER names {}, which cannot be loaded: ", absent.display());
    assert!(evidence.starts_with(&expected), "{evidence}");
    let devices = with_provider(&absent, &["devices"]);
    assert_code(&devices, 0);
    if cfg!(target_os = "linux") {
        let output = with_provider(Path::new("libm.so.6"), &["doctor", "--json"]);
        assert_code(&output, 1);
        let report = object(&output);
        let evidence = found(&report, "verbs_devices")[0]["evidence"].as_str().unwrap();
        assert!(evidence.contains("libm.so.6 is no verbs provider"), "{evidence}");
    }
}
