//! `tb5 sim`: scenarios, seeds, traces, and invalid files

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::Write as _;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::support::{Folder, assert_code, assert_refused, json, keys, stderr, stdout, tool};

/// The scenarios that come with the simulator
fn shipped() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../rdma-sim/scenarios");
    let mut paths: Vec<_> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "toml"));
    paths.sort();
    paths
}

pub(crate) fn shipped_one(name: &str) -> PathBuf {
    shipped().into_iter().find(|path| path.file_stem().unwrap() == name).unwrap()
}

/// A scenario of three lines, and `rest` from line 4 on
fn scenario(rest: &str) -> String {
    format!("name = \"test\"\nsource = \"a test\"\nabout = \"a test\"\n{rest}")
}

const PING: &str = "[workload]\nkind = \"ping\"\ncount = 3\n";
const COMPLETES: &str = "[expect]\noutcome = \"completes\"\n";

#[test]
fn shipped_scenarios_pass_and_are_named_after_their_files() {
    let paths = shipped();
    assert!(paths.len() >= 14, "{}", paths.len());
    for path in paths {
        let output = tb5!["sim", "run", "--json", "--seeds", "0..3", &path];
        let report = json(&output);
        assert_eq!(report["passed"], true, "{}: {report}", path.display());
        assert_eq!(output.status.code(), Some(0));
        assert_eq!(keys(&report), ["backend", "passed", "scenario", "seeds"]);
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
    let run = |path: &Path, seed: &str| json(&tb5!["sim", "run", "--json", "--seed", seed, path]);
    for path in shipped() {
        let (once, again) = (run(&path, "7"), run(&path, "7"));
        let promised =
            ["backend", "passed", "scenario", "seed", "trace_digest", "violations", "virtual_seconds"];
        assert_eq!(keys(&once), promised);
        assert_eq!(once, again);
        assert_eq!(once["trace_digest"].as_str().unwrap().len(), 16);
    }
    let path = shipped_one("one-lost-message");
    let digest = |seed| run(&path, seed)["trace_digest"].clone();
    assert_ne!(digest("1"), digest("2"));
    assert_ne!(digest("0"), digest("18446744073709551615"));
}

#[test]
fn a_failed_expectation_reports_the_actual_end_and_the_replay() {
    let ping = |rest: &str| scenario(&format!("{PING}{rest}"));
    let completes = |rest: &str| ping(&format!("{COMPLETES}{rest}"));
    let lost = "faults = [\"at 1ms b kill\"]\n[workload]\nkind = \"exchange\"\ncount = 9\nrest = \"1ms\"\n";
    let verbs = "[workload]\nkind = \"verbs\"\nreceive_after = \"10s\"\n";
    let table = [
        (
            ping("[expect]\noutcome = \"peer-lost\""),
            "a:rdma_en2: expected peer-lost, found completes at 0.0000",
        ),
        (completes("ends.b = \"stalls\""), "b:rdma_en2: expected stalls, found completes"),
        (completes("error = \"x\""), "expected an error with \"x\", found none at an end that completes"),
        (completes("max_rtt = \"1us\""), "expected the slowest round trip to take at most 1us, found 12"),
        (completes("min_rtt = \"1s\""), "expected the slowest round trip to take at least 1s, found 12"),
        (completes("min_goodput_bytes_per_second = 1"), "at least 1 bytes per second, nothing was measured"),
        (scenario(&format!("{lost}{COMPLETES}")), "a:rdma_en2: expected completes, found peer-lost at 2.0"),
        (
            scenario(&format!("{lost}{COMPLETES}within = \"1s\"")),
            "a:rdma_en2: expected completes, found stalls at 1.000001 s: the program still waits",
        ),
        (
            scenario(&format!("{verbs}{COMPLETES}within = \"5s\"")),
            "b:rdma_en2: expected completes, found stalls",
        ),
        (
            scenario(&format!(
                "faults = [\"at 1s a:rdma_en2 unplug\", \"at 0s a:rdma_en2 slow 50%\"]\n{PING}{COMPLETES}"
            )),
            "the run ended before 1 of the faults fired, the first is at 1s a:rdma_en2 unplug",
        ),
    ];
    let folder = Folder::new();
    for (text, why) in table {
        let path = folder.write("scenario.toml", &text);
        let output = tb5!["sim", "run", &path, "--json", "--seed", "3"];
        let report = json(&output);
        assert_eq!((output.status.code(), &report["passed"]), (Some(1), &Value::Bool(false)), "{text}");
        let violations = report["violations"].as_array().unwrap();
        assert!(violations.iter().any(|found| found.as_str().unwrap().contains(why)), "{why}: {report}");

        let output = tb5!["sim", "run", &path, "--seeds", "3..5"];
        let printed = stdout(&output);
        assert_eq!(output.status.code(), Some(1));
        assert!(
            printed.starts_with("backend: simulator") && printed.ends_with("0 of 2 seeds passed\n"),
            "{printed}"
        );
        let replay = format!("replay: tb5 sim run {} --seed 4\n", path.display());
        assert!(printed.contains(why) && printed.contains(&replay), "{printed}");
    }
}

/// Asserts that a scenario is refused on `line`, and why
fn assert_wrong(text: &str, line: usize, why: &str) {
    let folder = Folder::new();
    let path = folder.write("scenario.toml", text);
    for command in ["run", "trace"] {
        let output = tb5!["sim", command, &path];
        let printed = stderr(&output);
        assert_eq!(output.status.code(), Some(1), "{text}\n{printed}");
        let place = format!("tb5: {}:{line}: ", path.display());
        assert!(
            printed.starts_with(&place) && printed.contains(why),
            "expected {line}: {why} in\n{text}\n{printed}"
        );
        assert_eq!(printed.lines().count(), 1, "{printed}");
        assert!(output.stdout.is_empty());
    }
}

#[test]
fn invalid_scenarios_are_refused_with_file_and_line() {
    let rest = |rest: &str| scenario(&format!("{rest}\n{PING}{COMPLETES}"));
    let workload = |rest: &str| scenario(&format!("[workload]\n{rest}\n{COMPLETES}"));
    let expect = |rest: &str| scenario(&format!("{PING}[expect]\n{rest}\n"));
    let table = [
        // Not a scenario file.
        (String::new(), 1, "missing field `name`"),
        ("name = \"x".into(), 1, "invalid basic string"),
        (rest("= 5"), 4, "key"),
        (rest("profile"), 4, "expected `=`"),
        (rest("name = \"again\""), 4, "name is there more than once"),
        (rest("sourc = \"x\""), 4, "unknown field `sourc`, expected one of `name`, `source`"),
        (format!("source = \"\"\nabout = \"\"\n{PING}{COMPLETES}"), 1, "missing field `name`"),
        (format!("name = \"\"\nsource = \"\"\nabout = \"\"\n{PING}{COMPLETES}"), 1, "the name is empty"),
        (
            rest("profile = \"tb6\""),
            4,
            "there is no profile \"tb6\", and no such file; there are: tb5, tb5-cpu, tb5-strict, tb5-macos-26.2, tb5-lenient, roce",
        ),
        (rest("rules.idle = 5"), 4, "unknown field `idle`, expected one of `failed_rtr_wedges`"),
        (rest("rules.idle_death = \"soon\""), 4, "\"soon\" is not a time: write a whole number of h, m, s"),
        (rest("node.peer_timeout = \"1ns\""), 4, "peer_timeout is shorter than 100ms"),
        (rest("node.pace = 1"), 4, "unknown field `pace`"),
        (rest("node.max_message = -1"), 4, "integer `-1`"),
        // Faults.
        (
            rest("faults = [\n\"at 5ms a:rdma_en2 unplugg\"]"),
            5,
            "no fault is called \"unplugg\"; there are: boundary, busy",
        ),
        (rest("faults = [\"at 5ms a unplug\"]"), 4, "unplug happens to a port: write a:DEVICE"),
        (rest("faults = [\"at 5ms c kill\"]"), 4, "the topology has no host \"c\""),
        (rest("faults = [\"at 5ms a:rdma_en9 unplug\"]"), 4, "host \"a\" has no device \"rdma_en9\""),
        (rest("faults = [\"at 99999999999999999999s a kill\"]"), 4, "is not a time"),
        (rest("faults = \"at 5ms a kill\""), 4, "expected a sequence"),
        // Links.
        (rest("links = []"), 4, "links is empty"),
        (rest("links = [[\"a:rdma_en2\", \"c:rdma_en2\"]]"), 4, "there is no port \"c:rdma_en2\""),
        (
            rest("links = [[\"a:rdma_en2\", \"b\"]]"),
            4,
            "there is no port \"b\": write two ports as HOST:DEVICE",
        ),
        (
            rest("links = [\n[\"a:rdma_en2\"]]"),
            5,
            "a link has 2 ports, not 1: write two ports as HOST:DEVICE",
        ),
        (
            rest("links = [[\"a:rdma_en2\", \"b:rdma_en2\", \"c:nonsense\"]]"),
            4,
            "a link has 2 ports, not 3: write two ports as HOST:DEVICE",
        ),
        (
            rest("topology = \"desk.toml\""),
            4,
            "expected a table: its own with a shape, or lists of hosts and cables",
        ),
        // Workloads.
        (workload("count = 1"), 4, "missing field `kind`"),
        (workload("kind = \"fly\""), 5, "unknown variant `fly`, expected one of `exchange`, `idle`, `ping`"),
        (workload("kind = \"\\u001b[31m\""), 5, "unknown variant `\u{fffd}[31m`"),
        (workload("kind = \"ping\""), 4, "missing field `count`"),
        (workload("kind = \"ping\"\ncount = 0"), 6, "0 messages are not possible: write 1 to 1000000"),
        (workload("kind = \"ping\"\ncount = -3"), 6, "integer `-3`"),
        (workload("kind = \"ping\"\ncount = 4294967296"), 6, "integer `4294967296`"),
        (workload("kind = \"ping\"\ncount = 99999999999999999999999"), 6, "integer"),
        (workload("kind = \"ping\"\ncount = \"3\""), 6, "invalid type: string \"3\""),
        (
            workload("kind = \"ping\"\ncount = 1\nsize = 16777217"),
            7,
            "16777217 bytes are too long for a message: write at most",
        ),
        (
            workload("kind = \"ping\"\ncount = 1000000\nsize = 1000000"),
            4,
            "more than 1073741824 bytes: write a smaller",
        ),
        (workload("kind = \"ping\"\ncount = 1\nrest = \"25h\""), 7, "\"25h\" is not a time"),
        (workload("kind = \"ping\"\ncount = 1\nrest = 5"), 7, "invalid type: integer `5`"),
        (workload("kind = \"idle\"\ncount = 1"), 6, "unknown field `count`, expected `kind` or `duration`"),
        (workload("kind = \"verbs\"\ncount = 5000"), 4, "need more than the 4095 frames of a queue"),
        (workload("kind = \"verbs\"\nqueue_pairs = 0"), 4, "queue_pairs is 0: write 1 to 1024"),
        (workload("kind = \"verbs\"\n[node]"), 6, "has no nodes: remove this table"),
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

/// The messages are those of `Topology::from_toml`; the lines are those of the whole file.
#[test]
fn invalid_topologies_are_refused_with_file_and_line() {
    let hosts = "[[topology.host]]\nname = \"a\"\nports = 2\n[[topology.host]]\nname = \"b\"\nports = 2\n";
    let cable = "[[topology.cable]]\nends = [\"a:rdma_en2\", \"b:rdma_en2\"]\n";
    // Eleven lines so far.
    let second = "[[topology.cable]]\nends = [\"a:rdma_en3\",\n\"b:rdma_en2\"]\n";
    assert_wrong(
        &scenario(&format!("{hosts}{cable}{second}{PING}{COMPLETES}")),
        14,
        "rdma_en2 of b has a cable to rdma_en2 of a already; free ports of b: rdma_en3",
    );
    let host = "[[topology.host]]\nname = \"a\"\nports = 0\n";
    assert_wrong(&scenario(&format!("{host}{PING}{COMPLETES}")), 6, "a simulated Mac has 1 to 32");
}

#[test]
fn files_that_are_not_scenarios_are_named() {
    let folder = Folder::new();
    folder.directory("folder");
    folder.write("binary", [0xff, 0xfe, 0]);
    folder.write("long", vec![b'#'; (1 << 20) + 1]);
    for (name, why) in [
        ("missing", "cannot be read: No such file"),
        ("folder", "cannot be read: is a directory"),
        ("binary", "cannot be read: is not UTF-8 text"),
        ("long", "is longer than 1048576 bytes"),
    ] {
        let path = folder.path(name);
        for command in ["run", "trace"] {
            let output = tb5!["sim", command, &path];
            assert_refused(&output, &path, why);
            let has_hint = stderr(&output).ends_with("; examples are in rdma-sim/scenarios\n");
            assert_eq!(has_hint, name == "missing", "{}", stderr(&output));
        }
    }
}

/// Catches a scenario that is read twice, or refused because it has no length, as from `<(…)`.
#[test]
fn a_scenario_is_read_from_a_pipe() {
    // Fits into the pipe.
    let text = fs::read(shipped_one("eleventh-queue-pair")).unwrap();
    for command in ["run", "trace", "check"] {
        let (reader, mut writer) = std::io::pipe().unwrap();
        writer.write_all(&text).unwrap();
        drop(writer);
        let output = tool().args(["sim", command, "/dev/stdin"]).stdin(reader).output().unwrap();
        assert_code(&output, 0);
    }
}

#[test]
fn the_template_of_the_documentation_passes() {
    let readme = Path::new(env!("CARGO_MANIFEST_DIR")).join("../rdma-sim/scenarios/README.md");
    let readme = fs::read_to_string(readme).unwrap();
    let (template, _) = readme.split_once("```toml\n").unwrap().1.split_once("```").unwrap();
    let folder = Folder::new();
    let path = folder.write("template.toml", template);
    let report = json(&tb5!["sim", "run", "--json", &path]);
    assert_eq!(report["passed"], true, "{report}");
    // The keys that apply to other workloads are comments.
    let all = template.replace("\n# ", "\n");
    assert_ne!(all, template);
    let path = folder.write("template.toml", all);
    assert_code(&tb5!["sim", "trace", &path], 0);
}

#[test]
fn a_trace_lists_all_records_of_the_run() {
    let path = shipped_one("one-lost-message");
    let text = stdout(&tb5!["sim", "trace", "--seed", "4", &path]);
    let output = tb5!["sim", "trace", "--seed", "4", "--json", &path];
    assert_eq!(output.status.code(), Some(0));
    let trace = json(&output);
    assert_eq!(keys(&trace), ["backend", "records", "scenario", "seed", "trace_digest"]);
    let records = trace["records"].as_array().unwrap();
    assert_eq!(keys(&records[0]), ["detail", "kind", "name", "subject", "time_ns", "value"]);
    assert_eq!(text.lines().count(), records.len() + 1, "the backend, and a line for each record");
    assert!(text.contains("     0.005000000  fault: at 5ms a:rdma_en2 lose 1\n"), "{text}");
    let lost = records.iter().find(|record| record["kind"] == "lost").expect("the message is lost");
    assert!(lost["name"].as_str().unwrap().starts_with("a:rdma_en2 qp 0x"), "{lost}");
    assert!(text.contains("lost        by a fault\n"), "{text}");
    assert!(records.iter().any(|record| record["kind"] == "post_send"));
    let run = json(&tb5!["sim", "run", "--seed", "4", "--json", &path]);
    assert_eq!((&trace["trace_digest"], &trace["scenario"]), (&run["trace_digest"], &run["scenario"]));
}

#[test]
fn a_chrome_trace_has_named_tracks_on_which_no_slices_overlap() {
    let folder = Folder::new();
    let chrome = folder.path("trace.json");
    for name in ["flapping-cable", "peer-killed", "frame-count-mismatch", "roce-with-credits"] {
        fs::write(&chrome, "old").unwrap();
        let output = tb5!["sim", "trace", "--json", "--chrome", &chrome, shipped_one(name)];
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        let records = json(&output);
        let count =
            |kind| records["records"].as_array().unwrap().iter().filter(|r| r["kind"] == kind).count();
        let trace: Value = serde_json::from_slice(&fs::read(&chrome).unwrap()).unwrap();
        let events = trace["traceEvents"].as_array().unwrap();
        let (mut processes, mut tracks, mut ends) = (BTreeSet::new(), BTreeSet::new(), BTreeMap::new());
        let (mut flows, mut arrived) = (BTreeSet::new(), BTreeSet::new());
        for event in events {
            let (pid, id) = (event["pid"].as_u64().unwrap(), event["id"].as_u64());
            let track = (pid, event["tid"].as_u64());
            match event["ph"].as_str().unwrap() {
                "M" if event["name"] == "process_name" => assert!(processes.insert(pid)),
                "M" if event["name"] == "thread_name" => assert!(tracks.insert(track)),
                "M" => (),
                "C" => assert!(event["args"]["frames"].as_u64().is_some() && processes.contains(&pid)),
                "s" => assert!(flows.insert(id)),
                "f" => assert!(arrived.insert(id)),
                "X" => {
                    assert!(tracks.contains(&track) && processes.contains(&pid), "{event}");
                    let (ts, dur) = (event["ts"].as_f64().unwrap(), event["dur"].as_f64().unwrap());
                    // Fractions of a microsecond are not exact.
                    let last = ends.insert(track, ts + dur).unwrap_or(0.0);
                    assert!(ts + 1e-5 > last && dur >= 0.0, "{name}: {event} begins before {last}");
                }
                other => panic!("{name}: {other}"),
            }
        }
        let slices = |category| events.iter().filter(|e| e["ph"] == "X" && e["cat"] == category).count();
        assert_eq!(slices("message"), count("post_send"), "{name}");
        assert_eq!(slices("frame"), count("frame") + count("one_sided"), "{name}");
        assert_eq!(slices("fault"), count("fault"), "{name}");
        assert!(arrived.is_subset(&flows) && !arrived.is_empty(), "{name}");
        assert!(slices("delivery") <= count("delivered"), "{name}");
    }
    assert_eq!(folder.entries(), ["trace.json"]);
}

#[test]
fn a_chrome_trace_that_cannot_be_written_is_named() {
    let folder = Folder::new();
    folder.directory("folder");
    symlink("nowhere", folder.path("dangling")).unwrap();
    folder.pipe("pipe");
    for (name, why) in [
        ("folder", "is a directory"),
        ("dangling", "a file that does not exist"),
        ("pipe", "is not a regular file"),
        ("missing/trace.json", "cannot be written: there is no folder "),
        ("", "is a directory"),
    ] {
        let path = folder.path(name);
        let output = tb5!["sim", "trace", "--chrome", &path, shipped_one("eleventh-queue-pair")];
        assert_refused(&output, &path, why);
        assert!(!stderr(&output).contains(".part"), "{}", stderr(&output));
    }
    assert_eq!(folder.entries(), ["dangling", "folder", "pipe"]);

    // A link stays, and its target is replaced.
    folder.write("target", "old");
    symlink("target", folder.path("link")).unwrap();
    let output = tb5!["sim", "trace", "--chrome", folder.path("link"), shipped_one("tb4-cable")];
    assert_code(&output, 0);
    assert!(fs::symlink_metadata(folder.path("link")).unwrap().is_symlink());
    assert!(fs::read_to_string(folder.path("target")).unwrap().starts_with('{'));

    // A page is written alike.
    let output = tb5!["sim", "trace", "--html", folder.path("folder"), shipped_one("tb4-cable")];
    assert_refused(&output, &folder.path("folder"), "is a directory");
    let output = tb5!["sim", "trace", "--html", folder.path("page.html"), shipped_one("tb4-cable")];
    assert_code(&output, 0);
    let written = format!("page: {}", folder.path("page.html").display());
    assert_eq!(
        stdout(&output).lines().collect::<Vec<_>>(),
        ["backend: simulator (times are virtual)", &written]
    );
    let page = fs::read_to_string(folder.path("page.html")).unwrap();
    assert!(page.starts_with("<!doctype html>") && page.contains("<title>tb4-cable · seed 0</title>"));
}
