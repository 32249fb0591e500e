//! `tb5 demo`

use std::collections::BTreeSet;
use std::fs;
use std::process::Stdio;

use crate::machines::Listener;
use crate::support::{
    Folder, Running, assert_code, assert_failed, eventually, json, keys, stderr, stdout, tool,
};

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
    assert!(number("/ping/rtt_ns/p50") <= 1.05 * number("/ping/bare_rtt_ns"));
    assert!((0.5..1.0).contains(&number("/copy/efficiency")), "{}", report["copy"]);
    assert_eq!((number("/copy/files"), number("/copy/bytes")), (5.0, 24_421_345.0));
    assert!(number("/all_reduce/time_ns") >= number("/all_reduce/lower_bound_ns"));
    let pulled = |what: &str| {
        assert!(report[what]["faults"].as_str().unwrap().contains("a:rdma_en2 unplug"), "{}", report[what]);
        ["time_ns", "undisturbed_ns"].map(|key| number(&format!("/{what}/{key}")))
    };
    let ([time, undisturbed], outage) = (pulled("copy_unplugged"), number("/copy_unplugged/outage_ns"));
    assert!(time > undisturbed + outage && outage == 2e6, "{}", report["copy_unplugged"]);
    // Other Macs carry what the cable would have carried, for as long as it is out.
    let [time, undisturbed] = pulled("all_reduce_unplugged");
    assert!(undisturbed < time && time < 2.0 * undisturbed, "{}", report["all_reduce_unplugged"]);
    assert!(report["all_reduce_unplugged"]["outage_ns"].is_null());
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
    assert_failed(&output, 130, &["tb5: interrupted\n"]);
    assert!(!stderr(&output).contains("copy again"), "{}", stderr(&output));
    assert_eq!((folder.entries(), temporary.entries()), (Vec::new(), Vec::new()));
}

/// Catches a demonstration of two machines that shows figures of the simulator, leaves something behind, or copies what is there already.
#[test]
fn between_machines_each_result_is_beside_its_limit() {
    let (folder, root, temporary) = (Folder::new(), Folder::new(), Folder::new());
    let server = Listener::serve(&["--into", root.path("").to_str().unwrap()]);
    let mut hashes = Vec::new();
    for _ in 0..2 {
        let page = folder.path("report.html");
        let mut command = tool();
        command
            .args(["demo", "127.0.0.1:", "--json", "--port", &server.port.to_string(), "--out"])
            .arg(&page);
        let output = command.env("TMPDIR", temporary.path("")).output().unwrap();
        assert_code(&output, 0);
        let report = json(&output);
        assert_eq!((&report["backend"], &report["tcp_bw"]), (&"tcp".into(), &serde_json::Value::Null));
        assert_eq!(report["tcp_missing"], "TCP is the only carrier");
        let number = |path: &str| report.pointer(path).unwrap().as_f64().unwrap();
        assert_eq!((number("/copy/bytes"), number("/copy/resumed_bytes")), (24_421_345.0, 0.0));
        assert_eq!(number("/copy_drill/resumed_bytes"), 0.0, "other bytes were copied");
        for drill in ["/copy_drill/reconnects", "/all_reduce/reconnects"] {
            assert!(number(drill) >= 1.0, "{drill}: {report}");
        }
        assert_eq!((number("/copy/reconnects"), number("/ping/count")), (0.0, 1000.0));
        assert_eq!(report["results"].as_array().unwrap().len(), 6);
        hashes.extend([report["copy"]["blake3"].clone(), report["copy_drill"]["blake3"].clone()]);

        let text = fs::read_to_string(&page).unwrap();
        assert!(!text.contains("{{") && !text.contains("http:"), "the page is whole, and needs nothing else");
        for result in report["results"].as_array().unwrap() {
            assert!(text.contains(result["result"].as_str().unwrap()), "{result}");
        }
        assert_eq!((root.entries(), temporary.entries()), (vec!["tb5-demo".to_owned()], Vec::new()));
        assert_eq!(fs::metadata(root.path("tb5-demo/model/weights.bin")).unwrap().len(), 20 << 20);
    }
    let distinct: BTreeSet<_> = hashes.iter().map(ToString::to_string).collect();
    assert_eq!(distinct.len(), 4, "{hashes:?}");
}

/// Catches a demonstration over cables that compares with nothing, and one that does not survive its own drill.
#[cfg(target_os = "linux")]
#[test]
fn over_cables_the_demo_is_compared_with_tcp() {
    let (folder, root) = (Folder::new(), Folder::new());
    let (tb5, port) = (env!("CARGO_BIN_EXE_tb5"), "7467");
    let mut command = tool();
    command.args(["run", "--timeout", "100s", "--", "sh", "-c"]);
    let (into, done) = (root.path("").display().to_string(), folder.path("done").display().to_string());
    command.arg(format!(
        "{tb5} serve --bind 127.0.0.1 --port {port} --into {into} & until [ -e {done} ]; do sleep 0.1; done; kill -TERM $!; wait $!"
    ));
    command.args([":", "sh", "-c"]);
    let report = folder.path("report.html").display().to_string();
    command.arg(format!(
        "{tb5} demo 127.0.0.1: --port {port} --out {report}; code=$?; touch {done}; exit $code"
    ));
    let output = command.output().unwrap();
    assert_code(&output, 0);
    let text = stdout(&output);
    assert!(text.contains("carrier: RDMA over rdma_en2; TCP while no cable works"), "{text}");
    for row in ["over TCP", "times as fast", "copy, all paths broken", "all_reduce, all paths broken"] {
        assert!(text.contains(row), "{row}: {text}");
    }
    let page = fs::read_to_string(folder.path("report.html")).unwrap();
    assert!(page.contains("polyline class=\"tcp\"") && page.contains("rdma_en2"), "{page}");
}

/// Catches a dead end: an error without the command that helps.
#[test]
fn a_demo_without_its_other_machine_says_what_to_run_there() {
    let folder = Folder::new();
    let out = folder.path("report.html");
    let out = out.to_str().unwrap();
    let server = Listener::serve(&[]);
    let refused = server.ask("demo", &["--out", out]);
    assert_failed(&refused, 1, &["the other side takes no copies: run `tb5 serve --into DIR` there"]);
    let nothing = tb5!["demo", "127.0.0.1:", "--port", "1", "--out", out];
    assert_failed(&nothing, 1, &["127.0.0.1, port 1: run `tb5 serve --into DIR` there first"]);
    for (arguments, why) in [
        (&["demo", "mini:", "--seed", "1"][..], "cannot be used with"),
        (&["demo", "--port", "1"], "--port is for two machines: write HOST:, or leave it out"),
        (&["demo", "a/b"], "write the name or the address of a machine"),
    ] {
        assert_failed(&tool().args(arguments).output().unwrap(), 2, &[why]);
    }
    assert_eq!(folder.entries(), [""; 0]);
}
