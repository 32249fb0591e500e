//! `tb5 sim` as its users meet it: scenarios, seeds, traces, and files that are wrong
#![cfg(unix)]

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::Value;
use tempfile::TempDir;

fn tb5(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tb5"));
    command.stdin(Stdio::null()).args(args);
    command
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn json(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{error}: {}{}", stdout(output), stderr(output)))
}

fn keys(object: &Value) -> Vec<&str> {
    object.as_object().unwrap().keys().map(String::as_str).collect()
}

/// The scenarios that come with the simulator
fn shipped() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../rdma-sim/scenarios");
    let mut paths: Vec<_> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "toml"));
    paths.sort();
    paths
}

fn shipped_one(name: &str) -> PathBuf {
    shipped().into_iter().find(|path| path.file_stem().unwrap() == name).unwrap()
}

/// A scenario of three lines of its own, `rest` from line 4
fn scenario(rest: &str) -> String {
    format!("name = \"test\"\nsource = \"a test\"\nabout = \"a test\"\n{rest}")
}

const PING: &str = "[workload]\nkind = \"ping\"\ncount = 3\n";
const COMPLETES: &str = "[expect]\noutcome = \"completes\"\n";

struct Desk(TempDir);

impl Desk {
    fn new() -> Self {
        Self(TempDir::new().unwrap())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn write(&self, text: &str) -> PathBuf {
        let path = self.path("scenario.toml");
        fs::write(&path, text).unwrap();
        path
    }

    fn run(&self, text: &str, args: &[&str]) -> Output {
        tb5(&["sim", "run"]).arg(self.write(text)).args(args).output().unwrap()
    }
}

#[test]
fn shipped_scenarios_pass_and_are_named_after_their_files() {
    let paths = shipped();
    assert!(paths.len() >= 14, "{}", paths.len());
    for path in paths {
        let output = tb5(&["sim", "run", "--json", "--seeds", "0..3"]).arg(&path).output().unwrap();
        let report = json(&output);
        assert_eq!(report["passed"], true, "{}: {report}", path.display());
        assert_eq!(output.status.code(), Some(0));
        assert_eq!(keys(&report), ["passed", "scenario", "seeds"]);
        assert_eq!(path.file_stem().unwrap(), report["scenario"].as_str().unwrap());
        let text: toml::Table = fs::read_to_string(&path).unwrap().parse().unwrap();
        let source = text["source"].as_str().unwrap();
        assert!(source.contains('#') || source.contains(' ') || source.contains('/'), "{source}");
        let seeds = report["seeds"].as_array().unwrap();
        assert_eq!(seeds.iter().map(|seed| seed["seed"].as_u64().unwrap()).collect::<Vec<_>>(), [0, 1, 2]);
    }
}

#[test]
fn equal_seeds_give_equal_runs() {
    for path in shipped() {
        let run = || json(&tb5(&["sim", "run", "--json", "--seed", "7"]).arg(&path).output().unwrap());
        let (once, again) = (run(), run());
        let promised = ["passed", "scenario", "seed", "trace_digest", "violations", "virtual_seconds"];
        assert_eq!(keys(&once), promised);
        assert_eq!(once, again);
        assert_eq!(once["trace_digest"].as_str().unwrap().len(), 16);
    }
    let digest = |seed: &str| {
        let path = shipped_one("one-lost-message");
        json(&tb5(&["sim", "run", "--json", "--seed", seed]).arg(path).output().unwrap())["trace_digest"]
            .clone()
    };
    assert_ne!(digest("1"), digest("2"));
    assert_ne!(digest("0"), digest("18446744073709551615"));
}

#[test]
fn what_does_not_go_as_expected_says_how_it_went() {
    let ping = |rest: &str| scenario(&format!("{PING}{rest}"));
    let lost = "faults = [\"at 1ms b kill\"]\n[workload]\nkind = \"exchange\"\ncount = 9\nrest = \"1ms\"\n";
    let verbs = "[workload]\nkind = \"verbs\"\nreceive_after = \"10s\"\n";
    let table = [
        (
            ping("[expect]\noutcome = \"peer-lost\""),
            "a:rdma_en2: expected peer-lost, found completes at 0.0000",
        ),
        (
            ping("[expect]\noutcome = \"completes\"\nends.b = \"stalls\""),
            "b:rdma_en2: expected stalls, found completes",
        ),
        (
            ping("[expect]\noutcome = \"completes\"\nerror = \"x\""),
            "expected an error with \"x\", which no end that completes has",
        ),
        (
            ping("[expect]\noutcome = \"completes\"\nmax_rtt = \"1us\""),
            "expected the slowest round trip to take at most 1us, found 1",
        ),
        (
            ping("[expect]\noutcome = \"completes\"\nmin_rtt = \"1s\""),
            "expected the slowest round trip to take at least 1s, found 1",
        ),
        (
            ping("[expect]\noutcome = \"completes\"\nmin_goodput_bytes_per_second = 1"),
            "at least 1 bytes per second, nothing was measured",
        ),
        (ping("[expect]\noutcome = \"completes\"\nmin_connections = 2"), "at least 2, found 1"),
        (scenario(&format!("{lost}{COMPLETES}")), "a:rdma_en2: expected completes, found peer-lost at 5.0"),
        (
            scenario(&format!("{lost}{COMPLETES}within = \"2s\"")),
            "a:rdma_en2: expected completes, found stalls at 2.000001 s: it still waits",
        ),
        (
            scenario(&format!("{verbs}{COMPLETES}within = \"5s\"")),
            "b:rdma_en2: expected completes, found stalls",
        ),
        (
            scenario(&format!(
                "faults = [\"at 1s a:rdma_en2 unplug\", \"at 0s a:rdma_en2 slow 50%\"]\n{PING}{COMPLETES}"
            )),
            "everything had ended before 1 of the faults, first at 1s a:rdma_en2 unplug",
        ),
    ];
    let desk = Desk::new();
    for (text, why) in table {
        let output = desk.run(&text, &["--json", "--seed", "3"]);
        let report = json(&output);
        assert_eq!((output.status.code(), &report["passed"]), (Some(1), &Value::Bool(false)), "{text}");
        let violations = report["violations"].as_array().unwrap();
        assert!(violations.iter().any(|found| found.as_str().unwrap().contains(why)), "{why}: {report}");

        let output = desk.run(&text, &["--seeds", "3..5"]);
        let told = stdout(&output);
        assert_eq!(output.status.code(), Some(1));
        assert!(told.starts_with("backend: simulator") && told.ends_with("0 of 2 seeds passed\n"), "{told}");
        let replay = format!("replay: tb5 sim run {} --seed 4\n", desk.path("scenario.toml").display());
        assert!(told.contains(why) && told.contains(&replay), "{told}");
    }
}

/// A wrong scenario: what to find fault with, on which line
fn assert_wrong(text: &str, line: usize, why: &str) {
    let desk = Desk::new();
    for command in ["run", "trace"] {
        let path = desk.write(text);
        let output = tb5(&["sim", command]).arg(&path).output().unwrap();
        let told = stderr(&output);
        assert_eq!(output.status.code(), Some(1), "{text}\n{told}");
        let place = format!("tb5: {}:{line}: ", path.display());
        assert!(told.starts_with(&place) && told.contains(why), "expected {line}: {why} in\n{text}\n{told}");
        assert_eq!(told.lines().count(), 1, "{told}");
        assert!(output.stdout.is_empty());
    }
}

#[test]
fn wrong_scenarios_are_refused_by_file_and_line() {
    let rest = |rest: &str| scenario(&format!("{rest}\n{PING}{COMPLETES}"));
    let workload = |rest: &str| scenario(&format!("[workload]\n{rest}\n{COMPLETES}"));
    let expect = |rest: &str| scenario(&format!("{PING}[expect]\n{rest}\n"));
    let table = [
        // Not this format.
        (String::new(), 1, "missing field `workload`"),
        ("name = \"x".into(), 1, "invalid basic string"),
        (rest("= 5"), 4, "key"),
        (rest("profile"), 4, "expected `=`"),
        (rest("name = \"again\""), 4, "duplicate key"),
        (rest("sourc = \"x\""), 4, "unknown field `sourc`, expected one of `name`, `source`"),
        (format!("source = \"\"\nabout = \"\"\n{PING}{COMPLETES}"), 1, "missing field `name`"),
        (format!("name = \"\"\nsource = \"\"\nabout = \"\"\n{PING}{COMPLETES}"), 1, "no name"),
        (rest("profile = \"tb6\""), 4, "\"tb6\" is no profile: there are tb5, tb5-macos-26.2 and roce"),
        (rest("rules.idle = 5"), 4, "unknown field `idle`, expected one of `failed_rtr_wedges`"),
        (rest("rules.idle_death = \"soon\""), 4, "\"soon\" is not a time: write a whole number of h, m, s"),
        (rest("endpoint.keepalive = \"1ns\""), 4, "the keep-alive interval is shorter than 100ms"),
        (rest("endpoint.pace = 1"), 4, "unknown field `pace`"),
        (rest("endpoint.max_message = -1"), 4, "integer `-1`"),
        // Faults.
        (
            rest("faults = [\n\"at 5ms a:rdma_en2 unplugg\"]"),
            5,
            "\"unplugg\" is no fault; there are: boundary, busy",
        ),
        (rest("faults = [\"at 5ms a unplug\"]"), 4, "unplug happens to a port: write a:DEVICE"),
        (rest("faults = [\"at 5ms c kill\"]"), 4, "there is no host \"c\""),
        (rest("faults = [\"at 5ms a:rdma_en9 unplug\"]"), 4, "host \"a\" has no device \"rdma_en9\""),
        (rest("faults = [\"at 99999999999999999999s a kill\"]"), 4, "is not a time"),
        (rest("faults = \"at 5ms a kill\""), 4, "expected a sequence"),
        // Links.
        (rest("links = []"), 4, "there are no links"),
        (rest("links = [[\"a:rdma_en2\", \"c:rdma_en2\"]]"), 4, "there is no port \"c:rdma_en2\""),
        (
            rest("links = [[\"a:rdma_en2\", \"b\"]]"),
            4,
            "there is no port \"b\": name two ports as HOST:DEVICE",
        ),
        (rest("links = [[\"a:rdma_en2\"]]"), 4, "an array of length 2"),
        // Workloads.
        (workload("count = 1"), 4, "missing field `kind`"),
        (workload("kind = \"fly\""), 5, "unknown variant `fly`, expected one of `exchange`, `idle`, `ping`"),
        (workload("kind = \"\\u001b[31m\""), 5, "unknown variant `\u{fffd}[31m`"),
        (workload("kind = \"ping\""), 4, "missing field `count`"),
        (workload("kind = \"ping\"\ncount = 0"), 6, "0 is no count of messages: write 1 to 1000000"),
        (workload("kind = \"ping\"\ncount = -3"), 6, "integer `-3`"),
        (workload("kind = \"ping\"\ncount = 4294967296"), 6, "integer `4294967296`"),
        (workload("kind = \"ping\"\ncount = 99999999999999999999999"), 6, "integer"),
        (workload("kind = \"ping\"\ncount = \"3\""), 6, "invalid type: string \"3\""),
        (
            workload("kind = \"ping\"\ncount = 1\nsize = 16777217"),
            7,
            "is no length of a message: write at most",
        ),
        (
            workload("kind = \"ping\"\ncount = 1000000\nsize = 1000000"),
            4,
            "more than 1073741824 bytes: write a smaller",
        ),
        (workload("kind = \"ping\"\ncount = 1\nrest = \"25h\""), 7, "\"25h\" is not a time"),
        (workload("kind = \"ping\"\ncount = 1\nrest = 5"), 7, "invalid type: integer `5`"),
        (workload("kind = \"idle\"\ncount = 1"), 6, "unknown field `count`, expected `kind` or `duration`"),
        (
            workload("kind = \"reconnect\"\ncount = 1\nsize = 1\nretry = \"1ns\""),
            4,
            "retry is shorter than 1ms",
        ),
        (workload("kind = \"verbs\"\ncount = 5000"), 4, "take more than the 4095 frames of a queue"),
        (workload("kind = \"verbs\"\nqueue_pairs = 0"), 4, "queue_pairs is not 1 to 1024"),
        (workload("kind = \"verbs\"\n[endpoint]"), 6, "has no endpoints: leave this out"),
        // Expectations.
        (
            expect("outcome = \"wins\""),
            8,
            "unknown variant `wins`, expected one of `completes`, `connect-fails`",
        ),
        (expect("within = \"1s\""), 7, "missing field `outcome`"),
        (expect("outcome = \"completes\"\nsoon = true"), 9, "unknown field `soon`"),
        (expect("outcome = \"completes\"\nends.c = \"stalls\""), 9, "no program runs at \"c\""),
        (scenario(PING), 1, "missing field `expect`"),
    ];
    for (text, line, why) in table {
        assert_wrong(&text, line, why);
    }
}

#[test]
fn topologies_that_cannot_be_are_refused_by_file_and_line() {
    let hosts = "[[topology.host]]\nname = \"a\"\nports = 2\n[[topology.host]]\nname = \"b\"\nports = 2\n";
    // Ten lines so far; the cables begin at line 11.
    let table = [
        ("ends = [\"a:rdma_en2\"]", 11, "an array of length 2"),
        ("ends = [\"a:rdma_en2\", \"b\"]", 11, "\"b\" is no end of a cable: write host:device"),
        ("ends = [\"a:rdma_en2\", \"c:rdma_en2\"]", 11, "no host is called \"c\"; there are: a, b"),
        ("ends = [\"a:rdma_en2\", \"b:rdma_en4\"]", 11, "b has no port rdma_en4: it has rdma_en2, rdma_en3"),
        ("ends = [\"a:rdma_en2\", \"a:rdma_en3\"]", 11, "would join the Mac to itself"),
        ("ends = [\"a:rdma_en2\", \"b:rdma_en2\"]\ngbps = 0", 12, "0"),
        (
            "ends = [\"a:rdma_en2\", \"b:rdma_en2\"]\n[[topology.cable]]\nends = [\"a:rdma_en3\",\n\"b:rdma_en2\"]",
            13,
            "rdma_en2 of b has a cable to rdma_en2 of a already; free ports of b: rdma_en3",
        ),
        ("ends = [\"a:rdma_en2\", \"b:rdma_en2\"]\nlength = 3", 12, "unknown field `length`"),
    ];
    for (cable, line, why) in table {
        let text = format!("{hosts}[[topology.cable]]\n{cable}\n{PING}{COMPLETES}");
        assert_wrong(&scenario(&text), line, why);
    }
    let table = [
        ("name = \"a\"\nports = 0", 5, "a simulated Mac has 1 to 32"),
        ("name = \"a\"\nports = 99999999999", 5, "a simulated Mac has 1 to 32"),
        ("name = \"a:b\"\nports = 1", 5, "names no host"),
        ("name = \"a\"\nports = 1\n[[topology.host]]\nname = \"a\"\nports = 1", 8, "two hosts are called a"),
    ];
    for (host, line, why) in table {
        assert_wrong(&scenario(&format!("[[topology.host]]\n{host}\n{PING}{COMPLETES}")), line, why);
    }
}

#[test]
fn files_that_are_no_scenarios_are_named() {
    let desk = Desk::new();
    fs::create_dir(desk.path("folder")).unwrap();
    fs::write(desk.path("binary"), [0xff, 0xfe, 0]).unwrap();
    fs::write(desk.path("long"), vec![b'#'; (1 << 20) + 1]).unwrap();
    assert!(Command::new("mkfifo").arg(desk.path("pipe")).status().unwrap().success());
    for (name, why) in [
        ("missing", "cannot be read: No such file"),
        ("folder", "cannot be read: is a directory"),
        ("binary", "cannot be read: is not UTF-8 text"),
        ("long", "is longer than 1048576 bytes, and no scenario"),
        ("pipe", "is not a regular file"),
    ] {
        let path = desk.path(name);
        for command in ["run", "trace"] {
            let output = tb5(&["sim", command]).arg(&path).output().unwrap();
            let told = stderr(&output);
            assert_eq!(output.status.code(), Some(1), "{told}");
            assert!(told.contains(path.to_str().unwrap()) && told.contains(why), "{told}");
        }
    }
}

#[test]
fn arguments_that_cannot_be_meant_are_a_usage_error() {
    let path = shipped_one("one-lost-message");
    let path = path.to_str().unwrap();
    for (args, why) in [
        (&["run", path, "--seeds", "5..5"][..], "there is no seed in between"),
        (&["run", path, "--seeds", "9..3"], "write the smaller number first"),
        (&["run", path, "--seeds", "5"], "write A..B, such as 0..20"),
        (&["run", path, "--seeds", "a..b"], "write A..B"),
        (&["run", path, "--seeds=-1..3"], "write A..B"),
        (&["run", path, "--seeds", "0..18446744073709551616"], "write A..B"),
        (&["run", path, "--seeds", "0..18446744073709551615"], "more than 1000000 seeds"),
        (&["run", path, "--seed", "x"], "--seed"),
        (&["run", path, "--seed", "1", "--seeds", "0..3"], "cannot be used with"),
        (&["run"], "<SCENARIO>"),
        (&["trace", path, "--seeds", "0..3"], "--seeds"),
        (&["fly"], "unrecognized subcommand"),
    ] {
        let output = tb5(&["sim"]).args(args).output().unwrap();
        let told = stderr(&output);
        assert_eq!(output.status.code(), Some(2), "{args:?}: {told}");
        assert!(output.stdout.is_empty() && told.contains(why), "{args:?}: {told}");
    }
}

#[test]
fn a_trace_tells_what_happened() {
    let path = shipped_one("one-lost-message");
    let text = stdout(&tb5(&["sim", "trace", "--seed", "4"]).arg(&path).output().unwrap());
    let output = tb5(&["sim", "trace", "--seed", "4", "--json"]).arg(&path).output().unwrap();
    assert_eq!(output.status.code(), Some(0));
    let trace = json(&output);
    assert_eq!(keys(&trace), ["records", "scenario", "seed", "trace_digest"]);
    let records = trace["records"].as_array().unwrap();
    assert_eq!(keys(&records[0]), ["kind", "time_ns", "what", "who"]);
    assert_eq!(text.lines().count(), records.len() + 1, "the backend, and a line for each record");
    assert!(text.contains("fault 0"), "{text}");
    assert!(records.iter().any(|record| record["kind"] == "post_send"));
    let run = json(&tb5(&["sim", "run", "--seed", "4", "--json"]).arg(&path).output().unwrap());
    assert_eq!((&trace["trace_digest"], &trace["scenario"]), (&run["trace_digest"], &run["scenario"]));
}

#[test]
fn a_chrome_trace_is_json_whose_rows_go_forward() {
    let desk = Desk::new();
    let chrome = desk.path("trace.json");
    for name in ["flapping-cable", "peer-killed", "frame-count-mismatch", "roce-with-credits"] {
        fs::write(&chrome, "old").unwrap();
        let output = tb5(&["sim", "trace", "--chrome"]).arg(&chrome).arg(shipped_one(name)).output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        let trace: Value = serde_json::from_slice(&fs::read(&chrome).unwrap()).unwrap();
        let events = trace["traceEvents"].as_array().unwrap();
        assert_eq!(events.len() + 1, stdout(&output).lines().count());
        let mut rows = BTreeMap::new();
        for event in events {
            let ts = event["ts"].as_f64().unwrap();
            let row = (event["pid"].as_u64().unwrap(), event["tid"].as_u64().unwrap());
            let last = rows.insert(row, ts).unwrap_or(0.0);
            assert!(ts >= last, "{name}: {row:?} goes from {last} to {ts}");
        }
        assert!(!rows.is_empty());
    }
    assert_eq!(fs::read_dir(desk.0.path()).unwrap().count(), 1, "nothing else is left behind");
}

#[test]
fn a_chrome_trace_that_cannot_be_written_is_named() {
    let desk = Desk::new();
    fs::create_dir(desk.path("folder")).unwrap();
    std::os::unix::fs::symlink("nowhere", desk.path("dangling")).unwrap();
    assert!(Command::new("mkfifo").arg(desk.path("pipe")).status().unwrap().success());
    for (name, why) in [
        ("folder", "is a directory"),
        ("dangling", "a file that does not exist"),
        ("pipe", "is not a regular file"),
        ("missing/trace.json", "No such file"),
        ("", "is a directory"),
    ] {
        let path = desk.path(name);
        let output = tb5(&["sim", "trace", "--chrome"])
            .arg(&path)
            .arg(shipped_one("eleventh-queue-pair"))
            .output()
            .unwrap();
        let told = stderr(&output);
        assert_eq!(output.status.code(), Some(1), "{told}");
        assert!(told.contains(path.to_str().unwrap()) && told.contains(why), "{told}");
    }
    assert_eq!(fs::read_dir(desk.0.path()).unwrap().count(), 3);

    // A link keeps pointing where it points.
    fs::write(desk.path("target"), "old").unwrap();
    std::os::unix::fs::symlink("target", desk.path("link")).unwrap();
    let mut command = tb5(&["sim", "trace", "--chrome"]);
    assert!(command.arg(desk.path("link")).arg(shipped_one("tb4-cable")).output().unwrap().status.success());
    assert!(fs::symlink_metadata(desk.path("link")).unwrap().is_symlink());
    assert!(fs::read_to_string(desk.path("target")).unwrap().starts_with('{'));
}
