//! `tb5 run` and `tb5 fabric`: programs that nobody here wrote, as the hosts of a simulated fabric
//!
//! Needs the programs of Debian's ibverbs-utils and perftest.
#![cfg(target_os = "linux")]

mod support;

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command};
use std::thread::sleep;
use std::time::Duration;

use serde_json::{Value, json};

use self::support::{Run, assert_code, eventually, json, lines_of, pair, signal, tb5, text};

// ─── Programs that nobody here wrote ───

#[test]
fn each_host_lists_its_own_devices() {
    let output = Run::new(["--hosts", "3", "--topology", "line", "--", "ibv_devices"]).output();
    assert_code(&output, 0);
    for host in ["a", "b", "c"] {
        let lines = lines_of(&output.stdout, host);
        assert!(lines.iter().any(|line| line.contains("rdma_en2")), "{host}: {lines:?}");
    }
    let guids = |host| lines_of(&output.stdout, host).split_off(2);
    assert_ne!(guids("a"), guids("b"), "devices of different hosts differ");
}

#[test]
fn ports_are_active_where_a_cable_is() {
    let output = Run::new(["--hosts", "3", "--topology", "line", "--", "ibv_devinfo"]).output();
    assert_code(&output, 0);
    let active = |host| {
        let lines = lines_of(&output.stdout, host);
        lines.iter().filter(|line| line.contains("PORT_ACTIVE")).count()
    };
    assert_eq!(["a", "b", "c"].map(active), [1, 2, 1]);
}

fn assert_ping_pong(run: Run, messages: u64, payload_bytes: u64) {
    let output = run.output();
    assert_code(&output, 0);
    let report = json(&output);
    assert_eq!(report["outcome"], "done");
    for end in report["cables"][0]["ends"].as_array().unwrap() {
        assert_eq!(end["messages"], messages, "{report}");
        assert_eq!(end["payload_bytes"], payload_bytes, "{report}");
    }
}

#[test]
fn a_ping_pong_polls() {
    let run = pair(&["--json"], &["ibv_uc_pingpong", "-g", "1", "-n", "500", "-s", "4096"]);
    assert_ping_pong(run, 500, 500 * 4096);
}

#[test]
fn a_ping_pong_sleeps() {
    let run = pair(&["--json"], &["ibv_uc_pingpong", "-g", "1", "-n", "300", "-s", "4096", "-e"]);
    assert_ping_pong(run, 300, 300 * 4096);
}

#[test]
fn perftest_measures_latency() {
    let words = ["ib_send_lat", "-c", "UC", "-d", "rdma_en2", "-x", "1", "-s", "64", "-n", "200", "-F"];
    // It knows two kinds of link only.
    let output = pair(&["--link-layer", "ethernet"], &words).output();
    assert_code(&output, 0);
    let lines = lines_of(&output.stdout, "b");
    let row = lines.iter().find(|line| line.trim_start().starts_with("64 "));
    assert!(row.is_some_and(|row| row.contains("200")), "{lines:?}");
}

// ─── What programs find, and what they print ───

#[test]
fn programs_find_what_mlx_and_jaccl_read() {
    let script = r#"
        echo "$MLX_RANK $JACCL_RANK $MLX_WORLD_SIZE $RDMA_SIM_HOST $RDMA_SIM_LINK_LAYER"
        test "$MLX_JACCL_COORDINATOR" = "$JACCL_COORDINATOR" && echo "$JACCL_COORDINATOR"
        test "$MLX_IBV_DEVICES" = "$JACCL_IBV_DEVICES" && cat "$JACCL_IBV_DEVICES"
        echo "${LD_LIBRARY_PATH##*:} ${LD_PRELOAD##*/}"
        test "${LD_LIBRARY_PATH%%:*}/librdma.dylib" -ef "$RDMA_PROVIDER" && echo the provider
        echo "seed $RDMA_SIM_SEED."
    "#;
    let mut run = Run::new(["--hosts", "2", "--link-layer", "ethernet", "--", "sh", "-c", script]);
    run.command.env("LD_LIBRARY_PATH", "/before").env("RDMA_SIM_SEED", "9");
    let output = run.output();
    assert_code(&output, 0);
    for (rank, host) in ["a", "b"].into_iter().enumerate() {
        let lines = lines_of(&output.stdout, host);
        assert_eq!(lines[0], format!("{rank} {rank} 2 {host} ethernet"));
        assert!(lines[1].starts_with("127.0.0.1:"), "{lines:?}");
        let matrix: Value = serde_json::from_str(&lines[2..lines.len() - 3].join("\n")).unwrap();
        assert_eq!(matrix, json!([[null, "rdma_en2"], ["rdma_en2", null]]));
        assert_eq!(lines[lines.len() - 3..], ["/before librdma.so", "the provider", "seed ."]);
    }
}

#[test]
fn each_line_says_whose_it_is() {
    let script = r#"printf 'one\n\377\nwithout an end'; printf 'wrong\n' >&2"#;
    let output = Run::shell("2", script).output();
    assert_code(&output, 0);
    for host in ["a", "b"] {
        let mine: Vec<_> = output
            .stdout
            .split(|byte| *byte == b'\n')
            .filter_map(|line| line.strip_prefix(format!("{host} | ").as_bytes()))
            .collect();
        assert_eq!(mine, [&b"one"[..], b"\xff", b"without an end"]);
        assert_eq!(lines_of(&output.stderr, host), ["wrong"]);
    }
    assert_eq!(output.stdout.split(|byte| *byte == b'\n').count(), 2 * 3 + 1);
    assert!(!output.stdout.contains(&0x1b), "no colours but on a terminal");
}

#[test]
fn lines_are_never_mixed() {
    let script =
        r#"for i in $(seq 300); do echo "$RDMA_SIM_HOST 0123456789012345678901234567890123456789 $i"; done"#;
    let output = Run::shell("4", script).output();
    assert_code(&output, 0);
    assert_eq!(text(&output.stdout).lines().count(), 4 * 300);
    for host in ["a", "b", "c", "d"] {
        let expected: Vec<_> =
            (1..=300).map(|i| format!("{host} 0123456789012345678901234567890123456789 {i}")).collect();
        assert_eq!(lines_of(&output.stdout, host), expected);
    }
}

#[test]
fn json_is_one_object_with_stable_keys() {
    let fault = "at 0s a:rdma_en2 corrupt 1; at 3600s b pause; after 9 frames a:rdma_en2 unplug";
    let output = Run::new(["--json", "--hosts", "2", "--fault", fault, "--", "echo", "printed"]).output();
    assert_code(&output, 0);
    assert_eq!(lines_of(&output.stderr, "b"), ["printed"]);
    let report = json(&output);
    let keys = |value: &Value| value.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
    let expected = ["backend", "cables", "exit_code", "fabric", "faults", "hosts", "outcome", "seconds"];
    assert_eq!(keys(&report), expected);
    assert_eq!(keys(&report["hosts"][0]), ["exit_code", "host", "killed_by_fault", "signal"]);
    let counters = ["device", "frames", "host", "messages", "payload_bytes", "stalls", "wire_bytes"];
    assert_eq!(keys(&report["cables"][0]["ends"][1]), counters);
    let faults = json!([
        {"fault": "at 0s a:rdma_en2 corrupt 1", "happened": true},
        {"fault": "at 3600s b pause", "happened": false},
        {"fault": "after 9 frames a:rdma_en2 unplug", "happened": false},
    ]);
    assert_eq!(report["faults"], faults);
}

// ─── How runs end ───

#[test]
fn the_first_failure_is_the_exit_code() {
    let table: [(&[&str], i32, &str); 4] = [
        (&["true"], 0, ""),
        (&["true", ":", "sh", "-c", "exit 7"], 7, "b failed with exit code 7"),
        (&["sh", "-c", "kill -9 $$", ":", "sleep", "1000"], 137, "a was killed by signal 9"),
        // The second one fails because it is asked to end.
        (&["sh", "-c", "exit 3", ":", "sh", "-c", "trap 'exit 4' TERM; sleep 1000 & wait"], 3, "a failed"),
    ];
    for (words, code, says) in table {
        let arguments = [&["--hosts", "2", "--grace", "1s", "--stagger", "0s", "--"], words].concat();
        let output = Run::new(arguments).output();
        assert_code(&output, code);
        assert!(text(&output.stderr).contains(says), "{}", text(&output.stderr));
    }
}

#[test]
fn one_that_fails_ends_those_that_will_not() {
    // They ignore the request, or are stopped.
    for script in ["trap '' TERM; while :; do sleep 1; done", "kill -STOP $$; sleep 1000"] {
        let words =
            ["--hosts", "2", "--grace", "100ms", "--stagger", "0s", "--", "false", ":", "sh", "-c", script];
        assert_code(&Run::new(words).output(), 1);
    }
}

#[test]
fn others_may_finish_after_a_failure() {
    let others =
        "while kill -0 $PPID && ! test -e \"$JACCL_IBV_DEVICES.go\"; do sleep 0.01; done; echo finished";
    let first = "touch \"$JACCL_IBV_DEVICES.go\"; exit 5";
    let words = [
        "--hosts",
        "2",
        "--grace",
        "200s",
        "--stagger",
        "0s",
        "--",
        "sh",
        "-c",
        first,
        ":",
        "sh",
        "-c",
        others,
    ];
    let output = Run::new(words).output();
    assert_code(&output, 5);
    assert_eq!(lines_of(&output.stdout, "b"), ["finished"]);
}

/// Three hosts that would run for ever, each with a process of its own, when all of them run
fn endless() -> (Run, Child) {
    let mut run = Run::shell("3", "sleep 1000 & echo ready; wait");
    let mut child = run.command.spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap());
    for _ in 0..3 {
        let mut line = String::new();
        lines.read_line(&mut line).unwrap();
        assert!(line.ends_with("| ready\n"), "{line}");
    }
    child.stdout = Some(lines.into_inner());
    // A shell and a sleep for each host; who is just being loaded shows no environment yet.
    eventually(|| run.processes().len() >= 6);
    (run, child)
}

#[test]
fn a_signal_ends_everything() {
    for (number, code) in [(libc::SIGINT, 130), (libc::SIGTERM, 143), (libc::SIGHUP, 129)] {
        let (run, mut child) = endless();
        signal(&child, number);
        assert_eq!(child.wait().unwrap().code(), Some(code));
        run.assert_nothing_is_left();
    }
}

#[test]
fn nothing_lives_on_when_the_tool_is_killed() {
    let (run, mut child) = endless();
    child.kill().unwrap();
    child.wait().unwrap();
    run.assert_no_process_is_left();
    // The files go with the next command.
    assert_code(&tb5().arg("fabric").output().unwrap(), 0);
    assert!(!run.directory().exists());
}

#[test]
fn a_second_signal_waits_for_nothing() {
    let mut run = Run::new(["--grace", "1000s", "--", "sh", "-c", "trap '' TERM; while :; do sleep 1; done"]);
    let mut child = run.command.spawn().unwrap();
    eventually(|| run.processes().len() >= 2);
    // Two that come at once may be one.
    let mut ended = None;
    eventually(|| {
        signal(&child, libc::SIGINT);
        ended = child.try_wait().unwrap();
        ended.is_some()
    });
    assert_eq!(ended.unwrap().code(), Some(130));
    run.assert_no_process_is_left();
}

#[test]
fn a_reader_that_goes_away_ends_everything() {
    let mut run = Run::shell("2", "while echo line; do sleep 0.01; done");
    let mut child = run.command.spawn().unwrap();
    drop(child.stdout.take());
    assert_eq!(child.wait().unwrap().code(), Some(141));
    run.assert_nothing_is_left();
}

#[test]
fn time_may_be_limited() {
    let output = Run::limited("200ms", ["--json", "--hosts", "2", "--", "sleep", "1000"]).output();
    assert_code(&output, 124);
    assert_eq!(json(&output)["outcome"], "timed_out");
    assert!(text(&output.stderr).contains("ended after 0.200 s by --timeout"), "{}", text(&output.stderr));
}

// ─── Faults ───

/// A ping-pong that would take for ever, under way
fn long_ping_pong() -> (Run, Child) {
    let mut run = pair(&["--json", "--grace", "500ms"], &["ibv_uc_pingpong", "-g", "1", "-n", "1000000000"]);
    let child = run.command.spawn().unwrap();
    // Counters are told now and then.
    eventually(|| run.sent()[0]["ports"][0]["messages"].as_u64().is_some_and(|messages| messages > 0));
    (run, child)
}

#[test]
fn a_cable_can_be_pulled_while_programs_run() {
    let look = "until ibv_devinfo -d rdma_en2 | grep -q PORT_DOWN; do echo active; done; echo pulled";
    let mut run = Run::shell("2", look);
    let mut child = run.command.spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    lines.read_line(&mut line).unwrap();
    assert!(line.ends_with("| active\n"), "{line}");
    let asked = run.fabric(&["unplug", "a:rdma_en2"]);
    let fault = asked["faults"][0].as_str().unwrap();
    assert!(fault.starts_with("at ") && fault.ends_with(" a:rdma_en2 unplug"), "{fault}");
    let mut rest = String::new();
    lines.read_to_string(&mut rest).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_code(&output, 0);
    for host in ["a", "b"] {
        assert_eq!(lines_of(rest.as_bytes(), host).last().unwrap(), "pulled");
    }
    assert!(text(&output.stderr).lines().any(|line| line == format!("tb5: fault {fault}")));
    run.assert_nothing_is_left();
}

#[test]
fn a_ping_pong_does_not_survive_its_cable() {
    let (run, mut child) = long_ping_pong();
    let listed = json(&tb5().args(["--json", "fabric"]).output().unwrap());
    let listed = listed["fabrics"].as_array().unwrap().iter().find(|fabric| fabric["name"] == *run.name);
    assert_eq!(listed.unwrap()["processes"], 2, "{listed:?}");
    run.fabric(&["unplug", "a:rdma_en2"]);
    // It fails if it sends then; if it waits for what was lost, it waits for ever.
    let mut before = Value::Null;
    let mut is_over = false;
    eventually(|| {
        is_over = child.try_wait().unwrap().is_some();
        sleep(Duration::from_millis(500));
        let now = if is_over { Value::Null } else { run.sent() };
        is_over || now == std::mem::replace(&mut before, now.clone())
    });
    if !is_over {
        signal(&child, libc::SIGTERM);
    }
    let output = child.wait_with_output().unwrap();
    let code = output.status.code().unwrap();
    assert!(matches!(code, 1 | 143), "{code}: {}", text(&output.stderr));
    assert_eq!(json(&output)["faults"][0]["happened"], true);
    run.assert_nothing_is_left();
}

#[test]
fn a_host_that_a_fault_kills_fails_nobody() {
    let (run, mut child) = long_ping_pong();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines().map(Result::unwrap);
    run.fabric(&["kill", "a"]);
    assert!(lines.any(|line| line.starts_with("tb5: a was killed by a fault: at ")));
    assert_eq!(run.processes().len(), 1, "the other goes on");
    signal(&child, libc::SIGTERM);
    let output = child.wait_with_output().unwrap();
    let report = json(&output);
    assert_code(&output, 143);
    assert_eq!(report["outcome"], "interrupted");
    assert_eq!(
        report["hosts"][0],
        json!({"host": "a", "exit_code": null, "signal": 9, "killed_by_fault": true})
    );
    run.assert_nothing_is_left();
}

// ─── Bad input ───

#[test]
fn what_cannot_be_meant_is_refused() {
    let table: [(&[&str], i32, &str); 14] = [
        (&["--topology", "torus", "--", "true"], 2, "\"torus\" is no file"),
        (&["--topology", "mesh:3", "--hosts", "2", "--", "true"], 2, "2 hosts, but the topology has 3"),
        (&["--topology", "ring", "--hosts", "2", "--", "true"], 2, "at least 3"),
        (&["--topology", "mesh", "--hosts", "0", "--", "true"], 2, "at least 2"),
        (&["--profile", "tb6", "--", "true"], 2, "\"tb6\" is not tb5"),
        (&["--fault", "at 1s a explode", "--", "true"], 2, "is no fault"),
        (&["--fault", "at 1s z kill", "--", "true"], 2, "there is no host \"z\""),
        (&["--grace", "5", "--", "true"], 2, "such as 300ms"),
        (&[], 2, "PROG"),
        (&["--", "true", ":"], 2, "one is missing"),
        (&["--", "true", ":", "true", ":", "true"], 2, "3 commands for 2 hosts"),
        (&["--", "/no/such/program"], 1, "host a: \"/no/such/program\" cannot be started"),
        (
            &["--", "sleep", "1000", ":", "/no/such/program"],
            1,
            "host b: \"/no/such/program\" cannot be started",
        ),
        (&["--topology", "line", "--hosts", "40", "--", "true"], 1, "at most 32 hosts"),
    ];
    for (arguments, code, why) in table {
        let output = Run::new(arguments).output();
        assert_code(&output, code);
        assert!(text(&output.stderr).contains(why), "{why}: {}", text(&output.stderr));
        assert!(!text(&output.stderr).contains("panicked"), "{}", text(&output.stderr));
    }
    let named = tb5().args(["run", "--name", "../up", "--", "true"]).output().unwrap();
    assert_code(&named, 2);
}

#[test]
fn a_missing_provider_is_named_with_its_remedy() {
    let mut run = Run::new(["--", "true"]);
    run.command.env("RDMA_SIM_PROVIDER", "/no/librdma.so");
    let output = run.output();
    assert_code(&output, 1);
    let says = text(&output.stderr);
    assert!(says.contains("/no/librdma.so") && says.contains("cargo build --release -p librdma"), "{says}");
    // A tool that was copied away from its provider.
    let folder = tempfile::tempdir().unwrap();
    let copied = folder.path().join("tb5");
    fs::copy(env!("CARGO_BIN_EXE_tb5"), &copied).unwrap();
    let output =
        Command::new(copied).args(["run", "--", "true"]).env_remove("RDMA_SIM_PROVIDER").output().unwrap();
    assert_code(&output, 1);
    let says = text(&output.stderr);
    assert!(says.contains("deps/librdma.so") && says.contains("RDMA_SIM_PROVIDER"), "{says}");
}

#[test]
fn a_name_is_one_fabric() {
    let (run, mut child) = endless();
    let again = tb5().args(["run", "--name", &run.name, "--", "true"]).output().unwrap();
    assert_code(&again, 1);
    assert!(text(&again.stderr).contains("there is a fabric called"), "{}", text(&again.stderr));
    assert!(run.directory().exists());
    let unknown = tb5().args(["fabric", &run.name, "unplug", "a:rdma_en99"]).output().unwrap();
    assert_code(&unknown, 2);
    assert!(text(&unknown.stderr).contains("no device \"rdma_en99\""), "{}", text(&unknown.stderr));
    signal(&child, libc::SIGTERM);
    child.wait().unwrap();
    let gone = tb5().args(["fabric", &run.name]).output().unwrap();
    assert_code(&gone, 1);
    assert!(text(&gone.stderr).contains("there is no fabric called"), "{}", text(&gone.stderr));
}
