//! `tb5 demo`

use std::fs;
use std::process::Stdio;

use crate::support::{Folder, Running, assert_code, assert_failed, eventually, json, keys, stdout, tool};

/// Catches results that differ from run to run, a limit that is exceeded, and files that stay behind.
#[test]
fn every_result_is_within_its_limit_and_equal_seeds_give_equal_runs() {
    let (folder, temporary) = (Folder::new(), Folder::new());
    let demo = |name: &str| {
        let out = folder.path(name);
        let mut command = tool();
        command.args(["demo", "--json", "--seed", "3", "--out"]).arg(&out);
        let output = command.env("TMPDIR", temporary.path("")).output().unwrap();
        assert_code(&output, 0);
        (json(&output), fs::read_to_string(out).unwrap())
    };
    let (report, page) = demo("one.html");
    assert_eq!(temporary.entries(), [""; 0], "the directory that was copied is gone");
    let promised = [
        "all_reduce",
        "all_reduce_unplugged",
        "backend",
        "bw",
        "copy",
        "copy_unplugged",
        "devices",
        "hosts",
        "machine",
        "ping",
        "report",
        "results",
        "seed",
        "wall_seconds",
    ];
    assert_eq!(keys(&report), promised);
    assert_eq!(
        (&report["hosts"], &report["seed"], &report["backend"]),
        (&4.into(), &3.into(), &"simulator".into())
    );
    let number = |path: &str| report.pointer(path).unwrap().as_f64().unwrap();
    assert!(number("/ping/rtt_ns/p50") <= 1.05 * number("/ping/raw_rtt_ns"));
    assert!((0.5..1.0).contains(&number("/copy/efficiency")), "{}", report["copy"]);
    assert_eq!((number("/copy/files"), number("/copy/bytes")), (5.0, 24_421_345.0));
    assert!(number("/all_reduce/time_ns") >= number("/all_reduce/lower_bound_ns"));
    for what in ["copy_unplugged", "all_reduce_unplugged"] {
        let [time, undisturbed, outage] =
            ["time_ns", "undisturbed_ns", "outage_ns"].map(|key| number(&format!("/{what}/{key}")));
        assert!(time > undisturbed && outage == 2e6, "{what}: {}", report[what]);
        assert!(report[what]["faults"].as_str().unwrap().contains("a:rdma_en2 unplug"));
    }
    let ports = report["devices"].as_array().unwrap().iter().map(|mac| mac["devices"].as_array().unwrap());
    assert!(ports.flatten().all(|device| device["ports"][0]["state"] == "PORT_ACTIVE"));

    let (again, page_again) = demo("two.html");
    for path in ["/ping/trace_digest", "/copy/trace_digest", "/copy_unplugged/time_ns", "/results"] {
        assert_eq!(report.pointer(path), again.pointer(path), "{path}");
    }
    assert!(page == page_again, "equal seeds give equal pages");
}

/// Catches a plain `tb5` that prints its help instead of the demonstration, and one that does not say where its report is.
#[test]
fn without_a_command_the_tool_runs_the_demo() {
    let folder = Folder::new();
    let output = tool().current_dir(folder.path("")).output().unwrap();
    assert_code(&output, 0);
    let text = stdout(&output);
    assert!(text.starts_with("backend: simulator (4 Macs"), "{text}");
    assert!(text.contains("report: tb5-demo.html") && text.contains("bare verbs"), "{text}");
    assert!(!text.contains('\u{1b}'), "{text:?}");
    assert_eq!(folder.entries(), ["tb5-demo.html"]);
}

#[test]
fn a_report_that_cannot_be_written_is_one_clear_sentence() {
    let folder = Folder::new();
    let output = tb5!["demo", "--out", folder.path("missing/report.html")];
    assert_failed(&output, 1, &["missing/report.html: cannot be written: there is no folder"]);
}

/// Catches a demonstration that is interrupted and leaves its directory or a part of its report.
#[test]
fn an_interrupted_demo_leaves_nothing_behind() {
    let (folder, temporary) = (Folder::new(), Folder::new());
    let mut command = tool();
    command.args(["demo", "--json", "--out"]).arg(folder.path("report.html")).stdout(Stdio::piped());
    let demo = Running::start(command.env("TMPDIR", temporary.path("")).stderr(Stdio::piped()));
    eventually(|| !temporary.entries().is_empty());
    demo.signal(libc::SIGINT);
    let output = demo.finish();
    assert_failed(&output, 1, &["interrupted"]);
    assert_eq!((folder.entries(), temporary.entries()), (Vec::new(), Vec::new()));
}
