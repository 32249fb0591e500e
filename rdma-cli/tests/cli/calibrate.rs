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
        "virtual_seconds",
        "wall_seconds",
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
    let bench = |profile: &str| {
        let words =
            ["bench", "all-reduce", "--topology", "pair", "--bytes", "4KiB..1MiB", "--json", "--profile"];
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
