//! `tb5 devices` and `tb5 doctor`, on this machine and on composed reports of others
#![cfg(unix)]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::{Value, json};
use tempfile::TempDir;

fn tb5(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_tb5")).args(args).stdin(Stdio::null()).output().unwrap()
}

fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn object(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).expect("one JSON object and nothing else")
}

fn keys(object: &Value) -> Vec<&str> {
    object.as_object().unwrap().keys().map(String::as_str).collect()
}

/// A composed report of the fixtures of `rdma-tb5`
fn composed(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join(format!("../rdma-tb5/tests/fixtures/composed/reports/{name}.json"))
}

/// Reports in files of their own, to be changed
struct Desk(TempDir);

impl Desk {
    fn new() -> Self {
        Self(TempDir::new().unwrap())
    }

    fn path(&self, name: &str) -> String {
        self.0.path().join(name).to_str().unwrap().to_owned()
    }

    fn write(&self, name: &str, content: impl AsRef<[u8]>) -> String {
        fs::write(self.path(name), content).unwrap();
        self.path(name)
    }

    fn changed(&self, name: &str, change: impl FnOnce(&mut Value)) -> String {
        let mut report: Value = serde_json::from_slice(&fs::read(composed(name)).unwrap()).unwrap();
        change(&mut report);
        self.write(&format!("{name}.json"), report.to_string())
    }
}

/// Findings of a check, from the output of `doctor --json`
fn found<'a>(report: &'a Value, check: &str) -> Vec<&'a Value> {
    report["findings"].as_array().unwrap().iter().filter(|finding| finding["check"] == check).collect()
}

#[test]
fn this_machine_can_be_looked_at() {
    let devices = tb5(&["devices", "--json"]);
    assert!(devices.status.success(), "{}", stderr(&devices));
    let devices = object(&devices);
    assert_eq!(keys(&devices), ["devices", "platform", "rdma", "source"]);
    assert!(tb5(&["devices"]).status.success());
    let doctor = tb5(&["doctor", "--json"]);
    let failed = object(&doctor)["fail"] != 0;
    assert_eq!(doctor.status.code(), Some(i32::from(failed)), "{}", stderr(&doctor));
    if devices["rdma"] == false {
        assert!(stdout(&tb5(&["devices"])).ends_with("\nno RDMA devices\n"));
        let doctor = tb5(&["doctor"]);
        assert!(stdout(&doctor).contains("this machine has no RDMA\n"));
        assert_eq!((doctor.status.code(), stderr(&doctor).as_str()), (Some(1), ""));
    }
}

#[test]
fn a_recorded_report_is_diagnosed_like_the_machine() {
    let desk = Desk::new();
    let path = desk.path("here.json");
    let here = object(&tb5(&["doctor", "--json", "--record", &path]));
    assert_eq!(here["recorded"], path.as_str());
    let there = object(&tb5(&["doctor", "--json", "--from", &path]));
    assert_eq!(here["verdict"], there["verdict"]);
    let evidence = |report: &Value| -> Vec<Value> {
        report["findings"].as_array().unwrap().iter().map(|finding| finding["evidence"].clone()).collect()
    };
    assert_eq!(evidence(&here), evidence(&there));
    assert_eq!(
        object(&tb5(&["devices", "--json", "--from", &path]))["platform"],
        here["hosts"][0]["platform"]
    );
}

#[test]
fn devices_come_with_what_they_are_connected_to() {
    let left = composed("left");
    let report = object(&tb5(&["devices", "--json", "--from", left.to_str().unwrap()]));
    assert_eq!(report["rdma"], true);
    let device = &report["devices"][2];
    assert_eq!((&device["name"], &device["interface"]), (&json!("rdma_en4"), &json!("en4")));
    assert_eq!((&device["receptacle"], &device["speed"]), (&json!(3), &json!("80 Gb/s")));
    assert_eq!(device["peers"][0]["name"], "Mac Studio");
    assert_eq!(device["ports"][0]["gids"][1], json!({"index": 1, "gid": "::ffff:192.168.30.1"}));
    let text = stdout(&tb5(&["devices", "--from", left.to_str().unwrap()]));
    let row = text.lines().find(|line| line.contains("rdma_en4")).unwrap();
    for word in ["PORT_ACTIVE", "80 Gb/s", "Mac Studio", "::ffff:192.168.30.1"] {
        assert!(row.contains(word), "{row}");
    }
}

#[test]
fn two_macs_with_nothing_wrong_pass() {
    let [left, right] = ["left", "right"].map(|name| composed(name).to_str().unwrap().to_owned());
    let output = tb5(&["doctor", "--json", "--from", &left, "--from", &right]);
    assert!(output.status.success(), "{}", stderr(&output));
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
    let text = stdout(&tb5(&["doctor", "--from", &left, "--from", &right]));
    assert!(text.ends_with("0 unknown, 0 warn, 0 fail)\n") && text.contains("verdict: ok"), "{text}");
}

#[test]
fn one_report_alone_is_no_failure() {
    let output = tb5(&["doctor", "--from", composed("left").to_str().unwrap()]);
    assert!(output.status.success());
    assert!(stdout(&output).contains("→ record a report there"), "{}", stdout(&output));
}

#[test]
fn a_failed_check_says_what_to_do_and_fails_the_command() {
    let desk = Desk::new();
    let path = desk.changed("left", |report| report["rdma_ctl"] = "disabled".into());
    let output = tb5(&["doctor", "--from", &path]);
    assert_eq!((output.status.code(), stderr(&output).as_str()), (Some(1), ""));
    let text = stdout(&output);
    assert!(
        text.contains("rdma_ctl status: disabled") && text.contains("→ start the Mac in Recovery"),
        "{text}"
    );
    let report = object(&tb5(&["doctor", "--json", "--from", &path]));
    assert_eq!(found(&report, "rdma_enabled")[0]["verdict"], "fail");
}

#[test]
fn a_warning_fails_nothing() {
    let desk = Desk::new();
    let path = desk.changed("left", |report| report["idle_sleep_minutes"] = 10.into());
    let output = tb5(&["doctor", "--json", "--from", &path]);
    assert!(output.status.success());
    assert_eq!(object(&output)["verdict"], "warn");
}

#[test]
fn cables_that_were_moved_and_hosts_of_two_versions_are_seen() {
    let desk = Desk::new();
    let left = desk.changed("left", |report| report["macos_version"] = "26.4".into());
    let right = desk.changed("right", |report| {
        let buses = report["thunderbolt"].as_array_mut().unwrap();
        let peer = buses[1]["peers"].take();
        (buses[1]["peers"], buses[2]["peers"]) = (json!([]), peer);
    });
    let output = tb5(&["doctor", "--json", "--from", &left, "--from", &right]);
    assert_eq!(output.status.code(), Some(1));
    let report = object(&output);
    assert_eq!(found(&report, "cable_ends")[0]["verdict"], "fail");
    assert_eq!(found(&report, "same_macos")[0]["verdict"], "warn");
}

#[test]
fn files_of_the_same_name_are_told_apart_by_their_folders() {
    let desk = Desk::new();
    for folder in ["a", "b"] {
        fs::create_dir(desk.path(folder)).unwrap();
    }
    let [a, b] = [("left", "a/mac.json"), ("right", "b/mac.json")]
        .map(|(name, path)| desk.write(path, fs::read(composed(name)).unwrap()));
    let report = object(&tb5(&["doctor", "--json", "--from", &a, "--from", &b]));
    assert_eq!((&report["hosts"][0]["host"], &report["hosts"][1]["host"]), (&json!(a), &json!(b)));
}

#[test]
fn files_that_are_no_reports_are_named_with_the_line() {
    let desk = Desk::new();
    let cases = [
        (desk.write("type.json", "{\n \"platform\": \"macos\",\n \"devices\": 7\n}"), "line 3"),
        (desk.write("cut.json", "{\n \"devices\": ["), "line 2"),
        (desk.write("empty.json", ""), "line 1"),
        (desk.write("bytes.json", b"\xff\xfe{}"), "line 1"),
        (
            desk.write("gid.json", "{\"devices\":[{\"ports\":[{\"gids\":[{\"index\":0,\"gid\":\"x\"}]}]}]}"),
            "line 1",
        ),
        (desk.write("deep.json", "{\"new\":".to_owned() + &"[".repeat(10_000)), "line 1"),
        (desk.write("long.json", " ".repeat((4 << 20) + 1)), "longer"),
        (desk.path("absent.json"), "cannot be read"),
        (desk.path(""), "cannot be read"),
    ];
    for (path, why) in cases {
        for command in ["devices", "doctor"] {
            let output = tb5(&[command, "--from", &path]);
            let message = stderr(&output);
            assert_eq!(output.status.code(), Some(1), "{message}");
            assert!(message.contains(&path) && message.contains(why), "{message}");
            assert!(output.stdout.is_empty() && !message.contains("panicked"), "{message}");
        }
    }
}

#[test]
fn a_report_that_cannot_be_written_is_named() {
    let desk = Desk::new();
    let path = desk.path("no/such/folder.json");
    let output = tb5(&["doctor", "--record", &path]);
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains(&path) && stderr(&output).contains("cannot be written"));
}

#[test]
fn reports_without_anything_in_them_are_fine() {
    let desk = Desk::new();
    let blank = desk.write("blank.json", "{}");
    let newer = desk.write("newer.json", r#"{"platform": "macos", "wormholes": [{"to": "Mars"}]}"#);
    for path in [blank, newer] {
        let output = tb5(&["doctor", "--json", "--from", &path]);
        assert!(output.status.success(), "{}", stderr(&output));
        assert_eq!(object(&output)["verdict"], "unknown");
        assert!(stdout(&tb5(&["devices", "--from", &path])).contains("could not be listed"));
    }
}

#[test]
fn what_a_report_says_does_not_reach_the_terminal_as_control_characters() {
    let desk = Desk::new();
    let path = desk.changed("left", |report| {
        report["hardware_model"] = "\u{1b}[31mMac\r".into();
        report["thunderbolt"][0]["peers"][0]["name"] = "\u{1b}]0;title\u{7}".into();
        report["devices"][0]["name"] = "rdma_en2\u{1b}[2J".into();
    });
    for command in ["devices", "doctor"] {
        let text = stdout(&tb5(&[command, "--from", &path]));
        assert!(text.chars().all(|c| c == '\n' || !c.is_control()), "{text:?}");
    }
}

#[test]
fn what_cannot_be_meant_is_a_usage_error() {
    for args in [
        &["doctor", "--from"][..],
        &["doctor", "--from", "a", "--record", "b"],
        &["doctor", "--sim"],
        &["devices", "--sim"],
        &["devices", "--from", "a", "--from", "b"],
        &["devices", "--record", "a"],
    ] {
        let output = tb5(args);
        assert_eq!(output.status.code(), Some(2), "{args:?}: {}", stderr(&output));
        assert!(output.stdout.is_empty() && !output.stderr.is_empty());
    }
}

/// The tool, with a verbs provider of its own
fn with_provider(provider: &Path, args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tb5"));
    command.args(args).env("RDMA_PROVIDER", provider).env("RDMA_SIM_FAULTS", "at 0s a:rdma_en3 unplug");
    command.stdin(Stdio::null()).output().unwrap()
}

/// The simulated provider, which cargo built beside this test
fn simulated() -> PathBuf {
    let name = format!("{}rdma{}", std::env::consts::DLL_PREFIX, std::env::consts::DLL_SUFFIX);
    std::env::current_exe().unwrap().parent().unwrap().join(name)
}

#[test]
fn devices_of_the_provider_are_listed_with_limits_ports_and_gids() {
    let output = with_provider(&simulated(), &["devices", "--json"]);
    assert!(output.status.success(), "{}", stderr(&output));
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
    let text = stdout(&with_provider(&simulated(), &["devices"]));
    assert!(text.contains("PORT_ACTIVE") && text.contains(gid), "{text}");
    let doctor = object(&with_provider(&simulated(), &["doctor", "--json"]));
    let provider = found(&doctor, "provider")[0];
    assert_eq!((&provider["verdict"], &provider["evidence"]), (&json!("ok"), &json!(simulated())));
    assert_eq!(found(&doctor, "verbs_devices")[0]["verdict"], "ok");
}

/// Loading a pipe that nobody writes to never ends.
#[test]
fn a_provider_that_hangs_hangs_nobody() {
    let desk = Desk::new();
    let path = desk.path("pipe");
    assert!(Command::new("mkfifo").arg(&path).status().unwrap().success());
    let output = with_provider(Path::new(&path), &["doctor", "--json"]);
    let report = object(&output);
    let provider = found(&report, "provider")[0];
    assert_eq!(provider["verdict"], "unknown");
    assert_eq!(provider["evidence"], "no answer within 5 s");
    assert_eq!(found(&report, "verbs_devices")[0]["verdict"], "unknown");
}

#[test]
fn a_provider_that_is_absent_or_none_is_named() {
    let desk = Desk::new();
    let absent = desk.path("absent.so");
    let output = with_provider(Path::new(&absent), &["doctor", "--json"]);
    assert_eq!(output.status.code(), Some(1));
    let report = object(&output);
    let evidence = found(&report, "verbs_devices")[0]["evidence"].as_str().unwrap();
    assert_eq!(evidence, "the verbs library cannot be loaded");
    let devices = with_provider(Path::new(&absent), &["devices"]);
    assert!(devices.status.success(), "{}", stderr(&devices));
    if cfg!(target_os = "linux") {
        let output = with_provider(Path::new("libm.so.6"), &["doctor", "--json"]);
        assert_eq!(output.status.code(), Some(1));
        let report = object(&output);
        let evidence = found(&report, "verbs_devices")[0]["evidence"].as_str().unwrap();
        assert!(evidence.contains("libm.so.6 is no verbs provider"), "{evidence}");
    }
}
