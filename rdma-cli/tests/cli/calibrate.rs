//! `tb5 calibrate`

use std::fs;
use std::process::Stdio;
use std::time::Duration;

use rdma_sim::profile::{Decided, Profile};
use serde_json::Value;

use crate::support::{Folder, Running, assert_code, assert_failed, json, keys, program, stdout, tool};

/// A device that no profile describes
pub(crate) const SECRET: &str = "\
format = 1
base = \"tb5\"

[rules]
queue_grant = \"fixed 700\"
early_receives = \"from-rts\"
late_registration = true
unresolved = \"not-permitted\"
large_mtu = false
idle_death = \"600s\"

[timing]
doorbell_ns = 2600
per_message_ns = 140
propagation_ns = 900
delivery_ns = 4100
jitter_ns = 900
send_completion_ns = 700
ip_percent = 30
";

fn run(words: &[&str]) -> Value {
    let output = tool().args(words).output().unwrap();
    assert_code(&output, 0);
    json(&output)
}

/// The way of an owner of two Macs: calibrate, then simulate with the file, here of Macs that are simulated, too.
#[test]
fn the_file_of_a_secret_device_predicts_other_programs_within_5_percent() {
    let folder = Folder::new();
    let secret = folder.write("secret.toml", SECRET);
    let (secret, found) = (secret.to_str().unwrap().to_owned(), folder.path("found.toml"));
    let found = found.to_str().unwrap();
    let report = run(&["calibrate", "--json", "--profile", &secret, "--seed", "7", "--out", found]);
    let promised = [
        "backend",
        "contradictions",
        "device",
        "fields",
        "page_file",
        "profile_file",
        "role",
        "simulated_profile",
        "stopped",
        "virtual_seconds",
        "wall_seconds",
        "wedged_port",
    ];
    assert_eq!(keys(&report), promised);
    assert_eq!(report["fields"]["rules.queue_grant"]["value"], "fixed 700");
    assert_eq!(report["fields"]["rules.queue_grant"]["decided"], "measured");
    assert_eq!(report["fields"]["rules.idle_death"]["decided"], "undecided");
    assert!(report["virtual_seconds"].as_f64().unwrap() < 600.0, "{report}");
    let page = fs::read_to_string(folder.path("found.md")).unwrap();
    assert!(page.contains("| `rules.late_registration` | true | false |"), "{page}");
    // Regression: the files of a simulated device could not be told from those of a Mac, and asked to report what they found.
    let of = format!("simulated, under profile `{secret}`: nothing here was measured on a Mac");
    assert!(page.contains(&of) && !page.contains("Please report"), "{page}");
    let profile = fs::read_to_string(found).unwrap();
    assert!(profile.starts_with("# Found on a device that was simulated"), "{profile}");

    let close = |figure: &str, truth: f64, predicted: f64| {
        assert!((predicted / truth - 1.0).abs() < 0.05, "{figure}: {truth}, predicted {predicted}");
    };
    for size in ["8", "65536"] {
        let ping = |profile: &str| run(&["ping", "--json", "--bytes", size, "--profile", profile]);
        let (truth, predicted, other) = (ping(&secret), ping(found), ping("tb5"));
        for rtt in ["min", "p50", "p99"] {
            let of = |report: &Value| report["rtt_ns"][rtt].as_f64().unwrap();
            close(rtt, of(&truth), of(&predicted));
            assert!((of(&other) / of(&truth) - 1.0).abs() > 0.05, "the secret differs from the default");
        }
    }
    let goodput = |profile: &str, size: &str| {
        let report = run(&["bw", "--json", "--bytes", size, "--profile", profile]);
        report["rows"][0]["goodput_bytes_per_second"].as_f64().unwrap()
    };
    for size in ["64KiB", "1MiB"] {
        close("bw", goodput(&secret, size), goodput(found, size));
    }
    let bench = |profile: &str| {
        let words =
            ["bench", "all-reduce", "--topology", "pair", "--bytes", "4KiB..16MiB", "--json", "--profile"];
        run(&[&words[..], &[profile]].concat())
    };
    let (truth, predicted) = (bench(&secret), bench(found));
    let rows = |report: &Value| report["rows"].as_array().map(Vec::len);
    assert!(rows(&truth) > Some(3) && rows(&truth) == rows(&predicted), "{truth}");
    for (truth, predicted) in
        truth["rows"].as_array().unwrap().iter().zip(predicted["rows"].as_array().unwrap())
    {
        let ns = |row: &Value| {
            let times = row
                .as_object()
                .unwrap()
                .iter()
                .filter(|(key, value)| key.ends_with("_ns") && value.is_number());
            times.map(|(_, value)| value.as_f64().unwrap()).collect::<Vec<_>>()
        };
        for (truth, predicted) in ns(truth).into_iter().zip(ns(predicted)) {
            close("all-reduce", truth, predicted);
        }
    }
}

/// A profile with each cost of the processor that the model has
const SLOW_PROCESSOR: &str = "\
format = 1
base = \"tb5\"

[timing]
cpu = true
post_ns = 210
poll_ns = 70
wake_ns = 900
wake_tail_one_in = 0
copy_bytes_per_us = 2000
reduce_bytes_per_us = 1500
cores = 3
";

/// Catches costs of the processor that are not measured, or that the constants of the way contain as well, and a processor that both simulated Macs share.
#[test]
fn the_file_of_a_device_with_a_slow_processor_predicts_other_programs_within_5_percent() {
    let folder = Folder::new();
    let secret = folder.write("secret.toml", SLOW_PROCESSOR);
    let (secret, found) = (secret.to_str().unwrap().to_owned(), folder.path("found.toml"));
    let found = found.to_str().unwrap();
    let report = run(&["calibrate", "--json", "--profile", &secret, "--out", found]);
    let costs = ["post_ns", "poll_ns", "wake_ns", "copy_bytes_per_us", "reduce_bytes_per_us", "cores"];
    for (field, value) in costs.into_iter().zip(["210", "70", "900", "2000", "1500", "3"]) {
        assert_eq!(report["fields"][format!("timing.{field}")]["value"], value, "{field}");
    }
    let ping = |profile: &str| run(&["ping", "--json", "--bytes", "8", "--profile", profile]);
    let [truth, predicted, other] =
        [&secret, found, "tb5"].map(|profile| ping(profile)["rtt_ns"]["p50"].as_f64().unwrap());
    assert!((predicted / truth - 1.0).abs() < 0.05, "{truth}, predicted {predicted}");
    assert!((other / truth - 1.0).abs() > 0.05, "the secret differs from the default: {truth}, {other}");
}

/// Catches cables that are not used at once, and a bound of the Mac that one cable seems to show.
#[test]
fn several_cables_show_the_bound_of_a_mac() {
    let folder = Folder::new();
    let profile = "format = 1\nbase = \"tb5\"\n\n[timing]\nmac_bytes_per_us = 12000\n";
    let (secret, found) = (folder.write("secret.toml", profile), folder.path("found.toml"));
    let words =
        ["calibrate", "--json", "--profile", secret.to_str().unwrap(), "--out", found.to_str().unwrap()];
    let one = run(&words);
    let field = |report: &Value| report["fields"]["timing.mac_bytes_per_us"].clone();
    assert!(field(&one)["why"].as_str().unwrap().starts_with("one cable"), "{one}");
    let two = run(&[&words[..], &["--cables", "2"]].concat());
    let bound = field(&two)["value"].as_str().unwrap().parse::<f64>().unwrap();
    assert!((bound / 12_000.0 - 1.0).abs() < 0.05, "{two}");
    let page = fs::read_to_string(folder.path("found.md")).unwrap();
    assert!(page.contains("\n| 1, 2 | 1"), "{page}");
}

/// Regression: a bound of the payload was measured and did not reach the profile, and neither did a limit of messages or queues.
///
/// Catches a bound that the file does not have, of whatever cause, and one that the report does not name as a contradiction.
#[test]
fn the_file_predicts_the_bandwidth_whatever_bounds_it() {
    let folder = Folder::new();
    let file = |name: &str, lines: &str| {
        let text = format!("format = 1\nbase = \"tb5\"\n{lines}\n");
        folder.write(name, &text).to_str().unwrap().to_owned()
    };
    let limits = "[caps]\nmax_pd = 6\nmax_message = 1048576\nmax_queue_frames = 2047";
    for (secret, contradicted) in [
        ("tb5-macos-26.2".to_owned(), &["caps.max_message"][..]),
        (file("limits.toml", limits), &["caps.max_message", "caps.max_pd", "caps.max_queue_frames"]),
        (file("networking.toml", "[timing]\nip_percent = 30"), &["timing.frame_ns"]),
        // The bytes of a message hide what the next one takes beside its own.
        (file("mac.toml", "[timing]\nmac_bytes_per_us = 6000"), &["timing.mac_bytes_per_us"]),
        (file("slow.toml", "[timing]\nframe_ns = 600"), &["timing.frame_ns"]),
        (file("fast.toml", "[timing]\nframe_ns = 415"), &["timing.frame_ns"]),
    ] {
        let found = folder.path("found.toml");
        let found = found.to_str().unwrap();
        let report = run(&["calibrate", "--json", "--profile", &secret, "--out", found]);
        let said: Vec<_> =
            report["contradictions"].as_array().unwrap().iter().map(|c| c.as_str().unwrap()).collect();
        assert_eq!(said, contradicted, "{secret}");
        let rates = |profile: &str| {
            let report = run(&["bw", "--json", "--bytes", "64KiB..1MiB", "--profile", profile]);
            let rows = report["rows"].as_array().unwrap().iter();
            rows.map(|row| row["goodput_bytes_per_second"].as_f64().unwrap()).collect::<Vec<_>>()
        };
        let (truth, predicted) = (rates(&secret), rates(found));
        assert!(truth.len() >= 2, "{truth:?}");
        for (truth, predicted) in truth.iter().zip(&predicted) {
            assert!((predicted / truth - 1.0).abs() < 0.05, "{secret}: {truth}, predicted {predicted}");
        }
    }
}

/// Regression: cables had the usual ceiling where bytes take no time, and where Thunderbolt networking takes its part.
#[test]
fn the_ceiling_is_that_of_the_profile() {
    let folder = Folder::new();
    let bw = |timing: &str| {
        let profile = folder.write("of.toml", format!("format = 1\n[timing]\n{timing}\n"));
        run(&["bw", "--json", "--bytes", "1MiB", "--profile", profile.to_str().unwrap()])
    };
    let usual = bw("")["ceiling_bytes_per_second"].as_f64().unwrap();
    let shared = bw("ip_percent = 50");
    let ceiling = shared["ceiling_bytes_per_second"].as_f64().unwrap();
    assert!((ceiling / usual - 0.5).abs() < 1e-9, "{shared}");
    assert!((0.95..=1.0).contains(&shared["rows"][0]["efficiency"].as_f64().unwrap()), "{shared}");
    let free = bw("line_rate = false");
    assert!(free["ceiling_bytes_per_second"].is_null() && free["rows"][0]["efficiency"].is_null(), "{free}");
}

/// Regression: the port was wedged, and the command ended without a word of it.
#[test]
fn a_port_that_is_wedged_is_the_last_line() {
    let folder = Folder::new();
    let secret = folder.write("secret.toml", "format = 1\n[rules]\nfailed_rtr_wedges = 1\n");
    let secret = secret.to_str().unwrap();
    let found = folder.path("found.toml");
    let words = ["calibrate", "--risk-reboot", "--profile", secret, "--out", found.to_str().unwrap()];
    let output = tool().args(words).output().unwrap();
    assert_code(&output, 0);
    assert!(stdout(&output).contains("rules.failed_rtr_wedges"), "{}", stdout(&output));
    let remark = String::from_utf8(output.stderr).unwrap();
    assert!(remark.lines().last().unwrap().contains("reboot this Mac"), "{remark}");
    let report = run(&[&words[..], &["--json"]].concat());
    assert!(report["wedged_port"].as_str().unwrap().contains("wedged after 1 failed transition"), "{report}");
}

#[test]
fn the_default_simulator_contradicts_itself_nowhere() {
    let folder = Folder::new();
    let found = folder.path("calibration.toml");
    let output = tool().args(["calibrate", "--out"]).arg(&found).output().unwrap();
    assert_code(&output, 0);
    let text = stdout(&output);
    assert!(
        text.starts_with("backend: simulator") && text.contains("contradicts the simulator  none"),
        "{text}"
    );
    let profile = Profile::load(&found).unwrap();
    assert_eq!(profile.decided("rules.frame_match"), Some(Decided::Measured));
}

/// Catches temporary files that are there while the calibration runs, or that a signal leaves behind as they are written.
#[test]
fn an_interrupted_calibration_leaves_nothing_behind() {
    let mut codes = Vec::new();
    for millis in [5, 10, 15, 20, 30] {
        let folder = Folder::new();
        let mut command = tool();
        command.args(["calibrate", "--out"]).arg(folder.path("found.toml"));
        let calibration = Running::start(command.stdout(Stdio::piped()).stderr(Stdio::piped()));
        std::thread::sleep(Duration::from_millis(millis));
        calibration.signal(libc::SIGINT);
        let output = calibration.finish();
        let partial: Vec<_> =
            folder.entries().into_iter().filter(|name| !name.starts_with("found.")).collect();
        assert_eq!(partial, Vec::<String>::new(), "after {millis} ms");
        codes.push(output.status.code());
    }
    assert!(codes.contains(&Some(130)), "{codes:?}");
}

/// Catches minutes of a calibration that are lost with a file that cannot be written.
#[test]
fn a_profile_that_cannot_be_written_is_printed() {
    let folder = Folder::new();
    let script = "trap '' XFSZ; ulimit -f 0; exec \"$0\" calibrate --out full.toml 2>&1 | cat";
    let mut shell = program("sh");
    shell.args(["-c", script, env!("CARGO_BIN_EXE_tb5")]).current_dir(folder.path(""));
    let said = stdout(&shell.output().unwrap());
    // Regression: each of more than ten stages said so.
    assert_eq!(
        said.matches("full.toml: cannot be written").count(),
        2,
        "once while it runs, and at its end: {said}"
    );
    let (why, profile) = said.split_once("keep it in another file\n\n").expect(&said);
    assert!(why.contains("full.toml: cannot be written: File too large"), "{said}");
    Profile::parse("printed", profile).unwrap();
    assert_eq!(folder.entries(), [""; 0]);
}

#[test]
fn what_is_in_the_way_is_said_with_its_remedy() {
    let folder = Folder::new();
    let broken = folder.write("broken.toml", "format = 1\n\n[rules]\nframe_match = \"both\"\n");
    let broken = broken.to_str().unwrap();
    let (nowhere, missing) = (folder.path("no/where.toml"), folder.path("missing.so"));
    for (words, code, causes) in [
        (&["calibrate", "--profile", "tb6"][..], 2, &["there is no profile \"tb6\""][..]),
        (
            &["calibrate", "--profile", broken],
            1,
            &["broken.toml:4: rules.frame_match cannot be both; write exact or fits"],
        ),
        (&["ping", "--profile", broken], 1, &["broken.toml:4"]),
        (&["bench", "all-reduce", "--profile", broken], 1, &["broken.toml:4"]),
        (&["run", "--profile", broken, "--", "true"], 1, &["broken.toml:4"]),
        (&["calibrate", "--listen", "--idle-death"], 2, &["--idle-death"]),
        (&["calibrate", "--out", nowhere.to_str().unwrap()], 1, &["where.toml: cannot be written"]),
        (&["calibrate", "--out", "cal.md"], 2, &["the page has the extension .md"]),
        // Regression: it was said to have the extension of the page.
        (&["calibrate", "--out", "/"], 2, &["--out: / is no file: name the file of the profile"]),
        (&["calibrate", "--out", ".."], 2, &["--out: .. is no file"]),
        // One file on most disks of Macs.
        (&["calibrate", "--out", "cal.MD"], 2, &["the page has the extension .md"]),
        (&["calibrate", "--device", "rdma_en2"], 2, &["--device is for two machines"]),
        (&["calibrate", "--port", "7466"], 2, &["--port is for two machines: write HOST:"]),
        (&["calibrate", "--bind", "127.0.0.1"], 2, &["--listen"]),
        (&["calibrate", "mini:7466"], 2, &["write mini: and --port 7466"]),
        (
            &["calibrate", "mini:", "--port", "0"],
            2,
            &["--port 0 is for the side that listens", "such as 7466"],
        ),
        (&["calibrate", "mini:", "--listen"], 2, &["cannot be used with '--listen'"]),
        (&["calibrate", "--listen", "--bind", "foo"], 2, &["invalid value 'foo' for '--bind <ADDRESS>'"]),
        // A machine without RDMA: on either side.
        (&["calibrate", "--listen"], 1, &["tb5 doctor"]),
        (&["calibrate", "127.0.0.1:", "--port", "1"], 1, &["tb5 doctor"]),
    ] {
        let output = tool().args(words).env("RDMA_PROVIDER", &missing).output().unwrap();
        assert_failed(&output, code, causes);
    }
}

/// Catches an exit code of 0 for a device that lacks a behaviour, and a body that runs in one process alone.
#[test]
fn the_behaviours_alone_are_tried_on_simulated_macs_and_between_processes() {
    let report = run(&["calibrate", "--conformance", "--risk-reboot", "--json"]);
    let promised = ["backend", "device", "failed", "passed_count", "role", "simulated_profile", "skipped"];
    assert_eq!(keys(&report), promised);
    assert_eq!((&report["passed_count"], &report["failed"]), (&Value::from(80), &serde_json::json!({})));

    let folder = Folder::new();
    // No adapter waits for a receive.
    let waits =
        folder.write("waits.toml", "format = 1\nbase = \"roce\"\n[caps]\nsend_waits_for_receive = true\n");
    let words = ["calibrate", "--conformance", "--json", "--profile", waits.to_str().unwrap()];
    let output = tool().args(words).output().unwrap();
    assert_code(&output, 1);
    assert!(!json(&output)["failed"]["a_send_before_its_receive"].is_null(), "{output:?}");

    // Regression: a device that follows other rules than the simulator does by default was said to lack behaviours.
    let report = run(&["calibrate", "--conformance", "--json", "--profile", "tb5-strict"]);
    assert_eq!(report["failed"], serde_json::json!({}), "{report}");

    let between = |profile| {
        let program = tool().get_program().to_owned().into_string().unwrap();
        let words =
            ["run", "--hosts", "2", "--profile", profile, "-q", "--", &program, "calibrate", "--listen", ":"];
        tool().args(words).args([&program, "calibrate", "--conformance", "localhost:"]).output().unwrap()
    };
    for (profile, passed) in [("tb5", 76), ("roce", 60)] {
        let output = between(profile);
        assert_code(&output, 0);
        let text = stdout(&output);
        assert!(text.contains(&format!("{passed} of 80 behaviours")), "{text}");
    }
    // Regression: a region more than there may be ended the process at a device that crashes then.
    let output = between("tb5-strict");
    assert_code(&output, 0);
    assert!(stdout(&output).contains("of 80 behaviours"), "{output:?}");
}
