//! `tb5 sim check` and `tb5 sim replay`

use std::fs;

use serde_json::Value;

use crate::sim::shipped_one;
use crate::support::{Folder, assert_code, assert_failed, json, keys, stderr, stdout, tool};

/// A scenario of pings: its bound of round trips holds in the plain order of events, and not when messages are late
const CLOSE: &str = r#"
name = "close"
source = "a test"
about = "a test"
faults = ["at 1s a:rdma_en2 slow 50%"]

[workload]
kind = "ping"
count = 40

[expect]
outcome = "completes"
max_rtt = "20us"
"#;

/// Catches a check that tries the plain order only, a line that repeats another run, and faults that were not needed and stay.
#[test]
fn a_run_that_fails_is_found_shrunk_and_repeated() {
    let folder = Folder::new();
    let path = folder.write("close.toml", CLOSE);
    let found = tb5!["sim", "check", &path, "--runs", "400", "--json"];
    assert_code(&found, 1);
    let report = json(&found);
    assert_eq!(keys(&report), ["backend", "never_fired", "passed", "reason", "replay", "runs", "scenario"]);
    assert!(report["runs"].as_u64() > Some(1), "the plain run passes: {report}");
    assert!(report["reason"].as_str().unwrap().contains("to take at most 20us, found"), "{report}");
    let line = report["replay"].as_str().unwrap();
    assert!(line.contains("test=close") && !line.contains("slow"), "{line}");

    let text = stdout(&tb5!["sim", "check", &path, "--runs", "400"]);
    assert!(text.contains(&format!("replay: tb5 sim replay {} '{line}'", path.display())), "{text}");
    let page = folder.path("page.html");
    let again = tb5!["sim", "replay", &path, line, "--json", "--html", &page];
    assert_code(&again, 1);
    let repeated = json(&again);
    assert_eq!(
        (&repeated["passed"], &repeated["violations"]),
        (&Value::Bool(false), &Value::from(vec![report["reason"].clone()]))
    );
    assert_eq!(repeated["trace_digest"], json(&tb5!["sim", "replay", &path, line, "--json"])["trace_digest"]);
    assert!(fs::read_to_string(&page).unwrap().contains("<title>close · replay</title>"));

    // The whole line of an environment variable is read as well, and other choices pass.
    assert_code(&tb5!["sim", "replay", &path, format!("RDMA_SIM_REPLAY='{line}'")], 1);
    let shown = tb5!["sim", "replay", &path, line, "--html", &page];
    assert!(stdout(&shown).ends_with(&format!("\npage: {}\n", page.display())), "{}", stdout(&shown));
    let plain = tb5!["sim", "replay", &path, "2 seed=1 draws=0"];
    assert_code(&plain, 0);
    let said = stderr(&plain);
    assert!(
        said.contains("the run has the faults of the replay line, which are not those of the scenario"),
        "{said}"
    );
}

/// Regression: a goodput below the bound and one above it were the same failure, so that the fault which holds it down was taken out.
#[test]
fn a_value_below_its_bounds_is_not_shrunk_to_one_above_them() {
    let folder = Folder::new();
    let path = shipped_one("broadcast-storm");
    let report = json(&tb5!["sim", "check", &path, "--runs", "400", "--json"]);
    let (reason, line) = (report["reason"].as_str().unwrap(), report["replay"].as_str().unwrap());
    assert!(reason.ends_with("which is less") && line.contains("storm 5%"), "{report}");
    let fast = fs::read_to_string(&path).unwrap().replace("storm 5%", "storm 50%");
    let report = json(&tb5!["sim", "check", folder.write("fast.toml", &fast), "--json"]);
    assert!(report["reason"].as_str().unwrap().ends_with("which is more"), "{report}");
}

#[test]
fn an_invalid_check_or_replay_is_refused_with_the_reason() {
    let folder = Folder::new();
    let path = folder.write("close.toml", CLOSE);
    let other = tb5!["sim", "replay", &path, "2 setup=00000001 seed=1"];
    assert_failed(&other, 1, &["the replay is of another topology or model (00000001, and this is"]);
    // Regression: the run of a fault that cannot be was one that failed.
    let impossible = tb5!["sim", "replay", &path, "2 seed=1 faults=at 1ms a:rdma_en7 unplug"];
    assert_failed(&impossible, 2, &["at 1ms a:rdma_en7 unplug", "no device"]);
    assert_failed(&tb5!["sim", "replay", &path, "1 seed=1"], 2, &["has version \"1\" of the format"]);
    assert_failed(&tb5!["sim", "check", &path, "--runs", "0"], 2, &["from 1 to 1000000"]);
    assert_failed(&tb5!["sim", "check", folder.path("none")], 1, &["examples are in rdma-sim/scenarios"]);
    let nowhere =
        tb5!["sim", "replay", &path, "2 seed=1 draws=0", "--html", folder.path("missing/page.html")];
    assert_failed(&nowhere, 1, &["cannot be written: there is no folder"]);
    let mut command = tool();
    command.args(["sim", "check"]).arg(&path).env("RDMA_SIM_REPLAY", "2 seed=1");
    assert_failed(&command.output().unwrap(), 2, &["RDMA_SIM_REPLAY is for tests: unset it"]);
}

/// Catches a check that passes because its faults come too late, and a report that keeps silent on that.
#[test]
fn a_fault_that_fires_in_no_run_is_named() {
    let folder = Folder::new();
    let late = CLOSE.replace("at 1s", "at 50s").replace("max_rtt = \"20us\"", "");
    for (text, never) in [(late, "fired in no run: at 50s a:rdma_en2 slow 50%\n"), (soon(), "")] {
        let path = folder.write("scenario.toml", text);
        let passed = tb5!["sim", "check", &path, "--runs", "3"];
        assert_code(&passed, 0);
        assert!(stdout(&passed).ends_with(&format!("3 seeds and the plain order passed\n{never}")));
        let report = json(&tb5!["sim", "check", &path, "--runs", "3", "--json"]);
        assert_eq!(report["never_fired"].as_array().unwrap().len(), usize::from(!never.is_empty()));
    }
}

/// A scenario with a fault that fires while its programs run
fn soon() -> String {
    CLOSE.replace("at 1s", "at 1us").replace("max_rtt = \"20us\"", "")
}
